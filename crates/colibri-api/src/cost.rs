//! The cost mode, and what it allows.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::named::named;

named! {
    /// The generosity of the budgets.
    #[derive(Default)]
    pub enum CostMode {
        /// Small budgets.
        Fast = "fast",
        /// The default.
        #[default]
        Smart = "smart",
        /// Large budgets.
        Max = "max",
    }
}

impl CostMode {
    /// The budgets of the mode.
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

/// The budgets of a session in a mode.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Budgets {
    /// Bytes of a whole session.
    pub session_bytes: u64,
    /// The number of turns kept before older ones are to be compacted.
    pub uncompacted_turns: u32,
    /// Bytes of one tool result; null: unlimited.
    pub tool_result_bytes: Option<u64>,
}

named! {
    /// The setter of a cost mode. The later in this list, the nearer: that one counts.
    #[derive(Default)]
    pub enum CostSetBy {
        /// Nobody: it is reported, and nothing is held back, but for agents.
        #[default]
        Nobody = "nobody",
        /// The daemon's own configuration, for all.
        Daemon = "daemon",
        /// The operator, in clients.json.
        Policy = "policy",
        /// The user.
        User = "user",
    }
}

/// The caller's usage, and the rest.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CostUsage {
    /// True if the mode holds anything back.
    pub acts: bool,
    /// The setter of the mode.
    pub set_by: CostSetBy,
    /// The mode as it was set; above it is one that went up at its budget.
    pub set: CostMode,
    /// True if it goes up where its budget is spent.
    pub escalates: bool,
    /// Bytes of answers: of a person today (UTC), of an agent's instance since its start.
    pub spent_bytes: u64,
    /// Of these, bytes that the mode does not count: those from before it was chosen.
    #[serde(default)]
    pub before_bytes: u64,
    /// The time at which the mode was chosen, if it counts from then on, in milliseconds since the epoch; null: it
    /// counts all.
    #[serde(default)]
    pub chosen_at: Option<u64>,
    /// Bytes that are left in all; null: any number.
    pub left_bytes: Option<u64>,
    /// The least larger mode that the caller may set now, and that leaves more; null: none.
    #[serde(default)]
    pub larger: Option<CostMode>,
    /// The time at which the count begins anew, in milliseconds since the epoch; null: never, as with an agent's
    /// instance.
    pub until: Option<u64>,
}

/// The answer of `colibri_set_cost_mode`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct CostModeSet {
    /// As it is in force now.
    pub mode: CostMode,
    /// Its budgets.
    pub budgets: Budgets,
    /// The usage, and the rest.
    pub spending: CostUsage,
}
