//! Opening what root trusts: component by component from `/`, no symlink anywhere, nothing on the
//! way that anybody but root (or one named owner) could have swapped.

use std::ffi::OsStr;
use std::fs::File;
use std::io::Read;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use colibri_jail_helper::plan::{DOOR, Ephemeral, LINUX_TREE, PlannedMount};
use colibri_jail_helper::refusal::HelperRefusal;
use colibri_registry::Abi;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, open, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstat, fstatat};

use crate::sys;

/// The permitted owners of the directories on a path and of the file at its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum RequiredOwner {
    /// Root alone.
    Root,
    /// Root or this uid on the way; this uid at the end.
    Owner(u32),
}

/// Opens a directory by walking to it.
///
/// # Errors
/// [`colibri_jail_helper::refusal::HelperExit::File`], naming the component: missing, a symlink,
/// not a directory, owned by somebody else, writable by group or others.
pub(crate) fn open_directory(path: &Path, trust: RequiredOwner) -> Result<OwnedFd, HelperRefusal> {
    let mut walk = PathWalk::from_root(trust)?;
    for name in components(path) {
        walk.enter(name)?;
    }
    walk.finish()
}

/// Opens a directory below `top`, which is not checked itself, by walking to it: for mount points
/// in a staged root. The last component may be writable by all if it is sticky, as `/tmp` is: it is
/// going to be covered.
///
/// # Errors
/// As [`open_directory`].
pub(crate) fn open_mount_point(top: &OwnedFd, path: &Path) -> Result<OwnedFd, HelperRefusal> {
    let names: Vec<&OsStr> = components(path).collect();
    let mut walk = PathWalk {
        at: duplicate(top)?,
        seen: String::new(),
        trust: RequiredOwner::Root,
    };
    let Some((last, above)) = names.split_last() else {
        return Err(HelperRefusal::file(
            "mount point",
            "the root itself cannot be a mount point",
        ));
    };
    for name in above {
        walk.enter(name)?;
    }
    let stat = walk.step(last)?;
    let covered = stat.st_mode & 0o022 == 0 || stat.st_mode & 0o1000 != 0;
    if stat.st_uid != 0 || !covered {
        return Err(walk.refuse("must be root's, and not writable by group or others"));
    }
    Ok(walk.at)
}

/// Opens the source of a mount by walking to it.
///
/// nullfs(4) maps the vnodes beneath it wherever they are moved to. A process that keeps a
/// directory below the mount open climbs from it by `..` to the root of the file system that holds
/// it, once somebody on the host has moved that directory out of the source. So a bounded source is
/// itself such a root. Its mode does not matter: a directory that something is mounted on cannot be
/// renamed, and what lies in the source is the jail's.
///
/// # Errors
/// As [`open_directory`]; or the source is bounded, and not the root of a file system that holds
/// its files itself.
pub(crate) fn open_source(mount: &PlannedMount) -> Result<OwnedFd, HelperRefusal> {
    let trust = RequiredOwner::Owner(mount.owner);
    let names: Vec<&OsStr> = components(&mount.path).collect();
    let Some((last, above)) = names.split_last().filter(|_| mount.bounded) else {
        return open_directory(&mount.path, trust);
    };
    let mut walk = PathWalk::from_root(trust)?;
    for name in above {
        walk.enter(name)?;
    }
    let parent = walk.stat()?;
    let source = walk.step(last)?;
    let examined = sys::holds_its_files(walk.at.as_fd());
    let holds_its_files =
        examined.map_err(|error| walk.refuse(&format!("cannot be examined: {error}")))?;
    // Only a mount point has another device than the directory in which it stands.
    if source.st_dev == parent.st_dev || !holds_its_files {
        return Err(walk.refuse(UNBOUNDED));
    }
    walk.finish()
}

/// The tree of a root in which Linux programs look for each file first: `/compat/linux` if the root
/// has it, else nothing, which is the root itself.
///
/// # Errors
/// As [`open_mount_point`]: a symlink is no tree, whatever it leads to.
pub(crate) fn linux_tree(root: &OwnedFd) -> Result<&'static str, HelperRefusal> {
    for path in ["/compat", LINUX_TREE] {
        if fstatat(root, &path[1..], AtFlags::AT_SYMLINK_NOFOLLOW) == Err(Errno::ENOENT) {
            return Ok("");
        }
        open_mount_point(root, Path::new(path))?;
    }
    Ok(LINUX_TREE)
}

