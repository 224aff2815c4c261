//! The trial of a new version: a daemon of its own starts the server with an empty home and without
//! its secrets, and compares its definitions with those that were approved.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io::{Read as _, Seek as _};
use std::os::unix::fs::{DirBuilderExt as _, PermissionsExt as _, chown};
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use colibri_api::{
    PinDiffRequest, PinDiffs, PinList, PinRow, PinState, PinSubject, PinsRequest, ServerTools,
};
use colibri_registry::{EntryValue, StdioCommand};
use nix::unistd::{User, geteuid};
use serde_json::{Map, Value, json};
use tempfile::TempDir;

use crate::commands::add::{INTRODUCTION, started};
use crate::commands::connect::own_path;
use crate::commands::demo::daemon_program::daemon_program;
use crate::connection::{DaemonAddress, DaemonConnection};
use crate::install::InstallScope;
use crate::interrupt;

/// The longest time for the daemon to listen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Between two looks.
const PAUSE: Duration = Duration::from_millis(10);
/// The longest name of a directory for sockets: sun_path has 104 bytes on FreeBSD.
const MAX_DIRECTORY: usize = 48;
/// The file of pins in a state directory.
const PINS: &str = "pins.json";

/// The differences of a new version from what was approved.
#[derive(Debug)]
pub(super) struct TrialOutcome {
    /// The number of tools that it offers.
    pub tools: u64,
    /// Definitions that are new or changed. Empty where none was ever approved.
    pub diffs: PinDiffs,
    /// Tools that were approved and are gone.
    pub gone: Vec<String>,
}

impl TrialOutcome {
    /// True if it defines what was approved, and nothing else.
    pub(super) fn is_same(&self) -> bool {
        self.diffs.diffs.is_empty() && self.diffs.left_out == 0 && self.gone.is_empty()
    }
}

/// The server that is tried.
pub(super) struct ServerTrial<'c> {
    /// Its id.
    pub id: &'c str,
    /// Its command, completed by the new package.
    pub command: StdioCommand,
    /// The state directory of the daemon that it is for, where the approved definitions are.
    pub state_dir: &'c Path,
    /// True if it is started with its secrets, and with the home that it has otherwise.
    pub with_secrets: bool,
}

impl ServerTrial<'_> {
    /// Starts a new version, and compares it.
    ///
    /// # Errors
    /// It does not start, or does not say what it offers.
    pub(super) fn run(&self, scope: &InstallScope) -> anyhow::Result<TrialOutcome> {
        let place =
            Some(std::env::temp_dir()).filter(|path| path.as_os_str().len() < MAX_DIRECTORY);
        let place = place
            .unwrap_or_else(|| PathBuf::from("/tmp"))
            .canonicalize()?;
        let place = tempfile::Builder::new()
            .prefix("colibri-trial-")
            .tempdir_in(place)?;
        let user = match scope.is_service() {
            true => Some(
                User::from_name("colibri")?.context("there is no user colibri on this machine")?,
            ),
            false => None,
        };
        let is_approved = prepare(&place, self, scope, user.as_ref())? > 0;
        let mut daemon = TrialDaemon::start(&place, user.as_ref(), is_approved)?;
        let mut connection = daemon.connect(&place)?;
        let answer = started(&mut connection, self.id, Instant::now() + INTRODUCTION)?;
        compare(&mut connection, self.id, &answer, is_approved)
    }

    /// The reason for which it does not start with an empty home and without its secrets.
    pub(super) fn without_home(&self, why: &anyhow::Error) -> anyhow::Error {
        let is_secret = |value: &EntryValue| matches!(value, EntryValue::Secret(_));
        match self.command.env.values().any(is_secret) {
            false => anyhow!("with an empty home it does not start: {why:#}"),
            true => {
                anyhow!("with an empty home and without its secrets it does not start: {why:#}")
            }
        }
    }
}

fn compare(
    connection: &mut DaemonConnection,
    id: &str,
    answer: &ServerTools,
    is_approved: bool,
) -> anyhow::Result<TrialOutcome> {
    let server = Some(id.to_owned());
    let (pins, _) = connection.ask::<PinList>("colibri/pins", &PinsRequest { server })?;
    let asked = PinDiffRequest {
        server: id.to_owned(),
        subject: None,
    };
    let (mut diffs, _) = connection.ask::<PinDiffs>("colibri/pin-diff", &asked)?;
    let is_waiting_tool =
        |pin: &&PinRow| matches!(pin.subject, PinSubject::Tool(_)) && pin.waiting.is_some();
    let waiting = pins.pins.iter().filter(is_waiting_tool).count();
    let tools = (answer.tools.len() + waiting) as u64 + answer.left_out + answer.unlistable;
    let mut gone = Vec::new();
    if is_approved {
        // What waits is not listed.
        let is_listed = |name: &str| answer.tools.iter().any(|tool| tool.tool == name);
        for pin in &pins.pins {
            match &pin.subject {
                PinSubject::Tool(name) if pin.state == PinState::Approved && !is_listed(name) => {
                    gone.push(name.clone())
                }
                _ => {}
            }
        }
    } else {
        diffs.diffs.clear();
    }
    Ok(TrialOutcome { tools, diffs, gone })
}

