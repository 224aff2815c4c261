//! Relays made and listened on, one for each instance of an agent that has a model.

use std::io;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UnixListener;
use tokio::task::{JoinHandle, JoinSet};
use tracing::warn;

use super::exchange::{self, RecordEvent, Relay, RelayContext};
use crate::agents::{ListenGuard, Models};
use crate::registry::AgentEntry;
use crate::registry::secrets::SecretStore;
use crate::relay::AgentSocket;
use colibri_peer::ByteBudget;
use colibri_policy::Caller;
use colibri_policy::UserSlots;
use colibri_store::cost_ledger::CostLedger;

/// The most connections of one agent at a time.
const MAX_CONNECTIONS: usize = 16;

/// Makes the relays of agents.
pub struct ModelRelays {
    shared: Arc<RelayContext>,
    secrets: Arc<SecretStore>,
}

impl ModelRelays {
    /// `record` writes an event into the trail; bodies that are read take of `room`.
    pub fn new(
        record: Box<RecordEvent>,
        ledger: Arc<CostLedger>,
        room: Arc<ByteBudget>,
        secrets: Arc<SecretStore>,
    ) -> ModelRelays {
        let judging = UserSlots::new(4);
        let shared = RelayContext {
            record,
            ledger,
            room,
            judging,
        };
        ModelRelays {
            shared: Arc::new(shared),
            secrets,
        }
    }
}

impl Models for ModelRelays {
    fn open(
        &self,
        socket: &Path,
        entry: &Arc<AgentEntry>,
        door: Arc<AgentSocket>,
        person: Caller,
    ) -> io::Result<Box<dyn ListenGuard>> {
        let model = entry
            .model
            .as_deref()
            .ok_or_else(|| io::Error::other("the agent has no model"))?;
        let headers = self
            .secrets
            .resolve(&model.headers)
            .map_err(io::Error::other)?;
        let relay = Relay::new(model, &headers, door, person.uid, self.shared.clone())
            .map_err(io::Error::other)?;
        let listener = UnixListener::bind(socket)?;
        // Its directory says who comes to it.
        std::fs::set_permissions(socket, std::fs::Permissions::from_mode(0o666))?;
        Ok(Box::new(ListeningRelay {
            accepting: tokio::spawn(accept(listener, Arc::new(relay))),
            socket: socket.to_owned(),
        }))
    }
}

/// A relay that is listened on.
struct ListeningRelay {
    accepting: JoinHandle<()>,
    socket: PathBuf,
}

impl ListenGuard for ListeningRelay {}

impl Drop for ListeningRelay {
    fn drop(&mut self) {
        self.accepting.abort();
        // Its directory may be gone already.
        let _ = std::fs::remove_file(&self.socket);
    }
}

async fn accept(listener: UnixListener, relay: Arc<Relay>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => match accepted {
                // Over the limit it is closed: there is no room to say why.
                Ok((stream, _)) if connections.len() < MAX_CONNECTIONS => {
                    connections.spawn(exchange::serve(relay.clone(), stream));
                }
                Ok(_) => {}
                Err(error) => {
                    // Out of descriptors, most likely: it goes by.
                    warn!(agent = %relay.door.agent, "accepting a connection to the model failed: {error}");
                    tokio::time::sleep(Duration::from_millis(100)).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
}
