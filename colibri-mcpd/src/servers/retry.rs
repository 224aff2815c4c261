//! Attempts at calls and starts that failed: which are followed by another, and after how long.

use std::time::{Duration, SystemTime};

use tokio::time::Instant;

use crate::relay::Call;
use colibri_protocol::{FailureCause, FailureClass};

/// Waits before the second, the third and the fourth attempt of a call; later ones wait as long as
/// the fourth.
const BETWEEN_ATTEMPTS: [Duration; 3] = [
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];
/// The times for which a server is left alone that failed this often in a row. Once is an accident.
const BACKOFF: [Duration; 4] = [
    Duration::ZERO,
    Duration::from_millis(200),
    Duration::from_secs(1),
    Duration::from_secs(5),
];

/// The time for which a list waits for servers that were never seen.
const WORTH_WAITING: Duration = Duration::from_secs(2);
/// After a start that failed, before a list has a server started again whose tools are not known;
/// then twice as long.
const BETWEEN_DISCOVERIES: Duration = Duration::from_secs(5);
const MAX_BETWEEN_DISCOVERIES: Duration = Duration::from_secs(600);

/// True if another attempt at a call follows one that failed so, where there are `attempts` at the
/// most.
pub(super) fn goes_on(call: &Call, cause: FailureCause, attempts: u32) -> bool {
    call.attempt.number < attempts
        && match cause.class() {
            FailureClass::Transient => true,
            FailureClass::Permanent => false,
            FailureClass::Unknown => {
                let code = cause.code();
                call.attempt.failed.iter().all(|before| *before != code)
            }
        }
}

/// The wait after this attempt (from 1), up to a quarter more or less so that callers spread.
/// `turn` tells the waits of one daemon apart: it is another one for each.
pub(super) fn wait_after(attempt: u32, turn: u64) -> Duration {
    let index = (attempt.saturating_sub(1) as usize).min(BETWEEN_ATTEMPTS.len() - 1);
    let base = BETWEEN_ATTEMPTS[index];
    let spread = base / 2;
    base - spread / 2 + spread.mul_f64(fraction(turn))
}

/// A number from 0 to 1. Those of turns that follow each other lie as far apart as they can
/// (multiples of the golden ratio): they spread callers better than chance, and a simulation sees
/// the same each time.
fn fraction(turn: u64) -> f64 {
    let whole = turn.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (whole >> 11) as f64 / (1u64 << 53) as f64
}

/// The failures since it last worked of the processes that one user has of a server, or all
/// together.
#[derive(Debug, Default)]
pub(super) struct Health {
    failures: u32,
    until: Option<Instant>,
    /// Since when it is as it is: kept while the class of its failures stays the same.
    since: Option<SystemTime>,
    reason: String,
    /// The text of the process on its standard error.
    wrote: Option<String>,
    cause: Option<FailureCause>,
    permanent: bool,
}

impl Health {
    /// It failed, for this reason.
    pub(super) fn failed(&mut self, reason: &str, wrote: Option<String>, cause: FailureCause) {
        let pause = BACKOFF[(self.failures as usize).min(BACKOFF.len() - 1)];
        let permanent = match cause.class() {
            FailureClass::Transient => false,
            FailureClass::Permanent => true,
            FailureClass::Unknown => self.cause == Some(cause),
        };
        if self.failures == 0 || self.permanent != permanent {
            self.since = Some(SystemTime::now());
        }
        self.failures = self.failures.saturating_add(1);
        self.until = Some(Instant::now() + pause);
        self.reason = reason.to_owned();
        self.wrote = wrote;
        self.cause = Some(cause);
        self.permanent = permanent;
    }

    /// Since when it fails in this way.
    pub(super) fn since(&self) -> Option<SystemTime> {
        self.since
    }

    /// The time for which it is still left alone, if it is.
    pub(super) fn backing_off(&self) -> Option<Duration> {
        let left = self.until?.saturating_duration_since(Instant::now());
        (!left.is_zero()).then_some(left)
    }

    /// True if it is left alone still.
    pub(super) fn is_backing_off(&self) -> bool {
        self.backing_off().is_some()
    }

    /// The message to callers who get no process.
    pub(super) fn left_alone(&self) -> String {
        let why = self.whole_reason();
        match self.backing_off() {
            Some(left) => format!(
                "it failed and is left alone for {} ms more: {why}",
                left.as_millis()
            ),
            None => format!("it failed: {why}"),
        }
    }

    /// The reason of its last failure.
    pub(super) fn reason(&self) -> &str {
        &self.reason
    }

