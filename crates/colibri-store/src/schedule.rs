//! Schedules: what is to be done at which times.

use colibri_api::{NewTask, Schedule, Task, TaskShare};
use serde_json::{Value, json};

use super::database::Database;
use super::error::{StoreError, TaskRefusal, room, unexpected};
use super::quota::place_for_schedule;
use super::statements::BoardRow;
use super::step::Tell;

const COLUMNS: &str = "id, timing, work, created_by, created_at, next_at, last_at, last_task, last_outcome, runs\
    /*seal of schedule*/";

impl Database {
    /// Adds a schedule: all that is said of it but its number and its runs.
    ///
    /// # Errors
    /// [`StoreError::Schedules`] where there are too many; [`StoreError::Sqlite`].
    pub fn add_schedule(&self, new: &Schedule) -> Result<Schedule, StoreError> {
        let [timing, work] = [
            serde_json::to_string(&new.timing),
            serde_json::to_string(&new.work),
        ]
        .map(|json| json.map_err(|error| StoreError::Unrecorded(error.to_string())));
        let (timing, work) = (timing?, work?);
        room(self.path(), work.len())?;
        let person = self.storage.person(new.created_by)?;
        self.change_board(|statements| {
            place_for_schedule(statements, person)?;
            let sql = format!(
                "INSERT INTO schedules (timing, work, created_by, created_at, next_at) VALUES (?1, ?2, ?3, ?4, ?5)
                 RETURNING {COLUMNS}"
            );
            let next = new.next_at.map(u64::cast_signed);
            let created_at = new.created_at.cast_signed();
            let values = [
                timing.clone().into(),
                work.clone().into(),
                person.into(),
                created_at.into(),
                next.into(),
            ];
            statements.wake_others();
            let mut added = statements.one(&sql, &values, read)?.ok_or(StoreError::Schedules)?;
            let creator = self.storage.person_name(new.created_by);
            let facts = facts(added.id, [&timing, &work], creator.as_deref(), new.created_at);
            self.storage.sign_schedule(statements, added.id, &facts)?;
            added.foreign = None;
            Ok(added)
        })
    }

    /// The schedules, of one person or of all, and only those that are due by a time.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn schedules(
        &self,
        of: Option<u32>,
        due: Option<u64>,
    ) -> Result<Vec<Schedule>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM schedules
             WHERE created_by BETWEEN ?1 AND ?2 AND (next_at <= ?3 OR ?4 = 0) ORDER BY id"
        );
        let of = of.map(|uid| self.storage.person(uid)).transpose()?;
        let (first, last) = of.map_or((0, u32::MAX.into()), |person| (person, person));
        let until = due.unwrap_or_default().cast_signed();
        let values = [
            first.into(),
            last.into(),
            until.into(),
            i64::from(due.is_some()).into(),
        ];
        self.on_board(|statements| statements.all(&sql, &values, read))
    }

    /// The time of the next schedule that is due after a time.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn next_due(&self, after: u64) -> Result<Option<u64>, StoreError> {
        let (sql, after) = (
            "SELECT min(next_at) FROM schedules WHERE next_at > ?1",
            [after.cast_signed().into()],
        );
        let next = self
            .on_board(|statements| statements.one(sql, &after, |row| row.get::<Option<i64>>(0)))?;
        Ok(next.flatten().map(i64::unsigned_abs))
    }

    /// Deletes a schedule: its creator's, or for an operator.
    ///
    /// # Errors
    /// [`StoreError::Task`] where there is none of theirs; [`StoreError::Sqlite`].
    pub fn delete_schedule(
        &self,
        id: u64,
        uid: u32,
        operator: bool,
    ) -> Result<Schedule, StoreError> {
        let sql = format!(
            "DELETE FROM schedules WHERE id = ?1 AND (created_by = ?2 OR ?3 = 1) RETURNING {COLUMNS}"
        );
        let values = [
            id.cast_signed(),
            self.storage.person(uid)?,
            i64::from(operator),
        ]
        .map(Into::into);
        let deleted = self.on_board(|statements| statements.one(&sql, &values, read))?;
        deleted.ok_or_else(|| TaskRefusal::NoSchedule(id).into())
    }

    /// Notes a run, and when the next is due; with a task, adds that as a part of it. `None`:
    /// somebody else has noted this run already.
    ///
    /// # Errors
    /// [`StoreError::OpenTasks`], [`StoreError::Full`], [`StoreError::Sqlite`],
    /// [`StoreError::Unrecorded`]; the run then is still due.
    pub fn run_schedule(
        &self,
        schedule: &Schedule,
        next_at: Option<u64>,
        (outcome, task): (&str, Option<NewTask>),
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Option<Option<Task>>, StoreError> {
        self.change_board(|statements| {
            let added = task
                .map(|task| self.insert(statements, task, None, now, tell))
                .transpose()?;
            let changed = statements.execute(
                "UPDATE schedules SET next_at = ?1, last_at = ?2, last_outcome = ?3, runs = runs + 1,
                     last_task = COALESCE(?4, last_task)
                 WHERE id = ?5 AND next_at = ?6",
                &[
                    next_at.map(u64::cast_signed).into(),
                    now.cast_signed().into(),
                    outcome.to_owned().into(),
                    added.as_ref().map(|task| task.id.cast_signed()).into(),
                    schedule.id.cast_signed().into(),
                    schedule.next_at.map(u64::cast_signed).into(),
                ],
            )?;
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
    pub fn note_outcome(&self, id: u64, outcome: &str) -> Result<(), StoreError> {
        let values = [outcome.to_owned().into(), id.cast_signed().into()];
        let sql = "UPDATE schedules SET last_outcome = ?1 WHERE id = ?2";
        self.on_board(|statements| statements.execute(sql, &values).map(drop))
    }
}

/// The facts of a schedule that its host signs on a board of many hosts.
fn facts(id: u64, [timing, work]: [&str; 2], creator: Option<&str>, created_at: u64) -> Value {
    json!([id, timing, work, creator, created_at])
}

fn read(row: &BoardRow<'_>) -> rusqlite::Result<Schedule> {
    let number = |column| row.get::<i64>(column).map(i64::unsigned_abs);
    let some = |column| {
        row.get::<Option<i64>>(column)
            .map(|some| some.map(i64::unsigned_abs))
    };
    let (timing, work): (String, String) = (row.get(1)?, row.get(2)?);
    let mut schedule = Schedule {
        id: number(0)?,
        timing: serde_json::from_str(&timing).map_err(|error| unexpected(1, error.to_string()))?,
        work: serde_json::from_str(&work).map_err(|error| unexpected(2, error.to_string()))?,
        created_by: row.user(3)?,
        foreign: None,
        created_at: number(4)?,
        next_at: some(5)?,
        last_at: some(6)?,
        last_task: some(7)?,
        last_outcome: row.get(8)?,
        runs: number(9)?,
    };
    if let Some(shared) = &row.shared {
        // The work has the numbers of an account and a group of the host that wrote it.
        let host = format!("{}:", shared.host().unwrap_or_default());
        if let Some(task) = &mut schedule.work.task {
            task.created_by = schedule.created_by;
            let is_own = shared.names().local_session(&host).is_empty();
            task.share = task
                .share
                .filter(|share| is_own || *share == TaskShare::All);
        }
        let creator = row.person(3)?;
        let facts = facts(
            schedule.id,
            [&timing, &work],
            creator.as_deref(),
            schedule.created_at,
        );
        schedule.foreign = shared.foreign_schedule(&facts, creator.as_deref());
    }
    Ok(schedule)
}
