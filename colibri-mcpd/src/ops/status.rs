//! The facts that the daemon's own tools may show one caller.

use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use colibri_jail_helper::names::MARK_PREFIX;
use colibri_protocol::{Code, Failure, Feature, Version, extensions};
use colibri_registry::{Jail, Network};
use colibri_text::brief;
use colibri_wire::Json;

use crate::builtin::store_failure;
use crate::builtin::{self, AdvertisedTools, DaemonView, ExternalTool};
use crate::catalog::{CatalogTable, Item, NameConflict};
use crate::daemon::Daemon;
use crate::registry::EntryTransport;
use crate::relay::cost;
use crate::relay::{COLIBRI, Client, Recorder};
use crate::search::best_of_several;
use crate::servers::{Catalogue, HostedServer, Viewer};
use colibri_api::{
    CostDay, CostMode, CostUsage, DaemonFacts, FoundTool, FoundTools, OpenGates, RegistryFacts,
    ServerElsewhere, ServerFacts, ServerJail, ServerProcess, ServerTransport, UnseenServer,
    first_sentence,
};
use colibri_confine::Processes;
use colibri_policy::{GateState, LookAlike, Rights};

/// The most capabilities of one server that are named as not passed on.
const MAX_LEFT_OUT: usize = 10;

/// The facts as one client may see them.
pub(super) struct CallerFacts {
    daemon: Arc<Daemon>,
    client: Arc<Client>,
    table: Arc<CatalogTable>,
    rights: Arc<Rights>,
}

impl CallerFacts {
    /// The facts for a client.
    pub(super) fn new(daemon: Arc<Daemon>, client: Arc<Client>) -> CallerFacts {
        let table = daemon.host.table();
        let rights = daemon.chain.rules.rights(&client);
        CallerFacts {
            daemon,
            client,
            table,
            rights,
        }
    }
}

impl CallerFacts {
    /// The daemon and its servers.
    pub(super) fn view(&self) -> DaemonView {
        let (mode, spending) = self.spending();
        let config = &self.daemon.config;
        let gates = self.daemon.chain.rules.gates_for(&self.client);
        let count = self.daemon.connections.count();
        let agents_of = (!self.rights.operator).then_some(self.client.caller.uid);
        DaemonView {
            daemon: DaemonFacts {
                version: env!("CARGO_PKG_VERSION").to_owned(),
                uptime_s: self.daemon.started.elapsed().as_secs(),
                socket: config.socket.to_string_lossy().into_owned(),
                gates: OpenGates {
                    write: gates.write == GateState::Open,
                    external_call: gates.external_call == GateState::Open,
                },
                private: config.consent.is_some(),
                require_jail: config.require_jail,
                clients: count.connections as u64,
                clients_http: count.http as u64,
                http_sessions: count.sessions as u64,
                cost_mode: mode,
                budgets: mode.budgets(),
                spending,
                registry: RegistryFacts {
                    path: config.registry.to_string_lossy().into_owned(),
                    error: self.daemon.registry_error(),
                },
                trail_error: match &*self.daemon.chain.recorder {
                    Recorder::Trail(trail) => trail.status().failing,
                    Recorder::Off => None,
                },
                approvals_waiting: self.approvals_waiting(),
                agents_by_state: self.daemon.agents.by_state(agents_of),
                agents_unbounded: self.daemon.agents.unbounded(agents_of),
                collisions: self.collisions(),
                look_alikes: self.look_alikes(),
            },
            servers: self.servers(),
        }
    }

    /// The cost mode in force, and how the client stands with it.
    fn spending(&self) -> (CostMode, CostUsage) {
        let terms = cost::terms(&self.rights, &self.client);
        let standing = cost::budget_of(&self.client, terms);
        let spending = CostUsage {
            acts: terms.mode.is_some(),
            set_by: terms.set_by,
            set: terms.mode.unwrap_or_default(),
            escalates: terms.escalates,
            spent_bytes: standing.spent,
            before_bytes: standing.before,
            chosen_at: terms.counts_from(),
            left_bytes: standing.left(),
            larger: (terms.mode.filter(|_| self.client.door.is_none()))
                .and_then(|_| self.rights.cost.larger(standing.mode()?, standing.spent)),
            until: self
                .client
                .door
                .is_none()
                .then(|| CostDay::of(SystemTime::now()).end_ms()),
        };
        (standing.mode().unwrap_or_default(), spending)
    }

