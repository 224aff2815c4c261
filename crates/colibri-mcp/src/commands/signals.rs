//! Signals, to a thread that waits for them.

use nix::sys::signal::{SigSet, Signal};

use crate::failure::CommandError;

/// From now on the first of these signals is given to `then`, on a thread of its own, and does
/// nothing else.
pub(crate) fn on_signals(
    signals: &[Signal],
    then: impl FnOnce(Signal) + Send + 'static,
) -> Result<(), CommandError> {
    let set: SigSet = signals.iter().copied().collect();
    // Blocked here, before any other thread starts, so that only the waiting thread gets them.
    set.thread_block()
        .map_err(|error| CommandError::Machine(format!("cannot block signals: {error}")))?;
    std::thread::spawn(move || {
        if let Ok(signal) = set.wait() {
            then(signal);
        }
    });
    Ok(())
}
