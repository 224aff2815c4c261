//! SQLite: tasks, cost mode, what was last seen of every server.
//!
//! One file, `colibri.db`, in the state directory, in write-ahead mode and synchronised at each commit: what a method
//! has answered survives the daemon's and the machine's sudden end, and what it had not answered is there whole or not
//! at all. All methods are synchronous. Reads touch memory; a write waits for the disk, so an asynchronous caller wraps
//! it in a blocking section.

mod catalogue;
mod cost;
mod open;
mod task;

pub use catalogue::{CatalogueEntry, CatalogueKey};
pub use task::{
    CAPABILITIES_MAX, CAPABILITY_MAX, CursorError, DESCRIPTION_MAX, LABEL_MAX, NewTask, PAGE_DEFAULT, PAGE_MAX,
    PRIORITY_DEFAULT, PRIORITY_MAX, TASKS_MAX, TITLE_MAX, TaskFilter,
};

use rusqlite::{Connection, ErrorCode};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

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
    /// There are [`TASKS_MAX`] tasks.
    #[error("{path}: holds {TASKS_MAX} tasks, which is the limit: the operator must delete ended ones from it")]
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

/// The open store. One connection, one writer at a time; threads wait for each other.
#[derive(Debug)]
pub struct Store {
    path: PathBuf,
    connection: Mutex<Connection>,
}

impl Store {
    /// Opens `colibri.db` in `state_dir`, makes what does not exist (directory 0700, file 0600), and brings an older
    /// schema up to date.
    ///
    /// # Errors
    /// [`Error::File`] if the directory or file belongs to somebody else or others may write it; [`Error::Newer`],
    /// [`Error::Foreign`], [`Error::Sqlite`].
    pub fn open(state_dir: &Path) -> Result<Self, Error> {
        // One at a time: the descriptor with which one thread makes the file must be closed before another's SQLite
        // takes locks on it (see `open::prepare`).
        static OPENING: Mutex<()> = Mutex::new(());
        let _alone = OPENING.lock().unwrap_or_else(PoisonError::into_inner);
        let path = open::prepare(state_dir)?;
        let connection = open::connect(&path)?;
        Ok(Self {
            path,
            connection: Mutex::new(connection),
        })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connection. A panic elsewhere while it was held has dropped, hence rolled back, its transaction.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the connection and names the file in its error.
    fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        work(&mut self.lock()).map_err(|source| Error::Sqlite {
            path: self.path.clone(),
            source,
        })
    }
}

/// Milliseconds since the epoch, as everything in the store is dated; 0 if the clock stands before it.
fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A value that the schema's CHECKs rule out, so that the file was changed by another hand.
fn unexpected(column: usize, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
}

#[cfg(test)]
mod survival;
