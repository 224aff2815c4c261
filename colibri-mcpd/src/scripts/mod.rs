//! Scripts: a call of `colibri_run_script` becomes many, each of which passes all that any call
//! passes.
//!
//! The script runs in a process of its own, `colibri-script`, which gives up all its rights before
//! it reads the script (`process.rs`). The daemon treats what that process writes as an attacker's
//! (`session.rs`). A client within the daemon makes the calls, behind [`ScriptConnector`].

mod connection;
mod outcome;
mod process;
mod requests;
mod runner;
mod running;
mod session;

pub use connection::{ScriptConnection, ScriptConnector};
pub use runner::Scripts;
pub(crate) use runner::program_beside;
