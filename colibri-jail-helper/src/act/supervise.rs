//! Supervision of an instance from its start to the last of its processes.

use std::os::fd::{AsFd, OwnedFd};
use std::time::{Duration, Instant};

use colibri_jail_helper::refusal::HelperRefusal;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, ppoll};
use nix::sys::signal::{SigSet, Signal};
use nix::sys::time::TimeSpec;

use crate::act::sandbox::Sandbox;
use crate::sys;

/// From the end of the server's stdin to SIGTERM: the time a server has to end by itself.
const GRACE: Duration = Duration::from_secs(2);

/// From SIGTERM to SIGKILL.
const TERM_GRACE: Duration = Duration::from_secs(1);

/// The most of each of the two once nobody reads the server's stderr any more: the daemon does for
/// as long as it lives, so it was killed, and within two seconds of that nothing may be left.
const GRACE_ABANDONED: Duration = Duration::from_millis(500);

/// Between two attempts to kill what is still there.
const KILL_AGAIN: Duration = Duration::from_millis(50);

/// The time for which SIGKILL is tried; a process in an uninterruptible sleep can outlast any of
/// it.
const KILL_LIMIT: Duration = Duration::from_secs(10);

/// The end of a supervised instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct InstanceEnd {
    /// The exit code of the server: its own, or 128+n.
    pub code: i32,
    /// The reason for its end.
    pub cause: Cause,
    /// No process is left.
    pub empty: bool,
}

/// The reason for which an instance ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cause {
    /// The server ended by itself.
    Server,
    /// The other end of its stdin was closed by somebody who lives on.
    Lifeline,
    /// The other ends of its stdin and of its stderr are both closed: the daemon is gone.
    Abandoned,
    /// `stop`, or SIGTERM to the supervisor.
    Order,
}

impl Cause {
    /// One word, for the audit line.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Server => "server",
            Self::Lifeline => "lifeline",
            Self::Abandoned => "abandoned",
            Self::Order => "order",
        }
    }
}

enum SupervisionPhase {
    Serving,
    Grace { until: Instant },
    Terminating { until: Instant },
    Killing { since: Instant },
}

/// Watches until no process is left, and ends what does not end by itself. Nothing is ever read
/// from the server's stdin: with no events asked for, poll(2) reports its hang-up alone, whatever
/// bytes are still in it. `heard` is a copy of the server's stderr, which reports in the same way
/// that its last reader is gone.
///
/// # Errors
/// The system refused to wait or to poll; the caller tears down all the same.
pub(crate) fn watch(
    sandbox: &mut Sandbox,
    stop: &OwnedFd,
    heard: &OwnedFd,
) -> Result<InstanceEnd, HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("supervise", tried, error);
    let stdin = std::io::stdin();
    let mut phase = SupervisionPhase::Serving;
    let mut cause = Cause::Server;
    loop {
        sandbox.reap()?;
        if sandbox.is_empty() {
            break;
        }
        let now = Instant::now();
        phase = match phase {
            SupervisionPhase::Serving | SupervisionPhase::Grace { .. }
                if sandbox.main_code().is_some() =>
            {
                terminate(sandbox, now, cause)
            }
            SupervisionPhase::Grace { until } if until <= now => terminate(sandbox, now, cause),
            SupervisionPhase::Terminating { until } if until <= now => {
                SupervisionPhase::Killing { since: now }
            }
            SupervisionPhase::Killing { since } if now.duration_since(since) > KILL_LIMIT => break,
            phase => phase,
        };
        let timeout = match phase {
            SupervisionPhase::Serving => None,
            SupervisionPhase::Grace { until } | SupervisionPhase::Terminating { until } => {
                Some(until.saturating_duration_since(now))
            }
            SupervisionPhase::Killing { .. } => {
                sandbox.kill();
                Some(KILL_AGAIN)
            }
        };
        let mut fds = Vec::with_capacity(3);
        if matches!(
            phase,
            SupervisionPhase::Serving | SupervisionPhase::Grace { .. }
        ) {
            fds.push(PollFd::new(stop.as_fd(), PollFlags::POLLIN));
        }
        match phase {
            SupervisionPhase::Serving => fds.push(PollFd::new(stdin.as_fd(), PollFlags::empty())),
            // Once it has come it would come at once every time.
            SupervisionPhase::Grace { .. } if cause == Cause::Lifeline => {
                fds.push(PollFd::new(heard.as_fd(), PollFlags::empty()));
            }
            _ => {}
        }
        if let Some(wake) = sandbox.wake() {
            fds.push(PollFd::new(wake, PollFlags::POLLIN));
        }
        // SIGCHLD and SIGTERM are let in here and nowhere else, so that none is missed between
        // looking and waiting.
        match ppoll(
            &mut fds,
            timeout.map(TimeSpec::from_duration),
            Some(SigSet::empty()),
        ) {
            Ok(_) | Err(Errno::EINTR) => {}
            Err(error) => return Err(failed("poll")(error)),
        }
        let happened = |at: usize| fds.get(at).and_then(PollFd::any).unwrap_or(false);
        let now = Instant::now();
        phase = match phase {
            SupervisionPhase::Serving | SupervisionPhase::Grace { .. }
                if happened(0) || sys::asked_to_end() =>
            {
                cause = Cause::Order;
                terminate(sandbox, now, cause)
            }
            SupervisionPhase::Serving if happened(1) => {
                cause = Cause::Lifeline;
                SupervisionPhase::Grace { until: now + GRACE }
            }
            // A process that is killed loses its pipes one by one, so this comes after the other,
            // or never.
            SupervisionPhase::Grace { until } if cause == Cause::Lifeline && happened(1) => {
                cause = Cause::Abandoned;
                let soon = now + GRACE_ABANDONED;
                SupervisionPhase::Grace {
                    until: until.min(soon),
                }
            }
            phase => phase,
        };
    }
    let code = sandbox.main_code().unwrap_or(128 + Signal::SIGKILL as i32);
    Ok(InstanceEnd {
        code,
        cause,
        empty: sandbox.is_empty(),
    })
}

fn terminate(sandbox: &Sandbox, now: Instant, cause: Cause) -> SupervisionPhase {
    sandbox.terminate();
    let grace = match cause {
        Cause::Abandoned => GRACE_ABANDONED,
        Cause::Server | Cause::Lifeline | Cause::Order => TERM_GRACE,
    };
    SupervisionPhase::Terminating { until: now + grace }
}
