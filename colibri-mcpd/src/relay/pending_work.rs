//! Work that waits for a retry: each piece under a ticket that is good once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// The bytes of a ticket.
pub(crate) const TICKET: usize = 16;
/// The time for which work waits for a retry.
pub const WAIT: Duration = Duration::from_secs(600);
/// The most that waits for retries of one user.
pub(crate) const MAX_OF_ONE: usize = 16;

/// Something that waits for a retry.
pub trait PendingWork: Send + Sync {
    /// Nobody will retry: why. Told once, and not to what was taken.
    fn over(&self, why: &'static str);
}

struct TicketEntry<W: ?Sized> {
    uid: u32,
    until: Instant,
    /// True if it outlives the connections of its user: a client over HTTP has none to keep.
    stays: bool,
    what: Arc<W>,
}

/// The work that waits for retries.
pub struct Tickets<W: ?Sized> {
    /// The oldest first.
    waiting: Mutex<BTreeMap<[u8; TICKET], TicketEntry<W>>>,
    issued: AtomicU64,
}

impl<W: ?Sized> Default for Tickets<W> {
    fn default() -> Tickets<W> {
        Tickets {
            waiting: Mutex::default(),
            issued: AtomicU64::new(0),
        }
    }
}

/// As much waits for the user's retries as may.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("{MAX_OF_ONE} calls of this user wait for a retry already")]
pub struct TooMany;

impl<W: PendingWork + ?Sized> Tickets<W> {
    /// Has something wait for a retry of this user, for at most [`WAIT`].
    ///
    /// # Errors
    /// As much waits already as may, or there is no randomness for a ticket.
    pub fn issue(&self, uid: u32, stays: bool, what: Arc<W>) -> Result<[u8; TICKET], TooMany> {
        // Counted, and none of another run of the daemon.
        let mut ticket = [0; TICKET];
        let (count, random) = ticket.split_at_mut(8);
        count.copy_from_slice(&self.issued.fetch_add(1, Ordering::Relaxed).to_be_bytes());
        getrandom::fill(random).map_err(|_| TooMany)?;
        self.expire();
        let mut waiting = self.waiting.lock();
        if waiting.values().filter(|waits| waits.uid == uid).count() >= MAX_OF_ONE {
            return Err(TooMany);
        }
        let until = Instant::now() + WAIT;
        waiting.insert(
            ticket,
            TicketEntry {
                uid,
                until,
                stays,
                what,
            },
        );
        Ok(ticket)
    }

    /// Takes the work under a ticket, once. `None`: nothing does any more.
    pub fn take(&self, ticket: &[u8; TICKET]) -> Option<Arc<W>> {
        let waits = self.waiting.lock().remove(ticket)?;
        if waits.until <= Instant::now() {
            waits.what.over(EXPIRED);
            return None;
        }
        Some(waits.what)
    }

    /// The number of a user's waiting retries.
    pub fn of(&self, uid: u32) -> usize {
        self.waiting
            .lock()
            .values()
            .filter(|waits| waits.uid == uid)
            .count()
    }

    /// Ends everything: there will be no retries.
    pub(crate) fn end_all(&self, why: &'static str) {
        self.end(why, |_| true);
    }

    /// Ends what waited too long.
    pub(crate) fn expire(&self) {
        let now = Instant::now();
        self.end(EXPIRED, |waits| waits.until <= now);
    }

    /// The last connection of a user is gone: what could be retried on one alone ends.
    pub fn disconnected(&self, uid: u32) {
        self.end("its client is gone", |waits| {
            waits.uid == uid && !waits.stays
        });
    }

    fn end(&self, why: &'static str, ends: impl Fn(&TicketEntry<W>) -> bool) {
        let ended: Vec<_> = {
            let mut waiting = self.waiting.lock();
            let over = waiting.iter().filter(|(_, waits)| ends(waits));
            let over: Vec<_> = over.map(|(ticket, _)| *ticket).collect();
            over.iter()
                .filter_map(|ticket| waiting.remove(ticket))
                .collect()
        };
        for waits in ended {
            waits.what.over(why);
        }
    }
}

const EXPIRED: &str = "nobody answered in time";

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Default)]
    struct Told(Mutex<Vec<&'static str>>);

    impl PendingWork for Told {
        fn over(&self, why: &'static str) {
            self.0.lock().push(why);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_ticket_is_good_once_and_for_a_while() {
        let tickets = Tickets::default();
        let told = Arc::new(Told::default());
        let ticket = tickets.issue(1, false, told.clone()).unwrap();
        assert!(tickets.take(&[0; TICKET]).is_none());
        assert!(tickets.take(&ticket).is_some());
        assert!(tickets.take(&ticket).is_none());
        assert!(told.0.lock().is_empty());
        let ticket = tickets.issue(1, false, told.clone()).unwrap();
        tokio::time::advance(WAIT).await;
        assert!(tickets.take(&ticket).is_none());
        assert_eq!(*told.0.lock(), [EXPIRED]);
    }

    #[tokio::test(start_paused = true)]
    async fn one_user_has_sixteen_and_no_other_has_fewer_for_it() {
        let tickets = Tickets::default();
        let told = Arc::new(Told::default());
        for _ in 0..MAX_OF_ONE {
            tickets.issue(1, false, told.clone()).unwrap();
        }
        for _ in 0..10_000 {
            assert_eq!(tickets.issue(1, false, told.clone()), Err(TooMany));
        }
        assert!(tickets.issue(2, false, told.clone()).is_ok());
        tokio::time::advance(WAIT).await;
        assert!(tickets.issue(1, false, told.clone()).is_ok());
        assert_eq!(
            (tickets.of(1), tickets.of(2), told.0.lock().len()),
            (1, 0, 17)
        );
    }

    #[tokio::test]
    async fn the_last_disconnect_of_a_user_ends_what_is_its_alone() {
        let tickets = Tickets::default();
        let told = Arc::new(Told::default());
        let over_lines = tickets.issue(1, false, told.clone()).unwrap();
        let over_http = tickets.issue(1, true, told.clone()).unwrap();
        let others = tickets.issue(2, false, told.clone()).unwrap();
        tickets.disconnected(1);
        assert_eq!(*told.0.lock(), ["its client is gone"]);
        assert!(tickets.take(&over_lines).is_none());
        assert!(tickets.take(&over_http).is_some() && tickets.take(&others).is_some());
    }
}
