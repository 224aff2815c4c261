//! The most tasks and schedules of one user, so that nobody fills the board for others. Once half
//! of all places are taken one user may have a tenth of what they may have before.

use rusqlite::types::Value;

use super::error::{MAX_TASKS, StoreError, TransactionError};
use super::statements::Statements;

/// The most open tasks of one user.
const MAX_OPEN: i64 = 2_000;
/// The most tasks of one user that are kept, ended ones included.
const MAX_KEPT: i64 = 5_000;
/// The most schedules in the store, and of one user.
const MAX_SCHEDULES: i64 = 10_000;
const MAX_SCHEDULES_OF_ONE: i64 = 100;

/// Of these statuses are tasks that have not ended, and those that have.
const OPEN: &str = "status IN ('intake', 'queued', 'claimed', 'started')";
const ENDED: &str = "status IN ('done', 'failed', 'cancelled')";

fn count(
    statements: &mut dyn Statements,
    sql: &str,
    values: &[Value],
) -> Result<i64, TransactionError> {
    Ok(statements
        .one(sql, values, |row| row.get(0))?
        .unwrap_or_default())
}

/// Looks whether a user may have one more, who has `own` of `all` places.
fn admits(
    (own, most): (i64, i64),
    all: impl FnOnce() -> Result<i64, TransactionError>,
    max: i64,
) -> Result<bool, TransactionError> {
    Ok(own < most / 10 || own < most && all()? < max / 2)
}

/// Makes a place for one more task of a user. Of tasks that have ended the oldest gives way: of
/// this user's, where they have as many as are kept of one; where all places are taken, of the
/// user's who has most of them.
///
/// # Errors
/// [`StoreError::OpenTasks`] where the user has as many open ones as they may; [`StoreError::Full`]
/// where none has ended.
pub(super) fn place_for_task(
    statements: &mut dyn Statements,
    person: i64,
) -> Result<(), TransactionError> {
    let open = format!("SELECT count(*) FROM tasks WHERE {OPEN}");
    let own = [Value::from(person)];
    let own_open = count(statements, &format!("{open} AND created_by = ?1"), &own)?;
    if !admits(
        (own_open, MAX_OPEN),
        || count(statements, &open, &[]),
        MAX_TASKS,
    )? {
        return Err(StoreError::OpenTasks(own_open).into());
    }
    let kept = "SELECT count(*) FROM tasks";
    let whose = if count(statements, &format!("{kept} WHERE created_by = ?1"), &own)? >= MAX_KEPT {
        Some(person)
    } else if count(statements, kept, &[])? >= MAX_TASKS {
        let most = format!(
            "SELECT created_by FROM tasks WHERE {ENDED} GROUP BY created_by ORDER BY count(*) DESC LIMIT 1"
        );
        let most = statements.one(&most, &[], |row| row.get(0))?;
        Some(most.ok_or(StoreError::Full)?)
    } else {
        None
    };
    if let Some(whose) = whose {
        let oldest = format!("SELECT min(id) FROM tasks WHERE {ENDED} AND created_by = ?1");
        let delete = format!("DELETE FROM tasks WHERE id = ({oldest})");
        statements.execute(&delete, &[Value::from(whose)])?;
    }
    Ok(())
}

/// Looks whether there is a place for one more schedule of a user.
///
/// # Errors
/// [`StoreError::Schedules`].
pub(super) fn place_for_schedule(
    statements: &mut dyn Statements,
    person: i64,
) -> Result<(), TransactionError> {
    let all = count(statements, "SELECT count(*) FROM schedules", &[])?;
    let own = "SELECT count(*) FROM schedules WHERE created_by = ?1";
    let own = count(statements, own, &[Value::from(person)])?;
    let admitted =
        admits((own, MAX_SCHEDULES_OF_ONE), || Ok(all), MAX_SCHEDULES)? && all < MAX_SCHEDULES;
    if admitted {
        Ok(())
    } else {
        Err(StoreError::Schedules.into())
    }
}

#[cfg(test)]
mod tests {
    use colibri_api::{NewTask, Schedule, ScheduledWork, TaskStatus, Timing};

    use super::*;
    use crate::{Actor, Database};

    const ALICE: u32 = 1001;
    const BOB: u32 = 1002;

