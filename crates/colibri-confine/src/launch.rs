//! The process to start, its settings, and the reasons for which none was started.

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::os::unix::process::ExitStatusExt as _;
use std::path::PathBuf;
use std::process::ExitStatus;
use std::time::Duration;

use colibri_api::{HELPER, PrivMode};
use colibri_registry::Stdin;
use secrecy::SecretString;

/// `PATH` of host servers whose entry sets none.
pub const PATH: &str = "/usr/local/bin:/usr/bin:/bin";

/// The longest time that the helper may take for a command other than a server (`sweep`,
/// `--version`).
pub(super) const MAX_ERRAND: Duration = Duration::from_secs(60);

/// The process to start.
#[derive(Debug, Clone)]
pub enum LaunchSpec {
    /// A process on the host, as the daemon's user.
    Host {
        /// The server's id, for messages.
        server: String,
        /// Absolute path.
        program: PathBuf,
        /// Its arguments, without the program's name.
        arguments: Vec<String>,
        /// The variables of the entry, secrets filled in; they win over the built `PATH`, `HOME`
        /// and `LANG`.
        environment: BTreeMap<String, SecretString>,
        /// Working directory; `None`: `/`.
        directory: Option<PathBuf>,
        /// Its standard input.
        stdin: Stdin,
    },
    /// A process in a jail, which the helper starts.
    Jailed(JailConfig),
    /// A script's process on the host: it gives up its rights itself, and has no environment.
    Script {
        /// Absolute path of `colibri-script`.
        program: PathBuf,
    },
}

impl LaunchSpec {
    /// The server's id.
    pub fn server(&self) -> &str {
        match self {
            Self::Host { server, .. } => server,
            Self::Jailed(jail) => &jail.server,
            Self::Script { .. } => "colibri-script",
        }
    }
}

/// All that the daemon says to the helper about a server or an agent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct JailConfig {
    /// The instance: what [`session_id`](super::session_id) made.
    pub session: String,
    /// The server's or agent's id, under which the helper finds its entry in the registry.
    pub server: String,
    /// SHA-256 of the entry as the daemon loaded it, lower-case hex; where the file differs by
    /// then, nothing starts.
    pub digest: String,
}

/// The settings that are the same for every server.
#[derive(Debug, Clone)]
pub struct LaunchSettings {
    /// The privilege backend of the helper.
    pub priv_mode: PrivMode,
    /// The executable whose `main` calls [`super::supervisor::main`].
    pub supervisor: PathBuf,
    /// `PATH` of host servers.
    pub path: String,
    /// `HOME` of host servers.
    pub home: String,
    /// From the end of a server's input to TERM, and again from TERM to KILL.
    pub grace: Duration,
}

impl LaunchSettings {
    /// The usual ones: the home of the daemon's user, a grace of 2 s.
    pub fn new(priv_mode: PrivMode, supervisor: PathBuf) -> Self {
        let user = nix::unistd::User::from_uid(nix::unistd::geteuid())
            .ok()
            .flatten();
        Self {
            priv_mode,
            supervisor,
            path: PATH.to_owned(),
            home: user
                .and_then(|user| user.dir.into_os_string().into_string().ok())
                .unwrap_or_else(|| "/".to_owned()),
            grace: Duration::from_secs(2),
        }
    }
}

/// The way in which a server ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ServerExit {
    /// The server's exit status; 128 and the signal where one ended it.
    Status(u8),
    /// Its supervisor was killed by this signal. What the server may have left behind then,
    /// `docs/processes.md` says.
    SupervisorKilled(i32),
    /// The system would not say.
    Unknown,
    /// It runs elsewhere, and its connection is gone.
    Disconnected,
}

impl fmt::Display for ServerExit {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Status(status @ 129..=192) => {
                write!(f, "exit status {status} (signal {})", status - 128)
            }
            Self::Status(status) => write!(f, "exit status {status}"),
            Self::SupervisorKilled(signal) => {
                write!(f, "its supervisor was killed by signal {signal}")
            }
            Self::Unknown => f.write_str("unknown exit status"),
            Self::Disconnected => f.write_str("its connection is gone"),
        }
    }
}

impl From<ExitStatus> for ServerExit {
    fn from(status: ExitStatus) -> Self {
        match (status.code(), status.signal()) {
            (Some(code), _) => Self::Status(code as u8),
            (None, Some(signal)) => Self::SupervisorKilled(signal),
            (None, None) => Self::Unknown,
        }
    }
}

