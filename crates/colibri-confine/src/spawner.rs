//! Starting server processes, and learning how they ended.

use std::io;
use std::process::Stdio;

use colibri_api::PrivMode;
use colibri_jail_helper::{STARTED as HELPER_STARTED, UNBOUNDED};
use colibri_text::brief;
use futures_core::future::BoxFuture;
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use tokio::io::{
    AsyncBufRead, AsyncBufReadExt as _, AsyncRead, AsyncReadExt as _, AsyncWrite, BufReader,
};
use tokio::process::{Child, ChildStderr, ChildStdin, ChildStdout};

use super::launch::{LaunchSettings, LaunchSpec, MAX_ERRAND, ServerExit, SpawnError};
use super::priv_mode::{CommandLine, helper_command, prepare_spawn_command, reachable};
use super::{orphans, supervisor};

/// The most bytes of a supervisor's messages that are kept.
const KEPT: usize = 4096;

/// The most bytes of a line that are looked at.
const LINE: usize = 512;

/// A server that runs.
///
/// Dropping `stdin` is the order to end, and the only one: the supervisor then gives the server its
/// grace, sends TERM to the whole tree, and KILL.
pub struct SpawnedServer {
    /// The server's standard input, and its lifeline.
    pub stdin: Box<dyn AsyncWrite + Send + Unpin>,
    /// Its standard output.
    pub stdout: Box<dyn AsyncRead + Send + Unpin>,
    /// Its standard error, supervisor's messages included.
    pub stderr: Box<dyn AsyncRead + Send + Unpin>,
    /// The process, to wait for.
    pub process: Box<dyn ServerProcess>,
}

/// A server's process, seen through its supervisor.
pub trait ServerProcess: Send + Sync {
    /// The supervisor's process id; the server is a descendant of it.
    fn pid(&self) -> u32;

    /// The jail's number; `None` for a host server.
    fn jid(&self) -> Option<u32> {
        None
    }

    /// True if the policy says `"bounded": false` of a mount of its jail.
    fn is_unbounded(&self) -> bool {
        false
    }

    /// The helper's session id, after which it names an ephemeral jail; `None` for a host server.
    fn instance(&self) -> Option<&str> {
        None
    }

    /// Lets a supervisor go on that somebody stopped (SIGSTOP): it has the order to end, and is to
    /// obey.
    fn resume(&self) {}

    /// Waits until the server and everything it started have ended. May be dropped and called
    /// again.
    fn wait(&mut self) -> BoxFuture<'_, ServerExit>;
}

/// Starts servers. The pool is generic over it, so that tests run it over in-memory pipes.
pub trait Spawner: Send + Sync {
    /// Starts a server and returns once its program has been executed. Dropping the future ends
    /// what was begun.
    fn spawn(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<SpawnedServer, SpawnError>>;
}

/// The [`Spawner`] that starts real processes.
pub struct SystemSpawner {
    settings: LaunchSettings,
}

impl SystemSpawner {
    /// A spawner whose supervisor is this very executable, which must call [`supervisor::main`]
    /// when its first argument is [`supervisor::ARGUMENT`].
    ///
    /// # Errors
    /// The executable's path is unknown.
    pub fn new(priv_mode: PrivMode) -> io::Result<Self> {
        Ok(Self::with(LaunchSettings::new(
            priv_mode,
            std::env::current_exe()?,
        )))
    }

    /// A spawner with these settings.
    pub fn with(settings: LaunchSettings) -> Self {
        Self { settings }
    }

    /// Has the helper tear down what no live helper owns. For the daemon's start; after a helper
    /// was killed it happens by itself.
    ///
    /// # Errors
    /// The helper could not be run, or failed.
    pub async fn sweep(&self) -> Result<(), SpawnError> {
        sweep(self.settings.priv_mode).await
    }

    async fn start(&self, spec: LaunchSpec) -> Result<SpawnedServer, SpawnError> {
        let command = prepare_spawn_command(&self.settings, &spec)?;
        let session = match spec {
            LaunchSpec::Jailed(jail) => jail.session,
            LaunchSpec::Host { .. } | LaunchSpec::Script { .. } => String::new(),
        };
        supervise(&command, session).await
    }
}

impl Spawner for SystemSpawner {
    fn spawn(&self, spec: LaunchSpec) -> BoxFuture<'_, Result<SpawnedServer, SpawnError>> {
        Box::pin(self.start(spec))
    }
}

