//! Claims: who has a task, and what becomes of it. A claim has a number; whatever is done with a
//! task names the claim under which it is done, and one that is over does nothing.
//!
//! Each change is one statement that names the status and the claim that it found, so that it holds
//! where statements of others come between, as in PostgreSQL. What it says stays within what
//! PostgreSQL takes too.

use super::actor::Actor;
use super::database::Database;
use super::error::{StoreError, TaskRefusal, TransactionError};
use super::statements::Statements;
use super::step::{TaskStep, Tell};
use super::task::{COLUMNS, read};
use colibri_api::{Task, TaskStatus};
use rusqlite::types::Value;

/// The number of times that a task comes back to the queue before it fails.
pub(crate) const MAX_ATTEMPTS: u32 = 3;

/// The most foreign tasks that are passed over in search of one that can be claimed.
const MAX_PASSED: usize = 1_000;

/// The operation on a task.
#[derive(Debug, Clone, Copy)]
pub enum ClaimOrder<'a> {
    /// Take it; a person's claim lapses at this time.
    Claim(Option<u64>),
    /// Work on it begins, or goes on, under this claim; a person's then lapses at this time.
    Start(u64, Option<u64>),
    /// It is done under this claim, with this JSON.
    Finish(u64, &'a str),
    /// It cannot be done, says who has this claim.
    Fail(u64, &'a str),
    /// The holder of this claim gives it back.
    Release(u64, &'a str),
    /// A task that was taken in is to be done.
    Queue,
    /// It is not to be done any more.
    Cancel(&'a str),
}

/// The criteria for the next task.
#[derive(Debug, Clone, Copy)]
pub struct Seeks<'a> {
    /// Only tasks that need one of these, or nothing; `None`: any.
    pub capabilities: Option<&'a [String]>,
    /// The time at which the claim lapses; `None`: it lasts as long as the instance.
    pub lease_until: Option<u64>,
    /// Tasks too that are shared with the claimer, where none of their own can be had.
    pub shared: bool,
}

/// The condition that a task needs one of some capabilities, each as JSON, or nothing.
fn fits(capabilities: &[String], values: &mut Vec<Value>) -> String {
    let mut sql = "(required_capabilities = '[]'".to_owned();
    for capability in capabilities {
        values.push(
            serde_json::Value::from(capability.as_str())
                .to_string()
                .into(),
        );
        let needle = values.len();
        sql.push_str(&format!(
            " OR replace(required_capabilities, ?{needle}, '') <> required_capabilities"
        ));
    }
    sql.push(')');
    sql
}

impl Database {
    /// Claims the next of a person's own tasks, or else of those shared with them, if these are
    /// sought: the oldest of the highest priority. What is reserved for an instance comes first
    /// there, and an instance has one task at a time.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`], [`StoreError::Unrecorded`].
    pub fn claim_next(
        &self,
        who: Actor<'_>,
        seeks: Seeks<'_>,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Option<Task>, StoreError> {
        let mut values = vec![
            Value::from(self.storage.person(who.uid)?),
            who.session
                .map(|session| self.storage.session_name(session))
                .into(),
            now.cast_signed().into(),
            // The foreign tasks that are passed over.
            Value::Null,
        ];
        let free = "(for_session IS NULL OR lease_until <= ?3)";
        let fitting = seeks
            .capabilities
            .map(|capabilities| fits(capabilities, &mut values));
        let free = fitting.map_or(free.to_owned(), |fitting| format!("{free} AND {fitting}"));
        let own = "created_by = ?1";
        let shared = seeks
            .shared
            .then(|| who.shared_condition(self, &mut values))
            .transpose()?;
        let idle = match who.session {
            Some(_) => {
                "NOT EXISTS (SELECT 1 FROM tasks WHERE status IN ('claimed', 'started') AND claimed_session = ?2)"
            }
            // PostgreSQL must see each parameter.
            None => "CAST(?2 AS TEXT) IS NULL",
        };
        // Each alone is one walk of an index to its first row; an order over all of them would sort
        // the whole queue.
        let reserved = who.session.map(|_| match &shared {
            Some(shared) => format!("for_session = ?2 AND ({own} OR {shared})"),
            // The sum keeps SQLite from the index of all that the creator has waiting.
            None => "for_session = ?2 AND created_by + 0 = ?1".to_owned(),
        });
        let shared = shared.map(|shared| format!("{shared} AND {free}"));
        let choices: Vec<String> = [reserved, Some(format!("{own} AND {free}")), shared]
            .into_iter()
            .flatten()
            .collect();
        let has_lease = self.lease_condition(who.session.is_some(), &mut values);
        let sql = |locking: &str| {
            let first = |choice: &String| {
                format!(
                    "(SELECT id FROM tasks WHERE status = 'queued' AND {choice} AND replace(?4, ',' || id || ',', '') = ?4
                      ORDER BY priority DESC, id LIMIT 1{locking})"
                )
            };
            let choices: Vec<String> = choices.iter().map(first).collect();
            format!(
                "SELECT {COLUMNS} FROM tasks
                 WHERE {has_lease} AND {idle} AND status = 'queued' AND id = COALESCE({}, NULL){locking}",
                choices.join(", ")
            )
        };
        self.change_board(|statements| {
            let sql = sql(statements.for_update_skipping());
            let mut passed = ",".to_owned();
            for _ in 0..MAX_PASSED {
                values[3] = passed.clone().into();
                let Some(old) = statements.one(&sql, &values, read)? else {
                    return Ok(None);
                };
                if old.foreign.is_some() {
                    passed.push_str(&format!("{},", old.id));
                    continue;
                }
                let (mut new, _) =
                    ClaimOrder::Claim(seeks.lease_until).applied(TaskStep::Claim, &old, who, now);
                self.write(statements, &old, &mut new, None)?;
                tell(&new, Some(TaskStatus::Queued)).map_err(StoreError::Unrecorded)?;
                return Ok(Some(new));
            }
            tracing::warn!(
                "the first {MAX_PASSED} tasks that could be claimed are foreign: cancel them"
            );
            Ok(None)
        })
    }

    /// The task that an instance has, if it has one.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn held_by(&self, session: &str) -> Result<Option<Task>, StoreError> {
        let sql = format!(
            "SELECT {COLUMNS} FROM tasks WHERE status IN ('claimed', 'started') AND claimed_session = ?1 LIMIT 1"
        );
        let session = [self.storage.session_name(session).into()];
        let held = self.on_board(|statements| statements.one(&sql, &session, read))?;
        Ok(held.filter(|task| task.foreign.is_none()))
    }

    /// The tasks that somebody has claimed.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn claimed(&self) -> Result<Vec<Task>, StoreError> {
        let sql = format!("SELECT {COLUMNS} FROM tasks WHERE status IN ('claimed', 'started')");
        let mut claimed = self.on_board(|statements| statements.all(&sql, &[], read))?;
        claimed.retain(|task| task.foreign.is_none());
        Ok(claimed)
    }

    /// Carries out an order.
    ///
    /// # Errors
    /// [`StoreError::Task`] for what the order cannot be carried out on; [`StoreError::Sqlite`],
    /// [`StoreError::Unrecorded`].
    pub fn order(
        &self,
        id: u64,
        who: Actor<'_>,
        order: ClaimOrder<'_>,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Task, StoreError> {
        self.change_board(|statements| {
            let old = one(statements, id)?;
            if !who.sees(&old) {
                return Err(TaskRefusal::Missing(id).into());
            }
            let step = order.step(&old);
            if step != TaskStep::Cancel {
                check_signed(&old)?;
            }
            order.check(step, &old, who, now)?;
            let (mut new, result) = order.applied(step, &old, who, now);
            self.write(statements, &old, &mut new, result)?;
            tell(&new, Some(old.said.status)).map_err(StoreError::Unrecorded)?;
            Ok(new)
        })
    }

    /// Keeps a queued task that `who` created, or that is shared with them, for an instance; with a
    /// time, until then.
    ///
    /// # Errors
    /// [`StoreError::Task`] where it is not queued, kept for another, or another person's;
    /// [`StoreError::Sqlite`].
    pub fn reserve(
        &self,
        id: u64,
        (who, session): (Actor<'_>, &str),
        until: Option<u64>,
        now: u64,
    ) -> Result<Task, StoreError> {
        self.change_board(|statements| {
            let old = one(statements, id)?;
            if !who.sees(&old) {
                return Err(TaskRefusal::Missing(id).into());
            }
            // An operator sees tasks that are not shared with them.
            if old.said.created_by != who.uid && !who.shares(&old) {
                return Err(TaskRefusal::NotCreator(id).into());
            }
            if old.said.status != TaskStatus::Queued {
                return Err(status(&old, "reserving", &[TaskStatus::Queued]).into());
            }
            check_signed(&old)?;
            reserved(&old, Some(session), now)?;
            let mut new = Task {
                for_session: Some(session.to_owned()),
                lease_until: until,
                updated_at: now,
                ..old.clone()
            };
            self.write(statements, &old, &mut new, None)?;
            Ok(new)
        })
    }

    /// Writes when a person's claim lapses now, if it is still theirs.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn renew(&self, task: &Task) -> Result<(), StoreError> {
        let until = task.lease_until.map(u64::cast_signed);
        let sql = "UPDATE tasks SET lease_until = ?1
                   WHERE id = ?2 AND claim = ?3 AND status IN ('claimed', 'started') AND lease_until > 0";
        let values = [
            until.into(),
            task.id.cast_signed().into(),
            task.claim.cast_signed().into(),
        ];
        self.on_board(|statements| statements.execute(sql, &values).map(drop))
    }

    /// The instances that have a task, or for which one is kept.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn busy_sessions(&self, now: u64) -> Result<Vec<String>, StoreError> {
        let sql = "SELECT claimed_session FROM tasks
                   WHERE status IN ('claimed', 'started') AND claimed_session IS NOT NULL
                   UNION SELECT for_session FROM tasks WHERE status = 'queued' AND for_session IS NOT NULL
                       AND (lease_until IS NULL OR lease_until > ?1)";
        let now = [now.cast_signed().into()];
        let busy = self.on_board(|statements| statements.all(sql, &now, |row| row.session(0)))?;
        Ok(busy.into_iter().flatten().collect())
    }

    /// Those of this host's users who created tasks that nobody has or is to have.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn waiting_creators(&self, now: u64) -> Result<Vec<u32>, StoreError> {
        let now = [now.cast_signed().into()];
        let mut creators = self.on_board(|statements| {
            // From one creator to the next, by an index: there may be 100,000 tasks, and a handful
            // of them.
            let tasks = statements.waiting_tasks();
            let sql = format!(
                "WITH RECURSIVE creators (person) AS (
                 SELECT min(created_by) FROM {tasks} WHERE status = 'queued'
                 UNION ALL SELECT (SELECT min(created_by) FROM {tasks}
                     WHERE status = 'queued' AND created_by > person) FROM creators WHERE person IS NOT NULL)
             SELECT person FROM creators WHERE person IS NOT NULL AND EXISTS (SELECT 1 FROM {tasks}
                 WHERE status = 'queued' AND created_by = person AND (for_session IS NULL OR lease_until <= ?1))"
            );
            statements.all(&sql, &now, |row| row.user(0))
        })?;
        creators.retain(|uid| !self.storage.is_foreign(*uid));
        Ok(creators)
    }

    /// The next task of this person that nobody has or is to have, for which one of these
    /// capabilities is some use; `after` this priority and number.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn next_waiting(
        &self,
        person: u32,
        capabilities: &[String],
        after: Option<(u8, u64)>,
        now: u64,
    ) -> Result<Option<Task>, StoreError> {
        let (priority, id) = after.map_or((i64::MAX, 0), |(priority, id)| {
            (priority.into(), id.cast_signed())
        });
        let mut values: Vec<Value> = vec![
            self.storage.person(person)?.into(),
            now.cast_signed().into(),
            priority.into(),
            id.into(),
        ];
        let fitting = fits(capabilities, &mut values);
        let sql = format!(
            "SELECT {COLUMNS} FROM tasks
             WHERE status = 'queued' AND created_by = ?1 AND (for_session IS NULL OR lease_until <= ?2)
                 AND (priority < ?3 OR (priority = ?3 AND id > ?4)) AND {fitting}
             ORDER BY priority DESC, id LIMIT 1"
        );
        self.on_board(|statements| statements.one(&sql, &values, read))
    }
}

