//! The few system calls that the standard library has no words for.
#![allow(unsafe_code, reason = "each block says why it is sound")]

use std::io;
use std::os::unix::process::CommandExt as _;
use std::process::Command;

/// The effective user of this process.
pub(crate) fn uid() -> u32 {
    // SAFETY: geteuid(2) takes nothing, changes nothing and cannot fail.
    unsafe { libc::geteuid() }
}

/// True if there is a process that this user may signal (kill(2) with signal 0).
pub(crate) fn is_process(pid: u32) -> bool {
    match i32::try_from(pid) {
        // SAFETY: signal 0 sends nothing; a positive number is one process and no group.
        Ok(pid) if pid > 0 => unsafe { libc::kill(pid, 0) == 0 },
        _ => false,
    }
}

/// Has a program start in a session of its own, so that no terminal ends it.
pub(crate) fn detach(command: &mut Command) {
    // SAFETY: between fork(2) and exec(2) only setsid(2) is called, which is async-signal-safe and
    // allocates nothing.
    unsafe {
        command.pre_exec(|| match libc::setsid() {
            -1 => Err(io::Error::last_os_error()),
            _ => Ok(()),
        });
    }
}

/// The value of a variable of sysctl(3).
#[cfg(target_os = "freebsd")]
pub(crate) fn sysctl(name: &std::ffi::CStr, most: usize) -> io::Result<Vec<u8>> {
    use std::ptr::{null, null_mut};
    /// The number of times that it may have grown meanwhile.
    const TRIES: usize = 5;
    for _ in 0..TRIES {
        let mut length = 0;
        // SAFETY: the name ends with NUL; without a buffer the kernel writes the length alone,
        // where it may.
        if unsafe { libc::sysctlbyname(name.as_ptr(), null_mut(), &mut length, null(), 0) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // Connections are made meanwhile.
        let room = length + length / 4 + 4096;
        if room > most {
            return Err(io::Error::other(
                "the system's table is larger than is read",
            ));
        }
        let mut value = vec![0_u8; room];
        let mut length = room;
        // SAFETY: the buffer has as many bytes as `length` says, and lives through the call.
        if unsafe {
            libc::sysctlbyname(
                name.as_ptr(),
                value.as_mut_ptr().cast(),
                &mut length,
                null(),
                0,
            )
        } == 0
        {
            value.truncate(length);
            return Ok(value);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ENOMEM) {
            return Err(error);
        }
    }
    Err(io::Error::other(
        "the system's table grows faster than it is read",
    ))
}