/// Walks to everything that an ephemeral jail needs of the file system, and keeps nothing open: so
/// that a start is refused before anything is made. Acting walks again.
///
/// # Errors
/// As [`open_directory`], for the root, its mount points, an agent socket among them, the sources
/// of its mounts, and the root's `/var/tmp`.
pub(crate) fn check_places(jail: &Ephemeral, has_door: bool) -> Result<(), HelperRefusal> {
    let root = open_directory(&jail.root, RequiredOwner::Root)?;
    for point in ["/dev", "/tmp"].into_iter().chain(has_door.then_some(DOOR)) {
        open_mount_point(&root, Path::new(point))?;
    }
    if jail.abi == Abi::Linux {
        let tree = linux_tree(&root)?;
        for point in ["dev", "proc", "sys"] {
            open_mount_point(&root, Path::new(&format!("{tree}/{point}")))?;
        }
    }
    for mount in &jail.mounts {
        open_mount_point(&root, &mount.at)?;
        open_source(mount)?;
    }
    check_var_tmp(&root, &jail.root)
}

/// Refuses a root in whose `/var/tmp` others than root can make directories, as they can where a
/// base system was unpacked. The root is a view of a plain directory (nullfs), so [`open_source`]'s
/// way out is there too: whoever makes a directory in it can move it elsewhere, below a process of
/// the jail. `/tmp` is covered. `colibri-mcp doctor` looks for all others, which would take too
/// long at each start.
fn check_var_tmp(root: &OwnedFd, path: &Path) -> Result<(), HelperRefusal> {
    let mut walk = PathWalk {
        at: duplicate(root)?,
        seen: path.to_string_lossy().into_owned(),
        trust: RequiredOwner::Root,
    };
    for name in ["var", "tmp"] {
        // What is missing is no way out, and a symlink leads to another directory of the root.
        let Ok(stat) = walk.step(OsStr::new(name)) else {
            return Ok(());
        };
        walk.check(&stat).map_err(|refusal| HelperRefusal {
            detail: format!("{}{SHARED}", refusal.detail),
            ..refusal
        })?;
    }
    Ok(())
}

/// Reads a whole file of root's: regular, not writable by group or others, every directory above it
/// likewise, at most `limit` bytes. `forbidden` are the permission bits that must be clear.
///
/// # Errors
/// [`colibri_jail_helper::refusal::HelperExit::File`], naming the component and what to do.
pub(crate) fn read(path: &Path, limit: usize, forbidden: Mode) -> Result<Vec<u8>, HelperRefusal> {
    let (Some(parent), Some(name)) = (path.parent(), path.file_name()) else {
        return Err(HelperRefusal::file("files", "not a file's path"));
    };
    let directory = open_directory(parent, RequiredOwner::Root)?;
    read_at(
        &directory,
        &parent.to_string_lossy(),
        name,
        limit,
        forbidden,
    )
}

/// The permission bits of files that everybody may read and only root write.
pub(crate) const WRITABLE_BY_OTHERS: Mode = Mode::S_IWGRP.union(Mode::S_IWOTH);

/// [`read`] in a directory that was walked to already and is called `shown`.
///
/// # Errors
/// As [`read`].
pub(crate) fn read_at(
    directory: &OwnedFd,
    shown: &str,
    name: &OsStr,
    limit: usize,
    forbidden: Mode,
) -> Result<Vec<u8>, HelperRefusal> {
    let shown = format!("{shown}/{}", name.to_string_lossy());
    let refuse = |what: &str| HelperRefusal::file("files", format!("{shown}: {what}"));
    // O_NONBLOCK: opening a FIFO must not wait for its writer.
    let flags = OFlag::O_RDONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_CLOEXEC
        | OFlag::O_NOCTTY;
    let file =
        openat(directory.as_fd(), name, flags, Mode::empty()).map_err(|error| match error {
            Errno::ELOOP | Errno::EMLINK => refuse("is a symlink; put the file itself there"),
            Errno::ENOENT => refuse("does not exist"),
            error => refuse(&format!("cannot be opened: {error}")),
        })?;
    let before = fstat(&file).map_err(|error| refuse(&format!("cannot be examined: {error}")))?;
    if kind(&before) != SFlag::S_IFREG {
        return Err(refuse("is not a regular file"));
    }
    if before.st_uid != 0 {
        return Err(refuse("is not owned by root"));
    }
    if sys::has_acl(file.as_fd())
        .map_err(|error| refuse(&format!("cannot be examined: {error}")))?
    {
        return Err(refuse(ACL));
    }
    if Mode::from_bits_truncate(before.st_mode).intersects(forbidden) {
        let most = 0o640 & !forbidden.bits();
        return Err(refuse(&format!(
            "is open to more than root allows; chmod it to {most:04o} or less"
        )));
    }
    if before.st_size < 0 || before.st_size as u64 > limit as u64 {
        return Err(refuse(&format!("is larger than {limit} bytes")));
    }
    let mut bytes = Vec::with_capacity(before.st_size as usize);
    let mut file = File::from(file);
    (&mut file)
        .take(limit as u64 + 1)
        .read_to_end(&mut bytes)
        .map_err(|error| refuse(&format!("cannot be read: {error}")))?;
    let after = fstat(&file).map_err(|error| refuse(&format!("cannot be examined: {error}")))?;
    // Not the time of the inode's change: rename(2) of another file over this one, the right way to
    // replace it, sets that.
    let same = |a: &FileStat, b: &FileStat| {
        (a.st_size, a.st_mtime, a.st_mtime_nsec) == (b.st_size, b.st_mtime, b.st_mtime_nsec)
    };
    if bytes.len() as u64 != after.st_size as u64 || !same(&before, &after) {
        return Err(refuse(
            "changed while it was read; replace files by rename(2)",
        ));
    }
    Ok(bytes)
}

