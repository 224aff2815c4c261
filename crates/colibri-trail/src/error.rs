//! The reasons for which a trail cannot be opened or written, each with its remedy.

use std::io;
use std::path::{Path, PathBuf};

use crate::signed_note::NoteError;

/// The reason for which the trail cannot be opened or a record cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum TrailError {
    /// The system refused.
    #[error("cannot {action} {path}: {error}; {advice}", advice = advice(error))]
    Io {
        /// The attempted action.
        action: &'static str,
        /// The file or directory.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The file is not what was written to it, or not where it was.
    #[error(
        "trail segment {path} {what}; what was written last may be lost. Find out who touched it, put the directory \
         back if it was moved; calls go on with a new segment as soon as one can be made"
    )]
    Disturbed {
        /// The segment.
        path: PathBuf,
        /// The definitions that were seen.
        what: &'static str,
    },
    /// Another process appends to this trail.
    #[error(
        "the trail in {0} is in use by another process; only one colibri-mcpd may run on a state directory"
    )]
    Locked(PathBuf),
    /// The records that tell the state of the trail cannot be read.
    #[error(
        "cannot go on from trail segment {path}: {what}; run `colibri-mcp trail verify`; to begin a new trail, move the \
         directory and `trail.head` beside it aside, and keep them"
    )]
    Damaged {
        /// The segment.
        path: PathBuf,
        /// The fault.
        what: &'static str,
    },
    /// The trail is shorter than it was, or another one.
    #[error(
        "the trail in {dir} {what}, by the note in {note}: records were removed or changed. Run `colibri-mcp trail verify`, \
         and put back what is missing; to begin a new trail, move {dir} and {note} aside, and keep them",
        dir = dir.display(), note = note.display()
    )]
    Cut {
        /// The directory of the segments.
        dir: PathBuf,
        /// The note that knows better.
        note: PathBuf,
        /// The fault.
        what: String,
    },
    /// The installation's key cannot be used.
    #[error(transparent)]
    Key(#[from] NoteError),
    /// The trail was closed.
    #[error("the trail is closed: the daemon is stopping")]
    Closed,
}

/// The remedy for a system error, for people.
fn advice(error: &io::Error) -> &'static str {
    match error.raw_os_error() {
        Some(libc::ENOSPC | libc::EDQUOT) => {
            "free space on that file system: kept results (results/) were given up already; agents' events (agents/ in the \
             state directory) may be deleted, and old segments dropped (colibri-mcp trail drop, as the daemon's user). \
             Until then calls are refused"
        }
        Some(libc::EROFS) => {
            "mount that file system read-write again; until then calls are refused"
        }
        Some(libc::ENOENT | libc::ENOTDIR) => {
            "make the directory again, owned by the daemon's user (mode 0750); until then calls are refused"
        }
        Some(libc::EACCES | libc::EPERM) => {
            "give the directory back to the daemon's user and look for append-only or immutable flags; until then calls \
             are refused"
        }
        Some(libc::EIO) => {
            "the disk or its controller fails: see dmesg; until it works calls are refused"
        }
        _ => "until this works calls are refused",
    }
}

/// Makes an error of the system ours: what was tried, on which file.
pub(crate) fn failed_to(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> TrailError {
    // The path is copied only if there is an error: this stands on the way of each append.
    move |error| TrailError::Io {
        action,
        path: path.to_owned(),
        error,
    }
}

/// The reason for which a proof cannot be made, or does not hold.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The trail cannot be read.
    #[error("cannot read the trail: {0}")]
    Io(#[from] io::Error),
    /// There is no such record.
    #[error(
        "the trail has no record {0}; it may have been dropped by retention, or is not written yet"
    )]
    NoRecord(u64),
    /// The record is newer than the last seal.
    #[error(
        "record {0} is not sealed yet; a seal follows within 4,096 records and when the daemon stops"
    )]
    NotSealed(u64),
    /// The trail is damaged where the proof would come from.
    #[error(
        "the trail is damaged in segment {segment} at line {line}; run `colibri-mcp trail verify`"
    )]
    Damaged {
        /// The segment.
        segment: String,
        /// The line, counted from 1.
        line: u64,
    },
    /// Not a proof.
    #[error("not a trail proof: {0}")]
    Form(String),
    /// Root and path disagree with the record.
    #[error("the proof does not hold: the record and its path lead to another root than {0}")]
    Root(&'static str),
    /// The checkpoint is no good.
    #[error(transparent)]
    Checkpoint(#[from] NoteError),
    /// Nothing to check against.
    #[error(
        "a proof shows nothing by itself: give the published root, or the key that signs the checkpoints"
    )]
    NoAnchor,
}
