//! The daemon, as `colibri_status` and `colibri_snapshot` tell it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::servers::{ServerFacts, ServerState};
use crate::tasks::TaskStatus;

/// Which gates are open for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OpenGates {
    /// Colibri's own tools that change something.
    pub write: bool,
    /// Calls of hosted servers' tools.
    pub external_call: bool,
}

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

/// The registry of hosted servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RegistryFacts {
    /// Where it is.
    pub path: String,
    /// Why it could not be loaded, or reloaded.
    pub error: Option<String>,
}

/// What status and snapshot share.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
pub struct DaemonFacts {
    /// The daemon's version.
    pub version: String,
    /// Seconds since it started.
    pub uptime_s: u64,
    /// Its socket.
    pub socket: String,
    /// The gates as they are for the caller.
    pub gates: OpenGates,
    /// Whether only jailed servers are started.
    pub require_jail: bool,
    /// Connected clients.
    pub clients: u64,
    /// How generous the budgets are.
    pub cost_mode: CostMode,
    /// What a session may spend.
    pub budgets: Budgets,
    /// The registry of hosted servers.
    pub registry: RegistryFacts,
    /// Why calls are refused, where they cannot be recorded.
    #[serde(default)]
    pub trail_error: Option<String>,
    /// Calls that wait for a person: the caller's own, for operators all.
    #[serde(default)]
    pub approvals_waiting: u64,
    /// What is not offered because its name was taken.
    #[serde(default)]
    pub collisions: Vec<String>,
    /// Names of servers and tools that could be taken for others.
    #[serde(default)]
    pub look_alikes: Vec<String>,
}

/// The hosted servers, counted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ServerCounts {
    /// All of them.
    pub total: u64,
    /// How many are in which state.
    pub by_state: BTreeMap<ServerState, u64>,
    /// Tools that are not offered: their definitions are not as approved.
    #[serde(default)]
    pub tools_blocked: u64,
    /// Servers whose instructions are not as approved.
    #[serde(default)]
    pub instructions_blocked: u64,
}

/// The answer of `colibri_status`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Status {
    /// The daemon itself.
    #[serde(flatten)]
    pub daemon: DaemonFacts,
    /// The hosted servers, counted.
    pub servers: ServerCounts,
}

/// The answer of `colibri_snapshot`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Snapshot {
    /// The daemon itself.
    #[serde(flatten)]
    pub daemon: DaemonFacts,
    /// The hosted servers.
    pub servers: Vec<ServerFacts>,
    /// How many tasks stand where.
    pub tasks_by_status: BTreeMap<TaskStatus, u64>,
}
