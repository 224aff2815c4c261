//! A frame between the daemon and a server as an operator gets to see it: secrets taken out, hidden
//! characters escaped, cut to a length, and with the ids of both sides.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Arc;

use colibri_api::{Direction, TapClient, TapFrame};
use colibri_text::{is_hidden, json_escape};
use serde::Serialize;
use serde_json::value::{RawValue, to_raw_value};

use super::status::milliseconds;
use crate::registry::secrets::{REDACTED, Redactor};
use crate::servers::tap::{TapCaller, TappedFrame};
use colibri_policy::sounds_secret;
use colibri_wire::envelope::{Envelope, EnvelopeKind};
use colibri_wire::json::{JsonKind, string};
use colibri_wire::{Edits, Json};

/// Bytes of a frame that are shown where nobody asks for all of it.
pub(super) const SHORT: usize = 4096;
/// Bytes of a name, or of an id, that are shown.
const MAX_NAME: usize = 256;
/// Calls of which is remembered whose they are.
const MAX_CALLS: usize = 4096;
/// Values that stand deeper are not shown: a secret could stand anywhere in them.
const MAX_DEPTH: usize = 64;
/// The number of nested JSON strings in which a name is found.
const LEVELS: usize = 3;
/// The one name with `token` in it that is MCP's own, and no secret.
const PROGRESS_TOKEN: &str = "progressToken";

/// The daemon's notes on a call while its answer is awaited.
#[derive(Debug, Clone)]
struct TappedCall {
    client: Option<TapCaller>,
    method: String,
    tool: Option<String>,
}

/// Describes frames one after the other; knows from the questions whose the answers are.
#[derive(Debug)]
pub(super) struct Describer {
    watch: Box<RawValue>,
    most: usize,
    calls: BTreeMap<(u64, u64), TappedCall>,
}

/// The facts in an envelope.
#[derive(Debug, Default)]
struct EnvelopeSummary<'a> {
    kind: &'static str,
    id: Option<Json<'a>>,
    /// The id, or that of the call a notification is about, if it is one of ours.
    number: Option<u64>,
    method: Option<Cow<'a, str>>,
    tool: Option<Cow<'a, str>>,
}

impl Describer {
    /// A describer for the watch whose request has this id, as JSON; it shows `most` bytes of a
    /// frame. `asked` are the calls in flight when it begins, by process and number.
    pub(super) fn new(
        watch: &str,
        most: usize,
        asked: impl IntoIterator<Item = ((u64, u64), TapCaller)>,
    ) -> Describer {
        let mut describer = Describer {
            watch: raw(watch),
            most,
            calls: BTreeMap::new(),
        };
        for (at, asker) in asked {
            describer.remember(at, known(asker));
        }
        describer
    }

    fn remember(&mut self, at: (u64, u64), known: TappedCall) {
        if self.calls.len() >= MAX_CALLS {
            self.calls.pop_first();
        }
        self.calls.insert(at, known);
    }

