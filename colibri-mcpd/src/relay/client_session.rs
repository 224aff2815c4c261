//! The agreement with a client, and its abilities.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};

use super::client_requests::ClientRequests;
use super::flow_slot::FlowSlot;
use super::subscription_guard::SubscriptionGuard;
use colibri_peer::Outbox;
use colibri_policy::Rights;
use colibri_protocol::logging::Level;
use colibri_protocol::{Askable, ClientInfo, SessionPhase as Agreed, Version};
use parking_lot::Mutex;

/// The agreement with a client and its abilities: for as long as its connection lives, where it
/// writes lines; over HTTP for a legacy session, whose requests are a [`super::Client`] each, or
/// for one modern request.
pub struct ClientSession {
    /// The number of the connection or of the HTTP session, never used twice by one daemon.
    pub number: u64,
    /// True if it outlives the request.
    stays: bool,
    agreed: OnceLock<(Version, Askable)>,
    /// The client's last declaration of itself.
    info: Mutex<Option<Arc<ClientInfo>>>,
    /// The limits of what it changes and where it sends things.
    pub(super) flow: FlowSlot,
    /// The open requests to it.
    pub asked: ClientRequests,
    view: OnceLock<SingleServerView>,
    looks: LookCounts,
    /// The log messages that a legacy client wants.
    log_level: Mutex<Option<Level>>,
    /// The stream of messages that answer no request, if there is one apart from that of the
    /// answers.
    stream: OnceLock<Arc<Outbox>>,
    /// The subscriptions of a legacy client, by the URIs that it knows. `None`: it is gone.
    subscriptions: Mutex<Option<BTreeMap<String, SubscriptionGuard>>>,
}

/// The looks of a client at the daemon's own state.
#[derive(Default)]
struct LookCounts {
    all: AtomicU64,
    failed: AtomicU64,
}

/// The view of a client that sees one server alone.
struct SingleServerView {
    server: Arc<str>,
    /// Its rights there.
    rights: ReducedRights,
}

/// Rights of which something is taken away, and what they were made of.
#[derive(Default)]
pub(super) struct ReducedRights {
    known: Mutex<Option<(Weak<Rights>, Arc<Rights>)>>,
}

impl ReducedRights {
    /// The part of these rights that is left.
    pub(super) fn of(
        &self,
        rights: &Arc<Rights>,
        lessen: impl Fn(&Rights) -> Rights,
    ) -> Arc<Rights> {
        let mut known = self.known.lock();
        match &*known {
            Some((of, left)) if of.as_ptr() == Arc::as_ptr(rights) => left.clone(),
            _ => {
                let left = Arc::new(lessen(rights));
                *known = Some((Arc::downgrade(rights), left.clone()));
                left
            }
        }
    }
}

impl ClientSession {
    /// A session that has not agreed on anything.
    pub fn new(number: u64) -> ClientSession {
        ClientSession {
            number,
            stays: true,
            agreed: OnceLock::new(),
            info: Mutex::default(),
            flow: FlowSlot::default(),
            asked: ClientRequests::default(),
            view: OnceLock::new(),
            looks: LookCounts::default(),
            log_level: Mutex::default(),
            stream: OnceLock::new(),
            subscriptions: Mutex::new(Some(BTreeMap::new())),
        }
    }

    /// The session of one request, which is over with its answer.
    pub(crate) fn of_request(number: u64) -> ClientSession {
        ClientSession {
            stays: false,
            ..ClientSession::new(number)
        }
    }

    /// The number by which server processes are kept for it alone; none for a request that has no
    /// session, whose processes are its user's.
    pub fn owner(&self) -> Option<u64> {
        self.stays.then_some(self.number)
    }

    /// Of all servers it sees this one alone, under its own names, and nothing of ours; for good.
    pub(crate) fn show_only(&self, server: &str) {
        let _ = self.view.set(SingleServerView {
            server: server.into(),
            rights: ReducedRights::default(),
        });
    }

    /// The one server that it sees, if it sees but one.
    pub fn only(&self) -> Option<&Arc<str>> {
        self.view.get().map(|view| &view.server)
    }

    /// The part of these rights that is left to it.
    pub(super) fn narrowed(&self, rights: Arc<Rights>) -> Arc<Rights> {
        match self.view.get() {
            Some(view) => view
                .rights
                .of(&rights, |rights| rights.narrowed(&view.server)),
            None => rights,
        }
    }

    /// It wants log messages of this level and above.
    pub(crate) fn set_log_level(&self, level: Level) {
        *self.log_level.lock() = Some(level);
    }

    /// The least level of the log messages that it wants, if it said so.
    pub fn log_level(&self) -> Option<Level> {
        *self.log_level.lock()
    }

    /// From now on it is told there what nobody asked for.
    pub(crate) fn told_on(&self, stream: Arc<Outbox>) {
        let _ = self.stream.set(stream);
    }

    /// The stream of messages that answer no request; `None`: that of the answers.
    pub fn stream(&self) -> Option<Arc<Outbox>> {
        self.stream.get().cloned()
    }

    /// Keeps a subscription to a resource until it is ended, or the client is gone.
    pub fn subscribe(&self, uri: String, lasting: SubscriptionGuard) {
        let mut subscriptions = self.subscriptions.lock();
        let before = match &mut *subscriptions {
            Some(all) => all.insert(uri, lasting),
            None => Some(lasting),
        };
        // What ends is told to a server: not while others wait.
        drop(subscriptions);
        drop(before);
    }

    /// Ends a subscription, if there is one.
    pub fn unsubscribe(&self, uri: &str) {
        let ended = self
            .subscriptions
            .lock()
            .as_mut()
            .and_then(|all| all.remove(uri));
        drop(ended);
    }

    /// The number of resources that it is subscribed to.
    pub fn subscribed(&self) -> usize {
        self.subscriptions.lock().as_ref().map_or(0, BTreeMap::len)
    }

    /// It is gone, and its subscriptions with it.
    pub fn end(&self) {
        let ended = self.subscriptions.lock().take();
        drop(ended);
    }

    /// Counts a look at the daemon's own state. `true`: it is the first.
    pub(crate) fn begin_look(&self) -> bool {
        self.looks.all.fetch_add(1, Ordering::Relaxed) == 0
    }

    /// Counts a look that was refused, or failed.
    pub(crate) fn note_failed_look(&self) {
        self.looks.failed.fetch_add(1, Ordering::Relaxed);
    }

    /// The number of looks, and of those that failed.
    pub(crate) fn looks(&self) -> (u64, u64) {
        let LookCounts { all, failed } = &self.looks;
        (all.load(Ordering::Relaxed), failed.load(Ordering::Relaxed))
    }

    /// The agreement so far.
    pub fn agreed(&self) -> Agreed {
        self.agreed
            .get()
            .map_or(Agreed::Fresh, |(version, _)| Agreed::Legacy(*version))
    }

    /// Its handshake agreed on this version, and said what it can be asked, for good: there is one
    /// handshake.
    pub fn agree(&self, version: Version, askable: Askable) {
        let _ = self.agreed.set((version, askable));
    }

    /// The client by its own account: as a request declares it, else as the last one did that
    /// declared anything.
    pub fn client_info(&self, declared: Option<Arc<ClientInfo>>) -> Option<Arc<ClientInfo>> {
        let mut known = self.info.lock();
        if declared.is_some() {
            known.clone_from(&declared);
        }
        known.clone()
    }

    /// The kinds of requests that it accepts, as its handshake says.
    pub fn askable(&self) -> Askable {
        self.agreed
            .get()
            .map_or(Askable::NOTHING, |(_, askable)| *askable)
    }
}
