//! Hardening of the daemon before it opens anything, and the states in which it refuses to run.

use super::{orphans, sys};
use nix::sys::stat::{Mode, umask};
use std::io;

const ROOT: &str =
    "running as root; the daemon needs no privilege: start it as an ordinary user, such as colibri";

/// Makes this process neither traceable nor dumpable: nobody of the same user, host servers above
/// all, reads its memory or its environment, and no core file holds a secret. What loses its
/// supervisor comes to it, to be ended.
///
/// # Errors
/// The kernel refused; the daemon must not start then.
pub fn harden() -> io::Result<()> {
    sys::not_traceable()?;
    orphans::adopt()
}

/// Has nobody but the owner write to what this process makes, and to no socket in particular,
/// whatever umask it was started with. To be called before there is a second thread, since the
/// umask is the whole process's.
pub fn restrict_umask() {
    let bits = Mode::S_IWGRP | Mode::S_IWOTH;
    umask(umask(bits) | bits);
}

/// Has this process's allocator keep little of what is freed. To be called before there is a second
/// thread.
pub fn keep_little_of_what_is_freed() {
    sys::keep_little_of_what_is_freed();
}

/// The privilege that this process has and should not have (root's ids; on Linux, capabilities(7)
/// in any set), and the remedy; `None` if there is none.
///
/// # Errors
/// The capabilities cannot be read.
pub fn excess_privilege() -> io::Result<Option<String>> {
    if nix::unistd::getuid().is_root() || nix::unistd::geteuid().is_root() {
        return Ok(Some(ROOT.to_owned()));
    }
    capabilities()
}

#[cfg(target_os = "linux")]
fn capabilities() -> io::Result<Option<String>> {
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
    Ok((!names.is_empty())
        .then(|| format!("running with capabilities ({names}); the daemon needs no privilege: start it without them")))
}

/// FreeBSD has no capabilities that pass through execve(2).
#[cfg(not(target_os = "linux"))]
fn capabilities() -> io::Result<Option<String>> {
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_is_too_much() {
        let found = excess_privilege().unwrap();
        assert_eq!(
            found.as_deref() == Some(ROOT),
            nix::unistd::geteuid().is_root()
        );
    }
}
