//! The registry, `external-mcp.json`, as far as it decides what runs where: the command and the jail of a server or an
//! agent. Of all other keys the names alone are known here; what stands at them the daemon reads, on top of this
//! ([`Registry::parse_with`]).
//!
//! One reader serves the daemon (every entry) and the set-user-ID helper (jailed entries), so that an entry can never
//! mean one thing to the one that asks and another to the one that acts.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use colibri_json::{Document, DocumentError, Object, ValueCursor};
use sha2::{Digest, Sha256};

mod agent;
mod command;
mod jail;
mod limits;
mod package;
mod ssh;
pub mod value;

pub(crate) use agent::AGENT_KEYS;
pub use agent::{AgentEntry, Stdin};
pub use command::{EntryValue, StdioCommand, value as secret_or_text};
pub use jail::{Abi, Jail, JailMount, Network, abi, allow, is_jail_name, jail_name, jail_path};
pub use limits::{ProcessLimits, RctlResource, limits};
pub use package::{PackageOrigin, PackagePin};
pub use ssh::SshTarget;
pub use value::{is_secret_name, is_server_id, is_user_name};

/// The path of the registry that the helper reads: in the directory of policy and secrets. No switch moves it: who
/// could, would choose what root trusts.
pub const PATH: &str = "/usr/local/etc/colibri/external-mcp.json";

/// Every server and agent of one registry file, by id (`[a-z][a-z0-9-]{0,31}`), which no two of them share.
#[derive(Debug, Clone, PartialEq)]
pub struct Registry<E = ServerEntry, A = AgentEntry> {
    /// The servers.
    pub servers: BTreeMap<String, E>,
    /// The agents.
    pub agents: BTreeMap<String, A>,
    /// Entries that cannot be used, and why: what is wrong with them says nothing of a jail. Here an id may be one that
    /// no server can have.
    pub refused: BTreeMap<String, DocumentError>,
}

impl<E, A> Default for Registry<E, A> {
    fn default() -> Self {
        Self {
            servers: BTreeMap::new(),
            agents: BTreeMap::new(),
            refused: BTreeMap::new(),
        }
    }
}

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEntry {
    /// SHA-256 of the entry's value exactly as it stands in the file, lower-case hex: what the daemon passes to the
    /// helper as `--digest`.
    pub digest: String,
    /// Its process; `None`: it has a `url`.
    pub command: Option<Box<StdioCommand>>,
    /// `true`: the entry is read and checked, but the server is not offered.
    pub disabled: bool,
}

impl ServerEntry {
    /// The jail that the server's process is to run in.
    #[must_use]
    pub fn jail(&self) -> Option<&Jail> {
        self.command.as_ref()?.jail.as_ref()
    }
}

/// The keys that an entry may have.
pub const ENTRY_KEYS: &[&str] = &[
    "command",
    "from",
    "lock",
    "args",
    "env",
    "cwd",
    "ssh",
    "url",
    "headers",
    "type",
    "allow_addresses",
    "ca",
    "proxy",
    "oauth",
    "jail",
    "isolation",
    "idle_timeout_s",
    "timeout_ms",
    "start_timeout_ms",
    "total_timeout_ms",
    "tools",
    "prompts",
    "resources",
    "prefix",
    "methods",
    "may_ask",
    "reads",
    "flow",
    "sinks",
    "contract",
    "result_limit",
    "whole",
    "attempts",
    "validate",
    "record",
    "disabled",
];

impl Registry {
    /// Reads a registry; `file` is the name that errors give.
    ///
    /// # Errors
    /// As [`Registry::parse_with`].
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, DocumentError> {
        Self::parse_with(bytes, file, |_, entry| Ok(entry), |_, agent| Ok(agent))
    }
}

