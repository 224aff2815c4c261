//! The registry of external MCP servers, `external-mcp.json`: its types and its strict reader.
//!
//! One reader serves the daemon (every entry) and the helper (jailed entries), so that an entry can never mean one
//! thing to the one that asks and another to the one that acts.

use colibri_json::{Cursor, Document, Error, Object};
use sha2::{Digest, Sha256};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Every server of one registry file, by id.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Registry {
    /// The entries, by server id (`[a-z][a-z0-9-]{0,31}`).
    pub servers: BTreeMap<String, Entry>,
    /// Entries that cannot be used, and why: what is wrong with them says nothing of a jail. Here an id may be one that
    /// no server can have.
    pub refused: BTreeMap<String, Error>,
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
    /// Whether arguments are checked against the tools' own schemas, and not against the contract alone.
    pub validate_schema: bool,
    /// Record arguments and results in full in the trail, not only as digests.
    pub record_full: bool,
    /// `true`: the entry is read and checked, but the server is not offered.
    pub disabled: bool,
}

/// How a server is reached.
#[derive(Debug, Clone, PartialEq)]
pub enum Transport {
    /// A process with stdio pipes.
    Stdio(Box<Command>),
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
    Addresses(Vec<IpAddr>),
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

const ENTRY_KEYS: &[&str] = &[
    "command",
    "args",
    "env",
    "cwd",
    "url",
    "headers",
    "type",
    "jail",
    "isolation",
    "idle_timeout_s",
    "timeout_ms",
    "start_timeout_ms",
    "total_timeout_ms",
    "tools",
    "prefix",
    "methods",
    "may_ask",
    "contract",
    "result_limit",
    "attempts",
    "validate",
    "record",
    "disabled",
];

const JAIL_KEYS: &[&str] = &[
    "name",
    "path",
    "root_path",
    "user",
    "ip4",
    "ip6",
    "mounts",
    "allow",
    "limits",
];

/// A day: no call, start or idle time is meant to be longer.
const MAX_TIMEOUT_MS: u64 = 86_400_000;

/// The most bytes that a size may name (1 PiB): beyond it a limit is a typing error.
const MAX_SIZE: u64 = 1 << 50;

/// Headers that belong to HTTP or to the MCP transport: an entry that set them would break the connection, or speak in
/// the daemon's place.
const RESERVED_HEADERS: &[&str] = &[
    "accept",
    "connection",
    "content-length",
    "content-type",
    "host",
    "keep-alive",
    "last-event-id",
    "mcp-method",
    "mcp-name",
    "mcp-protocol-version",
    "mcp-session-id",
    "proxy-authorization",
    "proxy-connection",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

impl Registry {
    /// Reads a registry; `file` is the name that errors give.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place: whatever [`Document::parse`] refuses, an unknown key, a
    /// value of the wrong kind or out of range, an id in both `servers` and `mcpServers`, a key that does not go with
    /// another. One bad entry refuses the whole file, since a mistake may be in what was to be its jail; but one that
    /// knows all its keys and has no jail, as it is pasted from an editor, is refused alone.
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, Error> {
        let document = Document::parse(bytes, file)?;
        let root = document.root().object(&["servers", "mcpServers"])?;
        let mut registry = Self::default();
        for list in [root.get("servers"), root.get("mcpServers")].into_iter().flatten() {
            for member in list.members()? {
                let id = member.key.to_owned();
                if registry.servers.contains_key(&id) || registry.refused.contains_key(&id) {
                    return Err(member.key_error("this server stands in both servers and mcpServers; remove one"));
                }
                let read = match is_server_id(&id) {
                    true => entry(&member.value),
                    false => Err(member.key_error(
                        "a server's id must be 1 to 32 characters of a-z, 0-9 and -, and begin with a letter: rename it",
                    )),
                };
                match read {
                    Ok(entry) => drop(registry.servers.insert(id, entry)),
                    Err(error) if can_be_shown(&id) && has_no_jail(&member.value) => {
                        registry.refused.insert(id, error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        Ok(registry)
    }
}

impl Entry {
    /// Whether it runs in a jail.
    pub fn is_jailed(&self) -> bool {
        matches!(&self.transport, Transport::Stdio(command) if command.jail.is_some())
    }

    /// What stands for an entry that was refused: it starts nothing.
    pub fn refused() -> Entry {
        Entry {
            digest: String::new(),
            transport: Transport::Stdio(Box::new(Command {
                program: PathBuf::from("/"),
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: None,
                jail: None,
            })),
            isolation: None,
            limits: TimeLimits::default(),
            tools: ToolRules::default(),
            prefix: true,
            methods: Vec::new(),
            may_ask: Vec::new(),
            contract: None,
            result_limit: None,
            attempts: 1,
            validate_schema: true,
            record_full: false,
            disabled: false,
        }
    }
}

/// Whether an entry, whatever else is wrong with it, surely asks for no jail.
fn has_no_jail(entry: &Cursor<'_>) -> bool {
    entry.object(ENTRY_KEYS).is_ok_and(|keys| keys.get("jail").is_none())
}

/// Whether what was meant as an id can stand where ids do.
fn can_be_shown(id: &str) -> bool {
    (1..=64).contains(&id.len()) && id.bytes().all(|b| b.is_ascii_graphic() || b == b' ')
}

/// Whether `id` may name a server: `[a-z][a-z0-9-]{0,31}`.
pub fn is_server_id(id: &str) -> bool {
    id.len() <= 32
        && id.starts_with(|c: char| c.is_ascii_lowercase())
        && id
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether `name` may name a secret: `[a-z0-9-]{1,32}`.
pub fn is_secret_name(name: &str) -> bool {
    (1..=32).contains(&name.len())
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-')
}

/// Whether `name` may name a persistent jail: parts of `[A-Za-z][A-Za-z0-9_-]*` joined by dots, 63 characters at most.
///
/// Narrower than the kernel, which takes spaces, `*` and newlines; and never anything that libjail would take for a
/// number (jail_getid(3)).
pub fn is_jail_name(name: &str) -> bool {
    name.len() <= 63
        && name.split('.').all(|part| {
            part.starts_with(|c: char| c.is_ascii_alphabetic())
                && part
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-')
        })
}

fn entry(cursor: &Cursor<'_>) -> Result<Entry, Error> {
    let keys = cursor.object(ENTRY_KEYS)?;
    let transport = transport(cursor, &keys)?;
    let milliseconds = |key: &str| {
        keys.get(key)
            .map(|v| v.integer(1..=MAX_TIMEOUT_MS))
            .transpose()
            .map(|v| v.map(Duration::from_millis))
    };
    let limits = TimeLimits {
        start: milliseconds("start_timeout_ms")?,
        call: milliseconds("timeout_ms")?,
        idle: keys
            .get("idle_timeout_s")
            .map(|v| v.integer(1..=MAX_TIMEOUT_MS / 1000))
            .transpose()?
            .map(Duration::from_secs),
        total: milliseconds("total_timeout_ms")?,
    };
    let isolation = keys
        .get("isolation")
        .map(|v| {
            one_of(
                v,
                &[
                    ("user", Isolation::User),
                    ("shared", Isolation::Shared),
                    ("client", Isolation::Client),
                    ("call", Isolation::Call),
                ],
            )
        })
        .transpose()?;
    let may_ask = match keys.get("may_ask") {
        None => vec!["elicitation".to_owned()],
        Some(list) => unique(list, |item| {
            one_of(
                item,
                &[
                    ("elicitation", "elicitation"),
                    ("sampling", "sampling"),
                    ("roots", "roots"),
                ],
            )
            .map(str::to_owned)
        })?,
    };
    Ok(Entry {
        digest: sha256_hex(cursor.raw()),
        transport,
        isolation,
        limits,
        tools: keys.get("tools").map(tool_rules).transpose()?.unwrap_or_default(),
        prefix: keys.get("prefix").map(Cursor::boolean).transpose()?.unwrap_or(true),
        methods: keys
            .get("methods")
            .map(|list| unique(list, method))
            .transpose()?
            .unwrap_or_default(),
        may_ask,
        contract: keys.get("contract").map(path).transpose()?,
        result_limit: keys.get("result_limit").map(size).transpose()?,
        attempts: keys.get("attempts").map_or(Ok(3), |v| v.integer(1..=10))? as u32,
        record_full: keys
            .get("record")
            .map(|v| one_of(v, &[("digest", false), ("full", true)]))
            .transpose()?
            .unwrap_or(false),
        validate_schema: keys
            .get("validate")
            .map(|v| one_of(v, &[("all", true), ("contract", false)]))
            .transpose()?
            .unwrap_or(true),
        disabled: keys.get("disabled").map(Cursor::boolean).transpose()?.unwrap_or(false),
    })
}

fn transport(cursor: &Cursor<'_>, keys: &Object<'_>) -> Result<Transport, Error> {
    let http = match (keys.get("command"), keys.get("url")) {
        (Some(_), None) => false,
        (None, Some(_)) => true,
        (Some(_), Some(url)) => return Err(url.error("an entry has either a command or a url, not both")),
        (None, None) => return Err(cursor.error("an entry needs a command (absolute path) or a url")),
    };
    // Editors write `type` beside what already says it. One that disagrees is a mistake in one of the two.
    if let Some(kind) = keys.get("type") {
        let says_http = match kind.text()? {
            "stdio" => false,
            "http" | "streamable-http" | "streamableHttp" => true,
            "sse" => return Err(kind.error("the HTTP+SSE transport of 2024-11-05 is not supported; use http")),
            _ => return Err(kind.error("must be stdio or http")),
        };
        if says_http != http {
            let message = if http {
                "the entry has a url: must be http"
            } else {
                "the entry has a command: must be stdio"
            };
            return Err(kind.error(message));
        }
    }
    let (foreign, owner): (&[&str], _) = if http {
        (&["args", "env", "cwd", "jail"], "command")
    } else {
        (&["headers"], "url")
    };
    for key in foreign {
        if let Some(value) = keys.get(key) {
            return Err(value.error(format!("{key} goes with {owner}, which this entry does not have")));
        }
    }
    if http {
        return Ok(Transport::Http {
            url: url(keys.need("url")?)?,
            headers: keys.get("headers").map(headers).transpose()?.unwrap_or_default(),
        });
    }
    Ok(Transport::Stdio(Box::new(Command {
        program: program(keys.need("command")?)?,
        args: match keys.get("args") {
            None => Vec::new(),
            Some(list) => list
                .array()?
                .iter()
                .map(|item| Ok(item.text()?.to_owned()))
                .collect::<Result<_, Error>>()?,
        },
        env: keys.get("env").map(environment).transpose()?.unwrap_or_default(),
        cwd: keys.get("cwd").map(path_or_root).transpose()?,
        jail: keys.get("jail").map(jail).transpose()?,
    })))
}

fn program(cursor: &Cursor<'_>) -> Result<PathBuf, Error> {
    if !cursor.text()?.starts_with('/') {
        return Err(cursor.error("must be an absolute path, as command -v prints it: no PATH is looked in"));
    }
    path(cursor)
}

fn environment(cursor: &Cursor<'_>) -> Result<BTreeMap<String, Value>, Error> {
    let mut environment = BTreeMap::new();
    for member in cursor.members()? {
        let name = member.key;
        let legal = (1..=128).contains(&name.len())
            && !name.starts_with(|c: char| c.is_ascii_digit())
            && name.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_');
        if !legal {
            return Err(member.key_error(
                "a variable's name must be letters, digits and _, not begin with a digit, and have at most 128 of them",
            ));
        }
        environment.insert(name.to_owned(), value(&member.value)?);
    }
    Ok(environment)
}

fn headers(cursor: &Cursor<'_>) -> Result<BTreeMap<String, Value>, Error> {
    let mut headers = BTreeMap::new();
    for member in cursor.members()? {
        // RFC 9110 §5.6.2, token.
        let token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
        if !(1..=128).contains(&member.key.len()) || !member.key.bytes().all(token) {
            return Err(member.key_error("not a legal name of an HTTP header"));
        }
        if RESERVED_HEADERS
            .iter()
            .any(|name| name.eq_ignore_ascii_case(member.key))
        {
            return Err(member.key_error("this header belongs to the transport and cannot be set"));
        }
        if headers
            .keys()
            .any(|name: &String| name.eq_ignore_ascii_case(member.key))
        {
            return Err(member.key_error("this header stands twice (case does not count); remove one"));
        }
        let value = value(&member.value)?;
        if matches!(&value, Value::Plain(text) if !text.bytes().all(|b| matches!(b, b' '..=b'~'))) {
            return Err(member.value.error("a header's value must be printable ASCII"));
        }
        headers.insert(member.key.to_owned(), value);
    }
    Ok(headers)
}

fn value(cursor: &Cursor<'_>) -> Result<Value, Error> {
    if cursor.is_string() {
        return Ok(Value::Plain(cursor.text()?.to_owned()));
    }
    if !cursor.is_object() {
        return Err(cursor.error("must be a string or {\"secret\": NAME}"));
    }
    let secret = cursor.object(&["secret"])?;
    let name = secret.need("secret")?;
    if !is_secret_name(name.text()?) {
        return Err(name.error("a secret's name must be 1 to 32 characters of a-z, 0-9 and -"));
    }
    Ok(Value::Secret(name.text()?.to_owned()))
}

fn jail(cursor: &Cursor<'_>) -> Result<Jail, Error> {
    let keys = cursor.object(JAIL_KEYS)?;
    let name = keys.get("name").map(jail_name).transpose()?;
    let path = keys.get("path").map(jail_path).transpose()?;
    let root_path = keys.get("root_path").map(jail_path).transpose()?;
    let only_root_path = root_path.is_some() && name.is_none() && path.is_none();
    let path = match (name.is_some(), path, &root_path) {
        (false, Some(_), Some(_)) => {
            return Err(cursor.error("without a name, root_path means path: keep path alone"));
        }
        (false, None, None) => {
            return Err(cursor.error("a jail needs a name (persistent jail) or a path (root of an ephemeral one)"));
        }
        (false, None, Some(root_path)) => Some(root_path.clone()),
        (_, path, _) => path,
    };
    let root_path = root_path.filter(|_| name.is_some());
    Ok(Jail {
        name,
        path,
        root_path,
        user: keys.get("user").map(user).transpose()?,
        ip4: keys
            .get("ip4")
            .map(|v| network(v, IpAddr::is_ipv4))
            .transpose()?
            .unwrap_or_default(),
        ip6: keys
            .get("ip6")
            .map(|v| network(v, IpAddr::is_ipv6))
            .transpose()?
            .unwrap_or_default(),
        mounts: keys.get("mounts").map(mounts).transpose()?.unwrap_or_default(),
        allow: keys
            .get("allow")
            .map(|list| unique(list, allow))
            .transpose()?
            .unwrap_or_default(),
        limits: keys.get("limits").map(limits).transpose()?.unwrap_or_default(),
        only_root_path,
    })
}

/// The name of a persistent jail.
pub(crate) fn jail_name(cursor: &Cursor<'_>) -> Result<String, Error> {
    let name = cursor.text()?;
    if !is_jail_name(name) {
        return Err(cursor.error(
            "a jail's name must be at most 63 letters, digits, _ and -, and begin with a letter (dots for child jails)",
        ));
    }
    let ephemeral = name.strip_prefix("colibri-").is_some_and(|session| {
        session.len() == 16
            && session
                .bytes()
                .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
    });
    if ephemeral {
        return Err(cursor.error("names like this one belong to the helper's ephemeral jails"));
    }
    Ok(name.to_owned())
}

pub(crate) fn user(cursor: &Cursor<'_>) -> Result<String, Error> {
    let name = cursor.text()?;
    if !is_user_name(name) {
        return Err(
            cursor.error("a user's name must be 1 to 32 characters of a-z, 0-9, _ and -, and begin with a letter or _")
        );
    }
    Ok(name.to_owned())
}

/// Whether `name` may name a user of the policy: `[a-z_][a-z0-9_-]{0,31}`.
pub fn is_user_name(name: &str) -> bool {
    name.len() <= 32
        && name.starts_with(|c: char| c.is_ascii_lowercase() || c == '_')
        && name
            .bytes()
            .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_' || b == b'-')
}

fn network(cursor: &Cursor<'_>, family: fn(&IpAddr) -> bool) -> Result<Network, Error> {
    if cursor.is_string() {
        return one_of(cursor, &[("disable", Network::Disable), ("inherit", Network::Inherit)])
            .map_err(|_| cursor.error("must be \"disable\", \"inherit\" or a list of addresses"));
    }
    let addresses = unique(cursor, |item| {
        let address: IpAddr = item
            .text()?
            .parse()
            .map_err(|_| item.error("not an address; write it alone, without interface, prefix length or port"))?;
        if !family(&address) {
            return Err(item.error("an address of the other family: IPv4 goes into ip4, IPv6 into ip6"));
        }
        let mapped = matches!(address, IpAddr::V6(v6) if v6.to_ipv4_mapped().is_some());
        let broadcast = matches!(address, IpAddr::V4(v4) if v4.is_broadcast());
        if address.is_unspecified() || address.is_multicast() || mapped || broadcast {
            return Err(item.error("not an address of a single host"));
        }
        Ok(address)
    })?;
    if addresses.is_empty() {
        return Err(cursor.error("an empty list; write \"disable\" for no network"));
    }
    Ok(Network::Addresses(addresses))
}

fn mounts(cursor: &Cursor<'_>) -> Result<Vec<Mount>, Error> {
    let mut mounts: Vec<Mount> = Vec::new();
    for item in cursor.array()? {
        let keys = item.object(&["path", "at", "write"])?;
        let at = keys.need("at")?;
        let mount = Mount {
            path: jail_path(keys.need("path")?)?,
            at: jail_path(at)?,
            write: keys.get("write").map(Cursor::boolean).transpose()?.unwrap_or(false),
        };
        if mount.at.starts_with("/dev") || mount.at.starts_with("/tmp") {
            return Err(at.error("/dev and /tmp are the helper's own mounts"));
        }
        if mounts.iter().any(|other| other.at == mount.at) {
            return Err(at.error("two mounts at the same place"));
        }
        mounts.push(mount);
    }
    Ok(mounts)
}

/// The name of an `allow.*` parameter, without `allow.`.
pub(crate) fn allow(cursor: &Cursor<'_>) -> Result<String, Error> {
    let name = cursor.text()?;
    let parts_legal = name.split('.').all(|part| {
        part.starts_with(|c: char| c.is_ascii_lowercase())
            && part
                .bytes()
                .all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'_')
    });
    if name.len() > 64 || !parts_legal {
        return Err(cursor.error("not the name of an allow.* parameter (jail(8))"));
    }
    if name.starts_with("allow.") {
        return Err(cursor.error("write the parameter without \"allow.\""));
    }
    // `allow.mount.nodevfs` is how jail(8) writes the negation of `allow.mount.devfs`: what is not asked for is denied.
    if name.rsplit('.').next().is_some_and(|last| last.starts_with("no")) {
        return Err(cursor.error("name only what is to be allowed; everything else is denied"));
    }
    Ok(name.to_owned())
}

/// Resource limits; the policy has the same keys.
pub(crate) fn limits(cursor: &Cursor<'_>) -> Result<Limits, Error> {
    let keys = cursor.object(&["memory", "processes", "open_files", "file_size", "tmp"])?;
    let count = |key: &str, least| keys.get(key).map(|v| v.integer(least..=1_000_000)).transpose();
    let bytes = |key: &str| keys.get(key).map(size).transpose();
    Ok(Limits {
        memory: bytes("memory")?,
        processes: count("processes", 1)?,
        // Three are the pipes; with fewer than this no program even finds its libraries.
        open_files: count("open_files", 8)?,
        file_size: bytes("file_size")?,
        tmp: bytes("tmp")?,
    })
}

fn tool_rules(cursor: &Cursor<'_>) -> Result<ToolRules, Error> {
    let keys = cursor.object(&["allow", "deny", "confirm", "confirm_destructive", "idempotent"])?;
    let list = |key: &str| {
        keys.get(key)
            .map(|list| unique(list, pattern))
            .transpose()
            .map(Option::unwrap_or_default)
    };
    // An empty allow reads like "nothing" and would mean "everything".
    if let Some(allow) = keys.get("allow")
        && allow.array()?.is_empty()
    {
        return Err(allow.error("an empty list; leave allow out to allow every tool, or use disabled"));
    }
    Ok(ToolRules {
        allow: list("allow")?,
        deny: list("deny")?,
        confirm: list("confirm")?,
        confirm_destructive: keys
            .get("confirm_destructive")
            .map(Cursor::boolean)
            .transpose()?
            .unwrap_or(false),
        idempotent: list("idempotent")?,
    })
}

fn pattern(cursor: &Cursor<'_>) -> Result<String, Error> {
    let pattern = cursor.text()?;
    if pattern.is_empty() || pattern.len() > 256 {
        return Err(cursor.error("a pattern must have 1 to 256 bytes"));
    }
    Ok(pattern.to_owned())
}

fn method(cursor: &Cursor<'_>) -> Result<String, Error> {
    let method = cursor.text()?;
    let legal = method
        .bytes()
        .all(|b| b.is_ascii_alphanumeric() || b"_$/.-".contains(&b));
    if !(1..=128).contains(&method.len()) || !legal {
        return Err(cursor.error("a method must be 1 to 128 characters of A-Z, a-z, 0-9 and _ $ / . -"));
    }
    Ok(method.to_owned())
}

fn url(cursor: &Cursor<'_>) -> Result<String, Error> {
    let url = cursor.text()?;
    let Some(rest) = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://")) else {
        return Err(cursor.error("must begin with https:// or http://"));
    };
    if url.len() > 2048 || !url.bytes().all(|b| matches!(b, b'!'..=b'~')) || url.contains(['"', '<', '>', '\\', '#']) {
        return Err(cursor.error("must be at most 2048 printable ASCII characters, without spaces, quotes, \\ and #"));
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(cursor.error("must not hold a user or password; use headers with {\"secret\": NAME}"));
    }
    if authority.is_empty() || authority.starts_with(':') {
        return Err(cursor.error("the host is missing"));
    }
    Ok(url.to_owned())
}

/// An absolute path, written plainly, other than `/`.
pub(crate) fn path(cursor: &Cursor<'_>) -> Result<PathBuf, Error> {
    match path_or_root(cursor)? {
        root if root == Path::new("/") => Err(cursor.error("must not be the root directory")),
        path => Ok(path),
    }
}

/// An absolute path without `.`, `..`, empty parts or a slash at the end: it means the same to everyone who compares it
/// as text, and it names no other file after a directory on the way has moved.
fn path_or_root(cursor: &Cursor<'_>) -> Result<PathBuf, Error> {
    let text = cursor.text()?;
    let Some(below) = text.strip_prefix('/') else {
        return Err(cursor.error("must be an absolute path"));
    };
    if text.len() > 1023 {
        return Err(cursor.error("must have at most 1023 bytes (PATH_MAX)"));
    }
    if !below.is_empty() && below.split('/').any(|part| matches!(part, "" | "." | "..")) {
        return Err(cursor.error("must not hold //, ., .. or end with a slash"));
    }
    Ok(PathBuf::from(text))
}

/// A path that becomes part of a jail: without what a jail's parameter lists and rctl(8) rules use as separators.
pub(crate) fn jail_path(cursor: &Cursor<'_>) -> Result<PathBuf, Error> {
    let path = path(cursor)?;
    if cursor.text()?.contains([',', '=']) {
        return Err(cursor.error("must not hold a comma or an equals sign"));
    }
    Ok(path)
}

/// Bytes: a whole number, or a string of digits with `K`, `M`, `G` or `T` (powers of 1024).
fn size(cursor: &Cursor<'_>) -> Result<u64, Error> {
    if !cursor.is_string() {
        return cursor.integer(1..=MAX_SIZE);
    }
    let text = cursor.text()?;
    let (digits, shift) = match text.as_bytes().last() {
        Some(b'K') => (&text[..text.len() - 1], 10),
        Some(b'M') => (&text[..text.len() - 1], 20),
        Some(b'G') => (&text[..text.len() - 1], 30),
        Some(b'T') => (&text[..text.len() - 1], 40),
        _ => (text, 0),
    };
    let plain = digits.bytes().all(|b| b.is_ascii_digit()) && !digits.starts_with('0');
    let bytes = digits
        .parse::<u64>()
        .ok()
        .filter(|_| plain)
        .and_then(|n| n.checked_mul(1 << shift));
    bytes
        .filter(|bytes| (1..=MAX_SIZE).contains(bytes))
        .ok_or_else(|| cursor.error("must be a size such as 1048576, \"64M\" or \"2G\" (K, M, G, T), at most 1024T"))
}

/// The choice that the string names.
pub(crate) fn one_of<T: Clone>(cursor: &Cursor<'_>, choices: &[(&str, T)]) -> Result<T, Error> {
    let text = cursor.text()?;
    choices
        .iter()
        .find(|(name, _)| *name == text)
        .map(|(_, choice)| choice.clone())
        .ok_or_else(|| {
            let names: Vec<&str> = choices.iter().map(|(name, _)| *name).collect();
            cursor.error(format!("must be one of {}", names.join(", ")))
        })
}

/// A list of at most 256 items, none twice.
pub(crate) fn unique<T: PartialEq>(
    cursor: &Cursor<'_>,
    read: impl Fn(&Cursor<'_>) -> Result<T, Error>,
) -> Result<Vec<T>, Error> {
    let mut items = Vec::new();
    for item in cursor.array()? {
        if items.len() == 256 {
            return Err(item.error("a list may have at most 256 items"));
        }
        let read = read(&item)?;
        if items.contains(&read) {
            return Err(item.error("stands in the list twice; remove one"));
        }
        items.push(read);
    }
    Ok(items)
}

/// SHA-256 of `bytes`, lower-case hex.
pub fn sha256_hex(bytes: &[u8]) -> String {
    let mut hex = String::with_capacity(64);
    for byte in Sha256::digest(bytes) {
        for nibble in [byte >> 4, byte & 15] {
            hex.push(char::from(b"0123456789abcdef"[usize::from(nibble)]));
        }
    }
    hex
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Registry, Error> {
        Registry::parse(text.as_bytes(), "external-mcp.json")
    }

    /// The registry with this entry alone, called `s`.
    fn one(entry: &str) -> Result<Entry, Error> {
        let mut registry = read(&format!("{{\"servers\":{{\"s\":{entry}}}}}"))?;
        match registry.refused.remove("s") {
            Some(error) => Err(error),
            None => Ok(registry.servers.remove("s").unwrap()),
        }
    }

    fn with(key_and_value: &str) -> Result<Entry, Error> {
        one(&format!("{{\"command\":\"/bin/x\",{key_and_value}}}"))
    }

    fn jailed(jail: &str) -> Result<Jail, Error> {
        with(&format!("\"jail\":{{{jail}}}")).map(|entry| match entry.transport {
            Transport::Stdio(command) => command.jail.unwrap(),
            Transport::Http { .. } => panic!("not stdio"),
        })
    }

    #[test]
    fn reads_the_example_of_the_design() {
        let text = r#"{ "servers": {
          "github": {
            "command": "/usr/local/bin/github-mcp-server", "args": ["stdio"],
            "env": { "LOG": "warn", "GITHUB_TOKEN": { "secret": "github" } },
            "jail": { "path": "/usr/local/colibri/roots/mcp0", "user": "mcp0", "ip4": ["192.0.2.7"] },
            "isolation": "user", "idle_timeout_s": 300, "timeout_ms": 30000,
            "tools": { "allow": ["*"], "deny": ["delete_*"], "confirm": ["create_*"] } },
          "build": { "command": "/usr/local/bin/build-mcp", "jail": { "name": "build0" } },
          "docs": { "url": "https://docs.example.org/mcp", "headers": { "Authorization": { "secret": "docs" } } } } }"#;
        let registry = read(text).unwrap();
        assert_eq!(registry.servers.keys().collect::<Vec<_>>(), ["build", "docs", "github"]);
        let github = &registry.servers["github"];
        let Transport::Stdio(command) = &github.transport else {
            panic!("not stdio")
        };
        let jail = command.jail.as_ref().unwrap();
        assert_eq!(command.program, Path::new("/usr/local/bin/github-mcp-server"));
        assert_eq!(command.args, ["stdio"]);
        assert_eq!(command.env["LOG"], Value::Plain("warn".into()));
        assert_eq!(command.env["GITHUB_TOKEN"], Value::Secret("github".into()));
        assert_eq!(jail.path.as_deref(), Some(Path::new("/usr/local/colibri/roots/mcp0")));
        assert_eq!(jail.ip4, Network::Addresses(vec!["192.0.2.7".parse().unwrap()]));
        assert_eq!(jail.ip6, Network::Disable);
        assert_eq!(github.isolation, Some(Isolation::User));
        assert_eq!(github.limits.idle, Some(Duration::from_secs(300)));
        assert_eq!(github.limits.call, Some(Duration::from_millis(30_000)));
        assert_eq!(github.tools.deny, ["delete_*"]);
        let Transport::Stdio(build) = &registry.servers["build"].transport else {
            panic!("not stdio")
        };
        assert_eq!(build.jail.as_ref().unwrap().name.as_deref(), Some("build0"));
        assert!(matches!(&registry.servers["docs"].transport, Transport::Http { headers, .. } if headers.len() == 1));
    }

    #[test]
    fn an_entry_that_asks_for_no_jail_is_refused_alone() {
        let good = r#""good":{"command":"/bin/x"}"#;
        for (bad, id, why) in [
            (r#""bad":{"command":"npx","args":["-y","x"]}"#, "bad", "command -v"),
            (r#""my_server":{"command":"/bin/x"}"#, "my_server", "rename it"),
            (
                r#""bad":{"url":"https://x.example/sse","type":"sse"}"#,
                "bad",
                "use http",
            ),
            (
                r#""bad":{"command":"/bin/x","env":{"A-B":"c"}}"#,
                "bad",
                "variable's name",
            ),
        ] {
            let registry = read(&format!("{{\"mcpServers\":{{{good},{bad}}}}}")).unwrap();
            assert_eq!(registry.servers.keys().collect::<Vec<_>>(), ["good"], "{bad}");
            let error = &registry.refused[id];
            assert!(error.message.contains(why), "{error}");
            let twice = format!("{{\"mcpServers\":{{{bad}}},\"servers\":{{{bad}}}}}");
            assert!(read(&twice).unwrap_err().message.contains("both"), "{twice}");
        }
        // Whatever may be about a jail, or cannot be shown, refuses all.
        for bad in [
            r#""bad":{"command":"npx","jail":{"name":"j"}}"#,
            r#""bad":{"command":"npx","jial":{"name":"j"}}"#,
            r#""my_server":{"command":"/bin/x","jail":{"name":"j"}}"#,
            r#""bad":{"command":"/bin/x","args":["a"],"arg":[]}"#,
            r#""bad":"/bin/x""#,
            "\"b\\u0007d\":{\"command\":\"/bin/x\"}",
            r#""":{"command":"/bin/x"}"#,
        ] {
            assert!(read(&format!("{{\"servers\":{{{good},{bad}}}}}")).is_err(), "{bad}");
        }
    }

    #[test]
    fn defaults_are_the_documented_ones() {
        let entry = one("{\"command\":\"/bin/x\"}").unwrap();
        assert_eq!(entry.may_ask, ["elicitation"]);
        assert_eq!(
            (entry.attempts, entry.prefix, entry.disabled, entry.record_full),
            (3, true, false, false)
        );
        assert_eq!((entry.isolation, entry.result_limit), (None, None));
        assert_eq!(entry.limits, TimeLimits::default());
        assert_eq!(read("{}").unwrap(), Registry::default());
    }

    #[test]
    fn digest_is_of_the_bytes_as_written() {
        let spaced = r#"{"mcpServers":{"s": { "command" : "/bin/x" } }}"#;
        let entry = &read(spaced).unwrap().servers["s"];
        assert_eq!(entry.digest, sha256_hex(br#"{ "command" : "/bin/x" }"#));
        assert_eq!(
            sha256_hex(b""),
            "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"
        );
    }

    #[test]
    fn the_same_id_in_both_lists_is_refused() {
        let entry = "{\"command\":\"/bin/x\"}";
        let both = format!("{{\"servers\":{{\"a\":{entry}}},\"mcpServers\":{{\"b\":{entry}}}}}");
        assert_eq!(read(&both).unwrap().servers.len(), 2);
        let error = read(&both.replace("\"b\"", "\"a\"")).unwrap_err();
        assert!(error.message.contains("both servers and mcpServers"), "{error}");
        assert_eq!(error.path, "mcpServers.a");
        assert!(read(&format!("{{\"servers\":{{\"a\":{entry},\"\\u0061\":{entry}}}}}")).is_err());
    }

    #[test]
    fn a_typo_never_runs_a_server_on_the_host() {
        for key in [
            "jial",
            "Jail",
            "JAIL",
            "jails",
            "jail ",
            "\\u006aail2",
            "exec.prestart",
            "EXEC.x",
        ] {
            let error = with(&format!("\"{key}\":{{\"name\":\"x\"}}")).unwrap_err();
            assert!(error.message.contains("unknown key"), "{error}");
        }
        assert!(with("\"jail\":null").is_err());
        assert!(with("\"jail\":{}").is_err());
        assert!(with("\"jail\":\"build0\"").is_err());
        assert!(jailed("\"name\":\"x\",\"exec.prestart\":\"/bin/sh\"").is_err());
    }

    #[test]
    fn commands_are_absolute_and_plain() {
        for command in [
            "",
            "x",
            "bin/x",
            "./x",
            "../x",
            "~/x",
            "/",
            "//bin/x",
            "/bin//x",
            "/bin/x/",
            "/bin/./x",
            "/bin/../x",
            "/..",
            "/bin/x\\u0000",
            "/bin/x\\n",
            "/bin/\\u001bx",
            "/bin/x\\u0085",
        ] {
            let error = one(&format!("{{\"command\":\"{command}\"}}")).unwrap_err();
            assert_eq!(error.path, "servers.s.command", "{error}");
        }
        assert!(one(&format!("{{\"command\":\"/{}\"}}", "x".repeat(1023))).is_err());
        for entry in [
            "{}",
            "null",
            "[]",
            "\"/bin/x\"",
            "{\"args\":[]}",
            "{\"command\":[\"/bin/x\"]}",
        ] {
            assert!(one(entry).is_err(), "{entry}");
        }
        assert!(one("{\"command\":\"/opt/My Server/über\"}").is_ok());
    }

    #[test]
    fn transport_and_its_keys_must_agree() {
        for entry in [
            r#"{"command":"/x","url":"http://h"}"#,
            r#"{"command":"/x","headers":{}}"#,
            r#"{"command":"/x","type":"http"}"#,
            r#"{"command":"/x","type":"STDIO"}"#,
            r#"{"url":"http://h","type":"stdio"}"#,
            r#"{"url":"http://h","type":"sse"}"#,
            r#"{"url":"http://h","args":[]}"#,
            r#"{"url":"http://h","env":{}}"#,
            r#"{"url":"http://h","cwd":"/x"}"#,
            r#"{"url":"http://h","jail":{"name":"x"}}"#,
        ] {
            assert!(one(entry).is_err(), "{entry}");
        }
        for entry in [
            r#"{"command":"/x","type":"stdio","args":["a b","",";rm"],"cwd":"/"}"#,
            r#"{"url":"http://h","type":"http"}"#,
            r#"{"url":"http://[::1]:80/p?q=1","type":"streamable-http"}"#,
        ] {
            assert!(one(entry).is_ok(), "{entry}");
        }
    }

    #[test]
    fn urls_and_headers_are_checked() {
        for url in [
            "",
            "h",
            "ftp://h",
            "HTTP://h",
            "http://",
            "http:///p",
            "http://:80",
            "http://u:p@h",
            "http://h/ x",
            "http://h/\\r\\nX: y",
            "http://h/#f",
            "http://h\\\\@evil",
            "http://\u{fc}",
        ] {
            assert!(one(&format!("{{\"url\":\"{url}\"}}")).is_err(), "{url}");
        }
        for headers in [
            r#"{"":"x"}"#,
            r#"{"A B":"x"}"#,
            r#"{"A:":"x"}"#,
            r#"{"Host":"x"}"#,
            r#"{"MCP-Session-Id":"x"}"#,
            r#"{"X":"a","x":"b"}"#,
            r#"{"X":"a\r\nY: b"}"#,
            r#"{"X":"ü"}"#,
            r#"{"X":1}"#,
            r#"{"X":null}"#,
            r#"{"X":{}}"#,
            r#"{"X":{"secret":"A"}}"#,
            r#"{"X":{"secret":"../a"}}"#,
            r#"{"X":{"secret":"a","b":1}}"#,
        ] {
            assert!(
                one(&format!("{{\"url\":\"http://h\",\"headers\":{headers}}}")).is_err(),
                "{headers}"
            );
        }
    }

    #[test]
    fn environment_is_checked() {
        for env in [
            r#"{"":"x"}"#,
            r#"{"1A":"x"}"#,
            r#"{"A=B":"x"}"#,
            r#"{"A B":"x"}"#,
            r#"{"Ä":"x"}"#,
            r#"{"A\u0000":"x"}"#,
            r#"{"A":"x\u0000y"}"#,
            r#"{"A":"x\ny"}"#,
            r#"{"A":1}"#,
            r#"{"A":true}"#,
            r#"{"A":["x"]}"#,
            r#"["A=x"]"#,
            r#"{"A":{"secret":""}}"#,
            r#"{"A":{"Secret":"a"}}"#,
            r#"{"A":"x","A":"x"}"#,
        ] {
            assert!(with(&format!("\"env\":{env}")).is_err(), "{env}");
        }
    }

    #[test]
    fn jail_values_are_checked() {
        let long = format!("\"name\":\"{}\"", "a".repeat(64));
        for jail in [
            r#""name":"""#,
            r#""name":"0""#,
            r#""name":"-1""#,
            r#""name":"+3""#,
            r#""name":" 3""#,
            r#""name":"007""#,
            r#""name":"*""#,
            r#""name":"a.*""#,
            r#""name":"a.""#,
            r#""name":".a""#,
            r#""name":"a..b""#,
            r#""name":"../x""#,
            r#""name":"a/b""#,
            r#""name":"a=b""#,
            r#""name":"a,b""#,
            r#""name":"a\n""#,
            r#""name":"a\tb""#,
            r#""name":"a\u202eb""#,
            r#""name":"a\u0301""#,
            &long,
            r#""name":"colibri-0123456789abcdef""#,
            r#""path":"relative""#,
            r#""path":"/""#,
            r#""path":"/a/../b""#,
            r#""path":"/a//b""#,
            r#""path":"/a/""#,
            r#""path":"/a,b""#,
            r#""path":"/a=b""#,
            r#""path":"/a\nb""#,
            r#""path":"/a\u0000b""#,
            r#""path":"/a","root_path":"/a""#,
            r#""user":"mcp0""#,
            r#""name":"a","user":"0""#,
            r#""name":"a","user":"Root""#,
            r#""name":"a","user":"a,b""#,
            r#""name":"a","ip4":"em0|192.0.2.1""#,
            r#""name":"a","ip4":["em0|192.0.2.1"]"#,
            r#""name":"a","ip4":["192.0.2.1/24"]"#,
            r#""name":"a","ip4":["192.0.2.1,192.0.2.2"]"#,
            r#""name":"a","ip4":"192.0.2.1""#,
            r#""name":"a","ip4":[]"#,
            r#""name":"a","ip4":"new""#,
            r#""name":"a","ip4":["::1"]"#,
            r#""name":"a","ip6":["192.0.2.1"]"#,
            r#""name":"a","ip4":["0.0.0.0"]"#,
            r#""name":"a","ip4":["224.0.0.1"]"#,
            r#""name":"a","ip6":["::ffff:192.0.2.1"]"#,
            r#""name":"a","ip6":["fe80::1%em0"]"#,
            r#""name":"a","ip4":["192.0.2.1","192.0.2.1"]"#,
            r#""name":"a","ip4":["192.0.2.01"]"#,
            r#""name":"a","ip4":null"#,
            r#""name":"a","allow":["allow.raw_sockets"]"#,
            r#""name":"a","allow":["noraw_sockets"]"#,
            r#""name":"a","allow":["mount.nodevfs"]"#,
            r#""name":"a","allow":["a=1"]"#,
            r#""name":"a","allow":["a,b"]"#,
            r#""name":"a","allow":[""]"#,
            r#""name":"a","allow":["A"]"#,
            r#""name":"a","allow":"raw_sockets""#,
            r#""name":"a","mounts":[{"path":"/a"}]"#,
            r#""name":"a","mounts":[{"path":"a","at":"/b"}]"#,
            r#""name":"a","mounts":[{"path":"/a","at":"/"}]"#,
            r#""name":"a","mounts":[{"path":"/","at":"/b"}]"#,
            r#""name":"a","mounts":[{"path":"/a","at":"/dev/x"}]"#,
            r#""name":"a","mounts":[{"path":"/a","at":"/tmp"}]"#,
            r#""name":"a","mounts":[{"path":"/a","at":"/b"},{"path":"/c","at":"/b"}]"#,
            r#""name":"a","mounts":[{"path":"/a","at":"/b","write":1}]"#,
            r#""name":"a","limits":{"memory":"2g"}"#,
            r#""name":"a","limits":{"memory":"-1"}"#,
            r#""name":"a","limits":{"memory":"1.5G"}"#,
            r#""name":"a","limits":{"memory":0}"#,
            r#""name":"a","limits":{"memory":"0G"}"#,
            r#""name":"a","limits":{"memory":"G"}"#,
            r#""name":"a","limits":{"memory":"16777216T"}"#,
            r#""name":"a","limits":{"memory":"99999999999999999999"}"#,
            r#""name":"a","limits":{"memory":" 2G"}"#,
            r#""name":"a","limits":{"memory":"2GB"}"#,
            r#""name":"a","limits":{"processes":0}"#,
            r#""name":"a","limits":{"processes":"5"}"#,
            r#""name":"a","limits":{"open_files":3}"#,
            r#""name":"a","limits":{"cpu":1}"#,
        ] {
            assert!(jailed(jail).is_err(), "{jail}");
        }
    }

    #[test]
    fn jails_are_read() {
        let jail = jailed(
            r#""path":"/r","user":"mcp0","ip4":"inherit","ip6":["2001:db8::7"],"allow":["raw_sockets","mount.nullfs"],
            "mounts":[{"path":"/home/op/project","at":"/work","write":true}],
            "limits":{"memory":"2G","processes":128,"open_files":1024,"file_size":4096,"tmp":"64M"}"#,
        )
        .unwrap();
        assert_eq!((jail.ip4, jail.only_root_path), (Network::Inherit, false));
        assert_eq!(jail.limits.memory, Some(2 << 30));
        assert_eq!((jail.limits.file_size, jail.limits.tmp), (Some(4096), Some(64 << 20)));
        assert!(jail.mounts[0].write);

        let old = jailed(r#""root_path":"/r""#).unwrap();
        assert_eq!(
            (old.path.as_deref(), old.root_path, old.only_root_path),
            (Some(Path::new("/r")), None, true)
        );
        let both = jailed(r#""name":"a.b","path":"/p","root_path":"/r""#).unwrap();
        assert_eq!(
            (both.root_path.as_deref(), both.only_root_path),
            (Some(Path::new("/r")), false)
        );
    }

    #[test]
    fn other_values_are_checked() {
        for key in [
            r#""isolation":"none""#,
            r#""isolation":"User""#,
            r#""idle_timeout_s":0"#,
            r#""idle_timeout_s":86401"#,
            r#""timeout_ms":0"#,
            r#""timeout_ms":-1"#,
            r#""timeout_ms":1.5"#,
            r#""timeout_ms":1e3"#,
            r#""timeout_ms":"30000""#,
            r#""timeout_ms":86400001"#,
            r#""start_timeout_ms":0"#,
            r#""total_timeout_ms":0"#,
            r#""tools":[]"#,
            r#""tools":{"allow":[]}"#,
            r#""tools":{"allow":"*"}"#,
            r#""tools":{"alow":["*"]}"#,
            r#""tools":{"deny":[""]}"#,
            r#""tools":{"deny":[1]}"#,
            r#""tools":{"deny":["a","a"]}"#,
            r#""tools":{"confirm_destructive":"yes"}"#,
            r#""prefix":"false""#,
            r#""prefix":0"#,
            r#""methods":["a b"]"#,
            r#""methods":[""]"#,
            r#""may_ask":["everything"]"#,
            r#""may_ask":"roots""#,
            r#""contract":"git.json""#,
            r#""result_limit":0"#,
            r#""result_limit":"lots""#,
            r#""attempts":0"#,
            r#""attempts":11"#,
            r#""record":"all""#,
            r#""record":true"#,
            r#""disabled":"no""#,
        ] {
            assert!(with(key).is_err(), "{key}");
        }
        let entry = with(
            r#""may_ask":[],"methods":["x/y"],"record":"full","result_limit":"1M","contract":"/c.json","attempts":1,
            "prefix":false,"disabled":true,"tools":{"idempotent":["get_*"],"confirm_destructive":true}"#,
        )
        .unwrap();
        assert!(entry.may_ask.is_empty() && entry.record_full && entry.disabled && !entry.prefix);
        assert_eq!((entry.attempts, entry.result_limit), (1, Some(1 << 20)));
        assert!(entry.tools.confirm_destructive);
    }

    #[test]
    fn every_known_key_is_read_by_somebody() {
        // A key that is known but read by nobody would be accepted in silence: each must be refused at a wrong kind.
        for key in ENTRY_KEYS.iter().filter(|key| **key != "command") {
            assert!(with(&format!("\"{key}\":[[]]")).is_err(), "{key}");
        }
        for key in JAIL_KEYS {
            assert!(jailed(&format!("\"name\":\"a\",\"{key}\":[[]]")).is_err(), "{key}");
        }
    }

    #[test]
    fn values_are_not_shown_by_debug() {
        let entry = with(r#""env":{"TOKEN":"SECRETabc"}"#).unwrap();
        assert!(!format!("{entry:?}").contains("SECRET"));
    }

    fn scalar() -> impl Strategy<Value = String> {
        prop_oneof![
            Just("null".to_owned()),
            any::<bool>().prop_map(|b| b.to_string()),
            any::<i64>().prop_map(|n| n.to_string()),
            any::<f64>()
                .prop_filter("finite", |n| n.is_finite())
                .prop_map(|n| format!("{n:?}")),
            any::<String>().prop_map(|s| serde_json::to_string(&s).unwrap()),
            "[/a-zA-Z0-9|,=.*]{0,12}".prop_map(|s| serde_json::to_string(&s).unwrap()),
            Just("[]".to_owned()),
            Just("{}".to_owned()),
        ]
    }

    proptest! {
        #[test]
        fn ids_are_those_of_the_pattern(id in prop_oneof!["[a-z][a-z0-9-]{0,33}", any::<String>()]) {
            let mut chars = id.chars();
            let legal = chars.next().is_some_and(|c| c.is_ascii_lowercase())
                && chars.all(|c| matches!(c, 'a'..='z' | '0'..='9' | '-'))
                && id.len() <= 32;
            let text = format!("{{\"servers\":{{{}:{{\"command\":\"/x\"}}}}}}", serde_json::to_string(&id).unwrap());
            prop_assert_eq!(read(&text).is_ok_and(|read| read.servers.contains_key(&id)), legal);
        }

        #[test]
        fn sizes_are_powers_of_1024(n in 1u64..=1024, unit in 0usize..5) {
            let text = format!("\"result_limit\":\"{n}{}\"", ["", "K", "M", "G", "T"][unit]);
            prop_assert_eq!(with(&text).unwrap().result_limit, Some(n << (10 * unit)));
        }

        #[test]
        fn any_value_at_any_key_is_read_or_refused_in_its_place(
            key in prop::sample::select(ENTRY_KEYS), value in scalar(), inner in prop::sample::select(JAIL_KEYS),
        ) {
            if let Err(error) = with(&format!("\"{key}\":{value}")) {
                prop_assert!(error.path.starts_with("servers.s"));
            }
            if let Ok(jail) = jailed(&format!("\"path\":\"/r\",\"{inner}\":{value}")) {
                // What got through holds nothing that a jail's parameter list or an rctl(8) rule takes apart.
                let texts = [jail.name.clone(), jail.user.clone()].into_iter().flatten().chain(jail.allow.clone());
                for text in texts {
                    prop_assert!(!text.contains([',', '=', '\n', '\0', '|', ' ', '/', '*']), "{}", text);
                }
            }
        }

        #[test]
        fn errors_never_show_a_value(secret in "SECRET[a-z,= /]{8}", key in prop::sample::select(ENTRY_KEYS)) {
            for text in [format!("\"{key}\":\"{secret}\""), format!("\"{key}\":[\"{secret}\",\"{secret}\",1]"),
                format!("\"{key}\":{{\"x\":\"{secret}\"}}"), format!("\"x\":\"{secret}\"")] {
                if let Err(error) = with(&text) {
                    prop_assert!(!error.to_string().contains("SECRET"), "{}", error);
                }
            }
        }

        #[test]
        fn never_panics(bytes in prop::collection::vec(any::<u8>(), 0..256)) {
            let _ = Registry::parse(&bytes, "f");
        }
    }
}
