//! The MCP server that ships with the project: it echoes, counts with progress, and keeps notes.
//!
//! Small enough to read as an example, and complete: both eras of the protocol, progress,
//! cancellation, batches where the version has them. One thread reads, one works; what arrives
//! during a count waits, but for cancellations.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::mpsc::{self, Receiver, RecvTimeoutError};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use colibri_files::{LineRead, read_line};
use serde_json::{Value, json};

use crate::connection::MAX_LINE;

/// The place of the server's notes.
#[derive(Debug, clap::Args)]
pub(crate) struct DemoServerArguments {
    /// The directory of the notes; it must exist
    #[arg(long, value_name = "DIRECTORY")]
    notes: PathBuf,
}

const LEGACY: [&str; 4] = ["2024-11-05", "2025-03-26", "2025-06-18", "2025-11-25"];
const MODERN: &str = "2026-07-28";
const VERSION_KEY: &str = "io.modelcontextprotocol/protocolVersion";
const CAPABILITIES_KEY: &str = "io.modelcontextprotocol/clientCapabilities";
const INSTRUCTIONS: &str = "A demonstration: echo, count with progress, write and read notes.";
/// Longest text of a note, in bytes.
const MAX_NOTE: usize = 64 * 1024;

/// Serves stdin and stdout until stdin ends.
pub(crate) fn run(arguments: &DemoServerArguments) -> io::Result<()> {
    let (sender, inbox) = mpsc::channel();
    std::thread::spawn(move || {
        let (mut input, mut line) = (io::stdin().lock(), Vec::new());
        loop {
            match read_line(&mut input, MAX_LINE, &mut line) {
                Ok(LineRead::Line | LineRead::Unterminated) => {}
                Ok(LineRead::TooLong { length, .. }) => {
                    eprintln!(
                        "a message of {length} bytes was passed over: the limit is {MAX_LINE}"
                    );
                    continue;
                }
                Ok(LineRead::End) | Err(_) => break,
            }
            let Ok(text) = String::from_utf8(std::mem::take(&mut line)) else {
                break;
            };
            if sender.send(text).is_err() {
                break;
            }
        }
    });
    DemoServer {
        notes: arguments.notes.clone(),
        inbox,
        waiting: VecDeque::new(),
        version: None,
        out: io::stdout(),
    }
    .serve()
}

/// A JSON-RPC error: code, text, data.
type DemoRpcError = (i64, String, Value);

/// The answer to a request: none if it was cancelled.
type DemoAnswer = Option<Result<Value, DemoRpcError>>;

struct DemoServer<W> {
    notes: PathBuf,
    inbox: Receiver<String>,
    /// Lines that arrived while a call ran.
    waiting: VecDeque<String>,
    /// The version that `initialize` agreed on.
    version: Option<String>,
    out: W,
}

impl<W: Write> DemoServer<W> {
    fn serve(&mut self) -> io::Result<()> {
        while let Some(line) = self.waiting.pop_front().or_else(|| self.inbox.recv().ok()) {
            if line.trim().is_empty() {
                continue;
            }
            let reply = match serde_json::from_str::<Value>(&line) {
                Err(error) => Some(error_reply(
                    &Value::Null,
                    (-32700, error.to_string(), Value::Null),
                )),
                Ok(Value::Array(messages)) if self.version.as_deref() == Some("2025-03-26") => {
                    let mut replies = Vec::new();
                    for message in &messages {
                        replies.extend(self.handle(message)?);
                    }
                    (!replies.is_empty()).then_some(Value::Array(replies))
                }
                Ok(message) => self.handle(&message)?,
            };
            if let Some(reply) = reply {
                self.write(&reply)?;
            }
        }
        Ok(())
    }

    fn write(&mut self, message: &Value) -> io::Result<()> {
        self.out.write_all(format!("{message}\n").as_bytes())?;
        self.out.flush()
    }

    /// Handles one message; the reply, if it wants one.
    fn handle(&mut self, message: &Value) -> io::Result<Option<Value>> {
        let (id, method) = (&message["id"], message["method"].as_str());
        let Some(method) = method else {
            // An answer to nothing that was asked, or no message at all.
            let invalid = (
                -32600,
                "neither a request nor a notification".to_owned(),
                Value::Null,
            );
            let is_answer = message.get("result").is_some() || message.get("error").is_some();
            return Ok((!is_answer).then(|| error_reply(id, invalid)));
        };
        if message.get("id").is_none() {
            return Ok(None);
        }
        let params = &message["params"];
        let modern = params["_meta"].get(VERSION_KEY).is_some();
        let answer = match self.check_version(params, modern, method) {
            Err(refusal) => Some(Err(refusal)),
            Ok(()) => self.answer(id, method, params, modern)?,
        };
        Ok(answer.map(|answer| match answer {
            Ok(mut result) => {
                if modern {
                    result["resultType"] = json!("complete");
                    result["_meta"] =
                        json!({ "io.modelcontextprotocol/serverInfo": server_info() });
                }
                json!({ "jsonrpc": "2.0", "id": id, "result": result })
            }
            Err(refusal) => error_reply(id, refusal),
        }))
    }

