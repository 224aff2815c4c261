//! Colibri MCP: the daemon's library.
//!
//! Ground floor first; a module uses only what stands left of it: `wire` → `policy`, `store`, `confine`
//! → `chain` → `servers`, `builtin` → `catalog` → `daemon` → `ops` → `door` → `run`.

pub mod builtin;
pub mod catalog;
pub mod chain;
pub mod config;
pub mod confine;
pub mod daemon;
pub mod door;
mod log;
mod ops;
pub mod peer;
pub mod policy;
pub mod run;
pub mod servers;
pub mod store;
pub mod wire;
