//! The parts that all connections share: the configuration in force, the servers, the store, and
//! the connections.

mod client_infos;
mod condition_notifier;
pub mod connections;
pub mod idle;
mod lists;
pub mod sources;
pub mod usage;
mod wake;
mod waker;

use std::borrow::Cow;
use std::path::Path;
use std::sync::{Arc, Weak};
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tracing::{info, warn};

use crate::agents::{AgentRoster, Doors};
use crate::board::Board;
use crate::builtin::SkillDirectories;
use crate::catalog::ServerHost;
use crate::config::DaemonConfig;
use crate::notices::Notices;
use crate::relay::{self, Call, Chain, Client, SharedPage};
use crate::scripts::Scripts;
use crate::search::Search;
use crate::servers::{HostedServer, Viewer};
use crate::summaries::SummaryTable;
use client_infos::ClientInfos;
use colibri_outbound::oauth::Logins;
use colibri_peer::{ByteBudget, Outbox, Tenant};
use colibri_policy::{Caller, DaemonLimits, Gate, ListMode, UserSlots};
use colibri_protocol::answer::join_instructions;
use colibri_protocol::lists::ListCursor;
use colibri_protocol::{Capability, Failure, Feature, ServerIdentity, skills};
use colibri_store::Database;
use colibri_wire::Json;
use connections::Connections;
use lists::{ListQuery, Lists};
use sources::SourceMetadata;

/// The most bytes queued in the whole daemon, with what clients began to say.
pub(crate) const MAX_QUEUED: usize = 256 * 1024 * 1024;
/// The longest time in which servers must end: grace, TERM and KILL of their supervisor, and a
/// little more.
const SERVERS_END: Duration = Duration::from_secs(10);

/// The daemon's instructions for models.
const INSTRUCTIONS: &str = "Colibri MCP hosts the MCP servers of this machine. Tools called colibri_* are its own; \
tools called SERVER__TOOL belong to the server named before the two underscores. colibri_snapshot tells in one call what \
there is and in which state.\n";

/// The further instructions for a model that is not listed all tools.
const TO_FIND: &str = "Most tools of the servers here are not listed, and can be used all the same. Before saying that \
something cannot be done, find a tool for it: colibri_find_tools takes a few words on what is to be done and names tools, \
colibri_tool_schema shows the arguments of one, and colibri_call_tool calls it.\n";

/// The limits of every connection.
#[derive(Debug, Clone, Copy)]
pub struct ConnectionLimits {
    /// Bytes of one message.
    pub frame: usize,
    /// Bytes that a client may be behind beyond one message.
    pub ahead: usize,
    /// Calls in flight of one client.
    pub in_flight: usize,
}

/// The daemon.
pub struct Daemon {
    /// Its settings.
    pub config: DaemonConfig,
    /// The files in force.
    pub sources: SourceMetadata,
    /// The limits that hold: those of the client policy when the daemon started.
    pub limits_in_force: DaemonLimits,
    /// The limits of every connection.
    pub limits: ConnectionLimits,
    /// The bytes queued for all clients and servers.
    pub budget: Arc<ByteBudget>,
    /// The time of its start.
    pub started: Instant,
    /// The stages that calls pass.
    pub chain: Arc<Chain>,
    /// The external servers.
    pub host: Arc<ServerHost>,
    /// The agents.
    pub agents: Arc<AgentRoster>,
    /// Makes the agents' sockets.
    pub doors: Arc<dyn Doors>,
    /// Colibri's own state.
    pub store: Arc<Database>,
    /// One sentence about each tool.
    pub summaries: Arc<SummaryTable>,
    /// The tool search.
    pub search: Search,
    /// The task board.
    pub board: Arc<Board>,
    /// The skills.
    pub skills: SkillDirectories,
    /// The scripts that run.
    pub scripts: Arc<Scripts>,
    /// The clients that are connected.
    pub connections: Arc<Connections>,
    /// What clients declare of themselves.
    pub(crate) client_infos: ClientInfos,
    /// The logins that were begun.
    pub logins: Logins,
    /// Slots for adding up costs.
    pub sums: UserSlots,
    /// Slots for looking through all tools.
    pub searches: UserSlots,
    /// Slots for calls of our own tools, which wait for the disk.
    pub tools: UserSlots,
    /// Slots for reading long messages.
    pub long_messages: UserSlots,
    /// Slots for taking over pieces of long lines, for each user alone.
    pub long_lines: UserSlots,
    /// The destinations of notices.
    pub notices: Notices,
    /// Notified when the user of a private daemon ends it.
    pub told_to_end: Notify,
    lists: Lists,
    registry_error: Mutex<Option<String>>,
}

