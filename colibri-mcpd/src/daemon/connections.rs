//! The clients that are connected: who comes and goes, who is told to go, what they are told, and
//! how all of them end.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use parking_lot::Mutex;
use serde_json::json;
use tokio::sync::{Notify, watch};
use tokio::time::{sleep, timeout};
use tracing::{debug, warn};

use super::wake::WakeEvent;
use crate::catalog::{ChangedFeatures, Changes};
use crate::relay::{Call, CallOutcome, Chain, Client, SuspendedCall};
use colibri_peer::ByteBudget;
use colibri_policy::{Clients, Gate};
use colibri_protocol::answer::subscription_closed;
use colibri_protocol::logging::{Level, message};
use colibri_protocol::subscription::list_changed;
use colibri_protocol::{AnswerBody, Feature, Features, Method};

/// The time for which a client may be over its byte budget.
const PATIENCE: Duration = Duration::from_secs(10);
/// The interval at which the budgets are checked while a client is over its own.
const ROUND: Duration = Duration::from_millis(500);
/// The interval while none is: shorter than the time that a client may be over its budget.
const IDLE_ROUND: Duration = Duration::from_secs(5);
/// The time for which changes are gathered before clients are notified.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// The longest time for calls in flight when the daemon is to end.
const DRAIN: Duration = Duration::from_secs(5);
/// The longest time for the answers to calls that are given up then.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// The longest time in which clients must go.
const FAREWELL: Duration = Duration::from_secs(3);

/// Bytes queued for a client over which it is not woken: it must not be let go for what it did not
/// ask for.
const MAX_QUEUED: usize = 1 << 20;

/// The reason for which clients are closed when the daemon ends.
const ENDING: &str = "the daemon is ending";

/// The bytes and connections that the clients make the daemon hold.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Connections.
    pub clients: usize,
    /// Connections that there have been in all.
    pub came: u64,
    /// Calls without an answer.
    pub in_flight: usize,
    /// Bytes queued for all clients and servers.
    pub queued: usize,
    /// Bytes queued for the client that has most.
    pub most_queued: usize,
}

/// The number of clients.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct ConnectionCount {
    /// Connections of either framing.
    pub connections: usize,
    /// Those of them that speak HTTP.
    pub http: usize,
    /// Sessions over HTTP, which are no connections.
    pub sessions: usize,
}

/// The kind of a client in the counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ConnectionKind {
    /// A connection.
    Connection,
    /// A session over HTTP, which has connections or none.
    Session,
    /// A request over HTTP.
    Request,
}

/// A connection, as the daemon keeps it.
pub struct Connection {
    client: Arc<Client>,
    kind: ConnectionKind,
    speaks_http: AtomicBool,
    told_to_go: OnceLock<&'static str>,
    told: Notify,
    initialized: AtomicBool,
    held: Mutex<Vec<Weak<SuspendedCall>>>,
}

impl Connection {
    /// Waits until the daemon wants the client to go, and tells why.
    pub(crate) async fn told_to_go(&self) -> &'static str {
        loop {
            let told = self.told.notified();
            if let Some(why) = self.told_to_go.get() {
                return why;
            }
            told.await;
        }
    }

    /// Notes that it speaks HTTP.
    pub(crate) fn speaks_http(&self) {
        self.speaks_http.store(true, Ordering::Relaxed);
    }

    /// Waits until no call of the client is in flight.
    pub async fn all_answered(&self) {
        self.client.all_landed().await;
    }

    /// Has the client go.
    pub(crate) fn tell_to_go(&self, why: &'static str) {
        // What was said first holds.
        let _ = self.told_to_go.set(why);
        self.told.notify_waiters();
    }

    /// Notifies the client that a list has changed, if it wants to know.
    fn tell_changed(&self, feature: Feature) {
        let client = &self.client;
        if self.initialized.load(Ordering::Acquire) {
            client.outbox.push(&list_changed(feature, None));
        }
        for subscription in client.told_of(feature) {
            client
                .outbox
                .push(&list_changed(feature, Some(&subscription)));
        }
    }

    fn take_held(&self) -> Vec<Box<Call>> {
        let held = std::mem::take(&mut *self.held.lock());
        held.iter()
            .filter_map(|held| held.upgrade()?.take())
            .collect()
    }
}

