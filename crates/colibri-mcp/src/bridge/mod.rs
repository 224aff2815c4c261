//! The stdio bridge: what an editor starts as its MCP server. Bytes both ways between stdio and the
//! daemon's socket.
//!
//! Two threads that block, one for each direction: nothing is faster for two streams. Each takes
//! what one read brought, notes the few things that a daemon's restart makes necessary ([`peek`]),
//! and writes all complete lines with one write from where they lie. Only whole lines go on, so a
//! connection that breaks never leaves half a line behind.
//!
//! What is kept, to survive a restart of the daemon:
//! - the ids of requests in flight: they are answered with an error, since nobody can know whether
//!   they ran;
//! - the session that a legacy client opened (`initialize`, `notifications/initialized`,
//!   `logging/setLevel`): it is opened again with the same bytes, and the answers, which the client
//!   already has, are swallowed;
//! - a modern client's `subscriptions/listen` in flight: sent again (2026-07-28,
//!   basic/patterns/subscriptions);
//! - the ids of requests from the daemon that the client has not answered: a late answer must not
//!   reach the new daemon, which may use the same id for another question.

mod own_answer;
mod peek;
mod restart;

use std::fs::File;
use std::io::{self, IsTerminal as _, Read, Write};
use std::net::Shutdown;
use std::ops::Range;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::connection::{DaemonAddress, Hello, MAX_LINE, Unavailable};
use crate::failure::CommandError;
use colibri_files::{LineBuffer, LinePiece, each_line};
use colibri_protocol::error::Code;
use colibri_text::visible;
use own_answer::{error_line, refusal};
use parking_lot::{Condvar, Mutex, MutexGuard};
pub(crate) use peek::messages;
use peek::{PeekedMessage, comparable};
use restart::{InFlight, InitializeResult, LegacyHandshake, ReplayableRequest};

/// The time for which requests wait for a daemon that has just gone, before they are told that
/// there is none.
const GRACE: Duration = Duration::from_secs(3);
/// Between attempts to reach the daemon again: from, doubling, up to.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(20), Duration::from_secs(5));
/// The longest time for a new daemon's answer to the replayed `initialize`.
const REPLAY_LIMIT: Duration = Duration::from_secs(10);
/// The wait for the daemon to close, once stdin has ended and every request is answered.
const LINGER: Duration = Duration::from_secs(1);

/// The end of a bridge.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum BridgeEnd {
    /// The client closed its side, and everything it asked was answered by the daemon.
    Well,
    /// The client closed its side when there was no daemon.
    WithoutDaemon,
}

/// The reason for which a bridge could not go on.
#[derive(Debug, thiserror::Error)]
pub(crate) enum BridgeError {
    /// The client no longer reads.
    #[error("the client closed stdout: {0}")]
    Output(io::Error),
    /// The daemon that came back does not take the session.
    #[error(
        "colibri-mcpd restarted and does not take the session as it was ({0}). Restart the MCP client"
    )]
    Replay(String),
    /// There is no daemon now. The bridge waits for one.
    #[error(transparent)]
    NoDaemon(#[from] Unavailable),
}

/// A bridge between a client and the daemon.
#[derive(Debug)]
pub(crate) struct StdioBridge<W> {
    place: DaemonAddress,
    hello: Hello,
    output: Mutex<W>,
    state: Mutex<StdioBridgeState>,
    changed: Condvar,
}

#[derive(Debug)]
struct StdioBridgeState {
    link: DaemonLink,
    /// Somebody waits for the next attempt to connect.
    wanted: bool,
    input_ended: bool,
    in_flight: InFlight,
}

#[derive(Debug)]
enum DaemonLink {
    Up(Arc<UnixStream>),
    Down {
        /// The time at which it broke, if it was ever up.
        since: Option<Instant>,
        /// Attempts to connect that failed since.
        failures: u64,
        /// The message to a client's requests.
        why: String,
    },
}

impl<W: Write + Send> StdioBridge<W> {
    /// A bridge to the daemon at a place, which writes to `output`.
    pub(crate) fn new(place: impl Into<DaemonAddress>, hello: Hello, output: W) -> StdioBridge<W> {
        let state = StdioBridgeState {
            link: DaemonLink::Down {
                since: None,
                failures: 0,
                why: String::new(),
            },
            wanted: false,
            input_ended: false,
            in_flight: InFlight::default(),
        };
        StdioBridge {
            place: place.into(),
            hello,
            output: Mutex::new(output),
            state: Mutex::new(state),
            changed: Condvar::new(),
        }
    }

