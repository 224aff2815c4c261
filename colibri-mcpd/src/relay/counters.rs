//! Counting finished calls: two atomic additions for a call that succeeds, three for one that
//! fails.
//!
//! Each server has its own counters, found through the call's target and never looked up by name.
//! What a server or a client can choose freely, such as the numbers of errors, is counted under
//! names of ours, so that no peer can make the list of counters longer. Codes of integrations, for
//! which the operator vouches, have their own names, up to a number.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use colibri_protocol::Code;
use parking_lot::Mutex;

/// Upper bounds of the latency buckets, nanoseconds: from what a warm call adds to the longest
/// usual time limit.
const BOUNDS: [u64; 18] = [
    100_000,
    250_000,
    500_000,
    1_000_000,
    2_500_000,
    5_000_000,
    10_000_000,
    25_000_000,
    50_000_000,
    100_000_000,
    250_000_000,
    500_000_000,
    1_000_000_000,
    2_500_000_000,
    5_000_000_000,
    10_000_000_000,
    30_000_000_000,
    60_000_000_000,
];
/// The counters beside [`Code::ALL`]: the first for tools' own failures, the last for every number
/// of a server.
const MORE_CODES: [&str; 3] = ["TOOL_ERROR", "CANCELLED", "RPC_ERROR"];
const CODES: usize = Code::ALL.len() + MORE_CODES.len();
const TOOL_ERROR: usize = Code::ALL.len();
const RPC_ERROR: usize = CODES - 1;

/// The most codes of integrations that a server has counters for; further ones are `TOOL_ERROR`.
const MAX_REPORTED: usize = 32;

fn codes() -> impl Iterator<Item = &'static str> {
    Code::ALL.iter().map(|code| code.name()).chain(MORE_CODES)
}

/// Counters of the calls that one server, or the daemon itself, answered.
#[derive(Debug)]
pub struct CallMetrics {
    buckets: [AtomicU64; BOUNDS.len() + 1],
    nanoseconds: AtomicU64,
    errors: [AtomicU64; CODES],
    /// Failures that integrations reported, by their codes.
    reported: Mutex<BTreeMap<Box<str>, u64>>,
    strays: AtomicU64,
    asked: AtomicU64,
}

impl Default for CallMetrics {
    fn default() -> CallMetrics {
        CallMetrics {
            buckets: [const { AtomicU64::new(0) }; BOUNDS.len() + 1],
            nanoseconds: AtomicU64::new(0),
            errors: [const { AtomicU64::new(0) }; CODES],
            reported: Mutex::default(),
            strays: AtomicU64::new(0),
            asked: AtomicU64::new(0),
        }
    }
}

/// The counts at one time.
#[derive(Debug, Clone, PartialEq)]
pub struct CounterSnapshot {
    /// Calls by latency: the bucket's upper bound in seconds, the last one infinite, and the calls
    /// in it alone.
    pub buckets: Vec<(f64, u64)>,
    /// All latencies together, seconds.
    pub seconds: f64,
    /// Failed calls by code; codes that did not occur are left out.
    pub errors: Vec<(Cow<'static, str>, u64)>,
    /// Answers that nobody waited for: late, a second time, or to nothing that was asked.
    pub strays: u64,
    /// Requests of the server that went to clients.
    pub asked: u64,
}

impl CounterSnapshot {
    /// Finished calls.
    pub fn calls(&self) -> u64 {
        self.buckets.iter().map(|(_, count)| count).sum()
    }
}

impl CallMetrics {
    /// Counts a finished call. `code` says why it failed, if it did.
    pub fn count(&self, code: Option<&str>, latency: Duration) {
        let nanoseconds = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        let bucket = BOUNDS.partition_point(|bound| *bound < nanoseconds);
        self.buckets[bucket].fetch_add(1, Ordering::Relaxed);
        self.nanoseconds.fetch_add(nanoseconds, Ordering::Relaxed);
        if let Some(code) = code {
            let is_counted = || self.count_reported(code);
            let index = match codes().position(|known| known == code) {
                Some(index) => index,
                // A server's own numbers have no letters.
                None if !code.starts_with(|first: char| first.is_ascii_uppercase()) => RPC_ERROR,
                None if is_counted() => return,
                None => TOOL_ERROR,
            };
            self.errors[index].fetch_add(1, Ordering::Relaxed);
        }
    }

