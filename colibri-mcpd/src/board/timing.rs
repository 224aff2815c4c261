//! The times of a schedule: cron's five fields, an interval in seconds, or one time. All in UTC, as
//! the trail has its times: no hour is there twice, and none is left out.

use anyhow::{Context as _, anyhow, bail};
use colibri_api::Timing;
use colibri_text::brief;
use cronexpr::{FallbackTimezoneOption, ParseOptions, parse_crontab_with};
use jiff::Timestamp;

/// Milliseconds of a second.
const SECOND: u64 = 1000;
/// The longest time between two runs: a year.
const MAX_EVERY_S: u64 = 366 * 86_400;

/// The next time that is later than `after`, if there is one.
///
/// # Errors
/// The fault of the timing.
pub(super) fn next(timing: &Timing, after: u64) -> anyhow::Result<Option<u64>> {
    match (&timing.cron, timing.every_s, &timing.at) {
        (Some(cron), None, None) => next_of_cron(cron, after),
        (None, Some(every), None) if (1..=MAX_EVERY_S).contains(&every) => {
            Ok(Some(after + every * SECOND))
        }
        (None, Some(_), None) => Err(anyhow!("every_s must be 1 to {MAX_EVERY_S}")),
        (None, None, Some(at)) => instant(at).map(|at| (at > after).then_some(at)),
        _ => Err(anyhow!("one of cron, every_s and at must be given")),
    }
}

/// The next time that the five fields name; `None`: none within four years, as of 30 February.
fn next_of_cron(text: &str, after: u64) -> anyhow::Result<Option<u64>> {
    let fields = text.split_ascii_whitespace().count();
    if fields != 5 {
        bail!("cron needs five fields (minute hour day month weekday), not {fields}");
    }
    let mut options = ParseOptions::default();
    options.fallback_timezone_option = FallbackTimezoneOption::UTC;
    let cron = parse_crontab_with(text, options).map_err(|error| {
        // Its last line has the fault, below the field that has it.
        let said = error.to_string();
        let fault = said.rsplit('^').next().unwrap_or_default().trim();
        anyhow!("cron {:?}: {}", brief(text, 60), brief(fault, 100))
    })?;
    let after = Timestamp::from_millisecond(after.try_into()?)?;
    let next = cron.find_next(after).ok();
    Ok(next.map(|next| next.timestamp().as_millisecond().unsigned_abs()))
}

