//! Readers of others' descriptions of MCP servers, for `colibri-mcp add` and `import`, and changes
//! of such files in place: a library of its own, so that the fuzzer can reach it. The program
//! stands beside it, in `main.rs`.
#![forbid(unsafe_code)]

pub mod edit;
pub mod importers;
