//! A stdio MCP server that answers from a recording.

use std::collections::{HashMap, VecDeque};
use std::io::{self, BufRead, Write};
use std::path::Path;

use colibri_files::{LineRead, read_line};
use serde_json::value::RawValue;
use serde_json::{Value, json};

use super::file::{RecordedMessage, Recording};
use crate::connection::MAX_LINE;
use crate::failure::CommandError;
use colibri_protocol::version::{Era, Version};

/// JSON-RPC: the message is no request.
const INVALID_REQUEST: i32 = -32600;
/// JSON-RPC: there is no such method.
const METHOD_NOT_FOUND: i32 = -32601;
/// JSON-RPC: the parameters do not fit.
const INVALID_PARAMS: i32 = -32602;

/// A recorded request: its method, and its parameters without `_meta`.
struct ReplayKey {
    method: String,
    params: Value,
}

impl ReplayKey {
    fn of(message: &RecordedMessage<'_>) -> Self {
        let mut params = message.params.clone();
        if let Some(params) = params.as_object_mut() {
            params.remove("_meta");
        }
        // No parameters and empty ones are the same.
        if params.as_object().is_some_and(serde_json::Map::is_empty) {
            params = Value::Null;
        }
        let method = message.method.clone().unwrap_or_default();
        // Each client opens a session in its own words.
        let is_opening = matches!(method.as_str(), "initialize" | "server/discover");
        Self {
            params: if is_opening { Value::Null } else { params },
            method,
        }
    }

    /// The tool, prompt or resource.
    fn name(&self) -> Option<&Value> {
        self.params.get("name").or_else(|| self.params.get("uri"))
    }
}

/// The messages that are still to be sent of a pair.
struct Playback {
    messages: VecDeque<String>,
}

/// A recording that answers a client.
pub(crate) struct Replay {
    recording: Recording,
    keys: Vec<ReplayKey>,
    /// How often each pair answered.
    used: Vec<usize>,
    /// True if only what was asked then is answered.
    strict: bool,
    /// Pairs whose server waits for the client's answer, by the id of its request.
    waiting: HashMap<String, Playback>,
    next: u64,
}