/// Reads an RFC 3339 time in UTC or with an offset, from 1970 on, as milliseconds since then.
fn instant(text: &str) -> anyhow::Result<u64> {
    let time = text.parse().map(Timestamp::as_millisecond).ok();
    time.and_then(|time| u64::try_from(time).ok())
        .with_context(|| {
            format!(
                "at must be a time from 1970 on such as 2026-11-24T03:00:00Z, not {:?}",
                brief(text, 40)
            )
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const MINUTE: u64 = 60 * SECOND;

    fn cron(text: &str) -> Timing {
        Timing {
            cron: Some(text.to_owned()),
            ..Timing::default()
        }
    }

    /// The next three runs, as times of the day they are on.
    fn runs(text: &str, after: &str) -> Vec<String> {
        let mut after = instant(after).unwrap();
        let mut runs = Vec::new();
        for _ in 0..3 {
            after = next(&cron(text), after).unwrap().unwrap();
            assert_eq!(after % MINUTE, 0);
            let run = Timestamp::from_millisecond(after.cast_signed()).unwrap();
            runs.push(run.strftime("%F %H:%M").to_string());
        }
        runs
    }

    #[test]
    fn the_five_fields() {
        let now = "2026-11-23T05:59:30Z";
        for (text, wanted) in [
            (
                "* * * * *",
                ["2026-11-23 06:00", "2026-11-23 06:01", "2026-11-23 06:02"],
            ),
            (
                "*/20 6,7 * * *",
                ["2026-11-23 06:00", "2026-11-23 06:20", "2026-11-23 06:40"],
            ),
            (
                "0 3 * * *",
                ["2026-11-24 03:00", "2026-11-25 03:00", "2026-11-26 03:00"],
            ),
            (
                "59 5 * * mon",
                ["2026-11-30 05:59", "2026-12-07 05:59", "2026-12-14 05:59"],
            ),
            (
                "0 0 * * 7",
                ["2026-11-29 00:00", "2026-12-06 00:00", "2026-12-13 00:00"],
            ),
            (
                "0 0 1 * 5",
                ["2026-11-27 00:00", "2026-12-01 00:00", "2026-12-04 00:00"],
            ),
            (
                "0 12 29 feb *",
                ["2028-02-29 12:00", "2032-02-29 12:00", "2036-02-29 12:00"],
            ),
            (
                "5-10/5 0 31 */6 *",
                ["2027-01-31 00:05", "2027-01-31 00:10", "2027-07-31 00:05"],
            ),
            (
                "0 22-23 * JAN-MAR sat,sun",
                ["2027-01-02 22:00", "2027-01-02 23:00", "2027-01-03 22:00"],
            ),
            (
                "30/15 0 1 1 *",
                ["2027-01-01 00:30", "2027-01-01 00:45", "2028-01-01 00:30"],
            ),
        ] {
            assert_eq!(runs(text, now), wanted, "{text}");
        }
    }

    /// UTC goes on where clocks are turned: 2:30 exists once on each of these days.
    #[test]
    fn no_run_is_lost_or_doubled_when_clocks_are_turned() {
        let summer = ["2026-03-28 02:30", "2026-03-29 02:30", "2026-03-30 02:30"];
        assert_eq!(runs("30 2 * * *", "2026-03-28T00:00:00Z"), summer);
        let winter = ["2026-10-24 02:30", "2026-10-25 02:30", "2026-10-26 02:30"];
        assert_eq!(runs("30 2 * * *", "2026-10-24T00:00:00Z"), winter);
    }

    #[test]
    fn what_is_no_timing_is_refused() {
        for text in [
            "",
            "* * * *",
            "* * * * * *",
            "60 * * * *",
            "* 24 * * *",
            "* * 0 * *",
            "* * 32 * *",
            "* * * 0 *",
            "* * * 13 *",
            "* * * * 8",
            "-1 * * * *",
            "+1 * * * *",
            "1- * * * *",
            "5-1 * * * *",
            "*/0 * * * *",
            "*/ * * * *",
            "*/x * * * *",
            "*/+5 * * * *",
            "1,,2 * * * *",
            "a * * * *",
            "* * * foo *",
            "@daily",
            "1.5 * * * *",
            "99999999999999999999 * * * *",
            "\u{661} * * * *",
        ] {
            assert!(next(&cron(text), 0).is_err(), "{text}");
        }
        assert_eq!(
            next(&cron("0 0 30 2 *"), 0).unwrap(),
            None,
            "a day that never comes"
        );
        let every = |every| Timing {
            every_s: Some(every),
            ..Timing::default()
        };
        assert_eq!(next(&every(60), 5).unwrap(), Some(60_005));
        assert!(next(&every(0), 5).is_err() && next(&every(u64::MAX), 5).is_err());
        assert!(next(&Timing::default(), 0).is_err());
        let both = Timing {
            every_s: Some(1),
            ..cron("* * * * *")
        };
        assert!(next(&both, 0).is_err());
    }

    #[test]
    fn a_time_is_read_strictly() {
        assert_eq!(instant("1970-01-01T00:00:00Z").unwrap(), 0);
        assert_eq!(instant("2026-11-23T05:59:30Z").unwrap(), 1_795_413_570_000);
        assert_eq!(
            instant("2026-11-23T06:59:30+01:00").unwrap(),
            1_795_413_570_000
        );
        assert_eq!(
            instant("2026-11-22T23:59:30-06:00").unwrap(),
            1_795_413_570_000
        );
        for text in [
            "",
            "tomorrow",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01T00:00:00",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00+1:000",
            "2026-01-01T00:00:00+26:00",
            "2026-01-01T00:00:00Zx",
            "+026-01-01T00:00:00Z",
            "äöüäöüäöüäöüäöüäöü",
        ] {
            assert!(instant(text).is_err(), "{text}");
        }
        let at = |at: &str| Timing {
            at: Some(at.to_owned()),
            ..Timing::default()
        };
        assert_eq!(next(&at("1970-01-01T00:01:00Z"), 0).unwrap(), Some(MINUTE));
        assert_eq!(next(&at("1970-01-01T00:01:00Z"), MINUTE).unwrap(), None);
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9*/,a-z -]{0,30}", after in 0..4_000_000_000_000_u64) {
            if let Ok(Some(at)) = next(&cron(&text), after) {
                prop_assert!(at > after && at % MINUTE == 0);
            }
        }
    }
}