impl Daemon {
    /// A daemon that serves nobody yet.
    pub fn new(
        config: DaemonConfig,
        sources: SourceMetadata,
        chain: Arc<Chain>,
        (host, agents): (Arc<ServerHost>, Arc<AgentRoster>),
        store: Arc<Database>,
        budget: Arc<ByteBudget>,
        doors: fn(Weak<Daemon>, &Path) -> Arc<dyn Doors>,
    ) -> Arc<Daemon> {
        let limits_in_force = *chain.rules.clients.load().limits();
        let limits = ConnectionLimits {
            frame: limits_in_force.message_bytes,
            ahead: 4 * 1024 * 1024,
            in_flight: limits_in_force.calls_per_client as usize,
        };
        let skills = SkillDirectories::new(config.skills.clone());
        let board = agents.board().clone();
        let connections = Connections::new(chain.clone(), budget.clone(), host.changes());
        Arc::new_cyclic(|daemon| Daemon {
            doors: doors(daemon.clone(), &config.socket),
            config,
            sources,
            limits_in_force,
            limits,
            budget,
            started: Instant::now(),
            chain,
            host,
            agents,
            summaries: SummaryTable::recall(&store),
            search: Search::default(),
            client_infos: ClientInfos::default(),
            store,
            board,
            skills,
            scripts: Arc::default(),
            logins: Logins::default(),
            sums: UserSlots::new(2),
            searches: UserSlots::new(4),
            tools: UserSlots::new(8),
            long_messages: UserSlots::new(2),
            long_lines: UserSlots::new(Semaphore::MAX_PERMITS),
            notices: Notices::default(),
            told_to_end: Notify::new(),
            lists: Lists::default(),
            connections,
            registry_error: Mutex::default(),
        })
    }

    /// An empty queue towards a client of this tenant.
    pub(crate) fn queue_for(&self, tenant: Tenant) -> Arc<Outbox> {
        Outbox::charged(self.limits.frame + self.limits.ahead, &self.budget, tenant)
    }

    /// A client is gone.
    pub fn leave(&self, client: &Client) {
        if self.connections.leave_last(client) {
            self.chain.tickets.disconnected(client.caller.uid);
        }
        if client.session.number == client.connection {
            client.session.end();
            relay::looked(&self.chain.recorder, client);
        }
        self.host.disconnected(client.connection);
    }

    /// The identity that a client is shown: the daemon's, and that of the servers that it may see.
    pub fn presented(&self, client: &Client, offered: &'static [Capability]) -> ServerIdentity {
        let rights = self.chain.rules.rights(client);
        let servers = self.host.servers();
        let mut presented = ServerIdentity {
            offered,
            ..ServerIdentity::default()
        };
        let mut texts = Vec::new();
        for (id, server) in servers.iter().filter(|(id, _)| rights.sees_any(id)) {
            let (catalogue, judgement) = server.offer.definitions();
            if let Some(capabilities) = catalogue
                .capabilities
                .as_deref()
                .and_then(|raw| Json::parse(raw).ok())
            {
                let is_bare = rights.is_narrowed() || !server.spec.entry.prefix;
                presented.add_capabilities(capabilities, is_bare);
            }
            if let Some(text) = catalogue
                .instructions
                .clone()
                .filter(|_| judgement.instructions.is_approved())
            {
                texts.push((id, text));
            }
        }
        presented.instructions = if rights.is_narrowed() {
            texts.pop().map(|(_, text)| text).unwrap_or_default()
        } else {
            let texts = texts.iter().map(|(id, text)| (id.as_str(), text.as_str()));
            let own = match rights.list {
                ListMode::All => Cow::Borrowed(INSTRUCTIONS),
                ListMode::Search | ListMode::Pinned => {
                    Cow::Owned(format!("{INSTRUCTIONS}{TO_FIND}"))
                }
            };
            join_instructions(&own, texts)
        };
        presented
    }

    /// The servers that were never seen and that this client may see: nobody starts what is hidden
    /// from them.
    fn unseen_by(&self, client: &Client) -> Vec<Arc<HostedServer>> {
        let rights = self.chain.rules.rights(client);
        let mut unseen = self.host.unseen();
        unseen.retain(|server| rights.sees_any(&server.spec.id));
        unseen
    }

