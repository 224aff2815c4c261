//! What a hostile caller sets before execve(2): system calls of the tests.

#![allow(unsafe_code, reason = "hostile callers do what no safe library offers")]

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
pub fn limit(which: std::ffi::c_uint, most: u64) {
    let limit = libc::rlimit {
        rlim_cur: most,
        rlim_max: most,
    };
    // SAFETY: a live rlimit.
    unsafe { libc::setrlimit(which as _, &limit) };
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
pub fn timer(which: std::ffi::c_int, micros: i64) {
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

/// Executes `path` with exactly these arguments, none at all included; returns if the system
/// refuses.
pub fn execute_bare(path: &'static std::ffi::CStr, first: Option<&'static std::ffi::CStr>) {
    let args = [
        first.map_or(std::ptr::null(), |arg| arg.as_ptr()),
        std::ptr::null(),
    ];
    let environment = [c"NOEQUALS".as_ptr(), c"=x".as_ptr(), std::ptr::null()];
    // SAFETY: both lists end with a null pointer and hold constant strings.
    unsafe { libc::execve(path.as_ptr(), args.as_ptr(), environment.as_ptr()) };
}

/// Queues a real-time signal for this process, blocked, so that it stays pending over execve(2).
pub fn pend_realtime() {
    signals(true, false);
    // SAFETY: touches no memory.
    unsafe { libc::raise(libc::SIGRTMIN() + 3) };
}

/// Becomes as unimportant as an ordinary user can: nice 15, the batch class, one processor.
pub fn become_unimportant() {
    // SAFETY: live structures of the sizes that are passed.
    unsafe {
        libc::setpriority(libc::PRIO_PROCESS, 0, 15);
        let nothing: libc::sched_param = std::mem::zeroed();
        libc::sched_setscheduler(0, libc::SCHED_BATCH, &nothing);
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(0, &mut one);
        libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &one);
    }
}

/// Gives a file an access control list that says more than its mode: `uid` may read and, were the
/// mask not there, write. False where the file system has none.
pub fn add_acl(path: &std::ffi::CStr, uid: u32) -> bool {
    // linux/posix_acl_xattr.h: version 2, then tag, permissions and id of each entry.
    let mut list = 2u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in [
        (0x01u16, 6u16, u32::MAX),
        (0x02, 6, uid),
        (0x04, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 4, u32::MAX),
    ] {
        list.extend(tag.to_le_bytes());
        list.extend(permissions.to_le_bytes());
        list.extend(id.to_le_bytes());
    }
    // SAFETY: C strings, and a buffer of the length that is passed.
    let done = unsafe {
        let name = c"system.posix_acl_access";
        libc::setxattr(
            path.as_ptr(),
            name.as_ptr(),
            list.as_ptr().cast(),
            list.len(),
            0,
        )
    };
    done == 0
}

/// Begins a session of keys (keyctl(2)) with one in it, of this name.
pub fn keep_key(name: &std::ffi::CStr) {
    const JOIN: c_int = 1;
    const SESSION: c_int = -3;
    // SAFETY: C strings, one byte with its length, and numbers.
    unsafe {
        libc::syscall(libc::SYS_keyctl, JOIN, 0);
        libc::syscall(
            libc::SYS_add_key,
            c"user".as_ptr(),
            name.as_ptr(),
            c"x".as_ptr(),
            1,
            SESSION,
        );
    }
}

/// A segment of System V shared memory, which goes when it is dropped.
pub struct Segment(c_int);

/// Makes a segment under this key that everybody may use.
pub fn share_memory(key: i32) -> Segment {
    // SAFETY: takes numbers.
    Segment(unsafe { libc::shmget(key, 4096, libc::IPC_CREAT | 0o666) })
}

impl Drop for Segment {
    fn drop(&mut self) {
        // SAFETY: takes numbers, and no structure for this command.
        unsafe { libc::shmctl(self.0, libc::IPC_RMID, std::ptr::null_mut()) };
    }
}