    /// The frame as the notification that shows it.
    pub(super) fn describe(&mut self, seen: TappedFrame, redactor: &Arc<Redactor>) -> Vec<u8> {
        let text = String::from_utf8_lossy(&seen.frame);
        let parsed = Json::parse(text.as_bytes()).ok();
        let told = told(parsed);
        let name = |name: Cow<'_, str>| limited(&redactor.redact(&name), MAX_NAME).0;
        let (method, tool) = (told.method.map(name), told.tool.map(name));
        let known = match (seen.call, told.number) {
            (Some((number, asker)), _) => {
                let known = known(asker);
                self.remember((seen.process, number), known.clone());
                Some(known)
            }
            (None, Some(number))
                if told.kind == "request" && seen.direction == Direction::ToServer =>
            {
                let known = TappedCall {
                    client: None,
                    method: method.clone().unwrap_or_default(),
                    tool: None,
                };
                self.remember((seen.process, number), known);
                None
            }
            (None, Some(number)) if matches!(told.kind, "result" | "error") => {
                // What the daemon answers to a server has the server's id, not ours.
                let ours = seen.direction == Direction::FromServer;
                ours.then(|| self.calls.remove(&(seen.process, number)))
                    .flatten()
            }
            (None, Some(number)) if told.kind == "notification" => {
                self.calls.get(&(seen.process, number)).cloned()
            }
            _ => None,
        };
        let id = match (told.id, told.number) {
            (Some(id), _) => Some(self.id(id.text(), redactor)),
            (None, number) => number.and_then(|number| to_raw_value(&number).ok()),
        };
        let client = known
            .as_ref()
            .and_then(|known| known.client.as_ref())
            .map(|asker| TapClient {
                connection: asker.connection,
                uid: asker.uid,
                pid: asker.pid,
                id: self.id(&asker.id, redactor),
            });
        let hidden = parsed.map_or(Cow::Borrowed(&*text), |json| hide_named(&text, json, 0));
        let (frame, cut) = limited(&redactor.redact(&hidden), self.most);
        let described = TapFrame {
            watch: self.watch.clone(),
            time: milliseconds(seen.time),
            direction: seen.direction,
            process: seen.process,
            pid: seen.pid,
            kind: match seen.frame.is_empty() && seen.length > 0 {
                true => "too long to be read".to_owned(),
                false => told.kind.to_owned(),
            },
            id,
            client,
            method: method.or_else(|| known.as_ref().map(|known| known.method.clone())),
            tool: tool.or_else(|| known.and_then(|known| known.tool)),
            length: seen.length,
            cut: cut || seen.frame.len() as u64 != seen.length,
            frame,
        };
        notification("colibri/frame", &described)
    }

    /// An id as JSON: as it was written, or a text that says why not.
    fn id(&self, text: &str, redactor: &Redactor) -> Box<RawValue> {
        match redactor.redact(text) {
            Cow::Borrowed(text) if text.len() <= MAX_NAME => raw(&escaped(text)),
            Cow::Borrowed(_) => raw(&string(&format!("[an id of {} bytes]", text.len()))),
            Cow::Owned(_) => raw(&string(REDACTED)),
        }
    }
}

fn known(asker: TapCaller) -> TappedCall {
    let shown = |name: &str| limited(name, MAX_NAME).0;
    TappedCall {
        method: shown(&asker.method),
        tool: asker.tool.as_deref().map(shown),
        client: Some(asker),
    }
}

/// JSON text as a part of an answer; text that is none, as a string.
pub(super) fn raw(text: &str) -> Box<RawValue> {
    RawValue::from_string(text.to_owned())
        .or_else(|_| to_raw_value(text))
        .unwrap_or_default()
}

/// A notification with these parameters.
pub(super) fn notification(method: &str, params: &impl Serialize) -> Vec<u8> {
    let params = serde_json::to_string(params).unwrap_or_else(|_| "{}".to_owned());
    format!(
        "{{\"jsonrpc\":\"2.0\",\"method\":{},\"params\":{params}}}",
        string(method)
    )
    .into_bytes()
}

