//! Agents: what `colibri/agents`, `colibri/spawn-agent`, `colibri/stop-agent` and
//! `colibri/agent-events` ask and answer.

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

use crate::named::named;
use crate::tasks::TaskStatus;

named! {
    /// The activity of an agent, as its events and calls show.
    pub enum AgentState {
        /// It has started, or waits for something to do.
        Idle = "idle",
        /// It works.
        Working = "working",
        /// A call of it waits for a person.
        Blocked = "blocked",
        /// It says that it is done, or has ended well.
        Done = "done",
        /// It says that it failed, or has ended badly.
        Error = "error",
    }
}

/// An instance of an agent, running or ended.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentInstance {
    /// Its session: sixteen lower-case hex digits.
    pub id: String,
    /// The agent's id in the registry.
    pub agent: String,
    /// For whom it runs.
    pub uid: u32,
    /// The host on which it runs, where many share the board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The name of that person on that board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub person: Option<String>,
    /// The task that it works on.
    pub task: Option<u64>,
    /// The status of that task after the instance's end; `None` while it runs.
    pub task_status: Option<TaskStatus>,
    /// Its activity.
    pub state: AgentState,
    /// No event for longer than its entry's `stall_after_s`.
    pub stalled: bool,
    /// A person should look: it failed, waits for somebody, or is stalled.
    pub attention: bool,
    /// The reason for this state, where there is more to say.
    pub reason: Option<String>,
    /// Its own events' name of its session.
    pub session_id: Option<String>,
    /// Milliseconds since the epoch.
    pub started_at: u64,
    /// Milliseconds since the epoch; `None`: it runs.
    pub ended_at: Option<u64>,
    /// The way in which its process ended.
    pub exit: Option<String>,
    /// Milliseconds since the epoch.
    pub last_event_at: Option<u64>,
    /// Events that it wrote.
    pub events: u64,
    /// Lines that it wrote and that are no events.
    pub skipped_lines: u64,
    /// Calls through its agent socket.
    pub calls: u64,
    /// Calls of it that wait for a person.
    pub approvals: u64,
    /// Bytes of answers through its agent socket.
    pub bytes: u64,
    /// Tokens that its model read.
    pub tokens_in: u64,
    /// Tokens that its model wrote.
    pub tokens_out: u64,
    /// The jail's name; `None`: it runs on the host.
    pub jail: Option<String>,
    /// The policy says `"bounded": false` of a mount of that jail.
    #[serde(default)]
    pub unbounded: bool,
    /// Its working directory, in the jail.
    pub cwd: String,
}

/// An agent of the registry.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct AgentFacts {
    /// Its id.
    pub agent: String,
    /// The capabilities it has.
    pub capabilities: Vec<String>,
    /// The most instances at a time.
    pub max: u32,
    /// The number that run.
    pub running: u32,
    /// True if it runs in a jail.
    pub jailed: bool,
    /// True if it has a model behind the daemon's relay.
    pub model: bool,
    /// True if it is started by itself when a task fits it.
    pub autospawn: bool,
    /// The reason for which no instance is started.
    pub refusal: Option<String>,
}

/// The answer to `colibri/agents`: what the caller may see of them.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct AgentsResponse {
    /// The agents that the caller may have run.
    pub agents: Vec<AgentFacts>,
    /// Their instances, those that run first, the newest first; then those that run on other hosts
    /// of the board.
    pub instances: Vec<AgentInstance>,
    /// This host, where others share its board.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
}

/// The parameters of `colibri/spawn-agent`: an instance for the caller, for a task of the caller's,
/// a prompt that becomes one, or the next task.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SpawnAgentRequest {
    /// The agent's id.
    pub agent: String,
    /// A queued task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub task: Option<u64>,
    /// The work; becomes a task.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prompt: Option<String>,
}

/// The parameters of `colibri/stop-agent`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct StopAgentRequest {
    /// The instance.
    pub id: String,
}

/// The answer to `colibri/spawn-agent` and `colibri/stop-agent`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct OneAgent {
    /// The instance as it is now.
    pub instance: AgentInstance,
}

/// The parameters of `colibri/agent-events`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AgentEventsRequest {
    /// The instance.
    pub id: String,
    /// The first event that is wanted; they are numbered from 1.
    #[serde(default)]
    pub from: u64,
    /// Go on until it has ended, not only until the last event so far.
    #[serde(default)]
    pub follow: bool,
}

/// One event of an agent: a notification `colibri/agent-event`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct AgentEvent {
    /// The instance.
    pub id: String,
    /// Its number, from 1.
    pub n: u64,
    /// The time at which it was read. Milliseconds since the epoch.
    pub at: u64,
    /// The agent's state after it.
    pub state: AgentState,
    /// The line as the agent wrote it: one JSON object.
    pub event: Box<RawValue>,
}