    /// Counts a failure that an integration reported. False: it has no counter, and gets none any
    /// more.
    fn count_reported(&self, code: &str) -> bool {
        let mut reported = self.reported.lock();
        if let Some(count) = reported.get_mut(code) {
            *count += 1;
            return true;
        }
        let has_room = reported.len() < MAX_REPORTED;
        if has_room {
            reported.insert(code.into(), 1);
        }
        has_room
    }

    /// Counts an answer that nobody waits for.
    pub(crate) fn count_stray(&self) {
        self.strays.fetch_add(1, Ordering::Relaxed);
    }

    /// Counts a request of the server that goes to a client.
    pub(crate) fn count_asked(&self) {
        self.asked.fetch_add(1, Ordering::Relaxed);
    }

    /// The counts until now. Calls that finish meanwhile may be in one number and not in another.
    pub fn counted(&self) -> CounterSnapshot {
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let bounds = BOUNDS
            .iter()
            .map(|bound| *bound as f64 / 1e9)
            .chain([f64::INFINITY]);
        let errors = codes().map(Cow::Borrowed).zip(self.errors.iter().map(read));
        let reported = self.reported.lock().clone();
        let reported = reported
            .into_iter()
            .map(|(code, count)| (Cow::Owned(code.into()), count));
        CounterSnapshot {
            buckets: bounds.zip(self.buckets.iter().map(read)).collect(),
            seconds: read(&self.nanoseconds) as f64 / 1e9,
            errors: errors
                .filter(|(_, count)| *count > 0)
                .chain(reported)
                .collect(),
            strays: read(&self.strays),
            asked: read(&self.asked),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_in_the_bucket_that_ends_at_or_above_its_latency() {
        let metrics = CallMetrics::default();
        for nanoseconds in [0, 100_000, 100_001, 60_000_000_000, 60_000_000_001] {
            metrics.count(None, Duration::from_nanos(nanoseconds));
        }
        metrics.count_asked();
        let counted = metrics.counted();
        assert_eq!((counted.asked, counted.strays), (1, 0));
        let filled: Vec<_> = counted
            .buckets
            .iter()
            .filter(|(_, count)| *count > 0)
            .collect();
        assert_eq!(
            filled,
            [&(0.0001, 2), &(0.00025, 1), &(60.0, 1), &(f64::INFINITY, 1)]
        );
        assert_eq!((counted.calls(), counted.errors.len()), (5, 0));
        assert!(
            (counted.seconds - 120.000_200_002).abs() < 1e-6,
            "{}",
            counted.seconds
        );
        assert!(BOUNDS.is_sorted());
    }

    #[test]
    fn codes_that_others_choose_are_counted_under_one_name() {
        let metrics = CallMetrics::default();
        for code in [
            "GATE_CLOSED",
            "CANCELLED",
            "-32603",
            "-32000",
            "x\"} 1\n",
            "",
        ] {
            metrics.count(Some(code), Duration::ZERO);
        }
        let mut errors = metrics.counted().errors;
        errors.sort_unstable();
        assert_eq!(
            errors,
            named([("CANCELLED", 1), ("GATE_CLOSED", 1), ("RPC_ERROR", 4)])
        );
    }

    fn named<const N: usize>(errors: [(&'static str, u64); N]) -> [(Cow<'static, str>, u64); N] {
        errors.map(|(code, count)| (code.into(), count))
    }

    #[test]
    fn codes_of_integrations_have_their_own_names_up_to_a_number() {
        let metrics = CallMetrics::default();
        let more: Vec<String> = (1..MAX_REPORTED + 3).map(|at| format!("A{at}")).collect();
        for code in ["MODEL_BUSY", "MODEL_BUSY"]
            .into_iter()
            .chain(more.iter().map(String::as_str))
        {
            metrics.count(Some(code), Duration::ZERO);
        }
        let errors = metrics.counted().errors;
        assert_eq!(errors.len(), MAX_REPORTED + 1);
        let of = |name: &str| {
            errors
                .iter()
                .find(|(code, _)| code == name)
                .map(|(_, count)| *count)
        };
        assert_eq!(
            [of("MODEL_BUSY"), of("A1"), of("TOOL_ERROR")],
            [Some(2), Some(1), Some(3)]
        );
    }
}
