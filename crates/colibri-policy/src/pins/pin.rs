//! Pins, and the reasons for which one cannot be stored or accepted.

use std::path::PathBuf;

use super::definition::MAX_DEFINITION;
use crate::file::FileError;

/// The treatment of what was never seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TrustMode {
    /// It is pinned as it is, unless it has hidden characters.
    FirstUse,
    /// It is blocked until accepted (`--pin-strict`).
    Strict,
}

/// A waiting definition beside the approved one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// SHA-256 of exactly what is shown as new: name it to [`super::Pins::accept`].
    pub sha256: String,
    /// A member a line (`-` as approved, `+` as it is now), hidden characters escaped, nothing cut.
    pub text: String,
}

/// The reason for which pins cannot be read, stored or accepted.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// A pins file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A pins file holds something else.
    #[error(
        "{path} is not a pins file: {why}. Without it nothing that servers say can be trusted: put it back from a backup; \
         or, to look at all of it anew, run `mv {path} {path}.broken`, start with --pin-strict, and accept what \
         `colibri-mcp pin list --waiting` shows",
        path = .path.display()
    )]
    Content {
        /// The file.
        path: PathBuf,
        /// The fault.
        why: String,
    },
    /// A text is longer than anything that is ever shown.
    #[error("{what} has more than {MAX_DEFINITION} bytes and cannot be accepted")]
    TooLong {
        /// The subject.
        what: String,
    },
    /// The pins file cannot be written; nothing was accepted.
    #[error("cannot write {path}: {error}", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: std::io::Error,
    },
    /// Nothing is waiting under that name.
    #[error(
        "{what} of server {server} is not waiting to be accepted; colibri-mcp pin list --waiting shows what is"
    )]
    NotWaiting {
        /// The server's id.
        server: String,
        /// The part of it.
        what: String,
    },
    /// The server has changed it again since the operator looked.
    #[error(
        "{what} is {now} by now, which is not what was to be accepted; nothing was accepted. Look at it again with \
         colibri-mcp pin diff"
    )]
    ChangedAgain {
        /// The change.
        what: String,
        /// SHA-256 of what waits now.
        now: String,
    },
}
