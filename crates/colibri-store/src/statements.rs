//! Statements on the board's tables, whichever database holds them.
//!
//! The board's SQL stays within what SQLite and PostgreSQL both take, with parameters `?1`, `?2`…
//! Its values are numbers, texts and NULL. What the two cannot have alike is here: locks of rows,
//! and numbers of people and instances, which are one host's own.

use rusqlite::types::{FromSql, Value};
use rusqlite::{Connection, params_from_iter};

use super::error::{TransactionError, unexpected};
use colibri_api::Task;

/// The statements of one transaction.
pub(super) trait Statements {
    /// Runs a statement that returns rows.
    fn query(&mut self, sql: &str, values: &[Value])
    -> Result<Vec<BoardRow<'_>>, TransactionError>;

    /// Runs a statement, and returns the number of rows that it changed.
    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, TransactionError>;

    /// True if other hosts change the same tables.
    fn is_shared(&self) -> bool;

    /// Other hosts are told of the change once it is there.
    fn wake_others(&mut self) {}
}

impl dyn Statements + '_ {
    /// Runs a statement that returns one row, or none.
    pub(super) fn one<T>(
        &mut self,
        sql: &str,
        values: &[Value],
        read: impl FnOnce(&BoardRow<'_>) -> rusqlite::Result<T>,
    ) -> Result<Option<T>, TransactionError> {
        let rows = self.query(sql, values)?;
        Ok(rows.first().map(read).transpose()?)
    }

    /// Runs a statement that returns rows, and reads each.
    pub(super) fn all<T>(
        &mut self,
        sql: &str,
        values: &[Value],
        read: impl FnMut(&BoardRow<'_>) -> rusqlite::Result<T>,
    ) -> Result<Vec<T>, TransactionError> {
        let rows = self.query(sql, values)?;
        Ok(rows.iter().map(read).collect::<rusqlite::Result<_>>()?)
    }

    /// The end of a SELECT whose row is to be changed: in SQLite there is one writer at a time.
    pub(super) fn for_update(&self) -> &'static str {
        if self.is_shared() { " FOR UPDATE" } else { "" }
    }

    /// The same, passing over rows that others have locked.
    pub(super) fn for_update_skipping(&self) -> &'static str {
        if self.is_shared() {
            " FOR UPDATE SKIP LOCKED"
        } else {
            ""
        }
    }

    /// The table of tasks, to be read by the index of the waiting ones: SQLite would take that of
    /// the status instead.
    pub(super) fn waiting_tasks(&self) -> &'static str {
        if self.is_shared() {
            "tasks"
        } else {
            "tasks INDEXED BY tasks_waiting"
        }
    }
}

/// The numbers and names of a board of many hosts, as one of them has them.
pub(super) trait HostNames {
    /// The uid of a person; of one who has no account here a number that no account has.
    fn user(&self, number: i64) -> u32;

    /// The gid of a group, likewise.
    fn group(&self, number: i64) -> u32;

    /// The name of a number, if the board has one.
    fn name(&self, number: i64) -> Option<String>;

    /// An instance: one of another host keeps that one's name.
    fn local_session<'a>(&self, session: &'a str) -> &'a str;
}

/// A row of a board of many hosts, with its signatures.
pub(super) trait SharedRow {
    /// The numbers and names as this host has them.
    fn names(&self) -> &dyn HostNames;

    /// The host that wrote the row.
    fn host(&self) -> Option<&str>;

    /// The reason for which the row's task is foreign: no host that counts here has signed it as it
    /// stands on the board.
    fn foreign_task(&self, task: &Task) -> Option<String>;

    /// The same of a schedule, of which `facts` is what is signed.
    fn foreign_schedule(&self, facts: &serde_json::Value, creator: Option<&str>) -> Option<String>;

    /// True if this is the result of which the row's task has the digest.
    fn is_signed_result(&self, result: &str) -> bool;
}

/// A row.
pub(super) struct BoardRow<'a> {
    pub(super) values: Vec<Value>,
    /// Where many hosts share the board.
    pub(super) shared: Option<Box<dyn SharedRow + 'a>>,
}

impl BoardRow<'_> {
    /// The numbers and names, where many hosts share the board.
    fn names(&self) -> Option<&dyn HostNames> {
        self.shared.as_ref().map(|shared| shared.names())
    }

    /// The value of a column.
    ///
    /// # Errors
    /// It is of another type.
    pub(super) fn get<T: FromSql>(&self, column: usize) -> rusqlite::Result<T> {
        let value = self.values.get(column).unwrap_or(&Value::Null);
        T::column_result(value.into()).map_err(|error| unexpected(column, error.to_string()))
    }

    /// The user of a column that has a person.
    ///
    /// # Errors
    /// It has none.
    pub(super) fn user(&self, column: usize) -> rusqlite::Result<u32> {
        let user = self.optional_user(column)?;
        user.ok_or_else(|| unexpected(column, "there is no person".to_owned()))
    }

    /// The same of one that may be NULL.
    ///
    /// # Errors
    /// It is of another type.
    pub(super) fn optional_user(&self, column: usize) -> rusqlite::Result<Option<u32>> {
        match (self.get::<Option<i64>>(column)?, self.names()) {
            (Some(person), Some(names)) => Ok(Some(names.user(person))),
            (Some(_), None) | (None, _) => self.get(column),
        }
    }

    /// The name of the person of a column, where many hosts share the board.
    ///
    /// # Errors
    /// It is of another type.
    pub(super) fn person(&self, column: usize) -> rusqlite::Result<Option<String>> {
        let person = self.get::<Option<i64>>(column)?;
        Ok(self
            .names()
            .zip(person)
            .and_then(|(names, person)| names.name(person)))
    }

    /// The group, or all, with whom something is shared.
    ///
    /// # Errors
    /// It is of another type.
    pub(super) fn share(&self, column: usize) -> rusqlite::Result<Option<i64>> {
        let share = self.get::<Option<i64>>(column)?;
        Ok(share.map(|share| match self.names() {
            Some(names) if share >= 0 => names.group(share).into(),
            _ => share,
        }))
    }

    /// The instance of a column: on this host by its session alone.
    ///
    /// # Errors
    /// It is of another type.
    pub(super) fn session(&self, column: usize) -> rusqlite::Result<Option<String>> {
        let session = self.get::<Option<String>>(column)?;
        Ok(session.map(|session| match self.names() {
            Some(names) => names.local_session(&session).to_owned(),
            None => session,
        }))
    }
}

/// The statements of SQLite.
pub(super) struct SqliteStatements<'a>(pub(super) &'a Connection);

impl Statements for SqliteStatements<'_> {
    fn query(
        &mut self,
        sql: &str,
        values: &[Value],
    ) -> Result<Vec<BoardRow<'_>>, TransactionError> {
        let mut statement = self.0.prepare_cached(sql)?;
        let columns = statement.column_count();
        let mut rows = statement.query(params_from_iter(values))?;
        let mut found = Vec::new();
        while let Some(row) = rows.next()? {
            let values = (0..columns).map(|column| row.get(column));
            let values = values.collect::<rusqlite::Result<_>>()?;
            found.push(BoardRow {
                values,
                shared: None,
            });
        }
        Ok(found)
    }

    fn execute(&mut self, sql: &str, values: &[Value]) -> Result<u64, TransactionError> {
        let mut statement = self.0.prepare_cached(sql)?;
        Ok(statement.execute(params_from_iter(values))? as u64)
    }

    fn is_shared(&self) -> bool {
        false
    }
}
