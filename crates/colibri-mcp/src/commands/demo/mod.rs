//! `colibri-mcp demo`: a private daemon, one server, real calls, and nothing left behind.

pub(crate) mod daemon;
pub(crate) mod server;

use std::ffi::OsString;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::unistd::{Pid, getuid};
use serde_json::value::to_raw_value;
use serde_json::{Value, json};

use super::call;
use super::connect::{Bridge, Editor, explained, own_path, snippet};
use super::context::Context;
use super::signals::on_signals;
use super::tool_list::{OWN, exposed};
use crate::connection::{Connection, Progress, ToolResult};
use crate::failure::Failure;
use crate::{records, terminal};
use colibri_api::{HELPER, Servers};
use colibri_registry::{PATH as REGISTRY, Registry};
use colibri_text::{visible, visible_lines};

/// How long the daemon may take to start, and to end.
const PATIENCE: Duration = Duration::from_secs(10);

/// The demo server's id in the demo's registry.
const SERVER: &str = "demo";

/// Prints a line, or ends the function.
macro_rules! say {
    ($($text:tt)*) => { terminal::print(&format!($($text)*))? };
}

/// Runs the command.
pub(crate) fn run() -> Result<(), Failure> {
    let program = daemon::program()?;
    let began = Instant::now();
    let stage = Arc::new(Mutex::new(Stage::new(program)));
    clean_up_on_signals(stage.clone())?;
    let outcome = show(&stage).and_then(|()| verify(&stage));
    let left = lock(&stage).clear();
    outcome?;
    left?;
    say!("9. Everything has ended");
    say!("   No process and no file of it is left.\n");
    say!(
        "That was Colibri MCP, in {:.1} s. Next: docs/guide, or `colibri-mcp --help`.",
        began.elapsed().as_secs_f32()
    );
    Ok(())
}

/// What should be so in a demo, and is not.
fn not_as_shown(what: &str) -> Failure {
    Failure::Machine(what.to_owned())
}

fn show(stage: &Mutex<Stage>) -> Result<(), Failure> {
    say!("Colibri MCP: one service that gives every editor on a machine the same tools.\n");

    say!("1. A daemon of its own, for this demo");
    let context = lock(stage).start()?;
    let mut connection = wait_for_daemon(stage, &context)?;
    say!("   It listens on {}", context.place.socket.display());
    say!("   Gates: external-call open, write closed (the default).\n");

    match &lock(stage).place {
        Place::Jail => say!("2. It hosts one MCP server, {JAIL}, and every editor sees these tools"),
        Place::Host { why } => {
            say!("2. It hosts one MCP server, and every editor sees these tools");
            say!("   The server runs as a process of this host, not in a jail:");
            say!("   {}", visible(why));
        }
    }
    let (all, _) = exposed(&mut connection, false)?;
    let prefix = format!("{SERVER}__");
    let hosted: Vec<_> = all.iter().filter(|tool| tool.name.starts_with(&prefix)).collect();
    for tool in &hosted {
        say!("   {:18} {}", visible(&tool.name), visible(&tool.summary()));
    }
    if hosted.is_empty() {
        return Err(not_as_shown("the demo server's tools are not listed"));
    }
    let own = all.len() - hosted.len();
    say!("   and {own} of Colibri's own: status, tasks, skills, the servers themselves.\n");

    say!("3. A call");
    let hello = json!({ "text": "Hello from a hosted server" });
    demonstrate(&mut connection, "echo", &hello, false)?;
    note_processes(stage, &mut connection)?;

    say!("4. Progress, as it happens");
    demonstrate(&mut connection, "count", &json!({ "to": 20, "ms": 25 }), true)?;

    say!("5. Something to keep: a note, written and read back");
    let note = json!({ "name": "today", "text": "met Colibri" });
    demonstrate(&mut connection, "write_note", &note, false)?;
    demonstrate(&mut connection, "read_note", &json!({ "name": "today" }), false)?;

    say!("6. A refusal: the write gate is closed");
    let title = json!({ "title": "Try Colibri", "description": "from the demo" });
    let refused = ask(&mut connection, OWN, "colibri_create_task", &title, &mut |_| {})?;
    say!("{}", command_line(OWN, "colibri_create_task", &title));
    say!("{}\n", indented(&refused.readable()));
    if !refused.is_error {
        return Err(not_as_shown("the write gate is closed, but a task was created"));
    }

    say!("7. Your editor joins by `colibri-mcp connect zed`, which writes a few lines");
    let lines = snippet(Editor::Zed, &Bridge::here()?)?;
    say!("{}", indented(&explained(Editor::Zed, &lines)));
    say!("   (`colibri-mcp connect` knows nine editors and agents.)\n");
    Ok(())
}

