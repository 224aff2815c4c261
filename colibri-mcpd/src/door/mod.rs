//! Where bytes and a caller's identity come in: the Unix socket, and the session of each connection.

mod listener;
pub mod session;

pub use listener::{ListenError, Listener};
