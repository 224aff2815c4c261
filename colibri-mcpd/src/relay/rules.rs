//! The rules for calls.

use std::sync::Arc;

use arc_swap::ArcSwap;

use super::client::Client;
use colibri_policy::{CallerGates, Clients, Gate, GateState, Gates, Rights};

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
        self.gates_under(client, &self.rights(client))
    }

    pub(super) fn gates_under(&self, client: &Client, rights: &Rights) -> CallerGates {
        let daemon = **self.gates.load();
        let narrowed = client.narrowed(daemon);
        let state = |gate| match (
            daemon.is_open(gate),
            narrowed.is_open(gate),
            rights.closes(gate),
        ) {
            (false, ..) => daemon.closed(),
            (true, false, _) => GateState::Narrowed,
            (true, true, Some(rule)) => GateState::Refused { rule },
            (true, true, None) => GateState::Open,
        };
        CallerGates {
            write: state(Gate::Write),
            external_call: state(Gate::External),
        }
    }
}
