//! The board of one host: its tables are in the daemon's own SQLite file, its people are this
//! host's users, and nothing is signed.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use colibri_api::Task;
use rusqlite::types::Value;
use tokio::sync::Notify;

use super::board_storage::{BoardMembership, BoardStorage, BoardWork};
use super::error::{StoreError, TransactionError};
use super::hosts::{CountedHost, HostPlaces};
use super::lease::HostLease;
use super::sqlite_file::SqliteFile;
use super::statements::{SqliteStatements, Statements};

/// The board's tables in SQLite.
#[derive(Debug)]
pub(super) struct LocalBoard {
    file: Arc<SqliteFile>,
    lease: Arc<HostLease>,
    /// Never notified.
    changes_elsewhere: Notify,
}

impl LocalBoard {
    pub(super) fn new(file: Arc<SqliteFile>) -> LocalBoard {
        LocalBoard {
            file,
            lease: Arc::new(HostLease::permanent()),
            changes_elsewhere: Notify::new(),
        }
    }
}

impl BoardMembership for LocalBoard {
    fn is_shared(&self) -> bool {
        false
    }

    fn is_away(&self) -> bool {
        false
    }

    fn changes_elsewhere(&self) -> &Notify {
        &self.changes_elsewhere
    }

    fn lease(&self) -> &Arc<HostLease> {
        &self.lease
    }

    fn shown_host(&self) -> Option<&str> {
        None
    }

    fn person_name(&self, _: u32) -> Option<String> {
        None
    }

    fn is_foreign(&self, _: u32) -> bool {
        false
    }

    fn instances_elsewhere(&self) -> Result<Vec<(String, String)>, StoreError> {
        Ok(Vec::new())
    }

    fn report_places(&self, _: HostPlaces) {}

    fn map_persons(&self, _: HashMap<u32, String>) {}

    fn count_hosts(&self, _: BTreeMap<String, CountedHost>) {}

    fn leave(&self) {}
}

impl BoardStorage for LocalBoard {
    fn run_statements(&self, work: BoardWork<'_>) -> Result<(), StoreError> {
        self.file
            .run(|connection| work(&mut SqliteStatements(connection)))
    }

    fn run_transaction(&self, work: BoardWork<'_>) -> Result<(), StoreError> {
        self.file
            .transact(|transaction| work(&mut SqliteStatements(transaction)))
    }

    fn fault(&self) -> Option<String> {
        None
    }

    fn person(&self, uid: u32) -> Result<i64, StoreError> {
        Ok(uid.into())
    }

    fn group(&self, gid: u32) -> Result<i64, StoreError> {
        Ok(gid.into())
    }

    fn session_name(&self, session: &str) -> String {
        session.to_owned()
    }

    fn lease_condition(&self, _: &mut Vec<Value>) -> String {
        "TRUE".to_owned()
    }

    fn sign_task(
        &self,
        _: &mut dyn Statements,
        stored: Task,
        _: Task,
    ) -> Result<Task, TransactionError> {
        Ok(stored)
    }

    fn sign_state(&self, _: &Task, _: Option<&str>, _: &mut Vec<Value>) -> String {
        String::new()
    }

    fn sign_schedule(
        &self,
        _: &mut dyn Statements,
        _: u64,
        _: &serde_json::Value,
    ) -> Result<(), TransactionError> {
        Ok(())
    }
}
