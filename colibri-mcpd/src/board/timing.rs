//! The times of a schedule: cron's five fields, an interval in seconds, or one time. All in UTC, as the trail has its
//! times: no hour is there twice, and none is left out.

use colibri_api::Timing;

/// Milliseconds of a second, a minute, a day.
const SECOND: u64 = 1000;
const MINUTE: u64 = 60 * SECOND;
const DAY: u64 = 24 * 60 * MINUTE;
/// The longest distance of a searched time: 29 February on a given weekday comes at least so often (1896 to 1936).
const AHEAD_DAYS: u64 = 366 * 41;
/// The longest time between two runs: a year.
const MAX_EVERY_S: u64 = 366 * 86_400;

/// The next time that is later than `after`, if there is one.
///
/// # Errors
/// What is wrong with the timing.
pub(super) fn next(timing: &Timing, after: u64) -> Result<Option<u64>, String> {
    match (&timing.cron, timing.every_s, &timing.at) {
        (Some(cron), None, None) => Cron::parse(cron).map(|cron| cron.next(after)),
        (None, Some(every), None) if (1..=MAX_EVERY_S).contains(&every) => Ok(Some(after + every * SECOND)),
        (None, Some(_), None) => Err(format!("every_s must be 1 to {MAX_EVERY_S}")),
        (None, None, Some(at)) => instant(at).map(|at| (at > after).then_some(at)),
        _ => Err("one of cron, every_s and at must be given".to_owned()),
    }
}

/// The five fields: which minutes, hours, days, months and weekdays, a bit for each.
#[derive(Debug, PartialEq, Eq)]
struct Cron {
    minutes: u64,
    hours: u64,
    days: u64,
    months: u64,
    weekdays: u64,
    /// Both days and weekdays are restricted: either is enough.
    either: bool,
}

const MONTHS: [&str; 12] = [
    "jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec",
];
const WEEKDAYS: [&str; 7] = ["sun", "mon", "tue", "wed", "thu", "fri", "sat"];

impl Cron {
    fn parse(text: &str) -> Result<Cron, String> {
        let fields: Vec<_> = text.split_ascii_whitespace().collect();
        let [minute, hour, day, month, weekday] = fields[..] else {
            let found = fields.len();
            return Err(format!(
                "cron needs five fields (minute hour day month weekday), not {found}"
            ));
        };
        // 7 is Sunday, too.
        let weekdays = field("weekday", weekday, (0, 7), &WEEKDAYS)?;
        Ok(Cron {
            minutes: field("minute", minute, (0, 59), &[])?,
            hours: field("hour", hour, (0, 23), &[])?,
            days: field("day", day, (1, 31), &[])?,
            months: field("month", month, (1, 12), &MONTHS)?,
            weekdays: (weekdays | weekdays >> 7) & 0x7F,
            either: !day.starts_with('*') && !weekday.starts_with('*'),
        })
    }

    fn next(&self, after: u64) -> Option<u64> {
        let from = (after / MINUTE + 1) * MINUTE;
        (from / DAY..from / DAY + AHEAD_DAYS)
            .filter(|day| self.is_day(*day))
            .find_map(|day| {
                let first = if day == from / DAY { from % DAY / MINUTE } else { 0 };
                let mut minutes = first..24 * 60;
                let minute = minutes.find(|minute| has(self.hours, minute / 60) && has(self.minutes, minute % 60))?;
                Some(day * DAY + minute * MINUTE)
            })
    }

    fn is_day(&self, since_1970: u64) -> bool {
        let (_, month, day) = civil(since_1970);
        // 1970-01-01 was a Thursday.
        let (day, weekday) = (has(self.days, day), has(self.weekdays, (since_1970 + 4) % 7));
        has(self.months, month) && if self.either { day || weekday } else { day && weekday }
    }
}

fn has(set: u64, number: u64) -> bool {
    set >> number & 1 == 1
}

/// Reads one field: a list of `*`, numbers, names and ranges, each with a step.
fn field(name: &str, text: &str, (least, most): (u64, u64), names: &[&str]) -> Result<u64, String> {
    let wrong = |part: &str| {
        format!(
            "cron: {name} {:?} is not within {least} to {most}",
            colibri_text::brief(part, 20)
        )
    };
    let number = |part: &str| {
        let named = names.iter().position(|name| name.eq_ignore_ascii_case(part));
        let number = match named {
            Some(at) => at as u64 + least,
            None if part.bytes().all(|byte| byte.is_ascii_digit()) => part.parse().map_err(|_| wrong(part))?,
            None => return Err(wrong(part)),
        };
        (least..=most)
            .contains(&number)
            .then_some(number)
            .ok_or_else(|| wrong(part))
    };
    let mut set = 0;
    for part in text.split(',') {
        let (range, step) = match part.split_once('/') {
            Some((range, step)) => (range, Some(step)),
            None => (part, None),
        };
        let (first, last) = match range.split_once('-') {
            _ if range == "*" => (least, most),
            Some((first, last)) => (number(first)?, number(last)?),
            None if step.is_some() => (number(range)?, most),
            None => (number(range)?, number(range)?),
        };
        let is_number = |step: &&str| !step.is_empty() && step.bytes().all(|byte| byte.is_ascii_digit());
        let step: usize = match step {
            None => 1,
            Some(step) => Some(step)
                .filter(is_number)
                .and_then(|step| step.parse().ok())
                .unwrap_or(0),
        };
        if step == 0 || first > last {
            return Err(wrong(part));
        }
        set |= (first..=last).step_by(step).fold(0, |set, number| set | 1 << number);
    }
    Ok(set)
}