    /// 2026-07-28, basic/versioning: every request says its version; before that, a handshake does.
    fn check_version(
        &self,
        params: &Value,
        modern: bool,
        method: &str,
    ) -> Result<(), DemoRpcError> {
        if !modern {
            let opened = self.version.is_some() || matches!(method, "initialize" | "ping");
            let text =
                format!("neither initialize nor _meta[{VERSION_KEY:?}] came before {method}");
            return if opened {
                Ok(())
            } else {
                Err((-32602, text, Value::Null))
            };
        }
        let requested = &params["_meta"][VERSION_KEY];
        if requested != MODERN {
            let data = json!({ "supported": [MODERN], "requested": requested });
            return Err((-32022, "unsupported protocol version".to_owned(), data));
        }
        if !params["_meta"][CAPABILITIES_KEY].is_object() {
            return Err((
                -32602,
                format!("_meta[{CAPABILITIES_KEY:?}] is missing"),
                Value::Null,
            ));
        }
        Ok(())
    }

    fn answer(
        &mut self,
        id: &Value,
        method: &str,
        params: &Value,
        modern: bool,
    ) -> io::Result<DemoAnswer> {
        Ok(Some(Ok(match (method, modern) {
            ("initialize", false) => {
                let known = LEGACY
                    .into_iter()
                    .find(|version| params["protocolVersion"] == *version);
                let version = known.unwrap_or(LEGACY[3]);
                self.version = Some(version.to_owned());
                json!({
                    "protocolVersion": version,
                    "capabilities": { "tools": {} },
                    "serverInfo": server_info(),
                    "instructions": INSTRUCTIONS,
                })
            }
            ("ping", false) => json!({}),
            ("server/discover", true) => json!({
                "supportedVersions": [MODERN],
                "capabilities": { "tools": {} },
                "instructions": INSTRUCTIONS,
                "ttlMs": 3_600_000,
                "cacheScope": "public",
            }),
            ("tools/list", _) => {
                let mut list = json!({ "tools": tools() });
                if modern {
                    list["ttlMs"] = json!(3_600_000);
                    list["cacheScope"] = json!("public");
                }
                list
            }
            ("tools/call", _) => return self.call(id, params),
            _ => {
                return Ok(Some(Err((
                    -32601,
                    format!("no method {method}"),
                    Value::Null,
                ))));
            }
        })))
    }

    fn call(&mut self, id: &Value, params: &Value) -> io::Result<DemoAnswer> {
        let arguments = &params["arguments"];
        let text = |key: &str| {
            arguments[key]
                .as_str()
                .with_context(|| format!("{key} must be a string"))
        };
        let outcome = match params["name"].as_str().unwrap_or_default() {
            "echo" => text("text").map(str::to_owned),
            "count" => {
                match whole(arguments, "to", 1, 1000)
                    .and_then(|to| Ok((to, whole(arguments, "ms", 0, 1000)?)))
                {
                    Ok((to, ms)) => {
                        if !self.count(
                            id,
                            &params["_meta"]["progressToken"],
                            to,
                            Duration::from_millis(ms),
                        )? {
                            return Ok(None);
                        }
                        Ok(format!("counted to {to}"))
                    }
                    Err(why) => Err(why),
                }
            }
            "write_note" => self.note(arguments).and_then(|path| {
                let text = text("text")?;
                if text.len() > MAX_NOTE {
                    bail!("the text is longer than {MAX_NOTE} bytes");
                }
                std::fs::write(path, text).context("cannot write the note")?;
                Ok("written".to_owned())
            }),
            "read_note" => self
                .note(arguments)
                .and_then(|path| std::fs::read_to_string(path).context("cannot read the note")),
            other => {
                return Ok(Some(Err((
                    -32602,
                    format!("no tool {other:?}"),
                    Value::Null,
                ))));
            }
        };
        let is_error = outcome.is_err();
        let text = outcome.unwrap_or_else(|why| format!("{why:#}"));
        Ok(Some(Ok(
            json!({ "content": [{ "type": "text", "text": text }], "isError": is_error }),
        )))
    }

