//! One side of a JSON-RPC connection: a client of the daemon, or a server that it hosts.
//!
//! [`FrameReader`] reads frames, one line each. [`Outbox`] queues frames for a peer and writes them
//! in their order. [`Slab`] gives the ids under which requests are in flight towards it.
//! [`ByteBudget`] counts what all peers of a daemon keep in memory.
//!
//! Its promises:
//! - a frame is handed over as it came, byte for byte, or not at all ([`Frame`] says why not);
//! - pushing never waits: a peer that does not read costs its own connection, never a caller's
//!   time;
//! - one queue a direction, first in, first out: progress precedes its answer;
//! - when the budget is used up, the peer that is cut off belongs to whoever holds most;
//! - no id is given twice in a peer's life.
//!
//! It knows no method of MCP, no user beyond a [`Tenant`] to charge, and opens no connection. What
//! a frame says is read by `colibri-wire`.

mod aside;
mod budget;
mod frame;
mod outbox;
mod partial_message;
mod slab;

pub use aside::aside;
pub use budget::{ByteBudget, SharedBytes, Tenant};
pub use frame::{Frame, FrameReader};
pub use outbox::{Charge, Outbox, OutboxBatch, together};
pub use partial_message::PartialMessage;
pub use slab::Slab;