    /// Adds so many tasks of a user, all of one status.
    fn fill(store: &Database, uid: u32, count: i64, status: TaskStatus) {
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
            INSERT INTO tasks (title, description, source, status, required_capabilities, priority, created_by,
                created_at, updated_at)
            SELECT 't', '', 's', ?2, '[]', 5, ?3, 0, 0 FROM n";
        store
            .with(|c| c.execute(fill, (count, status.name(), uid)))
            .unwrap();
    }

    fn add(store: &Database, uid: u32) -> Result<u64, StoreError> {
        let new = NewTask {
            title: "t".to_owned(),
            description: String::new(),
            source: "s".to_owned(),
            status: TaskStatus::Queued,
            required_capabilities: Vec::new(),
            priority: 5,
            created_by: uid,
            share: None,
            limits: Default::default(),
        };
        store.added(new).map(|task| task.id)
    }

    fn kept(store: &Database) -> u64 {
        let counts = store.task_counts(Actor::DAEMON).unwrap();
        counts.iter().map(|(_, count)| count).sum()
    }

    #[test]
    fn a_user_who_has_as_many_open_tasks_as_they_may_keeps_nobody_else_from_theirs() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        fill(&store, ALICE, MAX_OPEN, TaskStatus::Queued);
        assert!(matches!(
            add(&store, ALICE),
            Err(StoreError::OpenTasks(MAX_OPEN))
        ));
        add(&store, BOB).unwrap();
        // When half of all places are taken one user has fewer, and others theirs.
        for uid in 2000..2024 {
            fill(&store, uid, MAX_OPEN, TaskStatus::Queued);
        }
        fill(&store, BOB, MAX_OPEN / 10 - 2, TaskStatus::Queued);
        add(&store, BOB).unwrap();
        assert!(matches!(add(&store, BOB), Err(StoreError::OpenTasks(200))));
        add(&store, 1003).unwrap();
    }

    #[test]
    fn of_tasks_that_have_ended_the_users_own_oldest_give_way_and_in_a_full_store_those_of_who_has_most()
     {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        fill(&store, BOB, 1, TaskStatus::Done);
        fill(&store, ALICE, MAX_KEPT, TaskStatus::Failed);
        add(&store, ALICE).unwrap();
        assert_eq!(kept(&store), 1 + MAX_KEPT.unsigned_abs());
        let oldest = |id| store.task(id).map(|(task, _)| task.said.created_by).ok();
        assert_eq!(
            [oldest(1), oldest(2), oldest(3)],
            [Some(BOB), None, Some(ALICE)]
        );
        for uid in 2000..2017 {
            fill(&store, uid, MAX_KEPT, TaskStatus::Done);
        }
        fill(&store, 3000, MAX_KEPT + 5, TaskStatus::Cancelled);
        let free = MAX_TASKS - kept(&store).cast_signed();
        fill(&store, 3001, free, TaskStatus::Done);
        let before = kept(&store);
        add(&store, BOB).unwrap();
        assert_eq!(kept(&store), before);
        let of_most = store.with(|c| {
            c.query_row(
                "SELECT count(*) FROM tasks WHERE created_by = 3000",
                [],
                |row| row.get::<_, i64>(0),
            )
        });
        assert_eq!(of_most.unwrap(), MAX_KEPT + 4);
    }

    #[test]
    fn one_user_does_not_take_the_schedules_of_others() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        let schedule = |uid| {
            let timing = Timing {
                every_s: Some(60),
                ..Timing::default()
            };
            let work = ScheduledWork {
                task: None,
                call: None,
            };
            store.add_schedule(&Schedule {
                foreign: None,
                id: 0,
                timing,
                work,
                created_by: uid,
                created_at: 0,
                next_at: None,
                last_at: None,
                last_task: None,
                last_outcome: None,
                runs: 0,
            })
        };
        for _ in 0..MAX_SCHEDULES_OF_ONE {
            schedule(ALICE).unwrap();
        }
        assert!(matches!(schedule(ALICE), Err(StoreError::Schedules)));
        // Ten users who have as many as they may take nobody's places, nor fifty.
        let more = "WITH RECURSIVE n(i) AS (SELECT 0 UNION ALL SELECT i + 1 FROM n WHERE i < 4899)
            INSERT INTO schedules (timing, work, created_by, created_at) SELECT '{}', '{}', 2000 + i / 100, 0 FROM n";
        store.with(|c| c.execute(more, [])).unwrap();
        for _ in 0..MAX_SCHEDULES_OF_ONE / 10 {
            schedule(BOB).unwrap();
        }
        assert!(matches!(schedule(BOB), Err(StoreError::Schedules)));
        schedule(1003).unwrap();
    }
}