impl<E, A> Registry<E, A> {
    /// Reads a registry; `file` is the name that errors give. `server` and `agent` make each entry of its keys and of
    /// what was read of them here.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place: whatever [`Document::parse`] refuses, an unknown key, a
    /// value of the wrong kind or out of range, an id that stands twice in `servers`, `mcpServers` and `agents`, a key
    /// that does not go with another. One bad entry refuses the whole file, since a mistake may be in what was to be its jail; but one
    /// without a jail, as it is pasted from an editor, is refused alone, and so is one with a url.
    pub fn parse_with(
        bytes: &[u8],
        file: &str,
        server: impl Fn(&Object<'_>, ServerEntry) -> Result<E, DocumentError>,
        agent: impl Fn(&Object<'_>, AgentEntry) -> Result<A, DocumentError>,
    ) -> Result<Self, DocumentError> {
        let document = Document::parse(bytes, file)?;
        let root = document.root().object(&["servers", "mcpServers", "agents"])?;
        let mut registry = Self::default();
        for list in [root.get("servers"), root.get("mcpServers")].into_iter().flatten() {
            for member in list.members()? {
                let id = member.key.to_owned();
                if registry.servers.contains_key(&id) || registry.refused.contains_key(&id) {
                    return Err(member.key_error("this server stands in both servers and mcpServers; remove one"));
                }
                let read = match is_server_id(&id) {
                    true => entry(&member.value, &server),
                    false => Err(member.key_error(
                        "a server's id must be 1 to 32 characters of a-z, 0-9 and -, and begin with a letter: rename it",
                    )),
                };
                match read {
                    Ok(entry) => drop(registry.servers.insert(id, entry)),
                    Err(error) if is_refused_alone(&id, &member.value) => {
                        registry.refused.insert(id, error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        for member in root.read("agents", ValueCursor::members)?.unwrap_or_default() {
            let id = member.key;
            if !is_server_id(id) {
                return Err(member.key_error(
                    "an agent's id must be 1 to 32 characters of a-z, 0-9 and -, and begin with a letter: rename it",
                ));
            }
            if registry.servers.contains_key(id) || registry.refused.contains_key(id) {
                return Err(member.key_error("a server has this id: the helper knows both by their ids; rename one"));
            }
            let keys = member.value.object(AGENT_KEYS)?;
            let digest = sha256_hex(member.value.raw());
            let read = agent(&keys, agent::agent(&member.value, &keys, digest)?)?;
            registry.agents.insert(id.to_owned(), read);
        }
        Ok(registry)
    }
}

/// True if an entry, whatever else is wrong with it, surely asks for no jail: it has a url, a host or a package and nothing
/// else that runs here, or what editors' files have and we cannot use, an id with underscores or a command that is looked for in PATH.
fn is_refused_alone(id: &str, entry: &ValueCursor<'_>) -> bool {
    if let Ok(members) = entry.members() {
        let has = |key: &str| members.iter().any(|member| member.key == key);
        if (has("url") || has("from") || has("ssh")) && !has("command") && !has("jail") {
            return true;
        }
    }
    let Ok(keys) = entry.object(ENTRY_KEYS) else {
        return false;
    };
    let is_looked_for = |command: &ValueCursor<'_>| command.text().is_ok_and(|text| !text.starts_with('/'));
    let is_odd = id.contains('_') || keys.get("command").is_some_and(is_looked_for);
    is_odd && keys.get("jail").is_none() && is_server_id(&id.replace('_', "-"))
}

fn entry<E>(
    cursor: &ValueCursor<'_>,
    more: impl Fn(&Object<'_>, ServerEntry) -> Result<E, DocumentError>,
) -> Result<E, DocumentError> {
    let keys = cursor.object(ENTRY_KEYS)?;
    let entry = ServerEntry {
        digest: sha256_hex(cursor.raw()),
        command: command::command(cursor, &keys)?,
        disabled: keys.read("disabled", ValueCursor::boolean)?.unwrap_or_default(),
    };
    more(&keys, entry)
}

/// SHA-256 of `bytes`, lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    colibri_text::hex(&Sha256::digest(bytes))
}

#[cfg(test)]
mod tests;
