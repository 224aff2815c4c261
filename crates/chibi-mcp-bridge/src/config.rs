//! `mcp-bridge.toml`: which servers the user has for the bridge, and how it behaves.

use std::fs::File;
use std::io::{self, Read as _};
use std::net::IpAddr;
use std::ops::Range;
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail};
use colibri_api::paths;
use colibri_client::lock;
use colibri_mcp::importers::map_names;
use colibri_registry::{AgentEntry, Registry, ServerEntry};
use serde_json::{Map, Value, json};
use toml_edit::{Document, Item, TableLike};

use crate::say::say;

/// The file, in the home.
const FILE: &str = "mcp-bridge.toml";
/// No such file is longer, in bytes.
const MAX_BYTES: u64 = 1 << 20;
/// The time for which the bridge waits for another connection, if the file names none.
const IDLE: Duration = Duration::from_secs(5 * 60);
/// The longest time for an answer, if the file names none: clients that were written for another
/// bridge wait 30 s.
const LIMIT: Duration = Duration::from_secs(lock::ANSWER_SECS);
/// The most that the file may say: a day.
const MAX_LIMIT_SECS: i64 = 86_400;
/// The longest time of a call that makes progress at the daemon, if its entry names none, in
/// milliseconds.
const TOTAL_MS: u64 = 3_600_000;
/// The most that a file may say: a year.
const MAX_MINUTES: f64 = 525_600.0;

/// The settings of the file, or its defaults.
#[derive(Debug, PartialEq)]
pub(crate) struct BridgeConfig {
    /// The time for which the bridge waits for another connection.
    pub idle: Duration,
    /// The longest time for an answer.
    pub limit: Duration,
    /// Descriptions are sentences: a model's, or the first of what the server says.
    pub summaries: bool,
    /// The model that writes them.
    pub model: String,
    /// The servers, in the order of their names.
    pub servers: Vec<ConfiguredServer>,
}

/// A server of the file.
#[derive(Debug, PartialEq)]
pub(crate) struct ConfiguredServer {
    /// As the file has it.
    pub name: String,
    /// As Colibri has it: `[a-z][a-z0-9-]{0,31}`.
    pub id: String,
    /// Its entry of a registry; or why it cannot be one.
    pub entry: Result<Value, String>,
}

impl Default for BridgeConfig {
    fn default() -> BridgeConfig {
        BridgeConfig {
            idle: IDLE,
            limit: LIMIT,
            summaries: true,
            model: "ratatoskr:free/text-generation".to_owned(),
            servers: Vec::new(),
        }
    }
}

/// The fault of the file, and its place.
#[derive(Debug)]
struct Wrong {
    at: Option<Range<usize>>,
    why: String,
}

impl BridgeConfig {
    /// Reads the file of a home. Without one, or with one that cannot be read, these are the
    /// defaults; in the latter case it says why on standard error.
    pub(crate) fn load(home: &Path) -> BridgeConfig {
        let path = home.join(FILE);
        let found = match text(&path) {
            Ok(Some(text)) => read(&text, &absolute_path())
                .map_err(|wrong| anyhow!("{}: {}", path.display(), wrong.in_text(&text))),
            Ok(None) => return BridgeConfig::default(),
            Err(why) => Err(why),
        };
        match found {
            Ok((config, notes)) => {
                notes.iter().for_each(|note| say(note));
                config
            }
            Err(why) => {
                say(&format!(
                    "config parse error: {why:#}; the file is ignored: no servers of it run, and the settings are the defaults"
                ));
                BridgeConfig::default()
            }
        }
    }
}

/// The content of the file; `None` if it is not there.
fn text(path: &Path) -> anyhow::Result<Option<String>> {
    let at = || path.display().to_string();
    let mut options = File::options();
    let file = match options
        .read(true)
        .custom_flags(nix::libc::O_NONBLOCK)
        .open(path)
    {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error).with_context(at),
    };
    // It names programs that run as this user.
    paths::check_place(path).map_err(anyhow::Error::msg)?;
    if !file.metadata().with_context(at)?.is_file() {
        bail!("{}: it is no regular file", at());
    }
    let mut text = String::new();
    let read = file
        .take(MAX_BYTES + 1)
        .read_to_string(&mut text)
        .with_context(at)?;
    match read as u64 > MAX_BYTES {
        true => Err(anyhow!("{}: it is over 1 MiB", at())),
        false => Ok(Some(text)),
    }
}

