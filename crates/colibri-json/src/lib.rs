//! Strict JSON for security decisions: configuration, policy, and the arguments that policy reads.
//!
//! A general JSON library accepts errors that such a text must not contain: an unknown key, a
//! repeated key (the last one wins), half of a surrogate pair, a number that loses digits. Here
//! each of them is an error with its place. No error ever shows a value: a registry may hold tokens
//! that somebody pasted, and messages go to logs and terminals.
//!
//! [`JsonReader`] reads the grammar of RFC 8259 and nothing beyond it, value by value, and stores
//! nothing. [`Document`] is a parsed file. [`ValueCursor`] walks it and remembers its place, so
//! that an error needs only a message. [`JsonWriter`] writes.

mod document;
mod near;
mod read;
mod write;

pub use document::{
    Document, DocumentError, MAX_BYTES, MAX_DEPTH, NamedValue, Object, ValueCursor,
};
pub use near::nearest;
pub use read::{HALF_SURROGATE, JsonFault, JsonReader, PathStep, ValueKind, string_stops};
pub use write::JsonWriter;