fn told(json: Option<Json<'_>>) -> EnvelopeSummary<'_> {
    let Some(json) = json else {
        return EnvelopeSummary {
            kind: "not JSON",
            ..EnvelopeSummary::default()
        };
    };
    if json.kind() == JsonKind::Array {
        return EnvelopeSummary {
            kind: "batch",
            ..EnvelopeSummary::default()
        };
    }
    match Envelope::of(json) {
        Err(_) => EnvelopeSummary {
            kind: "not a message",
            ..EnvelopeSummary::default()
        },
        Ok(Envelope { kind, .. }) => match kind {
            EnvelopeKind::Request { id, method, params } => EnvelopeSummary {
                kind: "request",
                id: Some(id),
                number: id.as_u64(),
                method: method.as_str(),
                tool: params
                    .and_then(|params| params.get("name"))
                    .and_then(|name| name.as_str()),
            },
            EnvelopeKind::Notification { method, params } => {
                let about = |key| {
                    params
                        .and_then(|params| params.get(key))
                        .and_then(|value| value.as_u64())
                };
                EnvelopeSummary {
                    kind: "notification",
                    number: about(PROGRESS_TOKEN).or_else(|| about("requestId")),
                    method: method.as_str(),
                    ..EnvelopeSummary::default()
                }
            }
            EnvelopeKind::Answer { id, outcome } => EnvelopeSummary {
                kind: if outcome.is_ok() { "result" } else { "error" },
                id,
                number: id.and_then(|id| id.as_u64()),
                ..EnvelopeSummary::default()
            },
        },
    }
}

/// JSON text without the values of members whose names sound like secrets; also of JSON in its
/// strings.
fn hide_named<'a>(text: &'a str, json: Json<'_>, level: usize) -> Cow<'a, str> {
    let mut edits = Edits::new();
    hide(&mut edits, json, 0, level);
    if edits.is_empty() {
        return Cow::Borrowed(text);
    }
    // Edits replace whole values, so what comes out is text.
    Cow::Owned(String::from_utf8_lossy(&edits.apply(text.as_bytes())).into_owned())
}

fn hide(edits: &mut Edits, json: Json<'_>, depth: usize, level: usize) {
    match json.kind() {
        JsonKind::Object | JsonKind::Array if depth >= MAX_DEPTH => {
            edits.replace(json.span(), string("[nested too deep to show]"));
        }
        JsonKind::Object => {
            for member in json.members() {
                let key = member
                    .key
                    .as_str()
                    .unwrap_or_else(|| member.key.text().into());
                if key != PROGRESS_TOKEN && sounds_secret(&key) {
                    edits.replace(member.value.span(), string(REDACTED));
                } else {
                    hide(edits, member.value, depth + 1, level);
                }
            }
        }
        JsonKind::Array => {
            for element in json.elements() {
                hide(edits, element, depth + 1, level);
            }
        }
        JsonKind::String if level < LEVELS => {
            let Some(text) = json.as_str() else { return };
            if !text.trim_start().starts_with(['{', '[']) {
                return;
            }
            let Ok(inner) = Json::parse(text.as_bytes()) else {
                return;
            };
            if let Cow::Owned(hidden) = hide_named(&text, inner, level + 1) {
                edits.replace(json.span(), string(&hidden));
            }
        }
        _ => {}
    }
}

/// Writes a character: itself, or its JSON escape, so that the JSON stays the same.
fn escape(c: char, out: &mut String) {
    if is_hidden(c) {
        out.extend(json_escape(c));
    } else {
        out.push(c);
    }
}

fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    text.chars().for_each(|c| escape(c, &mut out));
    out
}

/// Text with hidden characters escaped, and whether it was cut: so that it takes no more than
/// `most` bytes as a string in JSON.
fn limited(text: &str, most: usize) -> (String, bool) {
    let mut out = String::with_capacity(text.len().min(most));
    let mut length = 0;
    for c in text.chars() {
        let before = out.len();
        escape(c, &mut out);
        length += out[before..]
            .bytes()
            .map(|b| 1 + usize::from(matches!(b, b'"' | b'\\')))
            .sum::<usize>();
        if length > most {
            out.truncate(before);
            return (out, true);
        }
    }
    (out, false)
}

#[cfg(test)]
mod tests {
    use super::*;
    use bytes::Bytes;
    use proptest::prelude::*;
    use secrecy::SecretString;
    use serde_json::{Value, json};
    use std::time::SystemTime;

    fn seen(direction: Direction, frame: &[u8]) -> TappedFrame {
        TappedFrame {
            time: SystemTime::now(),
            direction,
            process: 3,
            pid: 41,
            frame: Bytes::copy_from_slice(frame),
            length: frame.len() as u64,
            call: None,
        }
    }

