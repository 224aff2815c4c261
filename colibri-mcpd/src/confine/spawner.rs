//! Starting server processes, and learning how they ended.

use super::priv_mode::{CommandLine, JailConfig, helper_command, prepare_spawn_command, reachable};
use super::{keeper, orphans, sys};
use colibri_api::{HELPER, PrivMode};
use colibri_text::brief;
use secrecy::SecretString;
use std::collections::BTreeMap;
use std::fmt;
use std::future::Future;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::pin::Pin;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;
use tokio::io::{AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

/// `PATH` of host servers whose entry sets none.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// What the helper writes on stderr before the server's program is executed, followed by the jail's number.
const HELPER_STARTED: &str = "helper: started jid=";

/// The most bytes of a supervisor's messages that are kept.
const KEPT: usize = 4096;

/// The most bytes of a line that are looked at.
const LINE: usize = 512;

/// How long the helper may take for what is not a server (`sweep`, `--version`).
const ERRAND: Duration = Duration::from_secs(60);

/// A future in a box, which is what a trait object can return.
pub type BoxFuture<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// What is to be started.
#[derive(Debug, Clone)]
pub enum Order {
    /// A process on the host, as the daemon's user.
    Host {
        /// The server's id, for messages.
        server: String,
        /// Absolute path.
        program: PathBuf,
        /// Its arguments, without the program's name.
        arguments: Vec<String>,
        /// What the entry names, secrets filled in; wins over the built `PATH`, `HOME` and `LANG`.
        environment: BTreeMap<String, SecretString>,
        /// Working directory; `None`: `/`.
        directory: Option<PathBuf>,
    },
    /// A process in a jail, which the helper starts.
    Jailed(JailConfig),
}

impl Order {
    /// The server's id.
    pub fn server(&self) -> &str {
        match self {
            Self::Host { server, .. } => server,
            Self::Jailed(jail) => &jail.server,
        }
    }
}

/// A server that runs.
///
/// Dropping `stdin` is the order to end, and the only one: the supervisor then gives the server its grace, sends TERM to
/// the whole tree, and KILL.
pub struct Spawned {
    /// The server's standard input, and its lifeline.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error, supervisor's messages included.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// The process, to wait for.
    pub process: Box<dyn Process>,
}

/// A server's process, seen through its supervisor.
pub trait Process: Send + Sync {
    /// The supervisor's process id; the server is a descendant of it.
    fn pid(&self) -> u32;

    /// The jail's number; `None` for a host server.
    fn jid(&self) -> Option<u32>;

    /// The helper's session id, after which it names an ephemeral jail; `None` for a host server.
    fn instance(&self) -> Option<&str>;

    /// Waits until the server and everything it started have ended. May be dropped and called again.
    fn wait(&mut self) -> BoxFuture<'_, Exit>;
}

/// How a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    /// The server's exit status; 128 and the signal where one ended it.
    Status(u8),
    /// Its supervisor was killed by this signal. What the server may have left behind then, `docs/processes.md` says.
    SupervisorKilled(i32),
    /// The system would not say.
    Unknown,
}

impl fmt::Display for Exit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status @ 129..=192) => write!(f, "exit status {status} (signal {})", status - 128),
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::SupervisorKilled(signal) => write!(f, "its supervisor was killed by signal {signal}"),
            Self::Unknown => f.write_str("unknown exit status"),
        }
    }
}

impl From<ExitStatus> for Exit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Status(code as u8),
            (None, Some(signal)) => Self::SupervisorKilled(signal),
            (None, None) => Self::Unknown,
        }
    }
}

/// Starts servers. The pool is generic over it, so that tests run it over in-memory pipes.
pub trait Spawner: Send + Sync {
    /// Starts a server and returns once its program has been executed. Dropping the future ends what was begun.
    fn spawn(&self, order: Order) -> BoxFuture<'_, Result<Spawned, SpawnError>>;
}

