//! The trail's files: where they are, and how they are opened in a directory that somebody else may
//! own.

use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

/// The directory of the segments in a state directory.
#[must_use]
pub fn directory(state_dir: &Path) -> PathBuf {
    state_dir.join("trail")
}

/// The installation's private key in a state directory.
#[must_use]
pub(crate) fn key_path(state_dir: &Path) -> PathBuf {
    state_dir.join("trail.key")
}

/// The daemon's own note of the trail's last head in a state directory.
#[must_use]
pub fn note_path(state_dir: &Path) -> PathBuf {
    state_dir.join("trail.head")
}

/// The public half of the key in a state directory, for `verify` and for others.
#[must_use]
pub fn verifier_path(state_dir: &Path) -> PathBuf {
    state_dir.join("trail.pub")
}

/// Files on the trail's file system that can be given up: results that are kept for a while, for
/// example.
pub trait ReleasableFiles: std::fmt::Debug + Send + Sync {
    /// Gives files up, as `file` of the trail cannot be written for want of space. True if there is
    /// more space for it now. Called while records wait, so that it must not append any.
    fn give_way(&self, file: &Path) -> bool;
}

/// Nothing can be given up.
#[derive(Debug)]
pub(crate) struct NoCache;

impl ReleasableFiles for NoCache {
    fn give_way(&self, _: &Path) -> bool {
        false
    }
}

/// True if the system refused for want of space.
fn is_full(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Does what needs space for `path`, and once more if there was none and a cache has given some up.
pub(crate) fn with_room<T>(
    cache: &dyn ReleasableFiles,
    path: &Path,
    mut work: impl FnMut() -> io::Result<T>,
) -> io::Result<T> {
    match work() {
        Err(error) if is_full(&error) && cache.give_way(path) => work(),
        done => done,
    }
}

/// Opens a regular file for reading, and nothing else: a FIFO put there under a segment's name
/// would hold who reads it until somebody writes, and a symbolic link would lead elsewhere.
///
/// # Errors
/// Where there is no such file, it cannot be opened, or it is not a regular one.
pub fn open_regular(path: &Path) -> io::Result<File> {
    let file = OpenOptions::new()
        .read(true)
        .custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK | libc::O_CLOEXEC)
        .open(path)?;
    if file.metadata()?.is_file() {
        return Ok(file);
    }
    let name = path.file_name().unwrap_or_default().display();
    let what = format!("{name} is not a regular file: find out who put it there, and remove it");
    Err(io::Error::new(io::ErrorKind::InvalidInput, what))
}
