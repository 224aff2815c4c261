//! Making the mirror's directory what the tree says.
//!
//! Nothing is waited for to be on the disk: what a power failure takes or damages, the next run
//! finds, since it compares contents.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString};
use std::fs::File;
use std::io::{self, ErrorKind, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use nix::fcntl::{OFlag, openat, renameat};
use nix::sys::stat::{FileStat, Mode, fchmod, fstat, mkdirat};
use nix::unistd::{UnlinkatFlags, unlinkat};

use super::entries::{
    DirectoryEntryKind, MARK, SWAPPED, UNFINISHED, is_out_of_bounds, is_unfinished, kind, list,
    look, open_directory, open_file, size,
};
use super::mirror_error::{DOCS, MIRROR, MirrorError};
use super::tree::{MirrorLimits, OmittedEntries, Tree};

/// Bytes that are read at once.
const PIECE: usize = 64 * 1024;

/// The treatment of files that the mirror has and `docs/` has not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// It stays.
    Add,
    /// It is removed.
    Mirror,
}

/// A run, and what it has done.
pub(super) struct Sync<'a> {
    limits: &'a MirrorLimits,
    strategy: Strategy,
    /// True if nothing is written.
    is_dry: bool,
    cancelled: &'a AtomicBool,
    left_out: &'a mut OmittedEntries,
    entries: usize,
    ours: Vec<u8>,
    theirs: Vec<u8>,
    /// Files that were written and that were as they should be, and bytes of both.
    pub(super) written: u64,
    pub(super) unchanged: u64,
    pub(super) bytes: u64,
    /// Files, links, directories and others that were removed.
    pub(super) removed: u64,
}

fn failed(what: &'static str) -> impl Fn(Errno) -> MirrorError {
    move |errno| MirrorError::system(what, MIRROR, errno)
}

/// The mode of a copy: nobody else reads more of it than of the original, and nobody runs it.
fn mode_of(stat: &FileStat, always: Mode, at_most: Mode) -> Mode {
    always | Mode::from_bits_truncate(stat.st_mode) & at_most
}

/// Gives a directory of the mirror the mode of its original, but for what nobody else may do there.
fn open_to_readers(made: &OwnedFd, original: &OwnedFd) -> Result<(), Errno> {
    let mode = mode_of(
        &fstat(original)?,
        Mode::S_IRWXU,
        Mode::from_bits_truncate(0o055),
    );
    match fstat(made)?.st_mode & 0o777 == mode.bits() {
        true => Ok(()),
        false => fchmod(made, mode),
    }
}

