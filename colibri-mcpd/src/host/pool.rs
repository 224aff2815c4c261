//! The processes of one server: started at their first use, shared as its isolation says, ended when idle.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::{Duration, SystemTime};

use super::entry::{Entry, Isolation};
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio::task::AbortHandle;
use tokio::time::Instant;
use tracing::{debug, info, warn};

use colibri_api::ServerState as State;

use super::catalogue::Catalogue;
use super::handshake::{NotStarted, Queue};
use super::registry;
use super::retry::{self, Discovery, Health};
use super::session::{Crash, Keeper, Limits, Session};
use super::stderr::Allowance;
use super::tap::Taps;
use super::{Host, handshake};
use crate::chain::metrics::CallMetrics;
use crate::chain::{Call, Outcome};
use crate::policy::{Caller, Contract, Judgement, Rules};
use colibri_protocol::{Code, Failure, Method, Version};
use colibri_text::brief;
use colibri_trail::Detail;

/// How long a burst of changes to a server's tools may go on before it is looked at.
const SETTLE: Duration = Duration::from_millis(200);
/// The most names of one line of the log, or of one record.
const MOST_NAMED: usize = 10;
/// Changes of one server's definitions that are logged and recorded as they come.
const MOST_NOTES: u32 = 50;
/// After these, one in this time.
const BETWEEN_NOTES: Duration = Duration::from_secs(60);

/// Whose calls a process gets.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProcessKey {
    /// Everybody's.
    All,
    /// Those of one user.
    Uid(u32),
    /// Those of one user's connection.
    Connection(u32, u64),
    /// One call of a user.
    Call(u32, u64),
}

impl ProcessKey {
    /// The user whose it is alone.
    pub fn uid(self) -> Option<u32> {
        match self {
            ProcessKey::All => None,
            ProcessKey::Uid(uid) | ProcessKey::Connection(uid, _) | ProcessKey::Call(uid, _) => Some(uid),
        }
    }
}

/// Who looks at a server's state. What became of other users' processes is not everybody's to see.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Viewer {
    /// An operator: sees that a process of anybody failed, and why. What it wrote is for its own user (and in the log).
    Operator(Option<u32>),
    /// A user: sees what became of the processes that get that user's calls.
    User(u32),
}

type Opened = Result<Arc<Session>, Failure>;

enum Slot {
    Starting {
        /// Who waits for it, in the order in which they came.
        waiting: Vec<oneshot::Sender<Opened>>,
        task: AbortHandle,
        /// Whether it had its turn: before that there is no process.
        has_begun: bool,
    },
    Ready(Arc<Session>),
}

impl Slot {
    /// Ends its process. `false`: there was none yet, and there will be none.
    fn end(&self, reason: &'static str) -> bool {
        match self {
            Slot::Ready(session) => session.end(reason),
            Slot::Starting { task, .. } => task.abort(),
        }
        matches!(self, Slot::Ready(_))
    }
}

/// One server of the registry.
pub struct Server {
    /// Its id.
    pub id: Arc<str>,
    /// Its entry.
    pub entry: Arc<Entry>,
    /// The rules on its tools.
    pub rules: Rules,
    /// The contract that narrows their arguments.
    pub contract: Option<Arc<Contract>>,
    /// Its time limits.
    pub limits: Limits,
    /// Who shares its processes.
    pub isolation: Isolation,
    /// What tells one executable from the next: path, size, time of change.
    pub executable: String,
    /// What was counted of its calls; begins anew where its entry changes.
    pub metrics: CallMetrics,
    /// Who watches what it and the daemon say to each other.
    pub taps: Arc<Taps>,
    /// Starts that wait for their turn.
    pub(super) queue: Queue,
    host: Weak<Host>,
    inner: Mutex<Inner>,
    /// Held while definitions are judged: what was judged last is also what counts.
    judging: Arc<tokio::sync::Mutex<()>>,
    /// Whether it failed since it last worked; looked at on each answer without a lock.
    ailing: AtomicBool,
    /// Whether what it said of its tools is in the host's table.
    offered: AtomicBool,
    calls: AtomicU64,
    /// A process is gone: who waits for a turn looks again.
    freed: Notify,
}

