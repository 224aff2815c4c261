//! An event of an agent in words, as `agent log` and `glasspane` show it.

use std::collections::VecDeque;

use colibri_api::AgentEvent;
use colibri_text::brief;
use serde_json::{Map, Value};

use crate::terminal::{arrow, clock};

/// Columns of an event on a line.
const MAX_SHOWN: usize = 160;
/// Columns of the names of the tools that it calls.
const MAX_TOOLS: usize = 60;
/// The members of an event of which one tells a person most of it, the best first.
const TELLING: [&str; 12] = [
    "text",
    "message",
    "result",
    "command",
    "delta",
    "tool_name",
    "name",
    "tool",
    "content",
    "output",
    "error",
    "subtype",
];
/// The members of a tool call that name the tool.
const TOOL_NAME: [&str; 4] = ["tool_name", "toolName", "tool", "name"];
/// The members of a tool call that hold its arguments.
const TOOL_INPUT: [&str; 4] = ["input", "arguments", "parameters", "args"];
/// The `type` of a tool call.
const TOOL_CALL: [&str; 4] = ["tool_use", "mcp_tool_call", "function_call", "tool"];

/// Puts an event on one line: its time, its type, its most telling text and the tools that it
/// calls. Nothing in it acts on a terminal.
pub(crate) fn describe_event(event: &AgentEvent) -> String {
    let value: Value = serde_json::from_str(event.event.get()).unwrap_or_default();
    // A word, so that it cannot be taken for a line of ours.
    let is_word = |kind: &&str| {
        kind.starts_with(|c: char| c.is_ascii_alphanumeric())
            && kind
                .bytes()
                .all(|b| b.is_ascii_alphanumeric() || b"._:/-".contains(&b))
    };
    let kind = value.get("type").and_then(Value::as_str).filter(is_word);
    let kind = brief(kind.unwrap_or("event"), 40);
    let (text, tools) = find_telling(&value);
    let text = match text {
        None if tools.is_empty() => event.event.get(),
        text => text.unwrap_or_default(),
    };
    let mut words: Vec<&str> = text.split_whitespace().collect();
    let at = clock(event.at);
    if tools.is_empty() {
        return format!("{at} {kind}  {}", brief(&words.join(" "), MAX_SHOWN));
    }
    let text = brief(&words.join(" "), MAX_SHOWN - MAX_TOOLS);
    let tools = brief(&tools.join(", "), MAX_TOOLS);
    words = vec![&text, arrow(), &tools];
    words.retain(|word| !word.is_empty());
    format!("{at} {kind}  {}", words.join(" "))
}

/// The text of the best of the telling members, wherever it stands, of several the one that stands
/// highest; and the names of the tools that are called.
fn find_telling(event: &Value) -> (Option<&str>, Vec<&str>) {
    let mut best: Option<(usize, &str)> = None;
    let mut tools = Vec::new();
    // Beside each value: whether it is an argument of a tool, in which nothing is a call.
    let mut waiting = VecDeque::from([(event, false)]);
    while let Some((value, is_argument)) = waiting.pop_front() {
        match value {
            Value::Object(members) => {
                let tool = called_tool(members).filter(|_| !is_argument);
                tools.extend(tool);
                for (key, value) in members {
                    if tool.is_some() && TOOL_NAME.contains(&key.as_str()) {
                        continue;
                    }
                    let rank = TELLING.iter().position(|telling| telling == key);
                    match (rank, value) {
                        (Some(rank), Value::String(text))
                            if !text.trim().is_empty()
                                && best.is_none_or(|(known, _)| rank < known) =>
                        {
                            best = Some((rank, text));
                        }
                        (_, Value::Object(_) | Value::Array(_)) => {
                            let is_input = tool.is_some() && TOOL_INPUT.contains(&key.as_str());
                            waiting.push_back((value, is_argument || is_input));
                        }
                        _ => {}
                    }
                }
            }
            Value::Array(elements) => {
                waiting.extend(elements.iter().map(|element| (element, is_argument)))
            }
            _ => {}
        }
    }
    (best.map(|(_, text)| text), tools)
}

