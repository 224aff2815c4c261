//! Framing and JSON-RPC envelopes; knows nothing of MCP.
//!
//! A frame is one line. It is validated once ([`json::Json::parse`]), walked in place, and relayed by reference:
//! what changes on the way is a list of byte ranges ([`splice::Edits`]), everything outside them is identical.

pub mod envelope;
pub mod frame;
pub mod json;
pub mod outbox;
pub mod salvage;
pub mod splice;

pub use envelope::{Envelope, Id, Kind, Refusal};
pub use frame::{Frame, FrameReader};
pub use json::{Json, Malformed};
pub use outbox::{Budget, Outbox};
pub use splice::Edits;
