//! What a hostile caller sets before execve(2): system calls of the tests.

use std::ffi::c_int;
use std::os::unix::process::CommandExt;
use std::process::Command;

/// Runs `prepare` in the child, between fork(2) and execve(2), after its ids are set.
pub fn before_exec(command: &mut Command, prepare: impl Fn() + Send + Sync + 'static) {
    // SAFETY: the closures of these tests make system calls and allocate nothing.
    unsafe {
        command.pre_exec(move || {
            prepare();
            Ok(())
        })
    };
}

/// close(2) on a number.
pub fn close(fd: c_int) {
    // SAFETY: the child closes its own descriptors right before it executes.
    unsafe { libc::close(fd) };
}

/// Opens `path` and puts it at each number in `at`, inherited by the next program.
pub fn leak(path: &'static std::ffi::CStr, at: std::ops::Range<c_int>) {
    // SAFETY: a constant string; dup2 on numbers that this child does not use.
    unsafe {
        let fd = libc::open(path.as_ptr(), libc::O_RDONLY);
        for number in at {
            libc::dup2(fd, number);
        }
    }
}

/// setrlimit(2), soft and hard.
pub fn limit(which: libc::__rlimit_resource_t, most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: a live rlimit.
    unsafe { libc::setrlimit(which, &limit) };
}

/// Blocks or ignores every signal.
pub fn signals(block: bool, ignore: bool) {
    // SAFETY: the set is initialised by sigfillset(3); ignoring installs no handler.
    unsafe {
        if ignore {
            for number in 1..65 {
                libc::signal(number, libc::SIG_IGN);
            }
        }
        if block {
            let mut all = std::mem::zeroed();
            libc::sigfillset(&mut all);
            libc::sigprocmask(libc::SIG_SETMASK, &all, std::ptr::null_mut());
        }
    }
}

/// Sends this process a SIGTERM, which stays pending if it is blocked.
pub fn pend_term() {
    // SAFETY: touches no memory.
    unsafe { libc::raise(libc::SIGTERM) };
}

/// Starts an interval timer of `micros`, repeating.
pub fn timer(which: std::ffi::c_int, micros: libc::suseconds_t) {
    let value = libc::timeval {
        tv_sec: 0,
        tv_usec: micros,
    };
    let timer = libc::itimerval {
        it_interval: value,
        it_value: value,
    };
    // SAFETY: a live itimerval; the old one is not asked for.
    unsafe { libc::setitimer(which, &timer, std::ptr::null_mut()) };
}

/// umask(2).
pub fn umask(mask: libc::mode_t) {
    // SAFETY: touches no memory.
    unsafe { libc::umask(mask) };
}

/// no_new_privs, under which set-user-ID bits have no effect.
pub fn no_new_privs() {
    // SAFETY: this option takes numbers alone.
    unsafe { libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) };
}

/// Sets supplementary groups; needs root, so it is called before the ids are given up.
pub fn groups(list: &[libc::gid_t]) {
    // SAFETY: pointer and length are of one slice.
    unsafe { libc::setgroups(list.len(), list.as_ptr()) };
}

/// Sets all ids: groups, then users.
pub fn become_user(uid: u32, gid: u32) {
    // SAFETY: touches no memory.
    unsafe {
        libc::setresgid(gid, gid, gid);
        libc::setresuid(uid, uid, uid);
    }
}

/// chdir(2).
pub fn chdir(path: &'static std::ffi::CStr) {
    // SAFETY: a constant string.
    unsafe { libc::chdir(path.as_ptr()) };
}

/// rmdir(2).
pub fn rmdir(path: &'static std::ffi::CStr) {
    // SAFETY: a constant string.
    unsafe { libc::rmdir(path.as_ptr()) };
}

/// Executes `path` with exactly these arguments, none at all included; returns if the system refuses.
pub fn execute_bare(path: &'static std::ffi::CStr, first: Option<&'static std::ffi::CStr>) {
    let args = [first.map_or(std::ptr::null(), |arg| arg.as_ptr()), std::ptr::null()];
    let environment = [c"NOEQUALS".as_ptr(), c"=x".as_ptr(), std::ptr::null()];
    // SAFETY: both lists end with a null pointer and hold constant strings.
    unsafe { libc::execve(path.as_ptr(), args.as_ptr(), environment.as_ptr()) };
}
