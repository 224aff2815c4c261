//! One server of the registry: its processes, started at their first use, shared as its isolation says, ended when idle.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::{Duration, SystemTime};

use arc_swap::ArcSwap;
use bytes::Bytes;
use serde_json::value::RawValue;
use tokio::sync::{Notify, oneshot};
use tokio::time::Instant;
use tracing::{debug, info, warn};

use super::accounts::Accounts;
use super::context::Context;
use super::entry::{Entry, Isolation};
use super::handshake;
use super::instance::{Crash, Keeper, Limits, Session};
use super::launch::{Launch, NotStarted, Queue};
use super::listing::Catalogue;
use super::offer::Offer;
use super::open_asks::MayAsk;
use super::registry;
use super::retry::{self, Discovery};
use super::slots::{Opened, Slot, Slots};
use super::state::{ProcessKey, State, Viewer};
use super::subscribers::Subscriptions;
use super::tap::Taps;
use super::turns::Turns;
use crate::oauth::{Account, Owner};
use crate::policy::{Caller, Contract, Rules};
use crate::relay::{Call, CallMetrics, Client, HeldCall, Outcome};
use colibri_protocol::logging::Level;
use colibri_protocol::{Askable, Code, Failure, Features, Version};
use colibri_wire::Json;

/// How long a burst of changes to a server's tools may go on before it is looked at.
const SETTLE: Duration = Duration::from_millis(200);

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
    pub metrics: Arc<CallMetrics>,
    /// Who watches what it and the daemon say to each other.
    pub taps: Arc<Taps>,
    pub(super) context: Arc<Context>,
    /// What it offers.
    pub(crate) offer: Arc<Offer>,
    /// SHA-256 of its entry as it is written now, which may be otherwise than when the entry was first read.
    digest: Arc<ArcSwap<String>>,
    /// Starts that wait for their turn.
    queue: Arc<Queue>,
    /// The version that its processes speak, once it is known.
    pub(super) version: Arc<Mutex<Option<Version>>>,
    inner: Mutex<Slots>,
    /// Whether it failed since it last worked; looked at on each answer without a lock.
    ailing: AtomicBool,
    calls: AtomicU64,
    /// Whose turn it is in the processes that may ask.
    pub(super) turns: Arc<Turns>,
    /// A process is gone: who waits for a turn looks again.
    freed: Notify,
    /// Who has which login there.
    accounts: Option<Accounts>,
    /// Who is subscribed to what of it.
    pub(super) subscriptions: Arc<Subscriptions>,
}

impl Server {
    /// A server without a process.
    pub fn new(
        id: &str,
        loaded: &registry::Server,
        executable: String,
        known: Option<Arc<Catalogue>>,
        context: &Arc<Context>,
    ) -> Server {
        let id: Arc<str> = id.into();
        let known = known.unwrap_or_default();
        let version = known.version;
        let entry = loaded.entry.clone();
        let digest = Arc::new(ArcSwap::from_pointee(entry.digest.clone()));
        let (contract, blocked) = match loaded.contract() {
            Ok(contract) => (contract.map(Arc::new), loaded.refusal.clone()),
            Err(why) => (None, Some(why)),
        };
        Server {
            rules: Rules::new(
                [&entry.tools, &entry.prompts, &entry.resources],
                &context.parts.registry,
                &id,
            ),
            contract,
            limits: context.limits(&entry),
            isolation: loaded.isolation(),
            metrics: Arc::default(),
            taps: Arc::default(),
            context: context.clone(),
            offer: Offer::new(&id, &executable, &digest, known, context),
            digest,
            queue: Arc::default(),
            version: Arc::new(Mutex::new(version)),
            inner: Mutex::new(Slots::new(blocked)),
            ailing: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            turns: Arc::default(),
            freed: Notify::new(),
            subscriptions: Subscriptions::new(),
            accounts: Accounts::at(&id, &entry, context),
            id,
            entry,
            executable,
        }
    }

    /// The same, watched by whoever watches `old`, in whose place it comes.
    pub fn tapped_as(mut self, old: &Server) -> Server {
        self.taps = old.taps.clone();
        self
    }

