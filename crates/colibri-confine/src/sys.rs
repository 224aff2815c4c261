//! The system calls that no safe library offers, each behind a safe function: the only `unsafe` of
//! the daemon's process handling.

#![allow(unsafe_code, reason = "system calls that no safe library offers")]

use nix::sys::signal::SigSet;
use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};

/// The ids of a program: nothing of it is root's.
#[derive(Debug, Clone)]
pub(super) struct ProcessIdentity {
    /// Numeric user id, not 0.
    pub uid: nix::unistd::Uid,
    /// Numeric group id.
    pub gid: nix::unistd::Gid,
    /// All groups of the user.
    pub groups: Vec<nix::unistd::Gid>,
}

/// The session of the supervisor and of the server.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Session {
    /// Each has one of its own, without a terminal.
    Own,
    /// The daemon's, within process groups of their own: Linux divides the processor among sessions
    /// first (sched(7), "The autogroup feature"), so that a nice value counts only within a
    /// session.
    Shared,
}

impl Session {
    /// Leaves the group of the parent.
    pub(super) fn leave_group(self) -> nix::Result<()> {
        match self {
            Session::Own => nix::unistd::setsid().map(drop),
            Session::Shared => {
                nix::unistd::setpgid(nix::unistd::Pid::from_raw(0), nix::unistd::Pid::from_raw(0))
            }
        }
    }

    /// The word on the supervisor's command line.
    pub(super) fn word(self) -> &'static str {
        match self {
            Session::Own => "own",
            Session::Shared => "shared",
        }
    }
}

/// Set by [`note_termination`] when the supervisor is told to end.
static TERMINATION: AtomicBool = AtomicBool::new(false);

extern "C" fn note_termination(_: libc::c_int) {
    TERMINATION.store(true, Ordering::Relaxed);
}

extern "C" fn only_wake(_: libc::c_int) {}

/// True if SIGTERM has arrived since [`take_signals`].
pub(super) fn termination_asked() -> bool {
    TERMINATION.load(Ordering::Relaxed)
}

/// Takes the process's signals in hand, whatever it inherited.
///
/// Every disposition goes back to the default first, since ignored signals are inherited through
/// execve(2). SIGTERM and SIGCHLD get handlers, and so do the signals a terminal can send:
/// handlers, not `SIG_IGN`, because they do not pass on to the server.
///
/// # Errors
/// sigaction(2) failed.
pub(super) fn take_signals() -> io::Result<()> {
    use nix::sys::signal::{SaFlags, SigAction, SigHandler, Signal, sigaction};
    let set = |signal, handler| {
        let action = SigAction::new(handler, SaFlags::empty(), SigSet::empty());
        // SAFETY: the handlers do nothing, or store into an atomic, both of which are
        // async-signal-safe (signal-safety(7)); no earlier handler of this process is relied upon.
        unsafe { sigaction(signal, &action) }
            .map(drop)
            .map_err(io::Error::from)
    };
    for signal in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
        let handler = match signal {
            Signal::SIGTERM => SigHandler::Handler(note_termination),
            Signal::SIGCHLD
            | Signal::SIGHUP
            | Signal::SIGINT
            | Signal::SIGQUIT
            | Signal::SIGTSTP
            | Signal::SIGTTIN
            | Signal::SIGTTOU
            | Signal::SIGPIPE => SigHandler::Handler(only_wake),
            _ => SigHandler::SigDfl,
        };
        set(signal, handler)?;
    }
    Ok(())
}

/// Closes every descriptor above 2.
///
/// # Errors
/// close_range(2) failed (Linux before 5.9).
pub(super) fn close_above_standard() -> io::Result<()> {
    // SAFETY: plain system call on numbers. The caller runs before anything else in the process
    // owns a descriptor above 2 (`supervisor::main` is called first thing), so no owner is left
    // with a closed one.
    let done = unsafe {
        // Not every C library of Linux has a function for it.
        #[cfg(target_os = "linux")]
        let done = libc::syscall(libc::SYS_close_range, 3, libc::c_uint::MAX, 0);
        #[cfg(not(target_os = "linux"))]
        let done = libc::close_range(3, libc::c_uint::MAX, 0);
        done
    };
    if done == 0 {
        Ok(())
    } else {
        Err(io::Error::last_os_error())
    }
}

