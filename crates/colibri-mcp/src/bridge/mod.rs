//! The stdio bridge: what an editor starts as its MCP server. Bytes both ways between stdio and the daemon's socket.
//!
//! Two threads that block, one for each direction: nothing is faster for two streams. Each takes what one read
//! brought, notes the few things that a daemon's restart makes necessary ([`scan`]), and writes all complete lines with
//! one write from where they lie. Only whole lines go on, so a connection that breaks never leaves half a line behind.
//!
//! What is kept, to survive a restart of the daemon:
//! - the ids of requests in flight: they are answered with an error, since nobody can know whether they ran;
//! - the session that a legacy client opened (`initialize`, `notifications/initialized`, `logging/setLevel`): it is
//!   opened again with the same bytes, and the answers, which the client already has, are swallowed;
//! - a modern client's `subscriptions/listen` in flight: sent again (2026-07-28, basic/patterns/subscriptions);
//! - the ids of requests from the daemon that the client has not answered: a late answer must not reach the new daemon,
//!   which may use the same id for another question.

mod scan;

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::io::{self, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, mpsc};
use std::time::{Duration, Instant};

use serde::Deserialize;

use super::connection::{Gate, Unavailable, dial};
use super::lines::{LINE_LIMIT, LineBuffer, Piece, each_line};
use colibri_protocol::error::{Code, Failure, RpcError};
use scan::{Message, comparable};

/// How long requests wait for a daemon that has just gone, before they are told that there is none.
const GRACE: Duration = Duration::from_secs(3);
/// Between attempts to reach the daemon again: from, doubling, up to.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// How long a new daemon may take to answer the replayed `initialize`.
const REPLAY_LIMIT: Duration = Duration::from_secs(10);
/// How long to wait for the daemon to close, once stdin has ended and every request is answered.
const LINGER: Duration = Duration::from_secs(1);

/// How a bridge ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Ended {
    /// The client closed its side, and everything it asked was answered by the daemon.
    Well,
    /// The client closed its side when there was no daemon.
    WithoutDaemon,
}

/// Why a bridge could not go on.
#[derive(Debug, thiserror::Error)]
pub enum BridgeError {
    /// The client no longer reads.
    #[error("the client closed stdout: {0}")]
    Output(io::Error),
    /// The daemon that came back does not take the session.
    #[error("colibri-mcpd restarted and does not take the session as it was ({0}). Restart the MCP client")]
    Replay(String),
}

/// A bridge between a client and the daemon.
#[derive(Debug)]
pub struct Bridge<W> {
    socket: PathBuf,
    narrow: Vec<Gate>,
    output: Mutex<W>,
    state: Mutex<State>,
    changed: Condvar,
}

#[derive(Debug)]
struct State {
    link: Link,
    /// Somebody waits for the next attempt to connect.
    wanted: bool,
    pending: HashMap<Id, Pending>,
    session: Option<Session>,
    /// Requests from the daemon that the client has not answered.
    asked: HashSet<Id>,
    /// Those of a daemon that is gone.
    stale: HashSet<Id>,
    /// Subscriptions that were sent again: the client already knows that they are acknowledged.
    resubscribed: HashSet<Id>,
    input_ended: bool,
}

#[derive(Debug)]
enum Link {
    Up(Arc<UnixStream>),
    Down {
        /// When it broke, if it was ever up.
        since: Option<Instant>,
        /// Attempts to connect that failed since.
        failures: u64,
        /// What to tell a client that asks.
        why: String,
    },
}

/// A request that waits for its answer.
#[derive(Debug)]
enum Pending {
    Call,
    /// The line is kept: it can be sent again.
    Initialize(Line),
    /// The line is kept: it can be sent again.
    Listen(Line),
}

/// A line with its newline.
type Line = Box<[u8]>;
/// A request's id, in the form that [`comparable`] gives it.
type Id = Box<[u8]>;

/// A request that can be sent again.
#[derive(Debug, Clone)]
struct Sent {
    id: Id,
    line: Line,
}

