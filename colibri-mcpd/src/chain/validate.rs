//! The second stage: is this caller allowed this call, and does the call say what its target can take.

use arc_swap::ArcSwap;

use super::{Call, Client, Failure};
use crate::policy::{CallerGates, Gate, GateState, Gates};

/// What calls are checked against.
pub struct Rules {
    /// The daemon's gates.
    pub gates: ArcSwap<Gates>,
}

impl Rules {
    /// The gates as they stand for a client.
    pub fn gates_for(&self, client: &Client) -> CallerGates {
        let daemon = **self.gates.load();
        let narrowed = client.narrowed(daemon);
        let state = |gate| match (daemon.is_open(gate), narrowed.is_open(gate)) {
            (false, _) => GateState::Closed,
            (true, false) => GateState::Narrowed,
            (true, true) => GateState::Open,
        };
        CallerGates { write: state(Gate::Write), external_call: state(Gate::External) }
    }
}

/// Checks a call.
pub fn validate(rules: &Rules, call: &mut Call) -> Result<(), Failure> {
    let target = call.target.clone();
    let described = target.describe();
    if described.gate != Gate::None {
        let open = rules.gates_for(&call.client).check(described.gate);
        open.map_err(|failure| failure.of_server(described.server))?;
    }
    target.check(call)
}
