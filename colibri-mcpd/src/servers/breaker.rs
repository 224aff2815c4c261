//! The breaker over calls: after calls that were given up in a row each user has one trial a minute, and what else they
//! call is answered at once.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

/// Calls in a row that are given up before it opens.
const GIVEN_UP: u32 = 3;
/// Between two trials of one user.
const BETWEEN_TRIALS: Duration = Duration::from_secs(60);

/// The calls that were given up in a row at the processes that one user has of a server, or that all share. A call is
/// given up whose failure could pass, and that is not made again any more.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    given_up: u32,
    /// The code with which the last one failed.
    code: String,
    /// The next trial of each user. Where all share a server one user's failing trials must not be another's.
    trials: BTreeMap<u32, Instant>,
}

impl Breaker {
    /// True if calls are not made again, and of most callers not made at all.
    pub(super) fn is_open(&self) -> bool {
        self.given_up >= GIVEN_UP
    }

    /// A call of a user was given up, which failed with this code. True if it is open now.
    pub(super) fn give_up(&mut self, uid: u32, code: &str) -> bool {
        self.given_up = self.given_up.saturating_add(1);
        code.clone_into(&mut self.code);
        if self.is_open() {
            self.trials.insert(uid, Instant::now() + BETWEEN_TRIALS);
        }
        self.is_open()
    }

    /// Lets a call of a user pass: any while it is closed, else a trial.
    ///
    /// # Errors
    /// The time until the user's next trial.
    pub(super) fn admit(&mut self, uid: u32) -> Result<(), Duration> {
        if !self.is_open() {
            return Ok(());
        }
        let now = Instant::now();
        let next = self.trials.entry(uid).or_insert(now);
        if *next > now {
            return Err(*next - now);
        }
        *next = now + BETWEEN_TRIALS;
        Ok(())
    }

    /// The reason for which it is open.
    pub(super) fn reason(&self) -> String {
        format!(
            "{} calls in a row were given up, the last with {}; one call a minute is tried until one succeeds",
            self.given_up, self.code
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn an_open_one_lets_one_call_of_each_user_pass_a_minute() {
        let mut breaker = Breaker::default();
        for _ in 1..GIVEN_UP {
            assert!(!breaker.give_up(1, "A"));
            assert_eq!(breaker.admit(1), Ok(()));
        }
        assert!(breaker.give_up(1, "B") && breaker.reason().contains("3 calls") && breaker.reason().contains("with B"));
        assert_eq!(breaker.admit(1), Err(BETWEEN_TRIALS));
        // Another user's trial is not spent.
        assert_eq!(breaker.admit(2), Ok(()));
        assert_eq!(breaker.admit(2), Err(BETWEEN_TRIALS));
        tokio::time::advance(BETWEEN_TRIALS - Duration::from_secs(1)).await;
        assert_eq!(breaker.admit(1), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(breaker.admit(1), Ok(()));
        // One trial at a time, however long it takes to fail.
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(breaker.admit(1).is_err() && breaker.give_up(1, "C"));
        assert_eq!(breaker.admit(1), Err(BETWEEN_TRIALS));
    }
}