    /// Sets the cost mode of the client's user; `None`: takes back what they set. It is on the disk
    /// when this returns.
    ///
    /// # Errors
    /// The operator lets them have no more than a lower one, or it could not be kept.
    pub(super) fn set_cost_mode(&self, mode: Option<CostMode>) -> Result<(), Failure> {
        let rule = self.rights.cost;
        if let Some(above) = mode.filter(|mode| !rule.lets(*mode)) {
            let given = rule.mode.unwrap_or_default();
            let rule = self.rights.cost_place();
            let message =
                format!("policy gives this user cost mode {given}, by {rule}: {above} is above it");
            let failure = Failure::new(Code::PolicyDenied, message).by_rule(rule);
            return Err(failure.advising(
                "set a lower mode, or ask the operator to change the rule in that file",
            ));
        }
        if let Some(share) = self.client.share() {
            share.choose(mode, colibri_store::now_ms());
        }
        let kept = self.daemon.keep_spending();
        kept.map_err(|error| {
            Failure::new(
                Code::StoreUnavailable,
                format!("the mode is set, but not kept: {error}"),
            )
        })
    }

    /// The advertised tools of external servers.
    pub(super) fn offered(&self) -> AdvertisedTools {
        let host = &self.daemon.host;
        let sees = |id: &str| self.rights.sees_any(id);
        let tools = self.table.offered(Feature::Tool).filter(|tool| {
            self.rights
                .sees(&tool.server.spec.id, Feature::Tool, &tool.own)
        });
        AdvertisedTools {
            servers: host
                .servers()
                .keys()
                .filter(|id| sees(id))
                .cloned()
                .collect(),
            tools: tools
                .map(|tool| ExternalTool {
                    name: tool.shown(&self.rights).to_owned(),
                    server: tool.server.spec.id.to_string(),
                    tool: tool.own.clone(),
                    definition: tool.raw.clone(),
                })
                .collect(),
            unseen: self.unseen(),
        }
    }

    /// The id of the server that the client means by a name.
    ///
    /// # Errors
    /// It is an entry with accounts, and policy says none of them.
    pub(super) fn server_meant(&self, named: &str) -> Result<String, Failure> {
        self.daemon.host.server_meant(named, &self.rights)
    }

    /// The tools that fit a query best, of all servers or of one.
    pub(super) fn find(
        &self,
        query: &str,
        server: Option<&str>,
        limit: usize,
    ) -> Result<FoundTools, Failure> {
        let server = server.map(|server| self.server_meant(server)).transpose()?;
        let server = server.as_deref();
        let servers = self.daemon.host.servers();
        if let Some(id) =
            server.filter(|id| !servers.contains_key(*id) || !self.rights.sees_any(id))
        {
            return Err(builtin::no_such_tool(id, "", false));
        }
        let is_asked = |id: &str| server.is_none_or(|server| server == id);
        let summaries = &self.daemon.summaries;
        let found = self
            .daemon
            .search
            .find(&self.table, summaries, query)
            .map_err(store_failure)?;
        let usable: Vec<&Arc<Item>> = found
            .tools
            .iter()
            .filter(|item| is_asked(&item.server.spec.id) && self.is_usable(item))
            .collect();
        let shown = match server {
            Some(_) => usable.iter().copied().take(limit).collect(),
            None => best_of_several(&usable, limit, |item| &*item.server.spec.id),
        };
        let left_out = (usable.len() - shown.len()) as u64;
        let tools = shown.into_iter().map(|item| FoundTool {
            name: item.shown(&self.rights).to_owned(),
            server: item.server.spec.id.to_string(),
            description: match summaries.of(item) {
                Some(summary) => summary.to_string(),
                None => first_sentence(&item.description()),
            },
        });
        let tools = tools.collect();
        let not_seen = self
            .unseen()
            .into_iter()
            .filter(|unseen| is_asked(&unseen.server));
        Ok(FoundTools {
            tools,
            left_out,
            words_left_out: found.left_out as u64,
            not_seen: not_seen.collect(),
        })
    }

    /// The servers whose tools are not known.
    pub(super) fn unseen(&self) -> Vec<UnseenServer> {
        let unseen = self.daemon.host.unseen().into_iter();
        let seen = unseen.filter(|server| self.rights.sees_any(&server.spec.id));
        let told = seen.map(|server| {
            let (state, reason, _) = server.state(self.viewer());
            UnseenServer {
                server: server.spec.id.to_string(),
                state,
                reason,
            }
        });
        told.collect()
    }

