//! The privilege backend for jailed servers.

use crate::named::named;

/// The setuid helper. One path in every mode: what may become root is decided by where it stands
/// and who owns it.
pub const HELPER: &str = "/usr/local/libexec/colibri-jail-helper";

named! {
    /// The privilege backend: the helper's way to root (`--priv-mode`, `COLIBRI_JAIL_PRIV_MODE`).
    #[derive(Default)]
    pub enum PrivMode {
        /// It is setuid root.
        #[default]
        Helper = "helper",
        /// Through mdo(1) and mac_do(4), for images whose file systems are nosuid. It protects
        /// against mistakes, not against the daemon: mac_do authorises credentials, never commands.
        Mdo = "mdo",
        /// Through `sudo -n` and the sudoers line that ships.
        Sudo = "sudo",
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
            assert!(name.parse::<PrivMode>().is_err(), "{name}");
        }
        assert_eq!(PrivMode::default(), PrivMode::Helper);
    }
}
