//! The wall around `unsafe`: what the helper needs of the system and nix has no safe call for.
//! Everything here is small enough to be checked by reading it; every decision is made outside.

#![allow(unsafe_code, reason = "system calls that no safe library offers")]

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use colibri_registry::RctlResource;
use nix::errno::Errno;
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, Signal, sigaction};
use nix::unistd::{ForkResult, Pid};

#[cfg(target_os = "freebsd")]
mod freebsd;
#[cfg(target_os = "linux")]
mod linux;

#[cfg(target_os = "freebsd")]
pub(crate) use freebsd::*;
#[cfg(target_os = "linux")]
pub(crate) use linux::*;

/// Makes a child. `None` in the child, its pid in the parent.
pub(crate) fn fork() -> Result<Option<Pid>, Errno> {
    // SAFETY: the helper has one thread, so the child may use everything the parent may (fork(2)).
    match unsafe { nix::unistd::fork() }? {
        ForkResult::Child => Ok(None),
        ForkResult::Parent { child } => Ok(Some(child)),
    }
}

/// Closes every descriptor from `first` on. No owner of one of them may live on.
pub(crate) fn close_from(first: u32) -> Result<(), Errno> {
    close_range(first, u32::MAX)
}

/// Stops the three interval timers, which survive execve(2) and would kill the helper.
pub(crate) fn clear_timers() -> Result<(), Errno> {
    for which in [libc::ITIMER_REAL, libc::ITIMER_VIRTUAL, libc::ITIMER_PROF] {
        // SAFETY: an all-zero itimerval is valid and means "stopped"; the old value is not asked
        // for.
        let done = unsafe {
            let zero: libc::itimerval = std::mem::zeroed();
            libc::setitimer(which, &zero, std::ptr::null_mut())
        };
        Errno::result(done)?;
    }
    Ok(())
}

/// Removes every limit that a caller may have set; core files stay off. Needs root.
///
/// Root without CAP_SYS_RESOURCE (some Linux containers) cannot raise a hard limit. Then the soft
/// one goes up to it, and that is enough unless it is one of those that kill or starve.
pub(crate) fn lift_limits() -> Result<(), Errno> {
    for (which, _) in RESOURCES {
        let most = match *which {
            libc::RLIMIT_CORE => 0,
            libc::RLIMIT_NOFILE => OPEN_FILES.max(hard_limit(*which)?),
            _ => libc::RLIM_INFINITY,
        };
        match set_limit(*which, most, most) {
            // A kernel that does not know the limit has none of it.
            Err(Errno::EINVAL) if YOUNG.contains(which) => {}
            Err(Errno::EPERM) => {
                let hard = hard_limit(*which)?;
                set_limit(*which, hard, hard)?;
                let starves = !HARMLESS.contains(which) && hard < most;
                if starves {
                    return Err(Errno::EPERM);
                }
            }
            done => done?,
        }
    }
    Ok(())
}

/// Descriptors that the helper and most servers can do with; "no limit" is refused by Linux for
/// these.
const OPEN_FILES: libc::rlim_t = 4096;

fn hard_limit(which: Resource) -> Result<libc::rlim_t, Errno> {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live rlimit.
    Errno::result(unsafe { libc::getrlimit(which, &mut limit) })?;
    Ok(limit.rlim_max)
}

/// The limit of one resource of setrlimit(2) in a server.
#[derive(Debug, Clone, Copy)]
pub(crate) enum ResourceLimit {
    /// The plan.
    Planned(RctlResource),
    /// This number, whatever entry and policy say.
    Fixed(u64),
}

/// Sets the limits of one resource, or the hard limit that this process has where that is lower. A
/// resource that an older kernel does not know is left out.
pub(crate) fn lower_limit(which: Resource, soft: u64, hard: u64) -> Result<(), Errno> {
    let most = match hard_limit(which) {
        Err(Errno::EINVAL) if YOUNG.contains(&which) => return Ok(()),
        most => most?,
    };
    set_limit(
        which,
        most.min(soft as libc::rlim_t),
        most.min(hard as libc::rlim_t),
    )
}

