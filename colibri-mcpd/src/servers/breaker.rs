//! The breaker over calls: after calls of a user that were given up in a row that user has one
//! trial a minute, and what else they call is answered at once.

use std::time::Duration;

use tokio::time::Instant;

/// Calls in a row that are given up before it opens.
const GIVEN_UP: u32 = 3;
/// Between two trials of one user.
const BETWEEN_TRIALS: Duration = Duration::from_secs(60);

/// The calls of one user of a server that were given up in a row. A call is given up whose failure
/// could pass, and that is not made again any more. Where users share a process each has a breaker
/// all the same: what fails may be what one of them asks for.
#[derive(Debug, Default)]
pub(super) struct Breaker {
    given_up: u32,
    /// The code with which the last one failed.
    code: String,
    /// The next trial; `None`: now.
    next_trial: Option<Instant>,
}

impl Breaker {
    /// True if calls are not made again, and most not made at all.
    pub(super) fn is_open(&self) -> bool {
        self.given_up >= GIVEN_UP
    }

    /// A call was given up, which failed with this code. True if it is open now.
    pub(super) fn give_up(&mut self, code: &str) -> bool {
        self.given_up = self.given_up.saturating_add(1);
        code.clone_into(&mut self.code);
        if self.is_open() {
            self.next_trial = Some(Instant::now() + BETWEEN_TRIALS);
        }
        self.is_open()
    }

    /// Lets a call pass: any while it is closed, else a trial.
    ///
    /// # Errors
    /// The time until the next trial.
    pub(super) fn admit(&mut self) -> Result<(), Duration> {
        if !self.is_open() {
            return Ok(());
        }
        if let Some(wait) = self.wait() {
            return Err(wait);
        }
        self.next_trial = Some(Instant::now() + BETWEEN_TRIALS);
        Ok(())
    }

    /// The time until the next trial; `None`: a call would pass now.
    pub(super) fn wait(&self) -> Option<Duration> {
        let next = self.next_trial.filter(|_| self.is_open())?;
        let wait = next.saturating_duration_since(Instant::now());
        (!wait.is_zero()).then_some(wait)
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
    async fn an_open_one_lets_one_call_pass_a_minute() {
        let mut breaker = Breaker::default();
        for _ in 1..GIVEN_UP {
            assert!(!breaker.give_up("A"));
            assert_eq!(breaker.admit(), Ok(()));
        }
        assert!(
            breaker.give_up("B")
                && breaker.reason().contains("3 calls")
                && breaker.reason().contains("with B")
        );
        assert_eq!(breaker.admit(), Err(BETWEEN_TRIALS));
        tokio::time::advance(BETWEEN_TRIALS - Duration::from_secs(1)).await;
        assert_eq!(breaker.admit(), Err(Duration::from_secs(1)));
        tokio::time::advance(Duration::from_secs(1)).await;
        assert_eq!(breaker.admit(), Ok(()));
        // One trial at a time, however long it takes to fail.
        tokio::time::advance(Duration::from_secs(30)).await;
        assert!(breaker.admit().is_err() && breaker.give_up("C"));
        assert_eq!(breaker.admit(), Err(BETWEEN_TRIALS));
    }
}
