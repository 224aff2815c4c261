//! Errors of the store, each with its remedy.

use colibri_trail::reserve::{Reserve, Use};
use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// The most tasks in the store, so that runaway callers cannot fill the disk (about 4 GiB at the
/// worst).
pub(crate) const MAX_TASKS: i64 = 100_000;

/// An error of the store.
#[derive(Debug, thiserror::Error)]
pub enum StoreError {
    /// The state directory or the file cannot be made, read, or trusted.
    #[error("{path}: {why}")]
    File {
        /// The directory or file.
        path: PathBuf,
        /// The fault, and the remedy.
        why: String,
    },
    /// A newer Colibri wrote the file.
    #[error(
        "{path}: written by a newer Colibri (schema {found}, this one knows {known}): install that version again, or \
         move the file away to start with an empty store"
    )]
    Newer {
        /// The file.
        path: PathBuf,
        /// The schema number in the file.
        found: i64,
        /// The newest schema number of this program.
        known: i64,
    },
    /// The file is a database of something else.
    #[error("{path}: a database, but not Colibri's: move it away, or choose another --state-dir")]
    Foreign {
        /// The file.
        path: PathBuf,
    },
    /// SQLite refused: disk full, read-only, damaged, locked by another process for five seconds.
    #[error("cannot use the database {path}: {error}; {advice}", advice = advice(path, error))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// SQLite's error.
        error: rusqlite::Error,
    },
    /// The board of many hosts cannot be used now.
    #[error("the board {board} cannot be used: {why}")]
    Board {
        /// Its address.
        board: String,
        /// The fault, and the remedy.
        why: String,
    },
    /// There are `MAX_TASKS` open tasks.
    #[error(
        "there are {MAX_TASKS} open tasks on the board, which is the limit: finish or cancel some"
    )]
    Full,
    /// One user has this many open tasks, and may have no more.
    #[error("you have {0} open tasks, and may have no more: finish or cancel some")]
    OpenTasks(i64),
    /// The file system has no room beside what is reserved for the trail.
    #[error(
        "{path}: its file system has no room beside what is reserved for the trail: free space there"
    )]
    NoRoom {
        /// The file.
        path: PathBuf,
    },
    /// The cursor of a list is not one that this list gave out.
    #[error(transparent)]
    Cursor(#[from] CursorError),
    /// A schedule's timing is none.
    #[error("{0}")]
    Timing(String),
    /// One user, or all, have as many schedules as they may.
    #[error(
        "there are as many schedules as there may be: 100 of one user, 10 once there are 5,000, 10,000 in all; delete some"
    )]
    Schedules,
    /// One person has this many open tasks that calls left, and may have no more.
    #[error("{0} tasks that calls left are open, which is the most: finish or cancel some")]
    Deferred(i64),
    /// The task is not in the state, or not in the hands, that the order needs.
    #[error(transparent)]
    Task(#[from] TaskRefusal),
    /// The change cannot be recorded, so that it is not made.
    #[error("{0}")]
    Unrecorded(String),
}

/// The reason for which nothing is done with a task.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TaskRefusal {
    /// It is not there, or not for this caller to see.
    #[error("there is no task {0}")]
    Missing(u64),
    /// Its status does not allow it.
    #[error("task {id} is {status}, and {step} needs one that is {wanted}")]
    Status {
        /// The task.
        id: u64,
        /// Its place in the policy file.
        status: &'static str,
        /// The intended step.
        step: &'static str,
        /// The required status.
        wanted: String,
    },
    /// The claim is not the one in force.
    #[error("claim {given} of task {id} is over: the last one is {current}")]
    OldClaim {
        /// The task.
        id: u64,
        /// The caller's claim.
        given: u64,
        /// The claim in force.
        current: u64,
    },
    /// Somebody else has it.
    #[error("task {id} is claimed by {holder}")]
    NotYours {
        /// The task.
        id: u64,
        /// The holder of the claim.
        holder: String,
    },
    /// It is kept for an agent's instance.
    #[error("task {id} is reserved for the agent's instance {session}")]
    Reserved {
        /// The task.
        id: u64,
        /// The instance.
        session: String,
    },
    /// No host that counts here has signed it as it stands on the board of many hosts.
    #[error("task {id} is foreign: {why}; nothing is done with it but to cancel it")]
    Foreign {
        /// The task.
        id: u64,
        /// The reason.
        why: String,
    },
    /// Only who created it, and operators, may do that.
    #[error("task {0} was created by somebody else: its creator, or an operator, can do that")]
    NotCreator(u64),
    /// There is no such schedule of theirs.
    #[error("there is no schedule {0} of yours")]
    NoSchedule(u64),
    /// Somebody was faster.
    #[error("task {0} was changed by somebody else at the same moment")]
    Raced(u64),
}

