//! Times as the trail writes them, and the days that name its segments.

use std::time::SystemTime;

/// Writes times as RFC 3339 in UTC with microseconds, and keeps the text of the last second.
#[derive(Debug, Default)]
pub(crate) struct Clock {
    second: u64,
    text: Vec<u8>,
}

impl Clock {
    /// Appends `,"timestamp":"2026-11-21T22:30:00.000000Z"`. Times before 1970 are written as 1970.
    pub(crate) fn write(&mut self, out: &mut Vec<u8>, time: SystemTime) {
        let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
        if self.text.is_empty() || self.second != since.as_secs() {
            let second = since.as_secs();
            let date = Date::of(time);
            let of_day = second % 86_400;
            self.text.clear();
            for (value, width, mark) in [
                (date.year, 4, b'-'),
                (date.month, 2, b'-'),
                (date.day, 2, b'T'),
                (of_day / 3600, 2, b':'),
                (of_day / 60 % 60, 2, b':'),
                (of_day % 60, 2, b'.'),
            ] {
                padded(&mut self.text, value, width);
                self.text.push(mark);
            }
            self.second = second;
        }
        out.extend_from_slice(b",\"timestamp\":\"");
        out.extend_from_slice(&self.text);
        padded(out, since.subsec_micros().into(), 6);
        out.extend_from_slice(b"Z\"");
    }
}

fn padded(out: &mut Vec<u8>, mut value: u64, width: usize) {
    let from = out.len();
    out.resize(from + width, b'0');
    for digit in out[from..].iter_mut().rev() {
        *digit = b'0' + (value % 10) as u8;
        value /= 10;
    }
}

/// A calendar day in UTC, ordered by time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Date {
    /// The year of the Gregorian calendar.
    pub year: u64,
    /// 1 to 12.
    pub month: u64,
    /// 1 to 31.
    pub day: u64,
}

impl Date {
    /// The day of a time: Gregorian calendar by the cycle of 400 years, counted from 1 March of year 0. One before
    /// 1970 is 1 January 1970.
    pub fn of(time: SystemTime) -> Self {
        let days = time
            .duration_since(SystemTime::UNIX_EPOCH)
            .unwrap_or_default()
            .as_secs()
            / 86_400
            + 719_468;
        let (cycle, of_cycle) = (days / 146_097, days % 146_097);
        let year = (of_cycle - of_cycle / 1460 + of_cycle / 36_524 - of_cycle / 146_096) / 365;
        let of_year = of_cycle - (365 * year + year / 4 - year / 100);
        let march = (5 * of_year + 2) / 153;
        let month = if march < 10 { march + 3 } else { march - 9 };
        Self {
            year: cycle * 400 + year + u64::from(month <= 2),
            month,
            day: of_year - (153 * march + 2) / 5 + 1,
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn the_clock_knows_leap_years_and_repeats_itself() {
        let mut clock = Clock::default();
        for (second, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (68_169_599, "1972-02-28T23:59:59.000000Z"),
            (68_169_600, "1972-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            let mut out = Vec::new();
            clock.write(&mut out, SystemTime::UNIX_EPOCH + Duration::from_secs(second));
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!(",\"timestamp\":\"{expected}\"")
            );
        }
    }
}
