//! Names that nothing here has, and that stand in pages all the same.

use super::Finding;

/// A name, the beginning of the path of the file that has it, and the reason.
const EXCEPTIONS: &[(&str, &str, &str)] = &[
    (
        "/var/db/colibri-replaced",
        "docs/guide/keeping.md",
        "a directory that the page's commands make",
    ),
    ("XRequest", "CONTRIBUTING.md", "X stands for a name"),
    ("XResponse", "CONTRIBUTING.md", "X stands for a name"),
    ("XEvent", "CONTRIBUTING.md", "X stands for a name"),
    ("XLagged", "CONTRIBUTING.md", "X stands for a name"),
    (
        "github__NAME",
        "docs/man/clients.json.5",
        "NAME stands for a name",
    ),
    (
        "server__tool",
        "crates/colibri-client/src/lib.rs",
        "stands for a server's tool",
    ),
    ("colibri_task", "docs/tasks.md", "the beginning of names"),
    ("unsafe", "colibri-jail-helper/src/lib.rs", "a word of Rust"),
    (
        "for alice",
        "docs/guide/trail.md",
        "what the trail's records say, with a person's name",
    ),
    (
        "No such file or directory",
        "docs/guide/troubleshooting.md",
        "the system's words",
    ),
    (
        "ArcSwap",
        "docs/architecture.md",
        "a type of the crate arc-swap",
    ),
    (
        "tlog_tiles",
        "docs/decisions.md",
        "a crate that is not used",
    ),
    (
        "ProxyCommand",
        "docs/guide/other-hosts.md",
        "a key of ssh_config(5)",
    ),
    (
        "MCP_TOOL_TIMEOUT",
        "docs/policy.md",
        "a variable of Claude Code's",
    ),
    (
        "TCP_USER_TIMEOUT",
        "docs/linux-programs.md",
        "an option of Linux",
    ),
    (
        "/usr/local/etc/colibri/ssh",
        "docs/guide/other-hosts.md",
        "the operator's own files",
    ),
    (
        "/usr/local/etc/colibri/ssh_config",
        "docs/guide/other-hosts.md",
        "the operator's own file",
    ),
    (
        "/var/db/colibri-trail",
        "docs/guide/",
        "the operator's choice for daily_colibri_trail_archive",
    ),
    (
        "/var/db/colibri-trail",
        "port/files/490.colibri-trail.in",
        "the operator's choice of a directory",
    ),
    (
        "/var/db/colibri-trail",
        "tests/freebsd/package.sh",
        "its choice for daily_colibri_trail_archive",
    ),
    (
        "/var/run/colibri-test",
        "tests/freebsd/",
        "a directory that the proof makes",
    ),
    (
        "/var/run/colibri-proof",
        "tests/freebsd/run.sh",
        "a directory that the proof makes",
    ),
    (
        "colibri-mcp trail head",
        "docs/trail.md",
        "the first words of a signed text, and no command",
    ),
    (
        "colibri-mcp trail head",
        "crates/colibri-trail/",
        "the first words of a signed text, and no command",
    ),
    (
        "colibri-mcp witness",
        "docs/trail.md",
        "the first words of a signed text, and no command",
    ),
    (
        "colibri-mcp witness",
        "crates/colibri-trail/",
        "the first words of a signed text, and no command",
    ),
    (
        "colibri-mcp and",
        "crates/colibri-mcp/src/commands/uninstall.rs",
        "a sentence",
    ),
    (
        "colibri-mcp does",
        "colibri-mcpd/src/inbound/http/connection.rs",
        "a sentence",
    ),
    (
        "colibri-mcp finds",
        "crates/colibri-protocol/src/error.rs",
        "a sentence",
    ),
    (
        "colibri-mcp has",
        "crates/colibri-mcp/src/private.rs",
        "a sentence",
    ),
    (
        "colibri-mcp in",
        "crates/colibri-mcp/src/commands/connect/replacement.rs",
        "a sentence",
    ),
    (
        "colibri-mcp is",
        "colibri-mcpd/src/servers/ssh.rs",
        "a sentence",
    ),
    (
        "colibri-mcp says",
        "crates/colibri-mcp/src/commands/login.rs",
        "a sentence",
    ),
    (
        "colibri-mcp where",
        "colibri-mcpd/src/servers/ssh.rs",
        "a sentence",
    ),
    (
        "colibri-mcp without",
        "crates/colibri-policy/src/gates.rs",
        "a sentence",
    ),
    (
        "colibri-jail-helper is",
        "crates/colibri-mcp/src/commands/demo/stage.rs",
        "a sentence",
    ),
];

/// The findings that are no exception, as text, and the exceptions that nothing needs.
pub(super) fn without(findings: Vec<Finding>) -> Vec<String> {
    let mut used = vec![false; EXCEPTIONS.len()];
    let mut left = Vec::new();
    for finding in findings {
        let at = EXCEPTIONS.iter().position(|(name, file, _)| {
            is_at(name, &finding.name) && finding.file.starts_with(file)
        });
        match at {
            Some(at) => used[at] = true,
            None => left.push(format!(
                "{}:{}: {}: {}",
                finding.file, finding.line, finding.name, finding.what
            )),
        }
    }
    let unused = EXCEPTIONS.iter().zip(used).filter(|(_, used)| !used);
    left.extend(
        unused.map(|((name, file, _), _)| {
            format!("exceptions.rs: {name} in {file} is needed no more")
        }),
    );
    left
}

/// True for the name itself, and for what stands below it if it is a path.
fn is_at(exception: &str, name: &str) -> bool {
    name.strip_prefix(exception)
        .is_some_and(|rest| rest.is_empty() || exception.starts_with('/') && rest.starts_with('/'))
}
