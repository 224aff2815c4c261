//! The second stage: is this caller allowed this call, and does the call say what its target can take.

use arc_swap::ArcSwap;

use super::{Call, Failure};
use crate::policy::{Gate, Gates};
use crate::protocol::Code;

/// What calls are checked against.
pub struct Rules {
    /// The daemon's gates.
    pub gates: ArcSwap<Gates>,
}

impl Rules {
    /// The gates as they are for a client.
    pub fn gates_for(&self, client: &super::Client) -> Gates {
        client.narrowed(**self.gates.load())
    }
}

/// Checks a call.
pub fn validate(rules: &Rules, call: &mut Call) -> Result<(), Failure> {
    let target = call.target.clone();
    let described = target.describe();
    let gate = described.gate;
    if !rules.gates_for(&call.client).is_open(gate) {
        let name = match gate {
            Gate::External => "external",
            _ => "write",
        };
        let daemon = rules.gates.load().is_open(gate);
        let failure = Failure::new(
            Code::GateClosed,
            format!("{}: the {name} gate is closed", described.operation),
        );
        return Err(failure.of_server(described.server).advising(if daemon {
            "this connection asked to be read-only (--read-only): connect without it"
        } else {
            gate.how_to_open()
        }));
    }
    target.check(call)
}