impl StoreError {
    /// True if it stays until somebody looks after the disk or the file.
    pub(super) fn is_lasting(&self) -> bool {
        let StoreError::Sqlite { error, .. } = self else {
            return false;
        };
        matches!(
            error.sqlite_error_code(),
            Some(
                ErrorCode::DiskFull
                    | ErrorCode::SystemIoFailure
                    | ErrorCode::ReadOnly
                    | ErrorCode::CannotOpen
                    | ErrorCode::PermissionDenied
                    | ErrorCode::DatabaseCorrupt
                    | ErrorCode::NotADatabase
            )
        )
    }
}

/// The remedy for a damaged file.
pub(super) const RESTORE: &str =
    "restore it from a backup, or move it away to start with an empty store";

/// The remedy for SQLite's error, for people.
fn advice(path: &Path, error: &rusqlite::Error) -> String {
    let directory = path.parent().unwrap_or(path).display();
    match error.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => format!("free space on the file system of {directory}"),
        // A log that cannot grow is an error of input and output to SQLite.
        Some(ErrorCode::SystemIoFailure) if is_full(path) => {
            format!("the file system of {directory} is full: free space on it")
        }
        Some(ErrorCode::SystemIoFailure) => {
            "the disk or its controller fails: see dmesg".to_owned()
        }
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            format!("make {directory} writable for the daemon's user")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => {
            "end the program that holds it".to_owned()
        }
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => RESTORE.to_owned(),
        _ => "see what the daemon logs, and report it as a bug of Colibri".to_owned(),
    }
}

/// Looks whether something new of so many bytes can be stored here without the space that is
/// reserved for the trail.
///
/// # Errors
/// [`StoreError::NoRoom`].
pub(super) fn room(path: &Path, bytes: usize) -> Result<(), StoreError> {
    let directory = path.parent().unwrap_or(path);
    // It stands in the log first, and in the file later.
    let more = (bytes as u64).saturating_mul(2).saturating_add(SLACK);
    match Reserve::of(directory).missing(directory, more, Use::Stored) {
        0 => Ok(()),
        _ => Err(StoreError::NoRoom {
            path: path.to_owned(),
        }),
    }
}

/// Bytes that something small may have in pages of the file and its log.
const SLACK: u64 = 128 << 10;

/// True if the file system has next to no space left for who is not root.
fn is_full(path: &Path) -> bool {
    let left = nix::sys::statvfs::statvfs(path.parent().unwrap_or(path));
    left.is_ok_and(|left| left.blocks_available().saturating_mul(left.fragment_size()) < 64 << 10)
}

/// A cursor that this list did not give out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "the cursor is not one of this list: pass next_cursor unchanged, with the same status and source, or none"
)]
pub struct CursorError;

/// The reason for which a transaction is not committed.
pub(super) enum TransactionError {
    /// SQLite's error.
    Sqlite(rusqlite::Error),
    /// The refusal.
    Refused(StoreError),
}

impl From<rusqlite::Error> for TransactionError {
    fn from(error: rusqlite::Error) -> TransactionError {
        TransactionError::Sqlite(error)
    }
}

impl From<StoreError> for TransactionError {
    fn from(error: StoreError) -> TransactionError {
        TransactionError::Refused(error)
    }
}

impl From<TaskRefusal> for TransactionError {
    fn from(refusal: TaskRefusal) -> TransactionError {
        TransactionError::Refused(refusal.into())
    }
}

/// A value that the schema's CHECKs rule out, so that the file was changed by another hand.
pub(super) fn unexpected(column: usize, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
}