impl ClaimOrder<'_> {
    fn step(&self, task: &Task) -> TaskStep {
        match self {
            ClaimOrder::Claim(_) => TaskStep::Claim,
            ClaimOrder::Start(..) => TaskStep::Start,
            ClaimOrder::Finish(..) => TaskStep::Finish,
            ClaimOrder::Fail(..) => TaskStep::Fail,
            ClaimOrder::Release(..) if task.attempts + 1 >= MAX_ATTEMPTS => TaskStep::GiveUp,
            ClaimOrder::Release(..) => TaskStep::Requeue,
            ClaimOrder::Queue => TaskStep::Queue,
            ClaimOrder::Cancel(_) => TaskStep::Cancel,
        }
    }

    fn check(
        &self,
        step: TaskStep,
        task: &Task,
        who: Actor<'_>,
        now: u64,
    ) -> Result<(), TaskRefusal> {
        let id = task.id;
        match *self {
            ClaimOrder::Start(claim, _)
            | ClaimOrder::Finish(claim, _)
            | ClaimOrder::Fail(claim, _)
            | ClaimOrder::Release(claim, _) => {
                if claim != task.claim {
                    let current = task.claim;
                    let given = claim;
                    return Err(TaskRefusal::OldClaim { id, given, current });
                }
                let held = [TaskStatus::Claimed, TaskStatus::Started];
                if !held.contains(&task.said.status) {
                    return Err(status(task, step.name(), &held));
                }
                if task.claimed_by != Some(who.uid)
                    || task.claimed_session.as_deref() != who.session
                {
                    let holder = match (&task.claimed_session, task.claimed_by) {
                        (Some(session), _) => format!("the agent's instance {session}"),
                        (None, Some(uid)) => format!("uid {uid}"),
                        (None, None) => "nobody".to_owned(),
                    };
                    return Err(TaskRefusal::NotYours { id, holder });
                }
            }
            ClaimOrder::Claim(_) => reserved(task, who.session, now)?,
            ClaimOrder::Queue | ClaimOrder::Cancel(_)
                if task.said.created_by != who.uid && !who.operator =>
            {
                return Err(TaskRefusal::NotCreator(id));
            }
            ClaimOrder::Queue | ClaimOrder::Cancel(_) => {}
        }
        if step.from().contains(&task.said.status) {
            return Ok(());
        }
        Err(status(task, step.name(), step.from()))
    }

    /// The task after it, and the result that it is given.
    fn applied(
        &self,
        step: TaskStep,
        old: &Task,
        who: Actor<'_>,
        now: u64,
    ) -> (Task, Option<&str>) {
        let mut new = old.clone();
        new.said.status = step.to();
        new.updated_at = now;
        new.for_session = None;
        new.lease_until = None;
        if step.to().has_ended() {
            new.ended_at = Some(now);
        }
        match *self {
            ClaimOrder::Claim(until) => {
                new.claim += 1;
                new.claimed_by = Some(who.uid);
                new.claimed_person = None;
                new.claimed_session = who.session.map(str::to_owned);
                new.lease_until = until;
            }
            ClaimOrder::Start(_, until) => {
                new.started_at = old.started_at.or(Some(now));
                new.lease_until = until;
            }
            ClaimOrder::Finish(_, result) => {
                new.reason = None;
                return (new, Some(result));
            }
            ClaimOrder::Fail(_, why) | ClaimOrder::Cancel(why) => {
                new.reason = Some(why.to_owned()).filter(|why| !why.is_empty())
            }
            ClaimOrder::Release(_, why) => return (back(old, why, now), None),
            ClaimOrder::Queue => {}
        }
        (new, None)
    }
}

