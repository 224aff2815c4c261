//! JSON-RPC envelopes and edits, in place; without knowledge of MCP, and of any runtime.
//!
//! A frame is read in one pass, which records the places of its outer members ([`scan::Tape`]), and
//! is relayed by reference. Changes on the way are a list of byte ranges ([`splice::Edits`]); all
//! bytes outside them stay identical.

pub mod envelope;
pub mod json;
pub mod keys;
pub mod salvage;
pub mod scan;
pub mod splice;

pub use envelope::{Envelope, EnvelopeKind, EnvelopeRefusal, RequestId};
pub use json::{Json, SyntaxError};
pub use scan::Tape;
pub use splice::Edits;