/// A legacy session, as the client opened it.
#[derive(Debug, Clone)]
struct Session {
    initialize: Sent,
    initialized: Option<Line>,
    set_level: Option<Sent>,
    version: String,
    lists_change: Vec<&'static str>,
}

impl<W: Write + Send> Bridge<W> {
    /// A bridge to the daemon at `socket`, which writes to `output`.
    pub fn new(socket: PathBuf, narrow: Vec<Gate>, output: W) -> Bridge<W> {
        let state = State {
            link: Link::Down {
                since: None,
                failures: 0,
                why: String::new(),
            },
            wanted: false,
            pending: HashMap::new(),
            session: None,
            asked: HashSet::new(),
            stale: HashSet::new(),
            resubscribed: HashSet::new(),
            input_ended: false,
        };
        Bridge {
            socket,
            narrow,
            output: Mutex::new(output),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// The direction from the daemon to the client, and the connection itself. Returns when the client has closed its
    /// side and is served, or when it no longer reads. [`Bridge::send`] runs beside it, in another thread.
    pub fn receive(&self) -> Result<Ended, BridgeError> {
        let mut pause = BACKOFF.0;
        loop {
            let mut buffer = LineBuffer::new(LINE_LIMIT);
            match self.connect(&mut buffer)? {
                Ok(stream) => {
                    pause = BACKOFF.0;
                    self.relay(&stream, &mut buffer)?;
                    if self.disconnected()? {
                        return Ok(Ended::Well);
                    }
                }
                Err(error) => {
                    let mut state = self.state();
                    if state.input_ended {
                        return Ok(Ended::WithoutDaemon);
                    }
                    if let Link::Down { failures, why, .. } = &mut state.link {
                        *failures += 1;
                        *why = error.to_string();
                    }
                    state.wanted = false;
                    self.changed.notify_all();
                    let wait = |state: &mut State| !state.wanted && !state.input_ended;
                    drop(
                        self.changed
                            .wait_timeout_while(state, pause, wait)
                            .unwrap_or_else(PoisonError::into_inner),
                    );
                    pause = (pause * 2).min(BACKOFF.1);
                }
            }
        }
    }

    /// The direction from the client to the daemon. Returns when the client has closed its side and all that it asked
    /// is answered, or when reading fails, which counts as closed.
    pub fn send(&self, mut input: impl Read) -> Result<(), BridgeError> {
        let mut buffer = LineBuffer::new(LINE_LIMIT);
        loop {
            let done = match buffer.read(&mut input) {
                Ok(Piece::Lines(piece)) => {
                    self.forward(piece)?;
                    piece.len()
                }
                Ok(Piece::Nothing) => 0,
                Ok(Piece::TooLong(beginning)) => {
                    let text = format!("this message is longer than the limit of {LINE_LIMIT} bytes a line");
                    self.answer(&error_line(scan::id_of_beginning(beginning), Code::FrameTooLong, text))?;
                    0
                }
                Ok(Piece::End(b"")) | Err(_) => break,
                Ok(Piece::End(rest)) => {
                    self.forward(&[rest, b"\n"].concat())?;
                    break;
                }
            };
            buffer.consume(done);
        }
        self.half_close();
        Ok(())
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes whole lines to the client.
    fn answer(&self, lines: &[u8]) -> Result<(), BridgeError> {
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        output
            .write_all(lines)
            .and_then(|()| output.flush())
            .map_err(BridgeError::Output)
    }

    /// Passes on lines from the client, or answers them if there is no daemon.
    fn forward(&self, piece: &[u8]) -> Result<(), BridgeError> {
        let state = self.state();
        let (mut state, stream) = self.wait_for_link(state);
        let Some(stream) = stream else {
            let Link::Down { why, .. } = &state.link else {
                return Ok(());
            };
            let errors = each_line(piece)
                .flat_map(|(_, line)| refusal(line, why))
                .collect::<Vec<u8>>();
            drop(state);
            return self.answer(&errors);
        };
        let drop_these: Vec<_> = each_line(piece)
            .filter(|(_, line)| !state.note_sent(line))
            .map(|(range, _)| range)
            .collect();
        drop(state);
        // A write that fails needs no answer here: the other thread sees the end of the connection as well, and answers
        // everything that is noted as in flight.
        let _ = write_except(&mut &*stream, piece, &drop_these);
        Ok(())
    }

    /// Waits until there is a connection: for the grace period if there was one, else for one attempt.
    fn wait_for_link<'a>(&self, mut state: MutexGuard<'a, State>) -> (MutexGuard<'a, State>, Option<Arc<UnixStream>>) {
        let mut failures_before = None;
        loop {
            let (since, failures) = match &state.link {
                Link::Up(stream) => {
                    let stream = stream.clone();
                    return (state, Some(stream));
                }
                Link::Down { since, failures, .. } => (*since, *failures),
            };
            let grace = since.map_or(Duration::ZERO, |since| GRACE.saturating_sub(since.elapsed()));
            if !grace.is_zero() {
                state = self
                    .changed
                    .wait_timeout(state, grace)
                    .unwrap_or_else(PoisonError::into_inner)
                    .0;
                continue;
            }
            match failures_before {
                Some(before) if failures > before => return (state, None),
                Some(_) => {}
                None => {
                    failures_before = Some(failures);
                    state.wanted = true;
                    self.changed.notify_all();
                }
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Passes the end of stdin on, and makes sure that the connection ends once everything is answered.
    fn half_close(&self) {
        let mut state = self.state();
        state.input_ended = true;
        self.changed.notify_all();
        let Link::Up(stream) = &state.link else {
            return;
        };
        let stream = stream.clone();
        let _ = stream.shutdown(Shutdown::Write);
        let waits = |state: &mut State| matches!(state.link, Link::Up(_)) && state.has_calls();
        let state = self
            .changed
            .wait_while(state, waits)
            .unwrap_or_else(PoisonError::into_inner);
        let up = |state: &mut State| matches!(state.link, Link::Up(_));
        let (state, _) = self
            .changed
            .wait_timeout_while(state, LINGER, up)
            .unwrap_or_else(PoisonError::into_inner);
        drop(state);
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Connects, opens the client's session again if there was one, and lets requests through.
    fn connect(&self, buffer: &mut LineBuffer) -> Result<Result<Arc<UnixStream>, Unavailable>, BridgeError> {
        let stream = match dial(&self.socket, &self.narrow) {
            Ok(stream) => stream,
            Err(error) => return Ok(Err(error)),
        };
        let broken = |source| Unavailable::NotRunning {
            socket: self.socket.clone(),
            source,
        };
        let session = self.state().session.clone();
        if let Some(session) = session
            && let Err(source) = self.replay(&stream, buffer, &session)?
        {
            return Ok(Err(broken(source)));
        }
        let mut state = self.state();
        let mut again = Vec::new();
        let mut listens = Vec::new();
        for (id, pending) in &state.pending {
            match pending {
                Pending::Initialize(line) => again.extend_from_slice(line),
                Pending::Listen(line) => {
                    listens.push(id.clone());
                    again.extend_from_slice(line);
                }
                Pending::Call => {}
            }
        }
        state.resubscribed.extend(listens);
        if let Err(source) = (&stream).write_all(&again) {
            return Ok(Err(broken(source)));
        }
        let stream = Arc::new(stream);
        state.link = Link::Up(stream.clone());
        state.wanted = false;
        if state.input_ended {
            // Nobody asks any more, and what was asked before has been answered.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
        Ok(Ok(stream))
    }

    /// Opens a legacy session again. The inner error is the connection's.
    fn replay(
        &self,
        mut stream: &UnixStream,
        buffer: &mut LineBuffer,
        session: &Session,
    ) -> Result<io::Result<()>, BridgeError> {
        let deadline = Instant::now() + REPLAY_LIMIT;
        let answer = match self.exchange(stream, buffer, &session.initialize, deadline)? {
            Ok(answer) => answer,
            Err(error) => return Ok(Err(error)),
        };
        let opened = Opened::read(&answer).map_err(BridgeError::Replay)?;
        if opened.version != session.version {
            let why = format!(
                "it was of protocol {}, and would now be of {}",
                session.version, opened.version
            );
            return Err(BridgeError::Replay(why));
        }
        if let Some(line) = &session.initialized
            && let Err(error) = stream.write_all(line)
        {
            return Ok(Err(error));
        }
        if let Some(set_level) = &session.set_level
            && let Err(error) = self.exchange(stream, buffer, set_level, deadline)?
        {
            return Ok(Err(error));
        }
        if session.initialized.is_some() {
            // What the new daemon offers may differ, and nobody else tells a legacy client.
            let changed: String = session
                .lists_change
                .iter()
                .map(|list| format!("{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{list}/list_changed\"}}\n"))
                .collect();
            self.answer(changed.as_bytes())?;
        }
        Ok(stream.set_read_timeout(None))
    }

    /// Sends a request of the client's once more and returns its answer, which the client must not see twice.
    fn exchange(
        &self,
        mut stream: &UnixStream,
        buffer: &mut LineBuffer,
        request: &Sent,
        deadline: Instant,
    ) -> Result<io::Result<Vec<u8>>, BridgeError> {
        if let Err(error) = stream.write_all(&request.line) {
            return Ok(Err(error));
        }
        loop {
            let left = deadline
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            let read = stream
                .set_read_timeout(Some(left))
                .and_then(|()| buffer.read(&mut stream));
            let (done, answer) = match read {
                Err(error) => return Ok(Err(error)),
                Ok(Piece::End(_) | Piece::TooLong(_)) => {
                    return Ok(Err(io::ErrorKind::UnexpectedEof.into()));
                }
                Ok(Piece::Nothing) => (0, None),
                Ok(Piece::Lines(piece)) => {
                    let is_answer = |line: &[u8]| match scan::message(line) {
                        Message::Answer { id: given } => comparable(given) == request.id,
                        _ => false,
                    };
                    match each_line(piece).find(|(_, line)| is_answer(line)) {
                        None => {
                            self.deliver(piece)?;
                            (piece.len(), None)
                        }
                        Some((range, line)) => {
                            self.deliver(&piece[..range.start])?;
                            (range.end, Some(line.to_vec()))
                        }
                    }
                }
            };
            buffer.consume(done);
            if let Some(answer) = answer {
                return Ok(Ok(answer));
            }
        }
    }

    /// Passes on lines from the daemon until the connection ends.
    fn relay(&self, mut stream: &UnixStream, buffer: &mut LineBuffer) -> Result<(), BridgeError> {
        loop {
            let done = match buffer.read(&mut stream) {
                Ok(Piece::Lines(piece)) => {
                    self.deliver(piece)?;
                    piece.len()
                }
                Ok(Piece::Nothing) => 0,
                Ok(Piece::TooLong(beginning)) => {
                    let text = format!("the answer is longer than the limit of {LINE_LIMIT} bytes a line");
                    if let Message::Answer { id } = scan::message(beginning)
                        && self.state().pending.remove(&comparable(id)).is_some()
                    {
                        self.answer(&error_line(id, Code::FrameTooLong, text))?;
                    }
                    0
                }
                Ok(Piece::End(_)) | Err(_) => return Ok(()),
            };
            buffer.consume(done);
        }
    }

    /// Writes lines from the daemon to the client.
    fn deliver(&self, piece: &[u8]) -> Result<(), BridgeError> {
        // The output is taken first: once nothing is in flight any more, everything has been written.
        let mut output = self.output.lock().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.state();
        let drop_these: Vec<_> = each_line(piece)
            .filter(|(_, line)| !state.note_received(line))
            .map(|(range, _)| range)
            .collect();
        let tell = state.input_ended && !state.has_calls();
        drop(state);
        write_except(&mut *output, piece, &drop_these)
            .and_then(|()| output.flush())
            .map_err(BridgeError::Output)?;
        if tell {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Answers what was in flight on a connection that has ended. True if there will be no other connection.
    fn disconnected(&self) -> Result<bool, BridgeError> {
        let mut state = self.state();
        let ended = state.input_ended;
        state.link = Link::Down {
            since: Some(Instant::now()),
            failures: 0,
            why: String::new(),
        };
        let mut lines = Vec::new();
        state.pending.retain(|id, pending| {
            let keep = !ended && !matches!(pending, Pending::Call);
            // A subscription that ends with the session needs no error.
            if !keep && !matches!(pending, Pending::Listen(_)) {
                let text = "colibri-mcpd restarted, or was stopped, while this request was in flight: it may have run, \
                            or not";
                lines.extend(error_line(id, Code::ConnectionLost, text));
            }
            keep
        });
        let asked = std::mem::take(&mut state.asked);
        for id in &asked {
            lines.extend_from_slice(br#"{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":"#);
            lines.extend_from_slice(id);
            lines.extend_from_slice(b",\"reason\":\"colibri-mcpd restarted\"}}\n");
        }
        state.stale.extend(asked);
        state.resubscribed.clear();
        self.changed.notify_all();
        drop(state);
        self.answer(&lines)?;
        Ok(ended)
    }
}

impl State {
    /// Notes a line that is about to go to the daemon. False if it must not.
    fn note_sent(&mut self, line: &[u8]) -> bool {
        if scan::is_batch(line) {
            // Nothing in a batch opens a session or a subscription (MCP 2025-03-26, basic: lifecycle).
            for message in scan::messages(line) {
                if let Message::Request { id, .. } = scan::message(message) {
                    self.pending.insert(comparable(id), Pending::Call);
                }
            }
            return true;
        }
        match scan::message(line) {
            Message::Request { id, method } => {
                let id = comparable(id);
                let pending = match method {
                    b"initialize" => Pending::Initialize(line.into()),
                    b"subscriptions/listen" => Pending::Listen(line.into()),
                    b"logging/setLevel" => {
                        if let Some(session) = &mut self.session {
                            session.set_level = Some(Sent {
                                id: id.clone(),
                                line: line.into(),
                            });
                        }
                        Pending::Call
                    }
                    _ => Pending::Call,
                };
                self.pending.insert(id, pending);
            }
            Message::Notification {
                method: b"notifications/initialized",
            } => {
                if let Some(session) = &mut self.session {
                    session.initialized = Some(line.into());
                }
            }
            Message::Notification {
                method: b"notifications/cancelled",
            } => {
                if let Some(id) = scan::cancelled_request(line) {
                    self.pending.remove(&id);
                }
            }
            Message::Answer { id } if !(self.stale.is_empty() && self.asked.is_empty()) => {
                let id = comparable(id);
                if self.stale.remove(&id) {
                    return false;
                }
                self.asked.remove(&id);
            }
            _ => {}
        }
        true
    }

    /// Notes a line from the daemon. False if the client must not see it.
    fn note_received(&mut self, line: &[u8]) -> bool {
        if scan::is_batch(line) {
            for message in scan::messages(line) {
                if let Message::Answer { id } = scan::message(message) {
                    self.pending.remove(&comparable(id));
                }
            }
            return true;
        }
        match scan::message(line) {
            Message::Answer { id } => {
                let id = comparable(id);
                if let Some(Pending::Initialize(request)) = self.pending.remove(&id)
                    && let Ok(opened) = Opened::read(line)
                {
                    self.session = Some(Session {
                        initialize: Sent { id, line: request },
                        initialized: None,
                        set_level: None,
                        version: opened.version,
                        lists_change: opened.lists_change,
                    });
                }
            }
            Message::Request { id, .. } => {
                self.asked.insert(comparable(id));
            }
            Message::Notification {
                method: b"notifications/cancelled",
            } if !self.asked.is_empty() => {
                if let Some(id) = scan::cancelled_request(line) {
                    self.asked.remove(&id);
                }
            }
            Message::Notification {
                method: b"notifications/subscriptions/acknowledged",
            } if !self.resubscribed.is_empty() => {
                return !scan::acknowledged_subscription(line).is_some_and(|id| self.resubscribed.remove(&id));
            }
            _ => {}
        }
        true
    }

    /// Whether requests wait for answers; a subscription's answer is its end, and not waited for.
    fn has_calls(&self) -> bool {
        self.pending
            .values()
            .any(|pending| !matches!(pending, Pending::Listen(_)))
    }
}

/// What an answer to `initialize` says of the session.
struct Opened {
    version: String,
    /// The lists of which the daemon says that it tells when they change.
    lists_change: Vec<&'static str>,
}

impl Opened {
    fn read(line: &[u8]) -> Result<Opened, String> {
        #[derive(Deserialize)]
        struct Line {
            result: Option<InitializeResult>,
            error: Option<ErrorText>,
        }
        #[derive(Deserialize)]
        struct ErrorText {
            message: String,
        }
        #[derive(Deserialize)]
        struct InitializeResult {
            #[serde(rename = "protocolVersion")]
            version: String,
            #[serde(default)]
            capabilities: HashMap<String, serde_json::Value>,
        }
        let line: Line = serde_json::from_slice(line).map_err(|error| error.to_string())?;
        let Some(result) = line.result else {
            return Err(line.error.map_or("no result".to_owned(), |error| error.message));
        };
        let lists_change = ["tools", "prompts", "resources"]
            .into_iter()
            .filter(|list| {
                result
                    .capabilities
                    .get(*list)
                    .is_some_and(|list| list["listChanged"] == true)
            })
            .collect();
        Ok(Opened {
            version: result.version,
            lists_change,
        })
    }
}

/// One error answer, with its newline. `id` is JSON text.
fn error_line(id: &[u8], code: Code, text: impl Into<String>) -> Vec<u8> {
    let failure = Failure::new(code, text);
    let (message, data) = (failure.to_string(), Some(failure.data()));
    let error = RpcError {
        code: code.row().number,
        message,
        data,
    }
    .to_json();
    [
        br#"{"jsonrpc":"2.0","id":"#,
        id,
        br#","error":"#,
        error.as_bytes(),
        b"}\n",
    ]
    .concat()
}

/// The answer to a line that finds no daemon: nothing for what wants no answer.
fn refusal(line: &[u8], why: &str) -> Vec<u8> {
    let errors: Vec<_> = scan::messages(line)
        .into_iter()
        .filter_map(|message| match scan::message(message) {
            Message::Request { id, .. } => Some(error_line(id, Code::DaemonUnreachable, why)),
            _ => None,
        })
        .collect();
    match errors.as_slice() {
        [one] if !scan::is_batch(line) => one.clone(),
        [] => Vec::new(),
        many => {
            let inner: Vec<_> = many.iter().map(|error| error.trim_ascii_end()).collect();
            [b"[", inner.join(&b","[..]).as_slice(), b"]\n"].concat()
        }
    }
}

/// Writes all of `piece` but the given ranges, which are in order.
fn write_except(to: &mut impl Write, piece: &[u8], without: &[Range<usize>]) -> io::Result<()> {
    let mut start = 0;
    for range in without {
        to.write_all(&piece[start..range.start])?;
        start = range.end;
    }
    to.write_all(&piece[start..])
}

/// Bridges this process's stdin and stdout. Returns how it ended.
pub fn run(socket: PathBuf, narrow: Vec<Gate>) -> Result<Ended, BridgeError> {
    // Plain files: the standard library's own handles buffer, and split output at newlines.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned().map_err(BridgeError::Output)?);
    let output = File::from(io::stdout().as_fd().try_clone_to_owned().map_err(BridgeError::Output)?);
    let bridge = Arc::new(Bridge::new(socket, narrow, output));
    let (ended, end) = mpsc::channel();
    let (sender, sender_ended) = (bridge.clone(), ended.clone());
    std::thread::spawn(move || {
        if let Err(error) = sender.send(input) {
            let _ = sender_ended.send(Err(error));
        }
    });
    std::thread::spawn(move || {
        let _ = ended.send(bridge.receive());
    });
    // The receiving thread always sends: the channel cannot close before.
    end.recv().unwrap_or(Ok(Ended::Well))
}

#[cfg(test)]
mod tests;
