//! The open database.

use super::error::Error;
use super::open;
use rusqlite::Connection;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

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
    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Runs `work` on the connection and names the file in its error.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, Error> {
        work(&mut self.lock()).map_err(|source| Error::Sqlite {
            path: self.path.clone(),
            source,
        })
    }
}

/// Milliseconds since the epoch, as everything in the store is dated; 0 if the clock stands before it.
pub(super) fn now_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// A value that the schema's CHECKs rule out, so that the file was changed by another hand.
pub(super) fn unexpected(column: usize, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
}
