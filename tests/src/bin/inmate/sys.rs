//! System calls of the inmate.

#![allow(
    unsafe_code,
    reason = "a hostile server tries what no safe library offers"
)]

use std::fs::File;
use std::os::fd::AsRawFd;

#[cfg(target_os = "freebsd")]
pub(crate) mod fill;
#[cfg(target_os = "linux")]
mod linux_ways;
pub(crate) mod ways;

/// Ends this process by the signal of this number.
pub(crate) fn raise(number: i32) {
    // SAFETY: touches no memory.
    unsafe { libc::raise(number) };
}

/// Blocks every signal that can be blocked.
pub(crate) fn block_signals() {
    // SAFETY: the set is initialised by sigfillset(3) before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Waits for nothing.
pub(crate) fn wait_forever() -> ! {
    loop {
        // SAFETY: touches no memory.
        unsafe { libc::pause() };
    }
}

/// Sends SIGKILL to every process that this one may signal.
pub(crate) fn kill_all() {
    kill(-1);
}

/// Sends SIGKILL; whether there was somebody to get it.
pub(crate) fn kill(pid: i32) -> bool {
    // SAFETY: touches no memory.
    unsafe { libc::kill(pid, libc::SIGKILL) == 0 }
}

/// Attaches to a process as a debugger does.
#[cfg(target_os = "linux")]
pub(crate) fn trace(pid: i32) -> bool {
    // SAFETY: this request takes neither an address nor data.
    unsafe { libc::ptrace(libc::PTRACE_ATTACH, pid, 0, 0) == 0 }
}

/// Whether a descriptor is a pipe.
pub(crate) fn is_pipe(fd: i32) -> bool {
    // SAFETY: an all-zero stat is valid, and the call writes no more than one.
    unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        libc::fstat(fd, &mut stat) == 0 && stat.st_mode & libc::S_IFMT == libc::S_IFIFO
    }
}

/// The user whose rights this process has.
pub(crate) fn effective_uid() -> u32 {
    // SAFETY: touches no memory.
    unsafe { libc::geteuid() }
}

/// Begins a session.
pub(crate) fn setsid() {
    // SAFETY: touches no memory.
    unsafe { libc::setsid() };
}

/// The last signal that is looked at; those of real time on Linux are partly its C library's.
const LAST_SIGNAL: i32 = if cfg!(target_os = "freebsd") { 126 } else { 31 };

/// The limits of getrlimit(2) in the order of their numbers.
#[cfg(target_os = "freebsd")]
const LIMITS: &[&str] = &[
    "cpu", "fsize", "data", "stack", "core", "rss", "memlock", "nproc", "nofile", "sbsize", "as",
    "npts", "swap", "kqueues", "umtx", "pipebuf",
];
#[cfg(target_os = "linux")]
const LIMITS: &[&str] = &[
    "cpu",
    "fsize",
    "data",
    "stack",
    "core",
    "rss",
    "nproc",
    "nofile",
    "memlock",
    "as",
    "locks",
    "sigpending",
    "msgqueue",
    "nice",
    "rtprio",
    "rttime",
];