/// Ends the daemon, so that its trail is sealed, and verifies that trail.
fn verify(stage: &Mutex<Stage>) -> Result<(), Failure> {
    say!("8. All of it was recorded; the daemon ends, and its trail is verified");
    let mut stage = lock(stage);
    if let Some(mut daemon) = stage.daemon.take() {
        end(&mut daemon).map_err(Failure::Machine)?;
    }
    let Some(directory) = &stage.directory else {
        return Err(not_as_shown("the demo's directory is gone"));
    };
    let state_dir = directory.join("state");
    let key = records::verifier(&state_dir, None)?;
    let mut report = Vec::new();
    let status = records::print_verify(&state_dir, None, None, key.as_ref(), false, &mut report)?;
    say!("   $ colibri-mcp trail verify --state-dir {}", state_dir.display());
    say!("{}\n", indented(&String::from_utf8_lossy(&report)));
    match status {
        0 => Ok(()),
        _ => Err(not_as_shown("the demo's own trail does not verify")),
    }
}

/// Makes a call of the demo's server as `colibri-mcp call` would, and shows both.
fn demonstrate(connection: &mut Connection, tool: &str, arguments: &Value, with_progress: bool) -> Result<(), Failure> {
    say!("{}", command_line(SERVER, tool, arguments));
    let mut steps = 0;
    let result = ask(connection, SERVER, tool, arguments, &mut |_| steps += 1)?;
    if with_progress {
        if steps == 0 {
            return Err(not_as_shown("no progress arrived before the answer"));
        }
        say!("   [{}] {steps} progress messages before the answer", "#".repeat(steps));
    }
    say!("{}\n", indented(&result.readable()));
    if result.is_error {
        return Err(Failure::ToolError);
    }
    Ok(())
}

fn ask(
    connection: &mut Connection,
    server: &str,
    tool: &str,
    arguments: &Value,
    on_progress: &mut dyn FnMut(&Progress),
) -> Result<ToolResult, Failure> {
    let arguments = to_raw_value(arguments).map_err(|error| Failure::Machine(error.to_string()))?;
    Ok(call::call(connection, server, tool, &arguments, on_progress)?)
}

fn command_line(server: &str, tool: &str, arguments: &Value) -> String {
    let mut text = format!("   $ colibri-mcp call {server} {tool}");
    for (key, value) in arguments.as_object().into_iter().flatten() {
        let word = value.as_str().map_or_else(|| value.to_string(), str::to_owned);
        let quote = if word.contains(' ') { "\"" } else { "" };
        text.push_str(&format!(" {key}={quote}{word}{quote}"));
    }
    text
}

fn indented(text: &str) -> String {
    let lines: Vec<_> = visible_lines(text)
        .lines()
        .map(|line| format!("   {line}").trim_end().to_owned())
        .collect();
    lines.join("\n")
}

/// Remembers which processes the daemon runs, to see afterwards that they are gone.
fn note_processes(stage: &Mutex<Stage>, connection: &mut Connection) -> Result<(), Failure> {
    let (answer, _) = connection.own_tool::<Servers>("colibri_external_mcp_servers", &json!({}))?;
    let processes = answer
        .servers
        .iter()
        .flat_map(|server| &server.processes)
        .filter_map(|process| process.pid.and_then(|pid| i32::try_from(pid).ok()));
    lock(stage).processes.extend(processes);
    Ok(())
}

/// What the helper gives a server here.
const JAIL: &str = if cfg!(target_os = "freebsd") {
    "in a jail"
} else {
    "in the helper's development sandbox, which is no jail"
};

/// Where the demo's server runs.
#[derive(Debug)]
enum Place {
    /// Confined by the helper, as the registry's own entry for it says.
    Jail,
    /// As a process of this user's.
    Host {
        /// What is missing for a jail.
        why: String,
    },
}

impl Place {
    /// In a jail wherever root has prepared one: the helper does only what registry and policy at their fixed paths
    /// both say, for the service's user and for root.
    fn find() -> Place {
        match confined() {
            Ok(()) => Place::Jail,
            Err(why) => Place::Host { why },
        }
    }
}

