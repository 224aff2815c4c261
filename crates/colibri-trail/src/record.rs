//! Records, and their bytes.
//!
//! Records are written by hand into one buffer: the bytes are what is hashed, so there must be
//! exactly one writer, and at the rate of calls an allocation for each field would show.

use std::time::{Duration, SystemTime};

use colibri_text::{push_hex, push_json_string};
use serde_json::value::RawValue;
use sha2::{Digest as _, Sha256};

use crate::time::write_timestamp;

/// The length from which contents are digested by BLAKE3, bytes: it takes a third of the time
/// there, and more below.
const LONG: usize = 8 * 1024;

/// Digest and length of arguments or of a result: what is recorded of them unless the operator asks
/// for all.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ContentDigest {
    /// The algorithm, which is recorded beside the digest.
    pub algorithm: DigestAlgorithm,
    /// The digest of the bytes as they were received.
    pub digest: [u8; 32],
    /// Their number.
    pub length: u64,
}

/// The algorithm of a content's digest. Records are chained by SHA-256 alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestAlgorithm {
    /// SHA-256 (FIPS 180-4).
    Sha256,
    /// BLAKE3 of 256 bits, without a key.
    Blake3,
}

impl ContentDigest {
    /// The digest of `bytes`.
    #[must_use]
    pub fn of(bytes: &[u8]) -> Self {
        let (algorithm, digest) = match bytes.len() {
            LONG.. => (DigestAlgorithm::Blake3, blake3::hash(bytes).into()),
            _ => (DigestAlgorithm::Sha256, Sha256::digest(bytes).into()),
        };
        let length = bytes.len() as u64;
        Self {
            algorithm,
            digest,
            length,
        }
    }
}

/// A record to append. Everything in it is borrowed; text may hold anything, it is escaped.
#[derive(Clone, Copy, Debug)]
pub enum TrailRecord<'a> {
    /// A call came in and is about to be sent on.
    Enter(Enter<'a>),
    /// A call's answer is about to leave.
    Exit(ExitRecord<'a>),
    /// One attempt failed and another follows.
    Retry(Attempt<'a>),
    /// Something that is not a call.
    Event(EventRecord<'a>),
}

/// A call that came in: who, from where, what.
#[derive(Clone, Copy, Debug)]
pub struct Enter<'a> {
    /// The time at which it was read.
    pub time: SystemTime,
    /// The caller's user id, from the kernel's peer credentials.
    pub uid: u32,
    /// The caller's group id, from the same source.
    pub gid: u32,
    /// The caller's process id, from the same source where the system tells it.
    pub pid: Option<u32>,
    /// The daemon's number of the connection.
    pub connection: u64,
    /// The `enter` record that this one takes the place of: the call named a tool of a server that
    /// was only looked at then.
    pub continues: Option<u64>,
    /// The name and version that the client declares of itself.
    pub client: Option<DeclaredClient<'a>>,
    /// The MCP method.
    pub method: &'a str,
    /// The server it is for; `None` for what Colibri answers itself.
    pub server: Option<&'a str>,
    /// The tool, prompt or URI under the server's own name.
    pub tool: Option<&'a str>,
    /// The name the client used.
    pub name: Option<&'a str>,
    /// `legacy` or `modern`.
    pub era: &'a str,
    /// The MCP version the client speaks.
    pub version: &'a str,
    /// The arguments.
    pub args: ContentDigest,
    /// The arguments in full, secrets redacted by the caller, where the operator asked for them.
    pub args_full: Option<&'a RawValue>,
    /// W3C trace context, `traceparent`, as the client sent it.
    pub traceparent: Option<&'a str>,
    /// W3C trace context, `tracestate`, as the client sent it.
    pub tracestate: Option<&'a str>,
    /// The outcome of the check of the arguments against the tool's schema.
    pub validated: Validation,
    /// The agent through whose agent socket it came; `None` for a call on the socket.
    pub through: Option<Through<'a>>,
    /// The number of the task for which it is made: one that the caller has claimed.
    pub task: Option<u64>,
    /// The `enter` record of the call that runs the script by which it is made.
    pub within: Option<u64>,
    /// The record that the caller, another host's daemon, says it has of it: nothing checks it.
    pub caller: Option<RecordReference<'a>>,
}

/// A record of another trail.
#[derive(Clone, Copy, Debug)]
pub struct RecordReference<'a> {
    /// The origin of that trail.
    pub origin: &'a str,
    /// The record's number.
    pub n: u64,
}

/// The outcome of checking arguments against their tool's schema.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Validation {
    /// They were not checked: `false`.
    #[default]
    Unchecked,
    /// They fit but for strings that spell the numbers and booleans that the schema wants:
    /// `"lenient"`.
    Lenient,
    /// They fit: `true`.
    Exact,
}

