//! Tasks: what people and assistants want done.

use super::actor::{Actor, bind, read_share, share_number};
use super::database::Database;
use super::error::{CursorError, StoreError, TaskRefusal, TransactionError, room, unexpected};
use super::quota::place_for_task;
use super::statements::{BoardRow, Statements};
use super::step::Tell;
use colibri_api::{NewTask, Task, TaskLimits, TaskStatus, Tasks};
use rusqlite::types::Value;
use sha2::{Digest, Sha256};

/// The most characters of a title.
pub const MAX_TITLE: usize = 200;
/// The most characters of a description, or of the free text of an intake.
pub const MAX_DESCRIPTION: usize = 10_000;
/// The most characters of a source.
pub const MAX_LABEL: usize = 64;
/// The most required capabilities of a task.
pub const MAX_CAPABILITIES: usize = 16;
/// The most characters of one capability.
pub const MAX_CAPABILITY: usize = 64;
/// The highest priority; 0 is the lowest.
pub const MAX_PRIORITY: u8 = 9;
/// The priority of a task for which none was said.
pub const PRIORITY_DEFAULT: u8 = 5;
/// The most tasks of a page.
pub const MAX_PAGE: u32 = 100;
/// The tasks of a page for which no limit was said.
pub const PAGE_DEFAULT: u32 = 50;
/// The prefix of a deferred call's task source.
pub const DEFERRED: &str = "deferred:";

/// Filters a list of tasks; a `None` does not restrict it.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct TaskFilter {
    /// Only of this status.
    pub status: Option<TaskStatus>,
    /// Only from this source.
    pub source: Option<String>,
}

impl TaskFilter {
    /// The cursor of the page after task `id`: the number and eight bytes of a digest over it and
    /// the filter, in hexadecimal. The digest finds mistakes (cut off, or used with another
    /// filter); it keeps no secret, since every place of the list may be asked for anyway.
    fn cursor(&self, id: i64) -> String {
        let mut digest = Sha256::new();
        digest.update(b"colibri tasks\n");
        digest.update(self.status.map_or("", TaskStatus::name));
        digest.update(b"\n");
        digest.update(
            self.source
                .as_deref()
                .map_or_else(String::new, |source| format!("={source}")),
        );
        digest.update(b"\n");
        digest.update(id.to_be_bytes());
        let check = digest
            .finalize()
            .into_iter()
            .take(8)
            .fold(0_u64, |sum, byte| sum << 8 | u64::from(byte));
        format!("{id:016x}{check:016x}")
    }

    /// The task after which the page of this cursor begins.
    fn position(&self, cursor: &str) -> Result<i64, CursorError> {
        let number = cursor.get(..16).ok_or(CursorError)?;
        let id = i64::from_str_radix(number, 16).map_err(|_| CursorError)?;
        // Made anew and compared whole: upper case, signs and trailing bytes are no cursor either.
        if self.cursor(id) == cursor {
            Ok(id)
        } else {
            Err(CursorError)
        }
    }
}