    /// The direction from the daemon to the client, and the connection itself. Returns when the
    /// client has closed its side and is served, or when it no longer reads. [`StdioBridge::send`]
    /// runs beside it, in another thread.
    pub(crate) fn receive(&self) -> Result<BridgeEnd, BridgeError> {
        let mut pause = BACKOFF.0;
        loop {
            let mut buffer = LineBuffer::new(MAX_LINE);
            match self.connect(&mut buffer) {
                Ok(stream) => {
                    pause = BACKOFF.0;
                    self.relay(&stream, &mut buffer)?;
                    if self.disconnected()? {
                        return Ok(BridgeEnd::Well);
                    }
                }
                Err(BridgeError::NoDaemon(error)) => {
                    let mut state = self.state.lock();
                    if state.input_ended {
                        return Ok(BridgeEnd::WithoutDaemon);
                    }
                    if let DaemonLink::Down { failures, why, .. } = &mut state.link {
                        *failures += 1;
                        *why = error.to_string();
                    }
                    state.wanted = false;
                    self.changed.notify_all();
                    let wait = |state: &mut StdioBridgeState| !state.wanted && !state.input_ended;
                    self.changed.wait_while_for(&mut state, wait, pause);
                    drop(state);
                    pause = (pause * 2).min(BACKOFF.1);
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// The direction from the client to the daemon. Returns when the client has closed its side and
    /// all that it asked is answered, or when reading fails, which counts as closed.
    pub(crate) fn send(&self, mut input: impl Read) -> Result<(), BridgeError> {
        let mut buffer = LineBuffer::new(MAX_LINE);
        loop {
            let done = match buffer.read(&mut input) {
                Ok(LinePiece::Lines(piece)) => {
                    self.forward(piece)?;
                    piece.len()
                }
                Ok(LinePiece::Nothing) => 0,
                Ok(LinePiece::TooLong(beginning)) => {
                    let text =
                        format!("this message is longer than the limit of {MAX_LINE} bytes a line");
                    self.answer(&error_line(
                        peek::id_of_beginning(beginning),
                        Code::FrameTooLong,
                        text,
                    ))?;
                    0
                }
                Ok(LinePiece::End(b"")) | Err(_) => break,
                Ok(LinePiece::End(rest)) => {
                    self.forward(&[rest, b"\n"].concat())?;
                    break;
                }
            };
            buffer.consume(done);
        }
        self.half_close();
        Ok(())
    }

    /// Writes whole lines to the client.
    fn answer(&self, lines: &[u8]) -> Result<(), BridgeError> {
        let mut output = self.output.lock();
        output
            .write_all(lines)
            .and_then(|()| output.flush())
            .map_err(BridgeError::Output)
    }

    /// Passes on lines from the client, or answers them if there is no daemon.
    fn forward(&self, piece: &[u8]) -> Result<(), BridgeError> {
        let state = self.state.lock();
        let (mut state, stream) = self.wait_for_link(state);
        let Some(stream) = stream else {
            let DaemonLink::Down { why, .. } = &state.link else {
                return Ok(());
            };
            let errors = each_line(piece)
                .flat_map(|(_, line)| refusal(line, why))
                .collect::<Vec<u8>>();
            drop(state);
            return self.answer(&errors);
        };
        let drop_these: Vec<_> = each_line(piece)
            .filter(|(_, line)| !state.in_flight.note_sent(line))
            .map(|(range, _)| range)
            .collect();
        drop(state);
        // A write that fails needs no answer here: the other thread sees the end of the connection
        // as well, and answers everything that is noted as in flight.
        let _ = write_except(&mut &*stream, piece, &drop_these);
        Ok(())
    }

    /// Waits until there is a connection: for the grace period if there was one, else for one
    /// attempt.
    fn wait_for_link<'a>(
        &self,
        mut state: MutexGuard<'a, StdioBridgeState>,
    ) -> (MutexGuard<'a, StdioBridgeState>, Option<Arc<UnixStream>>) {
        let mut failures_before = None;
        loop {
            let (since, failures) = match &state.link {
                DaemonLink::Up(stream) => {
                    let stream = stream.clone();
                    return (state, Some(stream));
                }
                DaemonLink::Down {
                    since, failures, ..
                } => (*since, *failures),
            };
            let grace = since.map_or(Duration::ZERO, |since| {
                GRACE.saturating_sub(since.elapsed())
            });
            if !grace.is_zero() {
                self.changed.wait_for(&mut state, grace);
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
            self.changed.wait(&mut state);
        }
    }

    /// Passes the end of stdin on, and makes sure that the connection ends once everything is
    /// answered.
    fn half_close(&self) {
        let mut state = self.state.lock();
        state.input_ended = true;
        self.changed.notify_all();
        let DaemonLink::Up(stream) = &state.link else {
            return;
        };
        let stream = stream.clone();
        let _ = stream.shutdown(Shutdown::Write);
        let waits = |state: &mut StdioBridgeState| {
            matches!(state.link, DaemonLink::Up(_)) && state.in_flight.has_calls()
        };
        self.changed.wait_while(&mut state, waits);
        let up = |state: &mut StdioBridgeState| matches!(state.link, DaemonLink::Up(_));
        self.changed.wait_while_for(&mut state, up, LINGER);
        drop(state);
        let _ = stream.shutdown(Shutdown::Both);
    }

    /// Connects, opens the client's session again if there was one, and lets requests through.
    fn connect(&self, buffer: &mut LineBuffer) -> Result<Arc<UnixStream>, BridgeError> {
        let stream = self.place.dial(&self.hello)?;
        let session = self.state.lock().in_flight.session();
        if let Some(session) = session {
            self.replay(&stream, buffer, &session)?;
        }
        let mut state = self.state.lock();
        let again = state.in_flight.again();
        (&stream)
            .write_all(&again)
            .map_err(|error| self.broken(error))?;
        let stream = Arc::new(stream);
        state.link = DaemonLink::Up(stream.clone());
        state.wanted = false;
        if state.input_ended {
            // Nobody asks any more, and what was asked before has been answered.
            let _ = stream.shutdown(Shutdown::Both);
        }
        self.changed.notify_all();
        Ok(stream)
    }

    fn broken(&self, source: io::Error) -> BridgeError {
        let socket = self.place.socket.clone();
        BridgeError::NoDaemon(Unavailable { socket, source })
    }

    /// Opens a legacy session again.
    fn replay(
        &self,
        mut stream: &UnixStream,
        buffer: &mut LineBuffer,
        session: &LegacyHandshake,
    ) -> Result<(), BridgeError> {
        let deadline = Instant::now() + REPLAY_LIMIT;
        let answer = self.exchange(stream, buffer, &session.initialize, deadline)?;
        let opened = InitializeResult::read(&answer).map_err(BridgeError::Replay)?;
        if opened.version != session.version {
            let why = format!(
                "it was of protocol {}, and would now be of {}",
                session.version, opened.version
            );
            return Err(BridgeError::Replay(why));
        }
        if let Some(line) = &session.initialized {
            stream.write_all(line).map_err(|error| self.broken(error))?;
        }
        if let Some(set_level) = &session.set_level {
            self.exchange(stream, buffer, set_level, deadline)?;
        }
        if session.initialized.is_some() {
            // What the new daemon offers may differ, and nobody else tells a legacy client.
            let mut changed: String = session
                .lists_change
                .iter()
                .map(|list| {
                    format!(
                        "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/{list}/list_changed\"}}\n"
                    )
                })
                .collect();
            for uri in session.subscribed.keys() {
                let uri = String::from_utf8_lossy(uri);
                changed.push_str(&format!(
                    "{{\"jsonrpc\":\"2.0\",\"method\":\"notifications/resources/updated\",\"params\":{{\"uri\":{uri}}}}}\n"
                ));
            }
            self.answer(changed.as_bytes())?;
        }
        stream
            .set_read_timeout(None)
            .map_err(|error| self.broken(error))
    }

    /// Sends a request of the client's once more and returns its answer, which the client must not
    /// see twice.
    fn exchange(
        &self,
        mut stream: &UnixStream,
        buffer: &mut LineBuffer,
        request: &ReplayableRequest,
        deadline: Instant,
    ) -> Result<Vec<u8>, BridgeError> {
        let broken = |error| self.broken(error);
        stream.write_all(&request.line).map_err(broken)?;
        loop {
            let left = deadline
                .saturating_duration_since(Instant::now())
                .max(Duration::from_millis(1));
            let read = stream
                .set_read_timeout(Some(left))
                .and_then(|()| buffer.read(&mut stream));
            let (done, answer) = match read.map_err(broken)? {
                LinePiece::End(_) | LinePiece::TooLong(_) => {
                    return Err(broken(io::ErrorKind::UnexpectedEof.into()));
                }
                LinePiece::Nothing => (0, None),
                LinePiece::Lines(piece) => {
                    let is_answer = |line: &[u8]| match peek::message(line) {
                        PeekedMessage::Answer { id: given } => comparable(given) == request.id,
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
                return Ok(answer);
            }
        }
    }

    /// Passes on lines from the daemon until the connection ends.
    fn relay(&self, mut stream: &UnixStream, buffer: &mut LineBuffer) -> Result<(), BridgeError> {
        loop {
            let done = match buffer.read(&mut stream) {
                Ok(LinePiece::Lines(piece)) => {
                    self.deliver(piece)?;
                    piece.len()
                }
                Ok(LinePiece::Nothing) => 0,
                Ok(LinePiece::TooLong(beginning)) => {
                    let text =
                        format!("the answer is longer than the limit of {MAX_LINE} bytes a line");
                    if let PeekedMessage::Answer { id } = peek::message(beginning)
                        && self.state.lock().in_flight.is_answered(id)
                    {
                        self.answer(&error_line(id, Code::FrameTooLong, text))?;
                    }
                    0
                }
                Ok(LinePiece::End(_)) | Err(_) => return Ok(()),
            };
            buffer.consume(done);
        }
    }

    /// Writes lines from the daemon to the client.
    fn deliver(&self, piece: &[u8]) -> Result<(), BridgeError> {
        // The output is taken first: once nothing is in flight any more, everything has been
        // written.
        let mut output = self.output.lock();
        let mut state = self.state.lock();
        let drop_these: Vec<_> = each_line(piece)
            .filter(|(_, line)| !state.in_flight.note_received(line))
            .map(|(range, _)| range)
            .collect();
        let tell = state.input_ended && !state.in_flight.has_calls();
        drop(state);
        write_except(&mut *output, piece, &drop_these)
            .and_then(|()| output.flush())
            .map_err(BridgeError::Output)?;
        if tell {
            self.changed.notify_all();
        }
        Ok(())
    }

    /// Answers what was in flight on a connection that has ended. True if there will be no other
    /// connection.
    fn disconnected(&self) -> Result<bool, BridgeError> {
        let mut state = self.state.lock();
        let ended = state.input_ended;
        state.link = DaemonLink::Down {
            since: Some(Instant::now()),
            failures: 0,
            why: String::new(),
        };
        let lines = state.in_flight.lost(ended);
        self.changed.notify_all();
        drop(state);
        self.answer(&lines)?;
        Ok(ended)
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

/// Bridges this process's stdin and stdout until the client or the daemon ends it; says why where
/// that is a failure.
pub(crate) fn run(place: DaemonAddress, hello: Hello) -> ExitCode {
    if io::stdin().is_terminal() {
        eprintln!(
            "colibri-mcp: this is the bridge, which an editor starts and speaks MCP to; it waits for lines of it here.\n\
             `colibri-mcp connect EDITOR` has an editor start it, `colibri-mcp --help` shows all commands; Ctrl-D ends it."
        );
    }
    // Plain files: the standard library's own handles buffer, and split output at newlines.
    let streams = io::stdin().as_fd().try_clone_to_owned().and_then(|input| {
        let output = io::stdout().as_fd().try_clone_to_owned()?;
        Ok((File::from(input), File::from(output)))
    });
    match streams {
        // The client no longer reads: that is its end, whatever the daemon still says.
        Ok((input, output)) => run_between(place, hello, input, output, || std::process::exit(0)),
        // A client that closed stdout is gone: there is nobody to tell.
        Err(_) => ExitCode::SUCCESS,
    }
}

/// Bridges a client's two streams until it or the daemon ends it; says why where that is a failure.
/// `gone` is called on another thread when the client no longer reads.
pub(crate) fn run_between<R, W>(
    place: DaemonAddress,
    hello: Hello,
    input: R,
    output: W,
    gone: impl FnOnce() + Send + 'static,
) -> ExitCode
where
    R: Read + Send + 'static,
    W: Write + Send + 'static,
{
    let bridge = Arc::new(StdioBridge::new(place, hello, output));
    let sender = bridge.clone();
    std::thread::spawn(move || {
        if sender.send(input).is_err() {
            gone();
        }
    });
    match bridge.receive() {
        // A client that closes stdout is gone: there is nobody to tell.
        Ok(BridgeEnd::Well) | Err(BridgeError::Output(_)) => ExitCode::SUCCESS,
        Ok(BridgeEnd::WithoutDaemon) => ExitCode::from(CommandError::UNAVAILABLE),
        Err(error) => {
            eprintln!("colibri-mcp: {}", visible(&error.to_string()));
            ExitCode::from(CommandError::UNAVAILABLE)
        }
    }
}

#[cfg(test)]
mod tests;
