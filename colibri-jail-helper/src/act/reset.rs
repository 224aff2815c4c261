//! Forgetting what was inherited: everything that a caller can set before execve(2) and that
//! outlives it.

use colibri_jail_helper::refusal::{HelperExit, HelperRefusal};
use nix::sys::stat::{Mode, umask};

use crate::sys;

/// Resets timers, limits, scheduling, signals and their mask, descriptors above 2, umask, working
/// directory, environment.
///
/// The session is left in the inner process, which can: a session leader cannot make another.
///
/// # Errors
/// A step that the system refuses, by name: with one of them undone the helper is not in its own
/// hands.
pub(crate) fn forget() -> Result<(), HelperRefusal> {
    let failed = |tried| move |error| HelperRefusal::system("reset", tried, error);
    // Timers and the CPU limit first: these kill.
    sys::clear_timers().map_err(failed("clear timers"))?;
    sys::lift_limits().map_err(failed("lift limits"))?;
    sys::reset_scheduling().map_err(failed("reset scheduling"))?;
    sys::reset_signals().map_err(failed("reset signals"))?;
    sys::close_from(3).map_err(failed("close descriptors"))?;
    sys::signal_on_parent_death(None).map_err(failed("clear the parent-death signal"))?;
    sys::bar_tracing().map_err(failed("bar tracing"))?;
    umask(Mode::from_bits_truncate(0o077));
    std::env::set_current_dir("/")
        .map_err(|error| HelperRefusal::system("reset", "change directory to /", error))?;
    sys::clear_environment().map_err(failed("clear the environment"))?;
    Ok(())
}

/// Refuses standard descriptors that are not three anonymous pipes, each open as its number says:
/// the first is the daemon's lifeline, and one that has a writer on this side never breaks. A pipe
/// can neither be a directory that leads out of a jail nor a socket that takes other descriptors
/// in.
///
/// # Errors
/// [`HelperExit::Usage`], with the descriptor's number.
pub(crate) fn require_pipes() -> Result<(), HelperRefusal> {
    match sys::fault_of_pipes() {
        None => Ok(()),
        Some(fault) => Err(HelperRefusal::new(HelperExit::Usage, "pipes", fault)),
    }
}
