//! What the daemon's own tools may know of it, for one caller.

use std::borrow::Cow;
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use colibri_jail_helper::names::MARK_PREFIX;
use colibri_registry::{Jail, Network};

use crate::builtin::{
    ExternalTool, Facts, JailFacts, ProcessFacts, ServerFacts, ServerState, ServerTransport, UnseenServer,
};
use crate::chain::dispatch::COLIBRI;
use crate::chain::{Client, Recorder};
use crate::confine::Processes;
use crate::daemon::Daemon;
use crate::host::{HostTool, Isolation, Server, State, Table, Taken, Transport, Viewer};
use crate::policy::{CallerGates, LookAlike, Rights};

/// The facts as one client may see them.
pub struct CallerFacts {
    daemon: Arc<Daemon>,
    client: Arc<Client>,
    table: Arc<Table>,
    rights: Arc<Rights>,
}

impl CallerFacts {
    /// The facts for a client.
    pub fn new(daemon: Arc<Daemon>, client: Arc<Client>) -> CallerFacts {
        let table = daemon.table();
        let rights = daemon.chain().rules.rights(&client);
        CallerFacts {
            daemon,
            client,
            table,
            rights,
        }
    }
}

impl CallerFacts {
    fn viewer(&self) -> Viewer {
        let uid = self.client.caller.uid;
        if self.rights.operator {
            Viewer::Operator(Some(uid))
        } else {
            Viewer::User(uid)
        }
    }
}

impl Facts for CallerFacts {
    fn uptime_s(&self) -> u64 {
        self.daemon.started.elapsed().as_secs()
    }

    fn version(&self) -> &str {
        env!("CARGO_PKG_VERSION")
    }

    fn socket(&self) -> &Path {
        &self.daemon.config.socket
    }

    fn gates(&self) -> CallerGates {
        self.daemon.chain().rules.gates_for(&self.client)
    }

    fn clients(&self) -> u64 {
        self.daemon.connections().count() as u64
    }

    fn require_jail(&self) -> bool {
        self.daemon.config.require_jail
    }

    fn registry_path(&self) -> &Path {
        &self.daemon.config.registry
    }

    fn registry_error(&self) -> Option<String> {
        self.daemon.registry_error()
    }

    fn servers(&self) -> Vec<ServerFacts> {
        let servers = self.daemon.host().servers();
        let seen = |server: &&Arc<Server>| self.rights.sees_any(&server.id);
        let processes = Processes::look();
        let viewer = self.viewer();
        servers
            .values()
            .filter(seen)
            .map(|server| server_facts(server, viewer, &processes))
            .collect()
    }

    fn trail_error(&self) -> Option<String> {
        match &self.daemon.chain().recorder {
            Recorder::Trail(trail) => trail.status().failing,
            Recorder::Off => None,
        }
    }

    fn approvals_waiting(&self) -> u64 {
        let waiting = self.daemon.chain().approvals.list();
        let own = self.client.caller.uid;
        let counts = |uid: u32| self.rights.operator || uid == own;
        waiting.iter().filter(|pending| counts(pending.uid)).count() as u64
    }

    fn collisions(&self) -> Vec<String> {
        let servers = self.daemon.host().servers();
        // As with look-alikes: no more than the caller may see of what is offered, and nothing of what pins block.
        let seen = |taken: &&Taken| {
            let blocked = match &taken.tool {
                None => self.rights.sees_any(&taken.server),
                Some(tool) => {
                    let approved = |server: &Arc<Server>| server.definitions().1.tool(tool).is_approved();
                    self.rights.sees(&taken.server, tool) && servers.get(&*taken.server).is_some_and(approved)
                }
            };
            blocked && taken.holder.as_ref().is_none_or(|holder| self.rights.sees_any(holder))
        };
        let seen = self.table.collisions.iter().filter(seen);
        seen.map(|taken| taken.text.clone()).collect()
    }

