//! Being told to end while packages are fetched or a person is asked: what is half done is undone
//! first.

use std::io::{self, BufRead as _};
use std::os::fd::AsFd as _;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::poll::{PollFd, PollFlags, PollTimeout, poll};
use nix::sys::signal::{SigSet, Signal};

use crate::commands::signals::on_signals;
use crate::failure::CommandError;

const SIGNALS: [Signal; 3] = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP];

static TOLD: AtomicBool = AtomicBool::new(false);

/// The wait for a line before it is checked again whether this is to end, in milliseconds.
const PAUSE_MS: u8 = 100;

/// From now on this program ends only where it looks whether it is told to.
///
/// # Errors
/// Signals cannot be held back.
pub(crate) fn hold_back() -> Result<(), CommandError> {
    on_signals(&SIGNALS, |_| {
        TOLD.store(true, Ordering::Relaxed);
    })
}

/// From now on it ends at once again: there is nothing to undo. What is started from here on may be
/// ended likewise.
///
/// # Errors
/// Signals cannot be let through.
pub(crate) fn release() -> Result<(), CommandError> {
    let set: SigSet = SIGNALS.iter().copied().collect();
    set.thread_unblock()
        .map_err(|error| CommandError::Machine(format!("cannot unblock signals: {error}")))
}

/// True if this is to end.
pub(crate) fn is_told() -> bool {
    TOLD.load(Ordering::Relaxed)
}

/// # Errors
/// This is to end.
pub(crate) fn check() -> Result<(), CommandError> {
    if is_told() {
        Err(CommandError::Interrupted)
    } else {
        Ok(())
    }
}

/// A line of the terminal.
///
/// # Errors
/// It cannot be read, or this is to end.
pub(crate) fn read_line() -> Result<String, CommandError> {
    let stdin = io::stdin();
    let mut line = String::new();
    loop {
        check()?;
        let mut fds = [PollFd::new(stdin.as_fd(), PollFlags::POLLIN)];
        if poll(&mut fds, PollTimeout::from(PAUSE_MS)).map_err(io::Error::from)? > 0 {
            stdin.lock().read_line(&mut line)?;
            return Ok(line);
        }
    }
}