    fn asker(id: &str) -> TapCaller {
        TapCaller {
            connection: 7,
            uid: 1001,
            pid: None,
            id: id.into(),
            method: "tools/call".to_owned(),
            tool: Some("echo".to_owned()),
        }
    }

    fn describer() -> Describer {
        Describer::new("1", SHORT, [])
    }

    fn show(describer: &mut Describer, seen: TappedFrame) -> Value {
        let secret = SecretString::from("hunter2hunter2".to_owned());
        let line = describer.describe(seen, &Arc::new(Redactor::new([&secret])));
        assert!(!line.contains(&b'\n'));
        let mut message: Value = serde_json::from_slice(&line).unwrap();
        assert_eq!(message["method"], "colibri/frame");
        message["params"].take()
    }

    fn from_server(frame: &str) -> Value {
        show(
            &mut describer(),
            seen(Direction::FromServer, frame.as_bytes()),
        )
    }

    #[test]
    fn an_answer_and_its_progress_are_shown_with_the_ids_of_both_sides() {
        let mut describer = describer();
        let mut call = seen(
            Direction::ToServer,
            br#"{"jsonrpc":"2.0","id":12,"method":"tools/call","params":{"name":"echo","_meta":{"progressToken":12}}}"#,
        );
        call.call = Some((12, asker("\"a\"")));
        let sent = show(&mut describer, call);
        let client = json!({ "connection": 7, "uid": 1001, "pid": null, "id": "a" });
        assert_eq!(
            (&sent["id"], &sent["client"], &sent["tool"]),
            (&json!(12), &client, &json!("echo"))
        );
        assert!(
            sent["frame"]
                .as_str()
                .unwrap()
                .contains("\"progressToken\":12")
        );
        for frame in [
            r#"{"jsonrpc":"2.0","method":"notifications/progress","params":{"progressToken":12,"progress":1}}"#,
            r#"{"jsonrpc":"2.0","id":12,"result":{}}"#,
        ] {
            let shown = show(
                &mut describer,
                seen(Direction::FromServer, frame.as_bytes()),
            );
            assert_eq!(
                (&shown["id"], &shown["client"]),
                (&json!(12), &client),
                "{shown}"
            );
            assert_eq!(shown["tool"], "echo");
        }
        // Answered once; and another process has other calls.
        let again = show(
            &mut describer,
            seen(
                Direction::FromServer,
                br#"{"jsonrpc":"2.0","id":12,"result":{}}"#,
            ),
        );
        assert_eq!(again["client"], Value::Null);
    }

    #[test]
    fn the_answer_to_a_question_of_the_daemon_says_what_was_asked() {
        let mut describer = describer();
        show(
            &mut describer,
            seen(
                Direction::ToServer,
                br#"{"jsonrpc":"2.0","id":1,"method":"initialize","params":{}}"#,
            ),
        );
        let shown = show(
            &mut describer,
            seen(
                Direction::FromServer,
                br#"{"jsonrpc":"2.0","id":1,"result":{}}"#,
            ),
        );
        assert_eq!(
            (&shown["method"], &shown["client"]),
            (&json!("initialize"), &Value::Null)
        );
    }

    #[test]
    fn calls_that_are_in_flight_when_it_begins_are_known() {
        let mut describer = Describer::new("1", SHORT, [((3, 5), asker("9"))]);
        let shown = show(
            &mut describer,
            seen(
                Direction::FromServer,
                br#"{"jsonrpc":"2.0","id":5,"result":{}}"#,
            ),
        );
        assert_eq!(shown["client"]["id"], 9);
    }

