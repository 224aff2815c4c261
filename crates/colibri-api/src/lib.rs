//! Everything that daemon and client share: paths, the rules for entries, and the messages between
//! them.
//!
//! An answer is one type here: the daemon makes it, its JSON Schema is derived from it
//! ([`schema`]), the client reads it.

mod agents;
mod cost;
mod costs;
mod depth;
mod host_name;
mod http;
mod installed;
mod login;
mod may;
mod named;
mod notices;
mod operator;
mod overview;
pub mod paths;
mod priv_mode;
pub mod schema;
pub mod script;
mod sentence;
mod servers;
mod status;
mod tasks;
mod watch;

pub use agents::{
    AgentEvent, AgentEventsRequest, AgentFacts, AgentInstance, AgentState, AgentsResponse,
    OneAgent, SpawnAgentRequest, StopAgentRequest,
};
pub use cost::{Budgets, CostMode, CostModeSet, CostSetBy, CostUsage};
pub use costs::{CostDay, CostRow, CostSum, Costs, CostsBy, CostsRequest};
pub use depth::json_depth;
pub use host_name::is_host_name;
pub use http::{authority, check_header_name, check_url, is_header_value};
pub use installed::{BUNDLE_DIRECTORY, InstalledPackage, PackageFault, complete_command};
pub use login::{
    LoggedIn, LoggedOut, LoginFinishRequest, LoginStartRequest, LoginStep, LogoutRequest,
};
pub use may::{MayCalls, MayPattern, ProposeMayRequest, ProposeMayResponse, ProposedTool};
pub use named::UnknownName;
pub use notices::{Notice, NoticeEvent, NoticeNotification};
pub use operator::{
    Approval, ApprovalsResponse, BlockedServer, DecisionRequest, DecisionResponse,
    PinAcceptRequest, PinDiffRequest, PinDiffs, PinList, PinRow, PinSeen, PinState, PinSubject,
    PinsAccepted, PinsRequest, ReloadResponse, RestartRequest, RestartResponse,
};
pub use overview::{
    CallCounts, Overview, OverviewRequest, OverviewServer, Spender, TrailFacts, TrailRow,
};
pub use priv_mode::{HELPER, PrivMode};
pub use sentence::{first_sentence, written_sentence};
pub use servers::{
    FoundTool, FoundTools, ServerElsewhere, ServerFacts, ServerIsolation, ServerJail,
    ServerProcess, ServerState, ServerTool, ServerTools, ServerTransport, Servers, UNBOUNDED_MOUNT,
    UnseenServer, others,
};
pub use status::{DaemonFacts, OpenGates, RegistryFacts, ServerCounts, Snapshot, Status};
pub use tasks::{
    CreatedTask, NewTask, NextTask, OneTask, PERSON, Schedule, ScheduledCall, ScheduledWork,
    Schedules, Skill, SkillProblem, Skills, Task, TaskChanged, TaskLimits, TaskShare, TaskStatus,
    Tasks, Timing,
};
pub use watch::{
    Direction, StreamEnded, TapClient, TapFrame, WatchLagged, WatchRequest, WatchSubscribed,
    WatchedServer,
};