/// Why a server was not started. Messages of keeper and helper are included with control characters escaped.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A host server's program is not there, or cannot be executed.
    #[error("cannot run {program}: {error}; check command in the registry", program = .program.display())]
    Program {
        /// As the registry has it.
        program: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// A host server's program is a script whose interpreter is not there.
    #[error("cannot run {program}: its first line asks for {interpreter}, which is not there; install it, or correct the line", program = .program.display())]
    Interpreter {
        /// As the registry has it.
        program: PathBuf,
        /// What is missing.
        interpreter: String,
    },
    /// A host server's working directory is not there.
    #[error("cannot use {directory} as working directory: {error}; check cwd in the registry", directory = .directory.display())]
    Directory {
        /// As the registry has it.
        directory: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// Host servers are refused in mdo mode.
    #[error("priv mode mdo refuses servers on the host: whatever runs as this user can become root; give it a jail")]
    HostInMdoMode,
    /// The supervisor could not be started.
    #[error("cannot start {program}: {error}", program = .program.display())]
    Supervisor {
        /// The supervisor's program.
        program: PathBuf,
        /// What the system says.
        error: io::Error,
    },
    /// The keeper could not start the server.
    #[error("{detail}")]
    Keeper {
        /// What the keeper said.
        detail: String,
    },
    /// The helper is not installed.
    #[error("{helper} is not usable: {error}; install colibri-jail-helper", helper = HELPER)]
    HelperMissing {
        /// What the system says.
        error: io::Error,
    },
    /// The helper is there and cannot become root, and there is nothing else to try.
    #[error(
        "{helper} cannot gain root: {why}, and there is no sudo to try instead: install the package again, or chmod it \
         to 4550 and chown it to root:colibri, on a file system without nosuid",
        helper = HELPER
    )]
    HelperPowerless {
        /// What is in its way.
        why: &'static str,
    },
    /// The helper is of another version.
    #[error("the helper has contract number {found:?}, this daemon {wanted}: restart colibri_mcp after an upgrade")]
    Contract {
        /// What `--version` printed, if it was a number.
        found: Option<u32>,
        /// What this daemon needs.
        wanted: u32,
    },
    /// Exit status 75 of the helper: a jail that is not running, or a limit that is reached for now.
    #[error("the helper asks to try later: {detail}")]
    TryLater {
        /// What the helper said.
        detail: String,
    },
    /// Exit status 77: the policy says no.
    #[error("refused by the jail policy: {detail}; see jail-policy.json")]
    Refused {
        /// What the helper said.
        detail: String,
    },
    /// Exit status 78: registry, policy or another file is not as it must be.
    #[error("the helper refuses a file: {detail}; run colibri-jail-helper check as root")]
    BadFile {
        /// What the helper said.
        detail: String,
    },
    /// Exit status 71: the system refused the helper something.
    #[error("the helper failed: {detail}")]
    System {
        /// What the helper said.
        detail: String,
    },
    /// Exit status 64: helper and daemon do not understand each other.
    #[error("the helper does not understand this daemon: {detail}; restart colibri_mcp after an upgrade")]
    Usage {
        /// What the helper said.
        detail: String,
    },
    /// The helper never ran, or ended in a way it does not know: mdo or sudo refused.
    #[error("no root in priv mode {mode} ({exit}): {detail}; run colibri-mcp doctor")]
    NoRoot {
        /// The mode in use.
        mode: PrivMode,
        /// How the command ended.
        exit: Exit,
        /// What it said.
        detail: String,
    },
    /// The helper was killed; a sweep follows.
    #[error("the helper was killed by signal {signal} before the server ran")]
    HelperKilled {
        /// The signal.
        signal: i32,
    },
    /// The helper took too long for an errand.
    #[error("the helper did not end within {} s", ERRAND.as_secs())]
    Slow,
}