/// Has glibc give back what is freed: one arena for all threads, and a mapping of its own for what
/// is from 1 MiB on. Each of its usual arenas keeps what any thread freed in it, and the daemon's
/// many threads free what others made: 40 MiB of nothing after a minute of reloads and restarts.
/// Other systems' allocators give it back themselves.
pub(super) fn keep_little_of_what_is_freed() {
    #[cfg(all(target_os = "linux", target_env = "gnu"))]
    {
        // SAFETY: sets two numbers (mallopt(3)); the caller runs before there is a second thread.
        unsafe {
            libc::mallopt(libc::M_ARENA_MAX, 1);
            libc::mallopt(libc::M_MMAP_THRESHOLD, 1 << 20);
        }
    }
}

/// In a child: it dies with its parent, and no signal is blocked.
fn end_with(parent: nix::unistd::Pid) -> io::Result<()> {
    die_with_parent()?;
    // The parent may have ended before the signal was asked for.
    if nix::unistd::getppid() != parent {
        return Err(io::Error::from_raw_os_error(libc::ESRCH));
    }
    SigSet::empty().thread_set_mask()?;
    Ok(())
}

/// Makes the child leave this process's group, with no signal blocked, and die with this process:
/// SIGKILL to it when its parent ends, however that happens (prctl(2) `PR_SET_PDEATHSIG`,
/// procctl(2) `PROC_PDEATHSIG_CTL`).
pub(super) fn leave_group_and_die_with_parent(command: &mut Command, session: Session) {
    let parent = nix::unistd::getpid();
    let prepare = move || {
        session.leave_group()?;
        end_with(parent)
    };
    // SAFETY: the closure runs between fork and exec and only makes system calls; it allocates
    // nothing and takes no lock, and the process that forks has a single thread.
    unsafe { command.pre_exec(prepare) };
}

/// Makes the child lead its own session, without a terminal, and give up root whole: groups, group
/// ids, user ids, each verified from the kernel, before it executes anything. It dies with this
/// process.
pub(super) fn become_user_in_own_session(command: &mut Command, identity: ProcessIdentity) {
    use nix::unistd::{getgroups, getresgid, getresuid, getuid, setgroups, setresgid, setresuid};
    let parent = nix::unistd::getpid();
    let prepare = move || {
        let (uid, gid) = (identity.uid, identity.gid);
        nix::unistd::setsid()?;
        setgroups(&identity.groups)?;
        setresgid(gid, gid, gid)?;
        setresuid(uid, uid, uid)?;
        let (users, groups) = (getresuid()?, getresgid()?);
        let whole = [users.real, users.effective, users.saved]
            .iter()
            .all(|id| *id == uid)
            && [groups.real, groups.effective, groups.saved]
                .iter()
                .all(|id| *id == gid)
            && getgroups()?
                .iter()
                .all(|group| identity.groups.contains(group))
            && !getuid().is_root()
            && setresuid(nix::unistd::ROOT, nix::unistd::ROOT, nix::unistd::ROOT).is_err();
        if !whole {
            return Err(io::Error::from_raw_os_error(libc::EPERM));
        }
        end_with(parent)
    };
    // SAFETY: the closure runs between fork and exec in a process that had one thread when it
    // forked, so that no lock can be held by another, the allocator's included; it makes system
    // calls and compares numbers.
    unsafe { command.pre_exec(prepare) };
}

#[cfg(target_os = "linux")]
mod platform {
    use nix::sys::prctl;
    use nix::sys::signal::Signal;
    use std::io;
    use std::os::fd::{AsRawFd as _, FromRawFd as _, OwnedFd};

    pub(super) fn die_with_parent() -> io::Result<()> {
        Ok(prctl::set_pdeathsig(Signal::SIGKILL)?)
    }

