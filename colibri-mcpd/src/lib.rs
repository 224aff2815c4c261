//! Colibri MCP: the daemon's library.
//!
//! Ground floor first; a module uses only what stands left of it: `reserve`, `peer`, `outbound`, `results` → `policy`, `store`,
//! `confine` → `registry`, `ledger`, `relay` → `board` → `servers`, `builtin` → `catalog` → `daemon` → `ops`
//! → `door` → `run`.

// As the modules that the fuzzer and these tests share call it.
#[cfg(test)]
extern crate self as colibri_mcpd;

pub mod agents;
pub mod board;
pub mod builtin;
pub mod catalog;
pub mod config;
pub mod confine;
pub mod daemon;
pub mod inbound;
pub mod ledger;
mod log;
pub mod model;
pub mod notices;
pub mod oauth;
mod ops;
pub mod outbound;
pub mod peer;
pub mod policy;
pub mod registry;
pub mod relay;
pub mod results;
pub mod run;
pub mod scripts;
pub mod search;
pub mod servers;
pub mod store;
pub mod summaries;
