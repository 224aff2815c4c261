//! The daemon, as `colibri_status` and `colibri_snapshot` tell it.

use std::collections::BTreeMap;

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use crate::agents::AgentState;
use crate::cost::{Budgets, CostMode, CostUsage};
use crate::servers::{ServerFacts, ServerState};
use crate::tasks::TaskStatus;

/// The gates that are open for the caller.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct OpenGates {
    /// Colibri's own tools that change something.
    pub write: bool,
    /// Calls of hosted servers' tools.
    pub external_call: bool,
}

/// The registry of hosted servers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct RegistryFacts {
    /// Its address.
    pub path: String,
    /// The reason for which it could not be loaded, or reloaded.
    pub error: Option<String>,
}

/// The facts that status and snapshot share.
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
    /// True if it is one user's own: that user opens its write gate, by `colibri-mcp tasks enable`.
    #[serde(default)]
    pub private: bool,
    /// True if only jailed servers are started.
    pub require_jail: bool,
    /// Connected clients.
    pub clients: u64,
    /// Those of them that speak HTTP rather than lines.
    #[serde(default)]
    pub clients_http: u64,
    /// Sessions over HTTP.
    #[serde(default)]
    pub http_sessions: u64,
    /// The generosity of the caller's budgets, now.
    pub cost_mode: CostMode,
    /// The budgets of a session.
    pub budgets: Budgets,
    /// The caller's usage, and the rest.
    #[serde(default)]
    pub spending: CostUsage,
    /// The registry of hosted servers.
    pub registry: RegistryFacts,
    /// The reason for which calls are refused, where they cannot be recorded.
    #[serde(default)]
    pub trail_error: Option<String>,
    /// Calls that wait for a person: the caller's own, for operators all.
    #[serde(default)]
    pub approvals_waiting: u64,
    /// Instances of agents that run, by what they do: the caller's own, for operators all.
    #[serde(default)]
    pub agents_by_state: BTreeMap<AgentState, u64>,
    /// Those of them in a jail with a mount of which the policy says `"bounded": false`.
    #[serde(default)]
    pub agents_unbounded: u64,
    /// The items that are not advertised because their name was taken.
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
    /// The number of servers in each state.
    pub by_state: BTreeMap<ServerState, u64>,
    /// Tools that are not offered: their definitions are not as approved.
    #[serde(default)]
    pub tools_blocked: u64,
    /// Prompts, resources and templates that are not offered: their definitions are not as approved.
    #[serde(default)]
    pub others_blocked: u64,
    /// Servers whose instructions are not as approved.
    #[serde(default)]
    pub instructions_blocked: u64,
    /// Servers that run in a jail with a mount of which the policy says `"bounded": false`.
    #[serde(default)]
    pub unbounded: u64,
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
    /// The number of tasks in each status.
    pub tasks_by_status: BTreeMap<TaskStatus, u64>,
}
