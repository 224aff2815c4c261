//! The supervisor: a small process between the daemon and each host server, so that nothing of the
//! server is left behind, however the daemon ends.
//!
//! It is the daemon's own executable, started again with a hidden first argument:
//!
//! ```text
//! colibri-mcpd keeper --grace-ms N --parent PID --session own|shared --stdin null|pipe -- PROGRAM ARGS…
//! ```
//!
//! Its standard input is the server's, and it polls it without reading: when the last writer is
//! gone, because the daemon closed it or was killed, that is the order to end. Nothing else needs
//! to reach it, so the daemon never has to be able to signal anybody. `docs/processes.md` says what
//! each platform guarantees.

use super::sys::Session;
use super::{sys, tree};
use colibri_registry::Stdin;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::stat::SFlag;
use nix::sys::time::TimeSpec;
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::{Pid, getppid};
use std::ffi::{OsStr, OsString};
use std::fmt::Display;
use std::io::{self, Write as _};
use std::os::fd::AsFd as _;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::process::{Command, ExitCode};
use std::time::{Duration, Instant};

/// The hidden first argument.
pub const ARGUMENT: &str = "keeper";

/// The line that the supervisor writes on stderr once the server's program has been executed.
pub const STARTED: &str = "keeper: started";

/// Variables of the server's environment travel to the supervisor under their name with this before
/// it, so that none of them (`LD_PRELOAD`, say) works on the supervisor itself.
pub(crate) const ENVIRONMENT_PREFIX: &str = "COLIBRI_KEEPER_";

/// Time from the end of the input to TERM, and from TERM to KILL, when the daemon is gone: together
/// well below the two seconds within which nothing may be left.
const GRACE_WITHOUT_DAEMON: Duration = Duration::from_millis(500);

/// The interval at which the supervisor looks while it is ending a tree: for orphans that no signal
/// announces, and for the daemon.
const LOOK: Duration = Duration::from_millis(50);

/// Exit status of the supervisor when it was not started as it must be (EX_USAGE of sysexits(3)).
const EXIT_USAGE: u8 = 64;

/// Exit status when the system refused something the supervisor needs (EX_OSERR).
const EXIT_SYSTEM: u8 = 71;

/// Exit status when the server's program could not be executed, as shells have it.
const EXIT_NOT_STARTED: u8 = 127;

/// Runs the supervisor and returns the server's exit status, or 128 and its signal. `arguments` are
/// those after [`ARGUMENT`].
///
/// Must be called first thing in `main`, before any thread, runtime or open file: it closes every
/// descriptor above 2.
pub fn main(arguments: impl Iterator<Item = OsString>) -> ExitCode {
    let failed = |status, what: &dyn Display| {
        say(&format_args!("keeper: {what}"));
        ExitCode::from(status)
    };
    let task = match SupervisorTask::read(arguments) {
        Ok(task) => task,
        Err(message) => return failed(EXIT_USAGE, &message),
    };
    if let Err(error) = prepare(task.session) {
        return failed(EXIT_SYSTEM, &format_args!("cannot prepare: {error}"));
    }
    let mut command = Command::new(&task.program);
    command
        .args(&task.arguments)
        .env_clear()
        .envs(environment());
    if task.stdin == Stdin::Null {
        // The supervisor alone has the lifeline then.
        command.stdin(std::process::Stdio::null());
    }
    sys::leave_group_and_die_with_parent(&mut command, task.session);
    let server = match command.spawn() {
        Ok(server) => Pid::from_raw(server.id() as i32),
        Err(error) => {
            return failed(
                EXIT_NOT_STARTED,
                &format_args!("cannot run {}: {error}", task.program.display()),
            );
        }
    };
    // With a copy of the server's stdout here, nobody would see the server close it.
    let let_go = std::fs::File::options()
        .write(true)
        .open("/dev/null")
        .and_then(|null| Ok(nix::unistd::dup2_stdout(null)?));
    if let Err(error) = let_go {
        tree::signal_descendants(Signal::SIGKILL);
        return failed(
            EXIT_SYSTEM,
            &format_args!("cannot let go of stdout: {error}"),
        );
    }
    // The server may have begun a line already: the newline before keeps this one a line of its
    // own.
    say(&format_args!("\n{STARTED}"));
    match keep(server, &task) {
        Ok(status) => ExitCode::from(status),
        Err(error) => {
            tree::signal_descendants(Signal::SIGKILL);
            failed(
                EXIT_SYSTEM,
                &format_args!("cannot watch the server: {error}"),
            )
        }
    }
}