struct Inner {
    slots: BTreeMap<ProcessKey, Slot>,
    /// Of the processes of each user, or of all; those that work are not in it.
    health: BTreeMap<Option<u32>, Health>,
    /// What of their standard error may be logged.
    allowances: BTreeMap<Option<u32>, Arc<Allowance>>,
    discovery: Discovery,
    blocked: Option<String>,
    /// SHA-256 of its entry as it is written now, which may be otherwise than when the entry was first read.
    digest: Arc<str>,
    /// The version found out, once it is known.
    version: Option<Version>,
    /// What the process said that was asked last.
    catalogue: Arc<Catalogue>,
    /// How that stands to the pins.
    judgement: Arc<Judgement>,
    retired: bool,
    /// Why no process is wanted any more, not even for calls in flight.
    ended: Option<&'static str>,
    /// How often something was newly blocked, and when last.
    noted: (u32, Instant),
    shown: (State, SystemTime),
}

impl Inner {
    fn state(&self, viewer: Viewer, isolation: Isolation) -> (State, Option<String>) {
        if let Some(reason) = &self.blocked {
            return (State::Blocked, Some(reason.clone()));
        }
        let any = |of: &dyn Fn(&ProcessKey) -> bool| {
            let slots = || self.slots.iter().filter(|(key, _)| of(key)).map(|(_, slot)| slot);
            let ready = slots().any(|slot| matches!(slot, Slot::Ready(_)));
            let state = if ready { State::Ready } else { State::Starting };
            slots().next().map(|_| state)
        };
        let own = |key: &ProcessKey| match viewer {
            Viewer::Operator(_) => true,
            Viewer::User(uid) => key.uid().is_none_or(|of| of == uid),
        };
        let failed = self.health_for(viewer, isolation);
        let reason = failed.map(|(of, health)| match viewer {
            Viewer::Operator(uid) if of.is_some() && of != uid => health.reason().to_owned(),
            Viewer::Operator(_) | Viewer::User(_) => health.whole_reason(),
        });
        match (any(&own), failed) {
            (Some(State::Ready), _) => (State::Ready, None),
            (Some(state), _) => (state, reason),
            (None, Some((_, health))) if health.is_permanent() => (State::Failed, reason),
            (None, Some(_)) => (State::BackingOff, reason),
            (None, None) => (any(&|_| true).unwrap_or(State::Stopped), None),
        }
    }

    /// The failures that count for a viewer: for an operator those of whoever's processes failed last.
    fn health_for(&self, viewer: Viewer, isolation: Isolation) -> Option<(Option<u32>, &Health)> {
        match viewer {
            Viewer::Operator(_) => {
                let all = self.health.iter().map(|(of, health)| (*of, health));
                all.max_by_key(|(_, health)| health.since())
            }
            Viewer::User(uid) => {
                let of = (isolation != Isolation::Shared).then_some(uid);
                self.health.get(&of).map(|health| (of, health))
            }
        }
    }
}

impl Server {
    /// A server without a process.
    pub(super) fn new(
        id: &str,
        loaded: &registry::Server,
        executable: String,
        known: Option<Arc<Catalogue>>,
        host: &Host,
    ) -> Server {
        let catalogue = known.unwrap_or_default();
        let judgement = host.judge(id, &catalogue);
        if let Some(blocked) = newly_blocked((&Catalogue::default(), &Judgement::NOTHING), (&catalogue, &judgement)) {
            note_blocked(host, id, blocked);
        }
        let entry = loaded.entry.clone();
        let (contract, blocked) = match loaded.contract() {
            Ok(contract) => (contract.map(Arc::new), loaded.blocked()),
            Err(why) => (None, Some(why)),
        };
        Server {
            id: id.into(),
            rules: Rules::new(&entry.tools, &host.registry, id),
            contract,
            limits: host.limits(&entry),
            isolation: loaded.isolation(),
            executable,
            metrics: CallMetrics::default(),
            taps: Arc::default(),
            host: host.me.clone(),
            queue: Queue::default(),
            inner: Mutex::new(Inner {
                slots: BTreeMap::new(),
                health: BTreeMap::new(),
                allowances: BTreeMap::new(),
                discovery: Discovery::default(),
                blocked,
                digest: Arc::from(&*entry.digest),
                version: catalogue.version,
                catalogue,
                judgement: Arc::new(judgement),
                retired: false,
                ended: None,
                noted: (0, Instant::now()),
                shown: (State::Stopped, SystemTime::now()),
            }),
            entry,
            judging: Arc::new(tokio::sync::Mutex::new(())),
            ailing: AtomicBool::new(false),
            offered: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            freed: Notify::new(),
        }
    }