/// All connections.
pub struct Connections {
    chain: Arc<Chain>,
    budget: Arc<ByteBudget>,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    next: AtomicU64,
    came: AtomicU64,
    /// Set with `open` locked: whoever comes later is told to go.
    ending: AtomicBool,
}

impl Connections {
    /// None yet. Clients that do not read are told to go, and those that want to know are told of
    /// `changes` of what servers offer, for as long as this is there.
    pub fn new(
        chain: Arc<Chain>,
        budget: Arc<ByteBudget>,
        changes: &Arc<Changes>,
    ) -> Arc<Connections> {
        let connections = Arc::new(Connections {
            chain,
            budget,
            open: Mutex::default(),
            next: AtomicU64::new(1),
            came: AtomicU64::new(0),
            ending: AtomicBool::new(false),
        });
        tokio::spawn(Connections::watch_budgets(Arc::downgrade(&connections)));
        tokio::spawn(Connections::watch_changes(
            Arc::downgrade(&connections),
            Arc::downgrade(changes),
            changes.come(),
        ));
        connections
    }

    fn all(&self) -> Vec<Arc<Connection>> {
        self.open.lock().values().cloned().collect()
    }

    fn of(&self, client: &Client) -> Option<Arc<Connection>> {
        self.open.lock().get(&client.connection).cloned()
    }

