//! The end by a signal: the lock goes first.

use std::sync::Arc;

use nix::errno::Errno;
use nix::sys::signal::{SigSet, Signal, raise};

use crate::claim::BridgeLock;

/// Signals that end no process, stop it, or are the kernel's word on a fault of this very thread.
const OTHERS: [Signal; 14] = [
    Signal::SIGKILL,
    Signal::SIGSTOP,
    Signal::SIGTSTP,
    Signal::SIGTTIN,
    Signal::SIGTTOU,
    Signal::SIGCONT,
    Signal::SIGCHLD,
    Signal::SIGURG,
    Signal::SIGWINCH,
    Signal::SIGSEGV,
    Signal::SIGBUS,
    Signal::SIGILL,
    Signal::SIGFPE,
    Signal::SIGTRAP,
];

/// Blocks every signal that would end this process, in this thread and those that it starts.
///
/// # Errors
/// The system refuses.
pub(crate) fn block() -> nix::Result<SigSet> {
    let mut set = SigSet::all();
    OTHERS.iter().for_each(|signal| set.remove(*signal));
    // Nobody reads what is written to a closed connection.
    set.remove(Signal::SIGPIPE);
    set.thread_block()?;
    Ok(set)
}

/// Waits for them in a thread of its own, and then ends as the signal would have it, without a
/// lock.
pub(crate) fn on_signals(set: SigSet, claim: Arc<BridgeLock>) {
    std::thread::spawn(move || {
        let signal = loop {
            match set.wait() {
                Ok(signal) => break Some(signal),
                Err(Errno::EINTR) => {}
                // One that has no name: a real-time signal.
                Err(_) => break None,
            }
        };
        let _nobody_renews_it = claim.give_up();
        if let Some(signal) = signal {
            // Its default action, so that whoever waits sees which one it was.
            let _ended = set.thread_unblock().and_then(|()| raise(signal));
        }
        std::process::exit(128 + signal.map_or(0, |signal| signal as i32));
    });
}
