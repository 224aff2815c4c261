//! What all connections share.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, Weak};
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::{Instant, sleep, timeout};
use tracing::{debug, info, warn};

use super::facts::CallerFacts;
use super::lists::{Asked, Lists};
use super::own::Own;
use super::sources::Sources;
use super::watch::ended;
use crate::chain::{Arguments, Call, Chain, Client, Failure, Outcome, Page, Parked, Parts, Target};
use crate::config::Config;
use crate::host::{Host, Server, Table, Viewer, Wanted};
use crate::policy::Gate;
use crate::store::Store;
use crate::tools::{self, Route, Skills, ToolOutcome};
use crate::wire::Budget;
use colibri_protocol::answer::{join_instructions, subscription_closed, tools_list_changed};
use colibri_protocol::tools::Cursor;
use colibri_protocol::{Answer, Method, RpcError};
use colibri_wire::Json;

/// How long a client may be over its byte budget.
const PATIENCE: Duration = Duration::from_secs(10);
/// How often the budgets are looked at.
const ROUND: Duration = Duration::from_millis(500);
/// The most bytes queued in the whole daemon, with what clients began to say.
pub const MOST_QUEUED: usize = 256 * 1024 * 1024;
/// How long changes of the tools are gathered before clients are told.
const DEBOUNCE: Duration = Duration::from_millis(100);
/// How long calls in flight may take when the daemon is told to end.
const DRAIN: Duration = Duration::from_secs(5);
/// How long calls that are given up then may take to be answered with that.
const LAST_ANSWERS: Duration = Duration::from_secs(2);
/// How long servers may take to end after that: grace, TERM and KILL of the one that watches them, and a little more.
const SERVERS_END: Duration = Duration::from_secs(10);

/// Why clients and servers go when the daemon does.
const ENDING: &str = "the daemon is ending";

/// What we say of ourselves to models.
const INSTRUCTIONS: &str = "Colibri MCP hosts the MCP servers of this machine. Tools called colibri_* are its own; \
tools called SERVER__TOOL belong to the server named before the two underscores. colibri_snapshot tells in one call what \
there is and in which state.\n";

/// The limits of every connection.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Bytes of one message.
    pub frame: usize,
    /// Bytes that a client may be behind beyond one message.
    pub ahead: usize,
    /// Calls in flight of one client.
    pub in_flight: usize,
}

/// What the clients make the daemon hold.
#[derive(Debug, Clone, Copy)]
pub struct Load {
    /// Connections.
    pub clients: usize,
    /// Calls without an answer.
    pub in_flight: usize,
    /// Bytes queued for all clients and servers.
    pub queued: usize,
    /// Bytes queued for the client that has most.
    pub most_queued: usize,
}

/// The daemon.
pub struct Daemon {
    /// What it runs with.
    pub config: Config,
    /// Which files were in force.
    pub sources: Sources,
    /// The limits of every connection.
    pub limits: Limits,
    /// The bytes queued for all clients and servers.
    pub budget: Arc<Budget>,
    /// When it started.
    pub started: Instant,
    chain: Arc<Chain>,
    host: Arc<Host>,
    store: Arc<Store>,
    skills: Skills,
    lists: Lists,
    guests: Mutex<BTreeMap<u64, Arc<Guest>>>,
    next: AtomicU64,
    /// Set with `guests` locked: whoever comes later is told to go.
    ending: AtomicBool,
    registry_error: Mutex<Option<String>>,
}

/// A connection, as the daemon keeps it.
pub struct Guest {
    client: Arc<Client>,
    told_to_go: watch::Sender<Option<&'static str>>,
    initialized: AtomicBool,
    parked: Mutex<Vec<Weak<Parked>>>,
}

impl Guest {
    /// Waits until the daemon wants the client to go, and tells why.
    pub async fn told_to_go(&self) -> &'static str {
        let mut told = self.told_to_go.subscribe();
        match told.wait_for(Option::is_some).await {
            Ok(why) => why.unwrap_or_default(),
            Err(_) => ENDING,
        }
    }

    /// Waits until no call of the client is in flight.
    pub async fn all_answered(&self) {
        self.client.all_landed().await;
    }

    fn tell_to_go(&self, why: &'static str) {
        self.told_to_go.send_replace(Some(why));
    }

    fn take_parked(&self) -> Vec<Call> {
        let parked = std::mem::take(&mut *self.parked.lock().unwrap_or_else(|poisoned| poisoned.into_inner()));
        parked.iter().filter_map(|parked| parked.upgrade()?.take()).collect()
    }
}