impl SpawnError {
    /// Whether trying again later may help with nothing changed: "backing off" rather than "failed".
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::TryLater { .. }
                | Self::System { .. }
                | Self::Supervisor { .. }
                | Self::HelperKilled { .. }
                | Self::Slow
        )
    }

    /// Whether a limit of the policy is reached, on what runs or on starts: who waits has a turn.
    pub fn is_limit(&self) -> bool {
        let of_limit = |rule: &str| rule.starts_with("max") || rule.starts_with("starts");
        match self {
            Self::TryLater { detail } => detail.split_once("by rule '").is_some_and(|(_, rule)| of_limit(rule)),
            _ => false,
        }
    }

    /// The error behind the helper's exit status when no server ran (sysexits(3)).
    fn of_helper(mode: PrivMode, exit: Exit, detail: String) -> Self {
        match exit {
            Exit::Status(64) => Self::Usage { detail },
            Exit::Status(71) => Self::System { detail },
            Exit::Status(75) => Self::TryLater { detail },
            Exit::Status(77) => Self::Refused { detail },
            Exit::Status(78) => Self::BadFile { detail },
            Exit::SupervisorKilled(signal) => Self::HelperKilled { signal },
            exit => Self::NoRoot { mode, exit, detail },
        }
    }
}

/// What is the same for every server.
#[derive(Debug, Clone)]
pub struct Settings {
    /// How the helper gets root.
    pub priv_mode: PrivMode,
    /// The executable whose `main` calls [`keeper::main`].
    pub keeper: PathBuf,
    /// `PATH` of host servers.
    pub path: String,
    /// `HOME` of host servers.
    pub home: String,
    /// From the end of a server's input to TERM, and again from TERM to KILL.
    pub grace: Duration,
}

impl Settings {
    /// The usual ones: the home of the daemon's user, a grace of 2 s.
    pub fn new(priv_mode: PrivMode, keeper: PathBuf) -> Self {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid()).ok().flatten();
        Self {
            priv_mode,
            keeper,
            path: PATH.to_owned(),
            home: user
                .and_then(|user| user.dir.into_os_string().into_string().ok())
                .unwrap_or_else(|| "/".to_owned()),
            grace: Duration::from_secs(2),
        }
    }
}

/// The [`Spawner`] that starts real processes.
pub struct SystemSpawner {
    settings: Settings,
}

impl SystemSpawner {
    /// A spawner whose keeper is this very executable, which must call [`keeper::main`] when its first argument is
    /// [`keeper::ARGUMENT`].
    ///
    /// # Errors
    /// The executable's path is unknown.
    pub fn new(priv_mode: PrivMode) -> io::Result<Self> {
        Ok(Self::with(Settings::new(priv_mode, std::env::current_exe()?)))
    }

    /// A spawner with these settings.
    pub fn with(settings: Settings) -> Self {
        Self { settings }
    }

    /// Has the helper tear down what no live helper owns. For the daemon's start; after a helper was killed it happens by
    /// itself.
    ///
    /// # Errors
    /// The helper could not be run, or failed.
    pub async fn sweep(&self) -> Result<(), SpawnError> {
        sweep(self.settings.priv_mode).await
    }

    async fn start(&self, order: Order) -> Result<Spawned, SpawnError> {
        let session = match &order {
            Order::Jailed(_) => session_id().map_err(|error| supervisor_error(HELPER.into(), error))?,
            Order::Host { .. } => String::new(),
        };
        let command = prepare_spawn_command(&self.settings, &order, &session)?;
        supervise(&command, session).await
    }
}

impl Spawner for SystemSpawner {
    fn spawn(&self, order: Order) -> BoxFuture<'_, Result<Spawned, SpawnError>> {
        Box::pin(self.start(order))
    }
}

/// Starts a supervisor and waits until it says that the server runs.
async fn supervise(command: &CommandLine, session: String) -> Result<Spawned, SpawnError> {
    let Pipes {
        mut child,
        stdin,
        stdout,
        stderr,
    } = begin(command)?;
    let marker = if command.privilege.is_some() {
        HELPER_STARTED
    } else {
        keeper::STARTED
    };
    let mut stderr = BufReader::new(stderr);
    let (before, started) = listen(&mut stderr, marker)
        .await
        .map_err(|error| supervisor_error(command.program.clone(), error))?;
    let mode = command.privilege;
    let Some(rest) = started else {
        // The lifeline stays until the end is known, or the helper would take its loss for an order.
        let exit = waited_for(&mut child).await;
        drop(stdin);
        let detail = readable(&before);
        let Some(mode) = mode else {
            let detail = detail.strip_prefix("keeper: ").unwrap_or(&detail).to_owned();
            return Err(SpawnError::Keeper { detail });
        };
        let error = SpawnError::of_helper(mode, exit, detail);
        if matches!(error, SpawnError::HelperKilled { .. }) {
            sweep_later(mode);
        }
        return Err(error);
    };
    let process = Supervised {
        pid: child.id().unwrap_or_default(),
        jid: mode.and_then(|_| rest.parse().ok()),
        instance: mode.map(|_| session),
        sweep_after_kill: mode,
        child,
    };
    Ok(Spawned {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(io::Cursor::new(before).chain(stderr)),
        process: Box::new(process),
    })
}