    fn look_alikes(&self) -> Vec<String> {
        // Names that are blocked are not offered here either; operators see them with their pins.
        let offered = |server: &str, tool: &str| {
            let found = self.table.by_origin(server, tool);
            self.rights.sees(server, tool) && found.is_some_and(|tool| tool.standing.is_approved())
        };
        let seen = |warning: &&LookAlike| match warning {
            LookAlike::Servers(one, other) => self.rights.sees_any(one) && self.rights.sees_any(other),
            LookAlike::Tools { server, tools } => offered(server, &tools.0) && offered(server, &tools.1),
            LookAlike::Shadow { server, tool, other } => {
                offered(server, tool) && (other == COLIBRI || self.rights.sees_any(other))
            }
        };
        self.table
            .look_alikes
            .iter()
            .filter(seen)
            .map(ToString::to_string)
            .collect()
    }

    fn unseen(&self) -> Vec<UnseenServer> {
        let unseen = self.daemon.host().unseen();
        let seen = unseen.iter().filter(|server| self.rights.sees_any(&server.id));
        seen.map(|server| {
            let (state, reason, _) = server.state(self.viewer());
            UnseenServer {
                server: server.id.to_string(),
                state: state.name(),
                reason,
            }
        })
        .collect()
    }

    fn external_tools(&self) -> Box<dyn Iterator<Item = ExternalTool<'_>> + '_> {
        let seen = |tool: &&Arc<HostTool>| self.rights.sees(&tool.server.id, &tool.tool);
        Box::new(self.table.offered().filter(seen).map(|tool| ExternalTool {
            name: Cow::Borrowed(&tool.exposed),
            server: Cow::Borrowed(&tool.server.id),
            tool: Cow::Borrowed(&tool.tool),
            definition: Cow::Borrowed(&tool.raw),
        }))
    }
}

fn milliseconds(time: SystemTime) -> i64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_millis() as i64)
}

fn server_facts(server: &Server, viewer: Viewer, all: &Processes) -> ServerFacts {
    let (state, reason, since) = server.state(viewer);
    let (catalogue, judgement) = server.definitions();
    let jail = match &server.entry.transport {
        Transport::Stdio(command) => command.jail.as_ref(),
        Transport::Http { .. } => None,
    };
    ServerFacts {
        id: server.id.to_string(),
        transport: match (&server.entry.transport, jail) {
            (Transport::Http { .. }, _) => ServerTransport::Url,
            (_, Some(_)) => ServerTransport::Jail,
            (_, None) => ServerTransport::Host,
        },
        state: match state {
            State::Stopped => ServerState::Stopped,
            State::Starting => ServerState::Starting,
            State::Ready => ServerState::Ready,
            State::BackingOff => ServerState::BackingOff,
            State::Blocked => ServerState::Blocked,
            State::Failed => ServerState::Failed,
        },
        reason,
        since: milliseconds(since),
        isolation: match server.isolation {
            Isolation::User => "user",
            Isolation::Shared => "shared",
            Isolation::Client => "client",
            Isolation::Call => "call",
        },
        tools: catalogue.tools.len() as u64,
        tools_blocked: judgement.blocked().count() as u64,
        instructions_blocked: !judgement.instructions.is_approved(),
        processes: server
            .sessions()
            .into_iter()
            .map(|(key, session)| ProcessFacts {
                pid: Some(session.pid),
                uid: key.uid(),
                in_flight: session.in_flight() as u64,
                version: Some(session.version().as_str().to_owned()),
                started: milliseconds(session.started),
                count: all.count(session.pid, jail.is_some()),
                jail: jail.zip(session.instance.as_deref()).map(|(jail, instance)| {
                    let own = || format!("{MARK_PREFIX}{instance}");
                    jail.name.clone().unwrap_or_else(own)
                }),
                // Linux's sandbox is no jail, and has no number.
                jid: session.jid.filter(|jid| *jid > 0).map(|jid| jid as i32),
            })
            .collect(),
        jail: jail.map(jail_facts),
    }
}

fn jail_facts(jail: &Jail) -> JailFacts {
    let mut networks = Vec::new();
    for network in [&jail.ip4, &jail.ip6] {
        match network {
            Network::Disable => {}
            Network::Inherit => networks.push("host network".to_owned()),
            Network::Addresses(addresses) => networks.extend(addresses.iter().map(|address| address.to_string())),
        }
    }
    networks.dedup();
    JailFacts {
        name: jail.name.clone().unwrap_or_else(|| "ephemeral".to_owned()),
        network: if networks.is_empty() {
            "none".to_owned()
        } else {
            networks.join(", ")
        },
    }
}
