//! The tracer of this system.

#[cfg(target_os = "freebsd")]
pub(super) use super::tracer_freebsd::{KtraceProcess as TracedServer, kill_traced, read_trace};
#[cfg(not(target_os = "freebsd"))]
pub(super) use super::tracer_linux::{StraceProcess as TracedServer, kill_traced, read_trace};