/// A task that came back to the queue, or failed because it came back too often.
pub(super) fn back(old: &Task, why: &str, now: u64) -> Task {
    let mut new = old.clone();
    new.attempts += 1;
    new.updated_at = now;
    new.claimed_by = None;
    new.claimed_person = None;
    new.claimed_session = None;
    new.lease_until = None;
    new.for_session = None;
    new.started_at = None;
    if new.attempts >= MAX_ATTEMPTS {
        new.said.status = TaskStep::GiveUp.to();
        new.ended_at = Some(now);
        new.reason = Some(format!(
            "came back to the queue {MAX_ATTEMPTS} times, at last because {why}"
        ));
    } else {
        new.said.status = TaskStep::Requeue.to();
        new.reason = Some(why.to_owned());
    }
    new
}

fn reserved(task: &Task, session: Option<&str>, now: u64) -> Result<(), TaskRefusal> {
    let over = task.lease_until.is_some_and(|until| until <= now);
    match &task.for_session {
        Some(kept) if Some(kept.as_str()) != session && !over => Err(TaskRefusal::Reserved {
            id: task.id,
            session: kept.clone(),
        }),
        _ => Ok(()),
    }
}

/// Refuses a foreign task.
fn check_signed(task: &Task) -> Result<(), TaskRefusal> {
    match &task.foreign {
        Some(why) => Err(TaskRefusal::Foreign {
            id: task.id,
            why: why.clone(),
        }),
        None => Ok(()),
    }
}

