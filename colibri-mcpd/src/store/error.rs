//! What can go wrong with the store, and what to do about it.

use rusqlite::ErrorCode;
use std::path::{Path, PathBuf};

/// The most tasks in the store, so that a runaway caller cannot fill the disk (about 4 GiB at the worst).
pub const MAX_TASKS: i64 = 100_000;

/// What can go wrong with the store.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The state directory or the file cannot be made, read, or trusted.
    #[error("{path}: {why}")]
    File {
        /// The directory or file.
        path: PathBuf,
        /// What is wrong with it and what to do.
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
    #[error("cannot use the database {path}: {source}; {advice}", advice = advice(path, source))]
    Sqlite {
        /// The file.
        path: PathBuf,
        /// What SQLite says.
        source: rusqlite::Error,
    },
    /// There are [`MAX_TASKS`] tasks.
    #[error("{path}: holds {MAX_TASKS} tasks, which is the limit: the operator must delete ended ones from it")]
    Full {
        /// The file.
        path: PathBuf,
    },
    /// The cursor of a list is not one that this list gave out.
    #[error(transparent)]
    Cursor(#[from] CursorError),
}

/// What to do about what SQLite says, for people.
fn advice(path: &Path, source: &rusqlite::Error) -> String {
    let directory = path.parent().unwrap_or(path).display();
    match source.sqlite_error_code() {
        Some(ErrorCode::DiskFull) => format!("free space on the file system of {directory}"),
        // A log that cannot grow is an error of input and output to SQLite.
        Some(ErrorCode::SystemIoFailure) if is_full(path) => {
            format!("the file system of {directory} is full: free space on it")
        }
        Some(ErrorCode::SystemIoFailure) => "the disk or its controller fails: see dmesg".to_owned(),
        Some(ErrorCode::ReadOnly | ErrorCode::CannotOpen | ErrorCode::PermissionDenied) => {
            format!("make {directory} writable for the daemon's user")
        }
        Some(ErrorCode::DatabaseBusy | ErrorCode::DatabaseLocked) => "end the program that holds it".to_owned(),
        Some(ErrorCode::DatabaseCorrupt | ErrorCode::NotADatabase) => {
            "restore it from a backup, or move it away to start with an empty store".to_owned()
        }
        _ => "see what the daemon logs, and report it as a bug of Colibri".to_owned(),
    }
}

/// Whether the file system has next to no space left for who is not root.
fn is_full(path: &Path) -> bool {
    let left = nix::sys::statvfs::statvfs(path.parent().unwrap_or(path));
    left.is_ok_and(|left| left.blocks_available().saturating_mul(left.fragment_size()) < 64 << 10)
}

/// A cursor that this list did not give out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the cursor is not one of this list: pass next_cursor unchanged, with the same status and source, or none")]
pub struct CursorError;
