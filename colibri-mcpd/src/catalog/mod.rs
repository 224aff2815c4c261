//! The catalog for clients: the servers of the registry, and the table of their items.

mod changes;
mod item;
mod lookup;
mod method;
pub mod names;
mod present;
mod resource;
mod skill_content;
mod table;
mod task;

use std::collections::BTreeMap;
use std::os::unix::fs::MetadataExt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::Duration;

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use tracing::{info, warn};

pub use changes::{ChangedFeatures, Changes};
pub use item::Item;
pub use lookup::LookupKey;
pub use names::NameConflict;
pub use table::CatalogTable;

use crate::registry::secrets::Redactor;
use crate::registry::{self, EntryTransport, ServerSpec};
use crate::relay::Client;
use crate::relay::{ClientSession, TargetCatalog};
use crate::servers::{DiscoveryObserver, HostedServer, ServerContext, ServerDependencies};
use colibri_policy::{Pins, UserQuotas};
use colibri_protocol::logging::Level;

/// Warnings about names that are logged: servers can invent names without end.
const MAX_WARNINGS: u64 = 500;

/// The external servers.
pub struct ServerHost {
    context: Arc<ServerContext>,
    servers: ArcSwap<BTreeMap<String, Arc<HostedServer>>>,
    /// Servers that are no longer in the registry and may still have processes.
    leaving: Mutex<Vec<Weak<HostedServer>>>,
    table: ArcSwap<CatalogTable>,
    rebuilding: Mutex<()>,
    changes: Arc<Changes>,
    seen: Notify,
    /// Warnings about names that were logged.
    warned: AtomicU64,
}

/// Notifies a host of each discovery.
fn discovery_observer(host: Weak<ServerHost>) -> DiscoveryObserver {
    Box::new(move |changed| {
        if let Some(host) = host.upgrade() {
            host.catalogue_changed(changed);
        }
    })
}

impl ServerHost {
    /// A host without servers; [`ServerHost::load`] gives it some.
    pub fn new(parts: ServerDependencies) -> Arc<ServerHost> {
        let chain = parts.chain.clone();
        let host = Arc::new_cyclic(|host: &Weak<ServerHost>| ServerHost {
            context: ServerContext::new(parts, discovery_observer(host.clone())),
            servers: ArcSwap::default(),
            leaving: Mutex::default(),
            table: ArcSwap::default(),
            rebuilding: Mutex::new(()),
            changes: Arc::default(),
            seen: Notify::new(),
            warned: AtomicU64::new(0),
        });
        let catalog: Weak<dyn TargetCatalog> = Arc::downgrade(&(host.clone() as Arc<_>));
        // The chain of one daemon has one host.
        let _ = chain.catalog.set(catalog);
        host
    }

    /// The servers, by id.
    pub fn servers(&self) -> Arc<BTreeMap<String, Arc<HostedServer>>> {
        self.servers.load_full()
    }

    /// The table of the servers' items, as it is advertised now.
    pub fn table(&self) -> Arc<CatalogTable> {
        self.table.load_full()
    }

    /// The changes of the advertised items.
    pub fn changes(&self) -> &Arc<Changes> {
        &self.changes
    }

    /// The pins that definitions are checked against.
    pub fn pins(&self) -> Option<&Pins> {
        self.context.pins()
    }

    /// The quotas of all users.
    pub fn shares(&self) -> &Arc<UserQuotas> {
        self.context.shares()
    }

