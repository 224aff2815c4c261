//! One running server process: what is sent to it, what it answers, and how it ends.

use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use colibri_text::brief;
use tokio::io::AsyncRead;
use tokio::sync::{Notify, oneshot};
use tokio::time::{Instant, sleep_until, timeout};
use tracing::{debug, info, warn};

use super::judged::Definitions;
use super::relay;
use super::secrets::Secrets;
use super::stderr::{Allowance, FirstWords, Stderr};
use super::tap::{Asker, Direction, Seen, Taps};
use crate::chain::enter::Cancel;
use crate::chain::{Call, Chain, Outcome, Relayed};
use crate::confine::{Process, Spawned};
use crate::peer::Slab;
use crate::wire::{Frame, FrameReader, Outbox, together};
use colibri_protocol::upstream::{self, Notification};
use colibri_protocol::{self as protocol, Code, Failure, Version};
use colibri_wire::{Edits, Envelope, Json, Kind, Tape};

/// How long a server whose process has ended may take to be read to its end.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long what is queued for a server may take to be written when it ends.
const FLUSH: Duration = Duration::from_secs(1);
/// Bytes of a server's unread standard input over which new calls to it are refused.
pub const MOST_UNREAD: usize = 20 * 1024 * 1024;
/// Oddities of one process (stray lines, answers to nothing) that are logged; later ones are only counted.
const MOST_COMPLAINTS: u32 = 20;

/// The time limits of one server, defaults filled in.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// From starting the process to the end of its handshake.
    pub start: Duration,
    /// From sending a call, or its last progress, to the answer.
    pub call: Duration,
    /// Without a call in flight.
    pub idle: Duration,
    /// Of one call in all.
    pub total: Duration,
    /// The most bytes of a result.
    pub result: Option<u64>,
}

/// How a process ended that nobody wanted to end.
pub struct Crash {
    /// Why, as far as it is known.
    pub reason: String,
    /// What it wrote on its standard error: for those alone who may see what became of their calls.
    pub wrote: Option<String>,
}

/// What a session tells the one who keeps it.
pub trait Keeper: Send + Sync {
    /// The server says that its tools changed.
    fn tools_changed(&self, session: &Arc<Session>);

    /// The process is gone; calls in flight have been answered. `crash`: it was not ours to end.
    fn ended(&self, session: &Arc<Session>, crash: Option<Crash>);

    /// A call was answered: the server works.
    fn answered(&self);

    /// A call was lost with the process; whether it had an effect is not known.
    fn lost(&self, call: Box<Call>, failure: Failure);
}

/// What a server said of itself in its handshake.
#[derive(Debug, Clone, Default)]
pub struct PeerInfo {
    /// It has tools.
    pub tools: bool,
    /// It tells when they change.
    pub tools_list_changed: bool,
    /// `capabilities`, as it wrote them.
    pub capabilities: Option<Bytes>,
    /// `serverInfo`, as it wrote it.
    pub server_info: Option<Bytes>,
    /// Its instructions.
    pub instructions: Option<String>,
}

/// Whose process a session is, as far as that matters to it.
pub(super) struct Owner {
    /// The server's id.
    pub server: Arc<str>,
    /// Its time limits.
    pub limits: Limits,
    /// Who watches it.
    pub taps: Arc<Taps>,
    /// What is taken out of what it writes.
    pub secrets: Arc<Secrets>,
    /// What of its standard error may be logged.
    pub allowance: Arc<Allowance>,
}

/// One running server process.
pub struct Session {
    /// The server's id.
    pub server: Arc<str>,
    /// The daemon's number of the process.
    pub number: u64,
    /// The process id, of the server or of the one that watches it.
    pub pid: u32,
    /// The jail's id, for a jailed one.
    pub jid: Option<u32>,
    /// The helper's session id, for a jailed one.
    pub instance: Option<String>,
    /// When it was started.
    pub started: SystemTime,
    /// What it says of its tools.
    pub definitions: Definitions,
    limits: Limits,
    outbox: Arc<Outbox>,
    taps: Arc<Taps>,
    state: Mutex<State>,
    secrets: Arc<Secrets>,
    allowance: Arc<Allowance>,
    words: Arc<FirstWords>,
    /// Something happened that the watch has to look at: a first call, an order to end.
    attention: Notify,
    chain: Arc<Chain>,
}