    /// The same, with what it wrote on its standard error.
    pub(super) fn whole_reason(&self) -> String {
        match &self.wrote {
            Some(wrote) => format!("{}; it wrote: {wrote}", self.reason),
            None => self.reason.clone(),
        }
    }

    /// True if it failed in a way that stays.
    pub(super) fn is_permanent(&self) -> bool {
        self.permanent
    }
}

/// Finding out what a server offers that was never seen.
#[derive(Debug, Default)]
pub(super) struct Discovery {
    begun: Option<Instant>,
    failures: u32,
    again: Option<Instant>,
}

impl Discovery {
    /// True if a process may be started for it now.
    pub(super) fn may_begin(&self) -> bool {
        self.again.is_none_or(|again| again <= Instant::now())
    }

    /// A process is being started.
    pub(super) fn begin(&mut self) {
        self.begun = Some(Instant::now());
    }

    /// Until when a list waits for it: the first time, and not for long.
    pub(super) fn worth_waiting(&self) -> Option<Instant> {
        let until = self.begun? + WORTH_WAITING;
        (self.failures == 0 && until > Instant::now()).then_some(until)
    }

    /// It failed: the next time comes later and later.
    pub(super) fn failed(&mut self) {
        let pause = BETWEEN_DISCOVERIES * 2_u32.saturating_pow(self.failures.min(16));
        self.again = Some(Instant::now() + pause.min(MAX_BETWEEN_DISCOVERIES));
        self.failures = self.failures.saturating_add(1);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use colibri_protocol::Code;

    #[tokio::test(start_paused = true)]
    async fn backs_off_longer_each_time() {
        let mut health = Health::default();
        let mut pauses = Vec::new();
        for _ in 0..6 {
            health.failed(
                "crashed",
                Some("words".to_owned()),
                FailureCause::Ours(Code::ServerDied),
            );
            assert!(!health.is_permanent());
            pauses.push(health.backing_off().map_or(0, |left| left.as_millis()));
            tokio::time::advance(health.backing_off().unwrap_or_default()).await;
            assert_eq!(health.backing_off(), None);
        }
        assert_eq!(pauses, [0, 200, 1000, 5000, 5000, 5000]);
        assert_eq!(
            (health.reason(), health.whole_reason().as_str()),
            ("crashed", "crashed; it wrote: words")
        );
    }

    #[tokio::test(start_paused = true)]
    async fn what_nobody_can_class_is_permanent_the_second_time() {
        let mut health = Health::default();
        let mut failed = |code| {
            health.failed("late", None, FailureCause::Ours(code));
            health.is_permanent()
        };
        assert!(!failed(Code::TimeoutStart));
        assert!(failed(Code::TimeoutStart));
        assert!(!failed(Code::ServerDied));
        assert!(!failed(Code::TimeoutStart));
        assert!(failed(Code::ServerUnstartable));
    }

    #[tokio::test(start_paused = true)]
    async fn a_list_waits_for_a_server_once() {
        let mut discovery = Discovery::default();
        assert!(discovery.worth_waiting().is_none() && discovery.may_begin());
        discovery.begin();
        assert!(discovery.worth_waiting().is_some());
        tokio::time::advance(WORTH_WAITING).await;
        assert_eq!(discovery.worth_waiting(), None);
        let mut pauses = Vec::new();
        for _ in 0..9 {
            discovery.failed();
            assert!(!discovery.may_begin() && discovery.worth_waiting().is_none());
            let began = Instant::now();
            while !discovery.may_begin() {
                tokio::time::advance(Duration::from_secs(5)).await;
            }
            discovery.begin();
            assert_eq!(discovery.worth_waiting(), None);
            pauses.push(began.elapsed().as_secs());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 320, 600, 600]);
    }

    #[test]
    fn waits_are_spread_around_their_base() {
        for (attempt, base) in [(1, 200.0), (2, 1000.0), (3, 5000.0), (9, 5000.0)] {
            let mut waits: Vec<f64> = (0..64)
                .map(|turn| wait_after(attempt, turn).as_secs_f64() * 1000.0)
                .collect();
            waits.sort_by(f64::total_cmp);
            assert!(
                waits
                    .iter()
                    .all(|wait| (base * 0.75..=base * 1.25).contains(wait)),
                "{attempt}: {waits:?}"
            );
            assert!(
                waits
                    .windows(2)
                    .all(|pair| pair[1] - pair[0] < base * 0.025),
                "{attempt}: {waits:?}"
            );
        }
    }
}
