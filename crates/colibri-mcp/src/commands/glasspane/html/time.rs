//! Times of the trail, as milliseconds since the epoch and back.

use std::time::{SystemTime, UNIX_EPOCH};

use colibri_trail::RecordFilter;
use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// The continuation of a time that is cut short.
const BEGINNING: &str = "0000-01-01T00:00:00.000";

/// The beginning of a time in any of the forms that the trail's filter takes. `None`: it is none.
pub(super) fn millis(text: &str) -> Option<u64> {
    if !RecordFilter::is_time(text) {
        return None;
    }
    let text = text.strip_suffix('Z').unwrap_or(text);
    let rest = BEGINNING.get(text.len().min(BEGINNING.len())..)?;
    let whole = [text, rest].concat();
    let time: DateTime = whole.parse().ok()?;
    let time = TimeZone::UTC.to_timestamp(time).ok()?;
    u64::try_from(time.as_millisecond()).ok()
}

/// The present time.
pub(crate) fn now() -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    u64::try_from(now.as_millis()).unwrap_or(u64::MAX)
}

/// A time as the trail's filter takes it.
pub(super) fn text(millis: u64) -> String {
    let time = Timestamp::from_millisecond(millis.try_into().unwrap_or(i64::MAX))
        .unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
}

/// A time in UTC for people, to the second.
pub(super) fn utc(millis: u64) -> String {
    text(millis).get(..19).unwrap_or_default().replace('T', " ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_they_are_written() {
        for time in [
            0,
            951_782_400_123,
            951_868_799_000,
            1_795_300_200_007,
            4_107_542_400_000,
        ] {
            assert_eq!(millis(&text(time)), Some(time), "{}", text(time));
        }
        assert_eq!(
            millis("2026-11-21T22:30:00.123456Z"),
            Some(1_795_300_200_123)
        );
        assert_eq!(millis("2026-11-21"), millis("2026-11-21T00:00:00Z"));
        assert_eq!(millis("2026"), millis("2026-01-01"));
        assert_eq!(utc(1_795_300_200_007), "2026-11-21 22:30:00");
        for none in ["", "x", "2026-13-01", "1600", "2026-11-2\u{e9}", "99999"] {
            assert_eq!(millis(none), None, "{none}");
        }
    }
}
