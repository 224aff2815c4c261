//! Space on the state directory's file system that is left to the trail.
//!
//! Results, agents' events and tasks lie on the same file system as the trail, and no call is taken
//! without a record. So what grows with the calls of one user leaves the reserve free, and caches
//! leave twice as much.

use std::io;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

use nix::sys::statvfs::statvfs;

/// The part of the file system that is reserved, one of so many.
const PART: u64 = 8;
/// The most bytes that are reserved: a segment of the trail.
const MOST: u64 = 64 << 20;

/// Use of the file system beside the trail.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Use {
    /// Files that somebody may still need: tasks, events of agents.
    Stored,
    /// Files that can be given up at any time.
    Cached,
}

/// The reserve of one state directory. By default there is none.
#[derive(Debug, Clone, Default)]
pub struct Reserve {
    state_dir: PathBuf,
}

/// Space of a file system, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Space {
    /// Free for a process that is not root.
    pub free: u64,
    /// Of these, reserved for the trail.
    pub reserved: u64,
}

impl Space {
    fn of(size: u64, free: u64) -> Space {
        let reserved = (size / PART).min(MOST);
        Space { free, reserved }
    }

    /// Free bytes that a use has to leave.
    pub fn kept_from(&self, by: Use) -> u64 {
        match by {
            Use::Stored => self.reserved,
            Use::Cached => self.reserved * 2,
        }
    }
}

impl Reserve {
    /// The reserve of this state directory.
    pub fn of(state_dir: &Path) -> Reserve {
        let state_dir = state_dir.to_owned();
        Reserve { state_dir }
    }

    /// The space of the state directory's file system now.
    ///
    /// # Errors
    /// As statvfs(3).
    pub fn space(&self) -> io::Result<Space> {
        let found = statvfs(&self.state_dir)?;
        let bytes = |blocks: u64| blocks.saturating_mul(found.fragment_size());
        Ok(Space::of(
            bytes(found.blocks()),
            bytes(found.blocks_available()),
        ))
    }

    /// Bytes to be freed before `more` can be written below `directory`; 0: there is room, or
    /// another file system is mounted there, or the system does not say.
    pub fn missing(&self, directory: &Path, more: u64, by: Use) -> u64 {
        let Ok(space) = self.space() else { return 0 };
        let missing = more
            .saturating_add(space.kept_from(by))
            .saturating_sub(space.free);
        if missing > 0 && is_same(&self.state_dir, directory) {
            missing
        } else {
            0
        }
    }
}

/// True if two files are known to lie on one file system.
pub fn is_same(one: &Path, other: &Path) -> bool {
    let device = |path: &Path| path.metadata().map(|facts| facts.dev());
    matches!((device(one), device(other)), (Ok(one), Ok(other)) if one == other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_small_file_system_reserves_a_part_and_a_large_one_a_segment() {
        let small = Space::of(24 << 20, 10 << 20);
        assert_eq!(
            (small.kept_from(Use::Stored), small.kept_from(Use::Cached)),
            (3 << 20, 6 << 20)
        );
        assert_eq!(Space::of(1 << 40, 1 << 39).reserved, MOST);
        assert_eq!(Space::of(0, 0).reserved, 0);
    }

    #[test]
    fn what_is_missing_is_what_must_be_freed() {
        let state = tempfile::tempdir().unwrap();
        let reserve = Reserve::of(state.path());
        assert_eq!(
            reserve.missing(state.path(), 0, Use::Stored),
            0,
            "there is room"
        );
        let missing = reserve.missing(state.path(), u64::MAX / 2, Use::Cached);
        assert!(missing > 0 && missing < u64::MAX / 2);
        assert_eq!(
            reserve.missing(Path::new("/proc"), u64::MAX / 2, Use::Cached),
            0
        );
        assert_eq!(
            Reserve::default().missing(state.path(), u64::MAX, Use::Cached),
            0
        );
    }
}
