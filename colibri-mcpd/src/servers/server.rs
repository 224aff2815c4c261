//! One server of the registry: what is known of it and its processes, which are shared as its
//! isolation says; their end.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::SystemTime;

use bytes::Bytes;
use colibri_json::DocumentError;
use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;

use super::accounts::ServerAccounts;
use super::advertised::AdvertisedItems;
use super::context::ServerContext;
use super::elicitation::exclusive_slots::ExclusiveSlots;
use super::listing::Catalogue;
use super::retry::Discovery;
use super::session::ServerSession;
use super::slots::{ProcessSlot, Slots};
use super::specification::ServerSpecification;
use super::state::{ProcessKey, State, Viewer};
use super::subscribers::Subscriptions;
use crate::registry::{Isolation, RegisteredServer, ServerSpec};
use crate::relay::{CallMetrics, Client, Upstream};
use colibri_outbound::oauth::{OauthAccount, TokenOwner};
use colibri_policy::{Caller, RulePlace, RuleVerdict};
use colibri_protocol::{Code, Failure, Method, Version};

/// One server of the registry.
pub struct HostedServer {
    /// The facts about it.
    pub spec: Arc<ServerSpecification>,
    /// The advertised items.
    pub(crate) offer: Arc<AdvertisedItems>,
    inner: Mutex<Slots>,
    /// True if it failed since it last worked; looked at on each answer without a lock.
    pub(super) ailing: AtomicBool,
    calls: AtomicU64,
    /// The exclusive slots in the processes that may make requests.
    pub(super) turns: Arc<ExclusiveSlots>,
    /// A process is gone: who waits for a turn looks again.
    pub(super) freed: Notify,
    /// The logins there.
    accounts: Option<ServerAccounts>,
    /// The subscriptions to its items.
    pub(super) subscriptions: Arc<Subscriptions>,
}

