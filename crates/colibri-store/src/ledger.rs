//! The cost of calls, lists and models, by day, person, agent, client, task, model, server, method
//! and tool.

use std::collections::BTreeSet;

use colibri_api::{CostDay, CostRow, CostSum, CostsBy};
use rusqlite::{Connection, OpenFlags, Row};

use super::database::Database;
use super::error::StoreError;

/// The key of a counted cost.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct CostKey {
    /// The day on which the request was read.
    pub day: CostDay,
    /// The person.
    pub uid: u32,
    /// The agent's id; empty: the person themselves.
    pub agent: String,
    /// The name that the client declares of itself; empty: none, or one of too many.
    pub client: String,
    /// The task; 0: none.
    pub task: u64,
    /// The model that was asked; empty: none.
    pub model: String,
    /// The server's id; empty: the model that the agent asked.
    pub server: String,
    /// The method.
    pub method: String,
    /// The server's own name of the tool; empty: no tool, or one that there is not.
    pub tool: String,
}

/// A query of the ledger.
#[derive(Debug, Clone, Copy)]
pub struct CostQuery<'a> {
    /// The first day.
    pub since: CostDay,
    /// The person; `None`: everybody.
    pub uid: Option<u32>,
    /// The keys by which costs are added up.
    pub by: &'a [CostsBy],
    /// Only what was listed and not called.
    pub unused: bool,
    /// The most rows.
    pub limit: usize,
}

/// The ledger's answer.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct CostAnswer {
    /// Days in order, else what cost most bytes first.
    pub rows: Vec<CostRow>,
    /// Rows over the limit.
    pub left_out: u64,
    /// All of it.
    pub sum: CostSum,
    /// The first day of which anything is counted.
    pub since: Option<CostDay>,
}

/// The counts, as the columns of the table.
const COUNTS: [&str; 12] = [
    "calls",
    "errors",
    "bytes_in",
    "bytes_out",
    "microseconds",
    "lists",
    "listed_bytes",
    "model_requests",
    "tokens_in",
    "tokens_out",
    "tokens_cached",
    "tokens_cache_write",
];

/// The columns before the counts.
const KEYS: usize = 9;

/// The most that a sum of one row comes to.
const MOST: i64 = 1 << 62;

impl Database {
    /// Adds costs: all of them, or none.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub(crate) fn add_to_ledger(&self, costs: &[(CostKey, CostSum)]) -> Result<(), StoreError> {
        // A sum beyond the integers would become a REAL, which the table refuses.
        let sums =
            COUNTS.map(|count| format!("{count} = min(ledger.{count} + excluded.{count}, {MOST})"));
        let insert = format!(
            "INSERT INTO ledger VALUES ({}) ON CONFLICT DO UPDATE SET {}",
            ["?"; KEYS + COUNTS.len()].join(", "),
            sums.join(", ")
        );
        self.transact(|transaction| {
            let mut insert = transaction.prepare_cached(&insert)?;
            for (key, cost) in costs {
                let counts = counts(cost);
                // The column has a sign.
                let task = i64::try_from(key.task).unwrap_or_default();
                let (day, uid) = (&key.day.0, &key.uid);
                let of: [&dyn rusqlite::ToSql; 4] = [&key.agent, &key.client, &task, &key.model];
                let keys: [&dyn rusqlite::ToSql; 3] = [&key.server, &key.method, &key.tool];
                let mut values: Vec<&dyn rusqlite::ToSql> = vec![day, uid];
                values.extend(of.into_iter().chain(keys));
                values.extend(counts.iter().map(|count| count as &dyn rusqlite::ToSql));
                insert.execute(&values[..])?;
            }
            Ok(())
        })
    }

    /// Forgets the oldest days before this one, so many at most.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub(crate) fn drop_from_ledger(&self, before: CostDay, most: u32) -> Result<(), StoreError> {
        self.with(|connection| {
            connection
                .prepare_cached(
                    "DELETE FROM ledger WHERE day IN
                        (SELECT DISTINCT day FROM ledger WHERE day < ?1 ORDER BY day LIMIT ?2)",
                )?
                .execute((before.0, most))
                .map(drop)
        })
    }

    /// Adds up what was counted. It may take long, and holds up nobody else.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn ledger(&self, query: &CostQuery<'_>) -> Result<CostAnswer, StoreError> {
        let flags = OpenFlags::SQLITE_OPEN_READ_ONLY
            | OpenFlags::SQLITE_OPEN_NO_MUTEX
            | OpenFlags::SQLITE_OPEN_NOFOLLOW;
        let answer = Connection::open_with_flags(self.path(), flags).and_then(|mut connection| {
            // What is added meanwhile is in all of the answer, or in none of it.
            let connection = connection.transaction()?;
            answer(&connection, query)
        });
        answer.map_err(|error| StoreError::Sqlite {
            path: self.path().to_owned(),
            error,
        })
    }
}

