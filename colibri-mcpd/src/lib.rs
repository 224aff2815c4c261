//! Colibri MCP: the daemon's library.
//!
//! Ground floor first; a module uses only what stands left of it: `peer`, `outbound` → `policy`, `store`, `confine`
//! → `relay` → `servers`, `builtin` → `catalog` → `daemon` → `ops` → `door` → `run`.

pub mod builtin;
pub mod catalog;
pub mod config;
pub mod confine;
pub mod daemon;
pub mod door;
mod log;
pub mod oauth;
mod ops;
pub mod outbound;
pub mod peer;
pub mod policy;
pub mod relay;
pub mod run;
pub mod servers;
pub mod store;