impl Daemon {
    /// A daemon that serves nobody yet.
    pub fn new(
        config: Config,
        sources: Sources,
        chain: Arc<Chain>,
        host: Arc<Host>,
        store: Arc<Store>,
        budget: Arc<Budget>,
    ) -> Arc<Daemon> {
        let limits = Limits {
            frame: config.max_frame,
            ahead: 4 * 1024 * 1024,
            in_flight: config.max_in_flight,
        };
        let skills = Skills::new(config.skills.clone());
        let daemon = Arc::new(Daemon {
            config,
            sources,
            limits,
            budget,
            started: Instant::now(),
            chain,
            host,
            store,
            skills,
            lists: Lists::default(),
            guests: Mutex::default(),
            next: AtomicU64::new(1),
            ending: AtomicBool::new(false),
            registry_error: Mutex::default(),
        });
        tokio::spawn(Daemon::watch_budgets(Arc::downgrade(&daemon)));
        tokio::spawn(Daemon::tell_changes(Arc::downgrade(&daemon)));
        daemon
    }

    fn guests(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Guest>>> {
        self.guests.lock().unwrap_or_else(|poisoned| poisoned.into_inner())
    }

    /// The stages that calls pass.
    pub fn chain(&self) -> &Arc<Chain> {
        &self.chain
    }

    /// The external servers.
    pub fn host(&self) -> &Arc<Host> {
        &self.host
    }

    /// A number for a connection.
    pub fn next_connection(&self) -> u64 {
        self.next.fetch_add(1, Ordering::Relaxed)
    }

    /// A client comes.
    pub fn enter(&self, client: Arc<Client>) -> Arc<Guest> {
        let guest = Arc::new(Guest {
            client: client.clone(),
            told_to_go: watch::Sender::new(None),
            initialized: AtomicBool::new(false),
            parked: Mutex::default(),
        });
        let mut guests = self.guests();
        if self.ending.load(Ordering::Relaxed) {
            client.close_admission();
            guest.tell_to_go(ENDING);
        }
        guests.insert(client.connection, guest.clone());
        drop(guests);
        guest
    }

    /// A client is gone.
    pub fn leave(&self, client: &Client) {
        self.guests().remove(&client.connection);
        self.host.disconnected(client.connection);
    }

    /// Clients that are connected.
    pub fn clients(&self) -> usize {
        self.guests().len()
    }

    /// What the clients make the daemon hold.
    pub fn load(&self) -> Load {
        let guests: Vec<_> = self.guests().values().cloned().collect();
        Load {
            clients: guests.len(),
            in_flight: guests.iter().map(|guest| guest.client.in_flight()).sum(),
            queued: self.budget.queued(),
            most_queued: guests
                .iter()
                .map(|guest| guest.client.outbox.queued())
                .max()
                .unwrap_or(0),
        }
    }

    /// A legacy client has finished its handshake and may be told things.
    pub fn initialized(&self, client: &Client) {
        if let Some(guest) = self.guests().get(&client.connection) {
            guest.initialized.store(true, Ordering::Release);
        }
    }

    /// Keeps track of a call that waits for its cancellation.
    pub fn park(&self, client: &Client, parked: Arc<Parked>) {
        if let Some(guest) = self.guests().get(&client.connection) {
            let mut list = guest.parked.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
            list.retain(|parked| parked.strong_count() > 0);
            list.push(Arc::downgrade(&parked));
        }
    }

    /// Closes a client's subscriptions: nothing further will be told.
    pub fn end_subscriptions(&self, client: &Client) {
        let guest = self.guests().get(&client.connection).cloned();
        let calls = guest.map(|guest| guest.take_parked()).unwrap_or_default();
        self.close_subscriptions(calls);
    }

    fn close_subscriptions(&self, calls: Vec<Call>) {
        let closed = calls.into_iter().map(|call| {
            let answer = match call.method {
                Some(Method::SubscriptionsListen) => Answer::Result(subscription_closed(&call.id_text, call.version)),
                _ => ended("the connection or the daemon is ending"),
            };
            (call, Outcome::Own { answer, failed: false })
        });
        self.chain.finish(closed.collect());
    }

    /// Our instructions, and those of the servers that the client may see.
    pub fn instructions(&self, client: &Client) -> String {
        let rights = self.chain.rules.rights(client);
        let servers = self.host.servers();
        let texts: Vec<_> = servers
            .iter()
            .filter(|(id, _)| rights.sees_any(id))
            .filter_map(|(id, server)| {
                let (catalogue, judgement) = server.definitions();
                let text = catalogue.instructions.clone()?;
                judgement.instructions.is_approved().then_some((id, text))
            })
            .collect();
        join_instructions(
            INSTRUCTIONS,
            texts.iter().map(|(id, text)| (id.as_str(), text.as_str())),
        )
    }

    /// Who answers a tool call.
    pub fn tool(
        self: &Arc<Self>,
        name: &str,
        params: Json<'_>,
        parts: &mut Parts,
        client: &Client,
    ) -> Result<Arc<dyn Target>, RpcError> {
        if let Some(definition) = tools::definition(name) {
            return match definition.route {
                Route::Here(tool) => Ok(Own::tool(self.clone(), definition, tool)),
                Route::Relay => self.external_call(definition, params, parts, client),
            };
        }
        Ok(self.external_tool(name, Wanted::Exposed(name.to_owned()), client))
    }

    /// Who answers a call of an external tool, by whatever name.
    fn external_tool(&self, operation: &str, wanted: Wanted, client: &Client) -> Arc<dyn Target> {
        let rights = self.chain.rules.rights(client);
        let found = self.host.find(wanted, &rights);
        found.unwrap_or_else(|outcome| Own::over(operation, Gate::None, outcome))
    }

    /// Who answers a method that MCP does not know: the server whose entry lists it.
    pub fn method(&self, name: &str) -> Option<Arc<dyn Target>> {
        let table = self.host.table();
        let method = table.method(name)?;
        Some(method.clone())
    }

    /// The target of `colibri_external_mcp_call_tool`.
    fn external_call(
        self: &Arc<Self>,
        definition: &tools::Definition,
        params: Json<'_>,
        parts: &mut Parts,
        client: &Client,
    ) -> Result<Arc<dyn Target>, RpcError> {
        let arguments = params.get("arguments");
        let parsed = tools::parse_external_call(arguments.map(|arguments| arguments.text().as_bytes()));
        let (call, outer) = match (parsed, arguments) {
            (Ok(call), Some(outer)) => (call, outer),
            (Err(error), _) => return Ok(Own::done(definition, error.outcome())),
            (Ok(_), None) => return Err(RpcError::invalid_params("params.arguments must be an object")),
        };
        let wanted = Wanted::Origin(call.server, call.tool);
        let target = self.external_tool(definition.name, wanted, client);
        let inner = call.arguments.map(|inner| {
            let at = outer.span().start + (inner.as_ptr() as usize - outer.text().as_ptr() as usize);
            at..at + inner.len()
        });
        parts.arguments = Arguments::Within {
            outer: outer.span(),
            inner,
        };
        Ok(target)
    }

    /// The servers that were never seen and that this client may see: nobody starts what is hidden from them.
    fn unseen_by(&self, client: &Client) -> Vec<Arc<Server>> {
        if self.chain.rules.gates_for(client).check(Gate::External).is_err() {
            return Vec::new();
        }
        let rights = self.chain.rules.rights(client);
        let mut unseen = self.host.unseen();
        unseen.retain(|server| rights.sees_any(&server.id));
        unseen
    }

    /// Has the servers started that were never seen, for a list: those that it is to wait for, and until when.
    pub fn discover(&self, call: &Call) -> Vec<(Instant, Arc<Server>)> {
        let unseen = self.unseen_by(&call.client);
        self.host.discover(&unseen, &call.client.caller, call.client.connection)
    }

    /// The result of `tools/list` for a caller.
    ///
    /// # Errors
    /// Where the daemon has no room for it.
    pub fn list(&self, call: &Call, cursor: Option<&Cursor>) -> Result<Arc<Page>, Failure> {
        let external = self.chain.rules.gates.load().is_open(Gate::External);
        let servers = self.host.servers();
        let uid = call.client.caller.uid;
        let viewer = Viewer::User(uid);
        let standing = servers.values().filter(|_| external).map(|server| {
            let catalogue = server.catalogue();
            (server.state(viewer).0, catalogue.version, catalogue.ttl_ms)
        });
        let asked = Asked {
            uid,
            table: self.host.table(),
            rights: self.chain.rules.rights(&call.client),
            external,
            version: call.version,
            cursor: cursor.cloned(),
            standing: standing.collect(),
        };
        self.lists.page(asked, &self.budget)
    }

    /// The external tools, as they are offered now.
    pub fn table(&self) -> Arc<Table> {
        self.host.table()
    }

    /// Answers a call of a tool of ours.
    pub fn own_tool(self: &Arc<Self>, tool: tools::Tool, call: &Call) -> ToolOutcome {
        let facts = CallerFacts::new(self.clone(), call.client.clone());
        let context = tools::Context {
            facts: &facts,
            store: &self.store,
            skills: &self.skills,
            uid: call.client.caller.uid,
        };
        tools::call(tool, Some(call.arguments()), context)
    }

    /// Why the registry could not be loaded, or reloaded.
    pub fn registry_error(&self) -> Option<String> {
        self.registry_error
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner())
            .clone()
    }