impl Replay {
    fn new(recording: Recording, strict: bool) -> Self {
        let key = |text: &RawValue| match serde_json::from_str::<RecordedMessage<'_>>(text.get()) {
            Ok(message) => ReplayKey::of(&message),
            Err(_) => ReplayKey {
                method: String::new(),
                params: Value::Null,
            },
        };
        Self {
            keys: recording
                .pairs
                .iter()
                .map(|pair| key(&pair.request))
                .collect(),
            used: vec![0; recording.pairs.len()],
            recording,
            strict,
            waiting: HashMap::new(),
            next: 0,
        }
    }

    fn era(&self) -> Option<Era> {
        Version::parse(&self.recording.head.version).map(Version::era)
    }

    /// The pair that answers a request: the first that did not yet, in the order in which they were
    /// asked; without `strict` the last one again, or one of the same tool with other arguments.
    fn find(&self, key: &ReplayKey) -> Option<usize> {
        let same =
            |at: &usize| self.keys[*at].method == key.method && self.keys[*at].params == key.params;
        let alike =
            |at: &usize| self.keys[*at].method == key.method && self.keys[*at].name() == key.name();
        let all = || 0..self.keys.len();
        let unused = |at: &usize| self.used[*at] == 0;
        let fresh = all().filter(same).find(unused);
        if self.strict {
            return fresh;
        }
        fresh
            .or_else(|| all().rfind(same))
            .or_else(|| all().filter(alike).find(unused))
            .or_else(|| all().rfind(alike))
    }

    /// The lines with which a line of the client is answered.
    fn answer(&mut self, line: &str) -> Vec<String> {
        let Ok(message) = serde_json::from_str::<RecordedMessage<'_>>(line) else {
            return vec![error(
                "null",
                -32700,
                "not a JSON-RPC message; a recording takes no batches",
            )];
        };
        let Some(id) = message.id.map(RawValue::get) else {
            return Vec::new();
        };
        let Some(method) = &message.method else {
            return match self.waiting.remove(id) {
                Some(playback) => self.play(playback),
                None => Vec::new(),
            };
        };
        let key = ReplayKey::of(&message);
        let is_modern = self.era() == Some(Era::Modern);
        match (method.as_str(), is_modern) {
            ("initialize", true) | ("server/discover", false) => {
                let version = &self.recording.head.version;
                let what = format!(
                    "this recording is of MCP {version}: replay it to a client of that era"
                );
                return vec![error(id, METHOD_NOT_FOUND, &what)];
            }
            _ => {}
        }
        if let Some(at) = self.find(&key) {
            self.used[at] += 1;
            let playback = self.playback(at, &message, id);
            return self.play(playback);
        }
        let head = &self.recording.head;
        match method.as_str() {
            "ping" | "logging/setLevel" => vec![result(id, "{}")],
            "server/discover" => vec![result(id, head.discover.get())],
            "tools/list" if is_modern => vec![result(id, head.tools.get())],
            "tools/list" => {
                let tools: Value = serde_json::from_str(head.tools.get()).unwrap_or_default();
                vec![result(
                    id,
                    &json!({ "tools": tools.get("tools") }).to_string(),
                )]
            }
            _ => {
                let name = key.name().and_then(Value::as_str).unwrap_or_default();
                let what = match self.strict {
                    true => format!(
                        "not in the recording, or asked more often than then: {method} {name}"
                    ),
                    false => format!("not in the recording: {method} {name}"),
                };
                vec![error(id, INVALID_PARAMS, what.trim_end())]
            }
        }
    }

    /// The messages of a pair, as they are sent to this request.
    fn playback(&mut self, at: usize, request: &RecordedMessage<'_>, id: &str) -> Playback {
        let pair = &self.recording.pairs[at];
        let then: Option<RecordedMessage<'_>> = serde_json::from_str(pair.request.get()).ok();
        let old_id = then.as_ref().and_then(|then| then.id).map(RawValue::get);
        let token = request.progress_token();
        let mut messages = VecDeque::new();
        for text in &pair.before {
            let Ok(mut message) = serde_json::from_str::<Value>(text.get()) else {
                continue;
            };
            if let Some(told) = message.pointer_mut("/params/progressToken") {
                // Who asked for no progress gets none.
                let Some(token) = token else { continue };
                *told = token.clone();
            }
            if message.get("id").is_some() {
                self.next += 1;
                message["id"] = json!(format!("replay-{}", self.next));
            }
            let subscription = "/params/_meta/io.modelcontextprotocol~1subscriptionId";
            if let Some(told) = message.pointer_mut(subscription)
                && Some(told.to_string().as_str()) == old_id
            {
                *told = serde_json::from_str(id).unwrap_or_default();
            }
            messages.push_back(message.to_string());
        }
        if let Some(answer) = &pair.answer
            && let Ok(answer) = serde_json::from_str::<RecordedMessage<'_>>(answer.get())
        {
            let line = match (answer.result, answer.error) {
                (Some(raw), _) => result(id, raw.get()),
                (None, Some(raw)) => {
                    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{}}}"#, raw.get())
                }
                (None, None) => error(
                    id,
                    INVALID_PARAMS,
                    "the recorded answer has neither result nor error",
                ),
            };
            messages.push_back(line);
        }
        Playback { messages }
    }

    /// Sends a pair's messages up to the server's next request.
    fn play(&mut self, mut playback: Playback) -> Vec<String> {
        let mut lines = Vec::new();
        while let Some(line) = playback.messages.pop_front() {
            let asks = serde_json::from_str::<RecordedMessage<'_>>(&line)
                .ok()
                .and_then(|message| message.method.and(message.id.map(|id| id.get().to_owned())));
            lines.push(line);
            if let Some(id) = asks {
                self.waiting.insert(id, playback);
                break;
            }
        }
        lines
    }

    /// Answers a client until it closes its side.
    pub(crate) fn serve(
        &mut self,
        mut input: impl BufRead,
        output: &mut dyn Write,
    ) -> io::Result<()> {
        let mut line = Vec::new();
        loop {
            let answers = match read_line(&mut input, MAX_LINE, &mut line)? {
                LineRead::Line | LineRead::Unterminated => {
                    let text = std::str::from_utf8(&line).map_err(io::Error::other)?;
                    self.answer(text)
                }
                LineRead::TooLong { length, .. } => {
                    let message =
                        format!("the message has {length} bytes, the limit is {MAX_LINE}");
                    vec![error("null", INVALID_REQUEST, &message)]
                }
                LineRead::End => return Ok(()),
            };
            for answer in answers {
                writeln!(output, "{answer}")?;
            }
            output.flush()?;
        }
    }
}

