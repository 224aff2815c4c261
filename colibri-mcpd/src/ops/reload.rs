//! Taking over registry and client policy, at the start and again when told to.

use std::collections::BTreeMap;
use std::sync::Arc;

use tracing::{error, info, warn};

use super::check;
use crate::agents::AgentRoster;
use crate::catalog::ServerHost;
use crate::daemon::Daemon;
use crate::daemon::sources::SourceFiles;
use crate::registry::LoadedRegistry;
use crate::servers::{State, Viewer};
use colibri_policy::{BoardHosts, Clients, Gate};
use colibri_store::CountedHost;
use colibri_trail::TrailEvent;

/// Makes the servers and agents of a registry the daemon's, and says what is odd about it.
pub(crate) fn apply(host: &ServerHost, agents: &AgentRoster, loaded: &LoadedRegistry) {
    for note in &loaded.notes {
        info!("{note}");
    }
    for (id, server) in &loaded.servers {
        if let Some(reason) = server.fault() {
            warn!(server = id, "blocked: {reason}");
        }
    }
    host.load(loaded);
    agents.load(loaded);
}

/// Says what is odd about the client policy.
pub(crate) fn note_clients(clients: &Clients) {
    for note in clients.notes() {
        warn!("{note}");
    }
}

/// The hosts that count on the board, as the store has them.
pub(crate) fn counted(file: BoardHosts) -> BTreeMap<String, CountedHost> {
    let hosts = file.hosts.into_iter();
    hosts
        .map(|(name, (key, persons))| (name, CountedHost { key, persons }))
        .collect()
}

/// What came of a reload.
pub(crate) struct ReloadOutcome {
    /// The servers that are blocked now, and why.
    pub(crate) blocked: Vec<(String, String)>,
    /// True if the file says other limits than those that hold.
    pub(crate) limits_wait: bool,
}

/// Reads registry and client policy again. A bad file changes nothing: neither of the two is taken
/// over.
///
/// # Errors
/// What is wrong with them; it is in the log as well.
pub(crate) fn reload(daemon: &Daemon) -> anyhow::Result<ReloadOutcome> {
    if let Some(fault) = check::socket_group(&daemon.config) {
        warn!("{fault}");
    }
    let result = match daemon.sources.read(&daemon.config) {
        Ok(files) => {
            daemon.sources.remember(&daemon.config, &files);
            let SourceFiles {
                clients,
                registry,
                gates,
                hosts,
            } = files;
            note_clients(&clients);
            daemon.store.board().map_persons(clients.persons());
            daemon.store.board().count_hosts(counted(hosts));
            let limits_wait = *clients.limits() != daemon.limits_in_force;
            if limits_wait {
                warn!(
                    "{}: limits: others than those that hold; they hold from the next start",
                    daemon.config.clients.display()
                );
            }
            let before = daemon.chain.rules.clients.swap(Arc::new(clients));
            daemon.connections.tell_list_modes(&before);
            if *daemon.chain.rules.gates.swap(Arc::new(gates)) != gates {
                info!(
                    write = gates.is_open(Gate::Write),
                    "the write gate was changed"
                );
                daemon.connections.tell_tools_changed();
            }
            apply(&daemon.host, &daemon.agents, &registry);
            daemon.summaries.try_again();
            info!(
                servers = registry.servers.len(),
                agents = registry.agents.len(),
                "registry reloaded"
            );
            Ok(ReloadOutcome {
                blocked: blocked(daemon),
                limits_wait,
            })
        }
        Err(error) => Err(error.context("nothing was taken over")),
    };
    daemon.set_registry_error(result.as_ref().err().map(|error| format!("{error:#}")));
    if let Err(error) = &result {
        error!("{error:#}");
    }
    if let Err(error) = daemon.chain.recorder.event(TrailEvent::Reload {
        good: result.is_ok(),
    }) {
        error!("the reload was not recorded: {error}");
    }
    result
}

/// The servers that are blocked, and why.
fn blocked(daemon: &Daemon) -> Vec<(String, String)> {
    let servers = daemon.host.servers();
    let blocked =
        servers
            .iter()
            .filter_map(|(id, server)| match server.state(Viewer::Operator(None)) {
                (State::Blocked, reason, _) => Some((id.clone(), reason.unwrap_or_default())),
                _ => None,
            });
    blocked.collect()
}