/// The name and version that a client declares of itself: nothing checks them.
#[derive(Clone, Copy, Debug)]
pub struct DeclaredClient<'a> {
    /// The name.
    pub name: &'a str,
    /// The version; empty: it declares none.
    pub version: &'a str,
}

/// The socket of an agent.
#[derive(Clone, Copy, Debug)]
pub struct Through<'a> {
    /// The agent's id in the registry.
    pub agent: &'a str,
    /// The instance.
    pub session: &'a str,
    /// The user id of the person for whom it runs.
    pub for_uid: u32,
}

/// One attempt at a call, as far as `Exit` and `Retry` share it.
#[derive(Clone, Copy, Debug)]
pub struct Attempt<'a> {
    /// The time of its end.
    pub time: SystemTime,
    /// The number of the call's enter record.
    pub enter: u64,
    /// The server.
    pub integration_id: &'a str,
    /// The tool or the method.
    pub operation: &'a str,
    /// Counts from 1.
    pub attempt_number: u32,
    /// The error's name or code, `None` on success.
    pub error_code: Option<&'a str>,
    /// The class of the error: `transient`, `permanent` or `unknown`; `None` on success, and where
    /// it has none.
    pub error_class: Option<&'a str>,
    /// Its duration. Recorded in milliseconds with three decimals.
    pub latency: Duration,
}

/// The last attempt at a call, and what it brought.
#[derive(Clone, Copy, Debug)]
pub struct ExitRecord<'a> {
    /// The attempt.
    pub attempt: Attempt<'a>,
    /// True if it succeeded.
    pub success: bool,
    /// The answer as it leaves; `None` where none does.
    pub output: Option<ContentDigest>,
    /// The answer in full, secrets redacted by the caller, where the operator asked for it.
    pub output_full: Option<&'a RawValue>,
    /// The record of the call in the trail of the host that answered it.
    pub remote: Option<RecordReference<'a>>,
}

/// Something that is not a call: start, stop, reload, a decision about a policy, a pin or an
/// approval.
#[derive(Clone, Copy, Debug)]
pub struct EventRecord<'a> {
    /// The time of the event.
    pub time: SystemTime,
    /// The event, as one word: `start`, `stop`, `reload`, `pin-accepted` …
    pub event: &'a str,
    /// The particulars. Keys are ours, values may be anybody's.
    pub details: &'a [(&'a str, Detail<'a>)],
}

/// The value of one particular of an [`EventRecord`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail<'a> {
    /// Text.
    Text(&'a str),
    /// A number.
    Number(u64),
    /// Yes or no.
    Flag(bool),
}

impl TrailRecord<'_> {
    /// The time of the event.
    #[must_use]
    pub fn time(&self) -> SystemTime {
        match self {
            TrailRecord::Enter(r) => r.time,
            TrailRecord::Exit(r) => r.attempt.time,
            TrailRecord::Retry(r) => r.time,
            TrailRecord::Event(r) => r.time,
        }
    }

    /// Writes the record as JSON, as number `n` of the trail.
    pub(crate) fn write(&self, out: &mut Vec<u8>, n: u64) {
        match self {
            TrailRecord::Enter(r) => r.write(out, n),
            TrailRecord::Exit(r) => r.write(out, n),
            TrailRecord::Retry(r) => {
                r.write(out, n, "retry", b",\"result\":\"RETRY\"");
                out.push(b'}');
            }
            TrailRecord::Event(r) => r.write(out, n),
        }
    }
}