    /// From here on neither this process nor what it starts gains privileges by execve(2)
    /// (`PR_SET_NO_NEW_PRIVS`).
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn no_new_privileges() -> io::Result<()> {
        Ok(prctl::set_no_new_privs()?)
    }

    /// True if this process can still gain privileges by executing a setuid program.
    ///
    /// # Errors
    /// The kernel refused to say.
    pub(crate) fn can_gain_privileges() -> io::Result<bool> {
        Ok(!prctl::get_no_new_privs()?)
    }

    /// Nobody of the same user may trace this process, read its memory, or get a core dump of it
    /// (`PR_SET_DUMPABLE` 0). Not inherited through execve(2).
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn not_traceable() -> io::Result<()> {
        Ok(prctl::set_dumpable(false)?)
    }

    /// Descendants that lose their parent become children of this process
    /// (`PR_SET_CHILD_SUBREAPER`).
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn become_reaper() -> io::Result<()> {
        Ok(prctl::set_child_subreaper(true)?)
    }

    /// A handle on a process that stays with it when its number is given to another (pidfd_open(2),
    /// Linux 5.3).
    ///
    /// # Errors
    /// There is no such process.
    pub(crate) fn process_handle(pid: i32) -> io::Result<OwnedFd> {
        // SAFETY: plain system call on numbers; on success the kernel returns a new descriptor that
        // nobody else owns.
        unsafe {
            let fd = libc::syscall(libc::SYS_pidfd_open, pid, 0);
            if fd < 0 {
                Err(io::Error::last_os_error())
            } else {
                Ok(OwnedFd::from_raw_fd(fd as libc::c_int))
            }
        }
    }

