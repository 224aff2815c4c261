//! Times of the trail, as milliseconds since the epoch and back.

use std::time::{Duration, UNIX_EPOCH};

use colibri_trail::{Date, RecordFilter};

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
    let number = |at: std::ops::Range<usize>| whole.get(at)?.parse::<u64>().ok();
    let (year, month, day) = (number(0..4)?, number(5..7)?, number(8..10)?);
    let seconds = (number(11..13)? * 60 + number(14..16)?) * 60 + number(17..19)?;
    if !(1970..10_000).contains(&year) || !(1..=12).contains(&month) || !(1..=31).contains(&day) {
        return None;
    }
    // The calendar from 1 March of year 0 on, as in `Date::of`.
    let (march, year) = if month > 2 {
        (month - 3, year)
    } else {
        (month + 9, year - 1)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * march + 2) / 5 + day - 1 - 719_468;
    Some((days * 86_400 + seconds) * 1000 + number(20..23)?)
}

/// A time as the trail's filter takes it.
pub(super) fn text(millis: u64) -> String {
    let Date { year, month, day } = Date::of(UNIX_EPOCH + Duration::from_millis(millis));
    let of_day = millis / 1000 % 86_400;
    let (hours, minutes, seconds) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!(
        "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z",
        millis % 1000
    )
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
