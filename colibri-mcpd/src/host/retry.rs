//! How failures are told apart, and how long to wait after them.

use std::time::Duration;

use tokio::time::Instant;

use colibri_protocol::{Code, Failure};

/// Waits before the second and the third attempt of a call; a fourth waits as long as the third.
const BETWEEN_ATTEMPTS: [Duration; 2] = [Duration::from_millis(200), Duration::from_secs(1)];
/// How long a server that failed this often in a row is left alone. Once is an accident.
const BACKOFF: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// Whether another attempt can help.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// It may go away by itself.
    Transient,
    /// It stays until somebody changes something.
    Permanent,
}

/// The class of a failure that came before any byte of the call was sent.
pub fn class(failure: &Failure) -> Class {
    match failure.code {
        Code::IntegrationUnavailable | Code::ServerDied => Class::Transient,
        _ => Class::Permanent,
    }
}

/// How long to wait after this attempt (from 1), up to a quarter more or less so that callers spread. `turn` tells the
/// waits of one daemon apart: it is another one for each.
pub fn wait_after(attempt: u32, turn: u64) -> Duration {
    let index = (attempt.saturating_sub(1) as usize).min(BETWEEN_ATTEMPTS.len() - 1);
    let base = BETWEEN_ATTEMPTS[index];
    let spread = base / 2;
    base - spread / 2 + spread.mul_f64(fraction(turn))
}

/// A number from 0 to 1. Those of turns that follow each other lie as far apart as they can (multiples of the golden
/// ratio): they spread callers better than chance, and a simulation sees the same each time.
fn fraction(turn: u64) -> f64 {
    let whole = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (whole >> 11) as f64 / (1u64 << 53) as f64
}

/// A server's record of failures.
#[derive(Debug, Default)]
pub struct Health {
    failures: u32,
    until: Option<Instant>,
    reason: Option<String>,
    permanent: bool,
}

impl Health {
    /// It works.
    pub fn worked(&mut self) {
        *self = Health::default();
    }

    /// It failed, for this reason.
    pub fn failed(&mut self, reason: &str, class: Class) {
        let pause = BACKOFF[(self.failures as usize).min(BACKOFF.len() - 1)];
        self.failures = self.failures.saturating_add(1);
        self.until = Some(Instant::now() + pause);
        self.reason = Some(reason.to_owned());
        self.permanent = class == Class::Permanent;
    }

    /// How long it is still left alone, if it is.
    pub fn backing_off(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// What callers are told who get no process; `why` it failed.
    pub fn left_alone(&self, why: &str) -> String {
        match self.backing_off() {
            Some(left) => format!("it failed and is left alone for {} ms more: {why}", left.as_millis()),
            None => format!("it failed: {why}"),
        }
    }

    /// Why it failed last, unless it worked since.
    pub fn reason(&self) -> Option<&str> {
        self.reason.as_deref()
    }

    /// Whether it failed in a way that stays.
    pub fn is_permanent(&self) -> bool {
        self.permanent
    }

    /// Whether it failed since it last worked.
    pub fn is_clean(&self) -> bool {
        self.failures == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn backs_off_longer_each_time_and_forgets_when_it_works() {
        let mut health = Health::default();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            health.failed("crashed", Class::Transient);
            pauses.push(health.backing_off().map_or(0, |left| left.as_millis()));
            tokio::time::advance(health.backing_off().unwrap_or_default()).await;
            assert_eq!(health.backing_off(), None);
        }
        assert_eq!(pauses, [0, 200, 1000, 5000, 5000, 5000]);
        health.worked();
        assert!(health.is_clean() && health.reason().is_none());
    }

    #[test]
    fn waits_are_spread_around_their_base() {
        for (attempt, base) in [(1, 200.0), (2, 1000.0), (9, 1000.0)] {
            let mut waits: Vec<f64> = (0..64)
                .map(|turn| wait_after(attempt, turn).as_secs_f64() * 1000.0)
                .collect();
            waits.sort_by(f64::total_cmp);
            assert!(
                waits.iter().all(|wait| (base * 0.75..=base * 1.25).contains(wait)),
                "{attempt}: {waits:?}"
            );
            assert!(
                waits.windows(2).all(|pair| pair[1] - pair[0] < base * 0.025),
                "{attempt}: {waits:?}"
            );
        }
    }
}
