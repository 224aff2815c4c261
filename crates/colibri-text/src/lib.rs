//! Untrusted text, made safe to show to people and to log.
//!
//! Text that a model reads and a person does not see is the means of tool poisoning. Characters
//! that change the direction of text, or act on a terminal, deceive the reader. This crate has the
//! one table of such characters ([`is_hidden`]), the contexts in which some of them are ordinary
//! writing ([`first_hidden`]), and the escapes that show them: `\u{…}` in text ([`visible`]), `\u…`
//! in JSON ([`json`], [`push_json_string`]), `\x…` for fields of printable ASCII ([`ascii`]).

mod count;
mod escape;
mod hex;
mod hidden;
mod ordinary;
mod pattern;

pub use count::counted;
pub use escape::{
    ascii, ascii_bytes, brief, brief_end, json, json_escape, label, push_json_string, visible,
    visible_lines,
};
pub use hex::{hex, hex_into, push_hex, unhex, unhex_into};
pub use hidden::is_hidden;
pub use ordinary::first_hidden;
pub use pattern::Pattern;
