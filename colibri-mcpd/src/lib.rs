//! Colibri MCP: the daemon's library.
//!
//! One daemon gives every editor and agent on a machine the same MCP servers. [`run::run_cli`] is
//! the whole program: flags, start, service, end. [`relay`] carries a call through its five stages:
//! enter, validate, dispatch, exit, record.
//!
//! Its promises:
//! - the kernel says who a caller is, never the caller;
//! - nothing is sent to a server before the call is on the trail, and no answer leaves before its
//!   end is;
//! - a call passes the stages in one order, the daemon's own tools too, and has exactly one answer;
//! - a server that misbehaves or ends costs its own calls alone.
//!
//! It needs no privilege and refuses to have any. What needs root is left to `colibri-jail-helper`,
//! what people type to `colibri-mcp`, the files' readers to `colibri-registry`.
//! `docs/architecture.md` has the rooms and who uses whom, which a test compares with the code.

pub mod agents;
pub mod board;
pub mod builtin;
pub mod catalog;
pub mod config;
pub mod daemon;
pub mod inbound;
mod log;
pub mod model;
pub mod notices;
mod ops;
pub mod registry;
pub mod relay;
pub mod results;
pub mod run;
pub mod scripts;
pub mod search;
pub mod servers;
pub mod summaries;