impl Wrong {
    fn at(item: &Item, why: impl Into<String>) -> Wrong {
        Wrong {
            at: item.span(),
            why: why.into(),
        }
    }

    fn in_text(&self, text: &str) -> String {
        let Some(at) = &self.at else {
            return self.why.clone();
        };
        let before = text.get(..at.start).unwrap_or(text);
        let line = before.matches('\n').count() + 1;
        let column = before
            .rsplit('\n')
            .next()
            .unwrap_or_default()
            .chars()
            .count()
            + 1;
        format!("line {line}, column {column}: {}", self.why)
    }
}

fn read(text: &str, path: &[PathBuf]) -> Result<(BridgeConfig, Vec<String>), Wrong> {
    let document = Document::parse(text).map_err(|error| {
        let why = error.message().lines().collect::<Vec<_>>().join(", ");
        Wrong {
            at: error.span(),
            why,
        }
    })?;
    let (mut config, mut notes) = (BridgeConfig::default(), Vec::new());
    for (key, item) in document.iter() {
        match key {
            "idle_timeout_minutes" => config.idle = idle(item)?,
            "timeout_seconds" => config.limit = limit(item)?,
            "summary" => {
                for (key, item) in table(item, key)?.iter() {
                    match key {
                        "enabled" => {
                            config.summaries = item
                                .as_bool()
                                .ok_or_else(|| Wrong::at(item, "enabled must be true or false"))?
                        }
                        "model" => config.model = string(item, key)?,
                        _ => notes.push(format!("{FILE}: summary: unknown key {key}, ignored")),
                    }
                }
            }
            "servers" => config.servers = servers(table(item, key)?, path, &mut notes)?,
            _ => notes.push(format!("{FILE}: unknown key {key}, ignored")),
        }
    }
    if config.limit != LIMIT {
        // As long as the bridge waits, its daemon does.
        let milliseconds = config.limit.as_secs() * 1000;
        for entry in (config.servers.iter_mut()).filter_map(|server| server.entry.as_mut().ok()) {
            entry["timeout_ms"] = json!(milliseconds);
            entry["total_timeout_ms"] = json!(milliseconds.max(TOTAL_MS));
        }
    }
    Ok((config, notes))
}

fn limit(item: &Item) -> Result<Duration, Wrong> {
    let seconds = item
        .as_integer()
        .filter(|seconds| (1..=MAX_LIMIT_SECS).contains(seconds));
    seconds
        .map(|seconds| Duration::from_secs(seconds.unsigned_abs()))
        .ok_or_else(|| {
            Wrong::at(
                item,
                "timeout_seconds must be a whole number of seconds, 1 to 86400",
            )
        })
}

fn idle(item: &Item) -> Result<Duration, Wrong> {
    let minutes = item
        .as_float()
        .or_else(|| item.as_integer().map(|minutes| minutes as f64));
    let minutes = minutes.filter(|minutes| *minutes > 0.0 && *minutes <= MAX_MINUTES);
    let minutes = minutes.ok_or_else(|| {
        Wrong::at(
            item,
            "idle_timeout_minutes must be a number of minutes, up to a year",
        )
    })?;
    Ok(Duration::from_secs_f64(minutes * 60.0))
}

fn table<'i>(item: &'i Item, key: &str) -> Result<&'i dyn TableLike, Wrong> {
    item.as_table_like()
        .ok_or_else(|| Wrong::at(item, format!("{key} must be a table")))
}

fn string(item: &Item, key: &str) -> Result<String, Wrong> {
    let text = item
        .as_str()
        .ok_or_else(|| Wrong::at(item, format!("{key} must be a string")))?;
    match text.contains('\0') {
        true => Err(Wrong::at(item, format!("{key} holds a NUL"))),
        false => Ok(text.to_owned()),
    }
}

fn strings(item: &Item, key: &str) -> Result<Map<String, Value>, Wrong> {
    let members = table(item, key)?.iter();
    members
        .map(|(name, item)| Ok((name.to_owned(), Value::String(string(item, name)?))))
        .collect()
}

