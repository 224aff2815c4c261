//! Connections that are not this user's. Whoever connects without end is passed over for a while,
//! so that the bridge's own user does not wait until each of these connections is looked up.

use std::collections::{HashMap, HashSet};
use std::net::{SocketAddr, SocketAddrV4};
use std::time::{Duration, Instant};

use parking_lot::Mutex;

/// Refused connections of one user after which the user is passed over.
const MAX_REFUSED: u32 = 64;
/// The time within which refusals are counted, and for which their user is passed over.
const PERIOD: Duration = Duration::from_secs(1);

/// The other users that connect to one bridge.
#[derive(Debug, Default)]
pub(crate) struct Strangers(Mutex<Refusals>);

#[derive(Debug, Default)]
struct Refusals {
    /// Refused connections by user, and the time from which the period counts.
    counts: HashMap<u32, (Instant, u32)>,
    /// The addresses from which connections are passed over, and until when.
    passed_over: Option<(HashSet<SocketAddrV4>, Instant)>,
}

impl Strangers {
    /// Counts a connection of this user that was refused.
    pub(crate) fn count_refusal(&self, uid: u32, now: Instant) {
        let mut refusals = self.0.lock();
        let (since, count) = refusals.counts.entry(uid).or_insert((now, 0));
        if now.saturating_duration_since(*since) >= PERIOD {
            (*since, *count) = (now, 0);
        }
        *count += 1;
        if *count == MAX_REFUSED {
            *since = now;
        }
    }

    /// Takes from a table the callers that are passed over, in place of those before: all of a user
    /// who was refused too often, and what is closed. Connections that are not accepted yet are
    /// among them.
    pub(crate) fn pass_over(
        &self,
        callers: impl Iterator<Item = (SocketAddrV4, Option<u32>)>,
        now: Instant,
    ) {
        let mut refusals = self.0.lock();
        let is_recent = |since: Instant| now.saturating_duration_since(since) < PERIOD;
        refusals.counts.retain(|_, (since, _)| is_recent(*since));
        let counts = &refusals.counts;
        let is_flooding = |uid: u32| {
            counts
                .get(&uid)
                .is_some_and(|(_, count)| *count >= MAX_REFUSED)
        };
        let from = callers
            .filter(|(_, uid)| uid.is_none_or(is_flooding))
            .map(|(from, _)| from);
        refusals.passed_over = Some((from.collect(), now + PERIOD));
    }

    /// True if a connection from this address is closed without a look at whose it is.
    pub(crate) fn is_passed_over(&self, from: SocketAddr, now: Instant) -> bool {
        match (&self.0.lock().passed_over, from) {
            (Some((addresses, until)), SocketAddr::V4(from)) => {
                now < *until && addresses.contains(&from)
            }
            _ => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::Ipv4Addr;

    #[test]
    fn who_was_refused_too_often_is_passed_over_for_a_while_and_nobody_else() {
        let at = |port| SocketAddrV4::new(Ipv4Addr::LOCALHOST, port);
        let callers = || [(at(1), Some(7)), (at(2), Some(8)), (at(3), Some(7))].into_iter();
        let (strangers, began) = (Strangers::default(), Instant::now());
        let passed = |now| [1, 2, 3, 4].map(|port| strangers.is_passed_over(at(port).into(), now));
        for _ in 1..MAX_REFUSED {
            strangers.count_refusal(7, began);
        }
        strangers.count_refusal(8, began);
        strangers.pass_over(callers(), began);
        assert_eq!(passed(began), [false; 4]);
        let later = began + PERIOD / 2;
        strangers.count_refusal(7, later);
        strangers.pass_over(callers(), later);
        assert_eq!(passed(later), [true, false, true, false]);
        // A period after the last refusal that counted, with a new table or without one.
        assert_eq!(passed(later + PERIOD), [false; 4]);
        strangers.pass_over(callers(), later + PERIOD);
        assert_eq!(passed(later + PERIOD), [false; 4]);
        // What is closed is nobody's.
        strangers.pass_over([(at(4), None)].into_iter(), began);
        assert_eq!(passed(began), [false, false, false, true]);
        // Few refusals in each period are never too many.
        for period in 0..4 * MAX_REFUSED {
            let now = later + PERIOD * (2 + period);
            strangers.count_refusal(8, now);
            strangers.pass_over(callers(), now);
            assert_eq!(passed(now), [false; 4]);
        }
    }
}
