//! The report in an agent's lines: its state, the name of its session, and the reason of its
//! failure.

use std::borrow::Cow;

use colibri_api::{AgentState, json_depth};
use colibri_text::brief;
use colibri_wire::Json;
use colibri_wire::json::JsonKind;

use crate::registry::{AgentKind, LineShape, MemberPath, MemberPattern};

/// A line that is nested deeper is no event.
const MAX_DEPTH: u32 = 128;
/// Characters of a reason, and of a session's name, that are kept.
const MAX_REASON: usize = 500;
const MAX_NAME: usize = 128;

/// The report in the lines read so far.
#[derive(Debug)]
pub(super) struct AgentReport {
    /// The agent's activity.
    pub state: AgentState,
    /// The reason of its failure, if that was its last word.
    pub reason: Option<String>,
    /// Its own name of its session.
    pub session_id: Option<String>,
    /// A line of the table has come.
    begun: bool,
}

impl Default for AgentReport {
    fn default() -> AgentReport {
        AgentReport {
            state: AgentState::Idle,
            reason: None,
            session_id: None,
            begun: false,
        }
    }
}

/// A line as an event, if it is one: a JSON object on one line, not nested too deep.
pub(super) fn event(line: &[u8]) -> Option<Json<'_>> {
    let shallow = json_depth(line) <= MAX_DEPTH;
    shallow
        .then(|| Json::parse(line).ok())
        .flatten()
        .filter(Json::is_object)
}

impl AgentReport {
    /// Takes in an event. One that the table does not know changes nothing.
    pub(super) fn hear(&mut self, event: Json<'_>, kind: &AgentKind) {
        let Some(state) = kind
            .shapes
            .iter()
            .find(|(shape, _)| fits(event, shape))
            .map(|(_, state)| *state)
        else {
            return;
        };
        if !self.begun {
            self.begun = true;
            self.session_id = first(event, &kind.session_id).map(|text| brief(&text, MAX_NAME));
        }
        self.reason = match state {
            AgentState::Error => first(event, &kind.reason).map(|text| brief(&text, MAX_REASON)),
            _ => None,
        };
        self.state = state;
    }
}

fn fits(event: Json<'_>, shape: &LineShape) -> bool {
    shape.0.iter().all(|(path, wanted)| {
        let Some(value) = at(event, path) else {
            return false;
        };
        match wanted {
            MemberPattern::Text(pattern) => {
                value.as_str().is_some_and(|text| pattern.matches(&text))
            }
            MemberPattern::Flag(flag) => value.as_bool() == Some(*flag),
        }
    })
}

fn at<'a>(event: Json<'a>, path: &MemberPath) -> Option<Json<'a>> {
    path.iter().try_fold(event, |value, key| value.get(key))
}

