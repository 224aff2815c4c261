//! Where bytes and a caller's identity come in: the Unix socket, and what becomes of what each client writes.

pub mod http;
pub mod lines;
mod listener;
mod messages;
mod visitor;

pub use listener::{ListenError, Listener};
pub use visitor::Visitor;
