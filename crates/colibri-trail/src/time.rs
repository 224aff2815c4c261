//! Times as the trail writes them, and the days that name its segments.

use std::time::SystemTime;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::fmt::temporal::DateTimePrinter;
use jiff::tz::TimeZone;

/// RFC 3339 in UTC, with microseconds.
static PRINTER: DateTimePrinter = DateTimePrinter::new().precision(Some(6));

/// A time between 1970 and the year 9999; one before or after is the nearest of these.
fn timestamp(time: SystemTime) -> Timestamp {
    Timestamp::try_from(time)
        .unwrap_or(Timestamp::MAX)
        .max(Timestamp::UNIX_EPOCH)
}

/// The date and the time of day in UTC. A time before 1970 is 1970.
#[must_use]
pub fn utc(time: SystemTime) -> DateTime {
    TimeZone::UTC.to_datetime(timestamp(time))
}

/// Appends `,"timestamp":"2026-11-21T22:30:00.000000Z"`. A time before 1970 is written as 1970.
pub(crate) fn write_timestamp(out: &mut Vec<u8>, time: SystemTime) {
    out.extend_from_slice(b",\"timestamp\":\"");
    // A vector takes all that is written.
    let _ = PRINTER.print_timestamp(&timestamp(time), &mut *out);
    out.push(b'"');
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn times_are_written_in_utc_with_microseconds() {
        for (second, expected) in [
            (0, "1970-01-01T00:00:00.000000Z"),
            (68_169_599, "1972-02-28T23:59:59.000000Z"),
            (68_169_600, "1972-02-29T00:00:00.000000Z"),
            (951_868_799, "2000-02-29T23:59:59.000000Z"),
            (4_107_542_400, "2100-03-01T00:00:00.000000Z"),
        ] {
            let mut out = Vec::new();
            write_timestamp(
                &mut out,
                SystemTime::UNIX_EPOCH + Duration::from_secs(second),
            );
            assert_eq!(
                String::from_utf8(out).unwrap(),
                format!(",\"timestamp\":\"{expected}\"")
            );
        }
        let mut out = Vec::new();
        write_timestamp(
            &mut out,
            SystemTime::UNIX_EPOCH + Duration::from_nanos(1_000_999),
        );
        assert_eq!(out, b",\"timestamp\":\"1970-01-01T00:00:00.001000Z\"");
        let before = SystemTime::UNIX_EPOCH - Duration::from_secs(1);
        assert_eq!(utc(before), utc(SystemTime::UNIX_EPOCH));
    }
}