/// The text at the first of these paths that leads to one.
fn first<'a>(event: Json<'a>, paths: &[MemberPath]) -> Option<Cow<'a, str>> {
    let text = |path| {
        let value = at(event, path)?;
        match value.kind() {
            JsonKind::String => value.as_str(),
            // Several reasons, or one with its particulars: as they were written.
            JsonKind::Array | JsonKind::Object => Some(Cow::Borrowed(value.text())),
            _ => None,
        }
    };
    paths.iter().find_map(text).filter(|text| !text.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::parse;

    /// The reported state of an agent of this kind after each of these lines.
    fn told(kind: &str, lines: &[&str]) -> (Vec<AgentState>, AgentReport) {
        let text = format!(r#"{{"agents":{{"a":{{"command":"/a","events":{kind}}}}}}}"#);
        let mut told = AgentReport::default();
        let kind = parse(text.as_bytes(), "r").unwrap().agents["a"]
            .events
            .clone()
            .unwrap();
        let states = lines.iter().map(|line| {
            told.hear(event(line.as_bytes()).unwrap(), &kind);
            told.state
        });
        (states.collect(), told)
    }

    use AgentState::{Done, Error, Idle, Working};

    #[test]
    fn claude_is_understood() {
        let init = r#"{"type":"system","subtype":"init","cwd":"/w","session_id":"5f0c","tools":["Bash"],"mcp_servers":[]}"#;
        let (states, all) = told(
            "\"claude\"",
            &[
                init,
                r#"{"type":"assistant","message":{"content":[{"type":"text","text":"hi"}]},"session_id":"other"}"#,
                r#"{"type":"user","message":{"content":[{"type":"tool_result"}]},"session_id":"other"}"#,
                r#"{"type":"system","subtype":"compact_boundary","session_id":"5f0c"}"#,
                r#"{"type":"stream_event","event":{}}"#,
                r#"{"type":"result","subtype":"success","is_error":false,"result":"4","session_id":"5f0c"}"#,
            ],
        );
        assert_eq!(states, [Idle, Working, Working, Working, Working, Done]);
        assert_eq!(
            (all.session_id.as_deref(), all.reason),
            (Some("5f0c"), None)
        );
        // Whatever its subtype says: a program that was refused by its model says success.
        let failed = r#"{"type":"result","subtype":"success","is_error":true,"result":"Invalid API key","session_id":"5f0c"}"#;
        let (states, all) = told("\"claude\"", &[init, failed]);
        assert_eq!(states, [Idle, Error]);
        assert_eq!(all.reason.as_deref(), Some("Invalid API key"));
        let limit =
            r#"{"type":"result","subtype":"error_max_turns","is_error":true,"session_id":"5f0c"}"#;
        assert_eq!(
            told("\"claude\"", &[limit]).1.reason.as_deref(),
            Some("error_max_turns")
        );
    }

    #[test]
    fn codex_is_understood() {
        let (states, all) = told(
            "\"codex\"",
            &[
                r#"{"type":"thread.started","thread_id":"0199a213-81c0"}"#,
                r#"{"type":"turn.started"}"#,
                r#"{"type":"item.started","item":{"id":"item_0","type":"command_execution","command":"ls"}}"#,
                r#"{"type":"error","message":"Reconnecting... 1/5"}"#,
                r#"{"type":"item.completed","item":{"id":"item_1","type":"agent_message","text":"ok"}}"#,
                r#"{"type":"turn.completed","usage":{"input_tokens":1,"cached_input_tokens":0,"output_tokens":2}}"#,
            ],
        );
        assert_eq!(states, [Idle, Working, Working, Error, Working, Done]);
        assert_eq!(
            (all.session_id.as_deref(), all.reason),
            (Some("0199a213-81c0"), None)
        );
        let (states, all) = told(
            "\"codex\"",
            &[r#"{"type":"turn.failed","error":{"message":"stream ended"}}"#],
        );
        assert_eq!(
            (states, all.reason.as_deref()),
            (vec![Error], Some("stream ended"))
        );
    }

    #[test]
    fn gemini_is_understood() {
        let (states, all) = told(
            "\"gemini\"",
            &[
                r#"{"type":"init","timestamp":"t","session_id":"g1","model":"m"}"#,
                r#"{"type":"message","role":"user","content":"x"}"#,
                r#"{"type":"tool_use","tool_name":"ls","tool_id":"1","parameters":{}}"#,
                r#"{"type":"tool_result","tool_id":"1","status":"error"}"#,
                r#"{"type":"result","status":"success","stats":{}}"#,
            ],
        );
        assert_eq!(states, [Idle, Working, Working, Working, Done]);
        assert_eq!(all.session_id.as_deref(), Some("g1"));
        let failed = r#"{"type":"result","status":"error","error":{"type":"x","message":"quota"}}"#;
        let (states, all) = told("\"gemini\"", &[failed]);
        assert_eq!(
            (states, all.reason.as_deref()),
            (vec![Error], Some("quota"))
        );
    }

    #[test]
    fn opencode_is_understood() {
        let (states, all) = told(
            "\"opencode\"",
            &[
                r#"{"type":"step_start","timestamp":1,"sessionID":"ses_1","part":{}}"#,
                r#"{"type":"tool_use","sessionID":"ses_1","part":{"tool":"bash"}}"#,
                r#"{"type":"text","sessionID":"ses_1","part":{"text":"x"}}"#,
                r#"{"type":"step_finish","sessionID":"ses_1","part":{"reason":"stop"}}"#,
            ],
        );
        assert_eq!(states, [Working; 4]);
        assert_eq!(all.session_id.as_deref(), Some("ses_1"));
        let failed = r#"{"type":"error","sessionID":"s","error":{"name":"APIError","data":{"message":"no key"}}}"#;
        let (states, all) = told("\"opencode\"", &[failed]);
        assert_eq!(
            (states, all.reason.as_deref()),
            (vec![Error], Some("no key"))
        );
    }

    #[test]
    fn pi_and_zot_are_understood() {
        for (kind, first, id) in [
            (
                "\"pi\"",
                r#"{"type":"session","version":3,"id":"p1","cwd":"/w"}"#,
                "p1",
            ),
            (
                "\"zot\"",
                r#"{"type":"session_started","session_id":"z1"}"#,
                "z1",
            ),
        ] {
            let (states, all) = told(
                kind,
                &[
                    r#"{"type":"response","id":"not it"}"#,
                    first,
                    r#"{"type":"agent_start"}"#,
                    r#"{"type":"turn_start"}"#,
                    r#"{"type":"message_update","message":{}}"#,
                    r#"{"type":"tool_execution_start","toolName":"bash"}"#,
                    r#"{"type":"turn_end"}"#,
                    r#"{"type":"queue_update"}"#,
                    r#"{"type":"agent_end","messages":[]}"#,
                    r#"{"type":"error","message":"broken"}"#,
                ],
            );
            let all_working = [Working; 5];
            assert_eq!(states[..3], [Idle; 3]);
            assert_eq!(
                (&states[3..8], &states[8..]),
                (&all_working[..], &[Done, Error][..])
            );
            assert_eq!(
                (all.session_id.as_deref(), all.reason.as_deref()),
                (Some(id), Some("broken"))
            );
        }
    }

    #[test]
    fn a_table_of_an_entry_may_name_what_blocks() {
        let table = r#"{"session_id":["run.id"],"blocked":[{"kind":"ask"}],"working":[{"kind":"*"}],
                        "error":[{"kind":"end","ok":false}],"done":[{"kind":"end","ok":true}]}"#;
        let lines = [
            r#"{"kind":"x","run":{"id":"r"}}"#,
            r#"{"kind":"ask"}"#,
            r#"{"kind":"end","ok":true}"#,
            r#"{"kind":"end","ok":false}"#,
            r#"{"kind":"end","ok":"false"}"#,
            r#"{"kind":7}"#,
        ];
        let (states, all) = told(table, &lines);
        assert_eq!(
            states,
            [Working, AgentState::Blocked, Done, Error, Working, Working]
        );
        assert_eq!(all.session_id.as_deref(), Some("r"));
    }

    #[test]
    fn depth_does_not_count_what_stands_in_text() {
        assert_eq!(json_depth(br#"{"a":"[[[[\"[[","b":[{}]}"#), 3);
        assert!(event(br#"{"a":"[[[["}"#).is_some());
        assert!(event(b"[]").is_none() && event(b"{").is_none() && event(b"").is_none());
    }
}