impl Database {
    /// Adds a task, and returns it as stored; where a session is named, it is kept for that
    /// instance. Lengths are the caller's to check.
    ///
    /// # Errors
    /// [`StoreError::OpenTasks`], [`StoreError::Full`]; [`StoreError::Sqlite`],
    /// [`StoreError::Unrecorded`].
    pub fn add_task(
        &self,
        new: NewTask,
        for_session: Option<&str>,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Task, StoreError> {
        self.change_board(|statements| self.insert(statements, new, for_session, now, tell))
    }

    /// Adds a task that a call left, unless its creator has an open one of this title and source,
    /// which is returned then.
    ///
    /// # Errors
    /// [`StoreError::Deferred`] where they have `most` open ones of such sources; as
    /// [`Database::add_task`].
    pub fn add_deferred(
        &self,
        new: NewTask,
        most: i64,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Task, StoreError> {
        const OPEN: &str =
            "status IN ('intake', 'queued', 'claimed', 'started') AND created_by = ?1";
        let same = format!(
            "SELECT {COLUMNS} FROM tasks WHERE {OPEN} AND source = ?2 AND title = ?3 ORDER BY id LIMIT 1"
        );
        let count = format!("SELECT count(*) FROM tasks WHERE {OPEN} AND source LIKE ?2");
        let person = Value::from(self.storage.person(new.created_by)?);
        self.change_board(|statements| {
            let values = [
                person.clone(),
                new.source.clone().into(),
                new.title.clone().into(),
            ];
            let open = statements.one(&same, &values, read)?;
            if let Some(open) = open.filter(|open| open.foreign.is_none()) {
                return Ok(open);
            }
            let values = [person, format!("{DEFERRED}%").into()];
            let open: Option<i64> = statements.one(&count, &values, |row| row.get(0))?;
            if open.is_some_and(|open| open >= most) {
                return Err(StoreError::Deferred(most).into());
            }
            self.insert(statements, new, None, now, tell)
        })
    }

    /// A task, and its result.
    ///
    /// # Errors
    /// [`StoreError::Task`] where there is none; [`StoreError::Sqlite`].
    pub fn task(&self, id: u64) -> Result<(Task, Option<String>), StoreError> {
        let sql = format!("SELECT {COLUMNS}, result FROM tasks WHERE id = ?1");
        let found = match i64::try_from(id) {
            Err(_) => None,
            Ok(id) => {
                let whole = |row: &BoardRow<'_>| {
                    let (task, result) = (read(row)?, row.get::<Option<String>>(RESULT)?);
                    // On a board of many hosts it is the one of which the digest was signed.
                    let is_signed = |result: &String| {
                        let shared = row.shared.as_ref();
                        shared.is_none_or(|shared| shared.is_signed_result(result))
                    };
                    let result =
                        result.filter(|result| task.foreign.is_none() && is_signed(result));
                    Ok((task, result))
                };
                self.on_board(|statements| statements.one(&sql, &[id.into()], whole))?
            }
        };
        found.ok_or_else(|| TaskRefusal::Missing(id).into())
    }

    /// The tasks that `who` sees and `filter` lets through, newest first, at most `limit` (1 to
    /// `MAX_PAGE`), from where `cursor` points. Tasks that come in during a walk do not shift its
    /// pages.
    ///
    /// # Errors
    /// [`StoreError::Cursor`] for a cursor that this filter's list did not give out;
    /// [`StoreError::Sqlite`].
    pub fn tasks(
        &self,
        who: Actor<'_>,
        filter: &TaskFilter,
        limit: u32,
        cursor: Option<&str>,
    ) -> Result<Tasks, StoreError> {
        let before = cursor.map_or(Ok(i64::MAX), |cursor| filter.position(cursor))?;
        let limit = limit.clamp(1, MAX_PAGE) as usize;
        let mut values = vec![Value::from(before)];
        let seen = who.condition(self, &mut values)?;
        let mut sql = format!("SELECT {COLUMNS} FROM tasks WHERE id < ?1 AND {seen}");
        for (column, value) in [
            ("status", filter.status.map(|s| s.name().to_owned().into())),
            ("source", filter.source.clone().map(Value::from)),
        ] {
            if let Some(value) = value {
                sql.push_str(&format!(" AND {column} = {}", bind(&mut values, value)));
            }
        }
        // One more than asked for tells whether there is a next page.
        sql.push_str(&format!(
            " ORDER BY id DESC LIMIT {}",
            bind(&mut values, limit as i64 + 1)
        ));
        let mut tasks = self.on_board(|statements| statements.all(&sql, &values, read))?;
        let more = tasks.len() > limit;
        tasks.truncate(limit);
        let next_cursor = tasks
            .last()
            .filter(|_| more)
            .map(|task| filter.cursor(task.id.cast_signed()));
        Ok(Tasks { tasks, next_cursor })
    }

    /// The number of the tasks that `who` sees in each status, in the order of [`TaskStatus::ALL`].
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn task_counts(&self, who: Actor<'_>) -> Result<[(TaskStatus, u64); 7], StoreError> {
        let mut values = vec![Value::Null];
        let seen = who.condition(self, &mut values)?;
        let sql = format!("SELECT count(*) FROM tasks WHERE status = ?1 AND {seen}");
        self.on_board(|statements| {
            let mut counts = TaskStatus::ALL.map(|status| (status, 0));
            for (status, count) in &mut counts {
                values[0] = status.name().to_owned().into();
                let found: Option<i64> = statements.one(&sql, &values, |row| row.get(0))?;
                *count = found.unwrap_or_default().unsigned_abs();
            }
            Ok(counts)
        })
    }
}

impl Database {
    /// Adds a task as a part of more.
    pub(super) fn insert(
        &self,
        statements: &mut dyn Statements,
        new: NewTask,
        for_session: Option<&str>,
        now: u64,
        tell: Tell<'_>,
    ) -> Result<Task, TransactionError> {
        let person = self.storage.person(new.created_by)?;
        place_for_task(statements, person)?;
        room(self.path(), new.title.len() + new.description.len())?;
        let meant = new_task(new.clone(), for_session, now);
        let capabilities = serde_json::Value::from(new.required_capabilities.clone()).to_string();
        let may = new
            .limits
            .may
            .as_ref()
            .map(|may| serde_json::json!(may).to_string());
        let sql = format!(
            "INSERT INTO tasks (title, description, source, status, required_capabilities, priority, created_by,
                 created_at, updated_at, for_session, share, may, by_person, tainted)
             VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?8, ?9, ?10, ?11, ?12, ?13) RETURNING {COLUMNS}"
        );
        let values = [
            new.title.into(),
            new.description.into(),
            new.source.into(),
            new.status.name().to_owned().into(),
            capabilities.into(),
            i64::from(new.priority).into(),
            person.into(),
            now.cast_signed().into(),
            for_session
                .map(|session| self.storage.session_name(session))
                .into(),
            share_number(self, new.share)?.into(),
            may.into(),
            new.limits.by_person.into(),
            new.limits.tainted.into(),
        ];
        statements.wake_others();
        let stored = statements.one(&sql, &values, read)?;
        let stored =
            stored.ok_or_else(|| StoreError::Unrecorded("the new task is not there".to_owned()))?;
        let task = self.storage.sign_task(statements, stored, meant)?;
        tell(&task, None).map_err(StoreError::Unrecorded)?;
        Ok(task)
    }
}

