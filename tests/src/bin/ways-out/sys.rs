//! The ways out of the sandbox, each a system call.

#![allow(
    unsafe_code,
    reason = "it tries system calls that the sandbox must refuse"
)]
#![allow(unused_unsafe, reason = "some ways are functions of this file")]

use std::mem::zeroed;
use std::ptr::{null, null_mut};

use libc::{c_int, c_long};

/// A way by its name; a result below 0 is an error.
type Way = (&'static str, fn() -> c_long);

macro_rules! ways {
    ($($(#[$of:meta])* $name:literal: $call:expr;)*) => {
        /// All ways of this system.
        pub(crate) static WAYS: &[Way] = &[$($(#[$of])* ($name, || {
            // SAFETY: the arguments are numbers, literals and values that live until the call
            // returns; a memory that is mapped is never used.
            unsafe { ($call) as c_long }
        })),*];
    };
}

ways! {
    "read a file": libc::open(c"/etc/passwd".as_ptr(), libc::O_RDONLY);
    "create a file": libc::open(c"/tmp/ways-out".as_ptr(), libc::O_CREAT | libc::O_WRONLY, 0o600);
    "open a directory": libc::open(c"/".as_ptr(), libc::O_RDONLY | libc::O_DIRECTORY);
    "look at a file": { let mut found = zeroed(); libc::stat(c"/etc/passwd".as_ptr(), &raw mut found) };
    "remove a file": libc::unlink(c"/tmp/ways-out-is-not-there".as_ptr());
    "make a directory": { libc::rmdir(c"/tmp/ways-out-directory".as_ptr()); libc::mkdir(c"/tmp/ways-out-directory".as_ptr(), 0o700) };
    "change directory": libc::chdir(c"/".as_ptr());
    "an internet socket": libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
    "a datagram socket": libc::socket(libc::AF_INET6, libc::SOCK_DGRAM, 0);
    "a local socket": libc::socket(libc::AF_UNIX, libc::SOCK_STREAM, 0);
    "a pair of sockets": { let mut pair = [0; 2]; libc::socketpair(libc::AF_UNIX, libc::SOCK_STREAM, 0, pair.as_mut_ptr()) };
    "connect": connect_to_loopback();
    "a new process": ended_child(libc::fork());
    "another program": run_true();
    "a signal to the parent": libc::kill(libc::getppid(), 0);
    "a signal to all": libc::kill(-1, 0);
    "a new pipe": { let mut pipe = [0; 2]; libc::pipe(pipe.as_mut_ptr()) };
    "a copy of a descriptor": libc::dup(0);
    "write the input": libc::write(0, c"x".as_ptr().cast(), 1);
    "read the output": libc::read(1, null_mut(), 0);
    "an inherited descriptor": libc::write(7, c"x".as_ptr().cast(), 1);
    "another user": libc::setuid(libc::getuid());
    "shared memory": removed(libc::shmget(libc::IPC_PRIVATE, 4096, libc::IPC_CREAT | 0o600));
    "more processor time": { let most = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY }; libc::setrlimit(libc::RLIMIT_CPU, &raw const most) };
    "three gigabytes": match libc::mmap(null_mut(), 3 << 30, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0) { libc::MAP_FAILED => -1, _ => 0 };
    "a session": libc::setsid();
    "a name of the machine": { let mut name = [0_u8; 64]; libc::gethostname(name.as_mut_ptr().cast(), 64) };
    #[cfg(target_os = "linux")]
    "executable memory": match libc::mmap(null_mut(), 4096, libc::PROT_READ | libc::PROT_EXEC, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0) { libc::MAP_FAILED => -1, _ => 0 };
    #[cfg(target_os = "linux")]
    "shared mapping": match libc::mmap(null_mut(), 4096, libc::PROT_READ, libc::MAP_SHARED | libc::MAP_ANON, -1, 0) { libc::MAP_FAILED => -1, _ => 0 };
    #[cfg(target_os = "linux")]
    "memory made executable": { let page = libc::mmap(null_mut(), 4096, libc::PROT_READ, libc::MAP_PRIVATE | libc::MAP_ANON, -1, 0); libc::mprotect(page, 4096, libc::PROT_EXEC) };
    #[cfg(target_os = "linux")]
    "trace the parent": libc::ptrace(libc::PTRACE_SEIZE, libc::getppid(), null_mut::<u8>(), null_mut::<u8>());
    #[cfg(target_os = "linux")]
    "the parent's memory": { let mut byte = 0_u8; let mine = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 }; libc::process_vm_readv(libc::getppid(), &raw const mine, 1, &raw const mine, 1, 0) };
    #[cfg(target_os = "linux")]
    "a file in memory": libc::syscall(libc::SYS_memfd_create, c"x".as_ptr(), 0);
    #[cfg(target_os = "linux")]
    "io_uring": { let mut parameters = [0_u8; 120]; libc::syscall(libc::SYS_io_uring_setup, 1, parameters.as_mut_ptr()) };
    #[cfg(target_os = "linux")]
    "another namespace": libc::unshare(libc::CLONE_NEWUSER);
    #[cfg(target_os = "linux")]
    "a thread": libc::syscall(libc::SYS_clone, libc::CLONE_VM | libc::CLONE_THREAD, 0);
    #[cfg(target_os = "linux")]
    "a filter in the kernel": libc::syscall(libc::SYS_bpf, 0, null::<u8>(), 0);
    #[cfg(target_os = "linux")]
    "a key": libc::syscall(libc::SYS_keyctl, 0, -3, 0);
    #[cfg(target_os = "linux")]
    "a new mount": mount_of_no_kind();
    #[cfg(target_os = "linux")]
    "a fault handler": libc::syscall(libc::SYS_userfaultfd, 1);
    #[cfg(target_os = "linux")]
    "a watch of files": libc::inotify_init1(0);
    #[cfg(target_os = "linux")]
    "another handler of signals": libc::sigaction(libc::SIGUSR1, null(), null_mut());
    #[cfg(target_os = "linux")]
    "new privileges": match libc::prctl(libc::PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) { 0 => 0, _ => -1 };
    #[cfg(target_os = "linux")]
    "a dump of its memory": match libc::prctl(libc::PR_GET_DUMPABLE, 0, 0, 0, 0) { 1 => 0, _ => -1 };
    #[cfg(target_os = "linux")]
    "a tty's input": libc::ioctl(0, libc::TIOCSTI, c"x".as_ptr());
    #[cfg(target_os = "freebsd")]
    "a new process by descriptor": { let mut descriptor = 0; ended_child(libc::pdfork(&raw mut descriptor, 0)) };
    #[cfg(target_os = "freebsd")]
    "an anonymous shared memory": libc::shm_open(libc::SHM_ANON, libc::O_RDWR, 0o600);
    #[cfg(target_os = "freebsd")]
    "a queue of events": libc::kqueue();
    #[cfg(target_os = "freebsd")]
    "trace the parent": libc::ptrace(libc::PT_ATTACH, libc::getppid(), null_mut(), 0);
    #[cfg(target_os = "freebsd")]
    "a setting of the kernel": { let mut length = 0; libc::sysctlbyname(c"kern.hostname".as_ptr(), null_mut(), &raw mut length, c"x".as_ptr().cast(), 1) };
    #[cfg(target_os = "freebsd")]
    "a jail": libc::jail_attach(1);
    "a dump to a file": unbounded(libc::RLIMIT_CORE as c_int, 0);
    "processor time without end": unbounded(libc::RLIMIT_CPU as c_int, 11);
    "longer files": unbounded(libc::RLIMIT_FSIZE as c_int, 0);
    "locked memory": unbounded(libc::RLIMIT_MEMLOCK as c_int, 0);
    "more processes": unbounded(libc::RLIMIT_NPROC as c_int, if cfg!(target_os = "freebsd") { 1 } else { 0 });
    "more descriptors": unbounded(libc::RLIMIT_NOFILE as c_int, 3);
    "the first place in line": match libc::getpriority(libc::PRIO_PROCESS, 0) { 10.. => -1, _ => 0 };
}