    /// Notes why the registry could not be loaded, or that it could.
    pub fn set_registry_error(&self, error: Option<String>) {
        *self
            .registry_error
            .lock()
            .unwrap_or_else(|poisoned| poisoned.into_inner()) = error;
    }

    /// Tells clients to go that do not read.
    async fn watch_budgets(daemon: Weak<Daemon>) {
        loop {
            sleep(ROUND).await;
            let Some(daemon) = daemon.upgrade() else { return };
            let guests: Vec<_> = daemon.guests().values().cloned().collect();
            let behind = |guest: &&Arc<Guest>| {
                let since = guest.client.outbox.over_since();
                since.is_some_and(|since| since.elapsed() >= PATIENCE)
            };
            for guest in guests.iter().filter(behind) {
                warn!(
                    connection = guest.client.connection,
                    uid = guest.client.caller.uid,
                    "client does not read, or does not end its line"
                );
                guest.client.outbox.discard();
                guest.tell_to_go("it does not read its answers, or does not end its line");
            }
        }
    }

    /// Tells clients when the tools have changed.
    async fn tell_changes(daemon: Weak<Daemon>) {
        let Some(mut changes) = daemon.upgrade().map(|daemon| daemon.host.changes()) else {
            return;
        };
        while changes.changed().await.is_ok() {
            sleep(DEBOUNCE).await;
            changes.mark_unchanged();
            let Some(daemon) = daemon.upgrade() else { return };
            if !daemon.chain.rules.gates.load().is_open(Gate::External) {
                continue;
            }
            let guests: Vec<_> = daemon.guests().values().cloned().collect();
            debug!(clients = guests.len(), "telling clients that tools changed");
            for guest in guests {
                if guest.initialized.load(Ordering::Acquire) {
                    guest.client.outbox.push(&tools_list_changed(None));
                }
                for subscription in guest.client.subscribed() {
                    guest.client.outbox.push(&tools_list_changed(Some(&subscription)));
                }
            }
        }
    }

