//! System calls of the inmate.

use std::fs::File;
use std::os::fd::AsRawFd;

/// Ends this process by the signal of this number.
pub fn raise(number: i32) {
    // SAFETY: touches no memory.
    unsafe { libc::raise(number) };
}

/// Blocks every signal that can be blocked.
pub fn block_signals() {
    // SAFETY: the set is initialised by sigfillset(3) before it is used.
    unsafe {
        let mut all = std::mem::zeroed();
        libc::sigfillset(&mut all);
        libc::sigprocmask(libc::SIG_BLOCK, &all, std::ptr::null_mut());
    }
}

/// Waits for nothing.
pub fn wait_forever() -> ! {
    loop {
        // SAFETY: touches no memory.
        unsafe { libc::pause() };
    }
}

/// Begins a session.
pub fn setsid() {
    // SAFETY: touches no memory.
    unsafe { libc::setsid() };
}

/// Ids, descriptors, limits, masks: one fact a line.
pub fn facts() -> Vec<String> {
    let mut lines = Vec::new();
    // SAFETY: every pointer is to a live object of the type that the call wants; descriptors are only asked about.
    unsafe {
        lines.push(format!("uid {} {}", libc::getuid(), libc::geteuid()));
        lines.push(format!("gid {} {}", libc::getgid(), libc::getegid()));
        lines.push(format!("groups {}", libc::getgroups(0, std::ptr::null_mut())));
        let open: Vec<String> = (0..70_000)
            .filter(|fd| libc::fcntl(*fd, libc::F_GETFD) != -1)
            .map(|fd: i32| fd.to_string())
            .collect();
        lines.push(format!("fds {}", open.join(" ")));
        for (name, which) in [
            ("core", libc::RLIMIT_CORE),
            ("cpu", libc::RLIMIT_CPU),
            ("fsize", libc::RLIMIT_FSIZE),
            ("nofile", libc::RLIMIT_NOFILE),
            ("nproc", libc::RLIMIT_NPROC),
            ("as", libc::RLIMIT_AS),
        ] {
            let mut limit: libc::rlimit = std::mem::zeroed();
            libc::getrlimit(which, &mut limit);
            let shown = |n: libc::rlim_t| {
                if n == libc::RLIM_INFINITY {
                    "infinity".to_owned()
                } else {
                    n.to_string()
                }
            };
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
        let blocked = (1..32).filter(|n| libc::sigismember(&set, *n) == 1).count();
        lines.push(format!("blocked {blocked}"));
        let ignored = (1..32).filter(|n| {
            let mut action: libc::sigaction = std::mem::zeroed();
            // SIGPIPE is the Rust runtime's own doing.
            *n != libc::SIGPIPE
                && libc::sigaction(*n, std::ptr::null(), &mut action) == 0
                && action.sa_sigaction == libc::SIG_IGN
        });
        lines.push(format!("ignored {}", ignored.count()));
        let mut timer: libc::itimerval = std::mem::zeroed();
        libc::getitimer(libc::ITIMER_REAL, &mut timer);
        lines.push(format!("timer {} {}", timer.it_value.tv_sec, timer.it_value.tv_usec));
        lines.push(format!("leader {}", libc::getsid(0) == libc::getpid()));
    }
    lines
}

/// What only root may, tried.
pub fn attacks() -> Vec<(&'static str, bool)> {
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
