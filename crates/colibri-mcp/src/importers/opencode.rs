//! OpenCode's `opencode.json`: `mcp`.

use serde_json::Value;

use super::editors::CLAUDE_DESKTOP;
use super::entry::{Dialect, at, gap, servers};
use super::proposal::Proposal;
use super::template::Template;

const OPENCODE: Dialect = Dialect {
    env: "environment",
    timeout: Some(("timeout", 1)),
    gaps: brace_gaps,
    ..CLAUDE_DESKTOP
};

pub(super) fn read(file: &Value) -> Vec<Proposal> {
    at(file, &["mcp"])
        .map(|entries| servers(entries, &OPENCODE))
        .unwrap_or_default()
}

/// `{env:NAME}` and `{file:PATH}`.
fn brace_gaps(text: &str) -> Template {
    Template::read(text, "{", '}', |name| {
        let is_known = name.starts_with("env:") || name.starts_with("file:");
        is_known.then(|| gap(name.strip_prefix("env:").unwrap_or(name), None))
    })
}

#[cfg(test)]
mod tests {
    use super::super::proposal::{ProposedProgram, Runs};
    use super::*;
    use serde_json::json;

    #[test]
    fn local_and_remote_servers() {
        let found = read(&json!({ "mcp": {
            "local": { "type": "local", "command": ["bun", "x", "my-server", "--x"], "environment": { "K": "{env:MY_KEY}" },
                       "enabled": true },
            "remote": { "type": "remote", "url": "https://r.example.org/mcp", "enabled": false,
                        "headers": { "Authorization": "Bearer {file:~/.token}" } },
            "empty": { "type": "local", "command": [] } } }));
        assert!(found[0].runs.as_ref().unwrap_err().contains("empty"));
        match found[1].runs.as_ref().unwrap() {
            Runs::Process(process) => {
                assert!(
                    matches!(&process.program, ProposedProgram::Package(package) if package.name == "my-server")
                );
                assert_eq!(process.args[0].plain(), Some("--x"));
            }
            _ => panic!("no process"),
        }
        assert_eq!(found[1].missing(&Default::default()), ["MY_KEY"]);
        assert_eq!(found[2].missing(&Default::default()), ["file:~/.token"]);
        assert!(found[2].wants["file:~/.token"].secret && found[2].disabled);
    }
}