/// Writes a line on stderr, in one piece, so that nothing of the server's gets into it (pipe(7),
/// `PIPE_BUF`). Whether anybody reads it must not matter: `eprintln` would panic when the daemon is
/// gone.
fn say(line: &dyn Display) {
    let _ = io::stderr().write_all(format!("{line}\n").as_bytes());
}

/// The supervisor's command line.
struct SupervisorTask {
    grace: Duration,
    parent: Pid,
    session: Session,
    stdin: Stdin,
    program: OsString,
    arguments: Vec<OsString>,
}

impl SupervisorTask {
    fn read(mut arguments: impl Iterator<Item = OsString>) -> Result<Self, &'static str> {
        const USAGE: &str = "started by the daemon as: keeper --grace-ms N --parent PID --session own|shared --stdin null|pipe -- \
             PROGRAM ARGS…";
        let mut number = |name: &str| {
            let found = arguments.next().is_some_and(|argument| argument == name);
            arguments
                .next()
                .filter(|_| found)
                .and_then(|n| n.to_str()?.parse::<u32>().ok())
                .ok_or(USAGE)
        };
        let grace = number("--grace-ms")?;
        let parent = number("--parent")?;
        let session = arguments.next().filter(|argument| argument == "--session");
        let session = session.and_then(|_| arguments.next()).ok_or(USAGE)?;
        let sessions = [Session::Own, Session::Shared];
        let session = sessions
            .into_iter()
            .find(|of| session == of.word())
            .ok_or(USAGE)?;
        let stdin = arguments.next().filter(|argument| argument == "--stdin");
        let stdin = stdin.and_then(|_| arguments.next()).ok_or(USAGE)?;
        let stdins = [Stdin::Null, Stdin::Pipe];
        let stdin = stdins
            .into_iter()
            .find(|of| stdin == stdin_word(*of))
            .ok_or(USAGE)?;
        if arguments.next().is_none_or(|argument| argument != "--") {
            return Err(USAGE);
        }
        Ok(Self {
            grace: Duration::from_millis(grace.into()),
            parent: Pid::from_raw(i32::try_from(parent).map_err(|_| USAGE)?),
            session,
            stdin,
            program: arguments.next().ok_or(USAGE)?,
            arguments: arguments.collect(),
        })
    }
}

fn prepare(session: Session) -> io::Result<()> {
    sys::close_above_standard()?;
    let stdin = nix::sys::stat::fstat(io::stdin())?;
    if SFlag::from_bits_truncate(stdin.st_mode) & SFlag::S_IFMT != SFlag::S_IFIFO {
        return Err(io::Error::other(
            "standard input must be a pipe: its end is the order to end",
        ));
    }
    // Before the server exists, so that it never sees a supervisor that it could trace or read the
    // environment of.
    sys::not_traceable()?;
    sys::no_new_privileges()?;
    sys::become_reaper()?;
    tree::check()?;
    // What a terminal sends to the daemon's group does not come here.
    session.leave_group()?;
    sys::take_signals()?;
    // Blocked except while waiting, so that none arrives between a look and the wait for it.
    SigSet::all().thread_block()?;
    Ok(())
}

fn environment() -> impl Iterator<Item = (OsString, OsString)> {
    std::env::vars_os().filter_map(|(name, value)| {
        let name = name
            .as_bytes()
            .strip_prefix(ENVIRONMENT_PREFIX.as_bytes())?;
        Some((OsString::from_vec(name.to_vec()), value))
    })
}

/// The phase of the end.
#[derive(Clone, Copy)]
enum EndPhase {
    /// The server serves.
    Serving,
    /// Its input has ended: it has until then to end by itself.
    Grace(Instant),
    /// TERM was sent: the tree has until then.
    Terminating(Instant),
    /// KILL, until nothing is left.
    Killing,
}

