//! Framing: a frame is one line, read from and queued towards a peer.

pub mod frame;
pub mod outbox;

pub use frame::{Frame, FrameReader};
pub use outbox::{Budget, Outbox, Shared, together};
