//! What daemon and client share: where things are, what an entry may name, and what they say to each other.
//!
//! An answer is one type here: the daemon makes it, its JSON Schema is derived from it ([`schema`]), the client reads
//! it.

mod agents;
mod cost;
mod costs;
mod http;
mod login;
mod named;
mod notices;
mod operator;
mod overview;
pub mod paths;
mod priv_mode;
pub mod schema;
mod sentence;
mod servers;
mod status;
mod tap;
mod tasks;

pub use agents::{
    AgentEvent, AgentEventsAsked, AgentFacts, AgentInstance, AgentState, Agents, OneAgent, SpawnAsked, StopAsked,
};
pub use cost::{Budgets, CostMode, CostModeSet, CostSetBy, Spending};
pub use costs::{Cost, CostRow, Costs, CostsAsked, CostsBy, Day};
pub use http::{authority, check_header_name, check_url, is_header_value};
pub use login::{LoggedIn, LoggedOut, LoginAsked, LoginFinishAsked, LoginStep, LogoutAsked};
pub use named::UnknownName;
pub use notices::{Notice, NoticeEvent, NoticeTold, NoticesDropped, WatchingNotices};
pub use operator::{
    Approval, Approvals, BlockedServer, Decided, DecisionAsked, PinAcceptAsked, PinDiffAsked, PinDiffs, PinList,
    PinRow, PinSeen, PinState, PinSubject, PinsAccepted, PinsAsked, Reloaded, RestartAsked, Restarted,
};
pub use overview::{CallCounts, Overview, OverviewServer, Spender, TrailFacts, TrailRow};
pub use priv_mode::{HELPER, PrivMode};
pub use sentence::{first_sentence, written_sentence};
pub use servers::{
    FoundTool, FoundTools, ServerFacts, ServerIsolation, ServerJail, ServerProcess, ServerState, ServerTool,
    ServerTools, ServerTransport, Servers, UNBOUNDED_MOUNT, UnseenServer, others,
};
pub use status::{DaemonFacts, OpenGates, RegistryFacts, ServerCounts, Snapshot, Status};
pub use tap::{Direction, OverviewAsked, StreamEnded, TapAsked, TapClient, TapDropped, TapFrame, Tapping};
pub use tasks::{
    CreatedTask, NewTask, NextTask, OneTask, PERSON, Schedule, ScheduledCall, ScheduledWork, Schedules, Skill,
    SkillProblem, Skills, Task, TaskChanged, TaskShare, TaskStatus, Tasks, TasksDropped, Timing, WatchTasksAsked,
    WatchingTasks,
};