    /// The file of a note. The name is checked to be one: nothing but the notes directory can be
    /// reached.
    fn note(&self, arguments: &Value) -> anyhow::Result<PathBuf> {
        let name = arguments["name"].as_str().unwrap_or_default();
        let good = (1..=64).contains(&name.len())
            && name
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
        if !good {
            bail!("name must be 1 to 64 of a-z, 0-9 and -");
        }
        Ok(self.notes.join(format!("{name}.txt")))
    }

    /// Counts, reporting progress at each step. False if the request was cancelled.
    fn count(&mut self, id: &Value, token: &Value, to: u64, pause: Duration) -> io::Result<bool> {
        for step in 1..=to {
            let next = Instant::now() + pause;
            loop {
                match self
                    .inbox
                    .recv_timeout(next.saturating_duration_since(Instant::now()))
                {
                    Ok(line) if cancels(&line, id) => return Ok(false),
                    Ok(line) => self.waiting.push_back(line),
                    Err(RecvTimeoutError::Timeout) => break,
                    // stdin has ended; the count goes on, its answer may still be read.
                    Err(RecvTimeoutError::Disconnected) => {
                        std::thread::sleep(next.saturating_duration_since(Instant::now()));
                        break;
                    }
                }
            }
            if !token.is_null() {
                let params = json!({ "progressToken": token, "progress": step, "total": to, "message": format!("at {step}") });
                self.write(&json!({ "jsonrpc": "2.0", "method": "notifications/progress", "params": params }))?;
            }
        }
        Ok(true)
    }
}

fn server_info() -> Value {
    json!({ "name": "colibri-demo", "version": env!("CARGO_PKG_VERSION") })
}

fn error_reply(id: &Value, (code, message, data): DemoRpcError) -> Value {
    let mut error = json!({ "code": code, "message": message });
    if !data.is_null() {
        error["data"] = data;
    }
    json!({ "jsonrpc": "2.0", "id": id, "error": error })
}

fn cancels(line: &str, id: &Value) -> bool {
    serde_json::from_str::<Value>(line).is_ok_and(|message| {
        message["method"] == "notifications/cancelled" && message["params"]["requestId"] == *id
    })
}

fn whole(arguments: &Value, key: &str, least: u64, most: u64) -> anyhow::Result<u64> {
    let number = arguments.get(key).map_or(Some(least), Value::as_u64);
    number
        .filter(|number| (least..=most).contains(number))
        .with_context(|| format!("{key} must be a whole number from {least} to {most}"))
}