impl Enter<'_> {
    fn write(&self, out: &mut Vec<u8>, n: u64) {
        begin(out, n, "enter");
        write_timestamp(out, self.time);
        number(out, b",\"uid\":", self.uid.into());
        number(out, b",\"gid\":", self.gid.into());
        if let Some(pid) = self.pid {
            number(out, b",\"pid\":", pid.into());
        }
        number(out, b",\"connection\":", self.connection);
        if let Some(continues) = self.continues {
            number(out, b",\"continues\":", continues);
        }
        if let Some(client) = &self.client {
            text(out, b",\"client\":{\"name\":", client.name);
            optional(
                out,
                b",\"version\":",
                Some(client.version).filter(|version| !version.is_empty()),
            );
            out.push(b'}');
        }
        text(out, b",\"method\":", self.method);
        optional(out, b",\"server\":", self.server);
        optional(out, b",\"tool\":", self.tool);
        optional(out, b",\"name\":", self.name);
        text(out, b",\"era\":", self.era);
        text(out, b",\"version\":", self.version);
        digest(out, b",\"args\":", &self.args);
        raw(out, b",\"args_full\":", self.args_full);
        optional(out, b",\"traceparent\":", self.traceparent);
        optional(out, b",\"tracestate\":", self.tracestate);
        if let Some(through) = &self.through {
            text(out, b",\"agent\":", through.agent);
            text(out, b",\"session\":", through.session);
            number(out, b",\"for\":", through.for_uid.into());
        }
        if let Some(task) = self.task {
            number(out, b",\"task\":", task);
        }
        if let Some(within) = self.within {
            number(out, b",\"within\":", within);
        }
        reference(out, b",\"caller\":{\"origin\":", self.caller);
        out.extend_from_slice(match self.validated {
            Validation::Exact => b",\"validated\":true}",
            Validation::Lenient => b",\"validated\":\"lenient\"}",
            Validation::Unchecked => b",\"validated\":false}",
        });
    }
}

impl ExitRecord<'_> {
    fn write(&self, out: &mut Vec<u8>, n: u64) {
        let result: &[u8] = if self.success {
            b",\"result\":\"SUCCESS\""
        } else {
            b",\"result\":\"FAIL\""
        };
        self.attempt.write(out, n, "exit", result);
        if let Some(output) = &self.output {
            digest(out, b",\"output\":", output);
        }
        raw(out, b",\"output_full\":", self.output_full);
        reference(out, b",\"remote\":{\"origin\":", self.remote);
        out.push(b'}');
    }
}

impl Attempt<'_> {
    /// All of it but the closing brace.
    fn write(&self, out: &mut Vec<u8>, n: u64, kind: &str, result: &[u8]) {
        begin(out, n, kind);
        number(out, b",\"enter\":", self.enter);
        write_timestamp(out, self.time);
        text(out, b",\"integration_id\":", self.integration_id);
        text(out, b",\"operation\":", self.operation);
        out.extend_from_slice(result);
        number(out, b",\"attempt_number\":", self.attempt_number.into());
        match self.error_code {
            Some(code) => text(out, b",\"error_code\":", code),
            None => out.extend_from_slice(b",\"error_code\":null"),
        }
        optional(out, b",\"error_class\":", self.error_class);
        let micros = u64::try_from(self.latency.as_micros()).unwrap_or(u64::MAX);
        number(out, b",\"latency_ms\":", micros / 1000);
        let thousandths = micros % 1000;
        let digits = [thousandths / 100, thousandths / 10 % 10, thousandths % 10]
            .map(|digit| b'0' + digit as u8);
        out.push(b'.');
        out.extend_from_slice(&digits);
    }
}