struct Supervised {
    child: Child,
    pid: u32,
    jid: Option<u32>,
    instance: Option<String>,
    sweep_after_kill: Option<PrivMode>,
}

impl Process for Supervised {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn jid(&self) -> Option<u32> {
        self.jid
    }

    fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    fn wait(&mut self) -> BoxFuture<'_, Exit> {
        Box::pin(async {
            let exit = waited_for(&mut self.child).await;
            if matches!(exit, Exit::SupervisorKilled(_))
                && let Some(mode) = self.sweep_after_kill.take()
            {
                sweep_later(mode);
            }
            exit
        })
    }
}

/// How a supervisor ended. What one leaves behind that was killed is ended.
async fn waited_for(child: &mut Child) -> Exit {
    let pid = child.id();
    let exit = child.wait().await.map_or(Exit::Unknown, Exit::from);
    if let Some(pid) = pid {
        orphans::supervisor_gone(pid);
        if matches!(exit, Exit::SupervisorKilled(_)) {
            orphans::end_orphans();
        }
    }
    exit
}

fn sweep_later(mode: PrivMode) {
    tokio::spawn(async move {
        if let Err(error) = sweep(mode).await {
            tracing::warn!("sweep after a killed helper: {error}");
        }
    });
}

async fn sweep(mode: PrivMode) -> Result<(), SpawnError> {
    run(mode, "sweep").await.map(drop)
}

/// Runs the helper for an errand that is not a server, and returns what it printed.
pub(super) async fn run(mode: PrivMode, errand: &str) -> Result<String, SpawnError> {
    let mode = reachable(mode)?;
    let command = helper_command(mode, &[errand]);
    let work = async {
        let Pipes {
            mut child,
            stdin,
            stdout,
            stderr,
        } = begin(&command)?;
        let (mut output, mut messages) = (Vec::new(), Vec::new());
        let (mut stdout, mut stderr) = (stdout.take(KEPT as u64), stderr.take(KEPT as u64));
        let _ = tokio::join!(stdout.read_to_end(&mut output), stderr.read_to_end(&mut messages));
        let exit = waited_for(&mut child).await;
        drop(stdin);
        match exit {
            Exit::Status(0) => Ok(String::from_utf8_lossy(&output).into_owned()),
            exit => Err(SpawnError::of_helper(mode, exit, readable(&messages))),
        }
    };
    tokio::time::timeout(ERRAND, work)
        .await
        .unwrap_or(Err(SpawnError::Slow))
}

struct Pipes {
    child: Child,
    stdin: ChildStdin,
    stdout: ChildStdout,
    stderr: ChildStderr,
}

fn begin(command: &CommandLine) -> Result<Pipes, SpawnError> {
    let directory = &command.directory;
    std::fs::metadata(directory)
        .and_then(|file| {
            if file.is_dir() {
                Ok(())
            } else {
                Err(io::ErrorKind::NotADirectory.into())
            }
        })
        .map_err(|error| SpawnError::Directory {
            directory: directory.clone(),
            error,
        })?;
    let mut supervisor = tokio::process::Command::new(&command.program);
    supervisor
        .args(&command.arguments)
        .env_clear()
        .envs(command.environment.iter().map(|(name, value)| (name, value)))
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child =
        orphans::start_supervisor(&mut supervisor).map_err(|error| supervisor_error(command.program.clone(), error))?;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok(Pipes {
            child,
            stdin,
            stdout,
            stderr,
        }),
        _ => Err(supervisor_error(command.program.clone(), io::Error::other("no pipes"))),
    }
}

fn supervisor_error(program: PathBuf, error: io::Error) -> SpawnError {
    SpawnError::Supervisor { program, error }
}

