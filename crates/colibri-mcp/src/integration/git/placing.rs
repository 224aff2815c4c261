//! Files put into a worktree and taken out of it, though others write there at the same time: no
//! link is followed, and nothing outside of it is touched.

use std::ffi::OsStr;
use std::os::fd::{AsFd as _, OwnedFd};
use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;

use nix::errno::Errno;
use nix::fcntl::{AT_FDCWD, OFlag, openat, renameat};
use nix::sys::stat::{Mode, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

const DIRECTORY: OFlag = OFlag::O_RDONLY
    .union(OFlag::O_DIRECTORY)
    .union(OFlag::O_NOFOLLOW)
    .union(OFlag::O_CLOEXEC);

/// Opens a directory, and no link to one.
pub(super) fn open(from: impl std::os::fd::AsFd, path: &Path) -> Result<OwnedFd, Errno> {
    openat(from, path, DIRECTORY, Mode::empty())
}

/// Opens a directory in another, made with this mode if it is not there; never through a link.
pub(super) fn descend(
    from: &OwnedFd,
    name: impl AsRef<OsStr>,
    mode: Mode,
) -> Result<OwnedFd, Errno> {
    let name = name.as_ref();
    match mkdirat(from, name, mode) {
        Ok(()) | Err(Errno::EEXIST) => open(from, Path::new(name)),
        Err(errno) => Err(errno),
    }
}

/// The components of a path in a tree, the last one apart. `None` for one that would lead
/// elsewhere.
fn components(path: &[u8]) -> Option<(Vec<&OsStr>, &OsStr)> {
    let is_odd = |part: &&[u8]| {
        part.is_empty() || matches!(*part, b"." | b"..") || part.eq_ignore_ascii_case(b".git")
    };
    let parts: Vec<&[u8]> = path.split(|byte| *byte == b'/').collect();
    let mut parts: Vec<&OsStr> =
        (!parts.iter().any(is_odd)).then(|| parts.into_iter().map(OsStr::from_bytes).collect())?;
    let last = parts.pop()?;
    Some((parts, last))
}

/// Moves a file, link or empty directory from a directory of our own to its path below `root`.
///
/// # Errors
/// Something stands in the way.
pub(super) fn put(root: &OwnedFd, from: &Path, path: &[u8]) -> Result<(), Errno> {
    let (parents, name) = components(path).ok_or(Errno::EINVAL)?;
    let mut at = root.try_clone().map_err(|_| Errno::EMFILE)?;
    for part in parents {
        at = descend(&at, part, Mode::from_bits_truncate(0o777))?;
    }
    renameat(
        AT_FDCWD,
        &from.join(OsStr::from_bytes(path)),
        at.as_fd(),
        name,
    )
}

/// Takes a file away, and the directories that are empty then. What is not there, or is no file, is
/// left, and so is what would stand elsewhere.
///
/// # Errors
/// It cannot be taken away.
pub(super) fn take(root: &OwnedFd, path: &[u8]) -> Result<(), Errno> {
    let Some((parents, name)) = components(path) else {
        return Ok(());
    };
    let mut all = vec![root.try_clone().map_err(|_| Errno::EMFILE)?];
    for part in &parents {
        match all.last().map(|at| open(at, Path::new(part))) {
            Some(Ok(next)) => all.push(next),
            Some(Err(Errno::ENOENT | Errno::ENOTDIR | Errno::ELOOP | Errno::EMLINK)) | None => {
                return Ok(());
            }
            Some(Err(errno)) => return Err(errno),
        }
    }
    let Some(at) = all.last() else { return Ok(()) };
    match unlinkat(at, name, UnlinkatFlags::NoRemoveDir) {
        Ok(()) | Err(Errno::ENOENT) => {}
        Err(Errno::EISDIR | Errno::EPERM) => drop(unlinkat(at, name, UnlinkatFlags::RemoveDir)),
        Err(errno) => return Err(errno),
    }
    for (at, name) in all.iter().zip(&parents).rev() {
        if unlinkat(at, *name, UnlinkatFlags::RemoveDir).is_err() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_outside_is_touched() {
        let place = tempfile::tempdir().unwrap();
        let (tree, stage, other) = (
            place.path().join("t"),
            place.path().join("s"),
            place.path().join("o"),
        );
        for directory in [&tree, &stage, &other] {
            fs::create_dir(directory).unwrap();
        }
        fs::write(other.join("f"), "theirs").unwrap();
        symlink(&other, tree.join("way")).unwrap();
        let root = open(AT_FDCWD, &tree).unwrap();
        for path in [
            "way/f",
            "../o/f",
            "a/../../o/f",
            "./f",
            "",
            "/f",
            "a//f",
            ".git/f",
            "a/.GIT/f",
        ] {
            if !path.contains("..") && !path.starts_with('/') {
                fs::create_dir_all(stage.join(path).parent().unwrap()).unwrap();
                let _ = fs::write(stage.join(path), "ours");
            }
            assert!(put(&root, &stage, path.as_bytes()).is_err(), "{path}");
            let _ = take(&root, path.as_bytes());
            assert_eq!(
                fs::read_to_string(other.join("f")).unwrap(),
                "theirs",
                "{path}"
            );
        }
        // A link at the place itself is replaced, and not followed.
        symlink(other.join("f"), tree.join("f")).unwrap();
        fs::write(stage.join("f"), "ours").unwrap();
        put(&root, &stage, b"f").unwrap();
        assert_eq!(fs::read_to_string(tree.join("f")).unwrap(), "ours");
        assert_eq!(fs::read_to_string(other.join("f")).unwrap(), "theirs");
    }

    #[test]
    fn directories_come_and_go_with_their_files() {
        let place = tempfile::tempdir().unwrap();
        let (tree, stage) = (place.path().join("t"), place.path().join("s"));
        fs::create_dir(&tree).unwrap();
        fs::create_dir_all(stage.join("a/b")).unwrap();
        fs::write(stage.join("a/b/c\td"), "x").unwrap();
        let root = open(AT_FDCWD, &tree).unwrap();
        put(&root, &stage, b"a/b/c\td").unwrap();
        assert!(tree.join("a/b/c\td").exists());
        take(&root, b"a/b/c\td").unwrap();
        take(&root, b"a/b/c\td").unwrap();
        assert!(!tree.join("a").exists() && tree.exists());
        fs::create_dir_all(tree.join("a/b")).unwrap();
        fs::write(tree.join("a/left"), "").unwrap();
        fs::write(tree.join("a/b/f"), "").unwrap();
        take(&root, b"a/b/f").unwrap();
        assert!(!tree.join("a/b").exists() && tree.join("a/left").exists());
    }
}
