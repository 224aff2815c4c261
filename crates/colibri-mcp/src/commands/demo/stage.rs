//! A demo's stage: its directory, its daemon, and what of all that must be gone at the end.

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt, chown};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, anyhow, bail};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, User, getuid};
use parking_lot::{Mutex, MutexGuard};
use serde_json::{Value, json};

use super::super::connect::own_path;
use super::super::context::CommandContext;
use super::super::signals::on_signals;
use crate::connection::DaemonConnection;
use crate::failure::CommandError;
use crate::records;
use colibri_api::HELPER;
use colibri_api::paths::{DAEMON_USER, SERVICE};
use colibri_registry::{PATH as REGISTRY, Registry};
use colibri_text::{visible, visible_lines};

/// The longest time for the daemon to start, and to end.
pub(super) const PATIENCE: Duration = Duration::from_secs(10);

/// The id of the demo's server in the demo's registry.
pub(super) const SERVER: &str = "demo";

/// The key of the demo's model, which its relay adds.
pub(super) const KEY: &str = "the-demos-own-key-which-no-agent-sees";

/// Prints a line, or ends the function.
macro_rules! say {
    ($($text:tt)*) => { crate::terminal::print(&format!($($text)*))? };
}
pub(super) use say;

/// The error of a demo in which something is not as it should be.
pub(super) fn not_as_shown(what: &str) -> CommandError {
    CommandError::Machine(what.to_owned())
}

