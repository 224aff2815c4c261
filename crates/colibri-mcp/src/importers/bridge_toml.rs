//! `mcp-bridge.toml`: `[servers.NAME]` with `command`, `args`, or `url`, `headers`.

use serde_json::Value;

use super::editors::CLAUDE_DESKTOP;
use super::entry::{at, servers};
use super::proposal::Proposal;

pub(super) fn read(file: &Value) -> Vec<Proposal> {
    at(file, &["servers"])
        .map(|entries| servers(entries, &CLAUDE_DESKTOP))
        .unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::super::source::toml;
    use super::*;

    #[test]
    fn the_bridges_servers() {
        let text = "idle_timeout_minutes = 5\n[summary]\nenabled = true\n[servers.my_files]\ncommand = \"fs-server\"\n\
                    args = [\"/srv\"]\n[servers.docs]\nurl = \"https://d.example.org/mcp\"\n[servers.docs.headers]\nX = \"y\"\n";
        let found = read(&toml(text).unwrap());
        assert_eq!(
            found
                .iter()
                .map(|one| one.name.as_str())
                .collect::<Vec<_>>(),
            ["docs", "my_files"]
        );
        assert!(
            found
                .iter()
                .all(|one| one.runs.is_ok() && one.notes.is_empty())
        );
        assert!(read(&toml("idle_timeout_minutes = 1").unwrap()).is_empty());
    }
}