impl<'a> Sync<'a> {
    pub(super) fn new(
        limits: &'a MirrorLimits,
        strategy: Strategy,
        is_dry: bool,
        cancelled: &'a AtomicBool,
        left_out: &'a mut OmittedEntries,
    ) -> Sync<'a> {
        Sync {
            limits,
            strategy,
            is_dry,
            cancelled,
            left_out,
            entries: 0,
            ours: vec![0; PIECE],
            theirs: vec![0; PIECE],
            written: 0,
            unchanged: 0,
            bytes: 0,
            removed: 0,
        }
    }

    /// Makes a directory of the mirror what the tree says. What is in the way goes first: it may be
    /// the same name to the mirror's file system. `None`: it is not there, in a dry run.
    pub(super) fn directory(
        &mut self,
        tree: &Tree,
        docs: BorrowedFd<'_>,
        mirror: Option<BorrowedFd<'_>>,
    ) -> Result<(), MirrorError> {
        let mut found = match mirror {
            Some(mirror) => self.list(mirror)?,
            None => BTreeMap::new(),
        };
        if let Some(mirror) = mirror {
            self.clear(tree, mirror, &mut found)?;
        }
        for name in &tree.files {
            self.check()?;
            self.file(name, docs, mirror, found.get(name))
                .map_err(|fault| fault.below(name))?;
        }
        for (name, below) in &tree.directories {
            self.check()?;
            let is_there = found
                .get(name)
                .is_some_and(|stat| kind(stat) == DirectoryEntryKind::Directory);
            self.enter(name, below, docs, mirror, is_there)
                .map_err(|fault| fault.below(name))?;
        }
        Ok(())
    }

    fn check(&self) -> Result<(), MirrorError> {
        match self.cancelled.load(Ordering::Relaxed) {
            true => Err(MirrorError::Cancelled),
            false => Ok(()),
        }
    }

    fn list(&mut self, mirror: BorrowedFd<'_>) -> Result<BTreeMap<CString, FileStat>, MirrorError> {
        // What is there may be as much again as what is to be there.
        let most = 2 * self.limits.entries;
        let Some(found) = list(mirror, most - self.entries).map_err(failed("cannot read"))? else {
            return Err(MirrorError::TooMuch {
                place: MIRROR,
                most: most as u64,
                what: "files, directories and other entries",
            });
        };
        self.entries += found.len();
        Ok(found.into_iter().collect())
    }

    /// Removes what stands where something else is to be, and, by the strategy, what is in `docs/`
    /// no more.
    fn clear(
        &mut self,
        tree: &Tree,
        mirror: BorrowedFd<'_>,
        found: &mut BTreeMap<CString, FileStat>,
    ) -> Result<(), MirrorError> {
        let mut gone = Vec::new();
        for (name, stat) in &*found {
            self.check()?;
            let is_directory = kind(stat) == DirectoryEntryKind::Directory;
            let is_extra = self.strategy == Strategy::Mirror;
            let goes = match () {
                () if is_out_of_bounds(name) || tree.kept.contains(name) => false,
                // What a killed run left is ours, whatever the strategy.
                () if is_unfinished(name) => true,
                () if tree.files.contains(name) => is_directory && is_extra,
                () if tree.directories.contains_key(name) => !is_directory,
                () => is_extra,
            };
            if goes
                && self
                    .remove(mirror, name, stat, 1)
                    .map_err(|fault| fault.below(name))?
            {
                gone.push(name.clone());
            }
        }
        for name in gone {
            found.remove(&name);
        }
        Ok(())
    }

    /// Removes an entry with all that is below it, but for what is out of bounds, another mirror,
    /// what is mounted there, and what those are in. Whether it is gone.
    fn remove(
        &mut self,
        mirror: BorrowedFd<'_>,
        name: &CStr,
        stat: &FileStat,
        depth: usize,
    ) -> Result<bool, MirrorError> {
        let flag = if kind(stat) == DirectoryEntryKind::Directory {
            if depth > self.limits.depth {
                self.left_out.deep += 1;
                return Ok(false);
            }
            let opened = match open_directory(mirror, name) {
                Ok(opened) => opened,
                Err(errno) if SWAPPED.contains(&errno) => return Ok(false),
                Err(errno) => return Err(failed("cannot open")(errno)),
            };
            let entries = self.list(opened.as_fd())?;
            let is_mounted = fstat(mirror).map_err(failed("cannot look"))?.st_dev != stat.st_dev;
            if is_mounted || entries.contains_key(MARK) {
                return Ok(false);
            }
            let mut is_empty = true;
            for (name, stat) in entries {
                self.check()?;
                is_empty &= !is_out_of_bounds(&name)
                    && self
                        .remove(opened.as_fd(), &name, &stat, depth + 1)
                        .map_err(|fault| fault.below(&name))?;
            }
            if !is_empty {
                return Ok(false);
            }
            UnlinkatFlags::RemoveDir
        } else {
            UnlinkatFlags::NoRemoveDir
        };
        if !self.is_dry {
            match unlinkat(mirror, name, flag) {
                Ok(()) => {}
                Err(errno) if SWAPPED.contains(&errno) => return Ok(false),
                Err(Errno::ENOTEMPTY | Errno::EEXIST | Errno::EISDIR) => return Ok(false),
                // What FreeBSD says of a directory that took a file's place, and of other things.
                Err(Errno::EPERM) if is_directory(mirror, name) => return Ok(false),
                Err(errno) => return Err(failed("cannot remove")(errno)),
            }
        }
        self.removed += 1;
        Ok(true)
    }

    /// Goes on in a directory, which is made if it is not there.
    fn enter(
        &mut self,
        name: &CStr,
        tree: &Tree,
        docs: BorrowedFd<'_>,
        mirror: Option<BorrowedFd<'_>>,
        is_there: bool,
    ) -> Result<(), MirrorError> {
        let source = match open_directory(docs, name) {
            Ok(source) => source,
            Err(errno) if SWAPPED.contains(&errno) => {
                self.left_out.changed += 1;
                return Ok(());
            }
            Err(errno) => return Err(MirrorError::system("cannot open", DOCS, errno)),
        };
        let mut opened: Option<OwnedFd> = None;
        if let Some(mirror) = mirror
            && (is_there || !self.is_dry)
        {
            if !is_there {
                match mkdirat(mirror, name, Mode::S_IRWXU) {
                    Ok(()) | Err(Errno::EEXIST) => {}
                    Err(errno) if is_odd_name(errno) => {
                        self.left_out.names += 1;
                        return Ok(());
                    }
                    Err(errno) => return Err(failed("cannot make")(errno)),
                }
            }
            let made = open_directory(mirror, name).map_err(failed("cannot open"))?;
            if !self.is_dry {
                // Each time: the original may have been closed meanwhile, or a run killed before it
                // was opened to readers.
                open_to_readers(&made, &source).map_err(failed("cannot open to readers"))?;
            }
            opened = Some(made);
        }
        self.directory(tree, source.as_fd(), opened.as_ref().map(AsFd::as_fd))
    }

    /// Copies a file, unless the mirror has it as it is.
    fn file(
        &mut self,
        name: &CStr,
        docs: BorrowedFd<'_>,
        mirror: Option<BorrowedFd<'_>>,
        found: Option<&FileStat>,
    ) -> Result<(), MirrorError> {
        let source = match open_file(docs, name) {
            Ok(source) => File::from(source),
            Err(Errno::EACCES | Errno::EPERM) => {
                self.left_out.unreadable += 1;
                return Ok(());
            }
            Err(errno)
                if SWAPPED.contains(&errno)
                    || matches!(errno, Errno::ENXIO | Errno::EOPNOTSUPP) =>
            {
                self.left_out.changed += 1;
                return Ok(());
            }
            Err(errno) => return Err(MirrorError::system("cannot open", DOCS, errno)),
        };
        let before =
            fstat(&source).map_err(|errno| MirrorError::system("cannot read", DOCS, errno))?;
        if kind(&before) != DirectoryEntryKind::File
            || before.st_nlink != 1
            || size(&before) > self.limits.file
        {
            self.left_out.changed += 1;
            return Ok(());
        }
        if self.bytes + size(&before) > self.limits.bytes {
            return Err(MirrorError::too_many_bytes(self.limits.bytes));
        }
        let mode = mode_of(
            &before,
            Mode::from_bits_truncate(0o600),
            Mode::from_bits_truncate(0o044),
        );
        let is_same = match (mirror, found) {
            (Some(mirror), Some(found)) => {
                let alike = kind(found) == DirectoryEntryKind::File
                    && found.st_nlink == 1
                    && size(found) == size(&before)
                    && found.st_mode & 0o7777 == mode.bits();
                alike
                    && self
                        .is_same(&source, mirror, name)
                        .map_err(|error| unread(&error))?
            }
            _ => false,
        };
        if is_same {
            self.unchanged += 1;
        } else {
            if found.is_some_and(|found| kind(found) == DirectoryEntryKind::Directory) {
                self.left_out.in_the_way += 1;
                return Ok(());
            }
            if let Some(mirror) = mirror
                && !self.is_dry
                && !self.write(&source, &before, mode, mirror, name)?
            {
                return Ok(());
            }
            self.written += 1;
        }
        self.bytes += size(&before);
        Ok(())
    }

    /// True if the file of this name has the same content. One that cannot be read is written anew.
    fn is_same(&mut self, source: &File, mirror: BorrowedFd<'_>, name: &CStr) -> io::Result<bool> {
        let Ok(copy) = open_file(mirror, name).map(File::from) else {
            return Ok(false);
        };
        if !copy.metadata().is_ok_and(|about| about.is_file()) {
            return Ok(false);
        }
        let mut at = 0;
        loop {
            let count = read_at(source, &mut self.ours, at)?;
            let Ok(copied) = read_at(&copy, &mut self.theirs, at) else {
                return Ok(false);
            };
            if self.ours[..count] != self.theirs[..copied] {
                return Ok(false);
            }
            if count < PIECE {
                return Ok(true);
            }
            at += count as u64;
        }
    }

    /// Writes a file beside its place and renames it. Whether it is there: not if it changed
    /// meanwhile, or cannot be.
    fn write(
        &mut self,
        source: &File,
        before: &FileStat,
        mode: Mode,
        mirror: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<bool, MirrorError> {
        let flags =
            OFlag::O_WRONLY | OFlag::O_CREAT | OFlag::O_EXCL | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        let new = openat(mirror, UNFINISHED, flags, Mode::S_IRUSR | Mode::S_IWUSR)
            .map_err(failed("cannot write"))?;
        let done = self
            .fill(source, before, File::from(new), mode)
            .and_then(|is_whole| {
                if !is_whole {
                    self.left_out.changed += 1;
                    return Ok(false);
                }
                match renameat(mirror, UNFINISHED, mirror, name) {
                    Ok(()) => Ok(true),
                    Err(Errno::EISDIR | Errno::ENOTEMPTY | Errno::EEXIST) => {
                        self.left_out.in_the_way += 1;
                        Ok(false)
                    }
                    Err(errno) if is_odd_name(errno) => {
                        self.left_out.names += 1;
                        Ok(false)
                    }
                    Err(errno) => Err(failed("cannot rename")(errno)),
                }
            });
        if !matches!(done, Ok(true)) {
            let _ = unlinkat(mirror, UNFINISHED, UnlinkatFlags::NoRemoveDir);
        }
        done
    }

    /// True if the file was the same all the time that it was copied.
    fn fill(
        &mut self,
        source: &File,
        before: &FileStat,
        mut new: File,
        mode: Mode,
    ) -> Result<bool, MirrorError> {
        let mut at = 0;
        while at <= size(before) {
            let count = read_at(source, &mut self.ours, at).map_err(|error| unread(&error))?;
            // No byte more than was looked at: a file may have no more than the system allows
            // (SIGXFSZ).
            if at + count as u64 > size(before) {
                return Ok(false);
            }
            new.write_all(&self.ours[..count])
                .map_err(|error| failed("cannot write")(errno_of(&error)))?;
            at += count as u64;
            if count < PIECE {
                break;
            }
        }
        let after =
            fstat(source).map_err(|errno| MirrorError::system("cannot read", DOCS, errno))?;
        // The time of the content can be put back, that of the inode cannot.
        let times = |stat: &FileStat| {
            (
                stat.st_mtime,
                stat.st_mtime_nsec,
                stat.st_ctime,
                stat.st_ctime_nsec,
            )
        };
        if at != size(before) || size(&after) != at || times(&after) != times(before) {
            return Ok(false);
        }
        fchmod(&new, mode).map_err(failed("cannot open to readers"))?;
        Ok(true)
    }
}