    /// The same, watched by whoever watches `old`, in whose place it comes.
    pub(super) fn tapped_as(mut self, old: &Server) -> Server {
        self.taps = old.taps.clone();
        self
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    fn host(&self) -> Result<Arc<Host>, Failure> {
        self.host
            .upgrade()
            .ok_or_else(|| Failure::new(Code::DaemonStopping, "the daemon is ending"))
    }

    /// The process for a caller.
    pub(super) fn key(&self, caller: &Caller, connection: u64) -> ProcessKey {
        match self.isolation {
            Isolation::Shared => ProcessKey::All,
            Isolation::User => ProcessKey::Uid(caller.uid),
            Isolation::Client => ProcessKey::Connection(caller.uid, connection),
            Isolation::Call => ProcessKey::Call(caller.uid, self.calls.fetch_add(1, Ordering::Relaxed)),
        }
    }

    /// What of the standard error of such a process may be logged.
    pub(super) fn allowance(&self, key: ProcessKey) -> Arc<Allowance> {
        self.inner().allowances.entry(key.uid()).or_default().clone()
    }

    /// What it said of its tools.
    pub fn catalogue(&self) -> Arc<Catalogue> {
        self.inner().catalogue.clone()
    }

    /// What it said of its tools, and how that stands to the pins.
    pub fn definitions(&self) -> (Arc<Catalogue>, Arc<Judgement>) {
        let inner = self.inner();
        (inner.catalogue.clone(), inner.judgement.clone())
    }

    /// SHA-256 of its entry as it is written now.
    pub(super) fn digest(&self) -> Arc<str> {
        self.inner().digest.clone()
    }

    /// Its entry says the same as before, in other words perhaps: `true` if so.
    pub(super) fn set_digest(&self, digest: &str) -> bool {
        let mut inner = self.inner();
        let other = *inner.digest != *digest;
        if other {
            inner.digest = Arc::from(digest);
        }
        other
    }

    /// Forgets its failures: what was wrong may have been mended.
    pub fn reset(&self) {
        let mut inner = self.inner();
        inner.health.clear();
        inner.discovery = Discovery::default();
    }

    /// Forbids starting it, or allows it again.
    pub fn block(&self, reason: Option<String>) {
        self.inner().blocked = reason;
    }

    /// The process for these callers, if it runs.
    pub fn ready(&self, key: ProcessKey) -> Option<Arc<Session>> {
        match self.inner().slots.get(&key) {
            Some(Slot::Ready(session)) if session.is_open() => Some(session.clone()),
            _ => None,
        }
    }

    /// The process for these callers, started if need be.
    pub async fn open(self: &Arc<Self>, key: ProcessKey) -> Result<Arc<Session>, Failure> {
        let (sender, receiver) = oneshot::channel();
        {
            let mut inner = self.inner();
            if let Some(reason) = &inner.blocked {
                let message = format!("{} is blocked: {reason}", self.id);
                return Err(Failure::new(Code::ServerUnstartable, message).of_server(&*self.id));
            }
            if inner.retired {
                return Err(self.unavailable("it was removed from the registry"));
            }
            match inner.slots.get_mut(&key) {
                Some(Slot::Ready(session)) if session.is_open() => return Ok(session.clone()),
                Some(Slot::Starting { waiting, .. }) => waiting.push(sender),
                _ => {
                    if let Some(health) = inner.health.get(&key.uid()).filter(|health| health.is_backing_off()) {
                        return Err(self.unavailable(health.left_alone()));
                    }
                    self.begin(&mut inner, key, vec![sender]);
                }
            }
        }
        let given_up = |_| Err(self.unavailable("starting it was given up"));
        receiver.await.unwrap_or_else(given_up)
    }

    /// Begins to start a process.
    fn begin(self: &Arc<Self>, inner: &mut Inner, key: ProcessKey, waiting: Vec<oneshot::Sender<Opened>>) {
        // It takes the lock when it is done, so it cannot be done before its slot is there.
        let task = tokio::spawn(self.clone().start(key)).abort_handle();
        let has_begun = false;
        inner.slots.insert(
            key,
            Slot::Starting {
                waiting,
                task,
                has_begun,
            },
        );
        inner.discovery.begin();
    }

    /// Waits until it is the turn of a user to have another process: the helper, which bounds the processes of jailed
    /// servers and their starts, does not know for whom they are.
    async fn turn(&self, host: &Host, key: ProcessKey) -> Result<(), Failure> {
        let Some(uid) = key.uid().filter(|_| self.entry.is_jailed()) else {
            return Ok(());
        };
        let limits = host.shares().limits();
        let share = host.shares().of(uid);
        let until = Instant::now() + self.limits.start;
        loop {
            let freed = self.freed.notified();
            let (until_then, limit) = match self.begin_of(uid, key, limits.processes_per_user) {
                Err(running) => (
                    until,
                    format!("this user has {running} processes of it (--max-processes-per-user)"),
                ),
                Ok(()) => match share.start() {
                    Ok(()) => return Ok(()),
                    Err(wait) => (
                        Instant::now() + wait,
                        format!(
                            "the calls of this user have started {} jailed servers in a minute (--max-starts-per-user)",
                            limits.starts_per_user
                        ),
                    ),
                },
            };
            let is_over = tokio::select! {
                () = freed => false,
                () = tokio::time::sleep_until(until_then.min(until)) => Instant::now() >= until,
            };
            if is_over {
                let message = format!("its turn did not come within its start limit: {limit}");
                return Err(Failure::new(Code::LimitUser, message).of_server(&*self.id));
            }
        }
    }

    /// Begins a start if the user has fewer processes than this; else tells how many.
    fn begin_of(&self, uid: u32, of: ProcessKey, most: usize) -> Result<(), usize> {
        let mut inner = self.inner();
        let is_running = |(key, slot): (&ProcessKey, &Slot)| {
            key.uid() == Some(uid) && *key != of && !matches!(slot, Slot::Starting { has_begun: false, .. })
        };
        let running = inner.slots.iter().filter(|slot| is_running(*slot)).count();
        if running >= most {
            return Err(running);
        }
        if let Some(Slot::Starting { has_begun, .. }) = inner.slots.get_mut(&of) {
            *has_begun = true;
        }
        Ok(())
    }

    fn unavailable(&self, why: impl Into<String>) -> Failure {
        Failure::new(
            Code::IntegrationUnavailable,
            format!("{} is not available: {}", self.id, why.into()),
        )
        .of_server(&*self.id)
    }

    async fn start(self: Arc<Self>, key: ProcessKey) {
        let result = match self.host() {
            Ok(host) => match self.turn(&host, key).await {
                Ok(()) => handshake::start(&host, &self, key).await,
                Err(failure) => Err(NotStarted::NotNow(failure)),
            },
            Err(failure) => Err(NotStarted::NotNow(failure)),
        };
        let waiting = {
            let mut inner = self.inner();
            let waiting = match inner.slots.remove(&key) {
                Some(Slot::Starting { waiting, .. }) => waiting,
                Some(Slot::Ready(_)) | None => Vec::new(),
            };
            match &result {
                Ok(session) if session.is_open() => {
                    if key.uid().is_none() {
                        session.is_shared();
                    }
                    inner.discovery = Discovery::default();
                    inner.slots.insert(key, Slot::Ready(session.clone()));
                }
                // It ended right after its handshake.
                Ok(_) => {}
                Err(NotStarted::NotNow(failure)) => {
                    info!(server = &*self.id, "could not be started now: {}", failure.message);
                }
                Err(NotStarted::Failed(failure)) => {
                    warn!(server = &*self.id, "could not be started: {}", failure.message);
                    let health = inner.health.entry(key.uid()).or_default();
                    health.failed(&failure.message, None, retry::class(failure));
                    inner.discovery.failed();
                    self.ailing.store(true, Ordering::Release);
                }
            }
            if let Ok(session) = &result {
                let nobodys = matches!(key, ProcessKey::Call(..)) && waiting.is_empty();
                match inner.ended {
                    Some(reason) => session.end(reason),
                    None if inner.retired || nobodys => session.drain(),
                    None => {}
                }
            }
            waiting
        };
        self.freed.notify_waiters();
        self.note_state();
        match &result {
            Ok(session) if session.definitions.was_read() => self.read_tools(session.clone()),
            Ok(_) => {}
            Err(_) => {
                if let Ok(host) = self.host() {
                    host.catalogue_changed(false);
                }
            }
        }
        let opened = result.map_err(|not_started| match not_started {
            NotStarted::Failed(failure) | NotStarted::NotNow(failure) => Failure {
                message: format!("{} was not started: {}", self.id, failure.message),
                ..failure
            },
        });
        for waiting in waiting {
            // Who does not wait any more needs no answer.
            let _ = waiting.send(opened.clone());
        }
    }

    /// The version that its processes speak, if it is known.
    pub fn version(&self) -> Option<Version> {
        self.inner().version
    }

    /// Remembers it, or forgets it.
    pub fn set_version(&self, version: Option<Version>) {
        self.inner().version = version;
    }

    /// Reads the tools of a process that runs until they are as it says them now.
    fn read_tools(self: &Arc<Self>, session: Arc<Session>) {
        let server = self.clone();
        tokio::spawn(async move {
            loop {
                let read = handshake::walk_tools(&session, server.limits.start).await;
                let learned = match read {
                    Ok(catalogue) => server.learned(&session, catalogue).await,
                    Err(failure) => Err(failure),
                };
                if let Err(failure) = learned {
                    warn!(server = &*server.id, "could not read the list of its tools: {failure}");
                }
                if !session.definitions.was_read() || !session.is_open() {
                    return;
                }
                // A server that changes them without end is not read without end.
                tokio::time::sleep(SETTLE).await;
            }
        });
    }

    /// Takes over what one of its processes says of its tools. It is judged first: nobody is shown what is not
    /// approved, and no call is given to a process that says it.
    pub(super) async fn learned(self: &Arc<Self>, session: &Arc<Session>, said: Catalogue) -> Result<(), Failure> {
        let one_at_a_time = self.judging.clone().lock_owned().await;
        let host = self.host()?;
        let judges = host.pins.is_some();
        let (server, session) = (self.clone(), session.clone());
        let take_over = move || {
            // Held here: who waits may give up, and a start that takes too long does, while this goes on.
            let _one_at_a_time = one_at_a_time;
            server.take_over(&host, &session, said);
        };
        if !judges {
            take_over();
            return Ok(());
        }
        // A long list takes a while, and pins wait for the disk: not on a thread that serves clients.
        let judged = tokio::task::spawn_blocking(take_over).await;
        judged.map_err(|_| Failure::new(Code::DaemonStopping, "the daemon is ending"))
    }

    fn take_over(&self, host: &Host, session: &Session, said: Catalogue) {
        if self.inner().retired {
            // Another entry of its name may be there, whose definitions are the ones that count.
            return;
        }
        let known = self.catalogue();
        let said = if *known == said { known } else { Arc::new(said) };
        let judgement = Arc::new(host.judge(&self.id, &said));
        session.definitions.judged(said.clone(), judgement.clone());
        self.offer(host, said, judgement);
    }

    /// Judges again what it and its processes said: other definitions are approved than before. Takes a while: not to
    /// be called on a thread that serves clients.
    pub fn judge_again(&self) {
        let Ok(host) = self.host() else { return };
        let _one_at_a_time = self.judging.blocking_lock();
        let (known, _) = self.definitions();
        let sessions = self.sessions();
        let others = sessions.iter().filter_map(|(_, session)| {
            let said = session.definitions.said()?;
            (!Arc::ptr_eq(&said, &known)).then_some((session, said))
        });
        for (session, said) in others {
            let judgement = Arc::new(host.judge(&self.id, &said));
            session.definitions.judged(said, judgement);
        }
        // Last: what waits to be accepted is what is shown.
        let judgement = Arc::new(host.judge(&self.id, &known));
        for (_, session) in &sessions {
            if session
                .definitions
                .said()
                .is_some_and(|said| Arc::ptr_eq(&said, &known))
            {
                session.definitions.judged(known.clone(), judgement.clone());
            } else if session.definitions.fall_behind(&judgement) {
                session.drain();
            }
        }
        self.offer(&host, known, judgement);
    }

    /// Whether what is newly blocked is to be logged and recorded: a server that changes its definitions without end
    /// must not fill log and trail.
    fn may_note(&self) -> bool {
        let mut inner = self.inner();
        let (count, last) = inner.noted;
        let may = count < MOST_NOTES || last.elapsed() >= BETWEEN_NOTES;
        if may {
            inner.noted = (count.saturating_add(1), Instant::now());
        }
        may
    }

    /// Whether its tools are known, and in the host's table.
    pub fn is_offered(&self) -> bool {
        self.offered.load(Ordering::Acquire)
    }

    /// What it said of its tools is in the host's table.
    pub(super) fn set_offered(&self) {
        self.offered.store(true, Ordering::Release);
    }

    /// Makes this what the server offers, and tells everybody if it is something else than before.
    fn offer(&self, host: &Host, said: Arc<Catalogue>, judgement: Arc<Judgement>) {
        let (before, judged_before) = {
            let mut inner = self.inner();
            (
                std::mem::replace(&mut inner.catalogue, said.clone()),
                std::mem::replace(&mut inner.judgement, judgement.clone()),
            )
        };
        let changed = *before != *said;
        let blocked = newly_blocked((&before, &judged_before), (&said, &judgement));
        let may_note = (changed || blocked.is_some()) && self.may_note();
        if changed {
            host.remember(self, &said);
            if may_note {
                info!(server = &*self.id, tools = said.tools.len(), "tools changed");
            }
        }
        if let Some(blocked) = blocked.filter(|_| may_note) {
            note_blocked(host, &self.id, blocked);
        }
        host.catalogue_changed(changed || *judged_before != *judgement);
    }

    /// No further calls; its processes end after those in flight.
    pub fn retire(&self) {
        let mut inner = self.inner();
        inner.retired = true;
        for slot in inner.slots.values() {
            if let Slot::Ready(session) = slot {
                session.drain();
            }
        }
    }

    /// Ends all its processes now, those that are being started too.
    pub fn end(&self, reason: &'static str) {
        let mut inner = self.inner();
        inner.retired = true;
        inner.ended = Some(reason);
        inner.slots.retain(|_, slot| slot.end(reason));
    }

    /// A connection is gone: a process that was its alone ends.
    pub fn disconnected(&self, connection: u64) {
        if self.isolation != Isolation::Client {
            return;
        }
        let is_its = |key: &ProcessKey| matches!(key, ProcessKey::Connection(_, of) if *of == connection);
        let ends = |slot: &Slot| slot.end("its client is gone");
        self.inner().slots.retain(|key, slot| !is_its(key) || ends(slot));
    }

    /// Starts a process so that its tools become known, unless one is being started, or starting it failed not long ago.
    /// Until when it is worth waiting for: the first time alone.
    pub fn discover(self: &Arc<Self>, caller: &Caller, connection: u64) -> Option<Instant> {
        if self.is_offered() {
            return None;
        }
        let mut inner = self.inner();
        if inner.blocked.is_some() || inner.retired {
            return None;
        }
        let starting = inner.slots.values().any(|slot| matches!(slot, Slot::Starting { .. }));
        let ill = inner
            .health
            .get(&self.holder(caller))
            .is_some_and(Health::is_backing_off);
        if !starting && !ill && inner.discovery.may_begin() {
            let key = self.key(caller, connection);
            self.begin(&mut inner, key, Vec::new());
        } else if !starting {
            return None;
        }
        inner.discovery.worth_waiting()
    }

    /// Whose failures count for a caller.
    fn holder(&self, caller: &Caller) -> Option<u32> {
        (self.isolation != Isolation::Shared).then_some(caller.uid)
    }

    /// Whether a process is being started.
    pub fn is_starting(&self) -> bool {
        let inner = self.inner();
        inner.slots.values().any(|slot| matches!(slot, Slot::Starting { .. }))
    }

    /// Text without the values of secrets.
    pub fn redact(&self, text: &str) -> String {
        self.host().map_or_else(|_| String::new(), |host| host.redact(text))
    }

    /// JSON as it is recorded where the entry asks for all of it: without the values of secrets.
    pub fn in_full(&self, json: &[u8]) -> Option<Box<RawValue>> {
        if !self.entry.record_full {
            return None;
        }
        let text = std::str::from_utf8(json).ok()?;
        RawValue::from_string(self.redact(text)).ok()
    }

    /// Its processes.
    pub fn sessions(&self) -> Vec<(ProcessKey, Arc<Session>)> {
        self.inner()
            .slots
            .iter()
            .filter_map(|(key, slot)| match slot {
                Slot::Ready(session) => Some((*key, session.clone())),
                Slot::Starting { .. } => None,
            })
            .collect()
    }

    /// Whether a process runs or is being started.
    pub fn is_running(&self) -> bool {
        !self.inner().slots.is_empty()
    }

    /// Something happened that may have changed its state: since when it has the new one is known from then on.
    fn note_state(&self) {
        let _ = self.state(Viewer::Operator(None));
    }

    /// Its state, the reason for it, and since when: as an operator sees it, or a user.
    pub fn state(&self, viewer: Viewer) -> (State, Option<String>, SystemTime) {
        let mut inner = self.inner();
        let (state, reason) = inner.state(viewer, self.isolation);
        if matches!(viewer, Viewer::Operator(_)) && inner.shown.0 != state {
            inner.shown = (state, SystemTime::now());
        }
        // Since when it is so for others is no user's to see.
        let since = match (state, inner.health_for(viewer, self.isolation)) {
            (State::BackingOff | State::Failed, Some((_, health))) => health.since(),
            _ => None,
        };
        (state, reason, since.unwrap_or(inner.shown.1))
    }

    /// Sends a call to a process for its caller, started if need be. A call of which no byte was sent is tried again.
    pub fn call(self: &Arc<Self>, call: Call) {
        let key = self.key(&call.client.caller, call.client.connection);
        let call = match self.ready(key) {
            None => Box::new(call),
            Some(session) => match self.give(&session, call) {
                Ok(()) => return,
                Err(call) => call,
            },
        };
        tokio::spawn(self.clone().call_later(key, call));
    }

    /// Gives a call to a process, unless the process says something of the tool that is not approved. The call is given
    /// back if the process takes no more.
    fn give(&self, session: &Arc<Session>, call: Call) -> Result<(), Box<Call>> {
        let tool = call.target.describe().operation;
        let is_tool = call.method == Some(Method::ToolsCall);
        let against = is_tool.then(|| session.definitions.against(&self.id, tool)).flatten();
        let Some(failure) = against else {
            return session.send(call);
        };
        if !session.is_open() {
            return Err(Box::new(call));
        }
        // A process asked later says what is approved: this one has fallen behind, and the next call is not for it.
        if self.definitions().1.tool(tool).is_approved() {
            session.drain();
        }
        if let Ok(host) = self.host() {
            host.chain.finish(vec![(call, Outcome::Failed(failure))]);
        }
        Ok(())
    }

    /// Gives a call to a process, started if need be.
    async fn call_later(self: Arc<Self>, key: ProcessKey, call: Box<Call>) {
        let server = self.clone();
        self.with_process(key, call, move |session, call| server.give(session, call))
            .await;
    }

    /// Has a process for a call, started if need be, and does `then` with both, which gives the call back if the process
    /// takes no more. A start that failed is tried again, as often as the entry says.
    pub(super) async fn with_process(
        self: Arc<Self>,
        key: ProcessKey,
        mut call: Box<Call>,
        then: impl Fn(&Arc<Session>, Call) -> Result<(), Box<Call>>,
    ) {
        let Ok(host) = self.host() else { return };
        loop {
            if call.client.is_cancelled(&call.id) {
                return host.chain.finish(vec![(*call, Outcome::Cancelled)]);
            }
            let failure = match self.open(key).await {
                Ok(session) => match then(&session, *call) {
                    Ok(()) => {
                        if matches!(key, ProcessKey::Call(..)) {
                            session.drain();
                        }
                        return;
                    }
                    Err(back) => {
                        call = back;
                        self.unavailable("its process ended as soon as it was there")
                    }
                },
                Err(failure) => failure,
            };
            if call.attempt >= self.entry.attempts || retry::class(&failure) == retry::Class::Permanent {
                return host.chain.finish(vec![(*call, Outcome::Failed(failure))]);
            }
            host.chain.retry(&mut call, &failure);
            tokio::time::sleep(retry::wait_after(call.attempt - 1, host.next_retry())).await;
        }
    }
}

/// What of a server's definitions is blocked that was not before: tools, and whether the instructions are.
fn newly_blocked<'s>(
    (before, judged_before): (&Catalogue, &Judgement),
    (said, judgement): (&'s Catalogue, &Judgement),
) -> Option<(Vec<&'s str>, bool)> {
    let blocked: BTreeSet<(&str, &Bytes)> = before
        .tools
        .iter()
        .filter(|tool| !judged_before.tool(&tool.name).is_approved())
        .map(|tool| (&*tool.name, &tool.raw))
        .collect();
    let tools: Vec<&str> = said
        .tools
        .iter()
        .filter(|tool| !judgement.tool(&tool.name).is_approved() && !blocked.contains(&(&*tool.name, &tool.raw)))
        .map(|tool| tool.name.as_str())
        .collect();
    let instructions = !judgement.instructions.is_approved()
        && (judged_before.instructions.is_approved() || before.instructions != said.instructions);
    (!tools.is_empty() || instructions).then_some((tools, instructions))
}

/// Says in log and trail what of a server's definitions is blocked.
fn note_blocked(host: &Host, id: &str, (tools, instructions): (Vec<&str>, bool)) {
    let shown = |name: &&str| brief(name, 100);
    let mut names = tools.iter().take(MOST_NAMED).map(shown).collect::<Vec<_>>().join(", ");
    if tools.len() > MOST_NAMED {
        names.push_str(", …");
    }
    warn!(
        server = id,
        tools = tools.len(),
        instructions,
        "definitions that are not as approved are blocked: {names}; see colibri-mcp pin diff {id}"
    );
    let details = [
        ("server", Detail::Text(id)),
        ("tools", Detail::Number(tools.len() as u64)),
        ("names", Detail::Text(&names)),
        ("instructions", Detail::Flag(instructions)),
    ];
    if let Err(error) = host.chain.recorder.event("pins-blocked", &details) {
        tracing::error!("what was blocked was not recorded: {error}");
    }
}

/// One process's tie to its server.
pub(super) struct Tie {
    /// The server.
    pub server: Arc<Server>,
    /// Who shares the process.
    pub key: ProcessKey,
}

impl Keeper for Tie {
    fn tools_changed(&self, session: &Arc<Session>) {
        if !session.definitions.begin_to_settle() {
            return;
        }
        let (server, session) = (self.server.clone(), session.clone());
        tokio::spawn(async move {
            tokio::time::sleep(SETTLE).await;
            session.definitions.settled();
            if session.definitions.read_again() {
                server.read_tools(session);
            }
        });
    }