/// 0 if a limit of this process is more than `most`.
fn unbounded(resource: c_int, most: libc::rlim_t) -> c_int {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the call writes two numbers, which live until it returns.
    match unsafe { libc::getrlimit(resource as _, &raw mut limit) } {
        0 if limit.rlim_max > most => 0,
        _ => -1,
    }
}

/// A process that was made ends at once; its parent goes on.
fn ended_child(process: libc::pid_t) -> c_int {
    if process == 0 {
        write_and_end(b"");
    }
    process
}

/// Removes shared memory that was made, which would outlast the process.
fn removed(memory: c_int) -> c_int {
    if memory >= 0 {
        // SAFETY: takes numbers, and reads nothing at a null pointer for this command.
        unsafe { libc::shmctl(memory, libc::IPC_RMID, null_mut()) };
    }
    memory
}

/// Runs true(1) in place of this program: `open` is what it would have said.
fn run_true() -> c_int {
    let arguments = [
        c"sh".as_ptr(),
        c"-c".as_ptr(),
        c"echo open".as_ptr(),
        null(),
    ];
    // SAFETY: literals, and a list of them that ends with a null.
    unsafe { libc::execv(c"/bin/sh".as_ptr(), arguments.as_ptr()) }
}

/// Connects to a port of the loopback address on which nobody listens: refused is as good as open.
fn connect_to_loopback() -> c_int {
    // SAFETY: an address that lives until the calls return, of the family that it is given as.
    unsafe {
        let socket = libc::socket(libc::AF_INET, libc::SOCK_STREAM, 0);
        let mut address: libc::sockaddr_in = zeroed();
        address.sin_family = libc::AF_INET as libc::sa_family_t;
        address.sin_port = 9_u16.to_be();
        address.sin_addr.s_addr = u32::from_ne_bytes([127, 0, 0, 1]);
        let length = size_of::<libc::sockaddr_in>() as libc::socklen_t;
        match libc::connect(socket, (&raw const address).cast(), length) {
            -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::ECONNREFUSED) => 0,
            done => done,
        }
    }
}

/// Mounts a file system of a kind that there is not, since root may do it: that it is not known is
/// as good as open.
#[cfg(target_os = "linux")]
fn mount_of_no_kind() -> c_int {
    // SAFETY: literals and a null pointer.
    match unsafe {
        libc::mount(
            c"none".as_ptr(),
            c"/tmp".as_ptr(),
            c"no-such-kind".as_ptr(),
            0,
            null(),
        )
    } {
        -1 if std::io::Error::last_os_error().raw_os_error() == Some(libc::ENODEV) => 0,
        done => done,
    }
}

/// Writes to standard output and ends the process, with nothing but these two system calls.
pub(crate) fn write_and_end(text: &[u8]) -> ! {
    // SAFETY: the bytes live until write(2) returns; `_exit(2)` takes a number.
    unsafe {
        libc::write(1, text.as_ptr().cast(), text.len());
        libc::_exit(0)
    }
}