/// Sets one limit (setrlimit(2)); `libc` has no common type for resources on Linux and FreeBSD.
fn set_limit(which: Resource, soft: libc::rlim_t, hard: libc::rlim_t) -> Result<(), Errno> {
    let limit = libc::rlimit {
        rlim_cur: soft,
        rlim_max: hard,
    };
    // SAFETY: the pointer is to a live rlimit; a wrong resource is answered with EINVAL.
    Errno::result(unsafe { libc::setrlimit(which, &limit) }).map(drop)
}

/// Sets signals, real-time ones included, to be ignored or to their default, where that can be:
/// ignoring one discards it if it was pending.
fn set_signals(numbers: impl Iterator<Item = c_int>, disposition: libc::sighandler_t) {
    for number in numbers {
        // SAFETY: no handler is installed, only default or ignore. The result does not matter: the
        // few signals that cannot be set cannot be ignored or pending either.
        unsafe { libc::signal(number, disposition) };
    }
}

/// Forgets signals that are pending and dispositions that were inherited, and lets every signal in
/// again.
pub(crate) fn reset_signals() -> Result<(), Errno> {
    set_signals(1..=MAX_SIGNAL, libc::SIG_IGN);
    set_signals(1..=MAX_SIGNAL, libc::SIG_DFL);
    SigSet::empty().thread_set_mask()
}

static ASKED_TO_END: AtomicBool = AtomicBool::new(false);

extern "C" fn note_end(_: c_int) {
    ASKED_TO_END.store(true, Ordering::Relaxed);
}

extern "C" fn only_wake(_: c_int) {}

/// Ignores what a terminal or a closed pipe could send; SIGCHLD and SIGTERM stay blocked, to be let
/// in by ppoll(2) alone, and interrupt it.
pub(crate) fn signals_of_supervisor() -> Result<(), Errno> {
    use Signal::*;
    let ignore = SigAction::new(SigHandler::SigIgn, SaFlags::empty(), SigSet::empty());
    for signal in [
        SIGHUP, SIGINT, SIGQUIT, SIGPIPE, SIGALRM, SIGTSTP, SIGTTIN, SIGTTOU, SIGUSR1, SIGUSR2,
        SIGXFSZ,
    ] {
        // SAFETY: ignoring installs no handler.
        unsafe { sigaction(signal, &ignore) }?;
    }
    let awaited: SigSet = [SIGCHLD, SIGTERM].into_iter().collect();
    awaited.thread_block()?;
    for (signal, handler) in [
        (SIGCHLD, only_wake as extern "C" fn(c_int)),
        (SIGTERM, note_end),
    ] {
        let action = SigAction::new(
            SigHandler::Handler(handler),
            SaFlags::empty(),
            SigSet::empty(),
        );
        // SAFETY: the handlers do nothing or store into an atomic, which is async-signal-safe.
        unsafe { sigaction(signal, &action) }?;
    }
    Ok(())
}

/// Ignores every signal that can be but SIGCHLD: for the process that only relays its child's
/// status, which the kernel throws away if the child ends while SIGCHLD is ignored, be it for a
/// moment.
pub(crate) fn ignore_signals() {
    set_signals(
        (1..=MAX_SIGNAL).filter(|number| *number != libc::SIGCHLD),
        libc::SIG_IGN,
    );
}

/// Ends this process by the signal of this number, as its child was ended, so that whoever waits
/// sees the same.
pub(crate) fn die_by(number: c_int) -> ! {
    // SAFETY: the default action installs no handler; raise(3) touches no memory. Core files were
    // switched off.
    unsafe {
        libc::signal(number, libc::SIG_DFL);
        let _ = SigSet::empty().thread_set_mask();
        libc::raise(number);
    }
    // Only a signal that does not end a process comes here.
    std::process::exit(128 + number)
}