fn servers(
    all: &dyn TableLike,
    path: &[PathBuf],
    notes: &mut Vec<String>,
) -> Result<Vec<ConfiguredServer>, Wrong> {
    let mut named: Vec<(&str, &Item)> = all.iter().collect();
    named.sort_by_key(|(name, _)| *name);
    let mapped = map_names(named.iter().map(|(name, _)| *name));
    let mut servers = Vec::new();
    for (mapped, (_, item)) in mapped.into_iter().zip(named) {
        let entry =
            entry(&mapped.name, item, path, notes)?.and_then(|entry| checked(&mapped.id, entry));
        if let Err(why) = &entry {
            notes.push(format!("the server {:?} is left out: {why:#}", mapped.name));
        }
        servers.push(ConfiguredServer {
            name: mapped.name,
            id: mapped.id,
            entry: entry.map_err(|error| format!("{error:#}")),
        });
    }
    Ok(servers)
}

/// The entry of a server. What is not as the file must be is wrong with all of it; a program that
/// is not there is wrong with this server.
fn entry(
    name: &str,
    item: &Item,
    path: &[PathBuf],
    notes: &mut Vec<String>,
) -> Result<anyhow::Result<Value>, Wrong> {
    let (mut command, mut url) = (None, None);
    let (mut args, mut env, mut headers) = (Vec::new(), Map::new(), Map::new());
    for (key, item) in table(item, name)?.iter() {
        match key {
            "command" => command = Some(string(item, key)?),
            "url" => url = Some(string(item, key)?),
            "args" => {
                let list = item
                    .as_array()
                    .ok_or_else(|| Wrong::at(item, "args must be a list of strings"))?;
                let text = |value: &toml_edit::Value| {
                    value
                        .as_str()
                        .filter(|text| !text.contains('\0'))
                        .map(str::to_owned)
                };
                let list: Option<Vec<String>> = list.iter().map(text).collect();
                args = list.ok_or_else(|| Wrong::at(item, "args must be a list of strings"))?;
            }
            "env" => env = strings(item, key)?,
            "headers" => headers = strings(item, key)?,
            _ => notes.push(format!(
                "{FILE}: servers.{name}: unknown key {key}, ignored"
            )),
        }
    }
    match (command, url) {
        (Some(command), None) => Ok(program(&command, path).map(|command| {
            // What a script's first line names is found as the person finds it.
            let path: Vec<&str> = path.iter().filter_map(|part| part.to_str()).collect();
            env.entry("PATH")
                .or_insert_with(|| Value::String(path.join(":")));
            json!({ "command": command, "args": args, "env": env })
        })),
        (None, Some(url)) => Ok(colibri_api::check_url(&url)
            .map_err(|why| anyhow!("its url {why}"))
            .map(|()| {
                let mut entry = json!({ "url": url, "headers": headers });
                if let Some(allowed) = allowed(&url) {
                    entry["allow_addresses"] = json!([allowed]);
                }
                entry
            })),
        (Some(_), Some(_)) => Err(Wrong::at(
            item,
            format!("{name} has both a command and a url: leave one out"),
        )),
        (None, None) => Err(Wrong::at(
            item,
            format!("{name} has neither a command nor a url"),
        )),
    }
}

/// An entry that the daemon takes: one that it does not would be wrong with the whole registry
/// there.
fn checked(id: &str, entry: Value) -> anyhow::Result<Value> {
    let text = json!({ "servers": { id: entry } }).to_string();
    let refused = match Registry::<ServerEntry, AgentEntry>::parse(text.as_bytes(), FILE) {
        Ok(mut registry) => registry.refused.remove(id),
        Err(error) => Some(error),
    };
    match refused {
        Some(error) => Err(anyhow!("{}: {}", error.path, error.message)),
        None => Ok(entry),
    }
}

/// The permitted targets for an address that the person wrote down as such: this machine by its
/// name, or that address.
fn allowed(url: &str) -> Option<String> {
    let authority = colibri_api::authority(url);
    let host = match authority.strip_prefix('[') {
        Some(address) => address.split(']').next().unwrap_or_default(),
        None => authority.split(':').next().unwrap_or_default(),
    };
    match host.parse::<IpAddr>() {
        Ok(address) => Some(address.to_string()),
        Err(_) => host
            .eq_ignore_ascii_case("localhost")
            .then(|| "loopback".to_owned()),
    }
}

