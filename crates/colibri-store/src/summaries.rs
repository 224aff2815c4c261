//! Summaries of tools, and the calls that were made for them.

use std::collections::HashMap;

use super::database::Database;
use super::error::{StoreError, room};
use rusqlite::{Connection, params};

/// The most summaries that are kept; older ones make room.
pub const MAX_SUMMARIES: usize = 20_000;
/// For how long a call counts, in milliseconds.
const HOUR: u64 = 3600 * 1000;

/// A sentence about a tool, of exactly one definition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoredSummary {
    /// `server:tool:HEX`, HEX telling the tool's schema.
    pub key: String,
    /// SHA-256 of the definition as it is pinned.
    pub pin: String,
    /// The sentence; empty where a model was asked and had none.
    pub text: String,
    /// The time at which it was made, in milliseconds since the epoch.
    pub made_at: u64,
}

impl Database {
    /// All summaries.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn summaries(&self) -> Result<Vec<StoredSummary>, StoreError> {
        self.with(|connection| {
            connection
                .prepare_cached("SELECT key, pin, text, made_at FROM summaries")?
                .query_map([], |row| {
                    Ok(StoredSummary {
                        key: row.get(0)?,
                        pin: row.get(1)?,
                        text: row.get(2)?,
                        made_at: row.get::<_, i64>(3)?.unsigned_abs(),
                    })
                })?
                .collect()
        })
    }

    /// Keeps a summary, in place of one of the same definition.
    ///
    /// # Errors
    /// [`StoreError::NoRoom`], [`StoreError::Sqlite`].
    pub fn put_summary(&self, summary: &StoredSummary, model: &str) -> Result<(), StoreError> {
        room(self.path(), summary.text.len())?;
        self.with(|connection| {
            let transaction = connection.transaction()?;
            transaction
                .prepare_cached(
                    "INSERT OR REPLACE INTO summaries (key, pin, text, model, made_at) VALUES (?1, ?2, ?3, ?4, ?5)",
                )?
                .execute(params![
                    summary.key,
                    summary.pin,
                    summary.text,
                    model,
                    summary.made_at.cast_signed()
                ])?;
            transaction
                .prepare_cached(
                    "DELETE FROM summaries WHERE rowid IN
                         (SELECT rowid FROM summaries ORDER BY made_at DESC, rowid DESC LIMIT -1 OFFSET ?1)",
                )?
                .execute([MAX_SUMMARIES.cast_signed()])?;
            transaction.commit()
        })
    }

    /// The calls that were made for summaries in the hour before, by the server whose tools they
    /// were about.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn summary_calls(&self, now: u64) -> Result<HashMap<String, usize>, StoreError> {
        self.with(|connection| calls(connection, now))
    }

    /// Notes that a call is made for a server's tools, unless there were as many in the hour
    /// before, of this server or of all, as there may be; whether it may be made.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn add_summary_call(
        &self,
        server: &str,
        now: u64,
        (most_of_server, most): (usize, usize),
    ) -> Result<bool, StoreError> {
        self.with(|connection| {
            let transaction = connection.transaction()?;
            // A clock that was set back makes no calls of the future count for longer than an hour.
            transaction
                .prepare_cached("DELETE FROM summary_calls WHERE at NOT BETWEEN ?1 AND ?2")?
                .execute([
                    now.saturating_sub(HOUR).cast_signed() + 1,
                    (now + HOUR).cast_signed(),
                ])?;
            let calls = calls(&transaction, now)?;
            let of_server = calls.get(server).copied().unwrap_or_default();
            if of_server >= most_of_server || calls.values().sum::<usize>() >= most {
                return Ok(false);
            }
            transaction
                .prepare_cached("INSERT INTO summary_calls (server, at) VALUES (?1, ?2)")?
                .execute(params![server, now.cast_signed()])?;
            transaction.commit().map(|()| true)
        })
    }
}

fn calls(connection: &Connection, now: u64) -> rusqlite::Result<HashMap<String, usize>> {
    connection
        .prepare_cached("SELECT server, count(*) FROM summary_calls WHERE at > ?1 GROUP BY server")?
        .query_map([now.saturating_sub(HOUR).cast_signed()], |row| {
            Ok((row.get(0)?, row.get::<_, u32>(1)? as usize))
        })?
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(key: &str, pin: &str, text: &str) -> StoredSummary {
        StoredSummary {
            key: key.to_owned(),
            pin: pin.to_owned(),
            text: text.to_owned(),
            made_at: 1 << 50,
        }
    }

    #[test]
    fn a_summary_is_of_one_schema_and_one_pin() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        for (key, pin, text) in [
            ("s:t:0", "a", "one"),
            ("s:t:0", "b", "two"),
            ("s:t:1", "a", "three"),
            ("s:t:0", "a", "four"),
        ] {
            store.put_summary(&summary(key, pin, text), "m").unwrap();
        }
        let mut all = Database::open(state.path()).unwrap().summaries().unwrap();
        all.sort_by(|a, b| a.text.cmp(&b.text));
        assert_eq!(
            all,
            [
                summary("s:t:0", "a", "four"),
                summary("s:t:1", "a", "three"),
                summary("s:t:0", "b", "two")
            ]
        );
    }

    #[test]
    fn the_oldest_make_room() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        let fill = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < ?1)
                    INSERT INTO summaries SELECT 'k' || i, 'p', 't', 'm', i FROM n";
        store
            .with(|c| c.execute(fill, [MAX_SUMMARIES.cast_signed()]))
            .unwrap();
        store.put_summary(&summary("new", "p", "t"), "m").unwrap();
        let all = store.summaries().unwrap();
        assert_eq!(all.len(), MAX_SUMMARIES);
        assert!(
            all.iter().any(|summary| summary.key == "new")
                && all.iter().all(|summary| summary.key != "k1")
        );
    }

    #[test]
    fn calls_count_for_an_hour_whatever_happens_to_the_daemon_and_the_clock() {
        let state = tempfile::tempdir().unwrap();
        let add = |server: &str, now: u64| {
            let store = Database::open(state.path()).unwrap();
            store.add_summary_call(server, now, (2, 3)).unwrap()
        };
        let begin = 10 * HOUR;
        assert!(add("a", begin) && add("a", begin + 1), "two of a server");
        assert!(!add("a", begin + 2), "the third of a server");
        assert!(
            add("b", begin + 3) && !add("c", begin + 4),
            "the fourth of all"
        );
        assert!(
            !add("a", begin - 5),
            "a clock that goes back gives none back"
        );
        let store = Database::open(state.path()).unwrap();
        assert_eq!(
            store.summary_calls(begin + 5).unwrap(),
            HashMap::from([("a".to_owned(), 2), ("b".to_owned(), 1)])
        );
        drop(store);
        assert!(
            add("a", begin + HOUR) && !add("a", begin + HOUR),
            "the first is over, the second is not"
        );
        assert!(
            add("a", begin - 2 * HOUR),
            "calls of the far future do not count"
        );
    }
}
