//! The two directories: that they are what the entry means, and that one run has the mirror for
//! itself.

use std::ffi::{CStr, CString};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::errno::Errno;
use nix::fcntl::{Flock, FlockArg, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, fstat};
use nix::unistd::write;

use super::entries::{DirectoryEntryKind, MARK, kind, list, open_directory, open_file};
use super::mirror_error::{MIRROR, MirrorError};

/// The directory of a repository that is mirrored.
const SOURCE: &CStr = c"docs";
const TOLD: &str = "This directory is a mirror of a repository's docs/, made by colibri-mcp. What is changed here is overwritten.\n";

/// Both places.
#[derive(Debug, Clone)]
pub(super) struct Places {
    pub(super) repository: PathBuf,
    pub(super) mirror: PathBuf,
}

/// Both directories, opened.
#[derive(Debug)]
pub(super) struct MirrorDirectories {
    pub(super) docs: OwnedFd,
    pub(super) mirror: OwnedFd,
    /// On the mark; `None` where a dry run finds none.
    _lock: Option<Flock<OwnedFd>>,
}

impl Places {
    /// Opens them, and keeps other runs out.
    ///
    /// # Errors
    /// One is not there, or lies in the other; the mirror's directory is not marked as one, or
    /// another run has it.
    pub(super) fn open(&self, dry_run: bool) -> Result<MirrorDirectories, MirrorError> {
        let repository = walk(&self.repository)?;
        let docs = open_directory(&repository, SOURCE)
            .map_err(|errno| not_connected(&self.repository.join("docs"), errno))?;
        let mirror = walk(&self.mirror)?;
        if lies_in(&mirror, &repository)? || lies_in(&docs, &mirror)? {
            let why = "the mirror and the repository lie in each other".to_owned();
            return Err(MirrorError::NotConnected(why));
        }
        let lock = lock(&mirror, dry_run)?;
        Ok(MirrorDirectories {
            docs,
            mirror,
            _lock: lock,
        })
    }
}

fn not_connected(path: &Path, errno: Errno) -> MirrorError {
    let why = match errno {
        // A symbolic link, as Linux and FreeBSD say it.
        Errno::ELOOP | Errno::EMLINK | Errno::ENOTDIR => {
            "is no directory, or is reached by a symbolic link".to_owned()
        }
        errno => std::io::Error::from(errno).to_string(),
    };
    MirrorError::NotConnected(format!("{}: {why}", path.display()))
}

/// Opens a directory by walking to it, since who owns a part of the way could swap it for a link.
fn walk(path: &Path) -> Result<OwnedFd, MirrorError> {
    let failed = |errno| not_connected(path, errno);
    let way = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    let mut at = open("/", way, Mode::empty()).map_err(failed)?;
    for name in path.as_os_str().as_bytes().split(|byte| *byte == b'/') {
        if !name.is_empty() {
            let name = CString::new(name).map_err(|_| failed(Errno::EINVAL))?;
            at = openat(&at, name.as_c_str(), way, Mode::empty()).map_err(failed)?;
        }
    }
    open_directory(&at, c".").map_err(failed)
}

/// True if a directory is another one or lies below it.
fn lies_in(directory: &OwnedFd, other: &OwnedFd) -> Result<bool, MirrorError> {
    let failed = |errno| MirrorError::system("cannot look", "the way to it", errno);
    let same = |a: &FileStat, b: &FileStat| (a.st_dev, a.st_ino) == (b.st_dev, b.st_ino);
    let other = fstat(other).map_err(failed)?;
    let up = OFlag::O_PATH | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
    let mut at = openat(directory, c".", up, Mode::empty()).map_err(failed)?;
    loop {
        let stat = fstat(&at).map_err(failed)?;
        if same(&stat, &other) {
            return Ok(true);
        }
        let above = openat(&at, c"..", up, Mode::empty()).map_err(failed)?;
        if same(&stat, &fstat(&above).map_err(failed)?) {
            return Ok(false);
        }
        at = above;
    }
}

/// Takes the lock on the mark, which an empty directory gets. A directory with other files and no
/// mark is somebody's own: a mistake in the entry must not empty it.
fn lock(mirror: &OwnedFd, dry_run: bool) -> Result<Option<Flock<OwnedFd>>, MirrorError> {
    let failed = |errno| MirrorError::system("cannot mark", MIRROR, errno);
    let mut mark = open_file(mirror, MARK);
    if let Err(Errno::ENOENT) = mark {
        mark = match list(mirror, 0).map_err(failed)? {
            Some(_) if dry_run => return Ok(None),
            Some(_) => make_mark(mirror),
            // Another run may have made it meanwhile.
            None => open_file(mirror, MARK),
        };
    }
    let mark = match mark {
        Ok(mark) if fstat(&mark).is_ok_and(|stat| kind(&stat) == DirectoryEntryKind::File) => mark,
        Err(Errno::ENOENT) => {
            let why = "has files and no .colibri-mirror: empty it, or make that file if all in it may be overwritten";
            return Err(MirrorError::NotOurs(why));
        }
        // A link, as Linux and FreeBSD say it, or a socket.
        Ok(_) | Err(Errno::ELOOP | Errno::EMLINK | Errno::ENXIO | Errno::EOPNOTSUPP) => {
            return Err(MirrorError::NotOurs(
                "has a .colibri-mirror that is no file: remove it",
            ));
        }
        Err(errno) => return Err(failed(errno)),
    };
    match Flock::lock(mark, FlockArg::LockExclusiveNonblock) {
        Ok(lock) => Ok(Some(lock)),
        Err((_, Errno::EWOULDBLOCK)) => Err(MirrorError::Busy),
        Err((_, errno)) => Err(failed(errno)),
    }
}

fn make_mark(mirror: &OwnedFd) -> Result<OwnedFd, Errno> {
    let flags =
        OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    match openat(mirror, MARK, flags, Mode::from_bits_truncate(0o644)) {
        Ok(mark) => write(&mark, TOLD.as_bytes()).map(|_| mark),
        Err(Errno::EEXIST) => open_file(mirror, MARK),
        Err(errno) => Err(errno),
    }
}
