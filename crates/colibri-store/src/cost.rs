//! Usage of answers by each user, and the cost modes that users chose.

use super::database::Database;
use super::error::{StoreError, unexpected};
use colibri_api::{CostDay, CostMode};

/// The usage of a user on the last day on which they had any, and the mode that they chose.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct UserDay {
    /// The person.
    pub uid: u32,
    /// The mode that they chose; `None`: none, or they took it back.
    pub mode: Option<CostMode>,
    /// The time of that choice, in milliseconds since the epoch; 0: never.
    pub chosen_at: u64,
    /// Bytes of that day before they did.
    pub before: u64,
    /// The day.
    pub day: CostDay,
    /// Bytes of answers on that day.
    pub bytes: u64,
}

impl Database {
    /// The stored usage of every user.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn costs(&self) -> Result<Vec<UserDay>, StoreError> {
        self.with(|connection| {
            connection
                .prepare_cached(
                    "SELECT uid, mode, day, bytes, chosen_at, bytes_before FROM cost ORDER BY uid",
                )?
                .query_map([], |row| {
                    let mode: Option<String> = row.get(1)?;
                    let mode = mode.map(|name| {
                        let mode = name.parse();
                        mode.map_err(|_| unexpected(1, format!("no cost mode: {name:?}")))
                    });
                    Ok(UserDay {
                        uid: row.get(0)?,
                        mode: mode.transpose()?,
                        day: CostDay(row.get(2)?),
                        bytes: row.get(3).map(i64::unsigned_abs)?,
                        chosen_at: row.get(4).map(i64::unsigned_abs)?,
                        before: row.get(5).map(i64::unsigned_abs)?,
                    })
                })?
                .collect()
        })
    }

    /// Keeps this of these people, all of it or nothing.
    ///
    /// # Errors
    /// [`StoreError::Sqlite`].
    pub fn keep_costs(&self, costs: &[UserDay]) -> Result<(), StoreError> {
        let number = |count: u64| i64::try_from(count).unwrap_or(i64::MAX);
        self.transact(|transaction| {
            let mut statement = transaction.prepare_cached(
                "INSERT OR REPLACE INTO cost (uid, mode, day, bytes, chosen_at, bytes_before)
                 VALUES (?1, ?2, ?3, ?4, ?5, ?6)",
            )?;
            for cost in costs {
                let mode = cost.mode.map(CostMode::name);
                let (chosen_at, before) = (number(cost.chosen_at), number(cost.before));
                statement.execute((
                    cost.uid,
                    mode,
                    cost.day.0,
                    number(cost.bytes),
                    chosen_at,
                    before,
                ))?;
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persists() {
        let state = tempfile::tempdir().unwrap();
        let cost = |uid, mode, bytes| UserDay {
            uid,
            mode,
            chosen_at: bytes / 3,
            before: bytes / 2,
            day: CostDay(20_000),
            bytes,
        };
        let mut kept = vec![
            cost(0, None, 7),
            cost(u32::MAX, Some(CostMode::Fast), u64::MAX / 2),
        ];
        Database::open(state.path())
            .unwrap()
            .keep_costs(&kept)
            .unwrap();
        assert_eq!(Database::open(state.path()).unwrap().costs().unwrap(), kept);
        for mode in CostMode::ALL {
            kept[0] = cost(0, Some(mode), 8);
            let store = Database::open(state.path()).unwrap();
            store.keep_costs(&kept[..1]).unwrap();
            assert_eq!(store.costs().unwrap(), kept);
        }
    }

    #[test]
    fn names_a_value_from_another_hand() {
        let state = tempfile::tempdir().unwrap();
        let store = Database::open(state.path()).unwrap();
        store
            .with(|c| c.execute("INSERT INTO cost VALUES (1, 'free', 1, 1, 0, 0)", []))
            .unwrap();
        assert!(store.costs().unwrap_err().to_string().contains("free"));
    }

    #[test]
    fn budgets_are_the_designs() {
        let figures = CostMode::ALL.map(|mode| {
            let b = mode.budgets();
            (b.session_bytes, b.uncompacted_turns, b.tool_result_bytes)
        });
        assert_eq!(
            figures,
            [
                (500_000, 5, Some(4_000)),
                (2_000_000, 20, Some(16_000)),
                (8_000_000, 100, None)
            ]
        );
    }
}
