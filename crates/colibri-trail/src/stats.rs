//! Counting: calls, errors and latency by server and tool.

use std::collections::BTreeMap;
use std::io;
use std::ops::ControlFlow;
use std::path::Path;

use crate::show::{RecordFilter, show};

/// Servers and tools that are told apart; tool names come from clients, so there may be any number
/// of them.
const MAX_ROWS: usize = 10_000;

/// Bits of a double that say in which bucket it is: those of the fraction that are left out make
/// the bucket's width. With its four highest there are sixteen buckets for each doubling of the
/// latency, so that quantiles are right to about 3 %.
const BUCKET_SHIFT: u32 = f64::MANTISSA_DIGITS - 1 - 4;

/// The counts for one tool of one server.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct StatsRow {
    /// Calls that ended.
    pub calls: u64,
    /// Those that failed.
    pub errors: u64,
    /// Attempts that failed and were followed by another.
    pub retries: u64,
    /// The longest, milliseconds.
    pub max_ms: f64,
    /// The number of calls by duration: the highest bits of the milliseconds.
    buckets: BTreeMap<u16, u64>,
}

impl StatsRow {
    /// The latency that the share `q` of all calls did not exceed, milliseconds. `None` without
    /// calls.
    #[must_use]
    pub fn quantile_ms(&self, q: f64) -> Option<f64> {
        let rank = (q * self.calls as f64).ceil().max(1.0) as u64;
        let mut seen = 0;
        self.buckets.iter().find_map(|(bucket, count)| {
            seen += count;
            (seen >= rank)
                .then(|| f64::from_bits(((u64::from(*bucket) << 1) | 1) << (BUCKET_SHIFT - 1)))
                .map(|ms| ms.min(self.max_ms))
        })
    }

    fn add(&mut self, latency_ms: f64, failed: bool) {
        self.calls += 1;
        self.errors += u64::from(failed);
        self.max_ms = self.max_ms.max(latency_ms);
        let bucket = (latency_ms.max(0.001).to_bits() >> BUCKET_SHIFT) as u16;
        *self.buckets.entry(bucket).or_default() += 1;
    }
}

/// The counts, by server and tool.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// The rows. Servers and tools beyond ten thousand are counted together under `…`.
    pub rows: BTreeMap<(String, String), StatsRow>,
}

/// Counts the calls of the trail in `dir` that pass `filter`.
///
/// # Errors
/// Where the trail cannot be read.
pub fn stats(dir: &Path, filter: &RecordFilter) -> io::Result<Stats> {
    let mut stats = Stats::default();
    show(dir, filter, None, &mut |record| {
        let fields = &record.fields;
        if matches!(record.kind.as_str(), "exit" | "retry") {
            let mut key = (fields.integration_id.clone(), fields.operation.clone());
            if stats.rows.len() >= MAX_ROWS && !stats.rows.contains_key(&key) {
                key = ("…".into(), "…".into());
            }
            let row = stats.rows.entry(key).or_default();
            if record.kind == "retry" {
                row.retries += 1;
            } else {
                row.add(fields.latency_ms, fields.result == "FAIL");
            }
        }
        ControlFlow::Continue(())
    })?;
    Ok(stats)
}