/// The name of the tool, if this is a call of one.
fn called_tool(members: &Map<String, Value>) -> Option<&str> {
    let text = |key: &str| members.get(key).and_then(Value::as_str);
    let has_input = TOOL_INPUT.iter().any(|key| members.contains_key(*key));
    let is_call = has_input || text("type").is_some_and(|kind| TOOL_CALL.contains(&kind));
    let name = TOOL_NAME.iter().find_map(|key| text(key))?;
    (is_call && !name.trim().is_empty()).then_some(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_api::AgentState;
    use serde_json::json;
    use serde_json::value::RawValue;

    fn described(event: &str) -> String {
        describe_event(&AgentEvent {
            id: "0123456789abcdef".to_owned(),
            n: 1,
            at: 86_399_999,
            state: AgentState::Working,
            event: RawValue::from_string(event.to_owned()).unwrap(),
        })
    }

    #[test]
    fn an_event_is_one_line_that_no_terminal_acts_on() {
        for (raw, wanted) in [
            (
                r#"{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"I look\nat it"}]}}"#,
                "assistant  I look at it",
            ),
            (
                r#"{"type":"item.completed","item":{"id":"i","type":"agent_message","text":"\u001b[2Jdone"}}"#,
                "item.completed  \\u{1b}[2Jdone",
            ),
            (
                r#"{"type":"system","subtype":"init","session_id":"s"}"#,
                "system  init",
            ),
            (r#"{"type":"-- done: all is well","text":"x"}"#, "event  x"),
            (r#"{"type":"--","text":"done"}"#, "event  done"),
            (r#"{"type":"x","n":1}"#, "x  {\"type\":\"x\",\"n\":1}"),
            // Tools, as Claude Code says them: beside text, several, alone, and with what looks
            // like one in its arguments.
            (
                r#"{"type":"assistant","message":{"content":[{"type":"text","text":"I look"},
                    {"type":"tool_use","id":"t","name":"Bash","input":{"command":"ls"}}]}}"#,
                "assistant  I look → Bash",
            ),
            (
                r#"{"type":"assistant","message":{"content":[{"type":"tool_use","name":"Read","input":{}},
                    {"type":"tool_use","name":"mcp__fix__echo","input":{"text":"hi"}}]}}"#,
                "assistant  hi → Read, mcp__fix__echo",
            ),
            (
                r#"{"type":"assistant","message":{"content":[
                    {"type":"tool_use","name":"Bash\u001b[2J","input":{"call":{"name":"evil","input":{}}}}]}}"#,
                "assistant  evil → Bash\\u{1b}[2J",
            ),
            // Codex, and the API that it speaks.
            (
                r#"{"type":"item.started","item":{"id":"i","type":"mcp_tool_call","server":"fix","tool":"echo",
                    "arguments":{"x":1},"status":"in_progress"}}"#,
                "item.started  → echo",
            ),
            (
                r#"{"type":"item.completed","item":{"type":"command_execution","command":"ls","aggregated_output":"a"}}"#,
                "item.completed  ls",
            ),
            (
                r#"{"type":"function_call","name":"fix__echo","arguments":"{}"}"#,
                "function_call  → fix__echo",
            ),
            // Gemini CLI.
            (
                r#"{"type":"tool_use","tool_name":"list_directory","tool_id":"1","parameters":{"path":"."}}"#,
                "tool_use  → list_directory",
            ),
            (
                r#"{"type":"tool_result","tool_id":"1","status":"success","output":"a b"}"#,
                "tool_result  a b",
            ),
            // OpenCode, and pi.
            (
                r#"{"type":"tool_use","part":{"type":"tool","tool":"bash","state":{"input":{"command":"ls"}}}}"#,
                "tool_use  ls → bash",
            ),
            (
                r#"{"type":"tool_execution_start","toolCallId":"1","toolName":"bash","args":{"command":"ls"}}"#,
                "tool_execution_start  ls → bash",
            ),
        ] {
            let wanted = wanted.replace('→', arrow());
            assert_eq!(described(raw), format!("23:59:59.999Z {wanted}"), "{raw}");
        }
        let content = json!([{ "type": "tool_use", "name": "n".repeat(900), "input": {} }]);
        let event =
            json!({ "type": "t".repeat(900), "text": "x".repeat(9000), "content": content });
        let long = described(&event.to_string());
        assert!(
            long.chars().count() < 240 && long.contains(&format!("x… {} nnn", arrow())),
            "{long}"
        );
    }
}
