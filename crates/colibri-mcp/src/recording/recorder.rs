//! A bridge that writes down what passes.

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::os::fd::AsFd as _;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::SystemTime;

use nix::sys::signal::Signal;
use parking_lot::Mutex;
use serde_json::json;
use serde_json::value::RawValue;

use super::file::{
    AnswerPart, FORMAT, MAX_BYTES, RecordedMessage, RecordedPair, Recording, RecordingHead, SEAL,
};
use super::verify::{TrailCalls, find_record};
use crate::bridge;
use crate::commands::context::CommandContext;
use crate::commands::signals::on_signals;
use crate::connection::{DaemonConnection, Hello};
use crate::failure::CommandError;
use crate::records;
use colibri_files::{each_line, replace_file};
use colibri_text::visible;
use colibri_trail::{directory, utc};

/// The messages of a session, paired.
#[derive(Debug, Default)]
struct SessionLog {
    pairs: Vec<RecordedPair>,
    /// The protocol version of `initialize`, or of the requests.
    version: Option<String>,
    bytes: usize,
    /// Bytes of the client and of the server behind the last whole line.
    partial: [Vec<u8>; 2],
}

/// The side that a message comes from.
#[derive(Clone, Copy)]
enum Side {
    Client = 0,
    Server = 1,
}

impl SessionLog {
    /// Takes bytes that pass from one side.
    fn take(&mut self, side: Side, bytes: &[u8]) {
        self.bytes += bytes.len();
        if self.bytes > MAX_BYTES {
            return;
        }
        let mut pending = std::mem::take(&mut self.partial[side as usize]);
        pending.extend_from_slice(bytes);
        let whole = memchr::memrchr(b'\n', &pending).map_or(0, |at| at + 1);
        for (_, line) in each_line(&pending[..whole]) {
            for message in bridge::messages(line) {
                // What is no message is answered by the daemon, and not recorded by it either.
                if let Ok(raw) = serde_json::from_slice::<Box<RawValue>>(message) {
                    self.message(side, raw);
                }
            }
        }
        self.partial[side as usize] = pending.split_off(whole);
    }

    fn message(&mut self, side: Side, raw: Box<RawValue>) {
        let Ok(message) = serde_json::from_str::<RecordedMessage<'_>>(raw.get()) else {
            return;
        };
        match (side, &message.method, message.id) {
            (Side::Client, Some(_), Some(_)) => {
                if let Some(version) = requested_version(&message) {
                    self.version.get_or_insert_with(|| version.to_owned());
                }
                self.pairs.push(RecordedPair {
                    record: None,
                    digest_of: None,
                    request: raw,
                    before: Vec::new(),
                    answer: None,
                });
            }
            (Side::Server, None, Some(id)) => {
                let is_open = |pair: &&mut RecordedPair| {
                    let request: Result<RecordedMessage<'_>, _> =
                        serde_json::from_str(pair.request.get());
                    pair.answer.is_none()
                        && request
                            .is_ok_and(|request| request.id.map(RawValue::get) == Some(id.get()))
                };
                let opened = message.result.and_then(|result| {
                    let result: serde_json::Value = serde_json::from_str(result.get()).ok()?;
                    Some(result.get("protocolVersion")?.as_str()?.to_owned())
                });
                if let Some(pair) = self.pairs.iter_mut().find(is_open) {
                    pair.answer = Some(raw);
                    self.version = opened.or(self.version.take());
                }
            }
            (Side::Server, Some(_), _) => {
                let token = message.progress_token();
                let belongs = |pair: &&mut RecordedPair| {
                    let request: Result<RecordedMessage<'_>, _> =
                        serde_json::from_str(pair.request.get());
                    pair.answer.is_none()
                        && (token.is_none()
                            || request.is_ok_and(|request| request.progress_token() == token))
                };
                // What belongs to no request that waits is not asked for, and replay would not know
                // when to say it.
                if let Some(pair) = self.pairs.iter_mut().find(belongs) {
                    pair.before.push(raw);
                }
            }
            _ => {}
        }
    }
}

/// The protocol version that a request of the modern era names.
fn requested_version<'a>(message: &'a RecordedMessage<'_>) -> Option<&'a str> {
    let meta = message.params.get("_meta")?;
    meta.get("io.modelcontextprotocol/protocolVersion")?
        .as_str()
}

