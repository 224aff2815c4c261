//! The system calls by which the process gives up its rights: the only `unsafe` of this crate.

#![allow(unsafe_code, reason = "system calls that no safe library offers")]

use std::io;
use std::time::Duration;

#[cfg(target_os = "freebsd")]
#[path = "freebsd.rs"]
mod system;
#[cfg(target_os = "linux")]
#[path = "linux.rs"]
mod system;

pub use system::parts;
pub(crate) use system::{DESCRIPTORS, restrict};

/// Closes every descriptor but standard input and output.
///
/// # Errors
/// close_range(2) failed (Linux before 5.9).
pub(crate) fn close_above_output() -> io::Result<()> {
    // SAFETY: a plain system call on numbers; nothing in this process owns a descriptor above 1
    // yet, and nothing writes to standard error afterwards.
    let done = unsafe {
        // Not every C library of Linux has a function for it.
        #[cfg(target_os = "linux")]
        let done = libc::syscall(libc::SYS_close_range, 2, libc::c_uint::MAX, 0);
        #[cfg(not(target_os = "linux"))]
        let done = libc::close_range(2, libc::c_uint::MAX, 0);
        done
    };
    match done {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Ends the process at once (`_exit(2)`).
pub(crate) fn exit(status: u8) -> ! {
    // SAFETY: takes a number and does not return; nothing is buffered that would have to be
    // written.
    unsafe { libc::_exit(status.into()) }
}

/// The processor time that this process has used.
pub(crate) fn computed() -> Duration {
    use nix::time::{ClockId, clock_gettime};
    clock_gettime(ClockId::CLOCK_PROCESS_CPUTIME_ID).map_or(Duration::ZERO, Duration::from)
}
