//! Zed's `settings.json`: `context_servers`.

use anyhow::anyhow;
use serde_json::{Map, Value};

use super::editors::CLAUDE_DESKTOP;
use super::entry::{Dialect, at, server};
use super::proposal::Proposal;

const ZED: Dialect = Dialect {
    timeout: Some(("timeout", 1)),
    silent: &["source", "settings"],
    ..CLAUDE_DESKTOP
};

pub(super) fn read(file: &Value) -> Vec<Proposal> {
    let entries = at(file, &["context_servers"]).into_iter().flatten();
    entries.map(|(name, entry)| one(name, entry)).collect()
}

fn one(name: &str, entry: &Value) -> Proposal {
    let Some(keys) = entry.as_object() else {
        return server(name, entry, &ZED);
    };
    let is_extensions = keys.get("source").and_then(Value::as_str) == Some("extension");
    if is_extensions || !(keys.contains_key("command") || keys.contains_key("url")) {
        let why =
            "an extension of Zed starts it, and how is not in the file: add the server itself";
        return Proposal::new(name, Err(anyhow!(why)));
    }
    // Until 2025 the command was an object of path, args and env.
    let mut flat = keys.clone();
    if let Some(Value::Object(command)) = keys.get("command") {
        flat.remove("command");
        let renamed = |(key, value): (&String, &Value)| {
            let key = if key == "path" { "command" } else { key };
            (key.to_owned(), value.clone())
        };
        flat.extend(command.iter().map(renamed).collect::<Map<_, _>>());
    }
    server(name, &Value::Object(flat), &ZED)
}

#[cfg(test)]
mod tests {
    use super::super::proposal::Runs;
    use super::*;
    use serde_json::json;

    #[test]
    fn both_forms_of_a_command_addresses_and_extensions() {
        let found = read(&json!({ "theme": "One", "context_servers": {
            "new": { "source": "custom", "command": "/usr/bin/a", "args": ["x"], "env": {} },
            "old": { "command": { "path": "/usr/bin/b", "args": ["y"], "env": { "K": "v" } }, "settings": {} },
            "remote": { "url": "https://r.example.org/mcp", "headers": { "X-Team": "a" } },
            "extension": { "source": "extension", "settings": { "token": "t" } },
            "off": { "command": "/usr/bin/c", "enabled": false } } }));
        let names: Vec<&str> = found.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["extension", "new", "off", "old", "remote"]);
        assert!(found[0].runs.as_ref().unwrap_err().contains("extension"));
        match found[3].runs.as_ref().unwrap() {
            Runs::Process(process) => {
                assert_eq!(process.args[0].plain(), Some("y"));
                assert_eq!(process.env["K"].text.plain(), Some("v"));
            }
            _ => panic!("no process"),
        }
        assert!(matches!(found[4].runs, Ok(Runs::Remote(_))));
        assert!(found[2].disabled);
        assert!(found.iter().all(|one| one.notes.is_empty()), "{found:?}");
    }
}