    /// The definition of a tool as a client of this version is listed it.
    pub(super) fn definition(&self, name: &str, version: Version) -> Option<Bytes> {
        let own = builtin::definition(name)
            .filter(|own| own.at_door.is_some() || !self.rights.is_agents());
        if let Some(own) = own {
            return Some(own.listed(version));
        }
        let item = self
            .table
            .by_shown_name(Feature::Tool, name, &self.rights)?;
        self.is_usable(item)
            .then(|| item.definition(name, version, self.client.caller.uid))
    }

    /// True if nothing stands against a call of a tool whatever its arguments are.
    pub(super) fn is_usable(&self, item: &Item) -> bool {
        item.standing().is_approved()
            && item
                .verdict()
                .failure(&item.server.spec.id, item.feature)
                .is_none()
            && self.sees(item)
    }

    /// True if policy does not hide an item from the client.
    pub(super) fn sees(&self, item: &Item) -> bool {
        self.rights
            .sees(&item.server.spec.id, item.feature, &item.own)
    }

    /// The table of tools.
    pub(super) fn table(&self) -> &CatalogTable {
        &self.table
    }

    /// The tools of all servers that fit a text at all, the best first.
    pub(super) fn search(&self, text: &str) -> Result<Vec<Arc<Item>>, Failure> {
        Ok(self
            .daemon
            .search
            .find(&self.table, &self.daemon.summaries, text)
            .map_err(store_failure)?
            .tools)
    }

    fn viewer(&self) -> Viewer {
        let uid = self.client.caller.uid;
        if self.rights.operator {
            Viewer::Operator(Some(uid))
        } else {
            Viewer::User(uid)
        }
    }

    /// The servers that the client may see.
    pub(super) fn servers(&self) -> Vec<ServerFacts> {
        let servers = self.daemon.host.servers();
        let seen = |server: &&Arc<HostedServer>| self.rights.sees_any(&server.spec.id);
        let processes = Processes::look();
        let viewer = self.viewer();
        servers
            .values()
            .filter(seen)
            .map(|server| server_facts(server, viewer, &processes))
            .collect()
    }

    fn approvals_waiting(&self) -> u64 {
        let waiting = self.daemon.chain.approvals.list();
        let own = self.client.caller.uid;
        let counts = |uid: u32| self.rights.operator || uid == own;
        waiting.iter().filter(|pending| counts(pending.uid)).count() as u64
    }

    fn collisions(&self) -> Vec<String> {
        let servers = self.daemon.host.servers();
        // As with look-alikes: no more than the caller may see of what is offered, and nothing of
        // what pins block.
        let seen = |taken: &&NameConflict| {
            let blocked = match &taken.what {
                None => self.rights.sees_any(&taken.server),
                Some((feature, own)) => {
                    let approved = |server: &Arc<HostedServer>| {
                        server.offer.definitions().1.of(*feature, own).is_approved()
                    };
                    self.rights.sees(&taken.server, *feature, own)
                        && servers.get(&*taken.server).is_some_and(approved)
                }
            };
            blocked
                && taken
                    .holder
                    .as_ref()
                    .is_none_or(|holder| self.rights.sees_any(holder))
        };
        let seen = self.table.collisions.iter().filter(seen);
        seen.map(|taken| taken.text.clone()).collect()
    }

    fn look_alikes(&self) -> Vec<String> {
        // Names that are blocked are not offered here either; operators see them with their pins.
        let offered = |server: &str, tool: &str| {
            let found = self.table.by_origin(Feature::Tool, server, tool);
            self.rights.sees(server, Feature::Tool, tool)
                && found.is_some_and(|tool| tool.standing().is_approved())
        };
        let seen = |warning: &&LookAlike| match warning {
            LookAlike::Servers(one, other) => {
                self.rights.sees_any(one) && self.rights.sees_any(other)
            }
            LookAlike::Tools { server, tools } => {
                offered(server, &tools.0) && offered(server, &tools.1)
            }
            LookAlike::Shadow {
                server,
                tool,
                other,
            } => offered(server, tool) && (other == COLIBRI || self.rights.sees_any(other)),
        };
        self.table
            .look_alikes
            .iter()
            .filter(seen)
            .map(ToString::to_string)
            .collect()
    }
}