    /// A number for a connection.
    pub fn next_number(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A client comes.
    pub fn enter(&self, client: Arc<Client>, kind: ConnectionKind) -> Arc<Connection> {
        let connection = Arc::new(Connection {
            client: client.clone(),
            kind,
            speaks_http: AtomicBool::new(false),
            told_to_go: OnceLock::new(),
            told: Notify::new(),
            initialized: AtomicBool::new(false),
            held: Mutex::default(),
        });
        if kind == ConnectionKind::Connection {
            self.came.fetch_add(1, Ordering::Relaxed);
        }
        let mut open = self.open.lock();
        if self.ending.load(Ordering::Relaxed) {
            client.close_admission();
            connection.tell_to_go(ENDING);
        }
        open.insert(client.connection, connection.clone());
        connection
    }

    /// A client is gone.
    pub fn leave(&self, client: &Client) {
        self.open.lock().remove(&client.connection);
    }

    /// A client is gone. Tells whether it was the last of its user.
    pub(crate) fn leave_last(&self, client: &Client) -> bool {
        let mut open = self.open.lock();
        open.remove(&client.connection);
        let uid = client.caller.uid;
        // An agent that runs for somebody is not that person.
        let is_theirs = |client: &Client| client.caller.uid == uid && client.door.is_none();
        client.door.is_none()
            && !open
                .values()
                .any(|connection| is_theirs(&connection.client))
    }

    /// The number of connections by kind.
    pub fn count(&self) -> ConnectionCount {
        let mut count = ConnectionCount::default();
        for connection in self.open.lock().values() {
            match connection.kind {
                ConnectionKind::Connection => {
                    count.connections += 1;
                    count.http += usize::from(connection.speaks_http.load(Ordering::Relaxed));
                }
                ConnectionKind::Session => count.sessions += 1,
                ConnectionKind::Request => {}
            }
        }
        count
    }

    /// The bytes and connections that the clients make the daemon hold.
    pub fn load(&self) -> Load {
        let all = self.all();
        let queued = all
            .iter()
            .map(|connection| connection.client.outbox.queued());
        Load {
            clients: self.count().connections,
            came: self.came.load(Ordering::Relaxed),
            in_flight: all
                .iter()
                .map(|connection| connection.client.in_flight())
                .sum(),
            queued: self.budget.queued(),
            most_queued: queued.max().unwrap_or(0),
        }
    }

    /// A legacy client has finished its handshake and may be told things.
    pub fn initialized(&self, client: &Client) {
        if let Some(connection) = self.of(client) {
            connection.initialized.store(true, Ordering::Release);
        }
    }

    /// Keeps track of a call that waits for its cancellation.
    pub fn hold(&self, client: &Client, held: &Arc<SuspendedCall>) {
        if let Some(connection) = self.of(client) {
            let mut list = connection.held.lock();
            list.retain(|held| held.strong_count() > 0);
            list.push(Arc::downgrade(held));
        }
    }

    /// Closes a client's subscriptions: nothing further will be told.
    pub(crate) fn end_subscriptions(&self, client: &Client) {
        if let Some(connection) = self.of(client) {
            self.close_held(&connection);
        }
    }

    fn close_held(&self, connection: &Connection) {
        let closed = connection.take_held().into_iter().map(|call| {
            let answer = match call.method {
                Some(Method::SubscriptionsListen) => {
                    AnswerBody::Result(subscription_closed(call.id_text(), call.version))
                }
                _ => stream_ended("the connection or the daemon is ending"),
            };
            (
                call,
                CallOutcome::Own {
                    answer,
                    failed: false,
                },
            )
        });
        self.chain.finish(closed.collect());
    }

    /// Closes the connections of clients that do not read.
    async fn watch_budgets(connections: Weak<Connections>) {
        let mut is_any_over = false;
        loop {
            sleep(if is_any_over { ROUND } else { IDLE_ROUND }).await;
            let Some(connections) = connections.upgrade() else {
                return;
            };
            is_any_over = false;
            for connection in connections.all() {
                let client = &connection.client;
                let Some(since) = client.outbox.over_since() else {
                    continue;
                };
                is_any_over = true;
                if since.elapsed() < PATIENCE {
                    continue;
                }
                warn!(
                    connection = client.connection,
                    uid = client.caller.uid,
                    "client does not read, or does not end its line"
                );
                client.outbox.discard();
                connection.tell_to_go("it does not read its answers, or does not end its line");
            }
        }
    }

    /// Notifies clients when their catalog has changed.
    async fn watch_changes(
        connections: Weak<Connections>,
        changes: Weak<Changes>,
        mut come: watch::Receiver<()>,
    ) {
        while come.changed().await.is_ok() {
            sleep(DEBOUNCE).await;
            come.mark_unchanged();
            let (Some(connections), Some(changes)) = (connections.upgrade(), changes.upgrade())
            else {
                return;
            };
            let changed = changes.take();
            if connections.chain.rules.gates.load().is_open(Gate::External) {
                connections.tell_changes(&changed);
            }
        }
    }

    /// Notifies each client of the lists that changed for it: nobody is told that a server has
    /// changed that they may not see.
    fn tell_changes(&self, changed: &ChangedFeatures) {
        let all = self.all();
        debug!(
            clients = all.len(),
            servers = changed.len(),
            "telling clients what changed"
        );
        for connection in all {
            let client = &connection.client;
            let rights = self.chain.rules.rights(client);
            let seen = changed.iter().filter(|(server, _)| rights.sees_any(server));
            let features = seen.fold(Features::NONE, |all, (_, features)| all | *features);
            // Templates are told of as resources are.
            let resources = features.has(Feature::Resource) || features.has(Feature::Template);
            let kinds = [
                (Feature::Tool, features.has(Feature::Tool)),
                (Feature::Prompt, features.has(Feature::Prompt)),
                (Feature::Resource, resources),
            ];
            for (feature, _) in kinds.into_iter().filter(|(_, changed)| *changed) {
                connection.tell_changed(feature);
            }
        }
    }

    /// Notifies those clients that their list of tools has changed whom another client policy shows
    /// other ones of the same, or the same under other names; then their prompts have other names,
    /// too.
    pub(crate) fn tell_list_modes(&self, before: &Clients) {
        if !self.chain.rules.gates.load().is_open(Gate::External) {
            return;
        }
        for connection in self.all() {
            let caller = &connection.client.caller;
            // Who sees one server alone is listed all of it.
            if connection.client.session.only().is_some() {
                continue;
            }
            let (before, now) = (
                before.rights(caller),
                self.chain.rules.clients.load().rights(caller),
            );
            let is_renamed = !before.means_accounts_of(&now);
            if is_renamed || before.list != now.list {
                connection.tell_changed(Feature::Tool);
            }
            if is_renamed {
                connection.tell_changed(Feature::Prompt);
            }
        }
    }

    /// Notifies clients of events of their user or agent: each event as a log message, and all of
    /// them as one change of the list of tools, for clients that look at nothing else. Those that
    /// see one server alone have no task tools.
    pub(super) fn wake(&self, wakes: &[WakeEvent]) {
        for connection in self.all() {
            let client = &connection.client;
            let has_room = client.outbox.queued() < MAX_QUEUED && client.session.only().is_none();
            let mut concerning = wakes
                .iter()
                .filter(|wake| has_room && wake.concerns(client))
                .peekable();
            if concerning.peek().is_none() {
                continue;
            }
            let least = client.session.log_level();
            let is_told = connection.initialized.load(Ordering::Acquire)
                && least.is_none_or(|least| Level::NOTICE >= least);
            let listening = client.logged_to(Level::NOTICE);
            for wake in concerning {
                let data = wake.data.to_string();
                if is_told {
                    client.outbox.push(&message(Level::NOTICE, &data, None));
                }
                for subscription in &listening {
                    client
                        .outbox
                        .push(&message(Level::NOTICE, &data, Some(subscription)));
                }
            }
            connection.tell_changed(Feature::Tool);
        }
    }

    /// Notifies all clients that their list of tools has changed: a gate was opened or closed.
    pub(crate) fn tell_tools_changed(&self) {
        for connection in self.all() {
            connection.tell_changed(Feature::Tool);
        }
    }

    /// Ends all: further calls are refused, those in flight get a while and are given up then;
    /// clients go, and `servers` end meanwhile.
    pub async fn end<T>(&self, servers: impl Future<Output = T>) -> T {
        let all: Vec<_> = {
            let open = self.open.lock();
            self.ending.store(true, Ordering::Relaxed);
            open.values().cloned().collect()
        };
        for connection in &all {
            connection.client.close_admission();
        }
        for connection in &all {
            self.close_held(connection);
        }
        let quiet = async || {
            for connection in &all {
                connection.all_answered().await;
            }
        };
        if timeout(DRAIN, quiet()).await.is_err() {
            warn!(
                "calls are still in flight after {} s: they are given up",
                DRAIN.as_secs()
            );
        }
        // Servers are told of calls that are given up before their input is closed.
        for connection in &all {
            connection.client.give_up();
        }
        let let_go = async {
            // What waits for a server to start is answered once that is over.
            let _ = timeout(LAST_ANSWERS, quiet()).await;
            for connection in &all {
                connection.client.disconnect();
                if connection.kind != ConnectionKind::Connection {
                    connection.client.outbox.close();
                }
                connection.tell_to_go(ENDING);
            }
        };
        let (ended, ()) = tokio::join!(servers, let_go);
        let gone = async {
            while self.count().connections > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // Clients that do not read are given up after their flush time anyway.
        let _ = timeout(FAREWELL, gone).await;
        ended
    }
}

/// The result of an operator's stream that ends.
pub(crate) fn stream_ended(why: &str) -> AnswerBody {
    AnswerBody::Result(json!({ "ended": why }).to_string().into_bytes())
}
