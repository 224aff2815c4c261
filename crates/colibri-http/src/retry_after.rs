//! The time after which a server allows another request (`Retry-After`, RFC 9110 §10.2.3).

use std::time::{Duration, SystemTime};

use hyper::header::RETRY_AFTER;
use jiff::fmt::rfc2822;

use super::client::ResponseStream;

impl ResponseStream {
    /// The time after which the server allows another request, if it sent one: seconds, or a date.
    pub fn retry_after(&self) -> Option<Duration> {
        let value = self.header(RETRY_AFTER.as_str())?.trim();
        if let Ok(seconds) = value.parse::<u32>() {
            return Some(Duration::from_secs(seconds.into()));
        }
        let left = http_date(value)?.duration_since(SystemTime::now());
        Some(left.unwrap_or_default())
    }
}

/// A date in HTTP's current format (`Sun, 06 Nov 1994 08:49:37 GMT`), which is one of RFC 2822's.
fn http_date(text: &str) -> Option<SystemTime> {
    text.strip_suffix(" GMT")?;
    rfc2822::parse(text)
        .ok()
        .map(|date| date.timestamp().into())
}

#[cfg(test)]
mod tests {
    use std::time::UNIX_EPOCH;

    use super::*;

    #[test]
    fn dates_are_read() {
        let seconds =
            |text| http_date(text).map(|date| date.duration_since(UNIX_EPOCH).unwrap().as_secs());
        assert_eq!(seconds("Thu, 01 Jan 1970 00:00:00 GMT"), Some(0));
        assert_eq!(seconds("Sun, 06 Nov 1994 08:49:37 GMT"), Some(784_111_777));
        assert_eq!(
            seconds("Tue, 29 Feb 2028 12:00:00 GMT"),
            Some(1_835_438_400)
        );
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