    fn ended(&self, session: &Arc<Session>, crash: Option<Crash>) {
        let mut inner = self.server.inner();
        if matches!(inner.slots.get(&self.key), Some(Slot::Ready(current)) if Arc::ptr_eq(current, session)) {
            inner.slots.remove(&self.key);
            if let Some(Crash { reason, wrote }) = crash {
                let health = inner.health.entry(self.key.uid()).or_default();
                health.failed(&reason, wrote, retry::Class::Transient);
                self.server.ailing.store(true, Ordering::Release);
            }
        }
        drop(inner);
        self.server.freed.notify_waiters();
        self.server.note_state();
        debug!(server = &*self.server.id, process = session.number, "process gone");
        if let Ok(host) = self.server.host() {
            host.process_gone();
        }
    }

    fn lost(&self, mut call: Box<Call>, failure: Failure) {
        let Ok(host) = self.server.host() else { return };
        let again = call.target.is_idempotent() && call.attempt < self.server.entry.attempts;
        if !again || !call.client.unsent(&call.id) {
            return host.chain.finish(vec![(*call, Outcome::Failed(failure))]);
        }
        host.chain.retry(&mut call, &failure);
        let (server, key) = (self.server.clone(), self.key);
        tokio::spawn(async move {
            tokio::time::sleep(retry::wait_after(call.attempt - 1, host.next_retry())).await;
            server.call_later(key, call).await;
        });
    }

