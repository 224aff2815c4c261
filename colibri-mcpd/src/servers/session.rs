//! One running server process: what is known of it, and what it is told.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use bytes::Bytes;
use colibri_text::brief;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::warn;

use super::elicitation::exclusive_slots::SlotHolder;
use super::elicitation::open_elicitations::{ElicitationRights, OpenElicitations};
use super::elicitation::suspended_call::SuspendedServerCall;
use super::pin_check::Definitions;
use super::process_subscriptions::ProcessSubscriptions;
use super::specification::ServerSpecification;
use super::stderr::{Allowance, StderrExcerpt};
use super::tap::{Direction, TapCaller, TappedFrame};
use crate::relay::Call;
use colibri_confine::ServerProcess;
use colibri_peer::{Outbox, Slab};
use colibri_protocol::logging::Level;
use colibri_protocol::upstream::Capabilities;
use colibri_protocol::{AttemptFailure, Code, Failure, FailureCause, Features, Version};
use colibri_wire::Json;

/// Bytes of a server's unread standard input over which new calls to it are refused.
pub(super) const MAX_UNREAD: usize = 20 * 1024 * 1024;
/// Oddities of one process (stray lines, answers to nothing) that are logged; later ones are only
/// counted.
const MAX_COMPLAINTS: u32 = 20;

/// The unwanted end of a process.
pub(super) struct Crash {
    /// The reason, as far as it is known.
    pub reason: String,
    /// The text on its standard error: for those alone who may see the outcome of their calls.
    pub wrote: Option<String>,
}

