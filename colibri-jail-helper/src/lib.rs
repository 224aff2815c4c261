//! The pure part of the setuid helper: what may be asked, what the registry and the policy say, and the plan that
//! follows from them. Nothing here touches the system, and nothing here is `unsafe`.
//!
//! The daemon uses the same code to read the registry, so that both always mean the same by an entry.
#![forbid(unsafe_code)]

pub mod registry;
pub mod strict;

/// The number of the contract between daemon and helper: command line, exit codes, the `started` line, the digest of
/// entries. `--version` prints it; a daemon that knows another number must not start servers.
pub const CONTRACT: u32 = 1;

/// The registry that the helper reads.
pub const REGISTRY: &str = "/usr/local/etc/colibri/external-mcp.json";
