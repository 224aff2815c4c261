//! Times of the trail, as milliseconds since the epoch and back.

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

/// A time as the trail's filter takes it.
pub(super) fn text(millis: u64) -> String {
    let time = Timestamp::from_millisecond(millis.try_into().unwrap_or(i64::MAX)).unwrap_or(Timestamp::MAX);
    format!("{time:.3}")
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
        assert_eq!(millis("2026-11-21T22:30:00.123456Z"), Some(1_795_300_200_123));
        assert_eq!(millis("2026-11-21"), millis("2026-11-21T00:00:00Z"));
        assert_eq!(millis("2026"), millis("2026-01-01"));
        for none in ["", "x", "2026-13-01", "1600", "2026-11-2\u{e9}", "99999"] {
            assert_eq!(millis(none), None, "{none}");
        }
    }
}
