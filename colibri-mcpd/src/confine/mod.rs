//! Start and end of a server's process.
//!
//! A host server runs below a [`supervisor`], a jailed one below `colibri-jail-helper`: two
//! supervisors with one manner. Both share the server's pipes, write one line on stderr when the
//! server's program runs, watch the server's standard input for the daemon's going away, end the
//! whole tree then, and exit with the server's status. So the pool starts both through one trait,
//! [`Spawner`], and ends both by one act: dropping the server's stdin.

pub mod as_user;
pub mod harden;
mod launch;
mod orphans;
mod priv_mode;
mod spawner;
pub mod supervisor;
mod sys;
mod tree;

pub use futures_core::future::BoxFuture;
pub use launch::{JailConfig, LaunchSettings, LaunchSpec, PATH, ServerExit, SpawnError};
pub use priv_mode::{CommandLine, check_program, jail_wrap, prepare_spawn_command};
pub(crate) use spawner::check_contract;
pub use spawner::{ServerProcess, SpawnedServer, Spawner, SystemSpawner, session_id};
pub use tree::Processes;
