//! The open database.

use super::board_storage::{BoardMembership, BoardStorage, BoardWork};
use super::error::{StoreError, TransactionError};
use super::local_board::LocalBoard;
use super::open;
use super::sqlite_file::SqliteFile;
use super::statements::Statements;
use colibri_api::Task;
use rusqlite::{Connection, Transaction};
use std::path::Path;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;

/// The open store. One connection, one writer at a time; threads wait for each other.
#[derive(Debug)]
pub struct Database {
    file: Arc<SqliteFile>,
    /// The storage of the board's tables.
    pub(super) storage: Arc<dyn BoardStorage>,
}

impl Database {
    /// Opens `colibri.db` in `state_dir`, makes what does not exist (directory 0700, file 0600),
    /// and brings an older schema up to date. The board's tables are in it, too, unless
    /// [`Database::with_fleet`] says otherwise.
    ///
    /// # Errors
    /// [`StoreError::File`] if the directory or file belongs to somebody else or others may write
    /// it; [`StoreError::Newer`], [`StoreError::Foreign`], [`StoreError::Sqlite`].
    pub fn open(state_dir: &Path) -> Result<Self, StoreError> {
        // One at a time: the descriptor with which one thread makes the file must be closed before
        // another's SQLite takes locks on it (see `open::prepare`).
        static OPENING: Mutex<()> = Mutex::new(());
        let _alone = OPENING.lock();
        let path = open::prepare(state_dir)?;
        let connection = open::connect(&path)?;
        let file = Arc::new(SqliteFile::new(path, connection));
        Ok(Self {
            storage: Arc::new(LocalBoard::new(file.clone())),
            file,
        })
    }

    /// This host's place on the board.
    pub fn board(&self) -> &dyn BoardMembership {
        &*self.storage
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.file.path
    }

    /// The reason for which it does not work, if it did not the last time.
    pub fn failing(&self) -> Option<String> {
        self.file.failing().or_else(|| self.storage.fault())
    }

    /// Runs `work` on the connection and names the file in its error.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.file.with(work)
    }

    /// Runs `work` as the only writer. What it changed is there whole once this has returned, or
    /// not at all.
    pub(super) fn transact<T>(
        &self,
        work: impl FnOnce(&Transaction<'_>) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        self.file.transact(work)
    }
}

/// The board's tables.
impl Database {
    /// Makes changes of the board's tables that belong together. They are there whole once this has
    /// returned, or not at all.
    pub(super) fn change_board<T>(
        &self,
        work: impl FnOnce(&mut dyn Statements) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        run_once(work, |work| self.storage.run_transaction(work))
    }

    /// Runs single statements on the board's tables.
    pub(super) fn on_board<T>(
        &self,
        work: impl FnOnce(&mut dyn Statements) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        run_once(work, |work| self.storage.run_statements(work))
    }

    /// Leaves a task's host out where there is only this one.
    pub fn show_host(&self, task: &mut Task) {
        if self.storage.shown_host().is_none() {
            task.host = None;
        }
    }
}

/// Has a board's storage run `work`, and returns the result: a trait object returns none of any
/// type.
fn run_once<T>(
    work: impl FnOnce(&mut dyn Statements) -> Result<T, TransactionError>,
    storage: impl FnOnce(BoardWork<'_>) -> Result<(), StoreError>,
) -> Result<T, StoreError> {
    let (mut due, mut done) = (Some(work), None);
    storage(&mut |statements| {
        if let Some(work) = due.take() {
            done = Some(work(statements)?);
        }
        Ok(())
    })?;
    done.ok_or_else(|| StoreError::Unrecorded("the board's storage ran nothing".to_owned()))
}

/// Milliseconds since the epoch, as everything in the store is dated; 0 if the clock stands before
/// it.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
