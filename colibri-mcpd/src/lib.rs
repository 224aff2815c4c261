//! Colibri MCP: the daemon's and the client's library.
//!
//! Ground floor first; a module uses only what stands left of it: `wire` → `policy`, `store`, `confine`
//! → `chain` → `tools`, `host` → `server`, `client` → the binaries.

pub mod chain;
pub mod client;
pub mod config;
pub mod confine;
pub mod host;
pub mod policy;
pub mod server;
pub mod store;
pub mod tools;
pub mod wire;
