//! What the end-to-end tests share: finding the built binaries, private daemons, a client that
//! works on raw lines, and the check that nothing is left behind.
//!
//! The tests run the real executables and speak to them over the real socket. They share no code
//! with the daemon: a mistake would have to be made twice to go unseen.

mod bridge;
pub mod campaign;
mod client;
mod daemon;
pub mod fleet;
pub mod hostile_scripts;
pub mod http;
#[cfg(target_os = "linux")]
pub mod installed;
pub mod model;
mod mounted;
mod neighbour;
mod postgres;
#[cfg(target_os = "linux")]
mod power_cut;
mod processes;
mod programs;
pub mod remote;
mod sshd;
mod trail;

pub use bridge::Bridge;
pub use client::{
    Client, Era, HEADLESS, LEGACY, MODERN, code_of, headless_meta, kept_of, last_text_of,
    modern_meta, rule_of, text_of, wait_as_a_person,
};
pub use daemon::{Daemon, Place, connect_as};
pub use mounted::Mounted;
pub use neighbour::{NEIGHBOUR, Neighbour};
pub use postgres::{Postgres, run_sql};
#[cfg(target_os = "linux")]
pub use power_cut::run_to_change;
pub use processes::{is_alive, processes_with};
pub use programs::{copy_program, program};
pub use sshd::Sshd;
pub use trail::{Record, open_trail, records_in};

use std::time::{Duration, Instant};

/// How long anything may take before a test gives up. Far more than it takes on a busy machine: no
/// test measures time.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// True if seeds, rounds and floods are to be a part of what they are else: `.ci/run` does that,
/// `.ci/long` has them all.
pub fn is_short() -> bool {
    std::env::var_os("COLIBRI_SHORT").is_some()
}

/// Waits until `look` finds what it looks for.
///
/// # Panics
/// After [`PATIENCE`], with `what` it waited for.
pub fn wait_for<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let until = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < until, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(5));
    }
}
