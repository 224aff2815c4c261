//! The pure part of the setuid helper: what may be asked, what the registry and the policy say, and the plan that
//! follows from them. Nothing here touches the system, and nothing here is `unsafe`.
//!
//! The daemon uses the same code to read the registry, so that both always mean the same by an entry.
#![forbid(unsafe_code)]

pub mod registry;
pub mod strict;
