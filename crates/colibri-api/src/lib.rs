//! What daemon and client share: where things are, what an entry may name, and what they say to each other.
//!
//! An answer is one type here: the daemon makes it, its JSON Schema is derived from it ([`schema`]), the client reads
//! it.

mod cost;
mod http;
mod login;
mod named;
mod operator;
mod overview;
pub mod paths;
mod priv_mode;
pub mod schema;
mod servers;
mod status;
mod tap;
mod tasks;

pub use cost::{Budgets, CostMode, CostModeSet};
pub use http::{check_header_name, check_url, is_header_value};
pub use login::{LoggedIn, LoggedOut, LoginAsked, LoginFinishAsked, LoginStep, LogoutAsked};
pub use named::UnknownName;
pub use operator::{
    Approval, Approvals, BlockedServer, Decided, DecisionAsked, PinAcceptAsked, PinDiffAsked, PinDiffs, PinList,
    PinRow, PinSeen, PinState, PinSubject, PinsAccepted, PinsAsked, Reloaded, RestartAsked, Restarted,
};
pub use overview::{CallCounts, Overview, OverviewServer, TrailFacts, TrailRow};
pub use priv_mode::{HELPER, PrivMode};
pub use servers::{
    ServerFacts, ServerIsolation, ServerJail, ServerProcess, ServerState, ServerTool, ServerTools, ServerTransport,
    Servers, UnseenServer, others,
};
pub use status::{DaemonFacts, OpenGates, RegistryFacts, ServerCounts, Snapshot, Status};
pub use tap::{Direction, OverviewAsked, StreamEnded, TapAsked, TapClient, TapDropped, TapFrame, Tapping};
pub use tasks::{CreatedTask, NewTask, Skill, SkillProblem, Skills, Task, TaskStatus, Tasks};