impl EventRecord<'_> {
    fn write(&self, out: &mut Vec<u8>, n: u64) {
        begin(out, n, "event");
        write_timestamp(out, self.time);
        text(out, b",\"event\":", self.event);
        out.extend_from_slice(b",\"details\":{");
        for (i, (key, value)) in self.details.iter().enumerate() {
            if i > 0 {
                out.push(b',');
            }
            push_json_string(out, key);
            out.push(b':');
            match value {
                Detail::Text(value) => push_json_string(out, value),
                Detail::Number(value) => push_number(out, *value),
                Detail::Flag(value) => {
                    out.extend_from_slice(if *value { b"true" } else { b"false" })
                }
            }
        }
        out.extend_from_slice(b"}}");
    }
}

/// Begins a record: its number and kind come first, so that a reader finds them without parsing.
pub(crate) fn begin(out: &mut Vec<u8>, n: u64, kind: &str) {
    number(out, b"{\"n\":", n);
    out.extend_from_slice(b",\"kind\":\"");
    out.extend_from_slice(kind.as_bytes());
    out.push(b'"');
}

// In what follows a key is given as it is written, with the comma before it and the colon behind
// it.

pub(crate) fn number(out: &mut Vec<u8>, key: &[u8], value: u64) {
    out.extend_from_slice(key);
    push_number(out, value);
}

pub(crate) fn text(out: &mut Vec<u8>, key: &[u8], value: &str) {
    out.extend_from_slice(key);
    push_json_string(out, value);
}

fn optional(out: &mut Vec<u8>, key: &[u8], value: Option<&str>) {
    if let Some(value) = value {
        text(out, key, value);
    }
}

fn reference(out: &mut Vec<u8>, key: &[u8], value: Option<RecordReference<'_>>) {
    if let Some(value) = value {
        text(out, key, value.origin);
        number(out, b",\"n\":", value.n);
        out.push(b'}');
    }
}

fn digest(out: &mut Vec<u8>, key: &[u8], value: &ContentDigest) {
    out.extend_from_slice(key);
    out.extend_from_slice(match value.algorithm {
        DigestAlgorithm::Sha256 => b"{\"sha256\":\"",
        DigestAlgorithm::Blake3 => b"{\"blake3\":\"",
    });
    push_hex(out, &value.digest);
    number(out, b"\",\"length\":", value.length);
    out.push(b'}');
}

/// A value as it is. Line ends can only stand between the tokens of valid JSON, where a space means
/// the same.
fn raw(out: &mut Vec<u8>, key: &[u8], value: Option<&RawValue>) {
    if let Some(value) = value {
        out.extend_from_slice(key);
        let from = out.len();
        out.extend_from_slice(value.get().as_bytes());
        for byte in &mut out[from..] {
            if matches!(byte, b'\n' | b'\r') {
                *byte = b' ';
            }
        }
    }
}

