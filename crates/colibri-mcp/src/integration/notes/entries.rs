//! The entries of a directory: names out of bounds, and opening without following links.

use std::ffi::{CStr, CString};
use std::os::fd::{AsFd, OwnedFd};

use colibri_text::is_hidden;
use colibri_wire::keys::fold;
use nix::dir::Dir;
use nix::errno::Errno;
use nix::fcntl::{AtFlags, OFlag, openat};
use nix::sys::stat::{FileStat, Mode, SFlag, fstatat};

/// Names that are neither read nor written, on either side and at any depth.
const OUT_OF_BOUNDS: [&str; 5] = [".git", "_vault", ".worktrees", "node_modules", "temp"];
/// The file that says that a directory is a mirror, on which its lock is.
pub(super) const MARK: &CStr = c".colibri-mirror";
/// A file that is being written. What a run that was killed leaves is removed by the next.
pub(super) const UNFINISHED: &CStr = c".colibri-mirror-new";

/// The rest of a name for file systems that do not distinguish names by case, by form (NFKC), by
/// invisible characters, or by dots and blanks at the end.
fn bare(name: &CStr) -> String {
    let folded = fold(&name.to_string_lossy());
    let shown: String = folded.chars().filter(|c| !is_hidden(*c)).collect();
    shown.trim_end_matches(['.', ' ']).to_owned()
}

/// True if a name is neither read nor written. One that the vault's file system could take for such
/// a name is one.
pub(super) fn is_out_of_bounds(name: &CStr) -> bool {
    let bare = bare(name);
    OUT_OF_BOUNDS.contains(&bare.as_str()) || bare.as_bytes() == MARK.to_bytes()
}

/// True if a name is that of a file that is being written, whatever it is compared by.
pub(super) fn is_unfinished(name: &CStr) -> bool {
    bare(name).as_bytes() == UNFINISHED.to_bytes()
}

/// Somebody else was quicker, or put something else there: what a system says of a name that is not
/// what it was.
pub(super) const SWAPPED: [Errno; 4] = [Errno::ENOENT, Errno::ENOTDIR, Errno::ELOOP, Errno::EMLINK];

/// The entries of a directory.
pub(super) type DirectoryEntries = Vec<(CString, FileStat)>;

/// The kind of an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DirectoryEntryKind {
    Directory,
    File,
    Link,
    /// A FIFO, a socket or a device.
    Special,
}

pub(super) fn kind(stat: &FileStat) -> DirectoryEntryKind {
    match SFlag::from_bits_truncate(stat.st_mode) & SFlag::S_IFMT {
        SFlag::S_IFDIR => DirectoryEntryKind::Directory,
        SFlag::S_IFREG => DirectoryEntryKind::File,
        SFlag::S_IFLNK => DirectoryEntryKind::Link,
        _ => DirectoryEntryKind::Special,
    }
}

pub(super) fn size(stat: &FileStat) -> u64 {
    u64::try_from(stat.st_size).unwrap_or(0)
}

/// A directory in it.
pub(super) fn open_directory(at: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY | OFlag::O_DIRECTORY | OFlag::O_NOFOLLOW | OFlag::O_CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// A file in it, to be read. Without `O_NONBLOCK` the open of a FIFO would wait for a writer.
pub(super) fn open_file(at: impl AsFd, name: &CStr) -> Result<OwnedFd, Errno> {
    let flags = OFlag::O_RDONLY
        | OFlag::O_NOFOLLOW
        | OFlag::O_NONBLOCK
        | OFlag::O_NOCTTY
        | OFlag::O_CLOEXEC;
    openat(at, name, flags, Mode::empty())
}

/// An entry of this name, if there is one; a link itself.
pub(super) fn look(at: impl AsFd, name: &CStr) -> Result<Option<FileStat>, Errno> {
    match fstatat(at, name, AtFlags::AT_SYMLINK_NOFOLLOW) {
        Ok(stat) => Ok(Some(stat)),
        Err(Errno::ENOENT) => Ok(None),
        Err(errno) => Err(errno),
    }
}

/// All entries of a directory but `.` and `..`. `None`: there are more than `most`.
pub(super) fn list(at: impl AsFd, most: usize) -> Result<Option<DirectoryEntries>, Errno> {
    // Opened anew: where a descriptor has been read to belongs to all who share it.
    let mut directory = Dir::from_fd(open_directory(&at, c".")?)?;
    let mut found = Vec::new();
    for entry in directory.iter() {
        let entry = entry?;
        let name = entry.file_name();
        if name == c"." || name == c".." {
            continue;
        }
        if found.len() == most {
            return Ok(None);
        }
        if let Some(stat) = look(&at, name)? {
            found.push((name.to_owned(), stat));
        }
    }
    Ok(Some(found))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_file_system_could_take_for_a_name_out_of_bounds_is_one() {
        for name in [
            c".git",
            c".GIT",
            c".Git. .",
            c"_vault",
            c"_VAULT",
            c".worktrees",
            c"node_modules",
            c"Node_Modules ",
            c"temp",
            c"TEMP",
            c".colibri-mirror",
            c".Colibri-Mirror",
            // Full width, the sign for Kelvin, a long s, a zero-width joiner.
            c"\xef\xbc\x8egit",
            c".wor\xe2\x84\xaatrees",
            c"node_module\xc5\xbf",
            c".g\xe2\x80\x8dit",
        ] {
            assert!(is_out_of_bounds(name), "{name:?}");
        }
        for name in [
            c"git",
            c".gitignore",
            c".github",
            c"vault",
            c"_vaults",
            c"temp.md",
            c"temporary",
            c"node-modules",
            c"...",
            c".. ",
            c"\xff",
            c"temp\xff",
            c".colibri-mirror-new",
        ] {
            assert!(!is_out_of_bounds(name), "{name:?}");
        }
        assert!(
            is_unfinished(UNFINISHED)
                && is_unfinished(c".COLIBRI-mirror-new.")
                && !is_unfinished(MARK)
        );
    }
}
