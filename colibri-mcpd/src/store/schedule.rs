//! Schedules: what is to be done at which times.

use colibri_api::{NewTask, Schedule, Task};
use rusqlite::{OptionalExtension, Row};

use super::database::{Database, unexpected};
use super::error::{StoreError, TaskRefusal, room};
use super::quota::place_for_schedule;
use super::step::Tell;
use super::task::insert;

const COLUMNS: &str = "id, timing, work, created_by, created_at, next_at, last_at, last_task, last_outcome, runs";

impl Database {
    /// Adds a schedule: all that is said of it but its number and its runs.
    ///
    /// # Errors
    /// [`StoreError::Schedules`] where there are too many; [`StoreError::Sqlite`].
    pub(crate) fn add_schedule(&self, new: &Schedule) -> Result<Schedule, StoreError> {
        let [timing, work] = [serde_json::to_string(&new.timing), serde_json::to_string(&new.work)]
            .map(|json| json.map_err(|error| StoreError::Unrecorded(error.to_string())));
        let (timing, work) = (timing?, work?);
        room(self.path(), work.len())?;
        self.transact(|transaction| {
            place_for_schedule(transaction, new.created_by)?;
            let sql = format!(
                "INSERT INTO schedules (timing, work, created_by, created_at, next_at) VALUES (?1, ?2, ?3, ?4, ?5)
                 RETURNING {COLUMNS}"
            );
            let next = new.next_at.map(u64::cast_signed);
            let values = (&timing, &work, new.created_by, new.created_at.cast_signed(), next);
            Ok(transaction.prepare_cached(&sql)?.query_row(values, read)?)
        })
    }

    /// The schedules, of one person or of all, and only those that are due by a time.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub(crate) fn schedules(&self, of: Option<u32>, due: Option<u64>) -> Result<Vec<Schedule>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM schedules
             WHERE created_by BETWEEN ?1 AND ?2 AND (next_at <= ?3 OR ?4 = 0) ORDER BY id"
        );
        let (first, last) = of.map_or((0, u32::MAX), |uid| (uid, uid));
        let until = due.unwrap_or_default().cast_signed();
        self.with(|connection| {
            let mut select = connection.prepare_cached(&sql)?;
            select
                .query_map((first, last, until, i64::from(due.is_some())), read)?
                .collect()
        })
    }

    /// The time of the next due schedule.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub(crate) fn next_due(&self) -> Result<Option<u64>, StoreError> {
        self.with(|connection| {
            let mut select = connection.prepare_cached("SELECT min(next_at) FROM schedules")?;
            let next: Option<i64> = select.query_row([], |row| row.get(0))?;
            Ok(next.map(i64::unsigned_abs))
        })
    }

    /// Deletes a schedule: its creator's, or for an operator.
    ///
    /// # Errors
    /// [`StoreError::Task`] where there is none of theirs; [`StoreError::Sqlite`].
    pub(crate) fn delete_schedule(&self, id: u64, uid: u32, operator: bool) -> Result<Schedule, StoreError> {
        let sql = format!("DELETE FROM schedules WHERE id = ?1 AND (created_by = ?2 OR ?3 = 1) RETURNING {COLUMNS}");
        let deleted = self.with(|connection| {
            let mut delete = connection.prepare_cached(&sql)?;
            delete
                .query_row((id.cast_signed(), uid, i64::from(operator)), read)
                .optional()
        })?;
        deleted.ok_or_else(|| TaskRefusal::NoSchedule(id).into())
    }

    /// Notes a run, and when the next is due; with a task, adds that as a part of it. `None`: somebody else has noted
    /// this run already.
    ///
    /// # Errors
    /// [`StoreError::OpenTasks`], [`StoreError::Full`], [`StoreError::Sqlite`], [`StoreError::Unrecorded`]; the run then is still due.
    pub(crate) fn run_schedule(
        &self,
        schedule: &Schedule,
        next_at: Option<u64>,
        (outcome, task): (&str, Option<NewTask>),
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Option<Option<Task>>, StoreError> {
        self.transact(|transaction| {
            let added = task
                .map(|task| insert(transaction, self.path(), task, None, now, tell))
                .transpose()?;
            let changed = transaction
                .prepare_cached(
                    "UPDATE schedules SET next_at = ?1, last_at = ?2, last_outcome = ?3, runs = runs + 1,
                         last_task = COALESCE(?4, last_task)
                     WHERE id = ?5 AND next_at = ?6",
                )?
                .execute((
                    next_at.map(u64::cast_signed),
                    now.cast_signed(),
                    outcome,
                    added.as_ref().map(|task| task.id.cast_signed()),
                    schedule.id.cast_signed(),
                    schedule.next_at.map(u64::cast_signed),
                ))?;
            match changed {
                1 => Ok(Some(added)),
                _ if added.is_some() => Err(TaskRefusal::NoSchedule(schedule.id).into()),
                _ => Ok(None),
            }
        })
    }

    /// Notes how a run ended.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub(crate) fn note_outcome(&self, id: u64, outcome: &str) -> Result<(), StoreError> {
        self.with(|connection| {
            let mut update = connection.prepare_cached("UPDATE schedules SET last_outcome = ?1 WHERE id = ?2")?;
            update.execute((outcome, id.cast_signed())).map(drop)
        })
    }
}

fn read(row: &Row<'_>) -> rusqlite::Result<Schedule> {
    let number = |column| row.get::<_, i64>(column).map(i64::unsigned_abs);
    let some = |column| {
        row.get::<_, Option<i64>>(column)
            .map(|some| some.map(i64::unsigned_abs))
    };
    let (timing, work): (String, String) = (row.get(1)?, row.get(2)?);
    Ok(Schedule {
        id: number(0)?,
        timing: serde_json::from_str(&timing).map_err(|error| unexpected(1, error.to_string()))?,
        work: serde_json::from_str(&work).map_err(|error| unexpected(2, error.to_string()))?,
        created_by: row.get(3)?,
        created_at: number(4)?,
        next_at: some(5)?,
        last_at: some(6)?,
        last_task: some(7)?,
        last_outcome: row.get(8)?,
        runs: number(9)?,
    })
}
