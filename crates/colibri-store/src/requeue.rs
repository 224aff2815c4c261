//! Claims that end without their holder: what lapsed, what instances and hosts had that are gone,
//! what was kept for them.

use super::claims::back;
use super::database::Database;
use super::error::StoreError;
use super::step::Tell;
use super::task::{COLUMNS, read};
use colibri_api::Task;
use rusqlite::types::Value;

impl Database {
    /// Takes back the claims whose time is over.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub fn requeue_lapsed(&self, now: u64, tell: Tell<'_>) -> Result<Vec<Task>, StoreError> {
        let why = "its claim lapsed: nobody renewed it";
        let condition = "status IN ('claimed', 'started') AND lease_until <= ?1";
        let mut requeued = Vec::new();
        if self.storage.is_shared() {
            // As the raise of the board's epoch leaves it.
            let condition = "status IN ('claimed', 'started') AND lease_until = 0";
            requeued = self.requeue_all(condition, None, "the board was restored", now, tell)?;
        }
        requeued.extend(self.requeue_all(
            condition,
            Some(now.cast_signed().into()),
            why,
            now,
            tell,
        )?);
        Ok(requeued)
    }

    /// Takes back, where many hosts share the board, what instances had whose host lost its lease.
    ///
    /// # Errors
    /// [`StoreError::Board`], [`StoreError::Unrecorded`].
    pub fn requeue_of_lost_hosts(&self, now: u64, tell: Tell<'_>) -> Result<Vec<Task>, StoreError> {
        if !self.storage.is_shared() {
            return Ok(Vec::new());
        }
        let condition = "((status IN ('claimed', 'started') AND claimed_session IS NOT NULL)
            OR (status = 'queued' AND for_session IS NOT NULL)) AND NOT EXISTS (SELECT 1 FROM hosts
                WHERE name = split_part(COALESCE(for_session, claimed_session), ':', 1) AND lease_until > now_ms())";
        self.requeue_all(
            condition,
            None,
            "the host that had it lost its lease",
            now,
            tell,
        )
    }

    /// Takes back what an instance had, or was to have.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub fn requeue_of(
        &self,
        session: &str,
        why: &str,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Vec<Task>, StoreError> {
        let condition = "((status IN ('claimed', 'started') AND claimed_session = ?1)
            OR (status = 'queued' AND for_session = ?1))";
        self.requeue_all(
            condition,
            Some(self.storage.session_name(session).into()),
            why,
            now,
            tell,
        )
    }

    /// Keeps nothing for an instance any more.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn free_of(&self, session: &str, now: u64) -> Result<(), StoreError> {
        self.free_all(
            "for_session = ?1",
            self.storage.session_name(session).into(),
            now,
        )
    }

    fn free_all(&self, condition: &str, value: Value, now: u64) -> Result<(), StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE status = 'queued' AND {condition}");
        self.change_board(|statements| {
            let sql = format!("{sql}{}", statements.for_update_skipping());
            let found = statements.all(&sql, &[value], read)?;
            for old in found.into_iter().filter(|old| old.foreign.is_none()) {
                let mut new = Task {
                    for_session: None,
                    lease_until: None,
                    updated_at: now,
                    ..old.clone()
                };
                self.write(statements, &old, &mut new, None)?;
            }
            Ok(())
        })
    }

    /// Takes back what this host's instances had: none of them is there any more. What was only
    /// kept for one is free again.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub fn requeue_all_instances(
        &self,
        why: &str,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Vec<Task>, StoreError> {
        // An instance's session has no sign of LIKE in it, nor has a host's name.
        let own: Value = self.storage.session_name("%").into();
        self.free_all("for_session LIKE ?1", own.clone(), now)?;
        let condition = "status IN ('claimed', 'started') AND claimed_session LIKE ?1";
        self.requeue_all(condition, Some(own), why, now, tell)
    }

    fn requeue_all(
        &self,
        condition: &str,
        value: Option<Value>,
        why: &str,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Vec<Task>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE {condition} ORDER BY id");
        let values: Vec<Value> = value.into_iter().collect();
        self.change_board(|statements| {
            let found = statements.all(
                &format!("{sql}{}", statements.for_update_skipping()),
                &values,
                read,
            )?;
            let mut requeued = Vec::with_capacity(found.len());
            for old in found.into_iter().filter(|old| old.foreign.is_none()) {
                let mut new = back(&old, why, now);
                self.write(statements, &old, &mut new, None)?;
                tell(&new, Some(old.said.status)).map_err(StoreError::Unrecorded)?;
                requeued.push(new);
            }
            Ok(requeued)
        })
    }
}