/// Reads lines until the one that begins with `marker`. Returns what stood before it, cut to [`KEPT`] bytes, and the rest
/// of that line; `None` for it: the stream ended first.
async fn listen(stderr: &mut (impl AsyncBufRead + Unpin), marker: &str) -> io::Result<(Vec<u8>, Option<String>)> {
    fn keep(kept: &mut Vec<u8>, more: &[u8], limit: usize) {
        let room = limit.saturating_sub(kept.len()).min(more.len());
        kept.extend_from_slice(&more[..room]);
    }
    let mut before = Vec::new();
    let mut line = Vec::new();
    loop {
        let chunk = stderr.fill_buf().await?;
        if chunk.is_empty() {
            keep(&mut before, &line, KEPT);
            return Ok((before, None));
        }
        let newline = chunk.iter().position(|&b| b == b'\n');
        let used = newline.map_or(chunk.len(), |at| at + 1);
        keep(&mut line, &chunk[..used - usize::from(newline.is_some())], LINE);
        stderr.consume(used);
        if newline.is_some() {
            if let Some(rest) = line.strip_prefix(marker.as_bytes()) {
                return Ok((before, Some(String::from_utf8_lossy(rest).into_owned())));
            }
            // Empty ones are what keeps the marker a line of its own.
            if !line.is_empty() {
                line.push(b'\n');
                keep(&mut before, &line, KEPT);
                line.clear();
            }
        }
    }
}

/// Messages of a process as an error shows them: one line, what hides and what is not text escaped.
fn readable(messages: &[u8]) -> String {
    let text = String::from_utf8_lossy(messages);
    let mut shown = String::new();
    for line in text.lines().filter(|line| !line.trim().is_empty()) {
        if !shown.is_empty() {
            shown.push_str("; ");
        }
        shown.push_str(&brief(line, LINE));
    }
    if shown.is_empty() {
        "it said nothing".to_owned()
    } else {
        shown
    }
}