/// Year, month and day of a day since 1970-01-01 (the proleptic Gregorian calendar, by eras of 400 years).
fn civil(since_1970: u64) -> (u64, u64, u64) {
    let days = since_1970 + 719_468;
    let (era, of_era) = (days / 146_097, days % 146_097);
    let year = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year + year / 4 - year / 100);
    let shifted = (5 * of_year + 2) / 153;
    let day = of_year - (153 * shifted + 2) / 5 + 1;
    let month = if shifted < 10 { shifted + 3 } else { shifted - 9 };
    (year + era * 400 + u64::from(month <= 2), month, day)
}

/// Reads an RFC 3339 time in UTC or with an offset, from 1970 on, as milliseconds since then.
fn instant(text: &str) -> Result<u64, String> {
    let wrong = || {
        format!(
            "at must be a time such as 2026-11-24T03:00:00Z, not {:?}",
            colibri_text::brief(text, 40)
        )
    };
    let number = |from: usize, to: usize| {
        let digits = text
            .get(from..to)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_digit()));
        digits.and_then(|digits| digits.parse::<u64>().ok()).ok_or_else(wrong)
    };
    let marks = [(4, b'-'), (7, b'-'), (10, b'T'), (13, b':'), (16, b':')];
    if marks.iter().any(|(at, mark)| text.as_bytes().get(*at) != Some(mark)) {
        return Err(wrong());
    }
    let (year, month, day) = (number(0, 4)?, number(5, 7)?, number(8, 10)?);
    let (hour, minute, second) = (number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let offset = match text.get(19..) {
        Some("Z") => 0,
        Some(zone) if zone.len() == 6 && zone.as_bytes()[3] == b':' && number(20, 22)? < 24 && number(23, 25)? < 60 => {
            let minutes = (number(20, 22)? * 60 + number(23, 25)?).cast_signed();
            match zone.as_bytes()[0] {
                b'+' => -minutes,
                b'-' => minutes,
                _ => return Err(wrong()),
            }
        }
        _ => return Err(wrong()),
    };
    let month_index = (month + 9) % 12;
    let shifted_year = (year + 400).checked_sub(u64::from(month <= 2)).ok_or_else(wrong)?;
    let (era, of_era) = (shifted_year / 400, shifted_year % 400);
    let of_year = (153 * month_index + 2) / 5 + day.checked_sub(1).ok_or_else(wrong)?;
    let days = (era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year).checked_sub(719_468 + 146_097);
    let days = days
        .filter(|days| civil(*days) == (year, month, day))
        .ok_or_else(wrong)?;
    if hour > 23 || minute > 59 || second > 59 {
        return Err(wrong());
    }
    let minutes = (days * 24 * 60 + hour * 60 + minute)
        .checked_add_signed(offset)
        .ok_or_else(wrong)?;
    Ok(minutes * MINUTE + second * SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
            let ((year, month, day), minute) = (civil(after / DAY), after % DAY / MINUTE);
            assert_eq!(after % MINUTE, 0);
            runs.push(format!(
                "{year}-{month:02}-{day:02} {:02}:{:02}",
                minute / 60,
                minute % 60
            ));
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
        assert_eq!(next(&cron("0 0 30 2 *"), 0), Ok(None), "a day that never comes");
        let every = |every| Timing {
            every_s: Some(every),
            ..Timing::default()
        };
        assert_eq!(next(&every(60), 5), Ok(Some(60_005)));
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
        assert_eq!(instant("1970-01-01T00:00:00Z"), Ok(0));
        assert_eq!(instant("2026-11-23T05:59:30Z"), Ok(1_795_413_570_000));
        assert_eq!(instant("2026-11-23T06:59:30+01:00"), Ok(1_795_413_570_000));
        assert_eq!(instant("2026-11-22T23:59:30-06:00"), Ok(1_795_413_570_000));
        for text in [
            "",
            "tomorrow",
            "2026-02-29T00:00:00Z",
            "2026-13-01T00:00:00Z",
            "2026-00-01T00:00:00Z",
            "2026-01-00T00:00:00Z",
            "2026-01-01T24:00:00Z",
            "2026-01-01T00:60:00Z",
            "2026-01-01 00:00:00Z",
            "2026-01-01T00:00:00",
            "1969-12-31T23:59:59Z",
            "2026-01-01T00:00:00+1:000",
            "2026-01-01T00:00:00+24:00",
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
        assert_eq!(next(&at("1970-01-01T00:01:00Z"), 0), Ok(Some(MINUTE)));
        assert_eq!(next(&at("1970-01-01T00:01:00Z"), MINUTE), Ok(None));
    }

    proptest! {
        #[test]
        fn any_text_is_read_or_refused(text in "[0-9*/,a-z -]{0,30}", after in 0..4_000_000_000_000_u64) {
            if let Ok(Some(at)) = next(&cron(&text), after) {
                prop_assert!(at > after && at % MINUTE == 0);
            }
        }

        #[test]
        fn days_are_counted_as_they_are_written(day in 0..60_000_u64) {
            let (year, month, of_month) = civil(day);
            let text = format!("{year:04}-{month:02}-{of_month:02}T00:00:00Z");
            prop_assert_eq!(instant(&text), Ok(day * DAY));
        }
    }
}
