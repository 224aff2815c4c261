//! The rules for calls.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::client::Client;
use colibri_policy::{CallerGates, Clients, Gates, Rights};

/// The rules for calls.
pub struct CallRules {
    /// The daemon's gates.
    pub gates: ArcSwap<Gates>,
    /// The client policy.
    pub clients: ArcSwap<Clients>,
}

impl CallRules {
    /// The rights of a client by policy.
    pub fn rights(&self, client: &Client) -> Arc<Rights> {
        client.lessened(self.clients.load().rights(&client.caller))
    }

    /// The gates as they stand for a client.
    pub(crate) fn gates_for(&self, client: &Client) -> CallerGates {
        let daemon = **self.gates.load();
        let rights = self.rights(client);
        rights.caller_gates(daemon, client.narrowed(daemon))
    }
}