fn tools() -> Value {
    let name = json!({ "type": "string", "description": "1 to 64 of a-z, 0-9 and -", "pattern": "^[a-z0-9-]{1,64}$" });
    let schema = |properties: Value, required: Value| json!({ "type": "object", "properties": properties, "required": required, "additionalProperties": false });
    json!([
        {
            "name": "echo",
            "description": "Answers with the text it is given.",
            "inputSchema": schema(json!({ "text": { "type": "string" } }), json!(["text"])),
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "count",
            "description": "Counts to a number and reports progress at each step.",
            "inputSchema": schema(
                json!({
                    "to": { "type": "integer", "minimum": 1, "maximum": 1000 },
                    "ms": { "type": "integer", "minimum": 0, "maximum": 1000, "description": "Pause before each step" },
                }),
                json!(["to"]),
            ),
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
        {
            "name": "write_note",
            "description": "Writes a note, replacing what it said before.",
            "inputSchema": schema(json!({ "name": name, "text": { "type": "string" } }), json!(["name", "text"])),
            "annotations": { "destructiveHint": true, "idempotentHint": true, "openWorldHint": false },
        },
        {
            "name": "read_note",
            "description": "Reads a note.",
            "inputSchema": schema(json!({ "name": name }), json!(["name"])),
            "annotations": { "readOnlyHint": true, "openWorldHint": false },
        },
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The server's output for these lines.
    fn serve(lines: &[Value]) -> (Vec<Value>, tempfile::TempDir) {
        let notes = tempfile::tempdir().unwrap();
        let (sender, inbox) = mpsc::channel();
        lines
            .iter()
            .for_each(|line| sender.send(line.to_string()).unwrap());
        drop(sender);
        let mut out = Vec::new();
        let mut server = DemoServer {
            notes: notes.path().to_owned(),
            inbox,
            waiting: VecDeque::new(),
            version: None,
            out: &mut out,
        };
        server.serve().unwrap();
        let said = String::from_utf8(out).unwrap();
        (
            said.lines()
                .map(|line| serde_json::from_str(line).unwrap())
                .collect(),
            notes,
        )
    }

    fn initialize(version: &str) -> Value {
        json!({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": {"protocolVersion": version}})
    }

    fn call(id: u64, name: &str, arguments: Value) -> Value {
        json!({"jsonrpc": "2.0", "id": id, "method": "tools/call",
               "params": {"name": name, "arguments": arguments, "_meta": {"progressToken": "t"}}})
    }

    #[test]
    fn echoes_known_versions_and_offers_its_newest_for_others() {
        for version in LEGACY {
            assert_eq!(
                serve(&[initialize(version)]).0[0]["result"]["protocolVersion"],
                version
            );
        }
        assert_eq!(
            serve(&[initialize("1999-01-01")]).0[0]["result"]["protocolVersion"],
            "2025-11-25"
        );
    }

    #[test]
    fn modern_requests_need_no_handshake_but_all_of_their_meta() {
        let meta = |version: &str| json!({VERSION_KEY: version, CAPABILITIES_KEY: {}});
        let request = |method: &str, meta: Value| json!({"id": 1, "method": method, "params": {"_meta": meta}});
        let (said, _notes) = serve(&[
            request("server/discover", meta(MODERN)),
            request("tools/list", meta(MODERN)),
            request("tools/list", meta("2030-01-01")),
            request("tools/list", json!({VERSION_KEY: MODERN})),
            request("ping", meta(MODERN)),
            json!({"id": 1, "method": "tools/list"}),
        ]);
        assert_eq!(said[0]["result"]["supportedVersions"], json!([MODERN]));
        assert_eq!(said[1]["result"]["resultType"], "complete");
        assert_eq!(said[1]["result"]["cacheScope"], "public");
        assert_eq!(said[2]["error"]["data"]["requested"], "2030-01-01");
        let codes: Vec<_> = said[2..]
            .iter()
            .map(|reply| reply["error"]["code"].as_i64().unwrap())
            .collect();
        assert_eq!(codes, [-32022, -32602, -32601, -32602]);
    }

    #[test]
    fn notes_are_written_and_read_and_nothing_outside_of_them() {
        let (said, notes) = serve(&[
            initialize("2025-11-25"),
            call(1, "write_note", json!({"name": "a-1", "text": "ä\n"})),
            call(2, "read_note", json!({"name": "a-1"})),
            call(3, "read_note", json!({"name": "../a-1"})),
            call(
                4,
                "write_note",
                json!({"name": "b", "text": "x".repeat(MAX_NOTE + 1)}),
            ),
            call(5, "nope", json!({})),
        ]);
        assert_eq!(said[2]["result"]["content"][0]["text"], "ä\n");
        assert_eq!(
            (&said[3]["result"]["isError"], &said[4]["result"]["isError"]),
            (&json!(true), &json!(true))
        );
        assert_eq!(said[5]["error"]["code"], -32602);
        assert_eq!(std::fs::read_dir(notes.path()).unwrap().count(), 1);
    }

    #[test]
    fn progress_comes_before_its_answer_and_a_cancelled_count_has_none() {
        let (said, _notes) = serve(&[initialize("2025-11-25"), call(1, "count", json!({"to": 3}))]);
        let progress: Vec<_> = said[1..4]
            .iter()
            .map(|line| line["params"]["progress"].clone())
            .collect();
        assert_eq!(
            (progress, &said[4]["id"]),
            (vec![json!(1), json!(2), json!(3)], &json!(1))
        );
        let (said, _notes) = serve(&[
            initialize("2025-11-25"),
            call(1, "count", json!({"to": 1000, "ms": 1000})),
            call(2, "echo", json!({"text": "after"})),
            json!({"method": "notifications/cancelled", "params": {"requestId": 1}}),
        ]);
        assert_eq!(said.len(), 2, "{said:?}");
        assert_eq!(said[1]["id"], 2);
    }

    #[test]
    fn garbage_and_batches_are_answered() {
        let batch =
            json!([call(1, "echo", json!({"text": "x"})), {"method": "notifications/x"}, 7]);
        let (said, _notes) = serve(&[initialize("2025-03-26"), batch.clone(), json!("text")]);
        assert_eq!(said[1][0]["result"]["content"][0]["text"], "x");
        assert_eq!(
            (said[1].as_array().unwrap().len(), &said[2]["error"]["code"]),
            (2, &json!(-32600))
        );
        let (said, _notes) = serve(&[initialize("2025-11-25"), batch]);
        assert_eq!(said[1]["error"]["code"], -32600);
    }
}