/// The absolute path of a program.
fn program(command: &str, path: &[PathBuf]) -> anyhow::Result<String> {
    if command.contains('/') {
        return match command.starts_with('/') {
            true => Ok(command.to_owned()),
            false => Err(anyhow!(
                "{command} is a relative path: write an absolute one, or the name of a program on PATH"
            )),
        };
    }
    let is_program = |path: &PathBuf| {
        path.metadata()
            .is_ok_and(|facts| facts.is_file() && facts.permissions().mode() & 0o111 != 0)
    };
    let found = path
        .iter()
        .map(|place| place.join(command))
        .find(is_program);
    let found = found.as_deref().and_then(Path::to_str).map(str::to_owned);
    found.with_context(|| format!("{command} is not on PATH"))
}

/// The parts of `PATH` that are not relative: such a part is whatever project is open.
fn absolute_path() -> Vec<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .filter(|part| part.is_absolute())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};

    fn good(text: &str) -> (BridgeConfig, Vec<String>) {
        read(text, &[]).unwrap_or_else(|wrong| panic!("{}", wrong.in_text(text)))
    }

    #[test]
    fn how_long_an_answer_may_take_is_what_the_daemon_waits_too() {
        let server = "[servers.a]\ncommand = \"/bin/true\"\n";
        let (config, _) = good(server);
        assert_eq!(config.limit, Duration::from_secs(27));
        assert!(
            config.servers[0]
                .entry
                .as_ref()
                .unwrap()
                .get("timeout_ms")
                .is_none()
        );
        for (seconds, total) in [(120, 3_600_000), (7200, 7_200_000)] {
            let (config, notes) = good(&format!("timeout_seconds = {seconds}\n{server}"));
            let entry = config.servers[0].entry.as_ref().unwrap();
            assert_eq!((config.limit.as_secs(), notes.len()), (seconds, 0));
            let waits = (&entry["timeout_ms"], &entry["total_timeout_ms"]);
            assert_eq!(waits, (&json!(seconds * 1000), &json!(total)));
        }
        for wrong in ["0", "-1", "86401", "1.5", "\"60\""] {
            let error = read(&format!("timeout_seconds = {wrong}\n"), &[]).unwrap_err();
            assert!(error.why.contains("1 to 86400"), "{wrong}");
        }
    }

    #[test]
    fn a_file_says_what_clients_of_it_wrote() {
        assert_eq!(good("").0, BridgeConfig::default());
        let (config, notes) = good(
            "idle_timeout_minutes = 10\n[summary]\nenabled = false\nmodel = \"m\"\n\
             [servers.serena]\ncommand = \"/bin/serena\"\nargs = [\"--stdio\"]\nenv = { KEY = \"v\" }\n\
             [servers.Remote_One]\nurl = \"https://example.org/mcp\"\n[servers.Remote_One.headers]\nX-Custom = \"value\"\n",
        );
        assert_eq!(
            (config.idle, config.summaries, config.model.as_str()),
            (Duration::from_secs(600), false, "m")
        );
        let ids: Vec<_> = config
            .servers
            .iter()
            .map(|server| (server.name.as_str(), server.id.as_str()))
            .collect();
        assert_eq!(ids, [("Remote_One", "remote-one"), ("serena", "serena")]);
        let entries: Vec<_> = config
            .servers
            .iter()
            .map(|server| server.entry.clone().unwrap())
            .collect();
        assert_eq!(
            entries[0],
            json!({ "url": "https://example.org/mcp", "headers": { "X-Custom": "value" } })
        );
        let env = json!({ "KEY": "v", "PATH": "" });
        assert_eq!(
            entries[1],
            json!({ "command": "/bin/serena", "args": ["--stdio"], "env": env })
        );
        assert!(notes.is_empty(), "{notes:?}");
        assert_eq!(
            good("idle_timeout_minutes = 0.5").0.idle,
            Duration::from_secs(30)
        );
    }

    #[test]
    fn what_is_wrong_is_told_with_its_place() {
        for (text, wanted) in [
            ("a = \n", "line 1, column 5"),
            (
                "idle_timeout_minutes = 0\n",
                "line 1, column 24: idle_timeout_minutes",
            ),
            (
                "idle_timeout_minutes = nan\n",
                "line 1, column 24: idle_timeout_minutes",
            ),
            (
                "idle_timeout_minutes = \"5\"\n",
                "line 1, column 24: idle_timeout_minutes",
            ),
            (
                "summary = 1\n",
                "line 1, column 11: summary must be a table",
            ),
            ("[summary]\nenabled = 1\n", "line 2, column 11: enabled"),
            (
                "[servers.a]\ncommand = 1\n",
                "line 2, column 11: command must be a string",
            ),
            (
                "[servers.a]\ncommand = \"/x\\u0000\"\n",
                "line 2, column 11: command holds a NUL",
            ),
            (
                "[servers.a]\ncommand = \"/x\"\nargs = [1]\n",
                "line 3, column 8: args",
            ),
            (
                "[servers.a]\ncommand = \"/x\"\nurl = \"https://x\"\n",
                "both a command and a url",
            ),
            ("[servers]\na = 1\n", "line 2, column 5: a must be a table"),
        ] {
            let wrong = read(text, &[]).unwrap_err().in_text(text);
            assert!(wrong.contains(wanted), "{text}: {wrong}");
        }
    }

    #[test]
    fn a_server_that_cannot_run_is_left_out_and_hinders_no_other() {
        let place = tempfile::tempdir().unwrap();
        let program = place.path().join("program");
        fs::write(&program, "").unwrap();
        let text = "[servers.a]\ncommand = \"program\"\n[servers.b]\ncommand = \"./program\"\n[servers.c]\nurl = \"ftp://x\"\n";
        let entries = |path: &[PathBuf]| {
            let (config, notes) =
                read(text, path).unwrap_or_else(|wrong| panic!("{}", wrong.in_text(text)));
            let entries: Vec<_> = config
                .servers
                .into_iter()
                .map(|server| server.entry)
                .collect();
            (entries, notes)
        };
        let path = [place.path().to_owned()];
        let (found, notes) = entries(&path);
        // What cannot be executed is no program.
        assert!(
            found.iter().all(Result::is_err) && notes.len() == 3,
            "{found:?}"
        );
        fs::set_permissions(&program, Permissions::from_mode(0o755)).unwrap();
        let (found, _) = entries(&path);
        assert_eq!(
            found[0].as_ref().unwrap()["command"],
            program.to_str().unwrap()
        );
        assert_eq!(
            found[0].as_ref().unwrap()["env"]["PATH"],
            place.path().to_str().unwrap()
        );
        assert!(
            found[1].as_ref().unwrap_err().contains("relative path"),
            "{found:?}"
        );
        assert!(found[2].is_err());
    }

    #[test]
    fn what_the_daemon_would_refuse_is_left_out_alone() {
        let (config, notes) = good(
            "[servers.a]\ncommand = \"/bin/a\"\n[servers.b]\ncommand = \"/bin/b\"\nenv = { \"A=B\" = \"secret\" }\n\
             [servers.c]\ncommand = \"/bin/../c\"\n",
        );
        let left_out: Vec<_> = config
            .servers
            .iter()
            .map(|server| server.entry.is_err())
            .collect();
        assert_eq!(left_out, [false, true, true], "{notes:?}");
        assert!(
            notes[0].starts_with("the server \"b\" is left out: servers.b.env.A=B: "),
            "{notes:?}"
        );
        assert!(!notes[0].contains("secret"), "{notes:?}");
    }

    #[test]
    fn an_address_that_stands_in_the_file_may_be_connected_to() {
        for (url, wanted) in [
            ("http://localhost:9/mcp", Some("loopback")),
            ("http://127.0.0.1:9/mcp", Some("127.0.0.1")),
            ("http://[::1]:9/mcp", Some("::1")),
            ("https://example.org/localhost", None),
            ("https://localhost.example.org/", None),
            ("http://192.168.1.5/", Some("192.168.1.5")),
        ] {
            assert_eq!(allowed(url).as_deref(), wanted, "{url}");
        }
    }
}
