//! The names of segments, `0000000042-20261121.jsonl`: an ordinal that only grows, so that names
//! sort in the order of writing even if the clock goes back, and the day it was begun.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use crate::time::utc;

/// The name of a segment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SegmentName {
    /// Counts from 1, without gaps.
    pub ordinal: u64,
    /// The day it was begun, as the number 20261121.
    pub day: u64,
}

impl SegmentName {
    pub(crate) fn new(ordinal: u64, time: SystemTime) -> Self {
        let date = utc(time);
        let [year, month, day] =
            [date.year(), date.month().into(), date.day().into()].map(|part| part.unsigned_abs());
        Self {
            ordinal,
            day: u64::from(year) * 10_000 + u64::from(month) * 100 + u64::from(day),
        }
    }

    /// True if a record of this time belongs in a later segment. The day before is taken too:
    /// records of midnight may be out of order. One further back tells that the clock had gone
    /// ahead when the segment was named.
    pub(crate) fn is_of_another_day(&self, time: SystemTime) -> bool {
        let day = |time| Self::new(self.ordinal, time).day;
        day(time) > self.day || day(time + Duration::from_secs(86_400)) < self.day
    }

    /// Reads a file name with the given extension, `jsonl` for a segment, `seal` for what is left
    /// of a dropped one.
    #[must_use]
    pub fn parse(name: &str, extension: &str) -> Option<Self> {
        let stem = name.strip_suffix(extension)?.strip_suffix('.')?;
        let (ordinal, day) = stem.split_once('-')?;
        if ordinal.len() < 10
            || day.len() < 8
            || !stem.bytes().all(|b| b.is_ascii_digit() || b == b'-')
        {
            return None;
        }
        let parsed = Self {
            // There is always one after it.
            ordinal: ordinal.parse().ok().filter(|n| *n < u64::MAX)?,
            day: day.parse().ok()?,
        };
        (parsed.to_string() == stem).then_some(parsed)
    }

    /// Its file in `dir`.
    #[must_use]
    pub fn path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}.jsonl"))
    }

    /// The file in `dir` that keeps its last seal after it was dropped.
    #[must_use]
    pub(crate) fn seal_path(&self, dir: &Path) -> PathBuf {
        dir.join(format!("{self}.seal"))
    }
}

impl std::fmt::Display for SegmentName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:010}-{:08}", self.ordinal, self.day)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_sort_by_ordinal_and_round_trip() {
        let name = SegmentName {
            ordinal: 42,
            day: 20_261_121,
        };
        assert_eq!(name.to_string(), "0000000042-20261121");
        assert_eq!(
            SegmentName::parse("0000000042-20261121.jsonl", "jsonl"),
            Some(name)
        );
        for bad in [
            "42-20261121.jsonl",
            "0000000042-20261121.seal",
            "x",
            "-.jsonl",
            "0000000042-2026-1121.jsonl",
            "+000000042-20261121.jsonl",
            "00000000042-20261121.jsonl",
            "18446744073709551615-20261121.jsonl",
        ] {
            assert_eq!(SegmentName::parse(bad, "jsonl"), None, "{bad}");
        }
        assert!(
            SegmentName {
                ordinal: 9,
                day: 20_270_101
            } < SegmentName {
                ordinal: 10,
                day: 20_260_101
            }
        );
    }
}
