//! Who may call what: gates, clients, tool rules, contracts, pins, approvals.
//!
//! Everything here is synchronous and immutable once built, except for [`Pins`] and [`Approvals`], which keep state; a
//! reload builds new values and swaps them whole.

mod clients;
mod file;
mod gates;
mod pattern;
mod rules;

pub use clients::{Accounts, Clients, Rights, SystemAccounts};
pub use file::FileError;
pub use gates::{Caller, CallerGates, Gate, GateState, Gates};
pub use pattern::Pattern;
pub use rules::{Rules, Verdict};
