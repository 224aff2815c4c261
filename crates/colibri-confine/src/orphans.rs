//! Orphans of a supervisor that was killed itself: processes of its server that have no parent any
//! more.
//!
//! They come to the daemon, which is the next reaper above ([`harden`](super::harden)), and which
//! has no other children than supervisors. So every child that is none is an orphan.

use super::{sys, tree};
use nix::errno::Errno;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use std::collections::BTreeSet;
use std::io;
use std::time::Duration;

use parking_lot::{Mutex, MutexGuard};

/// The supervisors that were started and not yet reaped. Held while one is started: none is taken
/// for an orphan.
static SUPERVISORS: Mutex<BTreeSet<i32>> = Mutex::new(BTreeSet::new());

/// Between two looks, at first and at most.
const LOOK: Duration = Duration::from_millis(10);
const MAX_LOOK: Duration = Duration::from_secs(1);

fn supervisors() -> MutexGuard<'static, BTreeSet<i32>> {
    SUPERVISORS.lock()
}

/// Starts a supervisor, which is known as one from its first moment on.
///
/// # Errors
/// It could not be started.
pub(super) fn start_supervisor(
    command: &mut tokio::process::Command,
) -> io::Result<tokio::process::Child> {
    let mut supervisors = supervisors();
    let child = command.spawn()?;
    supervisors.extend(child.id().map(|pid| pid as i32));
    Ok(child)
}

/// A supervisor has ended and was waited for.
pub(super) fn supervisor_gone(pid: u32) {
    supervisors().remove(&(pid as i32));
}

/// Ends every orphan and all that it started, and reaps them, in the background until none is left.
/// A supervisor that is reaped was dead before, so what it leaves has come to this process by then.
/// Orphans of the helper's are root's: `sweep` ends those, and here they are only reaped.
pub(super) fn end_orphans() {
    tokio::spawn(async {
        let (mut known, mut pause) = (BTreeSet::new(), LOOK);
        while end_those_there_are(&mut known) {
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(MAX_LOOK);
        }
    });
}

/// One look. `true`: some are left, or were there just now.
fn end_those_there_are(known: &mut BTreeSet<i32>) -> bool {
    let mut supervisors = supervisors();
    let children = tree::children_of(std::process::id() as i32);
    // One that was dropped and not waited for is gone when it is no child any more.
    supervisors.retain(|pid| children.contains(pid));
    known.extend(
        children
            .into_iter()
            .filter(|pid| !supervisors.contains(pid)),
    );
    let before = known.len();
    known.retain(|pid| {
        let pid = Pid::from_raw(*pid);
        // A child of this process that it has not reaped: its number is nobody else's. What it
        // started comes here when it is dead.
        let _ = kill(pid, Signal::SIGKILL);
        matches!(
            waitpid(pid, Some(WaitPidFlag::WNOHANG)),
            Ok(WaitStatus::StillAlive) | Err(Errno::EINTR)
        )
    });
    before > 0
}

/// Makes this process the one to which orphans come.
///
/// # Errors
/// The kernel refused.
pub(super) fn adopt() -> io::Result<()> {
    sys::become_reaper()
}