    /// Removes the values of secrets from text.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        self.context.redactor()
    }

    /// Takes over a registry: servers that are new come, those that are gone or changed end after
    /// their calls. Entries that did not change keep their processes.
    pub fn load(&self, loaded: &registry::LoadedRegistry) {
        let before = self.servers.load_full();
        let mut servers = BTreeMap::new();
        for (id, found) in &loaded.servers {
            let entry = &found.entry;
            if entry.disabled {
                continue;
            }
            let executable = executable(entry);
            match before.get(id) {
                // A contract is a file of its own, which may have changed.
                Some(old)
                    if is_same(&old.spec.entry, entry)
                        && old.spec.executable == executable
                        && entry.contract.is_none() =>
                {
                    old.follow(entry);
                    old.block(found.refusal.clone());
                    old.reset();
                    servers.insert(id.clone(), old.clone());
                }
                old => {
                    let known = self.context.recall(id, entry, &executable);
                    let server = HostedServer::new(
                        id,
                        found,
                        executable,
                        known,
                        old.map(|old| &**old),
                        &self.context,
                    );
                    servers.insert(id.clone(), Arc::new(server));
                }
            }
        }
        let servers = Arc::new(servers);
        self.servers.store(servers.clone());
        for (id, server) in servers.iter() {
            if !before.get(id).is_some_and(|old| Arc::ptr_eq(server, old)) {
                server.tells();
            }
        }
        for (id, old) in before.iter() {
            if !servers
                .get(id)
                .is_some_and(|server| Arc::ptr_eq(server, old))
            {
                info!(
                    server = id,
                    "server removed or changed: it ends after its calls"
                );
                if !servers.contains_key(id) {
                    old.spec
                        .taps
                        .close("the server was removed from the registry");
                }
                old.retire();
                let mut leaving = self.leaving.lock();
                leaving.retain(|server| server.upgrade().is_some_and(|server| server.is_running()));
                leaving.push(Arc::downgrade(old));
            }
        }
        self.rebuild();
    }

    /// Builds the table anew and tells everybody if it is another one.
    fn rebuild(&self) {
        let _one_at_a_time = self.rebuilding.lock();
        let before = self.table.load_full();
        let servers = self.servers.load_full();
        let seen: Vec<_> = servers
            .values()
            .filter(|server| server.offer.catalogue().seen)
            .collect();
        let table = CatalogTable::build(&servers, &before);
        let collisions = table
            .collisions
            .iter()
            .filter(|new| !before.collisions.contains(new));
        let look_alikes = table
            .look_alikes
            .iter()
            .filter(|new| !before.look_alikes.contains(new));
        for warning in collisions
            .map(|taken| taken.text.clone())
            .chain(look_alikes.map(|warning| warning.to_string()))
        {
            match self.warned.fetch_add(1, Ordering::Relaxed) {
                0..MAX_WARNINGS => warn!("{warning}"),
                MAX_WARNINGS => warn!("{warning}; further ones are in colibri-mcp status alone"),
                _ => break,
            }
        }
        let changed = table.changed_since(&before);
        self.table.store(Arc::new(table));
        for server in seen {
            server.offer.set_in_table();
        }
        self.changes.add(changed);
    }

    /// A server's tools were read.
    fn catalogue_changed(&self, changed: bool) {
        if changed {
            self.rebuild();
        }
        self.seen.notify_waiters();
    }

    /// Has those of these servers started whose tools are not known, together. Until when which of
    /// them are worth waiting for: those that are started for the first time, and not for long.
    /// Stragglers are told of by list_changed.
    pub fn discover(
        &self,
        servers: &[Arc<HostedServer>],
        client: &Arc<Client>,
    ) -> Vec<(Instant, Arc<HostedServer>)> {
        let started = |server: &Arc<HostedServer>| Some((server.discover(client)?, server.clone()));
        servers.iter().filter_map(started).collect()
    }

    /// Waits until these servers have been started, or the time is up.
    pub async fn discovered(&self, awaited: Vec<(Instant, Arc<HostedServer>)>) {
        for (until, server) in awaited {
            loop {
                let seen = self.seen.notified();
                if server.offer.is_in_table()
                    || !server.is_starting()
                    || timeout_at(until, seen).await.is_err()
                {
                    break;
                }
            }
        }
    }

    /// Waits until none of these servers is being started to be seen for the first time. A start
    /// has its own limit.
    async fn settled(&self, servers: &[Arc<HostedServer>]) {
        for server in servers {
            loop {
                let seen = self.seen.notified();
                if server.offer.is_in_table() || !server.is_starting() {
                    break;
                }
                seen.await;
            }
        }
    }

    /// The servers whose tools are not known.
    pub fn unseen(&self) -> Vec<Arc<HostedServer>> {
        let unseen = |server: &&Arc<HostedServer>| !server.offer.is_in_table();
        self.servers
            .load()
            .values()
            .filter(unseen)
            .cloned()
            .collect()
    }

    /// The servers of the registry, and those that are leaving.
    fn all(&self) -> Vec<Arc<HostedServer>> {
        let mut all: Vec<_> = self.servers.load().values().cloned().collect();
        all.extend(self.leaving.lock().iter().filter_map(Weak::upgrade));
        all
    }

    /// A client wants log messages of another level from now on.
    pub(crate) fn relevel(&self, session: &ClientSession, level: Level) {
        for server in self.all() {
            server.relevel(session, level);
        }
    }

    /// A connection is gone.
    pub fn disconnected(&self, connection: u64) {
        for server in self.all() {
            server.disconnected(connection);
        }
    }

    /// Ends all servers and waits until their processes are gone, but not longer than `limit`.
    /// `false`: some are not.
    pub async fn end(&self, limit: Duration) -> bool {
        for server in self.all() {
            server.end("the daemon is ending");
        }
        let mut processes = self.context.processes();
        tokio::time::timeout(limit, processes.wait_for(|count| *count == 0))
            .await
            .is_ok_and(|gone| gone.is_ok())
    }

    /// Server processes that run.
    pub fn running(&self) -> usize {
        *self.context.processes().borrow()
    }
}

/// True if two entries say the same, however they are written.
fn is_same(one: &ServerSpec, other: &ServerSpec) -> bool {
    let written_alike = ServerSpec {
        digest: one.digest.clone(),
        ..other.clone()
    };
    *one == written_alike
}

/// Identifies an executable: its path, and its size and time of last change where they can be seen.
/// A jailed server's program is in its root, which the daemon does not look into.
fn executable(entry: &ServerSpec) -> String {
    let EntryTransport::Stdio(command) = &entry.transport else {
        return String::new();
    };
    let path = command.program.display();
    match std::fs::metadata(&command.program) {
        Ok(found) if command.jail.is_none() => {
            format!(
                "{path} {} {}.{:09}",
                found.size(),
                found.mtime(),
                found.mtime_nsec()
            )
        }
        _ => path.to_string(),
    }
}