fn answer(connection: &Connection, query: &CostQuery<'_>) -> rusqlite::Result<CostAnswer> {
    let by: BTreeSet<CostsBy> = query.by.iter().copied().collect();
    let groups: Vec<&str> = by.iter().flat_map(|by| columns(*by)).copied().collect();
    let shown = [
        "server", "method", "tool", "agent", "client", "model", "task", "uid", "day",
    ]
    .map(|column| {
        if groups.contains(&column) {
            column
        } else {
            "NULL"
        }
    });
    let totals = COUNTS.map(|count| format!("total({count}) AS {count}"));
    let from = "FROM ledger WHERE day >= ?1 AND (?2 IS NULL OR uid = ?2)";
    let sums = format!("SELECT min(day), {} {from}", totals.join(", "));
    let (since, sum) = connection.query_row(&sums, (query.since.0, query.uid), |row| {
        Ok((row.get::<_, Option<u32>>(0)?, cost(row, 1)?))
    })?;
    if groups.is_empty() {
        return Ok(CostAnswer {
            sum,
            since: since.map(CostDay),
            ..CostAnswer::default()
        });
    }
    let having = match query.unused {
        true => "HAVING total(lists) > 0 AND total(calls) = 0",
        false => "",
    };
    let grouped = format!("{from} GROUP BY {} {having}", groups.join(", "));
    let day = if by.contains(&CostsBy::Day) {
        "day, "
    } else {
        ""
    };
    let rows = format!(
        "SELECT {}, {} {grouped}
         ORDER BY {day}total(bytes_in + bytes_out + listed_bytes) DESC, total(tokens_in + tokens_out) DESC, {}
         LIMIT ?3",
        shown.join(", "),
        totals.join(", "),
        groups.join(", ")
    );
    let limit = i64::try_from(query.limit).unwrap_or(i64::MAX);
    let rows: Vec<CostRow> = connection
        .prepare(&rows)?
        .query_map((query.since.0, query.uid, limit), |row| {
            // An empty text is what a row has none of.
            let text = |at| {
                row.get(at)
                    .map(|text: Option<String>| text.filter(|text| !text.is_empty()))
            };
            Ok(CostRow {
                server: text(0)?,
                method: text(1)?,
                tool: text(2)?,
                agent: text(3)?,
                client: text(4)?,
                model: text(5)?,
                task: row
                    .get::<_, Option<i64>>(6)?
                    .and_then(|task| u64::try_from(task).ok())
                    .filter(|task| *task > 0),
                uid: row.get(7)?,
                day: row.get::<_, Option<u32>>(8)?.map(CostDay),
                cost: cost(row, KEYS)?,
            })
        })?
        .collect::<rusqlite::Result<_>>()?;
    let mut left_out = 0;
    if rows.len() == query.limit {
        let all = format!("SELECT count(*) FROM (SELECT 1 {grouped})");
        let all =
            connection.query_row(&all, (query.since.0, query.uid), |row| row.get::<_, i64>(0))?;
        left_out = all.unsigned_abs().saturating_sub(rows.len() as u64);
    }
    Ok(CostAnswer {
        rows,
        left_out,
        sum,
        since: since.map(CostDay),
    })
}

fn columns(by: CostsBy) -> &'static [&'static str] {
    match by {
        CostsBy::Tool => &["server", "method", "tool"],
        CostsBy::Server => &["server"],
        CostsBy::Agent => &["agent"],
        CostsBy::Client => &["client"],
        CostsBy::Model => &["model"],
        CostsBy::Task => &["task"],
        CostsBy::Person => &["uid"],
        CostsBy::Day => &["day"],
    }
}

