//! Where bytes and a caller's identity come in: the Unix socket, and what becomes of what each client writes.

pub mod lines;
mod listener;
mod messages;

pub use listener::{ListenError, Listener};