fn push_number(out: &mut Vec<u8>, mut value: u64) {
    let mut digits = [0; 20];
    let mut at = digits.len();
    loop {
        at -= 1;
        digits[at] = b'0' + (value % 10) as u8;
        value /= 10;
        if value == 0 {
            break;
        }
    }
    out.extend_from_slice(&digits[at..]);
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn at(seconds: u64, micros: u32) -> SystemTime {
        SystemTime::UNIX_EPOCH + Duration::new(seconds, micros * 1000)
    }

    fn json(record: TrailRecord<'_>) -> serde_json::Value {
        let mut out = Vec::new();
        record.write(&mut out, 7);
        assert!(!out.contains(&b'\n'));
        serde_json::from_slice(&out).unwrap()
    }

    /// The digests are those of b3sum(1) and sha256sum(1) for as many zero bytes.
    #[test]
    fn long_contents_have_another_digest_which_is_named() {
        let bytes = vec![0; LONG];
        for (length, algorithm, digest) in [
            (
                LONG,
                "blake3",
                "128daa44a4f7badaed2244bb6fe009d5e7803177414e01d7d9df80c190e14906",
            ),
            (
                LONG - 1,
                "sha256",
                "ded7e73bae26db73b29a51bca3cd2d1d6906107d889775f610f0ce63c2089365",
            ),
        ] {
            let args = ContentDigest::of(&bytes[..length]);
            let record = json(TrailRecord::Enter(Enter { args, ..enter() }));
            assert_eq!(
                record["args"],
                serde_json::json!({ algorithm: digest, "length": length })
            );
        }
    }

    fn enter<'a>() -> Enter<'a> {
        Enter {
            time: at(1_795_300_200, 42),
            uid: 1001,
            gid: 1002,
            pid: Some(77),
            connection: 3,
            continues: None,
            client: None,
            method: "tools/call",
            server: Some("github"),
            tool: Some("create_issue"),
            name: Some("github__create_issue"),
            era: "legacy",
            version: "2025-11-25",
            args: ContentDigest::of(b"{}"),
            args_full: None,
            traceparent: None,
            tracestate: None,
            validated: Validation::Exact,
            through: None,
            task: None,
            within: None,
            caller: None,
        }
    }

    #[test]
    fn an_enter_record_has_all_that_was_given() {
        let args: Box<RawValue> =
            serde_json::from_str("{\n\"a\":1e400,\r\n\"b\":\"\\ud800\"}").unwrap();
        let record = Enter {
            continues: Some(5),
            client: Some(DeclaredClient {
                name: "claude-code",
                version: "2.1\u{1b}",
            }),
            args_full: Some(&args),
            traceparent: Some("00-a-b-01"),
            ..enter()
        };
        let mut out = Vec::new();
        TrailRecord::Enter(record).write(&mut out, 7);
        let hash = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a";
        let expected = format!(
            concat!(
                r#"{{"n":7,"kind":"enter","timestamp":"2026-11-21T22:30:00.000042Z","uid":1001,"gid":1002,"pid":77,"#,
                r#""connection":3,"continues":5,"client":{{"name":"claude-code","version":"2.1\u001b"}},"method":"tools/call","server":"github","tool":"create_issue","#,
                r#""name":"github__create_issue","era":"legacy","version":"2025-11-25","#,
                r#""args":{{"sha256":"{}","length":2}},"args_full":{{ "a":1e400,  "b":"\ud800"}},"#,
                r#""traceparent":"00-a-b-01","validated":true}}"#
            ),
            hash
        );
        assert_eq!(String::from_utf8(out).unwrap(), expected);
    }

    #[test]
    fn exits_and_retries_have_the_shape_of_the_design() {
        let attempt = Attempt {
            time: at(0, 0),
            enter: 6,
            integration_id: "github",
            operation: "create_issue",
            attempt_number: 2,
            error_code: Some("INTEGRATION_UNAVAILABLE"),
            error_class: Some("transient"),
            latency: Duration::from_micros(1_234_056),
        };
        let exit = json(TrailRecord::Exit(ExitRecord {
            attempt,
            success: false,
            output: Some(ContentDigest::of(b"")),
            output_full: None,
            remote: None,
        }));
        assert_eq!(exit["kind"], "exit");
        assert_eq!(exit["enter"], 6);
        assert_eq!(exit["timestamp"], "1970-01-01T00:00:00.000000Z");
        assert_eq!(exit["integration_id"], "github");
        assert_eq!(exit["operation"], "create_issue");
        assert_eq!(exit["result"], "FAIL");
        assert_eq!(exit["attempt_number"], 2);
        assert_eq!(exit["error_code"], "INTEGRATION_UNAVAILABLE");
        assert_eq!(exit["error_class"], "transient");
        assert_eq!(exit["latency_ms"], 1234.056);
        assert_eq!(exit["output"]["length"], 0);
        assert_eq!(json(TrailRecord::Retry(attempt))["result"], "RETRY");
        let attempt = Attempt {
            error_code: None,
            error_class: None,
            ..attempt
        };
        let exit = json(TrailRecord::Exit(ExitRecord {
            attempt,
            success: true,
            output: None,
            output_full: None,
            remote: Some(RecordReference {
                origin: "colibri-mcp/trail/0123456789abcdef",
                n: 7,
            }),
        }));
        assert_eq!(exit["result"], "SUCCESS");
        assert_eq!(
            exit["remote"],
            serde_json::json!({ "origin": "colibri-mcp/trail/0123456789abcdef", "n": 7 })
        );
        assert!(
            exit["error_code"].is_null()
                && exit.get("error_class").is_none()
                && exit.get("output").is_none()
        );
    }

    #[test]
    fn hidden_characters_are_escaped() {
        let details = [
            ("who", Detail::Text("a\u{202e}b\u{1b}[2J\u{e0041}\"\\é")),
            ("on", Detail::Flag(true)),
        ];
        let mut out = Vec::new();
        TrailRecord::Event(EventRecord {
            time: at(0, 0),
            event: "x\ny",
            details: &details,
        })
        .write(&mut out, 0);
        let out = String::from_utf8(out).unwrap();
        assert!(out.contains(r#""event":"x\u000ay""#), "{out}");
        assert!(
            out.contains(r#"{"who":"a\u202eb\u001b[2J\udb40\udc41\"\\é","on":true}"#),
            "{out}"
        );
    }

    #[test]
    fn a_call_through_an_agents_door_says_whose() {
        let through = Through {
            agent: "coder",
            session: "0123456789abcdef",
            for_uid: 1005,
        };
        let record = json(TrailRecord::Enter(Enter {
            through: Some(through),
            task: Some(41),
            within: Some(40),
            caller: Some(RecordReference {
                origin: "o\u{202e}",
                n: 9,
            }),
            ..enter()
        }));
        assert_eq!(
            (&record["task"], &record["within"]),
            (&41.into(), &40.into())
        );
        assert_eq!(
            record["caller"],
            serde_json::json!({ "origin": "o\u{202e}", "n": 9 })
        );
        assert_eq!(record["agent"], "coder");
        assert_eq!(record["session"], "0123456789abcdef");
        assert_eq!(
            (&record["uid"], &record["for"]),
            (&1001.into(), &1005.into())
        );
        let plain = json(TrailRecord::Enter(enter()));
        assert!(
            plain.get("agent").is_none()
                && plain.get("task").is_none()
                && plain.get("within").is_none()
                && plain.get("client").is_none()
        );
        let client = Some(DeclaredClient {
            name: "x",
            version: "",
        });
        let unversioned = json(TrailRecord::Enter(Enter { client, ..enter() }));
        assert_eq!(unversioned["client"], serde_json::json!({ "name": "x" }));
    }

    #[test]
    fn nothing_of_the_table_is_written_raw() {
        let name: String = ('\0'..=char::MAX)
            .filter(|c| colibri_text::is_hidden(*c))
            .flat_map(|c| ['a', c])
            .collect();
        let mut out = Vec::new();
        TrailRecord::Enter(Enter {
            tool: Some(&name),
            server: Some(&name),
            name: Some(&name),
            ..enter()
        })
        .write(&mut out, 0);
        assert!(
            !String::from_utf8(out)
                .unwrap()
                .contains(colibri_text::is_hidden)
        );
    }

    proptest! {
        #[test]
        fn any_text_survives(text in any::<String>()) {
            let value = json(TrailRecord::Enter(Enter { tool: Some(&text), tracestate: Some(&text), ..enter() }));
            prop_assert_eq!(value["tool"].as_str(), Some(text.as_str()));
            prop_assert_eq!(value["tracestate"].as_str(), Some(text.as_str()));
        }
    }
}