    #[test]
    fn known_secrets_and_values_of_names_that_sound_like_some_are_not_shown() {
        let shown = from_server(
            r#"{"jsonrpc":"2.0","id":1,"result":{"a":"x hunter2hunter2 y","apiKey":"open sesame","o":[{"Password":["p1"]}],
               "text":"{\"token\":\"inner\",\"n\":1}","m":"h\u0075nter2hunter2"}}"#,
        );
        let frame = shown["frame"].as_str().unwrap();
        for secret in ["hunter2", "sesame", "p1", "inner", "u0075nter2"] {
            assert!(!frame.contains(secret), "{secret}: {frame}");
        }
        let inner: Value = serde_json::from_str(&frame.replace("\\u000a", "")).unwrap();
        assert_eq!(inner["result"]["text"], r#"{"token":"[redacted]","n":1}"#);
        assert_eq!(inner["result"]["a"], "x [redacted] y");
    }

    #[test]
    fn a_secret_at_the_edge_of_what_is_shown_is_not_shown_by_half() {
        for before in SHORT - 20..SHORT + 5 {
            let shown = from_server(&format!("\"{}hunter2hunter2\"", "x".repeat(before)));
            assert!(!shown["frame"].as_str().unwrap().contains("hun"));
        }
    }

    #[test]
    fn nothing_that_a_terminal_acts_on_is_left() {
        let shown = from_server("\u{1b}]0;title\u{7}\u{9b}2J \u{202e}abc\u{e0041}\tx\r");
        assert_eq!(
            shown["frame"],
            "\\u001b]0;title\\u0007\\u009b2J \\u202eabc\\udb40\\udc41\\u0009x\\u000d"
        );
        assert_eq!(
            (&shown["kind"], &shown["cut"]),
            (&json!("not JSON"), &json!(false))
        );
        let shown = from_server("{\"jsonrpc\":\"2.0\",\"method\":\"\u{202e}\u{9b}31m\"}");
        assert_eq!(shown["method"], "\\u202e\\u009b31m");
        let shown = show(&mut describer(), seen(Direction::FromServer, b"\xff\xfe{"));
        assert_eq!(shown["length"], 3);
    }

    #[test]
    fn what_is_long_is_cut_and_its_length_is_told() {
        let long = format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":\"{}\",\"method\":\"m\"}}",
            "i".repeat(10_000)
        );
        let shown = from_server(&long);
        assert_eq!(
            (&shown["cut"], &shown["length"]),
            (&json!(true), &json!(long.len()))
        );
        assert!(shown["frame"].as_str().unwrap().len() <= SHORT);
        assert_eq!(shown["id"], "[an id of 10002 bytes]");
        let mut unread = seen(Direction::FromServer, b"");
        unread.length = 99;
        let shown = show(&mut describer(), unread);
        assert_eq!(
            (&shown["kind"], &shown["cut"]),
            (&json!("too long to be read"), &json!(true))
        );
    }

    #[test]
    fn deep_nesting_is_no_trouble() {
        let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
        let frame = from_server(&format!(
            "{{\"jsonrpc\":\"2.0\",\"id\":1,\"result\":{deep}}}"
        ));
        assert!(frame["frame"].as_str().unwrap().contains("nested too deep"));
    }

    proptest! {
        #[test]
        fn whatever_comes_is_shown_within_its_limit(bytes in prop::collection::vec(any::<u8>(), 0..300), most in 0..200_usize) {
            let mut describer = Describer::new("\"x\"", most, []);
            let shown = show(&mut describer, seen(Direction::FromServer, &bytes));
            let frame = shown["frame"].as_str().unwrap();
            prop_assert!(string(frame).len() <= most + 2);
            prop_assert!(!frame.chars().any(|c| is_hidden(c) || c.is_control()));
        }

        #[test]
        fn json_stays_the_same_value(text in "[a-z\u{1b}\u{202e}\u{9b}é😀\"\\\\]{0,20}") {
            let message = json!({ "jsonrpc": "2.0", "method": "m", "params": { "k": text } });
            let shown = from_server(&message.to_string());
            let back: Value = serde_json::from_str(shown["frame"].as_str().unwrap()).unwrap();
            prop_assert_eq!(back, message);
        }
    }
}