    /// Ends everything: calls in flight get a while and further ones are refused, then clients go and servers end.
    pub async fn end(&self) {
        let guests: Vec<_> = {
            let guests = self.guests();
            self.ending.store(true, Ordering::Relaxed);
            guests.values().cloned().collect()
        };
        for guest in &guests {
            guest.client.close_admission();
        }
        info!(clients = guests.len(), servers = self.host.running(), "ending");
        for guest in &guests {
            self.close_subscriptions(guest.take_parked());
        }
        let quiet = async || {
            for guest in &guests {
                guest.all_answered().await;
            }
        };
        if timeout(DRAIN, quiet()).await.is_err() {
            warn!(
                "calls are still in flight after {} s: they are given up",
                DRAIN.as_secs()
            );
        }
        // Servers are told of calls that are given up before their input is closed.
        for guest in &guests {
            guest.client.give_up();
        }
        let let_go = async {
            // What waits for a server to start is answered once that is over.
            let _ = timeout(LAST_ANSWERS, quiet()).await;
            for guest in &guests {
                guest.client.disconnect();
                guest.tell_to_go(ENDING);
            }
        };
        let (ended, ()) = tokio::join!(self.host.end(SERVERS_END), let_go);
        if !ended {
            warn!(servers = self.host.running(), "servers have not ended in time");
        }
        let gone = async {
            while self.clients() > 0 {
                sleep(Duration::from_millis(5)).await;
            }
        };
        // Clients that do not read are given up after their flush time anyway.
        let _ = timeout(Duration::from_secs(3), gone).await;
        self.lists.clear();
    }
}