impl HostedServer {
    /// A server without a process. `old` is the server in whose place it comes: its watchers and
    /// subscribers stay.
    pub fn new(
        id: &str,
        registered: &RegisteredServer,
        executable: String,
        known: Option<Arc<Catalogue>>,
        old: Option<&HostedServer>,
        context: &Arc<ServerContext>,
    ) -> HostedServer {
        let known = known.unwrap_or_default();
        let taps = old.map(|old| old.spec.taps.clone()).unwrap_or_default();
        let (spec, blocked) =
            ServerSpecification::new(id, registered, executable, (known.version, taps), context);
        let spec = Arc::new(spec);
        HostedServer {
            offer: AdvertisedItems::new(&spec, known),
            inner: Mutex::new(Slots::new(blocked)),
            ailing: AtomicBool::new(false),
            calls: AtomicU64::new(0),
            turns: Arc::default(),
            freed: Notify::new(),
            subscriptions: old.map_or_else(Subscriptions::new, |old| old.subscriptions.clone()),
            accounts: ServerAccounts::at(&spec),
            spec,
        }
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Slots> {
        self.inner.lock()
    }

    /// The login of a user there, or everybody's; `None` if nobody logs in there.
    pub fn account(&self, uid: u32) -> Option<Arc<OauthAccount>> {
        Some(self.accounts.as_ref()?.of(uid))
    }

    /// A login is over: sessions that had it end, with what is in flight there.
    pub fn log_out(&self, owner: TokenOwner) {
        let inner = self.inner();
        let of_owner = |key: &ProcessKey| match owner {
            TokenOwner::User(uid) => key.uid() == Some(uid),
            TokenOwner::Everybody => true,
        };
        for (_, session) in inner.running().filter(|(key, _)| of_owner(key)) {
            session.end("its login is over");
        }
    }

    /// The process for a caller.
    pub fn key(&self, caller: &Caller, session: Option<u64>) -> ProcessKey {
        let number = || self.calls.fetch_add(1, Ordering::Relaxed);
        ProcessKey::of(self.spec.isolation, caller.uid, session, number)
    }

    /// Judges again what it and its processes said: other definitions are approved than before.
    /// Takes a while: not to be called on a thread that serves clients.
    pub(crate) fn judge_again(&self) {
        let sessions = || {
            self.sessions()
                .into_iter()
                .map(|(_, session)| session)
                .collect()
        };
        self.offer.judge_again(sessions);
    }

    /// Its entry says the same as before, in other words or on other lines perhaps.
    pub(crate) fn follow(&self, entry: &ServerSpec) {
        self.spec.entry.follow_lines(entry);
        if **self.spec.digest.load() != *entry.digest {
            self.spec.digest.store(Arc::new(entry.digest.clone()));
            self.offer.keep();
        }
    }

    /// True if it is an account of an entry with several.
    pub(crate) fn is_account(&self) -> bool {
        *self.spec.entry.entry_id != *self.spec.id
    }

    /// Forgets its failures: what was wrong may have been mended.
    pub fn reset(&self) {
        let mut inner = self.inner();
        inner.health.clear();
        inner.breakers.clear();
        inner.discovery = Discovery::default();
    }

    /// Forbids starting it, or allows it again.
    pub fn block(&self, reason: Option<String>) {
        self.inner().blocked = reason;
    }

    /// The process for these callers, if it runs.
    pub fn ready(&self, key: ProcessKey) -> Option<Arc<ServerSession>> {
        match self.inner().slots.get(&key) {
            Some(ProcessSlot::Ready(session)) if session.is_open() => Some(session.clone()),
            _ => None,
        }
    }

    /// The failure of a call to a server that its operator, or a fault of its entry, blocks.
    pub(super) fn blocked(&self, reason: &str) -> Failure {
        let message = format!("{} is blocked: {reason}", self.spec.id);
        self.spec.failure(Code::ServerUnstartable, message)
    }

    pub(super) fn unavailable(&self, why: impl Into<String>) -> Failure {
        let message = format!("{} is not available: {}", self.spec.id, why.into());
        Failure::new(Code::IntegrationUnavailable, message).of_server(&*self.spec.id)
    }

    /// True if it is in the registry no more.
    pub(super) fn is_over(&self) -> bool {
        let inner = self.inner();
        inner.retired || inner.ended.is_some()
    }

    /// No further calls; its processes end after those in flight.
    pub(crate) fn retire(&self) {
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

    /// Ends its processes, in order; the next call starts one, also where failures would have kept
    /// it from that. How many there were.
    pub fn restart(&self) -> usize {
        self.reset();
        let inner = self.inner();
        let running: Vec<_> = inner
            .running()
            .map(|(_, session)| session.clone())
            .collect();
        running
            .iter()
            .for_each(|session| session.end("an operator restarted it"));
        running.len()
    }

    /// A connection is gone: a process that was its alone ends.
    pub fn disconnected(&self, connection: u64) {
        self.forget_level(connection);
        if self.spec.isolation != Isolation::Client {
            return;
        }
        let is_its = |key: &ProcessKey| key.connection() == Some(connection);
        let ends = |slot: &ProcessSlot| slot.end("its client is gone");
        self.inner()
            .slots
            .retain(|key, slot| !is_its(key) || ends(slot));
    }

    /// A client's roots are others now: its processes are told, as the client wrote it.
    pub fn roots_changed(&self, client: &Arc<Client>, frame: &Bytes) {
        let (uid, session) = (client.caller.uid, client.session.number);
        let is_its = |key: ProcessKey| {
            let is_one_calls = matches!(key, ProcessKey::Call(..));
            key.uid() == Some(uid)
                && !is_one_calls
                && key.connection().is_none_or(|of| of == session)
        };
        for (_, process) in self.sessions().into_iter().filter(|(key, _)| is_its(*key)) {
            process.roots_changed(client, frame);
        }
    }

    /// True if a process is being started.
    pub(crate) fn is_starting(&self) -> bool {
        self.inner().is_starting()
    }

    /// Its processes.
    pub fn sessions(&self) -> Vec<(ProcessKey, Arc<ServerSession>)> {
        let inner = self.inner();
        inner
            .running()
            .map(|(key, session)| (key, session.clone()))
            .collect()
    }

    /// True if a process runs or is being started.
    pub(crate) fn is_running(&self) -> bool {
        !self.inner().slots.is_empty()
    }

    /// Something happened that may have changed its state: since when it has the new one is known
    /// from then on.
    pub(super) fn note_state(&self) {
        let _ = self.state(Viewer::Operator(None));
    }

    /// Its state, the reason for it, and since when: as an operator sees it, or a user.
    pub fn state(&self, viewer: Viewer) -> (State, Option<String>, SystemTime) {
        let (state, reason, since) = self.inner().look(viewer, self.spec.isolation);
        match self.label_fault() {
            Some(fault) if state != State::Blocked => {
                (State::Blocked, Some(fault.to_string()), since)
            }
            _ => (state, reason, since),
        }
    }

    /// The label of its entry that is about none of its tools, once they are known: then nothing of
    /// it is called.
    pub(crate) fn label_fault(&self) -> Option<Arc<DocumentError>> {
        self.offer.label_fault()
    }

    /// The denial of all that it has, where there is such a label.
    pub(crate) fn label_denial(&self) -> Option<RuleVerdict> {
        let fault = self.label_fault()?;
        Some(RuleVerdict::Deny {
            rule: RulePlace::from(&*fault),
            fault: Some(fault.message.as_str().into()),
        })
    }
}

impl Upstream for HostedServer {
    fn refusal(&self, uid: u32, method: Option<Method>) -> Option<Failure> {
        let inner = self.inner();
        // A process that runs is not ended by what blocks the next.
        let is_running = inner.running().next().is_some();
        let blocked = inner.blocked.as_deref().filter(|_| !is_running);
        if let Some(reason) = blocked {
            return Some(self.blocked(reason));
        }
        // These are answered from what is known, or are no trial.
        let is_tried = !matches!(
            method,
            Some(Method::ResourcesSubscribe | Method::SkillsGet | Method::DirectoryRead)
        );
        let breaker = inner.breakers.get(&uid).filter(|_| is_tried)?;
        Some(self.left_alone(breaker, breaker.wait()?))
    }

    /// 2024-11-05 had completions and no word for them; of a server that was never seen it is not
    /// known yet.
    fn completes(&self) -> bool {
        let catalogue = self.offer.catalogue();
        !self.offer.is_in_table()
            || catalogue.can().completions
            || catalogue.version == Some(Version::V2024_11_05)
    }

    fn prefix(&self) -> Option<&str> {
        self.spec.entry.prefix.then_some(&*self.spec.id)
    }

    fn is_recorded_in_full(&self) -> bool {
        self.spec.entry.record_full
    }

    fn redact(&self, text: &str) -> String {
        self.spec.redact(text)
    }

    fn result_limit(&self) -> Option<u64> {
        self.spec.entry.result_limit
    }

    fn relays_whole(&self) -> bool {
        self.spec.entry.whole
    }

    fn has_trail(&self) -> bool {
        self.spec.entry.ssh().is_some()
    }

    fn is_integration(&self) -> bool {
        self.spec.entry.is_integration()
    }

    fn metrics(&self) -> &CallMetrics {
        &self.spec.metrics
    }
}
