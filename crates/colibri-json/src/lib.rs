//! JSON for what decides what runs: configuration, policy, and the arguments that policy reads.
//!
//! A general JSON library forgives what such a text must not contain: a key that nobody reads, a key twice (the last
//! wins), half of a surrogate pair, a number that loses digits. Here each of these is an error with its place, and no
//! error ever shows a value: a registry may hold tokens that somebody pasted, and the message goes to logs and
//! terminals.
//!
//! [`Reader`] reads the grammar of RFC 8259 and nothing beyond it, value by value, and keeps nothing. [`Document`] is a
//! file read whole; [`Cursor`] walks it and remembers where it is, so that whoever finds a bad value only says what is
//! wrong with it. [`Writer`] writes.

mod document;
mod near;
mod read;
mod write;

pub use document::{Cursor, Document, Error, MAX_BYTES, MAX_DEPTH, NamedValue, Object};
pub use near::nearest;
pub use read::{Fault, HALF_SURROGATE, Kind, Reader, Step, string_stops};
pub use write::Writer;
