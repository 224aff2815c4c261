//! Streamable HTTP on the daemon's own socket, in both eras.

mod checks;
mod connection;
mod front;
pub mod head;
mod post;
pub mod refusal;
mod reply;
mod session;
mod stream;
mod wire;

pub(super) use connection::{refuse_at_door, serve, turn_away};
pub(super) use front::Front;
