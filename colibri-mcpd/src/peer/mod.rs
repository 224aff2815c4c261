//! A JSON-RPC peer: frames read from it (one line each), frames queued for it, and what is in flight towards it.

mod aside;
mod frame;
mod outbox;
mod slab;

pub use aside::aside;
pub use frame::{Frame, FrameReader};
pub use outbox::{Budget, Outbox, Shared, together};
pub use slab::Slab;
