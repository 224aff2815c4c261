//! What daemon and client share: where things are, and what they say to each other.
//!
//! An answer is one type here: the daemon makes it, its JSON Schema is derived from it ([`schema`]), the client reads it.

mod cost;
mod operator;
mod overview;
pub mod paths;
mod priv_mode;
pub mod schema;
mod servers;
mod status;
mod tasks;

pub use cost::{Budgets, CostMode, CostModeSet};
pub use operator::{
    Approval, Approvals, BlockedServer, Decided, PinAccepted, PinDiffs, PinList, PinRow, PinState, PinsAccepted,
    Reloaded,
};
pub use overview::{CallCounts, Overview, OverviewServer, TrailFacts, TrailRow};
pub use priv_mode::{HELPER, PrivMode, UnknownPrivMode};
pub use servers::{
    ServerFacts, ServerIsolation, ServerJail, ServerProcess, ServerState, ServerTool, ServerTools, ServerTransport,
    Servers, UnseenServer,
};
pub use status::{DaemonFacts, OpenGates, RegistryFacts, ServerCounts, Snapshot, Status};
pub use tasks::{CreatedTask, Skill, SkillProblem, Skills, Task, TaskStatus, Tasks};