    /// Sends a signal to the process behind `handle` (pidfd_send_signal(2)).
    ///
    /// # Errors
    /// It has ended, or is not ours to signal.
    pub(crate) fn signal_by_handle(handle: &OwnedFd, signal: Signal) -> io::Result<()> {
        let no_info = std::ptr::null::<libc::siginfo_t>();
        // SAFETY: the descriptor is open for the whole call, and a null siginfo asks the kernel to
        // fill one in.
        let done = unsafe {
            libc::syscall(
                libc::SYS_pidfd_send_signal,
                handle.as_raw_fd(),
                signal as libc::c_int,
                no_info,
                0,
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }
}

#[cfg(target_os = "freebsd")]
mod platform {
    use nix::sys::signal::Signal;
    use std::io;

    /// `struct procctl_reaper_kill` of sys/procctl.h.
    #[repr(C)]
    #[derive(Default)]
    struct ProcctlReaperKill {
        signal: libc::c_int,
        flags: libc::c_uint,
        subtree: libc::pid_t,
        killed: libc::c_uint,
        first_failed: libc::pid_t,
        pad: [libc::c_uint; 15],
    }

    /// procctl(2) on the calling process.
    fn control<T>(command: libc::c_int, data: *mut T) -> io::Result<()> {
        // SAFETY: each caller passes the type that procctl(2) names for its command, or null where
        // it names none, and the pointer is valid for the call.
        let done = unsafe {
            libc::procctl(
                libc::P_PID,
                libc::id_t::from(std::process::id()),
                command,
                data.cast(),
            )
        };
        if done == 0 {
            Ok(())
        } else {
            Err(io::Error::last_os_error())
        }
    }

    pub(super) fn die_with_parent() -> io::Result<()> {
        let mut signal: libc::c_int = libc::SIGKILL;
        control(libc::PROC_PDEATHSIG_CTL, &raw mut signal)
    }

    /// From here on neither this process nor what it starts gains privileges by execve(2)
    /// (`PROC_NO_NEW_PRIVS_CTL`). It does not stop mdo(1), which needs no such privilege.
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn no_new_privileges() -> io::Result<()> {
        let mut on: libc::c_int = libc::PROC_NO_NEW_PRIVS_ENABLE;
        control(libc::PROC_NO_NEW_PRIVS_CTL, &raw mut on)
    }

    /// True if this process can still gain privileges by executing a setuid program.
    ///
    /// # Errors
    /// The kernel refused to say.
    pub(crate) fn can_gain_privileges() -> io::Result<bool> {
        let mut status: libc::c_int = 0;
        control(libc::PROC_NO_NEW_PRIVS_STATUS, &raw mut status)?;
        Ok(status != libc::PROC_NO_NEW_PRIVS_ENABLE)
    }

    /// Nobody of the same user may trace this process, read its memory, or get a core dump of it
    /// (`PROC_TRACE_CTL_DISABLE`). Not inherited through execve(2).
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn not_traceable() -> io::Result<()> {
        let mut off: libc::c_int = libc::PROC_TRACE_CTL_DISABLE;
        control(libc::PROC_TRACE_CTL, &raw mut off)
    }

    /// Descendants that lose their parent become children of this process (`PROC_REAP_ACQUIRE`).
    ///
    /// # Errors
    /// The kernel refused.
    pub(crate) fn become_reaper() -> io::Result<()> {
        control::<libc::c_void>(libc::PROC_REAP_ACQUIRE, std::ptr::null_mut())
    }

    /// A process and its parent.
    #[derive(Debug, Clone, Copy)]
    pub(crate) struct Relation {
        /// Its id.
        pub pid: i32,
        /// Its parent's.
        pub parent: i32,
        /// Its real user id.
        pub uid: u32,
        /// True if it has ended and was not waited for.
        pub is_zombie: bool,
    }

    /// Every process that this user may see (sysctl(3) `kern.proc.proc`).
    ///
    /// # Errors
    /// The kernel refused, or its processes do not look as this program was built to know them.
    pub(crate) fn relations() -> io::Result<Vec<Relation>> {
        /// `KERN_PROC_PROC` of sys/sysctl.h, and `SZOMB` of sys/proc.h.
        const PROCESSES: libc::c_int = 8;
        const ZOMBIE: libc::c_char = 5;
        let name = [libc::CTL_KERN, libc::KERN_PROC, PROCESSES];
        let stride = size_of::<libc::kinfo_proc>();
        let mut room = 1 << 18;
        let mut buffer: Vec<u8> = Vec::new();
        let size = loop {
            buffer.resize(room, 0);
            let mut size = buffer.len();
            // SAFETY: name and buffer live through the call, and their lengths are passed with
            // them.
            let done = unsafe {
                libc::sysctl(
                    name.as_ptr(),
                    name.len() as libc::c_uint,
                    buffer.as_mut_ptr().cast(),
                    &mut size,
                    std::ptr::null(),
                    0,
                )
            };
            let error = io::Error::last_os_error();
            match (done, error.raw_os_error()) {
                (0, _) => break size,
                (_, Some(libc::ENOMEM)) if room < 1 << 28 => room *= 2,
                _ => return Err(error),
            }
        };
        let mut found = Vec::new();
        for bytes in buffer[..size.min(buffer.len())].chunks_exact(stride) {
            // SAFETY: kinfo_proc is plain data, and the slice is as long as one; it may lie at any
            // address.
            let process: libc::kinfo_proc =
                unsafe { std::ptr::read_unaligned(bytes.as_ptr().cast()) };
            if process.ki_structsize as usize != stride {
                return Err(io::Error::other(
                    "processes of another size than this program knows",
                ));
            }
            found.push(Relation {
                pid: process.ki_pid,
                parent: process.ki_ppid,
                uid: process.ki_ruid,
                is_zombie: process.ki_stat == ZOMBIE,
            });
        }
        Ok(found)
    }

    /// Sends a signal to every descendant of this reaper (`PROC_REAP_KILL`).
    ///
    /// # Errors
    /// A descendant could not be signalled. None left is no error.
    pub(crate) fn signal_all_reaped(signal: Signal) -> io::Result<()> {
        let mut request = ProcctlReaperKill {
            signal: signal as libc::c_int,
            ..ProcctlReaperKill::default()
        };
        match control(libc::PROC_REAP_KILL, &raw mut request) {
            Err(error) if error.raw_os_error() == Some(libc::ESRCH) => Ok(()),
            other => other,
        }
    }
}

use platform::die_with_parent;
pub(super) use platform::*;