    fn answered(&self) {
        if self.server.ailing.load(Ordering::Acquire) {
            let mut inner = self.server.inner();
            inner.health.remove(&self.key.uid());
            self.server.ailing.store(!inner.health.is_empty(), Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::host::catalogue::Definition;
    use crate::policy::Standing;

    fn said(tools: &[(&str, &str)], instructions: &str) -> Catalogue {
        Catalogue {
            tools: tools
                .iter()
                .map(|(name, raw)| Definition {
                    name: (*name).to_owned(),
                    raw: Bytes::copy_from_slice(raw.as_bytes()),
                })
                .collect(),
            instructions: Some(instructions.to_owned()),
            ..Catalogue::default()
        }
    }

    fn judgement(blocked: &[&str], instructions: bool) -> Judgement {
        let new = || Standing::New { why: "x".to_owned() };
        Judgement {
            instructions: if instructions { new() } else { Standing::Approved },
            tools: blocked.iter().map(|name| ((*name).to_owned(), new())).collect(),
        }
    }

    #[test]
    fn what_was_blocked_before_is_not_told_again() {
        let (good, bad) = (
            said(&[("a", "1"), ("b", "1")], "i"),
            said(&[("a", "1"), ("b", "2")], "i"),
        );
        let (none, b) = (Judgement::NOTHING, judgement(&["b"], false));
        assert_eq!(newly_blocked((&good, &none), (&good, &none)), None);
        assert_eq!(newly_blocked((&good, &none), (&bad, &b)), Some((vec!["b"], false)));
        assert_eq!(newly_blocked((&bad, &b), (&bad, &b)), None);
        // Another text of it, one more, the instructions.
        let worse = said(&[("a", "1"), ("b", "3")], "i");
        assert_eq!(newly_blocked((&bad, &b), (&worse, &b)), Some((vec!["b"], false)));
        let both = judgement(&["a", "b"], false);
        assert_eq!(newly_blocked((&bad, &b), (&bad, &both)), Some((vec!["a"], false)));
        let other = said(&[("a", "1"), ("b", "2")], "j");
        let all = judgement(&["b"], true);
        assert_eq!(newly_blocked((&bad, &b), (&other, &all)), Some((vec![], true)));
        assert_eq!(newly_blocked((&other, &all), (&other, &all)), None);
        assert_eq!(newly_blocked((&bad, &all), (&other, &all)), Some((vec![], true)));
        assert_eq!(newly_blocked((&bad, &b), (&good, &none)), None);
    }
}
