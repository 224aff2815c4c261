//! The registry of external MCP servers, `external-mcp.json`: its types and its strict reader.
//!
//! One reader serves the daemon (every entry) and the helper (jailed entries), so that an entry can never mean one
//! thing to the one that asks and another to the one that acts.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

/// Every server of one registry file, by id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Registry {
    /// The entries, by server id (`[a-z][a-z0-9-]{0,31}`).
    pub servers: BTreeMap<String, Entry>,
}

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub struct Entry {
    /// SHA-256 of the entry's value exactly as it stands in the file, lower-case hex: what the daemon passes to the
    /// helper as `--digest`.
    pub digest: String,
    /// How the server is reached.
    pub transport: Transport,
    /// Which callers share a process. `None`: not said; the daemon's default is [`Isolation::User`], or
    /// [`Isolation::Call`] where the jail has only a `root_path`.
    pub isolation: Option<Isolation>,
    /// The time limits that the entry sets.
    pub limits: TimeLimits,
    /// Which tools may be called, and how.
    pub tools: ToolRules,
    /// `false`: tools, prompts and URIs are exposed under the server's own names.
    pub prefix: bool,
    /// Methods beyond MCP's that may be forwarded to this server.
    pub methods: Vec<String>,
    /// What the server may ask of the person's side (`elicitation`, `sampling`, `roots`).
    pub may_ask: Vec<String>,
    /// A contract file (absolute path) that narrows the arguments of this server's tools.
    pub contract: Option<PathBuf>,
    /// The most bytes a result may have; larger ones are replaced whole by an error result. `None`: no limit.
    pub result_limit: Option<u64>,
    /// Retries of a failed call: attempts in all (default 3).
    pub attempts: u32,
    /// Record arguments and results in full in the trail, not only as digests.
    pub record_full: bool,
    /// `true`: the entry is read and checked, but the server is not offered.
    pub disabled: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// A process with stdio pipes.
    Stdio(Command),
    /// Streamable HTTP.
    Http {
        /// `http://` or `https://`.
        url: String,
        /// Request headers, by name.
        headers: BTreeMap<String, Value>,
    },
}

/// The process of a stdio server.
#[derive(Debug, Clone, PartialEq)]
pub struct Command {
    /// Absolute path of the program; inside the jail's root for a jailed server.
    pub program: PathBuf,
    /// Its arguments, without the program's name.
    pub args: Vec<String>,
    /// Environment of the server beyond `PATH`, `HOME` and `LANG`.
    pub env: BTreeMap<String, Value>,
    /// Working directory (absolute); `/` if not said.
    pub cwd: Option<PathBuf>,
    /// The jail; `None`: the server runs on the host as the daemon's user.
    pub jail: Option<Jail>,
}

/// A value of an environment variable or header.
#[derive(Clone, PartialEq)]
pub enum Value {
    /// As written in the registry.
    Plain(String),
    /// The content of the secret file of this name (`[a-z0-9-]{1,32}`).
    Secret(String),
}

impl std::fmt::Debug for Value {
    /// Never shows a value: plain ones may be secrets that somebody pasted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Value::Plain(_) => f.write_str("Plain(..)"),
            Value::Secret(name) => write!(f, "Secret({name})"),
        }
    }
}

/// The jail of a server, as the entry asks for it; the policy decides.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Jail {
    /// A persistent jail to enter. Wins over `path`.
    pub name: Option<String>,
    /// Root of an ephemeral jail (absolute). `root_path` without `name` means the same.
    pub path: Option<PathBuf>,
    /// Beside `name`: must equal the path that the kernel reports for that jail.
    pub root_path: Option<PathBuf>,
    /// The server's user: a name in the policy's `users`.
    pub user: Option<String>,
    /// IPv4: `disable` (default), `inherit`, or addresses.
    pub ip4: Network,
    /// IPv6: likewise.
    pub ip6: Network,
    /// Directories of the host shown inside.
    pub mounts: Vec<Mount>,
    /// `allow.*` parameters asked for, without the `allow.` prefix.
    pub allow: Vec<String>,
    /// Resource limits asked for.
    pub limits: Limits,
    /// `true`: the entry has only a `root_path` (the old form), whose default isolation is `call`.
    pub only_root_path: bool,
}

/// A jail's addresses of one family.
#[derive(Debug, Clone, PartialEq, Default)]
pub enum Network {
    /// None at all.
    #[default]
    Disable,
    /// The whole host stack, loopback services included: "host network".
    Inherit,
    /// These addresses.
    Addresses(Vec<std::net::IpAddr>),
}

/// A directory of the host shown inside a jail.
#[derive(Debug, Clone, PartialEq)]
pub struct Mount {
    /// On the host (absolute).
    pub path: PathBuf,
    /// In the jail (absolute).
    pub at: PathBuf,
    /// Writable inside.
    pub write: bool,
}

/// Resource limits; `None`: not said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Limits {
    /// Bytes of memory.
    pub memory: Option<u64>,
    /// Processes.
    pub processes: Option<u64>,
    /// Open files of one process.
    pub open_files: Option<u64>,
    /// Bytes of one file.
    pub file_size: Option<u64>,
    /// Bytes of `/tmp`.
    pub tmp: Option<u64>,
}

/// Which callers share a server process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// One process for each uid that calls.
    User,
    /// One process for all.
    Shared,
    /// One process a connection.
    Client,
    /// One process a call.
    Call,
}

/// The four time limits; `None`: the daemon's default.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct TimeLimits {
    /// From starting the process to the end of its handshake (`start_timeout_ms`).
    pub start: Option<Duration>,
    /// From sending a call, or its last progress, to the answer (`timeout_ms`).
    pub call: Option<Duration>,
    /// Without a call in flight, after which the process is ended (`idle_timeout_s`).
    pub idle: Option<Duration>,
    /// Of one call in all, whatever its progress (`total_timeout_ms`).
    pub total: Option<Duration>,
}

/// Rules on the server's own tool names. Patterns know `*` alone.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct ToolRules {
    /// What may be called; empty means everything.
    pub allow: Vec<String>,
    /// What may not; wins over `allow`.
    pub deny: Vec<String>,
    /// What needs a person's confirmation.
    pub confirm: Vec<String>,
    /// `true`: a tool that declares `destructiveHint: true` is treated as listed in `confirm`.
    pub confirm_destructive: bool,
    /// Tools that may be called again after a failure whose outcome is unknown.
    pub idempotent: Vec<String>,
}