    /// Has the servers started that were never seen, for a list: those that it is to wait for, and
    /// until when.
    pub fn discover(&self, call: &Call) -> Vec<(Instant, Arc<HostedServer>)> {
        if self
            .chain
            .rules
            .gates_for(&call.client)
            .check(Gate::External)
            .is_err()
        {
            // The list shows none of their tools.
            return Vec::new();
        }
        self.discover_ungated(call)
    }

    /// The same for `colibri_external_mcp_list_tools`: listing needs no gate, calling does.
    pub(crate) fn discover_ungated(&self, call: &Call) -> Vec<(Instant, Arc<HostedServer>)> {
        let unseen = self.unseen_by(&call.client);
        self.host.discover(&unseen, &call.client)
    }

    /// Has the servers started that were never seen, so that no list waits for them. Nobody asked:
    /// it is the daemon that wants to know, and its own user whose processes they are.
    pub fn learn(&self) {
        let unseen = self.host.unseen();
        if !self.config.learn
            || unseen.is_empty()
            || !self.chain.rules.gates.load().is_open(Gate::External)
        {
            return;
        }
        let (number, caller) = (self.connections.next_number(), Caller::of_daemon());
        let outbox = self.queue_for(Tenant::Daemon);
        let client = Client::new(number, caller, outbox, self.limits.in_flight);
        self.host.discover(&unseen, &Arc::new(client));
    }

    /// True if the daemon's own skills are in the list of a feature for this client.
    pub(crate) fn lists_own_skills(&self, client: &Client, feature: Feature) -> bool {
        matches!(feature, Feature::Skill | Feature::Resource)
            && self.skills.is_configured()
            && client.session.only().is_none()
    }

    /// The daemon's own skills as entries of a list: of skills, or of the resources that their
    /// `SKILL.md` are. Takes a while: not to be called on a thread that serves clients.
    pub(crate) fn own_skills(&self, feature: Feature) -> Vec<(String, Bytes)> {
        let entries = self.skills.entries().into_iter().map(|skill| {
            let uri = format!("{}{}/{}", skills::OWN, skill.name, skills::FILE);
            let entry = match feature {
                Feature::Skill => skill.entry,
                _ => skills::resource(&uri, &skill.name, Some(&skill.description), "text/markdown"),
            };
            (uri, Bytes::from(entry))
        });
        entries.collect()
    }

    /// The list of a feature for a caller, with these skills of the daemon's own.
    ///
    /// # Errors
    /// Where the daemon has no room for it.
    pub fn list(
        &self,
        call: &Call,
        (feature, cursor): (Feature, Option<&ListCursor>),
        skills: Vec<(String, Bytes)>,
    ) -> Result<Arc<SharedPage>, Failure> {
        let rules = &self.chain.rules;
        let gates = **rules.gates.load();
        let external = gates.is_open(Gate::External);
        let servers = self.host.servers();
        let uid = call.client.caller.uid;
        let viewer = Viewer::User(uid);
        let standing = servers.values().filter(|_| external).map(|server| {
            let catalogue = server.offer.catalogue();
            (
                server.state(viewer).0,
                catalogue.version,
                catalogue.ttl_ms(feature),
            )
        });
        let asked = ListQuery {
            feature,
            uid,
            table: self.host.table(),
            rights: rules.rights(&call.client),
            external,
            write: !gates.hides(&rules.gates_for(&call.client)),
            version: call.version,
            cursor: cursor.cloned(),
            standing: standing.collect(),
            skills,
        };
        self.lists.page(asked, &call.client.outbox)
    }

    /// The reason for which the registry could not be loaded, or reloaded.
    pub fn registry_error(&self) -> Option<String> {
        self.registry_error.lock().clone()
    }

    /// Notes why the registry could not be loaded, or that it could.
    pub(crate) fn set_registry_error(&self, error: Option<String>) {
        *self.registry_error.lock() = error;
    }

    /// Ends everything: calls in flight get a while and further ones are refused, then clients go
    /// and servers end.
    pub async fn end(&self) {
        info!(
            clients = self.connections.count().connections,
            servers = self.host.running(),
            agents = self.agents.count(),
            "ending"
        );
        let servers = async {
            self.chain.tickets.end_all("the daemon is ending");
            tokio::join!(self.host.end(SERVERS_END), self.agents.end(SERVERS_END))
        };
        let (servers, agents) = self.connections.end(servers).await;
        if !servers {
            warn!(
                servers = self.host.running(),
                "servers have not ended in time"
            );
        }
        if !agents {
            warn!(
                agents = self.agents.count(),
                "agents have not ended in time"
            );
        }
        self.lists.clear();
    }
}
