//! Owners and modes.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::Path;

use anyhow::{Context as _, anyhow, bail};

/// The required state of a file: owner, group (by name; `None`: any) and permission bits.
pub(super) struct RequiredOwnership {
    /// Numeric user id.
    pub uid: u32,
    /// Group name.
    pub group: Option<&'static str>,
    /// Permission bits, exactly.
    pub mode: u32,
}

/// Checks owner, group and mode of one file.
pub(super) fn is_as(path: &Path, wanted: &RequiredOwnership) -> anyhow::Result<String> {
    let facts = path
        .symlink_metadata()
        .with_context(|| path.display().to_string())?;
    let mode = facts.mode() & 0o7777;
    let mut wrong = Vec::new();
    if facts.uid() != wanted.uid {
        wrong.push(format!(
            "its owner is uid {}, not {}",
            facts.uid(),
            wanted.uid
        ));
    }
    if let Some(name) = wanted.group {
        match nix::unistd::Group::from_name(name) {
            Ok(Some(group)) if group.gid.as_raw() == facts.gid() => {}
            _ => wrong.push(format!("its group is gid {}, not {name}", facts.gid())),
        }
    }
    if mode != wanted.mode {
        wrong.push(format!("its mode is {mode:04o}, not {:04o}", wanted.mode));
    }
    if wrong.is_empty() {
        Ok(format!(
            "{}: mode {mode:04o}, uid {}, gid {}",
            path.display(),
            facts.uid(),
            facts.gid()
        ))
    } else {
        Err(anyhow!("{}: {}", path.display(), wrong.join("; ")))
    }
}

/// Checks that nobody but root could have put something else at this path: no symbolic link on the
/// way, everything root's and writable by root alone. The rule of the helper, which refuses what
/// this refuses.
pub(super) fn is_roots_alone(path: &Path) -> anyhow::Result<()> {
    let mut ancestors: Vec<_> = path.ancestors().collect();
    ancestors.reverse();
    for place in ancestors {
        let facts = place
            .symlink_metadata()
            .map_err(|error| match error.kind() {
                io::ErrorKind::PermissionDenied => {
                    anyhow!("{}: cannot be seen by this user", place.display())
                }
                _ => anyhow!("{}: {error}", place.display()),
            })?;
        if facts.is_symlink() {
            bail!("{} is a symbolic link", place.display());
        }
        if facts.uid() != 0 {
            bail!(
                "{} belongs to uid {}, not to root",
                place.display(),
                facts.uid()
            );
        }
        if facts.mode() & 0o022 != 0 {
            bail!(
                "{} is writable by group or others (mode {:04o})",
                place.display(),
                facts.mode() & 0o7777
            );
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::PermissionsExt as _;

    #[test]
    fn owner_and_mode_are_compared() {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("f");
        std::fs::write(&file, "").unwrap();
        std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o640)).unwrap();
        let uid = nix::unistd::getuid().as_raw();
        let wanted = |uid, mode| RequiredOwnership {
            uid,
            group: None,
            mode,
        };
        assert!(is_as(&file, &wanted(uid, 0o640)).is_ok());
        assert!(
            is_as(&file, &wanted(uid, 0o600))
                .unwrap_err()
                .to_string()
                .contains("0640, not 0600")
        );
        assert!(
            is_as(&file, &wanted(uid + 1, 0o640))
                .unwrap_err()
                .to_string()
                .contains("owner")
        );
        let group = RequiredOwnership {
            group: Some("no-such-group"),
            ..wanted(uid, 0o640)
        };
        assert!(
            is_as(&file, &group)
                .unwrap_err()
                .to_string()
                .contains("no-such-group")
        );
        assert!(
            is_as(Path::new("/nonexistent/x"), &wanted(0, 0))
                .unwrap_err()
                .to_string()
                .contains("/nonexistent/x")
        );
    }

    #[test]
    fn the_whole_way_must_be_roots() {
        is_roots_alone(Path::new("/etc/passwd")).unwrap();
        // Below a directory that everybody may write, whoever owns the file.
        let directory = tempfile::tempdir_in("/tmp").unwrap();
        let wrong = is_roots_alone(directory.path()).unwrap_err().to_string();
        assert!(wrong.starts_with("/tmp "), "{wrong}");
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("/etc", &link).unwrap();
        assert!(
            is_roots_alone(Path::new("/nonexistent/x"))
                .unwrap_err()
                .to_string()
                .contains("/nonexistent")
        );
    }
}