    fn inner(&self) -> MutexGuard<'_, Slots> {
        self.inner.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The login of a user there, or everybody's; `None` if nobody logs in there.
    pub fn account(&self, uid: u32) -> Option<Arc<Account>> {
        Some(self.accounts.as_ref()?.of(uid))
    }

    /// A login is over: sessions that had it end, with what is in flight there.
    pub fn log_out(&self, owner: Owner) {
        let inner = self.inner();
        let of_owner = |key: &ProcessKey| match owner {
            Owner::User(uid) => key.uid() == Some(uid),
            Owner::Everybody => true,
        };
        for (_, session) in inner.running().filter(|(key, _)| of_owner(key)) {
            session.end("its login is over");
        }
    }

    /// Its id, where clients see it before its names and URIs.
    pub fn prefix(&self) -> Option<&str> {
        self.entry.prefix.then_some(&*self.id)
    }

    /// The process for a caller.
    pub fn key(&self, caller: &Caller, session: Option<u64>) -> ProcessKey {
        let number = || self.calls.fetch_add(1, Ordering::Relaxed);
        ProcessKey::of(self.isolation, caller.uid, session, number)
    }

    /// Judges again what it and its processes said: other definitions are approved than before. Takes a while: not to
    /// be called on a thread that serves clients.
    pub fn judge_again(&self) {
        let sessions = || self.sessions().into_iter().map(|(_, session)| session).collect();
        self.offer.judge_again(sessions);
    }

