//! True if an agent runs this program in a sandbox of its own, which keeps commands from Unix
//! sockets. Nothing is loosened here: the agent's setting is named, and so is what works without
//! it.

use std::io;

/// An agent with a sandbox.
struct SandboxedAgent {
    /// The variable that it sets there.
    sets: &'static str,
    /// The socket is not even seen there.
    hides: bool,
    /// The note for it.
    said: &'static str,
}

/// The variables that an agent sets for the commands that it confines, and the note for each.
/// Codex: codex-rs/core, `spawn.rs`; Claude Code: its sandbox runtime; Gemini CLI, which confines
/// itself, with the MCP servers that it starts: docs/cli/sandbox.md, and `sandbox.ts` of
/// packages/cli. OpenCode has no sandbox.
const AGENTS: &[SandboxedAgent] = &[
    SandboxedAgent {
        sets: "CODEX_SANDBOX_NETWORK_DISABLED",
        hides: false,
        said: "Codex runs this command in its sandbox without network, which keeps it from Unix sockets too; \
         sandbox_workspace_write.network_access = true in ~/.codex/config.toml would change that for every command. \
         Colibri's tools do not need it: Codex starts the bridge outside the sandbox (colibri-mcp connect codex)",
    },
    SandboxedAgent {
        sets: "SANDBOX_RUNTIME",
        hides: false,
        said: "Claude Code runs this command in its sandbox, which keeps it from Unix sockets; sandbox.network.allowUnixSockets \
         (macOS) or allowAllUnixSockets (Linux) in ~/.claude/settings.json would change that for every command. Colibri's \
         tools do not need it: Claude Code starts the bridge outside the sandbox (colibri-mcp connect claude-code)",
    },
    SandboxedAgent {
        sets: "SANDBOX",
        hides: true,
        said: "SANDBOX is set, as Gemini CLI does in the container in which it runs itself and all that it starts: \
         SANDBOX_MOUNTS=DIRECTORY:DIRECTORY:ro in Gemini CLI's environment, with the directory of the socket, shows that \
         there, and its image needs colibri-mcp. Without --sandbox (tools.sandbox in ~/.gemini/settings.json) nothing of \
         this is needed",
    },
];

/// The note for the sandbox that this program runs in, if it does.
pub(crate) fn around_this() -> Option<&'static str> {
    around(is_set).map(|agent| agent.said)
}

/// The same, where the sandbox is why the daemon's socket cannot be reached.
pub(crate) fn explains(kind: io::ErrorKind) -> Option<&'static str> {
    explained(kind, is_set)
}

fn explained(kind: io::ErrorKind, is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    use io::ErrorKind::{NotFound, Other, PermissionDenied, ReadOnlyFilesystem};
    let agent = around(is_set)?;
    let is_why = matches!(kind, PermissionDenied | ReadOnlyFilesystem | Other)
        || agent.hides && kind == NotFound;
    is_why.then_some(agent.said)
}

fn is_set(name: &str) -> bool {
    std::env::var_os(name).is_some_and(|value| !value.is_empty())
}

fn around(is_set: impl Fn(&str) -> bool) -> Option<&'static SandboxedAgent> {
    AGENTS.iter().find(|agent| is_set(agent.sets))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_sandbox_is_known_by_what_it_sets() {
        let text = |set: &str| around(|name| name == set).map_or("", |agent| agent.said);
        assert!(text("CODEX_SANDBOX_NETWORK_DISABLED").contains("network_access = true"));
        assert!(text("SANDBOX_RUNTIME").contains("allowAllUnixSockets"));
        assert!(text("SANDBOX").contains("SANDBOX_MOUNTS="));
        assert!(around(|_| false).is_none());
    }

    #[test]
    fn a_socket_that_is_not_there_is_a_sandboxs_doing_only_where_it_hides_files() {
        let said = |kind, set: &str| explained(kind, |name| name == set).is_some();
        assert!(said(io::ErrorKind::NotFound, "SANDBOX"));
        assert!(!said(
            io::ErrorKind::NotFound,
            "CODEX_SANDBOX_NETWORK_DISABLED"
        ));
        assert!(said(io::ErrorKind::PermissionDenied, "SANDBOX_RUNTIME"));
        assert!(!said(io::ErrorKind::ConnectionRefused, "SANDBOX"));
        assert!(!said(io::ErrorKind::PermissionDenied, "NOTHING"));
    }
}