/// Ids, descriptors, limits, masks: one fact a line.
pub(crate) fn facts() -> Vec<String> {
    let mut lines = Vec::new();
    // SAFETY: every pointer is to a live object of the type that the call wants; descriptors are
    // only asked about.
    unsafe {
        lines.push(format!("uid {} {}", libc::getuid(), libc::geteuid()));
        lines.push(format!("gid {} {}", libc::getgid(), libc::getegid()));
        lines.push(format!(
            "groups {}",
            libc::getgroups(0, std::ptr::null_mut())
        ));
        let open: Vec<String> = (0..70_000)
            .filter(|fd| libc::fcntl(*fd, libc::F_GETFD) != -1)
            .map(|fd: i32| fd.to_string())
            .collect();
        lines.push(format!("fds {}", open.join(" ")));
        // Until the kernel knows no more of them: one that is younger than the list of names is
        // shown by its number.
        for which in 0.. {
            let mut limit: libc::rlimit = std::mem::zeroed();
            if libc::getrlimit(which as _, &mut limit) != 0 {
                break;
            }
            let shown = |n: libc::rlim_t| {
                if n == libc::RLIM_INFINITY {
                    "infinity".to_owned()
                } else {
                    n.to_string()
                }
            };
            let name = LIMITS
                .get(which as usize)
                .map_or(which.to_string(), |name| (*name).to_owned());
            lines.push(format!(
                "limit {name} {} {}",
                shown(limit.rlim_cur),
                shown(limit.rlim_max)
            ));
        }
        let mask = libc::umask(0);
        libc::umask(mask);
        lines.push(format!("umask {mask:o}"));
        let mut set = std::mem::zeroed();
        libc::sigprocmask(libc::SIG_BLOCK, std::ptr::null(), &mut set);
        let blocked = (1..=LAST_SIGNAL)
            .filter(|n| libc::sigismember(&set, *n) == 1)
            .count();
        lines.push(format!("blocked {blocked}"));
        let ignored = (1..=LAST_SIGNAL).filter(|n| {
            let mut action: libc::sigaction = std::mem::zeroed();
            // SIGPIPE is the Rust runtime's own doing.
            *n != libc::SIGPIPE
                && libc::sigaction(*n, std::ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        });
        lines.push(format!("ignored {}", ignored.count()));
        let mut timer: libc::itimerval = std::mem::zeroed();
        libc::getitimer(libc::ITIMER_REAL, &mut timer);
        lines.push(format!(
            "timer {} {}",
            timer.it_value.tv_sec, timer.it_value.tv_usec
        ));
        lines.push(format!("leader {}", libc::getsid(0) == libc::getpid()));
        lines.push(format!("nice {}", libc::getpriority(libc::PRIO_PROCESS, 0)));
    }
    #[cfg(target_os = "freebsd")]
    lines.extend(freebsd::facts());
    lines
}

/// Takes on what a program started from here would inherit: no signal comes through and those that
/// can be are ignored, with a SIGTERM pending, and a timer that raises SIGALRM every millisecond;
/// no permission for what it makes, no file may grow, less of the processors; /var/tmp, and a
/// descriptor of it.
pub(crate) fn burden() {
    // SAFETY: the set is initialised by sigfillset(3) before it is used; SIG_IGN is no handler; the
    // path is a C string.
    unsafe {
        for signal in (1..=LAST_SIGNAL).filter(|signal| *signal != libc::SIGTERM) {
            libc::signal(signal, libc::SIG_IGN);
        }
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
        libc::raise(libc::SIGTERM);
        libc::umask(0o777);
        libc::setpriority(libc::PRIO_PROCESS, 0, 5);
        for (which, most) in [
            (libc::RLIMIT_FSIZE, 0),
            (libc::RLIMIT_CPU, 600),
            (libc::RLIMIT_NOFILE, 20),
        ] {
            let limit = libc::rlimit {
                rlim_cur: most,
                rlim_max: most,
            };
            libc::setrlimit(which, &limit);
        }
        libc::chdir(c"/var/tmp".as_ptr());
        libc::open(c".".as_ptr(), libc::O_RDONLY);
    }
    set_timer(std::time::Duration::from_millis(1));
}

/// What only root may, tried.
pub(crate) fn attacks() -> Vec<(&'static str, bool)> {
    // SAFETY: constant strings with their NUL; no other pointers.
    unsafe {
        vec![
            ("setuid(0)", libc::setuid(0) == 0),
            ("setgid(0)", libc::setgid(0) == 0),
            ("setgroups", libc::setgroups(0, std::ptr::null()) == 0),
            ("chroot", libc::chroot(c"/tmp".as_ptr()) == 0),
            (
                "mknod",
                libc::mknod(c"/tmp/node".as_ptr(), libc::S_IFCHR | 0o666, 0x101) == 0,
            ),
            ("raise a limit", {
                let most = libc::rlimit {
                    rlim_cur: 1 << 20,
                    rlim_max: 1 << 20,
                };
                libc::setrlimit(libc::RLIMIT_NPROC, &most) == 0
            }),
            ("signal init", libc::kill(1, libc::SIGKILL) == 0),
            ("leave by an open directory", {
                let top = File::open("/");
                top.is_ok_and(|top| {
                    libc::fchdir(top.as_raw_fd());
                    libc::access(c"../../../../usr/local/etc/colibri".as_ptr(), libc::F_OK) == 0
                })
            }),
        ]
    }
}

/// Sets a timer of the real clock that raises SIGALRM again and again, and which outlives
/// execve(2).
pub(crate) fn set_timer(every: std::time::Duration) {
    let every = libc::timeval {
        tv_sec: every.as_secs() as i64,
        tv_usec: i64::from(every.subsec_micros()),
    };
    let timer = libc::itimerval {
        it_interval: every,
        it_value: every,
    };
    // SAFETY: an initialised timer, and no room for the old one.
    let done = unsafe { libc::setitimer(libc::ITIMER_REAL as _, &timer, std::ptr::null_mut()) };
    assert_eq!(done, 0);
}

/// What only FreeBSD has.
#[cfg(target_os = "freebsd")]
pub(crate) mod freebsd {
    use std::ffi::{CStr, CString, c_char, c_int, c_void};
    use std::os::fd::{FromRawFd, OwnedFd};

    unsafe extern "C" {
        fn setloginclass(class: *const c_char) -> c_int;
        fn getloginclass(class: *mut c_char, size: usize) -> c_int;
        fn vfork() -> libc::pid_t;
    }

    /// procctl(2) on this process, which takes or gives a number.
    fn procctl(command: c_int, number: &mut c_int) {
        let number = std::ptr::from_mut(number).cast::<c_void>();
        // SAFETY: the commands that are used here take a pointer to a number.
        let done =
            unsafe { libc::procctl(libc::P_PID, std::process::id().into(), command, number) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// What procctl(2) tells of this process, and its login class: one fact a line.
    pub(crate) fn facts() -> Vec<String> {
        let ask = |command| {
            let mut number = 0;
            procctl(command, &mut number);
            number
        };
        let mut class = [0; 64];
        // SAFETY: room, and its size; the kernel ends the name with a NUL.
        let class = unsafe {
            getloginclass(class.as_mut_ptr(), class.len());
            CStr::from_ptr(class.as_ptr())
        };
        vec![
            format!("no_new_privs {}", ask(libc::PROC_NO_NEW_PRIVS_STATUS)),
            format!("traceable {}", ask(libc::PROC_TRACE_STATUS)),
            format!("death signal {}", ask(libc::PROC_PDEATHSIG_STATUS)),
            format!("class {}", class.to_string_lossy()),
        ]
    }

    /// Asks for SIGKILL at the parent's end.
    pub(crate) fn die_with_parent() {
        let mut signal = libc::SIGKILL;
        procctl(libc::PROC_PDEATHSIG_CTL, &mut signal);
    }

    /// Puts this process into a login class.
    pub(crate) fn set_class(class: &str) {
        let class = CString::new(class).unwrap();
        // SAFETY: a C string that lives through the call.
        let done = unsafe { setloginclass(class.as_ptr()) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    /// Takes the marks of a session's processes, and waits in vfork(2), where no signal ends a
    /// process, for a child without them that never ends.
    pub(crate) fn outlive_kill(session: &str) -> ! {
        let login = CString::new(session).unwrap();
        // SAFETY: a C string that lives through the call.
        let done = unsafe {
            libc::setsid();
            libc::setlogin(login.as_ptr())
        };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
        set_class(&format!("colibri-{}", &session[..9]));
        // SAFETY: the child, which has this memory and stack to itself as long as it lives, makes
        // system calls alone.
        unsafe {
            if vfork() == 0 {
                setloginclass(c"default".as_ptr());
                loop {
                    libc::pause();
                }
            }
            libc::_exit(0)
        }
    }

    /// pdfork(2): a child that is killed when its descriptor is closed. `None` in the child.
    pub(crate) fn fork_with_descriptor() -> Option<OwnedFd> {
        let mut fd = -1;
        // SAFETY: one thread; the kernel writes the descriptor, which is then owned here alone.
        unsafe {
            let pid = libc::pdfork(&mut fd, 0);
            assert!(pid >= 0, "{}", std::io::Error::last_os_error());
            (pid > 0).then(|| OwnedFd::from_raw_fd(fd))
        }
    }

    /// The number that a process was last given (sysctl kern.lastpid).
    pub(crate) fn last_pid() -> i32 {
        let mut pid: libc::c_int = 0;
        let mut size = size_of_val(&pid);
        // SAFETY: room for the number, and its size.
        let done = unsafe {
            libc::sysctlbyname(
                c"kern.lastpid".as_ptr(),
                (&raw mut pid).cast(),
                &mut size,
                std::ptr::null(),
                0,
            )
        };
        assert_eq!(done, 0);
        pid
    }

    /// The program of a process (sysctl kern.proc.pathname), if it may be known.
    fn program(pid: i32) -> String {
        let name = [
            libc::CTL_KERN,
            libc::KERN_PROC,
            libc::KERN_PROC_PATHNAME,
            pid,
        ];
        let mut path = [0u8; 1024];
        let mut size = path.len();
        // SAFETY: four numbers, room for the path, and its size.
        let done = unsafe {
            libc::sysctl(
                name.as_ptr(),
                4,
                path.as_mut_ptr().cast(),
                &mut size,
                std::ptr::null(),
                0,
            )
        };
        let path = &path[..if done == 0 { size.saturating_sub(1) } else { 0 }];
        String::from_utf8_lossy(path).into_owned()
    }

    /// What came of trying to trace a process.
    pub(crate) enum Traced {
        /// It is not there, or not to be seen from here.
        Nobody,
        /// It is there, and the kernel refused.
        Refused,
        /// It was traced, while it ran this program.
        Attached(String),
    }

    /// Tries to trace a process (ptrace(2)), and lets go of it again.
    pub(crate) fn trace(pid: i32) -> Traced {
        // SAFETY: PT_ATTACH, PT_DETACH and waitpid(2) with a null status touch no memory of ours.
        unsafe {
            if libc::ptrace(libc::PT_ATTACH, pid, std::ptr::null_mut(), 0) == -1 {
                let error = std::io::Error::last_os_error().raw_os_error();
                return if error == Some(libc::ESRCH) {
                    Traced::Nobody
                } else {
                    Traced::Refused
                };
            }
            libc::waitpid(pid, std::ptr::null_mut(), 0);
            let program = program(pid);
            libc::ptrace(libc::PT_DETACH, pid, std::ptr::without_provenance_mut(1), 0);
            Traced::Attached(program)
        }
    }
}
