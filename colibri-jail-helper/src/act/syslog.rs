//! Audit lines on their way to syslogd(8).
//!
//! A datagram on syslogd's own socket, and not syslog(3): that one keeps a hidden descriptor, reads
//! the environment and the time zone, falls back to the console, and never says whether anybody
//! heard, which `"audit": "require"` must know.

use std::os::fd::AsRawFd;

use colibri_jail_helper::audit::AuditLine;
use nix::errno::Errno;
use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::socket::{
    AddressFamily, MsgFlags, SockFlag, SockType, UnixAddr, connect, send, socket,
};
use std::os::fd::AsFd;

/// The sockets of syslogd(8); on FreeBSD its socket for root alone comes first, which users cannot
/// flood.
const SOCKETS: &[&str] = if cfg!(target_os = "freebsd") {
    &["/var/run/logpriv", "/var/run/log"]
} else {
    &["/dev/log"]
};

/// LOG_AUTH (4) in the place of the facility, RFC 3164 §4.1.1.
const FACILITY: u8 = 4 << 3;

/// The rank of a line.
#[derive(Debug, Clone, Copy)]
pub(crate) enum SyslogSeverity {
    /// A refusal, or a teardown that left something.
    Warning = 4,
    /// Starts and ends.
    Info = 6,
}

/// Hands one line to syslogd(8).
///
/// # Errors
/// No syslogd is there, or none took the line within a second.
pub(crate) fn send_line(severity: SyslogSeverity, line: &AuditLine) -> Result<(), Errno> {
    let message = format!(
        "<{}>colibri-jail-helper[{}]: {}",
        FACILITY | severity as u8,
        std::process::id(),
        line.as_str()
    );
    let mut last = Errno::ENOENT;
    for path in SOCKETS {
        match send_to(path, message.as_bytes()) {
            Ok(()) => return Ok(()),
            Err(error) => last = error,
        }
    }
    Err(last)
}

fn send_to(path: &str, message: &[u8]) -> Result<(), Errno> {
    let flags = SockFlag::SOCK_CLOEXEC | SockFlag::SOCK_NONBLOCK;
    let socket = socket(AddressFamily::Unix, SockType::Datagram, flags, None)?;
    connect(socket.as_raw_fd(), &UnixAddr::new(path)?)?;
    // A queue that is full for a second belongs to a syslogd that hangs. One try more than the
    // wait, no loop.
    match send(socket.as_raw_fd(), message, MsgFlags::empty()) {
        Err(Errno::EAGAIN | Errno::ENOBUFS) => {
            poll(
                &mut [PollFd::new(socket.as_fd(), PollFlags::POLLOUT)],
                PollTimeout::from(1000u16),
            )?;
            send(socket.as_raw_fd(), message, MsgFlags::empty())
        }
        sent => sent,
    }
    .map(drop)
}