/// # Errors
/// What is missing.
fn confined() -> Result<(), String> {
    if let Err(error) = fs::symlink_metadata(HELPER)
        && error.kind() == io::ErrorKind::NotFound
    {
        return Err("colibri-jail-helper is not installed".to_owned());
    }
    let bytes = fs::read(REGISTRY).map_err(|error| format!("{REGISTRY}: {error}"))?;
    let registry = Registry::parse(&bytes, REGISTRY).map_err(|error| error.to_string())?;
    if !registry
        .servers
        .iter()
        .any(|(id, entry)| id.as_str() == SERVER && entry.jail().is_some() && !entry.disabled)
    {
        return Err(format!("{REGISTRY} has no jailed server called {SERVER}"));
    }
    let output = Command::new(HELPER)
        .args(["plan", SERVER])
        .env_clear()
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{HELPER} cannot be executed: {error}"))?;
    if output.status.success() {
        return Ok(());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(said
        .lines()
        .next()
        .unwrap_or("the helper refused without a word")
        .to_owned())
}

/// All that the demo has started or made, and must take away again.
#[derive(Debug)]
struct Stage {
    place: Place,
    /// The daemon's.
    program: PathBuf,
    directory: Option<PathBuf>,
    daemon: Option<Child>,
    /// Process ids of hosted servers that were seen.
    processes: Vec<i32>,
}

fn lock(stage: &Mutex<Stage>) -> MutexGuard<'_, Stage> {
    stage.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Stage {
    fn new(program: PathBuf) -> Stage {
        Stage {
            place: Place::find(),
            program,
            directory: None,
            daemon: None,
            processes: Vec::new(),
        }
    }

    /// Makes a private directory and starts the daemon in it.
    fn start(&mut self) -> Result<Context, Failure> {
        let machine = |what: &str| {
            let what = what.to_owned();
            move |error: io::Error| Failure::Machine(format!("{what}: {error}"))
        };
        let directory = private_directory().map_err(machine("cannot make a temporary directory"))?;
        self.directory = Some(directory.clone());
        for name in ["notes", "state", "skills"] {
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
            "operator": matches!(self.place, Place::Host { .. }) });
        let clients = json!({ "users": { getuid().to_string(): rule } });
        write_private(&directory.join("clients.json"), &clients.to_string())
            .map_err(machine("cannot write the demo's rules"))?;
        let registry = match self.place {
            Place::Jail => PathBuf::from(REGISTRY),
            Place::Host { .. } => {
                let registry = directory.join("external-mcp.json");
                write_private(&registry, &json!({ "servers": { SERVER: entry } }).to_string())
                    .map_err(machine("cannot write the demo's registry"))?;
                registry
            }
        };
        let socket = directory.join("colibri.sock");
        let log = File::create(directory.join("log")).map_err(machine("cannot make the daemon's log"))?;
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
        if matches!(self.place, Place::Jail) {
            arguments.push("--require-jail".into());
        }
        if getuid().is_root() {
            arguments.push("--allow-root".into());
        }
        let daemon = Command::new(&program)
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
        Ok(Context {
            place: socket.into(),
            chosen: None,
            read_only: false,
            json: false,
        })
    }

    /// What the daemon said last on stderr.
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
    fn clear(&mut self) -> Result<(), Failure> {
        let mut left = Vec::new();
        if let Some(mut daemon) = self.daemon.take()
            && let Err(why) = end(&mut daemon)
        {
            left.push(why);
        }
        for pid in self.processes.drain(..) {
            let gone = until(PATIENCE, || kill(Pid::from_raw(pid), None) == Err(Errno::ESRCH));
            if !gone {
                left.push(format!("the server process {pid} still runs"));
            }
        }
        if let Some(directory) = self.directory.take() {
            let removed = fs::remove_dir_all(&directory);
            if let Err(error) = removed
                && directory.exists()
            {
                left.push(format!("{} cannot be removed: {error}", directory.display()));
            }
        }
        if left.is_empty() {
            Ok(())
        } else {
            Err(Failure::Machine(format!("something is left: {}", left.join("; "))))
        }
    }
}

/// Tells the supervisor to end the daemon, and waits until both have ended.
fn end(daemon: &mut Child) -> Result<(), String> {
    drop(daemon.stdin.take());
    match daemon.wait() {
        Ok(status) if status.success() => Ok(()),
        Ok(_) => Err("the daemon had to be killed, or failed".to_owned()),
        Err(error) => Err(format!("the daemon cannot be ended: {error}")),
    }
}

/// Asks again and again, for a time.
fn until(limit: Duration, mut done: impl FnMut() -> bool) -> bool {
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
fn wait_for_daemon(stage: &Mutex<Stage>, context: &Context) -> Result<Connection, Failure> {
    let mut connection = Err(Failure::Machine(String::new()));
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
        Failure::Machine(format!("{what}\n{}", lock(stage).log()))
    })
}

/// A new directory that only this user can enter. The name cannot be taken over: creating what exists fails.
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
fn clean_up_on_signals(stage: Arc<Mutex<Stage>>) -> Result<(), Failure> {
    on_signals(&[Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP], move |signal| {
        // Held until the process ends: the other thread starts nothing any more.
        let mut stage = lock(&stage);
        let left = stage.clear();
        match left {
            Ok(()) => eprintln!("\ncolibri-mcp: interrupted; everything was taken away again"),
            Err(failure) => eprintln!("\ncolibri-mcp: interrupted; {}", visible(&failure.to_string())),
        }
        std::process::exit(128 + signal as i32);
    })
}
