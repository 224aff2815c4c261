//! What the daemon does to itself before it opens anything, and what it refuses to be.

use super::{orphans, sys};
use std::io;

/// More privilege than the daemon may have.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Privilege {
    /// Effective or real user id 0.
    #[error("running as root; the daemon needs no privilege: start it as an ordinary user, such as colibri")]
    Root,
    /// Linux capabilities (capabilities(7)) in the permitted, effective, inheritable or ambient set.
    #[error("running with capabilities ({0}); the daemon needs no privilege: start it without them")]
    Capabilities(String),
}

/// Makes this process neither traceable nor dumpable: nobody of the same user, host servers above all, reads its memory
/// or its environment, and no core file holds a secret. What loses its supervisor comes to it, to be ended.
///
/// # Errors
/// The kernel refused; the daemon must not start then.
pub fn harden() -> io::Result<()> {
    sys::not_traceable()?;
    orphans::adopt()
}

/// The privilege that this process has and should not have; `None`: it is as it must be.
///
/// # Errors
/// The capabilities cannot be read.
pub fn excess_privilege() -> io::Result<Option<Privilege>> {
    if nix::unistd::getuid().is_root() || nix::unistd::geteuid().is_root() {
        return Ok(Some(Privilege::Root));
    }
    capabilities()
}

#[cfg(target_os = "linux")]
fn capabilities() -> io::Result<Option<Privilege>> {
    use caps::CapSet;
    let mut found = std::collections::BTreeSet::new();
    for set in [
        CapSet::Permitted,
        CapSet::Effective,
        CapSet::Inheritable,
        CapSet::Ambient,
    ] {
        let held = caps::read(None, set).map_err(|error| io::Error::other(error.to_string()))?;
        found.extend(held.into_iter().map(|capability| capability.to_string()));
    }
    let names = found.into_iter().collect::<Vec<_>>().join(", ");
    Ok((!names.is_empty()).then_some(Privilege::Capabilities(names)))
}

/// FreeBSD has no capabilities that pass through execve(2).
#[cfg(not(target_os = "linux"))]
fn capabilities() -> io::Result<Option<Privilege>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_too_much() {
        let found = excess_privilege().unwrap();
        assert_eq!(found == Some(Privilege::Root), nix::unistd::geteuid().is_root());
    }
}
