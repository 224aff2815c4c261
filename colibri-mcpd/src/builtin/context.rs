//! The context of one call of a tool: the daemon as its caller sees it. Servers and tools that
//! policy hides from this caller are not in it.

use bytes::Bytes;
use colibri_api::{
    CostMode, DaemonFacts, FoundTools, ServerFacts, Task, TaskLimits, TaskShare, UnseenServer,
};
use colibri_protocol::Failure;

use super::skills::SkillDirectories;
use crate::board::{Board, BoardActor};
use crate::relay::{self, ClientFlow};
use crate::results::{ResultOwner, Results};

/// The daemon and its servers.
#[derive(Debug, Clone)]
pub struct DaemonView {
    /// The daemon.
    pub daemon: DaemonFacts,
    /// The servers, by id. All text is shown to users: no secret value may be in it.
    pub servers: Vec<ServerFacts>,
}

/// The advertised tools of external servers.
#[derive(Debug, Clone)]
pub struct AdvertisedTools {
    /// The ids of all servers.
    pub servers: Vec<String>,
    /// The tools in the order of `tools/list`.
    pub tools: Vec<ExternalTool>,
    /// The servers whose tools are not known.
    pub unseen: Vec<UnseenServer>,
}

/// A tool of an external server.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalTool {
    /// The exposed name, `server__tool`.
    pub name: String,
    /// The server's id.
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// The raw JSON of its definition, as the server sent it.
    pub definition: Bytes,
}

/// Everything that a call needs.
#[derive(Clone, Copy)]
pub struct BuiltinContext<'a> {
    /// The daemon and its servers, as this caller sees them.
    pub look: &'a dyn Fn() -> DaemonView,
    /// The tools advertised to this caller.
    pub offered: &'a dyn Fn() -> AdvertisedTools,
    /// Sets the caller's cost mode; `None`: takes back what they set.
    pub set_cost_mode: &'a dyn Fn(Option<CostMode>) -> Result<(), Failure>,
    /// The id of the server that this caller means by a name: an account, where policy says which
    /// one.
    pub server_meant: &'a dyn Fn(&str) -> Result<String, Failure>,
    /// The tools that fit a query best, of all servers or of one, and not more than so many.
    pub find: &'a Find<'a>,
    /// The definition of a tool that this caller may see, as its client's version of MCP is listed
    /// it.
    pub definition: &'a dyn Fn(&str) -> Option<Bytes>,
    /// Tasks.
    pub board: &'a Board,
    /// With whom a task can be shared under a name.
    pub share: &'a ParseShare<'a>,
    /// The skill directories.
    pub skills: &'a SkillDirectories,
    /// Results over their limit, and the most bytes that an answer with a piece of one may have, if
    /// there is a limit.
    pub results: (&'a Results, Option<relay::cost::AnswerLimit>),
    /// The owner of the results that may be read.
    pub owner: &'a ResultOwner,
    /// The limits of the caller's session.
    pub flow: Option<ClientFlow<'a>>,
    /// The caller, from the kernel; for an agent's instance the person for whom it runs.
    pub who: BoardActor<'a>,
}

impl BuiltinContext<'_> {
    /// The limits of a task that the caller makes by a tool: its session's.
    pub(super) fn inherited(&self) -> TaskLimits {
        self.flow.map(ClientFlow::inherited).unwrap_or_default()
    }

    /// The caller has claimed this task, or goes on with it.
    pub(super) fn claims(&self, task: &Task) {
        if let Some(flow) = self.flow {
            flow.claim(task);
        }
    }
}

/// Finds tools that fit a query, of all servers or of one, and not more than so many.
pub(super) type Find<'a> = dyn Fn(&str, Option<&str>, usize) -> Result<FoundTools, Failure> + 'a;

/// With whom a caller can share a task: `all`, or the name of one of their groups.
pub(super) type ParseShare<'a> = dyn Fn(&str) -> Result<TaskShare, Failure> + 'a;
