//! The acting part: what touches the system, one file for each step of the order of work.

#[cfg_attr(target_os = "freebsd", path = "cell_freebsd.rs")]
#[cfg_attr(target_os = "linux", path = "cell_linux.rs")]
pub mod cell;
#[cfg(target_os = "freebsd")]
pub mod devfs;
pub mod files;
pub mod identity;
#[cfg(target_os = "freebsd")]
pub mod mounts;
pub mod report;
pub mod reset;
pub mod run;
pub mod secrets;
pub mod server;
pub mod state;
pub mod stop;
pub mod supervise;
pub mod syslog;
pub mod tell;
