//! VS Code's `mcp.json`: `servers` and `inputs`; in `settings.json` both below `mcp`.

use std::collections::BTreeMap;

use serde_json::Value;

use super::editors::CURSOR;
use super::entry::{Dialect, at, server};
use super::proposal::{Proposal, Want};

const VS_CODE: Dialect = Dialect {
    silent: &["gallery", "dev", "version"],
    ..CURSOR
};

pub(super) fn read(file: &Value) -> Vec<Proposal> {
    let file = file
        .get("mcp")
        .filter(|_| file.get("servers").is_none())
        .unwrap_or(file);
    let inputs = inputs(file.get("inputs"));
    let entries = at(file, &["servers"]).into_iter().flatten();
    entries
        .map(|(name, entry)| {
            let mut proposal = server(name, entry, &VS_CODE);
            for (key, input) in &inputs {
                match (proposal.wants.get_mut(key), input) {
                    (Some(want), Ok(input)) => *want = input.clone(),
                    (Some(_), Err(why)) => {
                        proposal.runs =
                            Err(format!("its input {}: {why}", colibri_text::brief(key, 40)))
                    }
                    (None, _) => {}
                }
            }
            proposal
        })
        .collect()
}

fn inputs(list: Option<&Value>) -> BTreeMap<String, Result<Want, &'static str>> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let input = |input: &Value| {
        let text = |key: &str| input.get(key).and_then(Value::as_str);
        let want = Want {
            secret: input.get("password") == Some(&Value::Bool(true)),
            required: true,
            description: text("description").unwrap_or_default().to_owned(),
            default: text("default").map(str::to_owned),
            choices: choices(input.get("options")),
        };
        let want = match text("type") {
            Some("command") => Err("a command of VS Code finds it"),
            _ => Ok(want),
        };
        Some((text("id")?.to_owned(), want))
    };
    list.filter_map(input).collect()
}

fn choices(list: Option<&Value>) -> Vec<String> {
    let list = list.and_then(Value::as_array).into_iter().flatten();
    let choice = |item: &Value| {
        item.as_str()
            .or_else(|| item.get("value")?.as_str())
            .map(str::to_owned)
    };
    list.filter_map(choice).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn inputs_describe_what_entries_ask_for() {
        let file = json!({ "inputs": [
                { "type": "promptString", "id": "key", "description": "API key", "password": true },
                { "type": "pickString", "id": "level", "options": ["info", { "label": "D", "value": "debug" }],
                  "default": "info" },
                { "type": "command", "id": "found", "command": "x" } ],
            "servers": {
                "a": { "type": "stdio", "command": "/usr/bin/a", "args": ["--level", "${input:level}"],
                       "env": { "A": "${input:key}" } },
                "b": { "command": "/usr/bin/b", "args": ["${input:found}"] },
                "c": { "type": "http", "url": "https://c.example.org/mcp", "headers": { "X": "${env:HOST_X}" } } } });
        let found = read(&file);
        assert_eq!(found[0].wants["key"].description, "API key");
        assert!(found[0].wants["key"].secret);
        assert_eq!(found[0].wants["level"].choices, ["info", "debug"]);
        assert_eq!(found[0].missing(&Default::default()), ["key"]);
        assert!(
            found[1]
                .runs
                .as_ref()
                .unwrap_err()
                .contains("a command of VS Code")
        );
        assert_eq!(found[2].missing(&Default::default()), ["HOST_X"]);
        assert_eq!(read(&json!({ "mcp": file })), found);
    }
}