fn is_directory(mirror: BorrowedFd<'_>, name: &CStr) -> bool {
    matches!(look(mirror, name), Ok(Some(stat)) if kind(&stat) == DirectoryEntryKind::Directory)
}

/// The number of files of the tree in this directory, and below it.
pub(super) fn present(tree: &Tree, mirror: BorrowedFd<'_>) -> u64 {
    let is_file = |name: &CStr| {
        look(mirror, name)
            .is_ok_and(|stat| stat.is_some_and(|stat| kind(&stat) == DirectoryEntryKind::File))
    };
    let files = tree.files.iter().filter(|name| is_file(name)).count() as u64;
    let below = tree
        .directories
        .iter()
        .map(|(name, tree)| match open_directory(mirror, name) {
            Ok(opened) => present(tree, opened.as_fd()),
            Err(_) => 0,
        });
    files + below.sum::<u64>()
}

/// True if a file system does not take a name.
fn is_odd_name(errno: Errno) -> bool {
    matches!(errno, Errno::EILSEQ | Errno::EINVAL | Errno::ENAMETOOLONG)
}

fn read_at(file: &File, buffer: &mut [u8], from: u64) -> io::Result<usize> {
    let mut count = 0;
    while count < buffer.len() {
        match file.read_at(&mut buffer[count..], from + count as u64) {
            Ok(0) => break,
            Ok(more) => count += more,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(count)
}

fn errno_of(error: &io::Error) -> Errno {
    error.raw_os_error().map_or(Errno::EIO, Errno::from_raw)
}

fn unread(error: &io::Error) -> MirrorError {
    MirrorError::system("cannot read", DOCS, errno_of(error))
}

#[cfg(test)]
mod tests {
    use std::fs::{self, OpenOptions, Permissions};
    use std::os::unix::ffi::OsStrExt as _;
    use std::os::unix::fs::PermissionsExt as _;
    use std::path::Path;

    use nix::fcntl::AT_FDCWD;

    use super::*;

    #[test]
    fn a_file_that_became_a_directory_meanwhile_stays() {
        let top = tempfile::tempdir().unwrap();
        std::fs::write(top.path().join("a"), "").unwrap();
        let path = CString::new(top.path().as_os_str().as_bytes()).unwrap();
        let mirror = open_directory(AT_FDCWD, &path).unwrap();
        let stat = look(&mirror, c"a").unwrap().unwrap();
        std::fs::remove_file(top.path().join("a")).unwrap();
        std::fs::create_dir(top.path().join("a")).unwrap();
        let (cancelled, mut left_out) = (AtomicBool::new(false), OmittedEntries::default());
        let mut sync = Sync::new(
            &MirrorLimits::USUAL,
            Strategy::Mirror,
            false,
            &cancelled,
            &mut left_out,
        );
        assert!(!sync.remove(mirror.as_fd(), c"a", &stat, 1).unwrap());
        assert_eq!(sync.removed, 0);
    }

    /// Copies a file that `change` changes after it was looked at: whether it was the same all the
    /// time, and the bytes that were written.
    fn copy(path: &Path, change: impl Fn(&File)) -> (bool, u64) {
        fs::write(path, "as it was").unwrap();
        let source = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        let before = fstat(&source).unwrap();
        change(&source);
        let (limits, cancelled, mut left_out) = (
            MirrorLimits::USUAL,
            AtomicBool::new(false),
            OmittedEntries::default(),
        );
        let mut sync = Sync::new(&limits, Strategy::Add, false, &cancelled, &mut left_out);
        let new = tempfile::tempfile().unwrap();
        let is_whole = sync.fill(&source, &before, new.try_clone().unwrap(), Mode::S_IRWXU);
        (is_whole.unwrap(), new.metadata().unwrap().len())
    }

    #[test]
    fn a_file_that_changes_while_it_is_copied_is_none_whatever_its_time_says() {
        let top = tempfile::tempdir().unwrap();
        let path = top.path().join("a");
        assert_eq!(copy(&path, |_| {}), (true, 9));
        // Clocks of file systems are slow: until the change has another time.
        let until_later = |source: &File, change: &dyn Fn()| {
            let time = || {
                fstat(source)
                    .map(|stat| (stat.st_ctime, stat.st_ctime_nsec))
                    .unwrap()
            };
            let before = time();
            while time() == before {
                change();
            }
        };
        let put_back = |source: &File| {
            let time = source.metadata().unwrap().modified().unwrap();
            until_later(source, &|| {
                source.write_all_at(b"otherwise", 0).unwrap();
                source.set_modified(time).unwrap();
            });
        };
        assert!(!copy(&path, put_back).0);
        let close = |source: &File| {
            until_later(source, &|| {
                source
                    .set_permissions(Permissions::from_mode(0o600))
                    .unwrap()
            })
        };
        assert!(!copy(&path, close).0);
        // Of one that grows nothing is written beyond what was looked at.
        assert_eq!(
            copy(&path, |source| source.write_all_at(b"more", 9).unwrap()),
            (false, 0)
        );
        assert_eq!(
            copy(&path, |source| source.set_len(1 << 20).unwrap()),
            (false, 0)
        );
        assert!(!copy(&path, |source| source.set_len(3).unwrap()).0);
    }
}
