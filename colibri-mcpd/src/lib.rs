//! Colibri MCP: the daemon's library.
//!
//! Ground floor first; a module uses only what stands left of it: `wire` → `policy`, `store`, `confine`
//! → `chain` → `tools`, `host` → `server` → the binary.

pub mod chain;
pub mod config;
pub mod confine;
pub mod host;
pub mod policy;
pub mod server;
pub mod store;
pub mod tools;
pub mod wire;
