//! The messages between a client and an observed server, as far as they tell of tools.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

use super::observation::{NamedThings, Observation};

/// The longest message that is looked into.
const MAX_MESSAGE: usize = 1024 * 1024;
/// The most tools, and requests in flight.
const MAX_TOOLS: usize = 1_000;
/// The longest name of a tool or a method.
const MAX_NAME: usize = 256;
/// The depth of arguments down to which their texts are looked at.
const MAX_DEPTH: usize = 8;

/// The messages of one session.
#[derive(Debug, Default)]
pub(super) struct MessageReader {
    /// Requests in flight: the text of an id, the method, and the tool of a call.
    flights: BTreeMap<String, Option<String>>,
}

impl MessageReader {
    /// Looks into a message of the client; a call with its arguments.
    pub(super) fn client(
        &mut self,
        line: &[u8],
        seen: &mut Observation,
        named: &mut NamedThings,
    ) -> Option<(String, Value)> {
        let message = parse(line)?;
        let method = message.get("method")?.as_str()?;
        let id = message
            .get("id")
            .map(Value::to_string)
            .filter(|id| id.len() <= MAX_NAME);
        let tool = (method == "tools/call").then(|| message.pointer("/params/name")?.as_str());
        let tool = tool
            .flatten()
            .filter(|name| name.len() <= MAX_NAME)
            .map(str::to_owned);
        if let Some(id) = id.filter(|_| {
            self.flights.len() < MAX_TOOLS && ["tools/list", "tools/call"].contains(&method)
        }) {
            self.flights.insert(id, tool.clone());
        }
        let tool =
            tool.filter(|tool| seen.tools.len() < MAX_TOOLS || seen.tools.contains_key(tool))?;
        let none = Value::Object(Map::new());
        let arguments = message.pointer("/params/arguments").unwrap_or(&none);
        let note = seen.tools.entry(tool.clone()).or_default();
        note.calls += 1;
        note.arguments.get_or_insert_default().take(arguments, 0);
        name_strings(arguments, &format!("an argument of {tool}"), named, 0);
        Some((tool, arguments.clone()))
    }

    /// Looks into a message of the server.
    pub(super) fn server(&mut self, line: &[u8], seen: &mut Observation) {
        let Some(message) = parse(line) else { return };
        if let Some(method) = message.get("method").and_then(Value::as_str) {
            if message.get("id").is_some()
                && method.len() <= MAX_NAME
                && seen.requests.len() < MAX_TOOLS
            {
                seen.requests.insert(method.to_owned());
            }
            return;
        }
        let Some(flight) = message
            .get("id")
            .and_then(|id| self.flights.remove(&id.to_string()))
        else {
            return;
        };
        match flight {
            Some(tool) => {
                let has_failed = message.get("error").is_some()
                    || message.pointer("/result/isError") == Some(&Value::Bool(true));
                if let Some(note) = seen.tools.get_mut(&tool).filter(|_| has_failed) {
                    note.failures += 1;
                }
            }
            None => {
                for tool in message
                    .pointer("/result/tools")
                    .and_then(Value::as_array)
                    .into_iter()
                    .flatten()
                {
                    let Some(name) = tool
                        .get("name")
                        .and_then(Value::as_str)
                        .filter(|name| name.len() <= MAX_NAME)
                    else {
                        continue;
                    };
                    if seen.tools.len() >= MAX_TOOLS && !seen.tools.contains_key(name) {
                        continue;
                    }
                    let hint = |hint: &str| {
                        tool.pointer(&format!("/annotations/{hint}")) == Some(&Value::Bool(true))
                    };
                    let note = seen.tools.entry(name.to_owned()).or_default();
                    note.read_only = hint("readOnlyHint");
                    note.destructive = hint("destructiveHint");
                }
            }
        }
    }
}

fn parse(line: &[u8]) -> Option<Value> {
    (line.len() <= MAX_MESSAGE).then(|| serde_json::from_slice(line).ok())?
}

/// Takes each text of an argument for what it may name.
fn name_strings(value: &Value, by: &str, named: &mut NamedThings, depth: usize) {
    match value {
        Value::String(text) => named.take(text, by),
        Value::Array(elements) if depth < MAX_DEPTH => {
            elements
                .iter()
                .for_each(|element| name_strings(element, by, named, depth + 1));
        }
        Value::Object(members) if depth < MAX_DEPTH => {
            members
                .values()
                .for_each(|member| name_strings(member, by, named, depth + 1));
        }
        _ => {}
    }
}