/// Since the epoch.
pub(super) fn milliseconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as u64)
}

fn server_facts(server: &HostedServer, viewer: Viewer, all: &Processes) -> ServerFacts {
    let (state, reason, since) = server.state(viewer);
    let (catalogue, judgement) = server.offer.definitions();
    let reason = reason.or_else(|| left_out(&catalogue));
    let jail = match &server.spec.entry.transport {
        EntryTransport::Stdio(command) => command.jail.as_ref(),
        EntryTransport::Http { .. } => None,
    };
    let count = |feature| catalogue.of(feature).len() as u64;
    let (tools_blocked, others_blocked) = judgement.blocked_counts();
    ServerFacts {
        id: server.spec.id.to_string(),
        transport: match (&server.spec.entry.transport, jail) {
            (EntryTransport::Stdio(command), _) if command.ssh.is_some() => ServerTransport::Ssh,
            (EntryTransport::Http { .. }, _) => ServerTransport::Url,
            (_, Some(_)) => ServerTransport::Jail,
            (_, None) => ServerTransport::Host,
        },
        state,
        reason,
        since: milliseconds(since),
        isolation: server.spec.isolation,
        tools: count(Feature::Tool),
        prompts: count(Feature::Prompt),
        resources: count(Feature::Resource),
        templates: count(Feature::Template),
        tools_blocked,
        others_blocked,
        instructions_blocked: !judgement.instructions.is_approved(),
        processes: server
            .sessions()
            .into_iter()
            .map(|(key, session)| ServerProcess {
                pid: Some(session.pid).filter(|pid| *pid != 0),
                uid: key.uid(),
                in_flight: session.in_flight() as u64,
                version: Some(session.version().as_str().to_owned()),
                started: milliseconds(session.started),
                count: match server.spec.entry.transport {
                    EntryTransport::Http { .. } => None,
                    EntryTransport::Stdio(_) => all
                        .count(session.pid, jail.is_some())
                        .map(|count| count as u64),
                },
                jail: jail
                    .zip(session.instance.as_deref())
                    .map(|(jail, instance)| {
                        let own = || format!("{MARK_PREFIX}{instance}");
                        jail.name.clone().unwrap_or_else(own)
                    }),
                // Linux's sandbox is no jail, and has no number.
                jid: session.jid.filter(|jid| *jid > 0).map(|jid| jid as i32),
                unbounded: session.is_unbounded,
            })
            .collect(),
        jail: jail.map(jail_facts),
        elsewhere: server.spec.entry.ssh().map(|target| ServerElsewhere {
            host: target.host.clone(),
            server: target.server.clone(),
            keys: target.keys.is_some(),
        }),
    }
}

/// The tools, skills and capabilities of a server that are not advertised although it runs, with
/// the reasons.
fn left_out(catalogue: &Catalogue) -> Option<String> {
    let of = |feature: Feature| catalogue.lists[feature.index()].left_out.clone();
    let capabilities = catalogue.capabilities.as_ref();
    let capabilities = capabilities.and_then(|raw| Json::part(raw, 0..raw.len()));
    let unknown = capabilities.map(extensions::left_out).unwrap_or_default();
    let unknown = unknown
        .iter()
        .take(MAX_LEFT_OUT)
        .map(|name| brief(name, 100));
    let all = [
        ("tools that are not offered", of(Feature::Tool)),
        ("skills that are not offered", of(Feature::Skill)),
        (
            "capabilities that Colibri does not pass on",
            unknown.collect(),
        ),
    ];
    let said = all.into_iter().filter(|(_, names)| !names.is_empty());
    let said: Vec<String> = said
        .map(|(what, names)| format!("{what}: {}", names.join("; ")))
        .collect();
    (!said.is_empty()).then(|| said.join(". "))
}

fn jail_facts(jail: &Jail) -> ServerJail {
    let mut networks = Vec::new();
    for network in [&jail.ip4, &jail.ip6] {
        match network {
            Network::Disable => {}
            Network::Inherit => networks.push("host network".to_owned()),
            Network::Addresses(addresses) => {
                networks.extend(addresses.iter().map(|address| address.to_string()))
            }
        }
    }
    networks.dedup();
    ServerJail {
        name: jail.name.clone().unwrap_or_else(|| "ephemeral".to_owned()),
        network: if networks.is_empty() {
            "none".to_owned()
        } else {
            networks.join(", ")
        },
    }
}
