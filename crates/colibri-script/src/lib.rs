//! One script of many tool calls, run by QuickJS in a process that can read one pipe and write
//! another.
//!
//! [`sandbox`] takes everything else away before the script is read; [`engine`] runs it. The
//! daemon's side is the room `scripts/` of `colibri-mcpd`.

pub mod engine;
mod place;
pub mod sandbox;
mod sys;