/// A task as it is when it was just added, but for the number that it will have.
fn new_task(said: NewTask, for_session: Option<&str>, now: u64) -> Task {
    Task {
        id: 0,
        said,
        created_at: now,
        updated_at: now,
        claim: 0,
        claimed_by: None,
        claimed_session: None,
        lease_until: None,
        for_session: for_session.map(str::to_owned),
        attempts: 0,
        reason: None,
        person: None,
        claimed_person: None,
        host: None,
        foreign: None,
        waiting: None,
        started_at: None,
        ended_at: None,
    }
}

/// The columns that [`read`] reads, in its order; on a board of many hosts those of signatures
/// follow, which [`BoardRow`] has beside them.
pub(super) const COLUMNS: &str = "id, title, description, source, status, required_capabilities, priority, created_by, \
    created_at, updated_at, claim, claimed_by, claimed_session, lease_until, for_session, attempts, reason, \
    started_at, ended_at, share, may, by_person, tainted/*seal*/";

/// Their number, and the place of the column after them.
const RESULT: usize = 23;

/// A row of [`COLUMNS`].
pub(super) fn read(row: &BoardRow<'_>) -> rusqlite::Result<Task> {
    let shared = row.shared.as_ref();
    let status: String = row.get(4)?;
    let capabilities: String = row.get(5)?;
    let number = |column| row.get::<i64>(column).map(i64::unsigned_abs);
    let time = |column| {
        row.get::<Option<i64>>(column)
            .map(|time| time.map(i64::unsigned_abs))
    };
    let mut task = Task {
        id: number(0)?,
        said: NewTask {
            title: row.get(1)?,
            description: row.get(2)?,
            source: row.get(3)?,
            status: status
                .parse()
                .map_err(|_| unexpected(4, format!("no task status: {status:?}")))?,
            required_capabilities: serde_json::from_str(&capabilities)
                .map_err(|e| unexpected(5, format!("required capabilities: {e}")))?,
            priority: row.get(6)?,
            created_by: row.user(7)?,
            share: read_share(row.share(19)?),
            limits: TaskLimits {
                may: (row.get::<Option<String>>(20)?)
                    .map(|may| serde_json::from_str(&may))
                    .transpose()
                    .map_err(|e| unexpected(20, format!("what a task may change: {e}")))?,
                by_person: row.get(21)?,
                tainted: row.get(22)?,
            },
        },
        created_at: number(8)?,
        updated_at: number(9)?,
        claim: number(10)?,
        claimed_by: row.optional_user(11)?,
        claimed_session: row.session(12)?,
        lease_until: time(13)?,
        for_session: row.session(14)?,
        attempts: row.get(15)?,
        reason: row.get(16)?,
        person: row.person(7)?,
        claimed_person: row.person(11)?,
        host: shared.and_then(|shared| shared.host().map(str::to_owned)),
        foreign: None,
        waiting: None,
        started_at: time(17)?,
        ended_at: time(18)?,
    };
    task.foreign = shared.and_then(|shared| shared.foreign_task(&task));
    Ok(task)
}

