//! The pure part of the setuid helper: what may be asked, what the registry and the policy say, and
//! the plan that follows from them. Nothing here touches the system, and nothing here is `unsafe`.
//!
//! The registry is read by `colibri-registry`, which the daemon uses too, so that both always mean
//! the same by an entry.
#![forbid(unsafe_code)]

pub mod audit;
pub mod limits;
pub mod names;
pub mod passwd;
pub mod plan;
pub mod policy;
pub mod record;
pub mod refusal;
pub mod request;

/// The number of the contract between daemon and helper: command line, exit codes, the `started`
/// line, the digest of entries. `--version` prints it; a daemon that knows another number must not
/// start servers.
pub const CONTRACT: u32 = 2;

/// The line that the helper writes on stderr before the server's program is executed: this, the
/// jail's number and, if it is so, [`UNBOUNDED`].
pub const STARTED: &str = "helper: started jid=";

/// The end of that line if the policy says `"bounded": false` of a mount of the jail.
pub const UNBOUNDED: &str = " bounded=no";

/// The directory of registry, policy and secrets. No switch moves it: who could, would choose what
/// root trusts.
pub(crate) const CONFIG_DIR: &str = "/usr/local/etc/colibri";

/// The policy.
pub const POLICY: &str = "/usr/local/etc/colibri/jail-policy.json";

/// The secrets of jailed servers, one file each.
pub const SECRETS_DIR: &str = "/usr/local/etc/colibri/secrets";

/// The helper's records and staged directories: `/var/run/colibri-jail`, under the name that has no
/// symlink in it (on Linux `/var/run` is one, FHS 3.0 §5.13).
pub const STATE_DIR: &str = if cfg!(target_os = "linux") {
    "/run/colibri-jail"
} else {
    "/var/run/colibri-jail"
};
