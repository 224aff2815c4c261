//! What is pinned, and why a pin cannot be kept or accepted.

use std::fmt;
use std::path::PathBuf;

use colibri_text::brief;

use super::definition::MAX_DEFINITION;
use super::standing::Standing;
use crate::policy::file::FileError;

/// What happens to what was never seen before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trust {
    /// It is pinned as it is, unless it has hidden characters.
    FirstUse,
    /// It is blocked until accepted (`--pin-strict`).
    Strict,
}

/// What a pin is of.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Subject {
    /// The server's `instructions`.
    Instructions,
    /// A tool, by the server's own name of it.
    Tool(String),
}

/// What waits to be accepted, against what was approved.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// SHA-256 of exactly what is shown as new: name it to [`super::Pins::accept`].
    pub sha256: String,
    /// A member a line (`-` as approved, `+` as it is now), hidden characters escaped, nothing cut.
    pub text: String,
}

/// A pin, or what waits to become one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PinRow {
    /// The server's id.
    pub server: String,
    /// What it is of.
    pub subject: Subject,
    /// SHA-256 of what was approved, lower-case hex; `None` if nothing was.
    pub approved: Option<String>,
    /// Who approved it (`first use`, `image`, `uid 1001`).
    pub by: Option<String>,
    /// SHA-256 of what the server says now and what waits to be accepted.
    pub waiting: Option<String>,
    /// Why that is not approved; [`Standing::Approved`] if nothing waits.
    pub standing: Standing,
}

/// Why pins cannot be read, kept or accepted.
#[derive(Debug, thiserror::Error)]
pub enum PinError {
    /// A pins file cannot be read.
    #[error(transparent)]
    File(#[from] FileError),
    /// A pins file holds something else.
    #[error("{path} is not a pins file: {why}", path = .path.display())]
    Content {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        why: String,
    },
    /// A text is longer than anything that is ever shown.
    #[error("{what} has more than {MAX_DEFINITION} bytes and cannot be accepted")]
    TooLong {
        /// What.
        what: String,
    },
    /// The pins file cannot be written; nothing was accepted.
    #[error("cannot write {path}: {error}", path = .path.display())]
    Write {
        /// The file.
        path: PathBuf,
        /// What the system says.
        error: std::io::Error,
    },
    /// Nothing is waiting under that name.
    #[error("{what} of server {server} is not waiting to be accepted; colibri-mcp pin list --waiting shows what is")]
    NotWaiting {
        /// The server's id.
        server: String,
        /// What of it.
        what: String,
    },
    /// The server has changed it again since the operator looked.
    #[error(
        "{what} is {now} by now, which is not what was to be accepted; nothing was accepted. Look at it again with \
         colibri-mcp pin diff"
    )]
    ChangedAgain {
        /// What has changed.
        what: String,
        /// SHA-256 of what waits now.
        now: String,
    },
}

impl fmt::Display for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Subject::Instructions => f.write_str("the instructions"),
            Subject::Tool(name) => write!(f, "tool {}", brief(name, 100)),
        }
    }
}