fn result(id: &str, result: &str) -> String {
    format!(r#"{{"jsonrpc":"2.0","id":{id},"result":{result}}}"#)
}

fn error(id: &str, code: i32, message: &str) -> String {
    let message = json!(message);
    format!(r#"{{"jsonrpc":"2.0","id":{id},"error":{{"code":{code},"message":{message}}}}}"#)
}

/// `replay FILE`: reads a recording.
///
/// # Errors
/// It cannot be read, was edited, or is cut.
pub(crate) fn replay(file: &Path, strict: bool) -> Result<Replay, CommandError> {
    Ok(Replay::new(Recording::read(file)?, strict))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::recording::file::tests::recording;

    fn says(replay: &mut Replay, line: &str) -> Vec<String> {
        replay.answer(line)
    }

    fn call(id: u64, arguments: &str) -> String {
        format!(
            r#"{{"id":{id},"method":"tools/call","params":{{"name":"echo","arguments":{arguments}}}}}"#
        )
    }

    #[test]
    fn a_message_over_the_limit_is_refused_and_the_next_one_answered() {
        let answer = r#"{"id":1,"result":{}}"#;
        let request = call(1, "{}");
        let mut replay = Replay::new(recording("2025-06-18", &[(&*request, &[], answer)]), true);
        let input = format!("{}\n{request}\r\n", "x".repeat(MAX_LINE + 1));
        let mut output = Vec::new();
        replay.serve(input.as_bytes(), &mut output).unwrap();
        let output = String::from_utf8(output).unwrap();
        let lines: Vec<&str> = output.lines().collect();
        assert!(
            lines[0].contains("-32600") && lines[0].contains("16777217 bytes"),
            "{output}"
        );
        assert_eq!(lines[1..].len(), 1, "{output}");
    }

    #[test]
    fn answers_come_in_their_order_and_as_they_were() {
        let (one, two) = (
            r#"{"id":1,"result":{"x" : 1e400}}"#,
            r#"{"id":2,"error":{"code":5}}"#,
        );
        let pairs = [
            (&*call(1, r#"{"a":1,"b":2}"#), &[][..], one),
            (&*call(2, r#"{"b":2,"a":1}"#), &[], two),
        ];
        for strict in [false, true] {
            let mut replay = Replay::new(recording("2025-06-18", &pairs), strict);
            let first = says(&mut replay, &call(7, r#"{"b":2,"a":1}"#));
            assert_eq!(
                first,
                [r#"{"jsonrpc":"2.0","id":7,"result":{"x" : 1e400}}"#]
            );
            let second = says(&mut replay, &call(8, r#"{"a":1,"b":2}"#));
            assert_eq!(second, [r#"{"jsonrpc":"2.0","id":8,"error":{"code":5}}"#]);
            for (asked, known) in [(r#"{"a":1,"b":2}"#, true), ("{}", true)] {
                let said = says(&mut replay, &call(9, asked)).join("");
                assert_eq!(said.contains("\"code\":5"), known && !strict, "{said}");
                assert_eq!(said.contains("not in the recording"), strict, "{said}");
            }
            let other = says(
                &mut replay,
                r#"{"id":1,"method":"tools/call","params":{"name":"other"}}"#,
            )
            .join("");
            assert!(other.contains("not in the recording"), "{other}");
            let listed = says(&mut replay, r#"{"id":1,"method":"tools/list"}"#).join("");
            assert!(listed.contains(r#""tools":[{"name":"echo"}]"#), "{listed}");
        }
    }

    #[test]
    fn progress_and_requests_of_the_server_are_kept() {
        let asked = r#"{"id":"old","method":"tools/call","params":{"name":"a","_meta":{"progressToken":1}}}"#;
        let before = [
            r#"{"method":"notifications/progress","params":{"progressToken":1,"progress":2}}"#,
            r#"{"id":5,"method":"elicitation/create","params":{}}"#,
            r#"{"method":"notifications/message","params":{"data":"x"}}"#,
        ];
        let mut replay = Replay::new(
            recording(
                "2025-06-18",
                &[(asked, &before, r#"{"id":"old","result":{}}"#)],
            ),
            true,
        );
        let line = r#"{"id":3,"method":"tools/call","params":{"name":"a","_meta":{"progressToken":"mine"}}}"#;
        let said = says(&mut replay, line);
        assert_eq!(said.len(), 2, "{said:?}");
        assert!(
            said[0].contains(r#""progressToken":"mine""#) && said[1].contains(r#""id":"replay-1""#)
        );
        assert!(says(&mut replay, r#"{"id":"other","result":{}}"#).is_empty());
        let rest = says(&mut replay, r#"{"id":"replay-1","result":{}}"#);
        assert_eq!(rest.len(), 2, "{rest:?}");
        assert_eq!(rest[1], r#"{"jsonrpc":"2.0","id":3,"result":{}}"#);
    }

    #[test]
    fn a_client_of_the_other_era_is_told() {
        for (version, refused) in [
            ("2025-06-18", "server/discover"),
            ("2026-07-28", "initialize"),
        ] {
            let mut replay = Replay::new(recording(version, &[]), false);
            let said = says(&mut replay, &format!(r#"{{"id":1,"method":"{refused}"}}"#)).join("");
            assert!(said.contains("-32601") && said.contains(version), "{said}");
        }
        let mut replay = Replay::new(recording("2025-06-18", &[]), false);
        assert!(says(&mut replay, "[").join("").contains("-32700"));
        assert!(says(&mut replay, r#"{"method":"notifications/initialized"}"#).is_empty());
    }
}
