//! A JSON-RPC peer: frames read from it (one line each), frames queued for it, and what is in
//! flight towards it.

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
