//! Cost mode: how much a session may spend, as the operator or an assistant last set it.

use super::database::{Store, unexpected};
use super::error::Error;
use colibri_api::CostMode;
use rusqlite::OptionalExtension;

impl Store {
    /// The mode last set; `smart` if none was.
    ///
    /// # Errors
    /// [`Error::Sqlite`].
    pub fn cost_mode(&self) -> Result<CostMode, Error> {
        self.with(|connection| {
            let name: Option<String> = connection
                .prepare_cached("SELECT value FROM settings WHERE name = 'cost_mode'")?
                .query_row([], |row| row.get(0))
                .optional()?;
            name.map_or(Ok(CostMode::default()), |name| {
                name.parse()
                    .map_err(|_| unexpected(0, format!("no cost mode: {name:?}")))
            })
        })
    }

    /// Sets the mode for all, until it is set again.
    ///
    /// # Errors
    /// [`Error::Sqlite`].
    pub fn set_cost_mode(&self, mode: CostMode) -> Result<(), Error> {
        self.with(|connection| {
            connection
                .prepare_cached("INSERT OR REPLACE INTO settings (name, value) VALUES ('cost_mode', ?1)")?
                .execute([mode.name()])
                .map(|_| ())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn persists() {
        let state = tempfile::tempdir().unwrap();
        for mode in CostMode::ALL {
            Store::open(state.path()).unwrap().set_cost_mode(mode).unwrap();
            assert_eq!(Store::open(state.path()).unwrap().cost_mode().unwrap(), mode);
        }
    }

    #[test]
    fn names_a_value_from_another_hand() {
        let state = tempfile::tempdir().unwrap();
        let store = Store::open(state.path()).unwrap();
        store
            .with(|c| c.execute("INSERT INTO settings VALUES ('cost_mode', 'free')", []))
            .unwrap();
        assert!(store.cost_mode().unwrap_err().to_string().contains("free"));
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
