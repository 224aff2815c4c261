//! The state of everything at one time, for operators: `colibri/overview`, which `colibri-mcp
//! glasspane` shows.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::cost::CostMode;
use crate::operator::Approval;
use crate::servers::ServerState;

/// The parameters of `colibri/overview`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OverviewRequest {
    /// The number of the trail's last records.
    #[serde(default)]
    pub tail: u64,
}

/// The answer to `colibri/overview`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Overview {
    /// The daemon's version.
    pub version: String,
    /// Milliseconds since the epoch, by the daemon's clock.
    pub time: u64,
    /// Seconds since the daemon started.
    pub uptime_s: u64,
    /// True if the write gate is open.
    pub write_gate: bool,
    /// True if the external-call gate is open.
    pub external_gate: bool,
    /// Connected clients.
    pub clients: u64,
    /// Calls in flight, of all clients.
    pub in_flight: u64,
    /// Bytes queued towards clients.
    #[serde(default)]
    pub queued: u64,
    /// Bytes of memory, where the system says so.
    pub resident: Option<u64>,
    /// The reason for which the registry could not be loaded, or reloaded.
    pub registry_error: Option<String>,
    /// The directory of store and trail.
    #[serde(default)]
    pub state_dir: Option<String>,
    /// The daemon itself under the id `colibri`, and the hosted servers.
    pub servers: Vec<OverviewServer>,
    /// Calls that wait for a person.
    pub approvals: Vec<Approval>,
    /// The receivers of answers: people today (UTC), agents' instances that run since their start.
    /// Who had most comes first.
    #[serde(default)]
    pub spenders: Vec<Spender>,
    /// The trail; `None`: there is none.
    pub trail: Option<TrailFacts>,
}

/// Somebody who has had answers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Spender {
    /// The person, or for whom the agent runs.
    pub uid: u32,
    /// The agent; `None`: the person.
    #[serde(default)]
    pub agent: Option<String>,
    /// Its instance.
    #[serde(default)]
    pub session: Option<String>,
    /// The cost mode in force; `None`: none acts.
    pub mode: Option<CostMode>,
    /// Bytes of answers.
    pub spent_bytes: u64,
    /// Bytes that are left; `None`: any number.
    pub left_bytes: Option<u64>,
}

/// A server in an overview.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct OverviewServer {
    /// Its id.
    pub id: String,
    /// Its state; not of the daemon itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<ServerState>,
    /// The reason for which it is not well.
    #[serde(default)]
    pub reason: Option<String>,
    /// The time at which it came into this state. Milliseconds since the epoch.
    #[serde(default)]
    pub since: u64,
    /// The number of its tools, as last seen.
    #[serde(default)]
    pub tools: u64,
    /// The number of its prompts, as last seen.
    #[serde(default)]
    pub prompts: u64,
    /// The number of resources that it lists, as last seen.
    #[serde(default)]
    pub resources: u64,
    /// The number of templates of resources that it lists, as last seen.
    #[serde(default)]
    pub templates: u64,
    /// The number of its tools that are not as approved.
    #[serde(default)]
    pub blocked: u64,
    /// The number of its other items that are not.
    #[serde(default)]
    pub others_blocked: u64,
    /// True if its instructions are not as approved.
    #[serde(default)]
    pub instructions_blocked: bool,
    /// Its running processes.
    #[serde(default)]
    pub processes: u64,
    /// Calls they work on.
    #[serde(default)]
    pub in_flight: u64,
    /// Bytes queued towards them.
    #[serde(default)]
    pub queued: u64,
    /// Its calls since it was first there.
    pub calls: CallCounts,
}

/// Calls since the server's counters began.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct CallCounts {
    /// All that have ended.
    pub finished: u64,
    /// The time they took together.
    #[serde(default)]
    pub seconds: f64,
    /// Upper bound in seconds (the last has none), and the calls in this bucket alone.
    pub buckets: Vec<(Option<f64>, u64)>,
    /// Codes, and the calls that failed so.
    pub errors: Vec<(String, u64)>,
    /// Answers that nobody waited for: late, a second time, or to nothing that was asked.
    #[serde(default)]
    pub strays: u64,
    /// Requests of the server that went to clients.
    #[serde(default)]
    pub asked: u64,
}

/// The trail in an overview.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrailFacts {
    /// Records written.
    pub records: u64,
    /// The number of them on the disk.
    #[serde(default)]
    pub synced: u64,
    /// The number of them that a witness holds.
    pub witnessed: u64,
    /// The reason for which nothing can be written, if nothing can.
    pub failing: Option<String>,
    /// The last ones.
    #[serde(default)]
    pub tail: Vec<TrailRow>,
    /// The last ones of agents, whatever else has passed since: of the last thousand or so of all.
    #[serde(default)]
    pub agents: Vec<TrailRow>,
}

/// A record of the trail, as far as it is shown.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct TrailRow {
    /// Its number.
    pub n: u64,
    /// `enter`, `exit`, `event` and so on.
    pub kind: String,
    /// The time at which it was written.
    pub timestamp: String,
    /// The user of the call.
    pub uid: Option<u32>,
    /// The name that the client of the call declares of itself.
    #[serde(default)]
    pub client: Option<String>,
    /// The number of the record that the call began with; not of that one.
    #[serde(default)]
    pub enter: Option<u64>,
    /// Of the record that a call began with: the agent through whose agent socket it came.
    #[serde(default)]
    pub agent: Option<String>,
    /// That agent's instance.
    #[serde(default)]
    pub session: Option<String>,
    /// For whom that instance runs.
    #[serde(default, rename = "for")]
    pub for_uid: Option<u32>,
    /// The server.
    pub server: Option<String>,
    /// The server's own name of the tool.
    pub tool: Option<String>,
    /// The method.
    pub method: Option<String>,
    /// The end of the call.
    pub result: Option<String>,
    /// The code of its failure.
    pub error_code: Option<String>,
    /// Its duration.
    #[serde(default)]
    pub latency_ms: f64,
    /// The name of an event.
    pub event: Option<String>,
    /// More of an event.
    #[serde(default)]
    pub details: BTreeMap<String, Value>,
}
