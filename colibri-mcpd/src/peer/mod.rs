//! A JSON-RPC peer: frames read from it (one line each), frames queued for it, and what is in flight towards it.

mod frame;
mod outbox;
mod slab;

pub use frame::{Frame, FrameReader};
pub use outbox::{Budget, Outbox, Shared, together};
pub use slab::Slab;