#[cfg(test)]
impl Database {
    /// Adds a task of which nobody is told.
    pub(super) fn added(&self, new: NewTask) -> Result<Task, StoreError> {
        self.add_task(new, None, 1, &|_, _| Ok(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::MAX_TASKS;
    use proptest::prelude::*;
    use std::collections::BTreeSet;

    fn new(title: &str, status: TaskStatus, source: &str) -> NewTask {
        NewTask {
            title: title.to_owned(),
            description: String::new(),
            source: source.to_owned(),
            status,
            required_capabilities: vec!["rust".to_owned(), "\"quoted\"".to_owned()],
            priority: 3,
            created_by: u32::MAX,
            share: None,
            limits: Default::default(),
        }
    }

    /// Walks all pages and returns the ids.
    fn walk(store: &Database, filter: &TaskFilter, limit: u32) -> Vec<u64> {
        let mut ids = Vec::new();
        let mut cursor = None;
        loop {
            let page = store
                .tasks(Actor::DAEMON, filter, limit, cursor.as_deref())
                .unwrap();
            assert!(page.tasks.len() <= limit as usize);
            ids.extend(page.tasks.iter().map(|task| task.id));
            cursor = page.next_cursor;
            if cursor.is_none() {
                return ids;
            }
        }
    }

    #[test]
    fn a_task_comes_back_as_it_was_added() {
        let state = tempfile::tempdir().unwrap();
        let added = Database::open(state.path())
            .unwrap()
            .added(new("a \u{202e} b\0", TaskStatus::Queued, "s"))
            .unwrap();
        let page = Database::open(state.path())
            .unwrap()
            .tasks(Actor::DAEMON, &TaskFilter::default(), 10, None)
            .unwrap();
        assert_eq!(
            page,
            Tasks {
                tasks: vec![added],
                next_cursor: None
            }
        );
    }

    #[test]
    fn a_full_store_refuses_and_keeps_answering() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        store
            .with(|c| {
                c.execute(
                    "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                     INSERT INTO tasks (id, title, description, source, status, required_capabilities, priority,
                         created_by, created_at, updated_at)
                     SELECT i, 't', '', 's', 'queued', '[]', 5, 0, 0, 0 FROM n",
                    [MAX_TASKS],
                )
            })
            .unwrap();
        assert!(matches!(
            store.added(new("one more", TaskStatus::Queued, "s")),
            Err(StoreError::Full)
        ));
        assert_eq!(
            store.task_counts(Actor::DAEMON).unwrap()[1],
            (TaskStatus::Queued, MAX_TASKS as u64)
        );
    }

    #[test]
    fn a_walk_is_not_shifted_by_what_comes_in() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        for _ in 0..5 {
            store.added(new("t", TaskStatus::Queued, "s")).unwrap();
        }
        let first = store
            .tasks(Actor::DAEMON, &TaskFilter::default(), 2, None)
            .unwrap();
        store.added(new("late", TaskStatus::Queued, "s")).unwrap();
        let second = store
            .tasks(
                Actor::DAEMON,
                &TaskFilter::default(),
                2,
                first.next_cursor.as_deref(),
            )
            .unwrap();
        let ids: Vec<_> = first
            .tasks
            .iter()
            .chain(&second.tasks)
            .map(|task| task.id)
            .collect();
        assert_eq!(ids, [5, 4, 3, 2]);
    }

