//! The acting part: what touches the system, one file for each step of the order of work.

pub(crate) mod agent_socket;
#[cfg(target_os = "freebsd")]
pub(crate) mod devfs;
pub(crate) mod files;
pub(crate) mod identity;
#[cfg(target_os = "freebsd")]
pub(crate) mod mounts;
pub(crate) mod report;
pub(crate) mod reset;
pub(crate) mod run;
#[cfg_attr(target_os = "freebsd", path = "sandbox_freebsd.rs")]
#[cfg_attr(target_os = "linux", path = "sandbox_linux.rs")]
pub(crate) mod sandbox;
pub(crate) mod secrets;
pub(crate) mod server;
pub(crate) mod state;
pub(crate) mod stop;
pub(crate) mod supervise;
pub(crate) mod syslog;
pub(crate) mod tell;
