//! The registry, `external-mcp.json`, as far as it decides what runs where: the command and the
//! jail of a server or an agent. Of all other keys the names alone are known here; what stands at
//! them the daemon reads, on top of this ([`Registry::parse_with`]).
//!
//! One reader serves the daemon (every entry) and the set-user-ID helper (jailed entries), so that
//! an entry can never mean one thing to the one that asks and another to the one that acts.
#![forbid(unsafe_code)]

use std::collections::BTreeMap;

use colibri_json::{Document, DocumentError, NamedValue, Object, ValueCursor};

mod agent;
mod command;
mod entry;
mod jail;
mod limits;
mod package;
mod ssh;
pub mod value;

pub(crate) use agent::AGENT_KEYS;
pub use agent::{AgentEntry, Stdin};
pub use command::{EntryValue, StdioCommand, value as secret_or_text};
pub use entry::{AccountChoices, ENTRY_KEYS, ServerEntry, account_choices, sha256_hex};
pub use jail::{Abi, Jail, JailMount, Network, abi, allow, is_jail_name, jail_name, jail_path};
pub use limits::{ProcessLimits, RctlResource, limits};
pub use package::{PackageOrigin, PackagePin};
pub use ssh::SshTarget;
pub use value::{is_secret_name, is_server_id, is_user_name};

/// The path of the registry that the helper reads: in the directory of policy and secrets. No
/// switch moves it: who could, would choose what root trusts.
pub const PATH: &str = "/usr/local/etc/colibri/external-mcp.json";

/// Every server and agent of one registry file, by id (`[a-z][a-z0-9-]{0,31}`), which no two of
/// them share.
#[derive(Debug, Clone, PartialEq)]
pub struct Registry<E = ServerEntry, A = AgentEntry> {
    /// The servers.
    pub servers: BTreeMap<String, E>,
    /// The agents.
    pub agents: BTreeMap<String, A>,
    /// Entries that cannot be used, and why: what is wrong with them says nothing of a jail. Here
    /// an id may be one that no server can have.
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

impl Registry {
    /// Reads a registry; `file` is the name that errors give.
    ///
    /// # Errors
    /// As [`Registry::parse_with`].
    pub fn parse(bytes: &[u8], file: &str) -> Result<Self, DocumentError> {
        Self::parse_with(bytes, file, |_, entry| Ok(entry), |_, agent| Ok(agent))
    }

    /// The servers of an entry: those of its accounts, or the one of this id.
    pub fn of_entry<'r>(
        &'r self,
        id: &'r str,
    ) -> impl Iterator<Item = (&'r String, &'r ServerEntry)> {
        self.servers
            .iter()
            .filter(move |(server, entry)| *server == id || entry.entry_id == id)
    }
}

impl<E, A> Registry<E, A> {
    /// Reads a registry; `file` is the name that errors give. `server` and `agent` make each entry
    /// of its keys and of what was read of them here.
    ///
    /// # Errors
    /// The first thing that is wrong, with its place: whatever [`Document::parse`] refuses, an
    /// unknown key, a value of the wrong kind or out of range, an id that stands twice in
    /// `servers`, `mcpServers`, their accounts and `agents`, a key that does not go with another.
    /// One bad entry refuses the whole file, since a mistake may be in what was to be its jail; but
    /// one without a jail, as it is pasted from an editor, is refused alone, and so is one with a
    /// url.
    pub fn parse_with(
        bytes: &[u8],
        file: &str,
        server: impl Fn(&Object<'_>, ServerEntry) -> Result<E, DocumentError>,
        agent: impl Fn(&Object<'_>, AgentEntry) -> Result<A, DocumentError>,
    ) -> Result<Self, DocumentError> {
        let document = Document::parse(bytes, file)?;
        let root = document
            .root()
            .object(&["servers", "mcpServers", "agents"])?;
        let mut registry = Self::default();
        let mut taken = TakenIds::default();
        for list in [root.get("servers"), root.get("mcpServers")]
            .into_iter()
            .flatten()
        {
            for member in list.members()? {
                let id = member.key.to_owned();
                taken.take(&member, &id, &id)?;
                let read = match is_server_id(&id) {
                    true => entry::servers(&member, &server),
                    false => Err(member.key_error(
                        "a server's id must be 1 to 32 characters of a-z, 0-9 and -, and begin with a letter: rename it",
                    )),
                };
                match read {
                    Ok(servers) => {
                        for (own_id, named, read) in servers {
                            if own_id != id {
                                taken.take(&named, &own_id, &id)?;
                            }
                            registry.servers.insert(own_id, read);
                        }
                    }
                    Err(error) if is_refused_alone(&id, &member.value) => {
                        registry.refused.insert(id, error);
                    }
                    Err(error) => return Err(error),
                }
            }
        }
        for member in root
            .read("agents", ValueCursor::members)?
            .unwrap_or_default()
        {
            let id = member.key;
            if !is_server_id(id) {
                return Err(member.key_error(
                    "an agent's id must be 1 to 32 characters of a-z, 0-9 and -, and begin with a letter: rename it",
                ));
            }
            if taken.0.contains_key(id) {
                return Err(member.key_error(
                    "a server has this id: the helper knows both by their ids; rename one",
                ));
            }
            let keys = member.value.object(AGENT_KEYS)?;
            let digest = sha256_hex(member.value.raw());
            let read = agent(&keys, agent::agent(&member.value, &keys, digest)?)?;
            registry.agents.insert(id.to_owned(), read);
        }
        Ok(registry)
    }
}

/// True if an entry, whatever else is wrong with it, surely asks for no jail: it has a url, a host
/// or a package and nothing else that runs here, or what editors' files have and we cannot use, an
/// id with underscores or a command that is looked for in PATH.
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
    let is_looked_for =
        |command: &ValueCursor<'_>| command.text().is_ok_and(|text| !text.starts_with('/'));
    let is_odd = id.contains('_') || keys.get("command").is_some_and(is_looked_for);
    is_odd && keys.get("jail").is_none() && is_server_id(&id.replace('_', "-"))
}

/// The ids that are taken, each with the id of the entry that has it.
#[derive(Default)]
struct TakenIds(BTreeMap<String, String>);

impl TakenIds {
    /// Takes the id of an entry, or of an account of an entry, which `named` is.
    fn take(&mut self, named: &NamedValue<'_>, id: &str, entry: &str) -> Result<(), DocumentError> {
        match self.0.insert(id.to_owned(), entry.to_owned()) {
            None => Ok(()),
            Some(other) if other == id && entry == id => {
                Err(named
                    .key_error("this server stands in both servers and mcpServers; remove one"))
            }
            Some(other) => {
                let of = |of: &str| match of == id {
                    true => "an entry".to_owned(),
                    false => format!("an account of {of}"),
                };
                let (here, there) = (of(entry), of(&other));
                Err(named.key_error(format!(
                    "{there} has the id {id}, which {here} would have here; rename one"
                )))
            }
        }
    }
}

#[cfg(test)]
mod tests;