    #[test]
    fn writers_in_threads_and_in_two_stores_lose_nothing() {
        let state = tempfile::tempdir().unwrap();
        let stores = [
            Database::open(state.path()).unwrap(),
            Database::open(state.path()).unwrap(),
        ];
        std::thread::scope(|scope| {
            for writer in 0..8 {
                let store = &stores[writer % 2];
                scope.spawn(move || {
                    for n in 0..10 {
                        store
                            .added(new(&format!("{writer}.{n}"), TaskStatus::Intake, "s"))
                            .unwrap();
                        store.add_to_ledger(&[]).unwrap();
                    }
                });
            }
        });
        let mut titles = BTreeSet::new();
        for page in 0..2 {
            let filter = TaskFilter::default();
            let cursor = (page == 1).then(|| {
                stores[0]
                    .tasks(Actor::DAEMON, &filter, 40, None)
                    .unwrap()
                    .next_cursor
                    .unwrap()
            });
            titles.extend(
                stores[1]
                    .tasks(Actor::DAEMON, &filter, 40, cursor.as_deref())
                    .unwrap()
                    .tasks
                    .into_iter()
                    .map(|t| t.said.title),
            );
        }
        assert_eq!(titles.len(), 80);
        assert_eq!(
            stores[0].task_counts(Actor::DAEMON).unwrap()[0],
            (TaskStatus::Intake, 80)
        );
    }

    #[test]
    fn a_cursor_of_another_filter_is_refused() {
        let filters = [
            TaskFilter::default(),
            TaskFilter {
                status: Some(TaskStatus::Queued),
                ..TaskFilter::default()
            },
            TaskFilter {
                source: Some("queued".to_owned()),
                ..TaskFilter::default()
            },
            TaskFilter {
                source: Some(String::new()),
                ..TaskFilter::default()
            },
        ];
        for (i, made) in filters.iter().enumerate() {
            for (j, used) in filters.iter().enumerate() {
                assert_eq!(
                    used.position(&made.cursor(7)),
                    if i == j { Ok(7) } else { Err(CursorError) }
                );
            }
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        #[test]
        fn every_walk_gives_each_matching_task_once_newest_first(
            tasks in proptest::collection::vec((0_usize..7, 0_u8..3), 0..30), limit in 1_u32..12,
            status in proptest::option::of(0_usize..7), source in proptest::option::of(0_u8..3),
        ) {
            let state = tempfile::tempdir().unwrap();
            let store = Database::open(state.path()).unwrap();
            // One commit at the disk's pace is enough: these tests are about order, not about
            // durability.
            store.with(|c| c.pragma_update(None, "synchronous", "OFF")).unwrap();
            let mut expected = Vec::new();
            for (s, from) in tasks {
                let task = store.added(new("t", TaskStatus::ALL[s], &from.to_string())).unwrap();
                if status.is_none_or(|wanted| wanted == s) && source.is_none_or(|wanted| wanted == from) {
                    expected.insert(0, task.id);
                }
            }
            let filter =
                TaskFilter {
                    status: status.map(|s| TaskStatus::ALL[s]),
                    source: source.map(|s| s.to_string()),
                };
            prop_assert_eq!(walk(&store, &filter, limit), expected);
        }

        #[test]
        fn a_cursor_that_was_not_given_out_is_refused(id in any::<i64>(), garbage in "\\PC{0,40}", at in 0_usize..32) {
            let filter = TaskFilter::default();
            let cursor = filter.cursor(id);
            if id >= 0 {
                prop_assert_eq!(filter.position(&cursor), Ok(id));
            }
            prop_assert_eq!(filter.position(&garbage), Err(CursorError));
            let mut changed = cursor.into_bytes();
            changed[at] = if changed[at] == b'0' { b'1' } else { b'0' };
            prop_assert_eq!(filter.position(std::str::from_utf8(&changed).unwrap()), Err(CursorError));
        }
    }
}