struct State {
    version: Version,
    pending: Slab<Pending>,
    /// No further calls; the process ends when none is in flight.
    draining: bool,
    /// No further calls, and none is waited for: why.
    ending: Option<End>,
    idle_since: Instant,
    complaints: u32,
    says: PeerInfo,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum End {
    /// We want it to end.
    Wanted(&'static str),
    /// It broke the rules.
    Broken(String),
}

enum Pending {
    Call {
        call: Box<Call>,
        deadline: Instant,
        total: Instant,
    },
    Internal {
        answer: oneshot::Sender<Result<Answered, Failure>>,
        deadline: Instant,
    },
}

impl Pending {
    fn deadline(&self) -> Instant {
        match self {
            Pending::Call { deadline, total, .. } => *deadline.min(total),
            Pending::Internal { deadline, .. } => *deadline,
        }
    }
}

/// The answer to a request of our own.
#[derive(Debug, Clone)]
pub struct Answered {
    frame: Bytes,
    outcome: Result<Range<usize>, Range<usize>>,
}

impl Answered {
    /// The `result`, or the `error`.
    pub fn outcome(&self) -> Result<Option<Json<'_>>, Option<Json<'_>>> {
        let part = |span: &Range<usize>| Json::part(&self.frame, span.clone());
        self.outcome.as_ref().map(part).map_err(part)
    }
}

impl Session {
    /// A session over a process that was just started. [`Session::run`] must be spawned for it to live.
    pub(super) fn new(
        of: Owner,
        number: u64,
        process: &dyn Process,
        version: Version,
        outbox: Arc<Outbox>,
        chain: Arc<Chain>,
    ) -> Arc<Session> {
        Arc::new(Session {
            server: of.server,
            limits: of.limits,
            taps: of.taps,
            secrets: of.secrets,
            number,
            pid: process.pid(),
            jid: process.jid(),
            instance: process.instance().map(str::to_owned),
            started: SystemTime::now(),
            definitions: Definitions::unread(),
            outbox,
            state: Mutex::new(State {
                version,
                pending: Slab::default(),
                draining: false,
                ending: None,
                idle_since: Instant::now(),
                complaints: 0,
                says: PeerInfo::default(),
            }),
            allowance: of.allowance,
            words: Arc::default(),
            attention: Notify::new(),
            chain,
        })
    }

    /// Text without the values of secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        self.secrets.redactor().redact(text).into_owned()
    }

    /// Calls of several users come from now on: what it writes on its standard error is for the log alone.
    pub(super) fn is_shared(&self) {
        self.words.withhold();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The version that it speaks.
    pub fn version(&self) -> Version {
        self.state().version
    }

    /// The version that the handshake agreed on.
    pub fn set_version(&self, version: Version) {
        self.state().version = version;
    }

    /// What it said of itself.
    pub fn says(&self) -> PeerInfo {
        self.state().says.clone()
    }

    /// What it said of itself in its handshake.
    pub fn set_says(&self, says: PeerInfo) {
        self.state().says = says;
    }

    /// Calls in flight, our own requests not counted.
    pub fn in_flight(&self) -> usize {
        self.state()
            .pending
            .iter()
            .filter(|(_, pending)| matches!(pending, Pending::Call { .. }))
            .count()
    }

    /// Bytes that wait for the process to read them.
    pub fn queued(&self) -> usize {
        self.outbox.queued()
    }

    /// The calls in flight by our numbers, and whose they are.
    pub fn asked(&self) -> Vec<(u64, Asker)> {
        let state = self.state();
        let calls = state.pending.iter().filter_map(|(number, pending)| match pending {
            Pending::Call { call, .. } => Some((number, Asker::of(call))),
            Pending::Internal { .. } => None,
        });
        calls.collect()
    }

    /// Shows a frame to those who tap the server.
    fn show(&self, direction: Direction, frame: impl FnOnce() -> Bytes, call: Option<(u64, &Call)>) {
        if self.taps.is_watched() {
            let frame = frame();
            let length = frame.len() as u64;
            self.see(direction, frame, length, call);
        }
    }

    fn see(&self, direction: Direction, frame: Bytes, length: u64, call: Option<(u64, &Call)>) {
        self.taps.see(Seen {
            time: SystemTime::now(),
            direction,
            process: self.number,
            pid: self.pid,
            frame,
            length,
            call: call.map(|(number, call)| (number, Asker::of(call))),
        });
    }

    /// Queues a message of our own. It is shown first: an answer must not seem to come before its question.
    fn push(&self, message: &[u8]) {
        self.show(Direction::ToServer, || Bytes::copy_from_slice(message), None);
        self.outbox.push(message);
    }

    /// Whether it takes calls.
    pub fn is_open(&self) -> bool {
        let state = self.state();
        !state.draining && state.ending.is_none()
    }

    /// Sends a call. It is given back if the process takes no more.
    pub fn send(self: &Arc<Self>, call: Call) -> Result<(), Box<Call>> {
        let call = Box::new(call);
        let mut state = self.state();
        if state.draining || state.ending.is_some() {
            return Err(call);
        }
        let against = if self.outbox.queued() > MOST_UNREAD {
            Some("the server does not read its standard input")
        } else if !self.outbox.has_room(call.frame.len()) {
            Some("the daemon has no room for the call: too much is queued for clients and servers")
        } else {
            None
        };
        if let Some(against) = against {
            drop(state);
            let failure = Failure::new(Code::IntegrationUnavailable, against);
            self.chain
                .finish(vec![(*call, Outcome::Failed(failure.of_server(&*self.server)))]);
            return Ok(());
        }
        let Some(number) = state.pending.reserve() else {
            // It has answered too much, or too little: whoever asks for a process gets another one.
            state.draining = true;
            return Err(call);
        };
        if !call.client.sent(&call.id, self.clone(), number) {
            state.pending.give_back(number);
            drop(state);
            self.chain.finish(vec![(*call, Outcome::Cancelled)]);
            return Ok(());
        }
        let name = call.target.rename();
        let edits = relay::request(&call, number, state.version, name);
        let now = Instant::now();
        // The lock is held while the frame is queued: a cancellation that finds the call pending comes after it.
        let whole = || edits.apply(&call.frame).into();
        self.show(Direction::ToServer, whole, Some((number, &call)));
        let queued = self.outbox.push_edited(&call.frame, &edits);
        if !queued {
            // Its writer has ended, so it takes nothing any more: whoever asks for a process gets another one.
            state.draining = true;
            state.pending.give_back(number);
            call.client.unsent(&call.id);
            return Err(call);
        }
        let deadline = now + self.limits.call;
        let total = now + self.limits.total;
        state.pending.put(number, Pending::Call { call, deadline, total });
        Ok(())
    }

    /// Asks the server something of our own.
    pub async fn ask(
        &self,
        message: impl FnOnce(u64) -> Vec<u8>,
        limit: Duration,
        code: Code,
    ) -> Result<Answered, Failure> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut state = self.state();
            if let Some(end) = &state.ending {
                return Err(self.unavailable(end));
            }
            let Some(number) = state.pending.reserve() else {
                return Err(self.failure(Code::IntegrationUnavailable, "too much is in flight"));
            };
            self.push(&message(number));
            state.pending.put(
                number,
                Pending::Internal {
                    answer: sender,
                    deadline: Instant::now() + limit,
                },
            );
        }
        self.attention.notify_one();
        match receiver.await {
            Ok(Err(failure)) if failure.code == Code::TimeoutCall => Err(Failure {
                code,
                message: format!("no answer within {} ms", limit.as_millis()),
                ..failure
            }),
            Ok(outcome) => outcome,
            Err(_) => Err(self.failure(Code::ServerDied, "the server's process ended")),
        }
    }