/// The reason for which a server was not started. Messages of supervisor and helper are included
/// with control characters escaped.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// A host server's program is not there, or cannot be executed.
    #[error("cannot run {program}: {error}; check command in the registry", program = .program.display())]
    Program {
        /// As the registry has it.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A host server's program is a script whose interpreter is not there.
    #[error("cannot run {program}: its first line asks for {interpreter}, which is not there; install it, or correct the line", program = .program.display())]
    Interpreter {
        /// As the registry has it.
        program: PathBuf,
        /// The missing interpreter.
        interpreter: String,
    },
    /// A host server's working directory is not there.
    #[error("cannot use {directory} as working directory: {error}; check cwd in the registry", directory = .directory.display())]
    Directory {
        /// As the registry has it.
        directory: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Host servers are refused in mdo mode.
    #[error(
        "priv mode mdo refuses servers on the host: whatever runs as this user can become root; give it a jail"
    )]
    HostInMdoMode,
    /// The supervisor could not be started.
    #[error("cannot start {program}: {error}", program = .program.display())]
    Supervisor {
        /// The supervisor's program.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The supervisor could not start the server.
    #[error("{detail}")]
    Keeper {
        /// The supervisor's text.
        detail: String,
    },
    /// The helper is not installed.
    #[error("{helper} is not usable: {error}; install colibri-jail-helper", helper = HELPER)]
    HelperMissing {
        /// The system's error.
        error: io::Error,
    },
    /// The helper is there and cannot become root, and there is nothing else to try.
    #[error(
        "{helper} cannot gain root: {why}, and there is no sudo to try instead: install the package again, or chmod it \
         to 4550 and chown it to root:colibri, on a file system without nosuid",
        helper = HELPER
    )]
    HelperPowerless {
        /// The obstacle.
        why: &'static str,
    },
    /// The helper is of another version.
    #[error(
        "the helper has contract number {found:?}, this daemon {wanted}: restart colibri_mcp after an upgrade"
    )]
    Contract {
        /// The number that `--version` printed, if it was one.
        found: Option<u32>,
        /// The number that this daemon needs.
        wanted: u32,
    },
    /// What is to gain root cannot be executed: no mdo(1) or sudo(8) here.
    #[error(
        "cannot run {program}, which priv mode {mode} needs: {error}; install it, or choose another way to root with \
         --priv-mode (COLIBRI_JAIL_PRIV_MODE)",
        program = .program.display()
    )]
    BackendMissing {
        /// The mode in use.
        mode: PrivMode,
        /// mdo or sudo.
        program: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// Exit status 69 of the helper: a limit of the policy is reached, on what runs or on starts.
    #[error("a limit of the jail policy is reached: {detail}")]
    Limit {
        /// The helper's text.
        detail: String,
    },
    /// Exit status 75 of the helper: not now, such as a jail that is not running.
    #[error("the helper asks to try later: {detail}")]
    TryLater {
        /// The helper's text.
        detail: String,
    },
    /// Exit status 77: the policy says no.
    #[error("refused by the jail policy: {detail}; see jail-policy.json")]
    Refused {
        /// The helper's text.
        detail: String,
    },
    /// Exit status 78: registry, policy or another file is not as it must be, or asks for what this
    /// system does not have.
    #[error(
        "the helper refuses what it is configured with: {detail}; run colibri-jail-helper check as root"
    )]
    BadFile {
        /// The helper's text.
        detail: String,
    },
    /// Exit status 71: the system refused the helper something.
    #[error("the helper failed: {detail}")]
    System {
        /// The helper's text.
        detail: String,
    },
    /// Exit status 64: helper and daemon do not understand each other.
    #[error(
        "the helper does not understand this daemon: {detail}; restart colibri_mcp after an upgrade"
    )]
    Usage {
        /// The helper's text.
        detail: String,
    },
    /// The helper never ran, or ended in a way it does not know: mdo or sudo refused.
    #[error("no root in priv mode {mode} ({exit}): {detail}; run colibri-mcp doctor")]
    NoRoot {
        /// The mode in use.
        mode: PrivMode,
        /// The way in which the command ended.
        exit: ServerExit,
        /// The command's text.
        detail: String,
    },
    /// The helper was killed; a sweep follows.
    #[error("the helper was killed by signal {signal} before the server ran")]
    HelperKilled {
        /// The signal.
        signal: i32,
    },
    /// The helper took too long for an errand.
    #[error("the helper did not end within {} s", MAX_ERRAND.as_secs())]
    Slow,
}

impl SpawnError {
    /// True if trying again later may help with nothing changed: "backing off" rather than
    /// "failed".
    pub fn is_transient(&self) -> bool {
        matches!(
            self,
            Self::Limit { .. }
                | Self::TryLater { .. }
                | Self::System { .. }
                | Self::Supervisor { .. }
                | Self::HelperKilled { .. }
                | Self::Slow
        )
    }

    /// The error behind the helper's exit status when no server ran (sysexits(3)).
    pub(super) fn of_helper(mode: PrivMode, exit: ServerExit, detail: String) -> Self {
        match exit {
            ServerExit::Status(64) => Self::Usage { detail },
            ServerExit::Status(69) => Self::Limit { detail },
            ServerExit::Status(71) => Self::System { detail },
            ServerExit::Status(75) => Self::TryLater { detail },
            ServerExit::Status(77) => Self::Refused { detail },
            ServerExit::Status(78) => Self::BadFile { detail },
            ServerExit::SupervisorKilled(signal) => Self::HelperKilled { signal },
            exit => Self::NoRoot { mode, exit, detail },
        }
    }
}