/// A stream whose bytes are written down as they pass.
struct Tee<S> {
    stream: S,
    side: Side,
    log: Arc<Mutex<SessionLog>>,
}

impl<S: Read> Read for Tee<S> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.stream.read(buffer)?;
        self.log.lock().take(self.side, &buffer[..count]);
        Ok(count)
    }
}

impl<S: Write> Write for Tee<S> {
    fn write(&mut self, buffer: &[u8]) -> io::Result<usize> {
        let count = self.stream.write(buffer)?;
        self.log.lock().take(self.side, &buffer[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.stream.flush()
    }
}

/// `record SERVER FILE`: bridges this process's stdin and stdout to one server, and writes the
/// session to the file when it has ended.
///
/// # Errors
/// The daemon does not know the server, the file is there already or cannot be written, the session
/// is too long.
pub(crate) fn record(
    server: &str,
    file: &Path,
    context: &CommandContext,
) -> Result<ExitCode, CommandError> {
    if file.exists() {
        let what = format!(
            "{} is there already: remove it, or name another file",
            file.display()
        );
        return Err(CommandError::Data(what));
    }
    if io::stdin().is_terminal() {
        eprintln!(
            "colibri-mcp: recording {}: waiting for an MCP client on standard input",
            visible(server)
        );
    }
    let hello = Hello {
        read_only: context.read_only,
        only: Some(server.to_owned()),
    };
    let mut own = DaemonConnection::open_as(&context.place, &hello)?;
    let discover = own.request("server/discover", &json!({}))?;
    let log = Arc::new(Mutex::new(SessionLog::default()));
    let began = SystemTime::now();
    let plain = |stream: io::Result<std::os::fd::OwnedFd>| Ok::<_, io::Error>(File::from(stream?));
    let tee = |stream, side| Tee {
        stream,
        side,
        log: log.clone(),
    };
    let input = tee(
        plain(io::stdin().as_fd().try_clone_to_owned())?,
        Side::Client,
    );
    let output = tee(
        plain(io::stdout().as_fd().try_clone_to_owned())?,
        Side::Server,
    );
    let (ended, end) = std::sync::mpsc::channel();
    let (told, gone) = (ended.clone(), ended.clone());
    // Told to end, it writes what there is.
    on_signals(
        &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP],
        move |_| {
            let _ = told.send(ExitCode::SUCCESS);
        },
    )?;
    let place = context.place.clone();
    std::thread::spawn(move || {
        let gone = move || {
            let _ = gone.send(ExitCode::SUCCESS);
        };
        let _ = ended.send(bridge::run_between(place, hello, input, output, gone));
    });
    let status = end.recv().unwrap_or(ExitCode::FAILURE);
    let log = std::mem::take(&mut *log.lock());
    if log.bytes > MAX_BYTES {
        let what = format!(
            "the session has more than {} MiB: nothing was recorded",
            MAX_BYTES >> 20
        );
        return Err(CommandError::Data(what));
    }
    // After the session: a server that was never started is discovered by its first call.
    let tools = own.request("tools/list", &json!({}))?;
    let mut head = RecordingHead {
        format: FORMAT.to_owned(),
        server: server.to_owned(),
        version: log.version.unwrap_or_default(),
        pid: std::process::id(),
        trail: None,
        discover,
        tools,
    };
    let mut pairs = log.pairs;
    let named = name_records(&mut head, &mut pairs, began, context);
    let (text, sha256) = Recording::write(&head, &pairs).map_err(io::Error::from)?;
    if let Err(why) = named.and_then(|()| seal(&mut own, &sha256)) {
        eprintln!(
            "colibri-mcp: the recording can be replayed, but nobody can verify it by the trail: {}",
            visible(&why.to_string())
        );
    }
    replace_file(file, text.as_bytes(), 0o600).map_err(records::at(file))?;
    eprintln!(
        "colibri-mcp: {}: {} requests, with their contents",
        file.display(),
        pairs.len()
    );
    Ok(status)
}

/// Puts the digest of a recording into the trail, as the trace of a request.
fn seal(own: &mut DaemonConnection, sha256: &str) -> Result<(), CommandError> {
    let parent = format!("00-{}-{}-00", &sha256[..32], &sha256[32..48]);
    own.trace(parent, format!("{SEAL}={sha256}"));
    own.request("server/discover", &json!({}))?;
    Ok(())
}

/// Finds the records of the pairs in the trail.
fn name_records(
    head: &mut RecordingHead,
    pairs: &mut [RecordedPair],
    began: SystemTime,
    context: &CommandContext,
) -> Result<(), CommandError> {
    let state_dir = context.state_dir(None)?;
    let Some(key) = records::verifier(&state_dir)? else {
        return Err(CommandError::Data(format!(
            "{} has no trail.pub",
            state_dir.display()
        )));
    };
    let since = utc(began).to_string();
    let mut calls = TrailCalls::default();
    let read = calls.read(&directory(&state_dir), Some(since), |call| {
        call.pid == Some(head.pid)
    });
    read.map_err(records::at(&directory(&state_dir)))?;
    let mut named = std::collections::BTreeSet::new();
    for pair in pairs {
        let Some((number, call)) = find_record(&calls, pair, &named) else {
            continue;
        };
        named.insert(number);
        pair.record = Some(number);
        let digests = |part: &AnswerPart| {
            let answer = pair.answer.as_deref().and_then(|answer| part.of(answer));
            answer.is_some_and(|text| call.has_output(text.as_bytes()))
        };
        pair.digest_of = AnswerPart::ALL.into_iter().find(digests);
    }
    head.trail = Some(key.name().to_owned());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(lines: &[(Side, &str)]) -> SessionLog {
        let mut log = SessionLog::default();
        for (side, line) in lines {
            let (one, other) = line.as_bytes().split_at(line.len() / 2);
            log.take(*side, one);
            log.take(*side, other);
            log.take(*side, b"\n");
        }
        log
    }

    #[test]
    fn answers_and_progress_find_their_requests() {
        use Side::{Client, Server};
        let log = log(&[
            (
                Client,
                r#"{"id":1,"method":"initialize","params":{"protocolVersion":"x"}}"#,
            ),
            (
                Server,
                r#"{"id":1,"result":{"protocolVersion":"2025-06-18"}}"#,
            ),
            (Client, r#"{"method":"notifications/initialized"}"#),
            (
                Client,
                r#"{"id":"a","method":"tools/call","params":{"_meta":{"progressToken":7}}}"#,
            ),
            (
                Client,
                r#"{"id":1,"method":"tools/call","params":{"_meta":{"progressToken":"7"}}}"#,
            ),
            (
                Server,
                r#"{"method":"notifications/progress","params":{"progressToken":"7"}}"#,
            ),
            (
                Server,
                r#"{"method":"notifications/progress","params":{"progressToken":8}}"#,
            ),
            (
                Server,
                r#"{"id":9,"method":"sampling/createMessage","params":{}}"#,
            ),
            (Client, r#"{"id":9,"result":{}}"#),
            (Server, r#"{"id":1,"result":{"second":true}}"#),
            (Server, "garbage"),
            (Server, r#"{"id":"a","error":{"code":1}}"#),
            (Server, r#"{"method":"notifications/tools/list_changed"}"#),
            (
                Client,
                r#"[{"id":2,"method":"ping"},{"id":3,"method":"ping"}]"#,
            ),
            (Server, r#"[{"id":3,"result":{}}]"#),
        ]);
        assert_eq!(log.version.as_deref(), Some("2025-06-18"));
        let pairs: Vec<_> = log
            .pairs
            .iter()
            .map(|pair| {
                (
                    pair.before.len(),
                    pair.answer.as_ref().map(|answer| answer.get()),
                )
            })
            .collect();
        assert_eq!(
            pairs,
            [
                (
                    0,
                    Some(r#"{"id":1,"result":{"protocolVersion":"2025-06-18"}}"#)
                ),
                (1, Some(r#"{"id":"a","error":{"code":1}}"#)),
                (1, Some(r#"{"id":1,"result":{"second":true}}"#)),
                (0, None),
                (0, Some(r#"{"id":3,"result":{}}"#)),
            ]
        );
    }
}