/// Runs `act`, whose system calls fail with EINTR once `most` has passed, and go on failing: nobody
/// parks a program of root's by not reading what it writes.
pub(crate) fn within<T>(most: Duration, act: impl FnOnce() -> T) -> Result<T, Errno> {
    let wake = SigAction::new(
        SigHandler::Handler(only_wake),
        SaFlags::empty(),
        SigSet::empty(),
    );
    // SAFETY: the handler does nothing.
    let before = unsafe { sigaction(Signal::SIGALRM, &wake) }?;
    set_alarm(most, Duration::from_millis(100))?;
    let done = act();
    clear_timers()?;
    // SAFETY: what was there is put back.
    unsafe { sigaction(Signal::SIGALRM, &before) }?;
    Ok(done)
}

fn set_alarm(first: Duration, then: Duration) -> Result<(), Errno> {
    let time = |duration: Duration| libc::timeval {
        tv_sec: duration.as_secs() as libc::time_t,
        tv_usec: duration.subsec_micros() as libc::suseconds_t,
    };
    let timer = libc::itimerval {
        it_interval: time(then),
        it_value: time(first),
    };
    // SAFETY: the pointer is to a live itimerval; the old value is not asked for.
    Errno::result(unsafe { libc::setitimer(libc::ITIMER_REAL, &timer, std::ptr::null_mut()) })
        .map(drop)
}

/// Gives back what an earlier nice(1) took or gave.
fn clear_nice() -> Result<(), Errno> {
    // SAFETY: takes numbers.
    Errno::result(unsafe { libc::setpriority(libc::PRIO_PROCESS, 0, 0) }).map(drop)
}

/// True if SIGTERM has come since [`signals_of_supervisor`].
pub(crate) fn asked_to_end() -> bool {
    ASKED_TO_END.load(Ordering::Relaxed)
}

/// Overwrites what must not stay in memory.
pub(crate) fn wipe(bytes: &mut [u8]) {
    for byte in bytes {
        // SAFETY: a valid, exclusive reference; volatile, so that the write is not left out for
        // being the last.
        unsafe { std::ptr::write_volatile(byte, 0) };
    }
}

/// The end of a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ProcessEnd {
    /// By exit(3) with this status.
    Exited(i32),
    /// By the signal of this number.
    Signaled(i32),
}

impl ProcessEnd {
    /// The exit code that tells of it: the status, or 128+n.
    pub(crate) fn code(self) -> i32 {
        match self {
            Self::Exited(status) => status,
            Self::Signaled(number) => 128 + number,
        }
    }
}

/// The outcome of waitpid(2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum WaitStatus {
    /// This child ended, and is reaped.
    Child(Pid, ProcessEnd),
    /// There are children, none of which has ended.
    NoneYet,
    /// There is no child.
    NoChildren,
}

/// Waits for `pid`, or for any child, at once or for as long as it takes. nix's waitpid(2) knows no
/// real-time signals, and takes a child that one of them ended for an error.
pub(crate) fn wait(pid: Option<Pid>, block: bool) -> Result<WaitStatus, Errno> {
    let mut status = 0;
    let flags = if block { 0 } else { libc::WNOHANG };
    loop {
        // SAFETY: `status` is a live c_int.
        let found = unsafe { libc::waitpid(pid.map_or(-1, Pid::as_raw), &mut status, flags) };
        return match Errno::result(found) {
            Ok(0) => Ok(WaitStatus::NoneYet),
            Ok(found) => {
                let ended = if libc::WIFSIGNALED(status) {
                    ProcessEnd::Signaled(libc::WTERMSIG(status))
                } else {
                    ProcessEnd::Exited(libc::WEXITSTATUS(status))
                };
                Ok(WaitStatus::Child(Pid::from_raw(found), ended))
            }
            Err(Errno::EINTR) => continue,
            Err(Errno::ECHILD) => Ok(WaitStatus::NoChildren),
            Err(error) => Err(error),
        };
    }
}

/// True if the file lies on a file system on which set-user-ID bits have no effect.
pub(crate) fn is_on_nosuid_mount(path: &std::path::Path) -> Result<bool, Errno> {
    let flags = nix::sys::statvfs::statvfs(path)?.flags();
    Ok(flags.contains(nix::sys::statvfs::FsFlags::ST_NOSUID))
}
