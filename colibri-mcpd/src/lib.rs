//! Colibri MCP: the daemon's library.
//!
//! Ground floor first; a module uses only what stands left of it: `wire` → `policy`, `store`, `confine`
//! → `chain` → `builtin`, `host` → `daemon` → `ops` → `door` → `run`.

pub mod builtin;
pub mod chain;
pub mod config;
pub mod confine;
pub mod daemon;
pub mod door;
pub mod host;
mod log;
mod ops;
pub mod policy;
pub mod run;
pub mod store;
pub mod wire;
