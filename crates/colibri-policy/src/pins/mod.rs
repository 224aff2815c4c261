//! Pins: the definitions of tools and the instructions of servers as first approved.
//!
//! A model acts on what a definition says, so a server that changes one changes what its tools do
//! to the person who approved them ("rug pull"). A pin is a SHA-256 over the whole definition, with
//! its keys sorted and insignificant space removed and everything else as written. What is not as
//! pinned is blocked, with a readable difference, until an operator accepts exactly that text.
//!
//! By default the first definition of a tool is trusted, unless it holds characters that nobody
//! sees. In strict mode nothing is trusted until accepted, or pinned in a second, read-only file
//! that comes with an image.
//!
//! Pins live in a JSON file in the state directory, not in the database: they are few, an operator
//! can read, compare and copy them with ordinary tools, and the same file serves as an image's.

mod definition;
mod ledger;
mod pin;
mod pin_status;
mod saved;

pub use definition::canonical;
pub use ledger::Pins;
pub use pin::{PinError, TrustMode};
pub use pin_status::{PinCheck, PinStatus};