/// The reason for which a bounded source is refused, and the remedy.
const UNBOUNDED: &str = "is not the root of a file system of its own (ufs, zfs, tmpfs), so whoever renames a directory \
    in it lets the jail out; make one with make-root.sh -w, or say \"bounded\": false in jail-policy.json";

/// The reason for which a root is refused because of its `/var/tmp`, and the remedy.
const SHARED: &str =
    ", so whoever renames a directory in it lets the jail out; chown it to root, chmod it to 0755";

/// The refusal of an access control list: a person who reads modes does not see what the mode does
/// not show.
const ACL: &str =
    "has an access control list, which can let others write; remove it with setfacl -b";

struct PathWalk {
    at: OwnedFd,
    seen: String,
    trust: RequiredOwner,
}

impl PathWalk {
    fn from_root(trust: RequiredOwner) -> Result<Self, HelperRefusal> {
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_CLOEXEC;
        let at = open("/", flags, Mode::empty())
            .map_err(|error| HelperRefusal::system("files", "open /", error))?;
        let walk = Self {
            at,
            seen: String::new(),
            trust,
        };
        walk.check(&walk.stat()?)?;
        Ok(walk)
    }

    fn refuse(&self, what: &str) -> HelperRefusal {
        let shown = if self.seen.is_empty() {
            "/"
        } else {
            &self.seen
        };
        HelperRefusal::file("files", format!("{shown}: {what}"))
    }

    /// One component down, whatever it is as long as it is a directory and no symlink.
    fn step(&mut self, name: &OsStr) -> Result<FileStat, HelperRefusal> {
        self.seen.push('/');
        self.seen.push_str(&name.to_string_lossy());
        let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
        self.at =
            openat(self.at.as_fd(), name, flags, Mode::empty()).map_err(|error| match error {
                Errno::ENOENT => self.refuse("does not exist"),
                Errno::ELOOP | Errno::EMLINK | Errno::ENOTDIR => {
                    self.refuse("is a symlink, or not a directory")
                }
                error => self.refuse(&format!("cannot be opened: {error}")),
            })?;
        self.stat()
    }

    fn stat(&self) -> Result<FileStat, HelperRefusal> {
        fstat(&self.at).map_err(|error| self.refuse(&format!("cannot be examined: {error}")))
    }

    fn enter(&mut self, name: &OsStr) -> Result<(), HelperRefusal> {
        let stat = self.step(name)?;
        self.check(&stat)
    }

    fn check(&self, stat: &FileStat) -> Result<(), HelperRefusal> {
        let good = match self.trust {
            RequiredOwner::Root => stat.st_uid == 0,
            RequiredOwner::Owner(uid) => stat.st_uid == 0 || stat.st_uid == uid,
        };
        if !good {
            return Err(self.refuse("is owned by somebody else than it must be"));
        }
        if stat.st_mode & 0o022 != 0 {
            return Err(self.refuse("is writable by its group or by others"));
        }
        if sys::has_acl(self.at.as_fd())
            .map_err(|error| self.refuse(&format!("cannot be examined: {error}")))?
        {
            return Err(self.refuse(ACL));
        }
        Ok(())
    }

    fn finish(self) -> Result<OwnedFd, HelperRefusal> {
        if let RequiredOwner::Owner(uid) = self.trust
            && self.stat()?.st_uid != uid
        {
            return Err(self.refuse("is not owned by the uid that the policy names"));
        }
        Ok(self.at)
    }
}

fn components(path: &Path) -> impl Iterator<Item = &OsStr> {
    path.as_os_str()
        .as_bytes()
        .split(|b| *b == b'/')
        .filter(|name| !name.is_empty())
        .map(OsStr::from_bytes)
}

fn kind(stat: &FileStat) -> SFlag {
    SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT
}

fn duplicate(fd: &OwnedFd) -> Result<OwnedFd, HelperRefusal> {
    fd.try_clone()
        .map_err(|error| HelperRefusal::system("files", "duplicate a descriptor", error))
}
