//! How root is reached for a jailed server.

use std::fmt;
use std::str::FromStr;

/// The setuid helper. One path in every mode: what may become root is decided by where it stands and who owns it.
pub const HELPER: &str = "/usr/local/libexec/colibri-jail-helper";

/// How the helper gets root (`--priv-mode`, `COLIBRI_JAIL_PRIV_MODE`).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum PrivMode {
    /// It is setuid root.
    #[default]
    Helper,
    /// Through mdo(1) and mac_do(4), for images whose file systems are nosuid. It protects against mistakes, not against
    /// the daemon: mac_do authorises credentials, never commands.
    Mdo,
    /// Through `sudo -n` and the sudoers line that ships.
    Sudo,
}

/// A priv mode that does not exist.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown priv mode; it must be helper, mdo or sudo")]
pub struct UnknownPrivMode;

impl FromStr for PrivMode {
    type Err = UnknownPrivMode;

    fn from_str(text: &str) -> Result<Self, UnknownPrivMode> {
        match text {
            "helper" => Ok(Self::Helper),
            "mdo" => Ok(Self::Mdo),
            "sudo" => Ok(Self::Sudo),
            _ => Err(UnknownPrivMode),
        }
    }
}

impl fmt::Display for PrivMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Helper => "helper",
            Self::Mdo => "mdo",
            Self::Sudo => "sudo",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_read_and_shown() {
        for name in ["helper", "mdo", "sudo"] {
            assert_eq!(name.parse::<PrivMode>().unwrap().to_string(), name);
        }
        for name in ["", "Helper", "root", "sudo ", "doas"] {
            assert_eq!(name.parse::<PrivMode>(), Err(UnknownPrivMode));
        }
        assert_eq!(PrivMode::default(), PrivMode::Helper);
    }
}
