//! The storage of the board's tables. A daemon has one, chosen at its start: SQLite's own file
//! (`LocalBoard`), or a PostgreSQL that many hosts share (`Fleet`).

use std::collections::{BTreeMap, HashMap};
use std::fmt::Debug;
use std::sync::Arc;

use colibri_api::Task;
use rusqlite::types::Value;
use tokio::sync::Notify;

use super::error::{StoreError, TransactionError};
use super::hosts::{CountedHost, HostPlaces};
use super::lease::HostLease;
use super::statements::Statements;

/// This host's place on the board. A board of its own answers what one host alone means.
pub trait BoardMembership: Send + Sync {
    /// True if other hosts may change the board.
    fn is_shared(&self) -> bool;

    /// True if the board's database cannot be used now.
    fn is_away(&self) -> bool;

    /// Notified when another host may have changed something, or the database is back.
    fn changes_elsewhere(&self) -> &Notify;

    /// This host's lease.
    fn lease(&self) -> &Arc<HostLease>;

    /// This host's name, to be shown where other hosts have enrolled on the board.
    fn shown_host(&self) -> Option<&str>;

    /// The name of a user on the board, if users have names there.
    fn person_name(&self, uid: u32) -> Option<String>;

    /// True if a uid stands for a person who has no account on this host.
    fn is_foreign(&self, uid: u32) -> bool;

    /// The instances of the other hosts that are there, as they show them: by the host's name,
    /// JSON.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    fn instances_elsewhere(&self) -> Result<Vec<(String, String)>, StoreError>;

    /// From now on the other hosts read this of what this one can run.
    fn report_places(&self, places: HostPlaces);

    /// From now on these uids of this host are these persons.
    fn map_persons(&self, persons: HashMap<u32, String>);

    /// From now on what these hosts have signed counts, beside what this one has.
    fn count_hosts(&self, hosts: BTreeMap<String, CountedHost>);

    /// Gives the lease back: this daemon ends, and others take over at once.
    fn leave(&self);
}

/// Statements that belong together. They are run once.
pub(super) type BoardWork<'a> =
    &'a mut dyn FnMut(&mut dyn Statements) -> Result<(), TransactionError>;

/// The board's tables, and what their SQL needs of this host.
pub(super) trait BoardStorage: BoardMembership + Debug {
    /// Runs single statements.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`], [`StoreError::Board`]; what `work` refuses.
    fn run_statements(&self, work: BoardWork<'_>) -> Result<(), StoreError>;

    /// Runs statements as one transaction: what they changed is there whole once this has returned,
    /// or not at all.
    ///
    /// # Errors
    /// As [`BoardStorage::run_statements`].
    fn run_transaction(&self, work: BoardWork<'_>) -> Result<(), StoreError>;

    /// The reason for which the database fails, if it was reached before.
    fn fault(&self) -> Option<String>;

    /// The number that stands for a user on the board.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    fn person(&self, uid: u32) -> Result<i64, StoreError>;

    /// The number that stands for a group on the board.
    ///
    /// # Errors
    /// [`StoreError::Board`].
    fn group(&self, gid: u32) -> Result<i64, StoreError>;

    /// The name of an instance on the board.
    fn session_name(&self, session: &str) -> String;

    /// The SQL condition that this host's lease is in force. Its parameters are added to `values`.
    fn lease_condition(&self, values: &mut Vec<Value>) -> String;

    /// Signs a task that was just added, and returns it as it counts: the one that this host
    /// `meant` where a database of others `stored` it.
    ///
    /// # Errors
    /// The signature cannot be stored.
    fn sign_task(
        &self,
        statements: &mut dyn Statements,
        stored: Task,
        meant: Task,
    ) -> Result<Task, TransactionError>;

    /// Signs a task's state: the end of the list of columns that an UPDATE sets. Its parameters are
    /// added to `values`.
    fn sign_state(&self, task: &Task, result: Option<&str>, values: &mut Vec<Value>) -> String;

    /// Signs a schedule that was just added, of which `facts` is what is signed.
    ///
    /// # Errors
    /// The signature cannot be stored.
    fn sign_schedule(
        &self,
        statements: &mut dyn Statements,
        id: u64,
        facts: &serde_json::Value,
    ) -> Result<(), TransactionError>;
}