/// Sixteen lower-case hex digits that nobody can guess: the name of one instance of a jailed server.
fn session_id() -> io::Result<String> {
    Ok(format!("{:016x}", u64::from_ne_bytes(sys::random_bytes()?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    async fn heard(text: &[u8], marker: &str) -> (String, Option<String>) {
        let (before, rest) = listen(&mut BufReader::with_capacity(7, text), marker).await.unwrap();
        (String::from_utf8(before).unwrap(), rest)
    }

    #[tokio::test]
    async fn listens_for_the_first_marker_line() {
        let (before, rest) = heard(
            b"warning\nhelper: started jid=42\nhelper: started jid=43\n",
            HELPER_STARTED,
        )
        .await;
        assert_eq!((before.as_str(), rest.as_deref()), ("warning\n", Some("42")));
        let (before, rest) = heard(b"x helper: started jid=1\nhelper: started jid=2", HELPER_STARTED).await;
        assert_eq!(
            (before.as_str(), rest),
            ("x helper: started jid=1\nhelper: started jid=2", None)
        );
    }

    #[tokio::test]
    async fn what_follows_the_marker_stays_in_the_stream() {
        let mut stream = BufReader::new(&b"keeper: started\nthe server's\n"[..]);
        assert_eq!(
            listen(&mut stream, keeper::STARTED).await.unwrap(),
            (Vec::new(), Some(String::new()))
        );
        let mut rest = String::new();
        stream.read_to_string(&mut rest).await.unwrap();
        assert_eq!(rest, "the server's\n");
    }

    #[tokio::test]
    async fn keeps_little_of_a_flood() {
        let mut flood = vec![b'x'; 1 << 20];
        flood.extend(b"\nxyz".repeat(10_000));
        flood.push(b'\n');
        flood.extend(b"keeper: started\n");
        let (before, rest) = listen(&mut &flood[..], keeper::STARTED).await.unwrap();
        assert!(before.len() <= KEPT);
        assert_eq!(rest.as_deref(), Some(""));
    }

    /// A shell script in the helper's place, for what the daemon makes of what the helper says and does.
    async fn helper(script: &str) -> Result<Spawned, SpawnError> {
        let command = CommandLine {
            program: "/bin/sh".into(),
            arguments: vec!["-c".into(), script.into()],
            environment: Vec::new(),
            directory: "/".into(),
            privilege: Some(PrivMode::Helper),
        };
        supervise(&command, String::new()).await
    }

    #[tokio::test]
    async fn a_jailed_server_has_a_jid_and_its_own_exit_status() {
        let script = "echo note >&2; echo 'helper: started jid=7' >&2; echo mine >&2; cat; exit 5";
        let mut spawned = helper(script).await.unwrap();
        assert_eq!(spawned.process.jid(), Some(7));
        spawned.stdin.write_all(b"ping").await.unwrap();
        drop(spawned.stdin);
        let (mut output, mut messages) = (String::new(), String::new());
        spawned.stdout.read_to_string(&mut output).await.unwrap();
        spawned.stderr.read_to_string(&mut messages).await.unwrap();
        assert_eq!((output.as_str(), messages.as_str()), ("ping", "note\nmine\n"));
        assert_eq!(spawned.process.wait().await, Exit::Status(5));
    }

    #[tokio::test]
    async fn without_the_started_line_the_exit_status_is_the_helpers() {
        let refused = helper("echo 'policy: server not listed' >&2; exit 77")
            .await
            .err()
            .unwrap();
        assert!(matches!(&refused, SpawnError::Refused { detail } if detail == "policy: server not listed"));
        let busy = helper("echo 'jail build0 is not running' >&2; exit 75")
            .await
            .err()
            .unwrap();
        assert!(busy.is_transient() && busy.to_string().contains("build0"), "{busy}");
        let sudo = helper("echo 'sudo: a password is required' >&2; exit 1")
            .await
            .err()
            .unwrap();
        assert!(matches!(sudo, SpawnError::NoRoot { .. }), "{sudo}");
        let killed = helper("kill -9 $$").await.err().unwrap();
        assert!(matches!(killed, SpawnError::HelperKilled { signal: 9 }), "{killed}");
    }

    #[test]
    fn exit_statuses_of_the_helper_become_errors_to_act_on() {
        let of = |status| SpawnError::of_helper(PrivMode::Helper, Exit::Status(status), "why".to_owned());
        assert!(matches!(of(64), SpawnError::Usage { .. }));
        assert!(matches!(of(71), SpawnError::System { .. }) && of(71).is_transient());
        assert!(matches!(of(75), SpawnError::TryLater { .. }) && of(75).is_transient() && !of(75).is_limit());
        let refused = |rule: &str| SpawnError::TryLater {
            detail: format!("helper: refused by rule '{rule}'"),
        };
        for rule in ["max", "max_per_server", "starts_per_minute"] {
            assert!(refused(rule).is_limit(), "{rule}");
        }
        assert!(!refused("jail").is_limit() && !refused("digest").is_limit());
        assert!(matches!(of(77), SpawnError::Refused { .. }) && !of(77).is_transient());
        assert!(matches!(of(78), SpawnError::BadFile { .. }) && !of(78).is_transient());
        assert!(matches!(of(1), SpawnError::NoRoot { .. }) && !of(1).is_transient());
        let killed = SpawnError::of_helper(PrivMode::Sudo, Exit::SupervisorKilled(9), String::new());
        assert!(matches!(killed, SpawnError::HelperKilled { signal: 9 }));
        for status in [1, 64, 71, 75, 77, 78] {
            assert!(of(status).to_string().contains("why"));
        }
    }

    #[test]
    fn messages_are_one_line_without_control_characters() {
        assert_eq!(readable(b"a\n\nb\x1b[31m\xff\r\n"), "a; b\\u{1b}[31m\u{fffd}");
        assert_eq!(readable("a\u{3164}\u{e0100}".as_bytes()), "a\\u{3164}\\u{e0100}");
        assert_eq!(readable(b" \n"), "it said nothing");
        assert_eq!(Exit::Status(137).to_string(), "exit status 137 (signal 9)");
    }

    #[test]
    fn session_ids_are_sixteen_hex_digits() {
        let id = session_id().unwrap();
        assert!(
            id.len() == 16 && id.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
            "{id}"
        );
        assert_ne!(id, session_id().unwrap());
    }
}