    /// Asks the server for something whose answer, if one comes, says nothing.
    pub fn ask_without_answer(&self, message: impl FnOnce(u64) -> Vec<u8>) {
        let mut state = self.state();
        if let Some(number) = state.pending.reserve() {
            self.push(&message(number));
            state.pending.give_back(number);
        }
    }

    /// Tells the server something.
    pub fn tell(&self, message: &[u8]) {
        self.push(message);
    }

    fn failure(&self, code: Code, message: impl Into<String>) -> Failure {
        Failure::new(code, message).of_server(&*self.server)
    }

    fn unavailable(&self, end: &End) -> Failure {
        let why = match end {
            End::Wanted(why) => (*why).to_owned(),
            End::Broken(why) => why.clone(),
        };
        self.failure(Code::IntegrationUnavailable, why)
    }

    /// No further calls; the process is ended when none is in flight.
    pub fn drain(&self) {
        self.state().draining = true;
        self.attention.notify_one();
    }

    /// Ends the process now. Calls in flight are answered.
    pub fn end(&self, reason: &'static str) {
        let mut state = self.state();
        state.ending.get_or_insert(End::Wanted(reason));
        drop(state);
        self.attention.notify_one();
    }

    fn broken(&self, reason: String) {
        warn!(
            server = &*self.server,
            pid = self.pid,
            reason,
            "ending a server that broke the rules"
        );
        self.state().ending.get_or_insert(End::Broken(reason));
        self.attention.notify_one();
    }

