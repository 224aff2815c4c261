//! The cost mode, and what it allows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

/// How generous the budgets are.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize, JsonSchema)]
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

impl CostMode {
    /// All modes, smallest budgets first.
    pub const ALL: [Self; 3] = [Self::Fast, Self::Smart, Self::Max];

    /// The name: `fast`, `smart` or `max`.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Smart => "smart",
            Self::Max => "max",
        }
    }

    /// The mode of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// What the mode allows.
    #[must_use]
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

/// What a session may spend in a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Budgets {
    /// Bytes of a whole session.
    pub session_bytes: u64,
    /// Turns kept before older ones are to be compacted.
    pub uncompacted_turns: u32,
    /// Bytes of one tool result; null: unlimited.
    pub tool_result_bytes: Option<u64>,
}

/// The answer of `colibri_set_cost_mode`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CostModeSet {
    /// As it is now.
    pub mode: CostMode,
    /// What it allows.
    pub budgets: Budgets,
}
