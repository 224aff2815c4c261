//! Start and end of a server's process: with what privilege, in which place, below which
//! supervisor.
//!
//! A host server runs below a [`supervisor`], a jailed one below `colibri-jail-helper`: two
//! supervisors with one manner. Both share the server's pipes, write one line on stderr when the
//! server's program runs, watch the server's standard input for the daemon's going away, end the
//! whole tree then, and exit with the server's status. So the pool starts both through one trait,
//! [`Spawner`], and ends both by one act: dropping the server's stdin.
//!
//! Its promises:
//! - a server gets the environment that was built for it, its three pipes and nothing else that
//!   this process has;
//! - ending a server ends its whole tree, also when the daemon is killed;
//! - where the helper, mdo or sudo cannot be used, nothing is started, and the error says what to
//!   do;
//! - root is reached by programs at fixed paths alone, never by a name that `PATH` decides.
//!
//! It reads no registry and decides nothing: who may start what is the policy's, how a jail is made
//! the helper's, when a server starts or ends the daemon's pool.

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
pub use spawner::{
    ServerProcess, SpawnedServer, Spawner, SystemSpawner, check_contract, session_id,
};
pub use tree::Processes;
