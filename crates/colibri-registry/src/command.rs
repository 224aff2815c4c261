//! The process of an entry.

use std::collections::BTreeMap;
use std::path::PathBuf;

use colibri_json::{DocumentError, Object, ValueCursor};

use crate::jail::{Jail, jail};
use crate::package::{PackagePin, package};
use crate::ssh::{SSH, SshTarget, ssh};
use crate::value::{is_secret_name, path, path_or_root};

/// The process of a stdio server, or of an agent.
#[derive(Debug, Clone, PartialEq)]
pub struct StdioCommand {
    /// Absolute path of the program; inside the jail's root for a jailed server. Empty for a
    /// package, until it is known where that is installed.
    pub program: PathBuf,
    /// The package that the program belongs to, for an entry that has `from` in place of a command.
    pub package: Option<PackagePin>,
    /// The server of another host that the program, ssh(1), leads to, for an entry that has `ssh`
    /// in place of a command.
    pub ssh: Option<SshTarget>,
    /// Its arguments, without the program's name.
    pub args: Vec<String>,
    /// Environment of the server beyond `PATH`, `HOME` and `LANG`.
    pub env: BTreeMap<String, EntryValue>,
    /// Working directory (absolute); `/` if not said.
    pub cwd: Option<PathBuf>,
    /// The jail; `None`: the server runs on the host as the daemon's user.
    pub jail: Option<Jail>,
}

impl StdioCommand {
    /// True if it runs one of our own integrations: `colibri-mcp integration NAME`.
    pub fn is_integration(&self) -> bool {
        self.program
            .file_name()
            .is_some_and(|name| name == "colibri-mcp")
            && self.args.first().is_some_and(|word| word == "integration")
    }
}

/// A value of an environment variable or header.
#[derive(Clone, PartialEq)]
pub enum EntryValue {
    /// As written in the registry.
    Plain(String),
    /// The content of the secret file of this name (`[a-z0-9-]{1,32}`).
    Secret(String),
}

impl std::fmt::Debug for EntryValue {
    /// Never shows a value: plain ones may be secrets that somebody pasted.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            EntryValue::Plain(_) => f.write_str("Plain(..)"),
            EntryValue::Secret(name) => write!(f, "Secret({name})"),
        }
    }
}

/// The keys that go with a command alone.
const OWN_KEYS: &[&str] = &["args", "env", "cwd", "jail"];

/// The process of an entry; `None`: it has a url.
pub(crate) fn command(
    cursor: &ValueCursor<'_>,
    keys: &Object<'_>,
) -> Result<Option<Box<StdioCommand>>, DocumentError> {
    let package = package(keys)?;
    if let Some(target) = keys.read("ssh", ssh)? {
        let beside = ["command", "from", "url"].iter().chain(OWN_KEYS);
        return match beside
            .into_iter()
            .find_map(|key| Some((key, keys.get(key)?)))
        {
            Some((key, value)) => {
                Err(value.error(format!("{key} does not go with ssh, which this entry has")))
            }
            None => Ok(Some(Box::new(StdioCommand {
                program: PathBuf::from(SSH),
                package: None,
                ssh: Some(target),
                args: Vec::new(),
                env: BTreeMap::new(),
                cwd: None,
                jail: None,
            }))),
        };
    }
    match (keys.get("command"), keys.get("url")) {
        (Some(_), None) => {}
        (None, None) if package.is_some() => {}
        (None, Some(_)) => {
            return match OWN_KEYS.iter().find_map(|key| Some((key, keys.get(key)?))) {
                Some((key, value)) => Err(value.error(format!(
                    "{key} goes with command, which this entry does not have"
                ))),
                None => Ok(None),
            };
        }
        (Some(_), Some(url)) => {
            return Err(url.error("an entry has either a command or a url, not both"));
        }
        (None, None) => {
            return Err(
                cursor.error("an entry needs a command (absolute path), a url, ssh, or from")
            );
        }
    }
    Ok(Some(Box::new(StdioCommand {
        program: match &package {
            Some(_) => PathBuf::new(),
            None => program(keys.need("command")?)?,
        },
        package,
        ssh: None,
        args: match keys.get("args") {
            None => Vec::new(),
            Some(list) => list
                .array()?
                .iter()
                .map(|item| Ok(item.text()?.to_owned()))
                .collect::<Result<_, DocumentError>>()?,
        },
        env: keys.read("env", environment)?.unwrap_or_default(),
        cwd: keys.read("cwd", path_or_root)?,
        jail: keys.read("jail", jail)?,
    })))
}

fn program(cursor: &ValueCursor<'_>) -> Result<PathBuf, DocumentError> {
    if !cursor.text()?.starts_with('/') {
        return Err(
            cursor.error("must be an absolute path, as command -v prints it: no PATH is looked in")
        );
    }
    path(cursor)
}

fn environment(cursor: &ValueCursor<'_>) -> Result<BTreeMap<String, EntryValue>, DocumentError> {
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

/// A value of an environment variable or header.
///
/// # Errors
/// Something else than a string or `{"secret": NAME}`, or text that no variable can hold.
pub fn value(cursor: &ValueCursor<'_>) -> Result<EntryValue, DocumentError> {
    if cursor.is_string() {
        return Ok(EntryValue::Plain(cursor.text()?.to_owned()));
    }
    if !cursor.is_object() {
        return Err(cursor.error("must be a string or {\"secret\": NAME}"));
    }
    let secret = cursor.object(&["secret"])?;
    let name = secret.need("secret")?;
    if !is_secret_name(name.text()?) {
        return Err(name.error("a secret's name must be 1 to 32 characters of a-z, 0-9 and -"));
    }
    Ok(EntryValue::Secret(name.text()?.to_owned()))
}