    /// What the server wrote, as a log may have it: without the values of secrets, bounded, on one line.
    fn shown(&self, text: &str) -> String {
        brief(&self.redact(text), 500)
    }

    /// Something odd that the server did: logged, at most [`MOST_COMPLAINTS`] times.
    fn complain(&self, what: &str) {
        let mut state = self.state();
        state.complaints = state.complaints.saturating_add(1);
        let count = state.complaints;
        drop(state);
        if count <= MOST_COMPLAINTS {
            let last = if count == MOST_COMPLAINTS {
                "; no more of this process will be logged"
            } else {
                ""
            };
            warn!(server = &*self.server, pid = self.pid, "{what}{last}");
        }
    }

    /// Reads the server until it ends, and ends it when its time has come. Whatever happens, every call in flight is
    /// answered, the process is gone when this returns, and `keeper` is told.
    pub async fn run(self: Arc<Self>, spawned: Spawned, max_frame: usize, keeper: Arc<dyn Keeper>) {
        let Spawned {
            stdin,
            stdout,
            stderr,
            mut process,
        } = spawned;
        let log = Stderr {
            server: self.server.clone(),
            pid: self.pid,
            secrets: self.secrets.clone(),
            allowance: self.allowance.clone(),
            words: self.words.clone(),
        };
        let log = tokio::spawn(log.log(stderr));
        let outbox = self.outbox.clone();
        let mut writer = tokio::spawn(async move { outbox.drive(stdin).await });
        let mut writing = true;
        let mut reader = FrameReader::new(stdout, max_frame);
        let (mut status, mut kept) = (None, 0);
        let mut last = "its process ended";
        let mut tape = Tape::default();
        let mut gone = process.wait();
        let mut look = std::pin::pin!(sleep_until(self.next_look()));
        let end = loop {
            // Orders and limits come before what the server writes: one that never stops writing is no exception.
            tokio::select! {
                biased;
                _ = &mut writer => {
                    writing = false;
                    last = "it closed its standard input";
                    break None;
                }
                () = self.attention.notified() => look.as_mut().reset(self.next_look()),
                () = &mut look => {
                    self.expire();
                    look.as_mut().reset(self.next_look());
                }
                ended = &mut gone => {
                    status = Some(ended);
                    break None;
                }
                more = reader.fill() => match more {
                    Ok(true) => {
                        self.read(&mut reader, &keeper, &mut tape);
                        let now = reader.kept();
                        if now != kept && !self.outbox.keep(kept, now) {
                            let why = format!("it began a line of {now} bytes, for which the daemon has no room");
                            break Some(End::Broken(why));
                        }
                        kept = now;
                    }
                    Ok(false) => break None,
                    Err(error) => break Some(End::Broken(format!("reading its standard output failed: {error}"))),
                },
            }
            if let Some(end) = self.ending() {
                break Some(end);
            }
        };
        drop(gone);
        // No further calls from here on; what is in flight can still be answered by what was written already.
        if end.is_none() {
            self.state().draining = true;
            let _ = timeout(LAST_WORDS, async {
                while reader.fill().await.unwrap_or(false) {
                    self.read(&mut reader, &keeper, &mut tape);
                }
            })
            .await;
            self.read(&mut reader, &keeper, &mut tape);
        }
        // Closing the input is the order to end; one that does not read it must not keep it open.
        self.outbox.close();
        if writing {
            // A server that waits for its output to be read does not read what it is still to be told.
            let flushed = timeout(FLUSH, async {
                tokio::select! {
                    biased;
                    _ = &mut writer => return,
                    () = swallow(&mut reader) => {}
                }
                let _ = (&mut writer).await;
            });
            if flushed.await.is_err() {
                self.outbox.discard();
                let _ = writer.await;
            }
        }
        let mut log = log;
        if end.is_none() {
            // A process that has ended says why: its callers are told too. One that only closed its output may live on
            // for a while.
            let _ = timeout(LAST_WORDS, async {
                if status.is_none() {
                    status = Some(process.wait().await);
                }
                let _ = (&mut log).await;
            })
            .await;
        }
        let mut reason = match &end {
            Some(End::Wanted(reason)) => (*reason).to_owned(),
            Some(End::Broken(reason)) => reason.clone(),
            None => last.to_owned(),
        };
        let crashed = !matches!(end, Some(End::Wanted(_)));
        let mut wrote = None;
        if crashed {
            if let Some(status) = &status {
                reason = format!("{reason}: {status}");
            }
            wrote = self.words.get();
        }
        let told = match &wrote {
            Some(words) => format!("{reason}; it wrote: {words}"),
            None => reason.clone(),
        };
        self.fail_all(&told, &*keeper);
        if status.is_none() {
            tokio::select! {
                biased;
                _ = process.wait() => {}
                () = swallow(&mut reader) => drop(process.wait().await),
            }
        }
        if !log.is_finished() {
            let _ = log.await;
        }
        info!(server = &*self.server, pid = self.pid, reason = told, "server ended");
        keeper.ended(&self, crashed.then_some(Crash { reason, wrote }));
    }