/// Lays out what the daemon of the trial reads; the number of definitions that were approved of the
/// server.
fn prepare(
    place: &TempDir,
    trial: &ServerTrial<'_>,
    scope: &InstallScope,
    user: Option<&User>,
) -> anyhow::Result<usize> {
    let path = |name: &str| place.path().join(name);
    for name in ["home", "state", "skills", "daemon-secrets"] {
        DirBuilder::new().mode(0o700).create(path(name))?;
    }
    let (mut env, command) = (Map::new(), &trial.command);
    for (name, value) in &command.env {
        match value {
            EntryValue::Plain(text) => drop(env.insert(name.clone(), json!(text))),
            EntryValue::Secret(secret) if trial.with_secrets => {
                let copy = path("daemon-secrets").join(secret);
                fs::copy(scope.secrets.join(secret), &copy)
                    .with_context(|| format!("the secret {secret}"))?;
                fs::set_permissions(&copy, fs::Permissions::from_mode(0o400))?;
                env.insert(name.clone(), json!({ "secret": secret }));
            }
            EntryValue::Secret(_) => {}
        }
    }
    if !trial.with_secrets {
        env.insert("HOME".to_owned(), json!(path("home")));
    }
    let mut entry = json!({ "command": command.program, "args": command.args, "env": env });
    if let Some(cwd) = &command.cwd {
        entry["cwd"] = json!(cwd);
    }
    let own =
        json!({ "gates": ["external-call"], "servers": { trial.id: ["*"] }, "operator": true });
    let uid = geteuid().to_string();
    let pins = approved(trial)?;
    let count = pins.as_object().map_or(0, |pins| {
        let all = pins.values().filter_map(Value::as_object);
        all.map(Map::len).sum()
    });
    for (name, value) in [
        (
            "external-mcp.json",
            json!({ "servers": { trial.id: entry } }),
        ),
        ("clients.json", json!({ "users": { uid: own } })),
        ("state/pins.json", json!({ "servers": { trial.id: pins } })),
    ] {
        fs::write(path(name), value.to_string())?;
        fs::set_permissions(path(name), fs::Permissions::from_mode(0o600))?;
    }
    if let Some(user) = user {
        give(place.path(), user)?;
    }
    Ok(count)
}

/// The approved definitions of a server, as the daemon wrote them.
fn approved(trial: &ServerTrial<'_>) -> anyhow::Result<Value> {
    let path = trial.state_dir.join(PINS);
    let text = match fs::read(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(json!({})),
        Err(error) => return Err(error).with_context(|| path.display().to_string()),
    };
    let mut pins: Value =
        serde_json::from_slice(&text).with_context(|| path.display().to_string())?;
    let own = pins
        .get_mut("servers")
        .and_then(|servers| servers.get_mut(trial.id));
    Ok(own.map_or_else(|| json!({}), Value::take))
}

/// Gives a directory with all in it to the user as whom its daemon runs.
fn give(path: &Path, user: &User) -> anyhow::Result<()> {
    if path.is_dir() {
        for entry in fs::read_dir(path)? {
            give(&entry?.path(), user)?;
        }
    }
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw()))
        .with_context(|| path.display().to_string())
}

/// The daemon of a trial. It ends with this, also if this process is killed.
struct TrialDaemon {
    child: Child,
    /// Its log, in a file without a name: it runs as somebody else than this, who could put another
    /// there.
    log: File,
}

impl TrialDaemon {
    fn start(place: &TempDir, user: Option<&User>, is_strict: bool) -> anyhow::Result<TrialDaemon> {
        let path = |name: &str| place.path().join(name);
        let mut arguments: Vec<OsString> = vec!["demo-daemon".into(), "--".into()];
        arguments.extend([daemon_program()?.into(), "--external-call".into()]);
        for (flag, file) in [
            ("--socket", path("s")),
            ("--external-config", path("external-mcp.json")),
            ("--clients", path("clients.json")),
            ("--state-dir", path("state")),
            ("--skills", path("skills")),
        ] {
            arguments.extend([flag.into(), file.into()]);
        }
        if is_strict {
            // Nothing counts as approved but what was.
            arguments.push("--pin-strict".into());
        }
        let log = tempfile::tempfile()?;
        let mut command = Command::new(own_path()?);
        match user {
            Some(user) => drop(command.uid(user.uid.as_raw()).gid(user.gid.as_raw())),
            None if geteuid().is_root() => arguments.push("--allow-root".into()),
            None => {}
        }
        let child = command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", path("home"))
            .current_dir(place.path())
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log.try_clone()?)
            .process_group(0)
            .spawn()
            .context("the daemon of the trial")?;
        Ok(TrialDaemon { child, log })
    }

    fn connect(&mut self, place: &TempDir) -> anyhow::Result<DaemonConnection> {
        let address = DaemonAddress::from(place.path().join("s"));
        let until = Instant::now() + PATIENCE;
        loop {
            interrupt::check()?;
            let ended = self.child.try_wait()?;
            match DaemonConnection::open(&address, false) {
                Ok(connection) => return Ok(connection),
                Err(error) if ended.is_some() || Instant::now() > until => {
                    let mut log = String::new();
                    let _ = self
                        .log
                        .rewind()
                        .and_then(|()| self.log.read_to_string(&mut log));
                    let last = log.lines().last().unwrap_or_default();
                    bail!("the daemon of the trial cannot be reached: {error}; {last}");
                }
                Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for TrialDaemon {
    fn drop(&mut self) {
        // Its stdin is its lifeline; it ends the server, and then itself.
        drop(self.child.stdin.take());
        let _ = self.child.wait();
    }
}
