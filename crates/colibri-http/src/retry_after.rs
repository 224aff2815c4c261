//! The time after which a server allows another request (`Retry-After`, RFC 9110 §10.2.3).

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use hyper::header::RETRY_AFTER;

use super::client::ResponseStream;

impl ResponseStream {
    /// The time after which the server allows another request, if it sent one: seconds, or a date.
    pub fn retry_after(&self) -> Option<Duration> {
        let value = self.header(RETRY_AFTER.as_str())?.trim();
        if let Ok(seconds) = value.parse::<u32>() {
            return Some(Duration::from_secs(seconds.into()));
        }
        let until = http_date(value)?;
        let now = SystemTime::now().duration_since(UNIX_EPOCH).ok()?;
        Some(until.saturating_sub(now))
    }
}

/// A date in HTTP's current format (`Sun, 06 Nov 1994 08:49:37 GMT`), as the time since the epoch.
fn http_date(text: &str) -> Option<Duration> {
    const MONTHS: [&str; 12] = [
        "Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec",
    ];
    let mut parts = text.strip_suffix(" GMT")?.split_once(", ")?.1.split(' ');
    let mut number = || parts.next()?.parse::<u64>().ok();
    let day = number()?;
    let month = parts.next()?;
    let month = MONTHS.iter().position(|name| *name == month)? as u64 + 1;
    let year: u64 = parts.next()?.parse().ok()?;
    let mut time = parts.next()?.split(':').map(|part| part.parse::<u64>().ok());
    let (hour, minute, second) = (time.next()??, time.next()??, time.next()??);
    if !(1970..10_000).contains(&year) || !(1..=31).contains(&day) || hour > 23 || minute > 59 || second > 60 {
        return None;
    }
    // Days since the epoch. Years begin in March here, so that a leap day is the last day.
    let (year, month) = if month < 3 {
        (year - 1, month + 9)
    } else {
        (year, month - 3)
    };
    let days = 365 * year + year / 4 - year / 100 + year / 400 + (153 * month + 2) / 5 + day - 1 - 719_468;
    Some(Duration::from_secs(((days * 24 + hour) * 60 + minute) * 60 + second))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_read() {
        let seconds = |text| http_date(text).map(|since| since.as_secs());
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(seconds("Tue, 29 Feb 2028 12:00:00 GMT"), Some(1_835_438_400));
        for wrong in [
            "",
            "now",
            "Sun, 06 Nov 1994",
            "Sun, 99 Nov 1994 08:49:37 GMT",
            "Sun, 06 X 1994 08:49:37 GMT",
        ] {
            assert_eq!(seconds(wrong), None, "{wrong}");
        }
    }
}