/// Starts a supervisor and waits until it says that the server runs.
async fn supervise(command: &CommandLine, session: String) -> Result<SpawnedServer, SpawnError> {
    let Pipes {
        mut child,
        stdin,
        stdout,
        stderr,
    } = begin(command)?;
    let marker = if command.privilege.is_some() {
        HELPER_STARTED
    } else {
        supervisor::STARTED
    };
    let mut stderr = BufReader::new(stderr);
    let (before, started) = listen(&mut stderr, marker)
        .await
        .map_err(|error| supervisor_error(command, error))?;
    let mode = command.privilege;
    let Some(rest) = started else {
        // The lifeline stays until the end is known, or the helper would take its loss for an
        // order.
        let exit = waited_for(&mut child).await;
        drop(stdin);
        let detail = readable(&before);
        let Some(mode) = mode else {
            let detail = detail
                .strip_prefix("keeper: ")
                .unwrap_or(&detail)
                .to_owned();
            return Err(SpawnError::Keeper { detail });
        };
        let error = SpawnError::of_helper(mode, exit, detail);
        if matches!(error, SpawnError::HelperKilled { .. }) {
            sweep_later(mode);
        }
        return Err(error);
    };
    let bounded = rest.strip_suffix(UNBOUNDED);
    let process = SupervisedProcess {
        pid: child.id().unwrap_or_default(),
        jid: mode.and_then(|_| bounded.unwrap_or(&rest).parse().ok()),
        is_unbounded: bounded.is_some(),
        instance: mode.map(|_| session),
        sweep_after_kill: mode,
        child,
    };
    Ok(SpawnedServer {
        stdin: Box::new(stdin),
        stdout: Box::new(stdout),
        stderr: Box::new(io::Cursor::new(before).chain(stderr)),
        process: Box::new(process),
    })
}

struct SupervisedProcess {
    child: Child,
    pid: u32,
    jid: Option<u32>,
    is_unbounded: bool,
    instance: Option<String>,
    sweep_after_kill: Option<PrivMode>,
}

impl ServerProcess for SupervisedProcess {
    fn pid(&self) -> u32 {
        self.pid
    }

    fn jid(&self) -> Option<u32> {
        self.jid
    }

    fn is_unbounded(&self) -> bool {
        self.is_unbounded
    }

    fn instance(&self) -> Option<&str> {
        self.instance.as_deref()
    }

    fn resume(&self) {
        // A child that is not waited for keeps its number. The helper is root's: who stopped it is,
        // too.
        if let Some(pid) = self.child.id() {
            let _ = kill(Pid::from_raw(pid as i32), Signal::SIGCONT);
        }
    }

    fn wait(&mut self) -> BoxFuture<'_, ServerExit> {
        Box::pin(async {
            let exit = waited_for(&mut self.child).await;
            if matches!(exit, ServerExit::SupervisorKilled(_))
                && let Some(mode) = self.sweep_after_kill.take()
            {
                sweep_later(mode);
            }
            exit
        })
    }
}

