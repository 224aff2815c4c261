//! What others' files say of MCP servers, read for `colibri-mcp add` and `import`, and how such files are changed in
//! place: a library of its own, so that the fuzzer can reach it. The program stands beside it, in `main.rs`.
#![forbid(unsafe_code)]

pub mod edit;
pub mod importers;
