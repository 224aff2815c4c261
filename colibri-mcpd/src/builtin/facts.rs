//! What the daemon tells the tools about itself and about the caller.

use crate::policy::CallerGates;
use serde::Serialize;
use std::borrow::Cow;
use std::path::Path;

/// How a server is reached.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerTransport {
    /// A process on the host.
    Host,
    /// A process in a jail.
    Jail,
    /// Streamable HTTP.
    Url,
}

/// The states that a user can see.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ServerState {
    /// Not running; the next call starts it.
    Stopped,
    /// Between its start and the end of its handshake.
    Starting,
    /// Serving.
    Ready,
    /// Failed repeatedly; the next start waits.
    #[serde(rename = "backing off")]
    BackingOff,
    /// Kept from serving by policy, a pin or a name collision.
    Blocked,
    /// Cannot serve until something is repaired.
    Failed,
}

impl ServerState {
    /// All states.
    pub const ALL: [Self; 6] = [
        Self::Stopped,
        Self::Starting,
        Self::Ready,
        Self::BackingOff,
        Self::Blocked,
        Self::Failed,
    ];

    /// The name, as in every answer.
    pub fn name(self) -> &'static str {
        match self {
            Self::Stopped => "stopped",
            Self::Starting => "starting",
            Self::Ready => "ready",
            Self::BackingOff => "backing off",
            Self::Blocked => "blocked",
            Self::Failed => "failed",
        }
    }
}

/// One running process of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ProcessFacts {
    /// Process id, on the host; `None` for a url server.
    pub pid: Option<u32>,
    /// The uid for which it runs (isolation `user`), if it is one's alone.
    pub uid: Option<u32>,
    /// Calls it is working on.
    pub in_flight: u64,
    /// The protocol version agreed with it; `None` before its handshake has ended.
    pub version: Option<String>,
    /// When it was started, in milliseconds since the epoch.
    pub started: i64,
    /// How many processes it consists of, itself included; `None` where the system does not show them.
    pub count: Option<usize>,
    /// The jail it runs in, by name: a persistent one, or its own.
    pub jail: Option<String>,
    /// The number of that jail.
    pub jid: Option<i32>,
}

/// The jail of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct JailFacts {
    /// Name of a persistent jail, or what stands for an ephemeral one's (`ephemeral`).
    pub name: String,
    /// `none`, the addresses, or `host network`.
    pub network: String,
}

/// One external server. All text is shown to users: no secret value may be in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ServerFacts {
    /// Its id in the registry.
    pub id: String,
    /// How it is reached.
    pub transport: ServerTransport,
    /// How it is.
    pub state: ServerState,
    /// Why it is not well, and what to do.
    pub reason: Option<String>,
    /// When it came into this state, in milliseconds since the epoch.
    pub since: i64,
    /// `user`, `shared`, `client` or `call`.
    pub isolation: &'static str,
    /// How many tools it has, as last seen.
    pub tools: u64,
    /// How many of them are not offered, because their definitions are not as approved.
    pub tools_blocked: u64,
    /// Whether its instructions are left out for the same reason.
    pub instructions_blocked: bool,
    /// Its running processes.
    pub processes: Vec<ProcessFacts>,
    /// Its jail.
    pub jail: Option<JailFacts>,
}

/// A server whose tools are not known, because it was never seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct UnseenServer {
    /// Its id.
    pub server: String,
    /// How it is.
    pub state: &'static str,
    /// Why it is not well.
    pub reason: Option<String>,
}

/// A tool of an external server, as this caller sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ExternalTool<'a> {
    /// The exposed name, `server__tool`.
    pub name: Cow<'a, str>,
    /// The server's id.
    pub server: Cow<'a, str>,
    /// The server's own name of the tool.
    pub tool: Cow<'a, str>,
    /// The raw JSON of its definition, as the server sent it.
    pub definition: Cow<'a, [u8]>,
}

/// What the tools ask the daemon, for the caller of one call. Servers and tools that policy hides from this caller are
/// not in it.
pub trait Facts {
    /// Seconds since the daemon started.
    fn uptime_s(&self) -> u64;
    /// The daemon's version.
    fn version(&self) -> &str;
    /// The socket's path.
    fn socket(&self) -> &Path;
    /// The gates as they stand for this caller.
    fn gates(&self) -> CallerGates;
    /// Connected clients.
    fn clients(&self) -> u64;
    /// Whether only jailed servers are started.
    fn require_jail(&self) -> bool;
    /// The registry's path.
    fn registry_path(&self) -> &Path;
    /// Why the registry could not be loaded, or reloaded.
    fn registry_error(&self) -> Option<String>;
    /// Why calls are refused, where they cannot be recorded.
    fn trail_error(&self) -> Option<String>;
    /// The servers, by id.
    fn servers(&self) -> Vec<ServerFacts>;
    /// Calls that wait for a person: all of them for an operator, the caller's own for others.
    fn approvals_waiting(&self) -> u64;
    /// Name collisions: what is not offered because its name was taken, a sentence each.
    fn collisions(&self) -> Vec<String>;
    /// Names that could be taken for others, a sentence each.
    fn look_alikes(&self) -> Vec<String>;
    /// The servers whose tools are not known.
    fn unseen(&self) -> Vec<UnseenServer>;
    /// The external tools in the order of `tools/list`.
    fn external_tools(&self) -> Box<dyn Iterator<Item = ExternalTool<'_>> + '_>;
}
