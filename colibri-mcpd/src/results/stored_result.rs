//! The id and owner of a stored result, and the reasons for which there is none.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use colibri_policy::DaemonLimits;
use colibri_text::{hex, unhex_into};

/// The time for which a result is stored.
pub(super) const KEPT_FOR: Duration = Duration::from_secs(24 * 60 * 60);

/// The limits of the store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ResultLimits {
    /// Bytes of one user, with the user's agents.
    pub per_user: u64,
    /// Bytes in all.
    pub total: u64,
}

impl From<&DaemonLimits> for ResultLimits {
    fn from(limits: &DaemonLimits) -> ResultLimits {
        ResultLimits {
            per_user: limits.result_bytes_per_user,
            total: limits.result_bytes,
        }
    }
}

/// The caller: a person, or one instance of an agent that runs for them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ResultOwner {
    /// The person.
    pub uid: u32,
    /// The instance, by its agent socket.
    pub session: Option<Arc<str>>,
}

impl ResultOwner {
    /// A person themselves.
    pub(super) fn person(uid: u32) -> ResultOwner {
        ResultOwner { uid, session: None }
    }
}

/// The name of a kept result: 128 random bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle(pub(super) [u8; 16]);

impl Handle {
    pub(super) fn new() -> io::Result<Handle> {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        Ok(Handle(bytes))
    }

    pub(super) fn read(text: &str) -> Option<Handle> {
        let mut bytes = [0; 16];
        unhex_into(text.as_bytes(), &mut bytes).then_some(Handle(bytes))
    }
}

/// As clients have it: 32 lower-case hex digits.
impl std::fmt::Display for Handle {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&hex(&self.0))
    }
}

/// A result that is kept.
#[derive(Debug, Clone, Copy)]
pub struct StoredResult {
    /// Under which it is read.
    pub handle: Handle,
    /// The number of bytes.
    pub bytes: u64,
    /// Their digest.
    pub sha256: [u8; 32],
}

/// The reason for which a result is not stored.
#[derive(Debug, thiserror::Error)]
pub enum NotStored {
    /// It is longer than all that may be kept.
    #[error("a result of {0} bytes is more than may be kept of one user ({1})")]
    TooLong(u64, u64),
    /// Others that are being written have the rest.
    #[error("too much is being kept at once")]
    Busy,
    /// The file system has no room for it beside what is reserved for the trail.
    #[error(
        "the file system of {} has no room beside what is reserved for the trail: free space there",
        .0.display()
    )]
    NoRoom(PathBuf),
    /// Its client's budget is spent.
    #[error("nothing is left of the budget to read it with")]
    Unreadable,
    /// Nobody waits for it any more.
    #[error("the call was cancelled")]
    Cancelled,
    /// The system says so.
    #[error("it cannot be written: {0}")]
    Disk(#[from] io::Error),
}

/// The reason for which nothing is read.
#[derive(Debug, thiserror::Error)]
pub enum NotRead {
    /// This owner has no such result: never, not any more, or it is another's.
    #[error("there is no result under this handle")]
    Unknown,
    /// The result is there, and what is asked for is not in it.
    #[error("{0}")]
    Missing(String),
    /// The system says so.
    #[error("cannot be read: {0}")]
    Disk(#[from] io::Error),
}
