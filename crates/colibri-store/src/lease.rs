//! A host's lease on the board: for how long it may act for its agents' instances.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use parking_lot::Mutex;
use tokio::sync::watch;

/// The clock that counts the time in which the machine is suspended.
#[cfg(target_os = "linux")]
const CLOCK: ClockId = ClockId::CLOCK_BOOTTIME;
/// The same: FreeBSD's counts it.
#[cfg(not(target_os = "linux"))]
const CLOCK: ClockId = ClockId::CLOCK_MONOTONIC;

/// The time since some moment before the start, suspension included.
pub(super) fn elapsed() -> Duration {
    clock_gettime(CLOCK).map_or(Duration::MAX, Duration::from)
}

/// A host's lease. Each one after one that was lost has a higher number.
#[derive(Debug)]
pub struct HostLease {
    /// True if it has no end.
    pub(super) is_permanent: bool,
    /// While it is held: its end, by [`elapsed`].
    pub(super) until: Mutex<Option<Duration>>,
    pub(super) number: watch::Sender<u64>,
    /// The last time of the database, in milliseconds since the epoch, and when that was.
    pub(super) board_time: Mutex<Option<(u64, Duration)>>,
}

impl HostLease {
    /// The lease of the only host of a board: it has the number 0, and is in force for ever.
    pub fn permanent() -> HostLease {
        HostLease {
            is_permanent: true,
            until: Mutex::new(Some(Duration::MAX)),
            number: watch::Sender::new(0),
            board_time: Mutex::default(),
        }
    }

    /// The number of the lease, whether it is in force or not.
    pub fn number(&self) -> u64 {
        *self.number.borrow()
    }

    /// True if the lease of this number is in force.
    pub fn is_in_force(&self, number: u64) -> bool {
        let until = *self.until.lock();
        let is_held = until.is_some_and(|until| self.is_permanent || elapsed() < until);
        is_held && number == self.number()
    }

    /// The database's time now, as far as it is known; none where the board is this host's own.
    pub fn board_time(&self) -> Option<u64> {
        let (then, at) = (*self.board_time.lock())?;
        let since = elapsed().saturating_sub(at).as_millis();
        Some(then.saturating_add(u64::try_from(since).unwrap_or(u64::MAX)))
    }

    /// The numbers of leases from now on: a new one means that the one before is lost.
    pub fn numbers(&self) -> watch::Receiver<u64> {
        self.number.subscribe()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_only_host_of_a_board_has_a_lease_that_does_not_end() {
        let lease = HostLease::permanent();
        assert!(lease.is_in_force(lease.number()) && !lease.is_in_force(1));
        assert_eq!((lease.number(), lease.board_time()), (0, None));
    }
}
