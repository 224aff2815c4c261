//! The open database.

use super::error::{StoreError, TransactionError};
use super::fleet::{Fleet, is_foreign};
use super::open;
use super::statements::{SqliteStatements, Statements};
use colibri_api::Task;
use rusqlite::{Connection, Transaction, TransactionBehavior};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use parking_lot::{Mutex, MutexGuard};

/// The open store. One connection, one writer at a time; threads wait for each other.
#[derive(Debug)]
pub struct Database {
    path: PathBuf,
    connection: Mutex<Connection>,
    /// The reason for which the last statement failed, where that stays until somebody looks after
    /// it.
    failing: Mutex<Option<String>>,
    /// Where the board's tables are PostgreSQL's: the hosts that share them.
    fleet: Option<Arc<Fleet>>,
}

impl Database {
    /// Opens `colibri.db` in `state_dir`, makes what does not exist (directory 0700, file 0600),
    /// and brings an older schema up to date.
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
        Ok(Self {
            path,
            connection: Mutex::new(connection),
            failing: Mutex::default(),
            fleet: None,
        })
    }

    /// The same, but for tasks and schedules, which are those of many hosts.
    pub fn with_fleet(self, fleet: Option<Arc<Fleet>>) -> Database {
        Database { fleet, ..self }
    }

    /// The hosts that share the board's tables.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        self.fleet.as_ref()
    }

    /// The database file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The connection. A panic elsewhere while it was held has dropped, hence rolled back, its
    /// transaction.
    pub(super) fn lock(&self) -> MutexGuard<'_, Connection> {
        self.connection.lock()
    }

    /// Runs `work` on the connection and names the file in its error.
    pub(super) fn with<T>(
        &self,
        work: impl FnOnce(&mut Connection) -> rusqlite::Result<T>,
    ) -> Result<T, StoreError> {
        self.noted(work(&mut self.lock()).map_err(|error| self.failed(error)))
    }

    fn failed(&self, error: rusqlite::Error) -> StoreError {
        let path = self.path.clone();
        StoreError::Sqlite { path, error }
    }

    /// The reason for which it does not work, if it did not the last time.
    pub fn failing(&self) -> Option<String> {
        let away = self.fleet.as_ref().and_then(|fleet| fleet.fault());
        self.failing.lock().clone().or(away)
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

impl Database {
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

    fn named(&self, aborted: TransactionError) -> StoreError {
        match aborted {
            TransactionError::Refused(error) => error,
            TransactionError::Sqlite(error) => self.failed(error),
        }
    }
}

/// The board's tables, which are SQLite's or PostgreSQL's.
impl Database {
    /// Makes changes of the board's tables that belong together. They are there whole once this has
    /// returned, or not at all.
    pub(super) fn change_board<T>(
        &self,
        work: impl FnOnce(&mut dyn Statements) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        match &self.fleet {
            Some(fleet) => fleet.work(true, work),
            None => self.transact(|transaction| work(&mut SqliteStatements(transaction))),
        }
    }

    /// Runs single statements on the board's tables.
    pub(super) fn on_board<T>(
        &self,
        work: impl FnOnce(&mut dyn Statements) -> Result<T, TransactionError>,
    ) -> Result<T, StoreError> {
        if let Some(fleet) = &self.fleet {
            return fleet.work(false, work);
        }
        let done = work(&mut SqliteStatements(&self.lock()));
        self.noted(done.map_err(|aborted| self.named(aborted)))
    }

    /// The number that stands for a user on the board.
    pub(super) fn person(&self, uid: u32) -> Result<i64, StoreError> {
        self.fleet
            .as_ref()
            .map_or(Ok(uid.into()), |fleet| fleet.person(uid))
    }

    /// The number that stands for a group on the board.
    pub(super) fn group(&self, gid: u32) -> Result<i64, StoreError> {
        let fleet = self.fleet.as_ref();
        fleet.map_or(Ok(gid.into()), |fleet| fleet.group_number(gid))
    }

    /// True if this is a person who has no account on this host.
    pub fn is_foreign(&self, uid: u32) -> bool {
        self.fleet.is_some() && is_foreign(uid)
    }

    /// Leaves a task's host out where there is only this one.
    pub fn show_host(&self, task: &mut Task) {
        if !self.fleet.as_ref().is_some_and(|fleet| fleet.has_others()) {
            task.host = None;
        }
    }

    /// The name of an instance on the board.
    pub(super) fn session_name(&self, session: &str) -> String {
        let fleet = self.fleet.as_ref();
        fleet.map_or_else(|| session.to_owned(), |fleet| fleet.session(session))
    }

    /// The board's time, where that is the database's.
    pub fn board_time(&self) -> Option<u64> {
        self.fleet.as_ref()?.lease().board_time()
    }

    /// True if the board's database cannot be used now.
    pub fn is_away(&self) -> bool {
        self.fleet
            .as_ref()
            .is_some_and(|fleet| fleet.away().is_some())
    }

    /// Waits until something on the board may have been changed by another host.
    pub async fn woken(&self) {
        match &self.fleet {
            Some(fleet) => fleet.woken().await,
            None => std::future::pending().await,
        }
    }
}

/// Milliseconds since the epoch, as everything in the store is dated; 0 if the clock stands before
/// it.
pub fn now_ms() -> u64 {
    let since = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
}
