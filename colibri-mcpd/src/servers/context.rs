//! The parts that all servers share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tracing::warn;

use super::listing::Catalogue;
use super::tasks::ServerTasks;
use crate::registry::ServerSpec;
use crate::registry::secrets::{Redactor, SecretStore};
use crate::relay::Chain;
use colibri_confine::Spawner;
use colibri_outbound::oauth;
use colibri_peer::ByteBudget;
use colibri_policy::{PinCheck, Pins, UserQuotas};
use colibri_store::Database;

/// The daemon's parts that servers need.
pub struct ServerDependencies {
    /// Starts processes.
    pub spawner: Arc<dyn Spawner>,
    /// The store of catalogues between runs.
    pub store: Arc<Database>,
    /// The chain that every call passes.
    pub chain: Arc<Chain>,
    /// The bytes queued in the whole daemon.
    pub budget: Arc<ByteBudget>,
    /// The most bytes of one message.
    pub max_frame: usize,
    /// The secrets of host servers.
    pub secrets: Arc<SecretStore>,
    /// The store of logins at servers behind a URL.
    pub tokens: Arc<oauth::TokenStore>,
    /// The call limit of entries that set none.
    pub call_timeout: Duration,
    /// The pins that definitions are checked against. `None`: they are not, for simulations alone.
    /// No flag of the daemon leads here.
    pub pins: Option<Arc<Pins>>,
    /// The quotas of all users.
    pub shares: Arc<UserQuotas>,
}

/// Notified when a start is over; true if the server's advertised items have changed.
pub(crate) type DiscoveryObserver = Box<dyn Fn(bool) + Send + Sync>;

/// The parts that all servers share.
pub struct ServerContext {
    pub(super) parts: ServerDependencies,
    tasks: Arc<ServerTasks>,
    processes: watch::Sender<usize>,
    /// A process is gone: who waits for a turn asks again. Waiters of `processes` are woken in no
    /// order.
    freed: Notify,
    next_process: AtomicU64,
    retries: AtomicU64,
    learned: DiscoveryObserver,
}

impl ServerContext {
    /// A context of these parts.
    pub(crate) fn new(parts: ServerDependencies, learned: DiscoveryObserver) -> Arc<ServerContext> {
        Arc::new(ServerContext {
            parts,
            tasks: Arc::default(),
            processes: watch::Sender::new(0),
            freed: Notify::new(),
            next_process: AtomicU64::new(1),
            retries: AtomicU64::new(0),
            learned,
        })
    }

    /// Notifies the observer that a start is over or that a server's tools were read, before
    /// anybody gets the process.
    pub(super) fn learned(&self, changed: bool) {
        (self.learned)(changed);
    }

    /// The tasks that servers have.
    pub fn tasks(&self) -> &Arc<ServerTasks> {
        &self.tasks
    }

    /// The pins that definitions are checked against.
    pub fn pins(&self) -> Option<&Pins> {
        self.parts.pins.as_deref()
    }

    /// The quotas of all users.
    pub fn shares(&self) -> &Arc<UserQuotas> {
        &self.parts.shares
    }

    /// The pin check of a server's report. What was never said is nothing.
    pub(super) fn judge(&self, id: &str, said: &Catalogue) -> PinCheck {
        match &self.parts.pins {
            Some(pins) if said.seen => {
                let definitions = said
                    .all()
                    .map(|(feature, of)| (feature, &*of.name, &*of.raw));
                pins.judge(id, said.instructions.as_deref(), definitions)
            }
            _ => PinCheck::NOTHING,
        }
    }

    /// A number for a process.
    pub(super) fn next_process(&self) -> u64 {
        self.next_process.fetch_add(1, Ordering::Relaxed)
    }

    /// A number for the wait before another attempt.
    pub(super) fn next_retry(&self) -> u64 {
        self.retries.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn process_started(&self) {
        self.processes.send_modify(|count| *count += 1);
    }

    pub(super) fn process_gone(&self) {
        self.processes.send_modify(|count| *count -= 1);
        self.freed.notify_waiters();
    }

    /// Waits until a process is gone.
    pub(super) async fn freed(&self) {
        self.freed.notified().await;
    }

    /// The number of server processes that run, and its changes.
    pub fn processes(&self) -> watch::Receiver<usize> {
        self.processes.subscribe()
    }

    /// Keeps what a server said for the next start of the daemon.
    pub(super) fn remember(
        &self,
        id: &Arc<str>,
        digest: &Arc<String>,
        executable: &str,
        catalogue: &Arc<Catalogue>,
    ) {
        let (store, catalogue, id) = (self.parts.store.clone(), catalogue.clone(), id.clone());
        let (digest, executable) = (digest.clone(), executable.to_owned());
        tokio::task::spawn_blocking(move || {
            if let Err(error) = catalogue.keep(&store, &id, &digest, &executable) {
                warn!(server = &*id, "what it offers could not be kept: {error}");
            }
        });
    }

    /// The last report of a server with this entry and executable.
    pub fn recall(&self, id: &str, entry: &ServerSpec, executable: &str) -> Option<Arc<Catalogue>> {
        match Catalogue::kept(&self.parts.store, id, &entry.digest, executable) {
            Ok(catalogue) => catalogue.map(Arc::new),
            Err(error) => {
                warn!(server = id, "what it offered could not be read: {error}");
                None
            }
        }
    }

    /// Removes the values of secrets from text.
    pub(crate) fn redactor(&self) -> Arc<Redactor> {
        self.parts.secrets.redactor()
    }
}
