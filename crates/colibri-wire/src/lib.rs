//! JSON-RPC envelopes and edits, in place; knows nothing of MCP, and of no runtime.
//!
//! A frame is read in one pass, which notes where its outer members stand ([`scan::Tape`]), and is relayed by
//! reference: what changes on the way is a list of byte ranges ([`splice::Edits`]), everything outside them is
//! identical.

pub mod envelope;
pub mod json;
pub mod keys;
pub mod salvage;
pub mod scan;
pub mod splice;

pub use envelope::{Envelope, Id, Kind, Refusal};
pub use json::{Json, Malformed};
pub use scan::Tape;
pub use splice::Edits;
