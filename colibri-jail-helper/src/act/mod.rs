//! The acting part: what touches the system, one file for each step of the order of work.

#[cfg(target_os = "freebsd")]
pub mod devfs;
pub mod files;
pub mod identity;
#[cfg(target_os = "freebsd")]
pub mod mounts;
pub mod report;
pub mod reset;
pub mod run;
#[cfg_attr(target_os = "freebsd", path = "sandbox_freebsd.rs")]
#[cfg_attr(target_os = "linux", path = "sandbox_linux.rs")]
pub mod sandbox;
pub mod secrets;
pub mod server;
pub mod state;
pub mod stop;
pub mod supervise;
pub mod syslog;
pub mod tell;