    /// Its entry says the same as before, in other words perhaps.
    pub fn set_digest(&self, digest: &str) {
        if **self.digest.load() != *digest {
            self.digest.store(Arc::new(digest.to_owned()));
            self.offer.keep();
        }
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

    /// The process for these callers, started if need be for this client.
    ///
    /// # Errors
    /// Why there is none: the server is blocked, left alone for a while, or could not be started.
    pub async fn open(self: &Arc<Self>, key: ProcessKey, client: &Arc<Client>) -> Result<Arc<Session>, Failure> {
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
                    self.begin(&mut inner, key, client, vec![sender]);
                }
            }
        }
        let given_up = |_| Err(self.unavailable("starting it was given up"));
        receiver.await.unwrap_or_else(given_up)
    }

    /// Begins to start a process.
    fn begin(
        self: &Arc<Self>,
        inner: &mut Slots,
        key: ProcessKey,
        client: &Arc<Client>,
        waiting: Vec<oneshot::Sender<Opened>>,
    ) {
        // It takes the lock when it is done, so it cannot be done before its slot is there.
        let task = tokio::spawn(self.clone().start(key, client.clone())).abort_handle();
        let slot = Slot::Starting {
            waiting,
            task,
            has_begun: false,
        };
        inner.slots.insert(key, slot);
        inner.discovery.begin();
    }

    /// Waits until it is the turn of a user to have another process: the helper, which bounds the processes of jailed
    /// servers and their starts, does not know for whom they are.
    async fn turn(&self, key: ProcessKey) -> Result<(), Failure> {
        let Some(uid) = key.uid().filter(|_| self.entry.is_jailed()) else {
            return Ok(());
        };
        let limits = self.context.shares().limits();
        let share = self.context.shares().of(uid);
        let until = Instant::now() + self.limits.start;
        loop {
            let freed = self.freed.notified();
            let begun = self.inner().begin(uid, key, limits.processes_per_user);
            let (until_then, limit) = match begun.map(|()| share.start()) {
                Ok(Ok(())) => return Ok(()),
                Ok(Err(wait)) => {
                    let (most, flag) = (limits.starts_per_user, "--max-starts-per-user");
                    let limit =
                        format!("the calls of this user have started {most} jailed servers in a minute ({flag})");
                    (Instant::now() + wait, limit)
                }
                Err(running) => {
                    let limit = format!("this user has {running} processes of it (--max-processes-per-user)");
                    (until, limit)
                }
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

    pub(super) fn unavailable(&self, why: impl Into<String>) -> Failure {
        let message = format!("{} is not available: {}", self.id, why.into());
        Failure::new(Code::IntegrationUnavailable, message).of_server(&*self.id)
    }

    /// A process that was opened and asked for its tools: one whose definitions were not judged is given to nobody.
    async fn process(self: &Arc<Self>, key: ProcessKey, client: Arc<Client>) -> Result<Arc<Session>, NotStarted> {
        let launch = Launch {
            context: self.context.clone(),
            server: self.id.clone(),
            entry: self.entry.clone(),
            digest: self.digest.clone(),
            limits: self.limits,
            taps: self.taps.clone(),
            allowance: self.inner().allowances.entry(key.uid()).or_default().clone(),
            metrics: self.metrics.clone(),
            may_ask: MayAsk {
                what: match key {
                    ProcessKey::All => Askable::NOTHING,
                    _ => self.may_ask(),
                },
                in_answer: self.may_ask(),
                one_client: key.connection().is_some(),
                is_exposed: self.entry.prefix,
            },
            queue: self.queue.clone(),
            version: self.version.clone(),
            account: self.account(client.caller.uid),
            client,
            keeper: Arc::new(Supervision {
                server: self.clone(),
                key,
            }),
            waits_for: Mutex::default(),
        };
        let work = async {
            let (opening, said) = handshake::start(&launch, &self.offer.catalogue()).await?;
            self.offer.learned(&opening.session, said).await?;
            Ok(opening.keep())
        };
        launch.in_time(work).await
    }

    async fn start(self: Arc<Self>, key: ProcessKey, client: Arc<Client>) {
        let result = match self.turn(key).await {
            Ok(()) => self.process(key, client).await,
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
            Ok(session) => {
                self.read_lists(session.clone());
                self.resume_telling(key, session);
            }
            Err(_) => self.context.learned(false),
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

    /// Reads the lists of a process that changed, until they are as it says them now. Who begins it reads them alone.
    fn read_lists(self: &Arc<Self>, session: Arc<Session>) {
        let mut features = session.definitions.to_read();
        if features.is_empty() {
            return;
        }
        let server = self.clone();
        tokio::spawn(async move {
            while !features.is_empty() && session.is_open() {
                let said = handshake::read_again(&session, features, server.limits.start).await;
                if server.offer.learned(&session, said).await.is_err() {
                    return;
                }
                // A server that changes them without end is not read without end.
                tokio::time::sleep(SETTLE).await;
                features = session.definitions.to_read();
            }
        });
    }

    /// Whether it is in the registry no more.
    pub(super) fn is_over(&self) -> bool {
        let inner = self.inner();
        inner.retired || inner.ended.is_some()
    }

    /// No further calls; its processes end after those in flight.
    pub fn retire(&self) {
        self.offer.retire();
        let mut inner = self.inner();
        inner.retired = true;
        inner.running().for_each(|(_, session)| session.drain());
    }

    /// Ends all its processes now, those that are being started too.
    pub fn end(&self, reason: &'static str) {
        self.offer.retire();
        let mut inner = self.inner();
        inner.retired = true;
        inner.ended = Some(reason);
        inner.slots.retain(|_, slot| slot.end(reason));
    }

    /// Ends its processes, in order; the next call starts one, also where failures would have kept it from that. How many
    /// there were.
    pub fn restart(&self) -> usize {
        self.reset();
        let inner = self.inner();
        let running: Vec<_> = inner.running().map(|(_, session)| session.clone()).collect();
        running
            .iter()
            .for_each(|session| session.end("an operator restarted it"));
        running.len()
    }

    /// A connection is gone: a process that was its alone ends.
    pub fn disconnected(&self, connection: u64) {
        self.forget_level(connection);
        if self.isolation != Isolation::Client {
            return;
        }
        let is_its = |key: &ProcessKey| key.connection() == Some(connection);
        let ends = |slot: &Slot| slot.end("its client is gone");
        self.inner().slots.retain(|key, slot| !is_its(key) || ends(slot));
    }

    /// A client's roots are others now: its processes are told, as the client wrote it.
    pub fn roots_changed(&self, client: &Arc<Client>, frame: &Bytes) {
        let (uid, session) = (client.caller.uid, client.session.number);
        let is_its = |key: ProcessKey| {
            let is_one_calls = matches!(key, ProcessKey::Call(..));
            key.uid() == Some(uid) && !is_one_calls && key.connection().is_none_or(|of| of == session)
        };
        for (_, process) in self.sessions().into_iter().filter(|(key, _)| is_its(*key)) {
            process.roots_changed(client, frame);
        }
    }

    /// Starts a process so that its tools become known, unless one is being started, or starting it failed not long ago.
    /// Until when it is worth waiting for: the first time alone.
    pub fn discover(self: &Arc<Self>, client: &Arc<Client>) -> Option<Instant> {
        if self.offer.is_in_table() {
            return None;
        }
        let mut inner = self.inner();
        if inner.wants_discovery(self.holder(&client.caller))? {
            let key = self.key(&client.caller, client.session.owner());
            self.begin(&mut inner, key, client, Vec::new());
        }
        inner.discovery.worth_waiting()
    }

    /// Whose failures count for a caller.
    fn holder(&self, caller: &Caller) -> Option<u32> {
        (self.isolation != Isolation::Shared).then_some(caller.uid)
    }

    /// Whether a process is being started.
    pub fn is_starting(&self) -> bool {
        self.inner().is_starting()
    }

    /// Text without the values of secrets.
    pub fn redact(&self, text: &str) -> String {
        self.context.redact(text)
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
        let inner = self.inner();
        inner.running().map(|(key, session)| (key, session.clone())).collect()
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
        self.inner().look(viewer, self.isolation)
    }
}

/// What its server does about what becomes of a process.
struct Supervision {
    server: Arc<Server>,
    /// Whose calls the process gets.
    key: ProcessKey,
}

impl Keeper for Supervision {
    fn lists_changed(&self, session: &Arc<Session>, changed: Features) {
        if !session.definitions.changed(changed) {
            return;
        }
        let (server, session) = (self.server.clone(), session.clone());
        tokio::spawn(async move {
            // A burst is read once.
            tokio::time::sleep(SETTLE).await;
            server.read_lists(session);
        });
    }

    fn updated(&self, frame: &Bytes, params: Json<'_>, uri: &str) {
        self.server.updated(self.key, frame, params, uri);
    }

    fn logged(&self, session: &Arc<Session>, frame: &Bytes, level: Level) {
        // Of a process of several users nobody knows whose calls it writes about.
        if self.key.uid().is_some() {
            session.log_message(frame, level);
        }
    }

    fn asks(&self) {
        self.server.offer.seen_to_ask();
    }

    fn unheard(&self, session: &Arc<Session>) {
        self.server.listen_again(self.key, session);
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
        self.server.context.process_gone();
        if !self.server.is_over() {
            self.server.tell_again(self.key);
        }
    }

    fn again(&self, call: Box<Call>) {
        self.server.call(call);
    }

    fn unsent(&self, mut call: Box<Call>, failure: Failure, after: Option<Duration>) {
        let (server, key) = (self.server.clone(), self.key);
        let chain = server.context.parts.chain.clone();
        let wait = after.unwrap_or_else(|| retry::wait_after(call.attempt, server.context.next_retry()));
        let left = (call.entered + server.limits.call).saturating_duration_since(Instant::now());
        if call.attempt >= server.entry.attempts || wait >= left {
            let failure = match after.filter(|after| !after.is_zero()) {
                Some(after) => failure.advising(format!("call it again in {} s", after.as_secs().max(1))),
                None => failure,
            };
            return chain.finish(vec![(call, Outcome::Failed(failure))]);
        }
        if !call.client.unsent(&call.id) {
            return chain.finish(vec![(call, Outcome::Cancelled)]);
        }
        chain.retry(&mut call, &failure);
        let held = HeldCall::hold(&chain, call);
        tokio::spawn(async move {
            tokio::select! {
                () = tokio::time::sleep(wait) => {}
                () = held.over() => return,
            }
            let Some(call) = held.take() else { return };
            match call.client.unsent(&call.id) {
                true => server.call_later(key, call).await,
                false => chain.finish(vec![(call, Outcome::Cancelled)]),
            }
        });
    }

    fn lost(&self, mut call: Box<Call>, failure: Failure) {
        let context = &self.server.context;
        let again = call.target.is_idempotent() && call.attempt < self.server.entry.attempts;
        if !again || !call.client.unsent(&call.id) {
            return context.parts.chain.finish(vec![(call, Outcome::Failed(failure))]);
        }
        context.parts.chain.retry(&mut call, &failure);
        let (server, key) = (self.server.clone(), self.key);
        tokio::spawn(async move {
            tokio::time::sleep(retry::wait_after(call.attempt - 1, server.context.next_retry())).await;
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