/// Watches the server to its end and the end of everything it started.
fn keep(server: Pid, task: &SupervisorTask) -> io::Result<u8> {
    let mut phase = EndPhase::Serving;
    let mut status = None;
    let mut hung_up = false;
    let mut hurried = false;
    loop {
        let last = reap(server, &mut status)?;
        if last {
            // Without a status the server was reaped by nobody: it cannot be, since this is its
            // parent.
            return Ok(status.unwrap_or(EXIT_SYSTEM));
        }
        let now = Instant::now();
        if status.is_some() && matches!(phase, EndPhase::Serving | EndPhase::Grace(_)) {
            phase = EndPhase::Killing;
        }
        if hung_up && matches!(phase, EndPhase::Serving) {
            phase = EndPhase::Grace(now + task.grace);
        }
        if sys::termination_asked() && matches!(phase, EndPhase::Serving | EndPhase::Grace(_)) {
            phase = terminate(now + task.grace);
        }
        // A daemon that was killed closed its pipes a moment before it became nobody's parent: look
        // again and again.
        let daemon_gone = getppid() != task.parent;
        if daemon_gone && !hurried {
            let soon = now + GRACE_WITHOUT_DAEMON;
            phase = match phase {
                EndPhase::Grace(until) => EndPhase::Grace(until.min(soon)),
                EndPhase::Terminating(until) => EndPhase::Terminating(until.min(soon)),
                other => other,
            };
            hurried = !matches!(phase, EndPhase::Serving);
        }
        match phase {
            EndPhase::Grace(until) if now >= until => {
                phase = terminate(
                    now + if daemon_gone {
                        GRACE_WITHOUT_DAEMON
                    } else {
                        task.grace
                    },
                );
            }
            EndPhase::Terminating(until) if now >= until => phase = EndPhase::Killing,
            _ => {}
        }
        if matches!(phase, EndPhase::Killing) {
            tree::signal_descendants(Signal::SIGKILL);
        }
        hung_up |= wait(phase, now)?;
    }
}

fn terminate(until: Instant) -> EndPhase {
    tree::signal_descendants(Signal::SIGTERM);
    EndPhase::Terminating(until)
}

/// Waits for a signal, the end of the input, or the time to look again; says whether the input has
/// ended.
fn wait(phase: EndPhase, now: Instant) -> io::Result<bool> {
    let stdin = io::stdin();
    // No event is asked for: POLLHUP comes unasked, with unread data still in the pipe, and never
    // before the last writer is gone. Once it has come it would come at once every time.
    let mut lifeline = [PollFd::new(stdin.as_fd(), PollFlags::empty())];
    let (watched, timeout): (&mut [PollFd<'_>], _) = match phase {
        EndPhase::Serving => (&mut lifeline, None),
        EndPhase::Grace(until) | EndPhase::Terminating(until) => (
            &mut [],
            Some(until.saturating_duration_since(now).min(LOOK)),
        ),
        EndPhase::Killing => (&mut [], Some(LOOK / 5)),
    };
    match ppoll(
        watched,
        timeout.map(TimeSpec::from_duration),
        Some(SigSet::empty()),
    ) {
        Ok(events) => Ok(events > 0),
        Err(Errno::EINTR) => Ok(false),
        Err(error) => Err(error.into()),
    }
}

/// Collects every child that has ended, the server's status among them. `true`: no child is left,
/// and since orphans come here, no descendant either.
fn reap(server: Pid, status: &mut Option<u8>) -> io::Result<bool> {
    loop {
        match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
            Ok(WaitStatus::StillAlive) => return Ok(false),
            Ok(WaitStatus::Exited(pid, code)) if pid == server => *status = Some(code as u8),
            Ok(WaitStatus::Signaled(pid, signal, _)) if pid == server => {
                *status = Some(128 + signal as u8)
            }
            Ok(_) | Err(Errno::EINTR) => {}
            Err(Errno::ECHILD) => return Ok(true),
            Err(error) => return Err(error.into()),
        }
    }
}

/// A standard input, as the supervisor's command line says it.
pub(super) fn stdin_word(stdin: Stdin) -> &'static str {
    match stdin {
        Stdin::Null => "null",
        Stdin::Pipe => "pipe",
    }
}

/// The name under which a variable of the server travels to the supervisor.
pub(super) fn carried(name: &OsStr) -> OsString {
    let mut carried = OsString::from(ENVIRONMENT_PREFIX);
    carried.push(name);
    carried
}