/// Text under a heading.
pub(super) fn indented(text: &str) -> String {
    let lines: Vec<_> = visible_lines(text)
        .lines()
        .map(|line| format!("   {line}").trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Shows a demo on a stage of its own, with a daemon of this program, and takes everything away
/// again.
pub(super) fn play(
    daemon: PathBuf,
    ids: &[&str],
    show: impl FnOnce(&Mutex<Stage>) -> Result<(), CommandError>,
) -> Result<(), CommandError> {
    let stage = Arc::new(Mutex::new(Stage::new(daemon, ids)));
    clean_up_on_signals(stage.clone())?;
    let outcome = show(&stage);
    let left = lock(&stage).clear();
    outcome?;
    left
}

/// Ends the daemon, so that its trail is sealed, and verifies that trail.
pub(super) fn verify(stage: &Mutex<Stage>) -> Result<(), CommandError> {
    let mut stage = lock(stage);
    if let Some(mut daemon) = stage.daemon.take() {
        end(&mut daemon).map_err(|error| CommandError::Machine(format!("{error:#}")))?;
    }
    let Some(directory) = &stage.directory else {
        return Err(not_as_shown("the demo's directory is gone"));
    };
    let state_dir = directory.join("state");
    let key = records::verifier(&state_dir)?;
    let mut report = Vec::new();
    let status = records::print_verify(
        &state_dir,
        None,
        &Default::default(),
        key.as_ref(),
        false,
        &mut report,
    )?;
    say!(
        "   $ colibri-mcp trail verify --state-dir {}",
        state_dir.display()
    );
    say!("{}\n", indented(&String::from_utf8_lossy(&report)));
    match status {
        0 => Ok(()),
        _ => Err(not_as_shown("the demo's own trail does not verify")),
    }
}

/// The jail of the demo's server here.
pub(super) const JAIL: &str = if cfg!(target_os = "freebsd") {
    "in a jail"
} else {
    "in the helper's development sandbox, which is no jail"
};

/// The place where the demo's server runs.
#[derive(Debug)]
pub(super) enum DemoPlace {
    /// Confined by the helper, as the registry's own entry for it says.
    Jail,
    /// As a process of this user's.
    Host {
        /// The missing condition for a jail.
        why: String,
    },
}

impl DemoPlace {
    /// In a jail wherever root has prepared one: the helper does only what registry and policy at
    /// their fixed paths both say, for the service's user and for root.
    fn find(ids: &[&str]) -> DemoPlace {
        match confined(ids) {
            Ok(()) => DemoPlace::Jail,
            Err(why) => DemoPlace::Host {
                why: format!("{why:#}"),
            },
        }
    }
}

/// # Errors
/// What is missing.
fn confined(ids: &[&str]) -> anyhow::Result<()> {
    if let Err(error) = fs::symlink_metadata(HELPER)
        && error.kind() == io::ErrorKind::NotFound
    {
        bail!("colibri-jail-helper is not installed");
    }
    let bytes = fs::read(REGISTRY).context(REGISTRY)?;
    let registry = Registry::parse(&bytes, REGISTRY)?;
    for id in ids {
        let server = registry.servers.get(*id).filter(|entry| !entry.disabled);
        let agent = registry.agents.get(*id).filter(|agent| !agent.disabled);
        let jailed = server.is_some_and(|entry| entry.jail().is_some())
            || agent.is_some_and(|agent| agent.command.jail.is_some());
        if !jailed {
            let kind = if *id == SERVER { "server" } else { "agent" };
            bail!("{REGISTRY} has no jailed {kind} called {id}");
        }
        let output = Command::new(HELPER)
            .args(["plan", id])
            .env_clear()
            .stdin(Stdio::null())
            .output()
            .with_context(|| format!("{HELPER} cannot be executed"))?;
        if !output.status.success() {
            let said = String::from_utf8_lossy(&output.stderr);
            let first = said
                .lines()
                .next()
                .unwrap_or("the helper refused without a word");
            bail!("{first}");
        }
    }
    Ok(())
}

/// All that the demo has started or made, and must take away again.
#[derive(Debug)]
pub(super) struct Stage {
    pub place: DemoPlace,
    /// The daemon's.
    program: PathBuf,
    pub directory: Option<PathBuf>,
    daemon: Option<Child>,
    /// Process ids of hosted servers that were seen.
    pub processes: Vec<i32>,
    /// A directory of the socket's that was made for it.
    beside: Option<PathBuf>,
}

pub(super) fn lock(stage: &Mutex<Stage>) -> MutexGuard<'_, Stage> {
    stage.lock()
}

impl Stage {
    fn new(program: PathBuf, ids: &[&str]) -> Stage {
        Stage {
            place: DemoPlace::find(ids),
            program,
            directory: None,
            daemon: None,
            processes: Vec::new(),
            beside: None,
        }
    }

    /// Makes a private directory and starts the daemon in it. With agents its write gate is open:
    /// who has one run changes something.
    pub(super) fn start(&mut self, agents: &Value) -> Result<CommandContext, CommandError> {
        let machine = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| CommandError::Machine(format!("{what}: {error}"))
        };
        let directory =
            private_directory().map_err(machine("cannot make a temporary directory"))?;
        self.directory = Some(directory.clone());
        for name in ["notes", "state", "skills", "daemon-secrets"] {
            DirBuilder::new()
                .mode(0o700)
                .create(directory.join(name))
                .map_err(machine("cannot make a directory"))?;
        }
        let program = own_path()?;
        let notes = directory.join("notes");
        let entry = json!({ "command": program, "args": ["demo-server", "--notes", notes] });
        // What else stands in the machine's registry is none of the demo's business.
        let rule = json!({ "gates": ["write", "external-call"], "servers": { SERVER: ["*"] },
            "operator": matches!(self.place, DemoPlace::Host { .. }) });
        let clients = json!({ "users": { getuid().to_string(): rule } });
        write_private(&directory.join("clients.json"), &clients.to_string())
            .map_err(machine("cannot write the demo's rules"))?;
        let registry = match self.place {
            DemoPlace::Jail => PathBuf::from(REGISTRY),
            DemoPlace::Host { .. } => {
                let registry = directory.join("external-mcp.json");
                let both = json!({ "servers": { SERVER: entry }, "agents": agents });
                write_private(&registry, &both.to_string())
                    .map_err(machine("cannot write the demo's registry"))?;
                write_private(&directory.join("daemon-secrets").join(SERVER), KEY)
                    .map_err(machine("cannot write the demo's secret"))?;
                registry
            }
        };
        let with_agents = agents.as_object().is_some_and(|agents| !agents.is_empty());
        // An agent's jail is shown its agent socket from where the service has it, and if it is the
        // service's user's.
        let service = match self.place {
            DemoPlace::Jail if with_agents => Some(service_user()?),
            _ => None,
        };
        let socket = match &service {
            Some(user) => {
                let beside = SERVICE.socket_directory();
                if DirBuilder::new().mode(0o755).create(beside).is_ok() {
                    self.beside = Some(beside.to_owned());
                    give(beside, user)?;
                }
                beside.join(format!("demo-{}.sock", std::process::id()))
            }
            _ => directory.join("colibri.sock"),
        };
        let log =
            File::create(directory.join("log")).map_err(machine("cannot make the daemon's log"))?;
        let mut arguments: Vec<OsString> = vec![
            "demo-daemon".into(),
            "--".into(),
            self.program.clone().into(),
            "--external-call".into(),
        ];
        for (flag, path) in [
            ("--socket", &socket),
            ("--external-config", &registry),
            ("--clients", &directory.join("clients.json")),
            ("--state-dir", &directory.join("state")),
            ("--skills", &directory.join("skills")),
        ] {
            arguments.extend([flag.into(), path.into()]);
        }
        if matches!(self.place, DemoPlace::Jail) {
            arguments.push("--require-jail".into());
        }
        if with_agents {
            arguments.push("--write".into());
        }
        let mut command = Command::new(&program);
        match &service {
            Some(user) => {
                for path in ["", "state", "skills", "daemon-secrets", "clients.json"] {
                    give(&directory.join(path), user)?;
                }
                command.uid(user.uid.as_raw()).gid(user.gid.as_raw());
            }
            None if getuid().is_root() => arguments.push("--allow-root".into()),
            None => {}
        }
        let daemon = command
            .args(arguments)
            .env_clear()
            .env("PATH", "/usr/local/bin:/usr/bin:/bin")
            .env("HOME", &directory)
            .env("XDG_CONFIG_HOME", &directory)
            .current_dir(&directory)
            // Its stdin is its lifeline: the daemon ends when this process does, however that ends.
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(log)
            // A group of its own: Ctrl-C is for the demo, which then ends the daemon in order.
            .process_group(0)
            .spawn()
            .map_err(machine("cannot start the daemon"))?;
        self.daemon = Some(daemon);
        Ok(CommandContext {
            place: socket.into(),
            chosen: None,
            read_only: false,
            json: false,
        })
    }

    /// The daemon's last words on stderr.
    fn log(&self) -> String {
        let log = self
            .directory
            .as_ref()
            .and_then(|directory| fs::read_to_string(directory.join("log")).ok());
        let log = log.unwrap_or_default();
        let last: Vec<_> = log.lines().rev().take(10).collect();
        last.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Ends everything, and checks that it has ended.
    fn clear(&mut self) -> Result<(), CommandError> {
        let mut left = Vec::new();
        if let Some(mut daemon) = self.daemon.take()
            && let Err(why) = end(&mut daemon)
        {
            left.push(format!("{why:#}"));
        }
        for pid in self.processes.drain(..) {
            let gone = until(PATIENCE, || {
                kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH)
            });
            if !gone {
                left.push(format!("the server process {pid} still runs"));
            }
        }
        if let Some(directory) = self.directory.take() {
            let removed = fs::remove_dir_all(&directory);
            if let Err(error) = removed
                && directory.exists()
            {
                left.push(format!(
                    "{} cannot be removed: {error}",
                    directory.display()
                ));
            }
        }
        if let Some(beside) = self.beside.take() {
            // Another daemon may use it by now.
            let _ = fs::remove_dir(beside.join("doors"));
            let _ = fs::remove_dir(beside);
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(CommandError::Machine(format!(
                "something is left: {}",
                left.join("; ")
            )))
        }
    }
}

