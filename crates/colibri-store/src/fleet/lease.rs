//! This host's lease: how long it is in force by a clock that goes on while the machine sleeps.

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
    /// Where it is held: the end of it, by [`elapsed`].
    until: Mutex<Option<Duration>>,
    number: watch::Sender<u64>,
    /// The last time of the database, in milliseconds since the epoch, and when that was.
    board_time: Mutex<Option<(u64, Duration)>>,
}

impl Default for HostLease {
    fn default() -> HostLease {
        HostLease {
            until: Mutex::default(),
            number: watch::Sender::new(1),
            board_time: Mutex::default(),
        }
    }
}

impl HostLease {
    /// The number of the lease, whether it is in force or not.
    pub fn number(&self) -> u64 {
        *self.number.borrow()
    }

    /// True if the lease of this number is in force.
    pub fn is_in_force(&self, number: u64) -> bool {
        let until = *self.until.lock();
        number == self.number() && until.is_some_and(|until| elapsed() < until)
    }

    /// True if it was in force, and its time is over.
    pub(super) fn has_lapsed(&self) -> bool {
        self.until.lock().is_some_and(|until| elapsed() >= until)
    }

    /// It was renewed with a statement that was sent at `sent`, for `length` by the database's
    /// clock, which said `now`.
    pub(super) fn renew(&self, sent: Duration, length: Duration, now: u64) {
        *self.board_time.lock() = Some((now, sent));
        *self.until.lock() = Some(sent.saturating_add(length));
    }

    /// It is lost, and what ran under it must end.
    pub fn lose(&self) {
        if self.until.lock().take().is_some() {
            self.number.send_modify(|number| *number += 1);
        }
    }

    /// The database's time now, as far as it is known.
    pub(crate) fn board_time(&self) -> Option<u64> {
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
    fn a_lease_ends_by_its_time_and_its_loss_and_never_comes_back_under_its_number() {
        let lease = HostLease::default();
        let first = lease.number();
        assert!(!lease.is_in_force(first), "there is none yet");
        lease.renew(elapsed(), Duration::from_secs(60), 5_000);
        assert!(lease.is_in_force(first) && lease.board_time().unwrap() >= 5_000);
        lease.renew(
            elapsed().saturating_sub(Duration::from_secs(61)),
            Duration::from_secs(60),
            5_000,
        );
        assert!(!lease.is_in_force(first) && lease.has_lapsed());
        lease.lose();
        lease.renew(elapsed(), Duration::from_secs(60), 9_000);
        assert!(!lease.is_in_force(first) && lease.is_in_force(first + 1));
    }
}