    /// Why to end now, if there is a reason. From then on no call is taken.
    fn ending(&self) -> Option<End> {
        let mut state = self.state();
        if state.ending.is_none() && state.pending.is_empty() {
            if state.draining {
                state.ending = Some(End::Wanted("it is not needed any more"));
            } else if state.idle_since + self.limits.idle <= Instant::now() {
                state.ending = Some(End::Wanted("idle"));
            }
        }
        state.ending.clone()
    }

    /// When to look again if nothing happens until then. What is sent meanwhile, and how long the process is idle then,
    /// need not be looked at earlier.
    fn next_look(&self) -> Instant {
        const LEAST: Duration = Duration::from_millis(100);
        let state = self.state();
        let now = Instant::now();
        let limits = &self.limits;
        let latest = now + limits.call.min(limits.total).min(limits.idle).max(LEAST);
        if state.pending.is_empty() {
            return latest.min(state.idle_since + limits.idle);
        }
        // Looking through many calls at every read would be costly, so it is done at most ten times a second: a limit is
        // kept to a tenth of a second.
        let earliest = if state.pending.len() > 16 {
            now
        } else {
            let deadlines = state.pending.iter().map(|(_, pending)| pending.deadline());
            deadlines.min().unwrap_or(now)
        };
        latest.min(earliest.max(now + LEAST))
    }

    /// Answers the calls whose time is up.
    fn expire(self: &Arc<Self>) {
        let now = Instant::now();
        let mut finished = Vec::new();
        let mut state = self.state();
        let late: Vec<u64> = state
            .pending
            .iter()
            .filter(|(_, pending)| pending.deadline() <= now)
            .map(|(number, _)| number)
            .collect();
        if late.is_empty() {
            return;
        }
        for number in late {
            match state.pending.remove(number) {
                Some(Pending::Call { call, total, .. }) => {
                    let (code, limit, name) = if total <= now {
                        (Code::TimeoutTotal, self.limits.total, "total_timeout_ms")
                    } else {
                        (Code::TimeoutCall, self.limits.call, "timeout_ms")
                    };
                    let message = format!("no answer within {} ms ({name})", limit.as_millis());
                    self.push(&upstream::cancelled(number, &message));
                    finished.push((*call, Outcome::Failed(self.failure(code, message))));
                }
                Some(Pending::Internal { answer, .. }) => {
                    let _ = answer.send(Err(self.failure(Code::TimeoutCall, "no answer in time")));
                }
                None => {}
            }
            // Only now: a process that has long been idle must not seem to have become so just now.
            self.rest(&mut state);
        }
        drop(state);
        self.chain.finish(finished);
    }

    /// Notes when the process became idle.
    fn rest(&self, state: &mut State) {
        if state.pending.is_empty() {
            state.idle_since = Instant::now();
        }
    }