/// The service's user, whom the helper's policy names as its caller.
fn service_user() -> Result<User, CommandError> {
    let found = User::from_name(DAEMON_USER)
        .map_err(|error| CommandError::Machine(format!("the user {DAEMON_USER}: {error}")))?;
    found.ok_or_else(|| not_as_shown("there is no user colibri, though the helper is installed"))
}

/// Gives a file or directory of the demo's to the user as whom its daemon runs.
fn give(path: &Path, user: &User) -> Result<(), CommandError> {
    chown(path, Some(user.uid.as_raw()), Some(user.gid.as_raw())).map_err(|error| {
        CommandError::Machine(format!(
            "{} cannot be given to {}: {error}",
            path.display(),
            user.name
        ))
    })
}

/// Signals the supervisor to end the daemon, and waits until both have ended.
fn end(daemon: &mut Child) -> anyhow::Result<()> {
    drop(daemon.stdin.take());
    match daemon.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err(anyhow!("the daemon had to be killed, or failed")),
        Err(error) => Err(anyhow!("the daemon cannot be ended: {error}")),
    }
}

/// Repeats a request, for a time.
pub(super) fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
    let deadline = Instant::now() + limit;
    loop {
        if done() {
            return true;
        }
        if Instant::now() > deadline {
            return false;
        }
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Connects as soon as the daemon listens. If it ends instead, its log says why.
pub(super) fn wait_for_daemon(
    stage: &Mutex<Stage>,
    context: &CommandContext,
) -> Result<DaemonConnection, CommandError> {
    let mut connection = Err(CommandError::Machine(String::new()));
    let mut ended = false;
    until(PATIENCE, || {
        connection = context.connect();
        ended = match &mut lock(stage).daemon {
            Some(daemon) => !matches!(daemon.try_wait(), Ok(None)),
            None => true,
        };
        connection.is_ok() || ended
    });
    connection.map_err(|error| {
        let what = if ended {
            "the daemon did not start".to_owned()
        } else {
            error.to_string()
        };
        CommandError::Machine(format!("{what}\n{}", lock(stage).log()))
    })
}

/// A new directory that only this user can enter. The name cannot be taken over: creating what
/// exists fails.
fn private_directory() -> io::Result<PathBuf> {
    // The socket's path must fit into sun_path, 104 bytes on FreeBSD, so a long TMPDIR is not used.
    let parent = Some(std::env::temp_dir())
        .filter(|path| path.as_os_str().len() < 48)
        .unwrap_or("/tmp".into());
    let parent = parent.canonicalize()?;
    let mut last = io::Error::from(io::ErrorKind::AlreadyExists);
    for attempt in 0..100 {
        let path = parent.join(format!("colibri-demo-{}-{attempt}", std::process::id()));
        match DirBuilder::new().mode(0o700).create(&path) {
            Ok(()) => return Ok(path),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn write_private(path: &Path, text: &str) -> io::Result<()> {
    let mut file = fs::OpenOptions::new()
        .write(true)
        .create_new(true)
        .mode(0o600)
        .open(path)?;
    io::Write::write_all(&mut file, text.as_bytes())
}

/// From now on SIGINT, SIGTERM and SIGHUP end the demo in order, with 128 and the signal's number.
fn clean_up_on_signals(stage: Arc<Mutex<Stage>>) -> Result<(), CommandError> {
    on_signals(
        &[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP],
        move |signal| {
            // Held until the process ends: the other thread starts nothing any more.
            let mut stage = lock(&stage);
            let left = stage.clear();
            match left {
                Ok(()) => eprintln!("\ncolibri-mcp: interrupted; everything was taken away again"),
                Err(failure) => eprintln!(
                    "\ncolibri-mcp: interrupted; {}",
                    visible(&failure.to_string())
                ),
            }
            std::process::exit(128 + signal as i32);
        },
    )
}
