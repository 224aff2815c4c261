//! The open SQLite file.

use super::error::{StoreError, TransactionError};
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::PathBuf;

use parking_lot::{Mutex, MutexGuard};

/// A SQLite file with one connection, and one writer at a time; threads wait for each other.
#[derive(Debug)]
pub(super) struct SqliteFile {
    pub(super) path: PathBuf,
    connection: Mutex<Connection>,
    /// The reason for which the last statement failed, where that stays until somebody looks after
    /// it.
    failing: Mutex<Option<String>>,
}

impl SqliteFile {
    pub(super) fn new(path: PathBuf, connection: Connection) -> SqliteFile {
        SqliteFile {
            path,
            connection: Mutex::new(connection),
            failing: Mutex::default(),
        }
    }

    /// The connection. A panic elsewhere while it was held has dropped, hence rolled back, its
    /// transaction.
    fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }

    /// The reason for which it does not work, if it did not the last time.
    pub(super) fn failing(&self) -> Option<String> {
        self.failing.lock().clone()
    }

    /// Runs `work` on the connection and names the file in its error.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.noted(work(&mut self.lock()).map_err(|error| self.failed(error)))
    }

    /// The same, for what may be refused.
    pub(super) fn run<T>(
        &self,
        work: impl FnOnce(&Connection) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        let done = work(&self.lock());
        self.noted(done.map_err(|aborted| self.named(aborted)))
    }

    /// Runs `work` as the only writer. What it changed is there whole once this has returned, or
    /// not at all.
    pub(super) fn transact<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        let mut connection = self.lock();
        let done = (|| {
            let transaction =
                connection.transaction_with_behavior(TransactionBehavior::Immediate)?;
            let done = work(&transaction)?;
            transaction.commit()?;
            Ok(done)
        })();
        self.noted(done.map_err(|aborted| self.named(aborted)))
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        let path = self.path.clone();
        StoreError::Sqlite { path, error }
    }

    fn named(&self, aborted: TransactionError) -> StoreError {
        match aborted {
            TransactionError::Refused(error) => error,
            TransactionError::Sqlite(error) => self.failed(error),
        }
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