fn status(task: &Task, step: &'static str, wanted: &[TaskStatus]) -> TaskRefusal {
    let wanted: Vec<_> = wanted.iter().map(|status| status.name()).collect();
    TaskRefusal::Status {
        id: task.id,
        status: task.said.status.name(),
        step,
        wanted: wanted.join(" or "),
    }
}

fn one(statements: &mut dyn Statements, id: u64) -> Result<Task, TransactionError> {
    let sql = format!(
        "SELECT {COLUMNS} FROM tasks WHERE id = ?1{}",
        statements.for_update()
    );
    let found = match i64::try_from(id) {
        Ok(id) => statements.one(&sql, &[id.into()], read)?,
        Err(_) => None,
    };
    found.ok_or_else(|| TaskRefusal::Missing(id).into())
}

impl Database {
    /// Writes what has changed of a task, if it still is where it was found, and, where an instance
    /// of this host has it, if this host's lease is in force.
    pub(super) fn write(
        &self,
        statements: &mut dyn Statements,
        old: &Task,
        new: &mut Task,
        result: Option<&str>,
    ) -> Result<(), TransactionError> {
        if new.claimed_person.is_none() {
            let claimer = new.claimed_by;
            new.claimed_person = claimer.and_then(|uid| self.storage.person_name(uid));
        }
        let time = |time: Option<u64>| Value::from(time.map(u64::cast_signed));
        let session = |session: &Option<String>| {
            Value::from(session.as_ref().map(|name| self.storage.session_name(name)))
        };
        let mut values = vec![
            Value::from(new.said.status.name().to_owned()),
            new.claim.cast_signed().into(),
            new.claimed_by
                .map(|uid| self.storage.person(uid))
                .transpose()?
                .into(),
            session(&new.claimed_session),
            time(new.lease_until),
            session(&new.for_session),
            i64::from(new.attempts).into(),
            new.reason.clone().into(),
            result.map(str::to_owned).into(),
            time(new.started_at),
            time(new.ended_at),
            new.updated_at.cast_signed().into(),
            new.id.cast_signed().into(),
            old.said.status.name().to_owned().into(),
            old.claim.cast_signed().into(),
        ];
        let has_lease = self.lease_condition(new.claimed_session.is_some(), &mut values);
        let signed = self.storage.sign_state(new, result, &mut values);
        let sql = format!(
            "UPDATE tasks SET status = ?1, claim = ?2, claimed_by = ?3, claimed_session = ?4, lease_until = ?5,
                 for_session = ?6, attempts = ?7, reason = ?8, result = COALESCE(result, ?9), started_at = ?10,
                 ended_at = ?11, updated_at = ?12{signed}
             WHERE id = ?13 AND status = ?14 AND claim = ?15 AND {has_lease}"
        );
        if new.said.status == TaskStatus::Queued || new.said.status.has_ended() {
            statements.wake_others();
        }
        match statements.execute(&sql, &values)? {
            1 => Ok(()),
            _ => Err(TaskRefusal::Raced(new.id).into()),
        }
    }

    /// The condition that this host may do something for its instances.
    fn lease_condition(&self, is_needed: bool, values: &mut Vec<Value>) -> String {
        if is_needed {
            self.storage.lease_condition(values)
        } else {
            "TRUE".to_owned()
        }
    }
}

#[cfg(test)]
mod tests;