/// The way in which a supervisor ended. What one leaves behind that was killed is ended.
async fn waited_for(child: &mut Child) -> ServerExit {
    let pid = child.id();
    let exit = child
        .wait()
        .await
        .map_or(ServerExit::Unknown, ServerExit::from);
    if let Some(pid) = pid {
        orphans::supervisor_gone(pid);
        if matches!(exit, ServerExit::SupervisorKilled(_)) {
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
        let _ = tokio::join!(
            stdout.read_to_end(&mut output),
            stderr.read_to_end(&mut messages)
        );
        let exit = waited_for(&mut child).await;
        drop(stdin);
        match exit {
            ServerExit::Status(0) => Ok(String::from_utf8_lossy(&output).into_owned()),
            exit => Err(SpawnError::of_helper(mode, exit, readable(&messages))),
        }
    };
    tokio::time::timeout(MAX_ERRAND, work)
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
        .envs(
            command
                .environment
                .iter()
                .map(|(name, value)| (name, value)),
        )
        .current_dir(directory)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = orphans::start_supervisor(&mut supervisor)
        .map_err(|error| supervisor_error(command, error))?;
    match (child.stdin.take(), child.stdout.take(), child.stderr.take()) {
        (Some(stdin), Some(stdout), Some(stderr)) => Ok(Pipes {
            child,
            stdin,
            stdout,
            stderr,
        }),
        _ => Err(supervisor_error(command, io::Error::other("no pipes"))),
    }
}

fn supervisor_error(command: &CommandLine, error: io::Error) -> SpawnError {
    let program = command.program.clone();
    let stays = matches!(
        error.kind(),
        io::ErrorKind::NotFound | io::ErrorKind::PermissionDenied
    );
    match command.privilege.filter(|_| stays) {
        // How root is reached was found out once: the helper may have gone since.
        Some(PrivMode::Helper) => SpawnError::HelperMissing { error },
        Some(mode) => SpawnError::BackendMissing {
            mode,
            program,
            error,
        },
        None => SpawnError::Supervisor { program, error },
    }
}

/// Reads lines until the one that begins with `marker`. Returns what stood before it, cut to
/// [`KEPT`] bytes, and the rest of that line; `None` for it: the stream ended first.
async fn listen(
    stderr: &mut (impl AsyncBufRead + Unpin),
    marker: &str,
) -> io::Result<(Vec<u8>, Option<String>)> {
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
        keep(
            &mut line,
            &chunk[..used - usize::from(newline.is_some())],
            LINE,
        );
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

/// Sixteen lower-case hex digits that nobody can guess: the name of one instance of a jailed server
/// or an agent.
///
/// # Errors
/// The system gives no random bytes.
pub fn session_id() -> io::Result<String> {
    let number = getrandom::u64().map_err(io::Error::other)?;
    Ok(format!("{number:016x}"))
}

/// Checks that helper and daemon speak of the same things: `--version` must print this build's
/// contract number.
///
/// # Errors
/// No helper, a helper that does not run, or another number.
pub async fn check_contract(mode: PrivMode) -> Result<(), SpawnError> {
    let output = run(mode, "--version").await?;
    match contract(&output) {
        Some(found) if found == colibri_jail_helper::CONTRACT => Ok(()),
        found => Err(SpawnError::Contract {
            found,
            wanted: colibri_jail_helper::CONTRACT,
        }),
    }
}

/// The number after the word `contract` in what `--version` prints.
fn contract(version: &str) -> Option<u32> {
    let (_, number) = version.split_once("contract ")?;
    number
        .split(|c: char| !c.is_ascii_digit())
        .next()?
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::io::AsyncWriteExt as _;

    async fn heard(text: &[u8], marker: &str) -> (String, Option<String>) {
        let (before, rest) = listen(&mut BufReader::with_capacity(7, text), marker)
            .await
            .unwrap();
        (String::from_utf8(before).unwrap(), rest)
    }

    #[tokio::test]
    async fn listens_for_the_first_marker_line() {
        let (before, rest) = heard(
            b"warning\nhelper: started jid=42\nhelper: started jid=43\n",
            HELPER_STARTED,
        )
        .await;
        assert_eq!(
            (before.as_str(), rest.as_deref()),
            ("warning\n", Some("42"))
        );
        let (before, rest) = heard(
            b"x helper: started jid=1\nhelper: started jid=2",
            HELPER_STARTED,
        )
        .await;
        assert_eq!(
            (before.as_str(), rest),
            ("x helper: started jid=1\nhelper: started jid=2", None)
        );
    }

    #[tokio::test]
    async fn what_follows_the_marker_stays_in_the_stream() {
        let mut stream = BufReader::new(&b"keeper: started\nthe server's\n"[..]);
        assert_eq!(
            listen(&mut stream, supervisor::STARTED).await.unwrap(),
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
        let (before, rest) = listen(&mut &flood[..], supervisor::STARTED).await.unwrap();
        assert!(before.len() <= KEPT);
        assert_eq!(rest.as_deref(), Some(""));
    }

    /// A shell script in the helper's place, for what the daemon makes of what the helper says and
    /// does.
    async fn helper(script: &str) -> Result<SpawnedServer, SpawnError> {
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
        assert_eq!(
            (spawned.process.jid(), spawned.process.is_unbounded()),
            (Some(7), false)
        );
        spawned.stdin.write_all(b"ping").await.unwrap();
        drop(spawned.stdin);
        let (mut output, mut messages) = (String::new(), String::new());
        spawned.stdout.read_to_string(&mut output).await.unwrap();
        spawned.stderr.read_to_string(&mut messages).await.unwrap();
        assert_eq!(
            (output.as_str(), messages.as_str()),
            ("ping", "note\nmine\n")
        );
        assert_eq!(spawned.process.wait().await, ServerExit::Status(5));
    }

    #[tokio::test]
    async fn what_the_helper_says_of_mounts_is_heard() {
        for (said, is_unbounded) in [
            ("7 bounded=no", true),
            ("7", false),
            ("7 bounded=no, or so", false),
        ] {
            let spawned = helper(&format!("echo 'helper: started jid={said}' >&2"))
                .await
                .unwrap();
            assert_eq!(spawned.process.is_unbounded(), is_unbounded, "{said}");
            assert_eq!(
                spawned.process.jid().is_some(),
                !said.contains(','),
                "{said}"
            );
        }
    }

    #[tokio::test]
    async fn without_the_started_line_the_exit_status_is_the_helpers() {
        let refused = helper("echo 'policy: server not listed' >&2; exit 77")
            .await
            .err()
            .unwrap();
        assert!(
            matches!(&refused, SpawnError::Refused { detail } if detail == "policy: server not listed")
        );
        let busy = helper("echo 'jail build0 is not running' >&2; exit 75")
            .await
            .err()
            .unwrap();
        assert!(
            busy.is_transient() && busy.to_string().contains("build0"),
            "{busy}"
        );
        let sudo = helper("echo 'sudo: a password is required' >&2; exit 1")
            .await
            .err()
            .unwrap();
        assert!(matches!(sudo, SpawnError::NoRoot { .. }), "{sudo}");
        let killed = helper("kill -9 $$").await.err().unwrap();
        assert!(
            matches!(killed, SpawnError::HelperKilled { signal: 9 }),
            "{killed}"
        );
    }

    #[test]
    fn exit_statuses_of_the_helper_become_errors_to_act_on() {
        let of = |status| {
            SpawnError::of_helper(
                PrivMode::Helper,
                ServerExit::Status(status),
                "why".to_owned(),
            )
        };
        assert!(matches!(of(64), SpawnError::Usage { .. }));
        assert!(matches!(of(71), SpawnError::System { .. }) && of(71).is_transient());
        assert!(matches!(of(69), SpawnError::Limit { .. }) && of(69).is_transient());
        assert!(matches!(of(75), SpawnError::TryLater { .. }) && of(75).is_transient());
        assert!(matches!(of(77), SpawnError::Refused { .. }) && !of(77).is_transient());
        assert!(matches!(of(78), SpawnError::BadFile { .. }) && !of(78).is_transient());
        assert!(matches!(of(1), SpawnError::NoRoot { .. }) && !of(1).is_transient());
        let killed = SpawnError::of_helper(
            PrivMode::Sudo,
            ServerExit::SupervisorKilled(9),
            String::new(),
        );
        assert!(matches!(killed, SpawnError::HelperKilled { signal: 9 }));
        for status in [1, 64, 69, 71, 75, 77, 78] {
            assert!(of(status).to_string().contains("why"));
        }
    }

    #[test]
    fn a_way_to_root_that_is_not_there_stays_so() {
        let failed =
            |mode, kind: io::ErrorKind| supervisor_error(&helper_command(mode, &[]), kind.into());
        for (mode, program) in [(PrivMode::Mdo, "mdo"), (PrivMode::Sudo, "sudo")] {
            let missing = failed(mode, io::ErrorKind::NotFound);
            assert!(
                matches!(missing, SpawnError::BackendMissing { .. }) && !missing.is_transient()
            );
            let told = missing.to_string();
            assert!(
                told.contains(program) && told.contains("--priv-mode"),
                "{told}"
            );
            // The system has no room for a process now.
            assert!(failed(mode, io::ErrorKind::WouldBlock).is_transient());
        }
        assert!(!failed(PrivMode::Helper, io::ErrorKind::NotFound).is_transient());
    }

    #[test]
    fn messages_are_one_line_without_control_characters() {
        assert_eq!(
            readable(b"a\n\nb\x1b[31m\xff\r\n"),
            "a; b\\u{1b}[31m\u{fffd}"
        );
        assert_eq!(
            readable("a\u{3164}\u{e0100}".as_bytes()),
            "a\\u{3164}\\u{e0100}"
        );
        assert_eq!(readable(b" \n"), "it said nothing");
        assert_eq!(
            ServerExit::Status(137).to_string(),
            "exit status 137 (signal 9)"
        );
    }

    #[test]
    fn session_ids_are_sixteen_hex_digits() {
        let id = session_id().unwrap();
        assert!(
            id.len() == 16
                && id
                    .bytes()
                    .all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b)),
            "{id}"
        );
        assert_ne!(id, session_id().unwrap());
    }

    #[test]
    fn contract_numbers_are_found() {
        assert_eq!(
            contract("colibri-jail-helper 0.1.0 (contract 7)\n"),
            Some(7)
        );
        assert_eq!(contract("contract 1"), Some(1));
        for text in [
            "",
            "contract",
            "contract x",
            "colibri-jail-helper 0.1.0",
            "contract -1",
        ] {
            assert_eq!(contract(text), None, "{text}");
        }
    }
}
