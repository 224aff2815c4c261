//! The entry of a server, or of several accounts at one: each account is a server of its own, with
//! the id `entry-account`.

use std::collections::BTreeMap;

use colibri_json::{DocumentError, NamedValue, Object, ValueCursor};

use sha2::{Digest as _, Sha256};

use crate::command::{StdioCommand, command};
use crate::jail::Jail;
use crate::value::is_server_id;

/// One server.
#[derive(Debug, Clone, PartialEq)]
pub struct ServerEntry {
    /// The id of its entry: the server's own, unless the entry has accounts, which are a server
    /// each.
    pub entry_id: String,
    /// SHA-256 of the entry's value exactly as it stands in the file, lower-case hex: what the
    /// daemon passes to the helper as `--digest`. Of an account it is over its own part and what
    /// all accounts share.
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
    "accounts",
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

/// The keys of an account.
const ACCOUNT_KEYS: &[&str] = &["args", "env", "headers", "oauth", "disabled"];

/// The servers of an entry, each with its id and the member that names it.
type NamedServers<'d, E> = Vec<(String, NamedValue<'d>, E)>;

/// The id of the server that an account is.
fn server_id(entry: &str, account: &str) -> Option<String> {
    let id = format!("{entry}-{account}");
    let is_name = account.starts_with(|c: char| c.is_ascii_lowercase() || c.is_ascii_digit());
    (is_name && is_server_id(&id)).then_some(id)
}

/// The accounts that are meant where an entry alone is named: the ids of their servers, by the ids
/// of entries.
pub type AccountChoices = BTreeMap<String, String>;

/// Reads which account of which entry is meant, as `{"github": "work"}`.
///
/// # Errors
/// Not an object of strings, or names that no entry and no account can have.
pub fn account_choices(cursor: &ValueCursor<'_>) -> Result<AccountChoices, DocumentError> {
    let read = |member: NamedValue<'_>| {
        if !is_server_id(member.key) {
            return Err(member.key_error("must be the id of a server that has accounts"));
        }
        let id = server_id(member.key, member.value.text()?);
        let id = id.ok_or_else(|| {
            let what =
                "must be the name of an account as the server's entry has it, such as \"work\"";
            member.value.error(what)
        })?;
        Ok((member.key.to_owned(), id))
    };
    cursor.members()?.into_iter().map(read).collect()
}

/// The servers of an entry: one of its own id, or one for each of its accounts.
///
/// # Errors
/// The first thing that is wrong, with its place.
pub(crate) fn servers<'d, E>(
    member: &NamedValue<'d>,
    more: &impl Fn(&Object<'_>, ServerEntry) -> Result<E, DocumentError>,
) -> Result<NamedServers<'d, E>, DocumentError> {
    let (id, cursor) = (member.key, &member.value);
    let keys = cursor.object(ENTRY_KEYS)?;
    let entry = |keys: &Object<'d>, digest: String, disabled: bool| {
        let entry = ServerEntry {
            entry_id: id.to_owned(),
            digest,
            command: command(cursor, keys)?,
            disabled,
        };
        more(keys, entry)
    };
    let is_disabled = |keys: &Object<'d>| {
        Ok(keys
            .read("disabled", ValueCursor::boolean)?
            .unwrap_or_default())
    };
    let disabled = is_disabled(&keys)?;
    let Some(accounts) = keys.get("accounts") else {
        let read = entry(&keys, sha256_hex(cursor.raw()), disabled)?;
        return Ok(vec![(id.to_owned(), member.clone(), read)]);
    };
    let accounts = accounts.members()?;
    if accounts.is_empty() {
        return Err(keys
            .need("accounts")?
            .error("must name at least one account; or leave accounts out"));
    }
    let jail = keys.read("jail", ValueCursor::members)?.unwrap_or_default();
    if let Some(user) = jail.iter().find(|member| member.key == "user") {
        return Err(user.key_error(
            "accounts would have this one user, who could read each one's secrets: leave it out, and each has the user \
             of its server's id",
        ));
    }
    let server = |account: NamedValue<'d>| {
        let own_id = server_id(id, account.key).ok_or_else(|| {
            account.key_error(format!(
                "an account's name must be of a-z, 0-9 and -, begin with a letter or digit, and with {id}- before it, \
                 its server's id, have at most 32 characters: rename it"
            ))
        })?;
        let own = own_keys(&keys, &account.value)?;
        let disabled = disabled || is_disabled(&own)?;
        let keys = cursor.object(ENTRY_KEYS)?.followed_by(own);
        let read = entry(&keys, digest(cursor, &account)?, disabled)?;
        Ok((own_id, account, read))
    };
    accounts.into_iter().map(server).collect()
}

/// The keys of an account beside those of its entry.
fn own_keys<'d>(
    shared: &Object<'d>,
    account: &ValueCursor<'d>,
) -> Result<Object<'d>, DocumentError> {
    for member in account.members()? {
        let key = member.key;
        if !ACCOUNT_KEYS.contains(&key) && ENTRY_KEYS.contains(&key) {
            return Err(member.key_error(format!(
                "an account has no {key} of its own, only {}: put it beside accounts, or make an entry of its own",
                ACCOUNT_KEYS.join(", ")
            )));
        }
        if key != "disabled" && ACCOUNT_KEYS.contains(&key) && shared.get(key).is_some() {
            return Err(member.key_error(format!(
                "{key} stands beside accounts too, for all of them: have it in one of the two places"
            )));
        }
    }
    account.object(ACCOUNT_KEYS)
}

/// SHA-256 over the entry without its accounts, and the account: another account may change, and
/// this one is the same. No key and no value has a zero byte as it stands in a file.
fn digest(entry: &ValueCursor<'_>, account: &NamedValue<'_>) -> Result<String, DocumentError> {
    let members = entry.members()?;
    let shared = members.iter().filter(|member| member.key != "accounts");
    let mut bytes = Vec::new();
    for member in shared.chain([account]) {
        for part in [member.key.as_bytes(), member.value.raw()] {
            bytes.extend_from_slice(part);
            bytes.push(0);
        }
    }
    Ok(sha256_hex(bytes))
}

/// SHA-256 of `bytes`, lower-case hex.
#[must_use]
pub fn sha256_hex(bytes: impl AsRef<[u8]>) -> String {
    colibri_text::hex(&Sha256::digest(bytes))
}