/// An event of a session, which its server handles at once.
pub(super) enum SessionEvent<'e> {
    /// The server's lists of these changed.
    ListsChanged(Features),
    /// The server updated a resource, which it names by this URI of its own.
    ResourceUpdated {
        frame: &'e Bytes,
        params: Json<'e>,
        uri: &'e str,
    },
    /// The server wrote a log message of this level.
    LogMessage { frame: &'e Bytes, level: Level },
    /// The server sent a message of its channel.
    ChannelMessage(&'e Bytes),
    /// The server requests something that it may request of people.
    ElicitationRequest,
    /// The server ended a subscription by itself.
    SubscriptionEnded,
    /// Calls were answered: the process works. `given_up`: each of them failed before and was given
    /// up.
    Answered { given_up: bool },
    /// The process is gone, and the calls in flight were answered. With a [`Crash`] where nobody
    /// here ended it.
    Ended(Option<Crash>),
    /// The server's requests about a call were answered: the call is sent again.
    InputComplete(Box<Call>),
    /// The call failed in a way that may allow another attempt.
    CallFailed(Box<Call>, CallFailure),
}

/// The way in which a call failed.
pub(super) enum CallFailure {
    /// An integration reports it. `wait`: how long its contract waits before another attempt, if
    /// one follows.
    Reported {
        failed: AttemptFailure,
        wait: Option<Duration>,
    },
    /// The server may have processed it: whether it had an effect is not known.
    Uncertain(FailureCause),
    /// Nothing of it was sent, or it was refused unprocessed. `after`: how long the server is to be
    /// left alone.
    Unsent {
        cause: FailureCause,
        after: Option<Duration>,
    },
    /// It was refused unprocessed, since its header fields are not what the server's tools ask for
    /// now: they are to be listed before it is sent again.
    Mismatched(FailureCause),
}

impl From<FailureCause> for CallFailure {
    fn from(cause: FailureCause) -> CallFailure {
        CallFailure::Uncertain(cause)
    }
}

/// Handles the events of one session. Returns the call of [`SessionEvent::CallFailed`] if no
/// attempt follows.
pub(super) type SessionObserver =
    Arc<dyn Fn(&Arc<ServerSession>, SessionEvent<'_>) -> Option<Box<Call>> + Send + Sync>;

/// The server's report in its handshake.
#[derive(Debug, Clone, Default)]
pub struct PeerInfo {
    /// The capabilities that it declares.
    pub can: Capabilities,
    /// `capabilities`, as it wrote them.
    pub capabilities: Option<Bytes>,
    /// `serverInfo`, as it wrote it.
    pub server_info: Option<Bytes>,
    /// Its instructions.
    pub instructions: Option<String>,
}

/// One running server process.
pub struct ServerSession {
    /// The facts about its server.
    pub spec: Arc<ServerSpecification>,
    /// The daemon's number of the process.
    pub number: u64,
    /// The process id, of the server or of the one that watches it.
    pub pid: u32,
    /// The jail's id, for a jailed one.
    pub jid: Option<u32>,
    /// The policy says `"bounded": false` of a mount of the jail.
    pub is_unbounded: bool,
    /// The helper's session id, for a jailed one.
    pub instance: Option<String>,
    /// The time of its start.
    pub started: SystemTime,
    /// The definitions that it advertises.
    pub definitions: Definitions,
    pub(super) outbox: Arc<Outbox>,
    pub(super) state: Mutex<ServerSessionState>,
    /// The part of its standard error that may be logged.
    pub(super) allowance: Arc<Allowance>,
    pub(super) excerpt: Arc<StderrExcerpt>,
    /// Something happened that the watch has to look at: a first call, an order to end.
    pub(super) attention: Notify,
    /// The persons and kinds of its requests.
    pub(super) may_ask: ElicitationRights,
    /// True if it is behind a URL.
    pub(super) is_remote: bool,
    observer: SessionObserver,
}

pub(super) struct ServerSessionState {
    pub(super) version: Version,
    pub(super) pending: Slab<PendingReply>,
    /// The persons who would be asked about calls that are over here and that it did not answer, by
    /// their numbers.
    pub(super) left: BTreeMap<u64, SlotHolder>,
    /// No further calls; the process ends when none is in flight.
    pub(super) draining: bool,
    /// No further calls, and none is waited for: why.
    pub(super) ending: Option<SessionEnd>,
    pub(super) idle_since: Instant,
    pub(super) complaints: u32,
    pub(super) says: PeerInfo,
    /// Its open requests to people.
    pub(super) asks: OpenElicitations,
    pub(super) watching: ProcessSubscriptions,
}

#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum SessionEnd {
    /// We want it to end.
    Wanted(&'static str),
    /// It broke the rules.
    Broken(String),
}

pub(super) enum PendingReply {
    Call {
        call: Box<Call>,
        deadline: Instant,
        total: Instant,
    },
    /// A call whose client is asked for something in answer to it.
    Held(Box<SuspendedServerCall>),
    Internal {
        answer: oneshot::Sender<Result<OwnReply, Failure>>,
        deadline: Instant,
    },
}

impl PendingReply {
    pub(super) fn deadline(&self) -> Instant {
        match self {
            PendingReply::Call {
                deadline, total, ..
            } => *deadline.min(total),
            PendingReply::Held(held) => held.until,
            PendingReply::Internal { deadline, .. } => *deadline,
        }
    }
}

/// The answer to a request of our own.
#[derive(Debug, Clone)]
pub struct OwnReply {
    pub(super) frame: Bytes,
    pub(super) outcome: Result<Range<usize>, Range<usize>>,
}

impl OwnReply {
    /// The `result`, or the `error`.
    pub fn outcome(&self) -> Result<Option<Json<'_>>, Option<Json<'_>>> {
        let part = |span: &Range<usize>| Json::part(&self.frame, span.clone());
        self.outcome.as_ref().map(part).map_err(part)
    }
}

impl ServerSession {
    /// A session over a process that was just started. [`ServerSession::run`] must be spawned for
    /// it to live.
    pub(super) fn new(
        spec: Arc<ServerSpecification>,
        (number, version): (u64, Version),
        (process, is_remote): (&dyn ServerProcess, bool),
        outbox: Arc<Outbox>,
        (allowance, may_ask): (Arc<Allowance>, ElicitationRights),
        observer: SessionObserver,
    ) -> Arc<ServerSession> {
        Arc::new(ServerSession {
            spec,
            number,
            pid: process.pid(),
            jid: process.jid(),
            is_unbounded: process.is_unbounded(),
            instance: process.instance().map(str::to_owned),
            started: SystemTime::now(),
            definitions: Definitions::unread(),
            outbox,
            state: Mutex::new(ServerSessionState {
                version,
                pending: Slab::default(),
                left: BTreeMap::new(),
                draining: false,
                ending: None,
                idle_since: Instant::now(),
                complaints: 0,
                says: PeerInfo::default(),
                asks: OpenElicitations::default(),
                watching: ProcessSubscriptions::default(),
            }),
            allowance,
            excerpt: Arc::default(),
            attention: Notify::new(),
            may_ask,
            is_remote,
            observer,
        })
    }

    /// Has the server handle an event.
    pub(super) fn notify(self: &Arc<Self>, event: SessionEvent<'_>) {
        let _ = (self.observer)(self, event);
    }

    /// Has another attempt at a call made that failed so, if one is due.
    ///
    /// # Errors
    /// The call, if no attempt follows.
    pub(super) fn retry(
        self: &Arc<Self>,
        call: Box<Call>,
        failure: impl Into<CallFailure>,
    ) -> Result<(), Box<Call>> {
        let back = (self.observer)(self, SessionEvent::CallFailed(call, failure.into()));
        back.map_or(Ok(()), Err)
    }

    /// Text without the values of secrets.
    pub(super) fn redact(&self, text: &str) -> String {
        self.spec.redact(text)
    }

    /// Calls of several users come from now on: what it writes on its standard error is for the log
    /// alone.
    pub(super) fn is_shared(&self) {
        self.excerpt.withhold();
    }

    pub(super) fn state(&self) -> MutexGuard<'_, ServerSessionState> {
        self.state.lock()
    }

    /// The version that it speaks.
    pub fn version(&self) -> Version {
        self.state().version
    }

    /// The version that the handshake agreed on.
    pub(crate) fn set_version(&self, version: Version) {
        self.state().version = version;
    }

    /// Its report in the handshake.
    pub fn says(&self) -> PeerInfo {
        self.state().says.clone()
    }

    /// Stores its report in the handshake.
    pub(crate) fn set_says(&self, says: PeerInfo) {
        self.state().says = says;
    }

    /// Calls in flight, our own requests not counted.
    pub fn in_flight(&self) -> usize {
        self.state()
            .pending
            .iter()
            .filter(|(_, pending)| {
                matches!(pending, PendingReply::Call { .. } | PendingReply::Held(_))
            })
            .count()
    }

    /// Bytes that wait for the process to read them.
    pub fn queued(&self) -> usize {
        self.outbox.queued()
    }

    /// The calls in flight by our numbers, and whose they are.
    pub fn asked(&self) -> Vec<(u64, TapCaller)> {
        let state = self.state();
        let calls = state
            .pending
            .iter()
            .filter_map(|(number, pending)| match pending {
                PendingReply::Call { call, .. } => Some((number, TapCaller::of(call))),
                PendingReply::Held(_) | PendingReply::Internal { .. } => None,
            });
        calls.collect()
    }

    /// Shows a frame to those who tap the server.
    pub(super) fn show(
        &self,
        direction: Direction,
        frame: impl FnOnce() -> Bytes,
        call: Option<(u64, &Call)>,
    ) {
        if self.spec.taps.is_watched() {
            let frame = frame();
            let length = frame.len() as u64;
            self.see(direction, frame, length, call);
        }
    }

    pub(super) fn see(
        &self,
        direction: Direction,
        frame: Bytes,
        length: u64,
        call: Option<(u64, &Call)>,
    ) {
        self.spec.taps.see(TappedFrame {
            time: SystemTime::now(),
            direction,
            process: self.number,
            pid: self.pid,
            frame,
            length,
            call: call.map(|(number, call)| (number, TapCaller::of(call))),
        });
    }

    /// Queues a message of our own. It is shown first: an answer must not seem to come before its
    /// question.
    pub(super) fn push(&self, message: &[u8]) {
        self.show(
            Direction::ToServer,
            || Bytes::copy_from_slice(message),
            None,
        );
        self.outbox.push(message);
    }

    /// True if it has ended, or is being ended.
    pub fn has_ended(&self) -> bool {
        self.state().ending.is_some()
    }

    /// True if it takes calls.
    pub fn is_open(&self) -> bool {
        let state = self.state();
        !state.draining && state.ending.is_none()
    }

    pub(super) fn unavailable(&self, end: &SessionEnd) -> Failure {
        let why = match end {
            SessionEnd::Wanted(why) => (*why).to_owned(),
            SessionEnd::Broken(why) => why.clone(),
        };
        self.spec.failure(Code::IntegrationUnavailable, why)
    }

    /// No further calls; the process is ended when none is in flight.
    pub fn drain(&self) {
        self.state().draining = true;
        self.attention.notify_one();
    }

    /// Ends the process now. Calls in flight are answered.
    pub fn end(&self, reason: &'static str) {
        let mut state = self.state();
        state.ending.get_or_insert(SessionEnd::Wanted(reason));
        drop(state);
        self.attention.notify_one();
    }

    pub(super) fn broken(&self, reason: String) {
        warn!(
            server = &*self.spec.id,
            pid = self.pid,
            reason,
            "ending a server that broke the rules"
        );
        self.state()
            .ending
            .get_or_insert(SessionEnd::Broken(reason));
        self.attention.notify_one();
    }

    /// The server's text for a log: without the values of secrets, bounded, on one line.
    pub(super) fn shown(&self, text: &str) -> String {
        brief(&self.redact(text), 500)
    }

    /// Something odd that the server did: logged, at most [`MAX_COMPLAINTS`] times.
    pub(super) fn complain(&self, what: &str) {
        let mut state = self.state();
        state.complaints = state.complaints.saturating_add(1);
        let count = state.complaints;
        drop(state);
        if count <= MAX_COMPLAINTS {
            let last = if count == MAX_COMPLAINTS {
                "; no more of this process will be logged"
            } else {
                ""
            };
            warn!(server = &*self.spec.id, pid = self.pid, "{what}{last}");
        }
    }

    /// A call or a request of our own is over: notes when the process became idle.
    pub(super) fn rest(&self, state: &mut ServerSessionState) {
        self.settle_asks(state);
        if state.pending.is_empty() {
            state.idle_since = Instant::now();
        }
    }
}
