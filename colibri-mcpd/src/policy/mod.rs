//! Who may call what: gates, clients, tool rules, contracts, pins.

mod gates;

pub use gates::{Caller, CallerGates, Gate, GateState, Gates};