/// In the order of [`COUNTS`].
fn counts(cost: &CostSum) -> [i64; COUNTS.len()] {
    [
        cost.calls,
        cost.errors,
        cost.bytes_in,
        cost.bytes_out,
        cost.microseconds,
        cost.lists,
        cost.listed_bytes,
        cost.model_requests,
        cost.tokens_in,
        cost.tokens_out,
        cost.tokens_cached,
        cost.tokens_cache_write,
    ]
    // So large that no count comes near.
    .map(|count| i64::try_from(count).unwrap_or(i64::MAX).min(1 << 48))
}

/// The sums from this column on.
fn cost(row: &Row<'_>, from: usize) -> rusqlite::Result<CostSum> {
    // total() never overflows, and is exact up to 2^53.
    let count = |at: usize| row.get::<_, f64>(from + at).map(|sum| sum as u64);
    let mut sum = CostSum::default();
    sum.add(&CostSum {
        calls: count(0)?,
        errors: count(1)?,
        bytes_in: count(2)?,
        bytes_out: count(3)?,
        microseconds: count(4)?,
        lists: count(5)?,
        listed_bytes: count(6)?,
        model_requests: count(7)?,
        tokens_in: count(8)?,
        tokens_out: count(9)?,
        tokens_cached: count(10)?,
        tokens_cache_write: count(11)?,
        ..CostSum::default()
    });
    Ok(sum)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key(day: u32, uid: u32, (agent, server, tool): (&str, &str, &str)) -> CostKey {
        CostKey {
            day: CostDay(day),
            uid,
            agent: agent.to_owned(),
            server: server.to_owned(),
            method: "tools/call".to_owned(),
            tool: tool.to_owned(),
            ..CostKey::default()
        }
    }

    fn called(calls: u64, bytes_out: u64) -> CostSum {
        CostSum {
            calls,
            bytes_out,
            ..CostSum::default()
        }
    }

    fn ask(store: &Database, since: u32, uid: Option<u32>, by: &[CostsBy]) -> CostAnswer {
        let query = CostQuery {
            since: CostDay(since),
            uid,
            by,
            unused: false,
            limit: 100,
        };
        store.ledger(&query).unwrap()
    }

    fn filled() -> (tempfile::TempDir, Database) {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        for _ in 0..2 {
            store
                .add_to_ledger(&[
                    (key(1, 7, ("", "s", "a")), called(1, 100)),
                    (key(2, 7, ("", "s", "b")), called(2, 10)),
                    (key(2, 8, ("coder", "s", "a")), called(3, 1)),
                ])
                .unwrap();
        }
        let mut model = key(2, 8, ("coder", "", ""));
        model.method = "model".to_owned();
        let tokens = CostSum {
            model_requests: 1,
            tokens_in: 50,
            tokens_out: 5,
            ..CostSum::default()
        };
        store.add_to_ledger(&[(model, tokens)]).unwrap();
        (state, store)
    }

    #[test]
    fn costs_add_up_by_whatever_is_asked() {
        let (_state, store) = filled();
        let all = ask(&store, 0, None, &[CostsBy::Tool]);
        let rows = all
            .rows
            .iter()
            .map(|row| (row.tool.as_deref(), row.cost.calls, row.cost.bytes_out));
        let wanted = [(Some("a"), 8, 202), (Some("b"), 4, 20), (None, 0, 0)];
        assert_eq!(rows.collect::<Vec<_>>(), wanted);
        assert_eq!(
            (all.sum.calls, all.sum.tokens_in, all.since),
            (12, 50, Some(CostDay(1)))
        );
        let model = &all.rows[2];
        assert_eq!(
            (model.server.as_deref(), model.method.as_deref()),
            (None, Some("model"))
        );
        assert_eq!((model.cost.model_requests, model.cost.tokens_out), (1, 5));
        let by_agent = ask(&store, 2, None, &[CostsBy::Agent]);
        let rows = by_agent
            .rows
            .iter()
            .map(|row| (row.agent.as_deref(), row.cost.calls, row.cost.tokens_in));
        assert_eq!(
            rows.collect::<Vec<_>>(),
            [(None, 4, 0), (Some("coder"), 6, 50)]
        );
        let by_day = ask(&store, 0, None, &[CostsBy::Person, CostsBy::Day]);
        let rows = by_day
            .rows
            .iter()
            .map(|row| (row.day, row.uid, row.cost.calls));
        let wanted = [(1, 7, 2), (2, 7, 4), (2, 8, 6)]
            .map(|(day, uid, calls)| (Some(CostDay(day)), Some(uid), calls));
        assert_eq!(rows.collect::<Vec<_>>(), wanted);
        assert_eq!(ask(&store, 3, None, &[CostsBy::Day]), CostAnswer::default());
    }

    #[test]
    fn clients_tasks_and_models_are_told_apart_and_cached_tokens_counted() {
        let (_state, store) = filled();
        let mut key = key(3, 8, ("coder", "", ""));
        key.method = "model".to_owned();
        (key.client, key.model, key.task) = ("claude-code".to_owned(), "big-1".to_owned(), 7);
        let tokens = CostSum {
            model_requests: 1,
            tokens_in: 100,
            tokens_cached: 60,
            tokens_cache_write: 30,
            tokens_out: 5,
            ..CostSum::default()
        };
        store
            .add_to_ledger(&[(key.clone(), tokens), (key, tokens)])
            .unwrap();
        let all = ask(
            &store,
            3,
            None,
            &[CostsBy::Client, CostsBy::Model, CostsBy::Task],
        );
        let [row] = &*all.rows else { panic!("{all:?}") };
        assert_eq!(
            (
                row.client.as_deref(),
                row.model.as_deref(),
                row.task,
                row.uid
            ),
            (Some("claude-code"), Some("big-1"), Some(7), None)
        );
        let figures = (
            row.cost.tokens_cached,
            row.cost.tokens_cache_write,
            row.cost.tokens_fresh(),
        );
        assert_eq!(figures, (120, 60, 20));
        let by_task = ask(&store, 0, None, &[CostsBy::Task]);
        let rows = by_task
            .rows
            .iter()
            .map(|row| (row.task, row.cost.tokens_in));
        assert_eq!(rows.collect::<Vec<_>>(), [(None, 50), (Some(7), 200)]);
    }

    #[test]
    fn one_person_is_told_of_that_person_alone() {
        let (_state, store) = filled();
        for by in CostsBy::ALL {
            let own = ask(&store, 0, Some(7), &[by, CostsBy::Person]);
            assert!(own.rows.iter().all(|row| row.uid == Some(7)), "{own:?}");
            assert_eq!((own.sum.calls, own.sum.tokens_in), (6, 0));
        }
        assert_eq!(
            ask(&store, 0, Some(9), &[CostsBy::Tool]),
            CostAnswer::default()
        );
    }

    #[test]
    fn what_an_answer_has_no_room_for_is_counted() {
        let (_state, store) = filled();
        let query = CostQuery {
            since: CostDay(0),
            uid: None,
            by: &[CostsBy::Tool],
            unused: false,
            limit: 1,
        };
        let answer = store.ledger(&query).unwrap();
        assert_eq!(
            (answer.rows.len(), answer.left_out, answer.sum.calls),
            (1, 2, 12)
        );
    }

    #[test]
    fn the_oldest_days_go_and_only_so_many_at_a_time() {
        let (_state, store) = filled();
        store.drop_from_ledger(CostDay(1), 9).unwrap();
        assert_eq!(ask(&store, 0, None, &[]).since, Some(CostDay(1)));
        store.drop_from_ledger(CostDay(u32::MAX), 1).unwrap();
        assert_eq!(ask(&store, 0, None, &[]).since, Some(CostDay(2)));
        store.drop_from_ledger(CostDay(u32::MAX), 1).unwrap();
        assert_eq!(ask(&store, 0, None, &[]), CostAnswer::default());
    }

    #[test]
    fn no_count_breaks_the_sums() {
        let (_state, store) = filled();
        for _ in 0..3 {
            store
                .add_to_ledger(&[(key(1, 7, ("", "s", "a")), called(u64::MAX, u64::MAX))])
                .unwrap();
        }
        assert_eq!(
            ask(&store, 0, None, &[CostsBy::Tool]).rows[0].cost.calls,
            8 + (3 << 48)
        );
        // What a hostile server says all day comes to more than an integer holds.
        let all_day = vec![(key(1, 7, ("", "s", "a")), called(u64::MAX, u64::MAX)); 1 << 15];
        store.add_to_ledger(&all_day).unwrap();
        store.add_to_ledger(&all_day[..1]).unwrap();
        assert_eq!(
            ask(&store, 0, None, &[CostsBy::Tool]).rows[0].cost.calls,
            1 << 62
        );
    }
}
