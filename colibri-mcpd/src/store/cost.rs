//! Cost mode: how much a session may spend, as the operator or an assistant last set it.

use super::{Error, Store, unexpected};
use rusqlite::OptionalExtension;
use serde::Serialize;

/// How generous the budgets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum CostMode {
    /// Small budgets.
    Fast,
    /// The default.
    #[default]
    Smart,
    /// Large budgets.
    Max,
}

/// What a session may spend in a mode. Reported, not yet enforced on relayed results.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Budgets {
    /// Bytes of a whole session.
    pub session_bytes: u64,
    /// Turns kept before older ones are to be compacted.
    pub uncompacted_turns: u32,
    /// Bytes of one tool result; `None`: unlimited.
    pub tool_result_bytes: Option<u64>,
}

impl CostMode {
    /// All modes, smallest budgets first.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Smart, Self::Max];

    /// The name: `fast`, `smart` or `max`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Smart => "smart",
            Self::Max => "max",
        }
    }

    /// The mode of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// What the mode allows.
    pub fn budgets(self) -> Budgets {
        let (session_bytes, uncompacted_turns, tool_result_bytes) = match self {
            Self::Fast => (500_000, 5, Some(4_000)),
            Self::Smart => (2_000_000, 20, Some(16_000)),
            Self::Max => (8_000_000, 100, None),
        };
        Budgets {
            session_bytes,
            uncompacted_turns,
            tool_result_bytes,
        }
    }
}

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
                CostMode::from_name(&name).ok_or_else(|| unexpected(0, format!("no cost mode: {name:?}")))
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
