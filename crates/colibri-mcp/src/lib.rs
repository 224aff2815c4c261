//! What others' files say of MCP servers, read for `colibri-mcp add` and `import`: a library of its own, so that the
//! fuzzer can reach it. The program stands beside it, in `main.rs`.
#![forbid(unsafe_code)]

pub mod bring;
