//! The open database.

use super::error::{StoreError, TaskRefusal};
use super::open;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};

/// The open store. One connection, one writer at a time; threads wait for each other.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// The reason for which the last statement failed, where that stays until somebody looks after it.
    failing: Mutex<Option<String>>,
}

impl Database {
    /// Opens `colibri.db` in `state_dir`, makes what does not exist (directory 0700, file 0600), and brings an older
    /// schema up to date.
    ///
    /// # Errors
    /// [`StoreError::File`] if the directory or file belongs to somebody else or others may write it; [`StoreError::Newer`],
    /// [`StoreError::Foreign`], [`StoreError::Sqlite`].
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        // One at a time: the descriptor with which one thread makes the file must be closed before another's SQLite
        // takes locks on it (see `open::prepare`).
        static OPENING: Mutex<()> = Mutex::new(());
        let _alone = OPENING.lock();
        let path = open::prepare(state_dir)?;
        let connection = open::connect(&path)?;
        Ok(Self {
            path,
            connection: Mutex::new(connection),
            failing: Mutex::default(),
        })
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connection. A panic elsewhere while it was held has dropped, hence rolled back, its transaction.
    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }

    /// Runs `work` on the connection and names the file in its error.
    pub(super) fn with<T>(&self, work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>) -> Result<T, StoreError> {
        self.noted(work(&mut self.lock()).map_err(|error| self.failed(error)))
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        let path = self.path.clone();
        StoreError::Sqlite { path, error }
    }

    /// The reason for which it does not work, if it did not the last time.
    pub fn failing(&self) -> Option<String> {
        self.failing.lock().clone()
    }

    fn noted<T>(&self, done: Result<T, StoreError>) -> Result<T, StoreError> {
        let why = match &done {
            Err(error) if error.is_lasting() => Some(error.to_string()),
            Err(_) => return done,
            Ok(_) => None,
        };
        *self.failing.lock() = why;
        done
    }
}

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

impl Database {
    /// Runs `work` as the only writer. What it changed is there whole once this has returned, or not at all.
    pub(super) fn transact<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        let mut connection = self.lock();
        let done = (|| {
            let transaction = connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })();
        self.noted(done.map_err(|aborted| match aborted {
            TransactionError::Refused(error) => error,
            TransactionError::Sqlite(error) => self.failed(error),
        }))
    }
}

/// Milliseconds since the epoch, as everything in the store is dated; 0 if the clock stands before it.
pub(crate) fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}

/// A value that the schema's CHECKs rule out, so that the file was changed by another hand.
pub(super) fn unexpected(column: usize, what: String) -> rusqlite::Error {
    rusqlite::Error::FromSqlConversionFailure(column, rusqlite::types::Type::Text, what.into())
}