    /// Answers everything in flight with the process's end.
    fn fail_all(&self, reason: &str, keeper: &dyn Keeper) {
        let mut state = self.state();
        state.ending.get_or_insert(End::Broken(reason.to_owned()));
        let pending = state.pending.take_all();
        drop(state);
        for pending in pending {
            let failure = |message: String| self.failure(Code::ServerDied, message);
            match pending {
                Pending::Call { call, .. } => keeper.lost(call, failure(format!("the call was lost: {reason}"))),
                Pending::Internal { answer, .. } => drop(answer.send(Err(failure(reason.to_owned())))),
            }
        }
    }

    /// Handles everything that was read.
    fn read<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        reader: &mut FrameReader<R>,
        keeper: &Arc<dyn Keeper>,
        tape: &mut Tape,
    ) {
        together(|| self.read_together(reader, keeper, tape));
    }

    fn read_together<R: AsyncRead + Unpin>(
        self: &Arc<Self>,
        reader: &mut FrameReader<R>,
        keeper: &Arc<dyn Keeper>,
        tape: &mut Tape,
    ) {
        let mut finished = Vec::new();
        while let Some(frame) = reader.pop() {
            match frame {
                Frame::Line(line) => {
                    self.show(Direction::FromServer, || line.clone(), None);
                    self.line(line, keeper, tape, &mut finished);
                }
                Frame::TooLong { length, id, request } => {
                    self.see(Direction::FromServer, Bytes::new(), length, None);
                    self.complain(&format!(
                        "a line of {length} bytes is over the limit and was passed over"
                    ));
                    if !request && let Some(id) = id.and_then(|id| id.parse().ok()) {
                        let message = format!("the server's answer has {length} bytes, over the frame limit");
                        self.refuse_answer(id, self.failure(Code::FrameTooLong, message), &mut finished);
                    }
                }
                Frame::Endless { length } => {
                    self.see(Direction::FromServer, Bytes::new(), length, None);
                    self.broken(format!("it wrote a line of over {length} bytes that does not end"));
                    break;
                }
            }
        }
        if !finished.is_empty() {
            if finished
                .iter()
                .any(|(_, outcome)| matches!(outcome, Outcome::Relayed(_)))
            {
                keeper.answered();
            }
            self.chain.finish(finished);
        }
    }

    fn line(
        self: &Arc<Self>,
        line: Bytes,
        keeper: &Arc<dyn Keeper>,
        tape: &mut Tape,
        finished: &mut Vec<(Call, Outcome)>,
    ) {
        if line.first() == Some(&b'[') && self.version().has_batches() {
            match Json::parse(&line) {
                Ok(batch) => {
                    for element in batch.elements() {
                        let part = line.slice(element.span());
                        self.message(part, keeper, tape, finished);
                    }
                }
                Err(error) => self.complain(&format!("wrote a batch that is {error}")),
            }
            return;
        }
        self.message(line, keeper, tape, finished);
    }

    fn message(
        self: &Arc<Self>,
        frame: Bytes,
        keeper: &Arc<dyn Keeper>,
        tape: &mut Tape,
        finished: &mut Vec<(Call, Outcome)>,
    ) {
        let envelope = match Envelope::read(&frame, tape) {
            Ok(envelope) => envelope,
            Err(refusal) => {
                self.complain(&format!("wrote a line that is no message: {refusal}"));
                if refusal.answer
                    && let Some(number) = refusal.id.as_deref().and_then(|id| id.parse().ok())
                {
                    let message = format!("the server's answer cannot be relayed: {refusal}");
                    self.refuse_answer(number, self.failure(Code::ServerAnswerInvalid, message), finished);
                }
                return;
            }
        };
        match envelope.kind {
            Kind::Answer { id, outcome } => {
                let inspected = outcome.map(protocol::inspect_result).unwrap_or_default();
                let span = outcome.map(|result| result.span()).map_err(|error| error.span());
                let number = id.and_then(|id| Some((id.span(), id.as_u64()?)));
                self.answer(frame, number, (span, inspected), finished);
            }
            Kind::Notification { method, params } => {
                let method = method.as_str().unwrap_or_default();
                match upstream::read_notification(&method, params) {
                    Some(Notification::Progress { token }) => self.progress(&frame, params, token),
                    Some(Notification::ToolsListChanged) => keeper.tools_changed(self),
                    Some(Notification::Message) => {
                        let text = params.map(|params| params.text()).unwrap_or_default();
                        debug!(
                            server = &*self.server,
                            pid = self.pid,
                            "log message: {}",
                            self.shown(text)
                        );
                    }
                    None => debug!(
                        server = &*self.server,
                        "notification not relayed: {}",
                        self.shown(&method)
                    ),
                }
            }
            Kind::Request { id, method, .. } => {
                let method = method.as_str().unwrap_or_default();
                if method != "ping" {
                    let method = self.shown(&method);
                    self.complain(&format!("asked for {method}, which is not passed on to clients yet"));
                }
                self.push(&upstream::answer_server(id.text(), &method, self.version()));
            }
        }
    }

    fn answer(
        &self,
        frame: Bytes,
        number: Option<(Range<usize>, u64)>,
        (outcome, (says_error, forged)): (Result<Range<usize>, Range<usize>>, (bool, Edits)),
        finished: &mut Vec<(Call, Outcome)>,
    ) {
        let Some((id, number)) = number else {
            self.complain("answered under an id that is not ours");
            return;
        };
        let mut state = self.state();
        let Some(pending) = state.pending.remove(number) else {
            // The answer to a call that was cancelled or timed out may well come late; only ids never given are odd.
            let given = state.pending.was_given(number);
            drop(state);
            if !given {
                self.complain("answered under an id that was never asked");
            }
            return;
        };
        let version = state.version;
        self.rest(&mut state);
        drop(state);
        match pending {
            Pending::Call { call, .. } => {
                let limit = self.limits.result;
                finished.push((
                    *call,
                    Outcome::Relayed(Relayed {
                        frame,
                        id,
                        outcome,
                        says_error,
                        forged: (!forged.is_empty()).then(|| Box::new(forged)),
                        version,
                        limit,
                    }),
                ));
            }
            Pending::Internal { answer, .. } => drop(answer.send(Ok(Answered { frame, outcome }))),
        }
    }

    /// Answers a call whose answer cannot be relayed.
    fn refuse_answer(&self, number: u64, failure: Failure, finished: &mut Vec<(Call, Outcome)>) {
        let mut state = self.state();
        let Some(pending) = state.pending.remove(number) else {
            return;
        };
        self.rest(&mut state);
        drop(state);
        match pending {
            Pending::Call { call, .. } => finished.push((*call, Outcome::Failed(failure))),
            Pending::Internal { answer, .. } => drop(answer.send(Err(failure))),
        }
    }

    /// Passes progress on to the client whose call it is about, and restarts the call's clock.
    fn progress(&self, frame: &Bytes, params: Option<Json<'_>>, number: u64) {
        let mut state = self.state();
        let (Some(params), Some(Pending::Call { call, deadline, .. })) = (params, state.pending.get_mut(number)) else {
            return;
        };
        let Some(token) = call.parts.progress_token.clone() else {
            return;
        };
        *deadline = Instant::now() + self.limits.call;
        // Progress is worth nothing to a client that does not read; an answer would be.
        if call.client.outbox.over_since().is_some() {
            return;
        }
        let Some(token) = Json::part(&call.frame, token) else {
            return;
        };
        let edits = protocol::progress_edits(params, token.text());
        call.client.outbox.push_edited(frame, &edits);
    }
}

impl Cancel for Session {
    fn cancel(&self, number: u64, notification: Option<(&Bytes, Range<usize>)>) {
        let mut state = self.state();
        let Some(pending) = state.pending.remove(number) else {
            return;
        };
        match notification {
            Some((frame, span)) => {
                if let Some(params) = Json::part(frame, span.clone()) {
                    let mut edits = Edits::new();
                    edits.append_at(span.start, protocol::cancelled_edits(params, number));
                    self.show(Direction::ToServer, || edits.apply(frame).into(), None);
                    self.outbox.push_edited(frame, &edits);
                }
            }
            None => {
                self.push(&upstream::cancelled(number, "the client is gone"));
            }
        }
        self.rest(&mut state);
        drop(state);
        if let Pending::Call { call, .. } = pending {
            self.chain.finish(vec![(*call, Outcome::Cancelled)]);
        }
        self.attention.notify_one();
    }
}

/// Reads and forgets, so that a server is not held up while it ends.
async fn swallow<R: AsyncRead + Unpin>(reader: &mut FrameReader<R>) {
    while reader.fill().await.unwrap_or(false) {
        while reader.pop().is_some() {}
    }
}
