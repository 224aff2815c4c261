//! The mirrored part of `docs/`, and the omitted one.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::CString;
use std::os::fd::OwnedFd;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::errno::Errno;
use serde::Serialize;

use super::entries::{
    DirectoryEntries, DirectoryEntryKind, MARK, SWAPPED, is_out_of_bounds, is_unfinished, kind,
    list, open_directory, size,
};
use super::mirror_error::{DOCS, MirrorError};

/// The limits of one run.
#[derive(Debug, Clone, Copy)]
pub(super) struct MirrorLimits {
    /// Entries of either side, whatever they are.
    pub(super) entries: usize,
    /// Bytes of all files.
    pub(super) bytes: u64,
    /// Bytes of a file.
    pub(super) file: u64,
    /// Directories below each other; each takes two descriptors.
    pub(super) depth: usize,
}

impl MirrorLimits {
    pub(super) const USUAL: MirrorLimits = MirrorLimits {
        entries: 100_000,
        bytes: 4 << 30,
        file: 64 << 20,
        depth: 64,
    };
}

/// The number of omitted entries by reason.
#[derive(Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct OmittedEntries {
    /// By their names.
    pub(super) out_of_bounds: u64,
    /// Symbolic links.
    pub(super) links: u64,
    /// Files that have another name too.
    pub(super) hard_links: u64,
    /// FIFOs, sockets, devices.
    pub(super) special: u64,
    /// Larger than a file may be.
    pub(super) large: u64,
    /// Directories deeper than they may be, on either side.
    pub(super) deep: u64,
    /// Not readable.
    pub(super) unreadable: u64,
    /// Changed or swapped while it was read.
    pub(super) changed: u64,
    /// Files whose place in the mirror is taken by a directory.
    pub(super) in_the_way: u64,
    /// Names that the mirror's file system does not take.
    pub(super) names: u64,
}

/// A directory of the repository, as far as it is mirrored.
#[derive(Debug)]
pub(super) struct Tree {
    pub(super) directories: BTreeMap<CString, Tree>,
    pub(super) files: BTreeSet<CString>,
    /// The entries that are not copied and whose earlier copy stays: too large, too deep or not
    /// readable now.
    pub(super) kept: BTreeSet<CString>,
}

/// Reads what is to be mirrored.
pub(super) struct TreeReader<'a> {
    limits: &'a MirrorLimits,
    cancelled: &'a AtomicBool,
    left_out: &'a mut OmittedEntries,
    entries: usize,
    bytes: u64,
}

impl<'a> TreeReader<'a> {
    pub(super) fn new(
        limits: &'a MirrorLimits,
        cancelled: &'a AtomicBool,
        left_out: &'a mut OmittedEntries,
    ) -> TreeReader<'a> {
        TreeReader {
            limits,
            cancelled,
            left_out,
            entries: 0,
            bytes: 0,
        }
    }

    /// Reads the tree below the directory `docs/`. `None`: it is a mirror itself.
    pub(super) fn read(&mut self, docs: &OwnedFd) -> Result<Option<Tree>, MirrorError> {
        let entries = self
            .list(docs)
            .map_err(|errno| MirrorError::system("cannot read", DOCS, errno))?;
        self.tree(docs, entries, 1)
    }

    /// The entries of a directory; `None`: with them there are too many.
    fn list(&mut self, at: &OwnedFd) -> Result<Option<DirectoryEntries>, Errno> {
        let entries = list(at, self.limits.entries - self.entries)?;
        self.entries += entries.as_ref().map_or(0, Vec::len);
        Ok(entries)
    }

    /// The mirrored part of these entries. `None`: they are a mirror's, which is not mirrored
    /// again.
    fn tree(
        &mut self,
        at: &OwnedFd,
        entries: Option<DirectoryEntries>,
        depth: usize,
    ) -> Result<Option<Tree>, MirrorError> {
        let Some(entries) = entries else {
            return Err(MirrorError::TooMuch {
                place: DOCS,
                most: self.limits.entries as u64,
                what: "files, directories and other entries",
            });
        };
        if entries.iter().any(|(name, _)| name.as_c_str() == MARK) {
            return Ok(None);
        }
        let mut tree = Tree {
            directories: BTreeMap::new(),
            files: BTreeSet::new(),
            kept: BTreeSet::new(),
        };
        for (name, stat) in entries {
            if self.cancelled.load(Ordering::Relaxed) {
                return Err(MirrorError::Cancelled);
            }
            if is_out_of_bounds(&name) || is_unfinished(&name) {
                self.left_out.out_of_bounds += 1;
                continue;
            }
            match kind(&stat) {
                DirectoryEntryKind::Directory => self.directory(at, name, depth, &mut tree)?,
                DirectoryEntryKind::Link => self.left_out.links += 1,
                DirectoryEntryKind::Special => self.left_out.special += 1,
                DirectoryEntryKind::File if stat.st_nlink != 1 => self.left_out.hard_links += 1,
                DirectoryEntryKind::File if size(&stat) > self.limits.file => {
                    self.left_out.large += 1;
                    tree.kept.insert(name);
                }
                DirectoryEntryKind::File => {
                    self.bytes += size(&stat);
                    if self.bytes > self.limits.bytes {
                        return Err(MirrorError::too_many_bytes(self.limits.bytes));
                    }
                    tree.files.insert(name);
                }
            }
        }
        Ok(Some(tree))
    }

    fn directory(
        &mut self,
        at: &OwnedFd,
        name: CString,
        depth: usize,
        tree: &mut Tree,
    ) -> Result<(), MirrorError> {
        if depth == self.limits.depth {
            self.left_out.deep += 1;
            tree.kept.insert(name);
            return Ok(());
        }
        let opened = open_directory(at, &name).and_then(|opened| Ok((self.list(&opened)?, opened)));
        match opened {
            Ok((entries, opened)) => {
                match self
                    .tree(&opened, entries, depth + 1)
                    .map_err(|fault| fault.below(&name))?
                {
                    Some(below) => {
                        tree.directories.insert(name, below);
                    }
                    None => self.left_out.out_of_bounds += 1,
                }
            }
            Err(Errno::EACCES | Errno::EPERM) => {
                self.left_out.unreadable += 1;
                tree.kept.insert(name);
            }
            Err(errno) if SWAPPED.contains(&errno) => {
                self.left_out.changed += 1;
                tree.kept.insert(name);
            }
            Err(errno) => return Err(MirrorError::system("cannot open", DOCS, errno).below(&name)),
        }
        Ok(())
    }
}
