//! Whether an agent runs this program in a sandbox of its own, which keeps commands from Unix sockets. Nothing is
//! loosened here: the agent's setting is named, and so is what works without it.

/// What an agent sets for the commands that it confines, and what to say there. Codex: codex-rs/core, `spawn.rs`;
/// Claude Code: its sandbox runtime.
const AGENTS: &[(&str, &str)] = &[
    (
        "CODEX_SANDBOX_NETWORK_DISABLED",
        "Codex runs this command in its sandbox without network, which keeps it from Unix sockets too; \
         sandbox_workspace_write.network_access = true in ~/.codex/config.toml would change that for every command. \
         Colibri's tools do not need it: Codex starts the bridge outside the sandbox (colibri-mcp connect codex)",
    ),
    (
        "SANDBOX_RUNTIME",
        "Claude Code runs this command in its sandbox, which keeps it from Unix sockets; sandbox.network.allowUnixSockets \
         (macOS) or allowAllUnixSockets (Linux) in ~/.claude/settings.json would change that for every command. Colibri's \
         tools do not need it: Claude Code starts the bridge outside the sandbox (colibri-mcp connect claude-code)",
    ),
];

/// What to say in the sandbox that this program runs in, if it does.
pub(crate) fn around_this() -> Option<&'static str> {
    around(|name| std::env::var_os(name).is_some_and(|value| !value.is_empty()))
}

fn around(is_set: impl Fn(&str) -> bool) -> Option<&'static str> {
    AGENTS.iter().find(|(name, _)| is_set(name)).map(|(_, text)| *text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_agents_sandbox_is_known_by_what_it_sets() {
        let text = |set: &str| around(|name| name == set).unwrap_or_default();
        assert!(text("CODEX_SANDBOX_NETWORK_DISABLED").contains("network_access = true"));
        assert!(text("SANDBOX_RUNTIME").contains("allowAllUnixSockets"));
        assert_eq!(around(|_| false), None);
    }
}
