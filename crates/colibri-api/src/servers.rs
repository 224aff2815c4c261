//! Hosted servers, as `colibri_external_mcp_servers`, `colibri_snapshot` and `colibri_external_mcp_list_tools` tell
//! them.

use colibri_text::counted;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::named::named;

named! {
    /// The transport of a server.
    pub enum ServerTransport {
        /// A process on the host.
        Host = "host",
        /// A process in a jail.
        Jail = "jail",
        /// Streamable HTTP.
        Url = "url",
        /// Another host's daemon, through ssh(1).
        Ssh = "ssh",
    }
}

named! {
    /// The states that a user can see.
    pub enum ServerState {
        /// Not running; the next call starts it.
        Stopped = "stopped",
        /// Between its start and the end of its handshake.
        Starting = "starting",
        /// Serving.
        Ready = "ready",
        /// Failed repeatedly; the next start waits.
        BackingOff = "backing off",
        /// Kept from serving by policy, a pin or a name collision.
        Blocked = "blocked",
        /// Cannot serve until something is repaired.
        Failed = "failed",
    }
}

named! {
    /// The callers that share a process of a server.
    #[derive(Default)]
    pub enum ServerIsolation {
        /// One process for each uid that calls.
        #[default]
        User = "user",
        /// One for all.
        Shared = "shared",
        /// One for each connection.
        Client = "client",
        /// One for each call.
        Call = "call",
    }
}

/// The note on a jail if the policy says `"bounded": false` of a mount of it.
pub const UNBOUNDED_MOUNT: &str = "unbounded mount";

/// A running process of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ServerProcess {
    /// Its process id, where it runs on this host.
    pub pid: Option<u32>,
    /// The uid for which it runs, if it is one's alone.
    pub uid: Option<u32>,
    /// Calls it is working on.
    #[serde(default)]
    pub in_flight: u64,
    /// The MCP version agreed with it.
    pub version: Option<String>,
    /// The time of its start. Milliseconds since 1970-01-01 UTC.
    #[serde(default)]
    pub started: u64,
    /// The number of its processes; null where the system does not show them.
    pub count: Option<u64>,
    /// The jail it runs in, by name.
    pub jail: Option<String>,
    /// The number of that jail.
    pub jid: Option<i32>,
    /// The policy says `"bounded": false` of a mount of that jail.
    #[serde(default)]
    pub unbounded: bool,
}

/// The jail of a server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ServerJail {
    /// Its name, or `ephemeral`.
    pub name: String,
    /// Its network.
    #[serde(default)]
    pub network: String,
}

/// The server of another host's daemon that a server is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ServerElsewhere {
    /// The host.
    pub host: String,
    /// Its id there.
    pub server: String,
    /// True if each user shows a key of their own; else all users are one client there.
    pub keys: bool,
}

/// A hosted server. All text is shown to users: no secret value may be in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ServerFacts {
    /// Its id in the registry.
    pub id: String,
    /// Its transport.
    pub transport: ServerTransport,
    /// Its state.
    pub state: ServerState,
    /// The reason for which it is not well, and the remedy.
    pub reason: Option<String>,
    /// The time at which it came into this state. Milliseconds since 1970-01-01 UTC.
    pub since: u64,
    /// The callers that share a process of it.
    #[serde(default)]
    pub isolation: ServerIsolation,
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
    /// Tools that are not offered: their definitions are not as approved.
    #[serde(default)]
    pub tools_blocked: u64,
    /// Prompts, resources and templates that are not offered: their definitions are not as approved.
    #[serde(default)]
    pub others_blocked: u64,
    /// Its instructions are not as approved.
    #[serde(default)]
    pub instructions_blocked: bool,
    /// Its running processes.
    #[serde(default)]
    pub processes: Vec<ServerProcess>,
    /// Its jail.
    pub jail: Option<ServerJail>,
    /// The host that has it, where that is another one.
    #[serde(default)]
    pub elsewhere: Option<ServerElsewhere>,
}

impl ServerFacts {
    /// Its items beyond tools, counted: nothing, or such as `, 1 prompt, 3 resources`.
    pub fn others(&self) -> String {
        others(self.prompts, self.resources, self.templates)
    }

    /// True if a mount of a running process's jail is not bounded.
    pub fn is_unbounded(&self) -> bool {
        self.processes.iter().any(|process| process.unbounded)
    }
}

/// So many prompts, resources and templates, after something else: nothing, or such as `, 1 prompt, 3 resources`.
pub fn others(prompts: u64, resources: u64, templates: u64) -> String {
    let all = [
        (prompts, "prompt"),
        (resources, "resource"),
        (templates, "template"),
    ];
    let some = all.into_iter().filter(|(count, _)| *count > 0);
    some.map(|(count, noun)| format!(", {}", counted(count, noun)))
        .collect()
}

/// The answer of `colibri_external_mcp_servers`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct Servers {
    /// One entry a server.
    pub servers: Vec<ServerFacts>,
}

/// A tool of a hosted server.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ServerTool {
    /// The name under which the tool is exposed.
    pub name: String,
    /// The server's id.
    pub server: String,
    /// The server's own name of the tool.
    pub tool: String,
    /// Its name for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub title: Option<String>,
    /// Its description, in the server's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub description: Option<String>,
    /// The JSON Schema of its arguments.
    #[schemars(with = "serde_json::Map<String, Value>")]
    pub input_schema: Value,
}

/// The answer of `colibri_external_mcp_list_tools`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct ServerTools {
    /// The tools.
    pub tools: Vec<ServerTool>,
    /// Tools for which the answer had no room: ask for one server at a time.
    #[serde(default)]
    pub left_out: u64,
    /// Tools whose definitions are no JSON objects.
    #[serde(default)]
    pub unlistable: u64,
    /// Servers whose tools are not known.
    #[serde(default)]
    pub not_seen: Vec<UnseenServer>,
}

/// A tool that was found.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FoundTool {
    /// The name to call it by.
    pub name: String,
    /// The server's id.
    pub server: String,
    /// Its purpose, in one line.
    pub description: String,
}

/// The answer of `colibri_find_tools`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct FoundTools {
    /// The tools that fit, the best first.
    pub tools: Vec<FoundTool>,
    /// Further tools that fit, not so well.
    #[serde(default)]
    pub left_out: u64,
    /// Words of the query that were not looked for, because it has too many.
    #[serde(default, skip_serializing_if = "is_none")]
    pub words_left_out: u64,
    /// Servers whose tools are not known.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub not_seen: Vec<UnseenServer>,
}

fn is_none(count: &u64) -> bool {
    *count == 0
}

/// A server whose tools are not known, because it was never seen.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[schemars(deny_unknown_fields)]
pub struct UnseenServer {
    /// Its id.
    pub server: String,
    /// Its state.
    pub state: ServerState,
    /// The reason for which it is not well.
    pub reason: Option<String>,
}
