//! The lease of one host among many, which is renewed and may be lost.

use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;

use crate::lease::{HostLease, elapsed};

impl Default for HostLease {
    /// A lease that is not held yet.
    fn default() -> HostLease {
        HostLease {
            is_permanent: false,
            until: Mutex::default(),
            number: watch::Sender::new(1),
            board_time: Mutex::default(),
        }
    }
}

impl HostLease {
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
    pub(super) fn lose(&self) {
        if self.until.lock().take().is_some() {
            self.number.send_modify(|number| *number += 1);
        }
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
