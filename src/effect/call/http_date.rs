//! Dates as HTTP writes them (RFC 9110, section 5.6.7): the preferred form, and the two obsolete ones that a recipient
//! has to understand.
//!
//! | form | example |
//! |---|---|
//! | IMF-fixdate | `Sun, 06 Nov 1994 08:49:37 GMT` |
//! | RFC 850 | `Sunday, 06-Nov-94 08:49:37 GMT` |
//! | asctime | `Sun Nov  6 08:49:37 1994` |
//!
//! The name of the day is not compared with the date: a provider that gets it wrong still means the date. A year of two
//! digits is at most fifty years in the future.

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const DAY_SECONDS: i64 = 86_400;

/// The date, in seconds since the epoch; `None` if the text is not a date. `now_s`, in the same unit, decides what a
/// year of two digits means.
pub fn parse(text: &str, now_s: i64) -> Option<i64> {
    let (day, rest) = text.split_once(' ')?;
    match day.strip_suffix(',') {
        Some(day) if DAYS.contains(&day) => parse_fixdate(rest),
        Some(day) if LONG_DAYS.contains(&day) => parse_rfc850(rest, now_s),
        None if DAYS.contains(&day) => parse_asctime(rest),
        _ => None,
    }
}

/// `06 Nov 1994 08:49:37 GMT`
fn parse_fixdate(text: &str) -> Option<i64> {
    let mut parts = text.split(' ');
    let [day, month, year, time, zone] = take(&mut parts)?;
    let date = (number(year, 4)?, named(month)?, number(day, 2)?);
    (zone == "GMT").then(|| seconds(date, time))?
}

/// `06-Nov-94 08:49:37 GMT`
fn parse_rfc850(text: &str, now_s: i64) -> Option<i64> {
    let mut parts = text.split(' ');
    let [date, time, zone] = take(&mut parts)?;
    let mut parts = date.split('-');
    let [day, month, year] = take(&mut parts)?;
    let (this_year, _, _) = civil(now_s.div_euclid(DAY_SECONDS));
    let year = number(year, 2)? + this_year - this_year.rem_euclid(100);
    // In the latest century in which it is at most fifty years ahead.
    let year = [year + 100, year, year - 100].into_iter().find(|year| *year <= this_year + 50)?;
    (zone == "GMT").then(|| seconds((year, named(month)?, number(day, 2)?), time))?
}

/// `Nov  6 08:49:37 1994`
fn parse_asctime(text: &str) -> Option<i64> {
    let (month, rest) = text.split_once(' ')?;
    let (day, rest) = rest.split_at_checked(2)?;
    let mut parts = rest.strip_prefix(' ')?.split(' ');
    let [time, year] = take(&mut parts)?;
    let day = day.strip_prefix(' ').map_or_else(|| number(day, 2), |day| number(day, 1))?;
    seconds((number(year, 4)?, named(month)?, day), time)
}

/// Exactly this many parts.
fn take<'a, const N: usize>(parts: &mut impl Iterator<Item = &'a str>) -> Option<[&'a str; N]> {
    let mut taken = [""; N];
    for part in &mut taken {
        *part = parts.next()?;
    }
    parts.next().is_none().then_some(taken)
}

/// A number of exactly this many digits.
fn number(text: &str, digits: usize) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// A month, from 1.
fn named(month: &str) -> Option<i64> {
    (1..).zip(MONTHS).find(|(_, name)| *name == month).map(|(number, _)| number)
}

/// Seconds since the epoch of a date (year, month, day) and a time of day. A leap second counts as the second after it.
fn seconds((year, month, day): (i64, i64, i64), time: &str) -> Option<i64> {
    let mut parts = time.split(':');
    let [hour, minute, second] = take(&mut parts)?.map(|part| number(part, 2));
    let (hour, minute, second) = (hour?, minute?, second?);
    let days = days(year, month, day);
    let is_there = civil(days) == (year, month, day) && hour < 24 && minute < 60 && second <= 60;
    is_there.then_some(days * DAY_SECONDS + hour * 3_600 + minute * 60 + second)
}

/// Days since the epoch in the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date algorithms").
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + of_era * 365 + of_era / 4 - of_era / 100 + of_year - 719_468
}

/// Year, month and day of a day since the epoch: the reverse of [`days`], from the same source.
fn civil(days: i64) -> (i64, i64, i64) {
    let days = days + 719_468;
    let (era, of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = (month_from_march + 2) % 12 + 1;
    (era * 400 + year_of_era + i64::from(month <= 2), month, day)
}

#[cfg(test)]
mod tests {
    //! Goal: the three forms are read, and nothing else is.

    use super::*;

    /// 24 November 2026, 00:00.
    const NOW: i64 = 1_795_478_400;

    #[test]
    fn dates_of_the_three_forms_are_read() {
        let cases = [
            ("Sun, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            ("Sunday, 06-Nov-94 08:49:37 GMT", 784_111_777),
            ("Sun Nov  6 08:49:37 1994", 784_111_777),
            ("Sun Nov 16 08:49:37 1994", 784_111_777 + 10 * DAY_SECONDS),
            ("Thu, 01 Jan 1970 00:00:00 GMT", 0),
            ("Wed, 31 Dec 1969 23:59:59 GMT", -1),
            ("Thu, 29 Feb 2024 00:00:00 GMT", 1_709_164_800),
            ("Fri, 01 Mar 2024 00:00:00 GMT", 1_709_251_200),
            ("Tue, 24 Nov 2026 00:00:00 GMT", NOW),
            ("Sat, 31 Dec 2016 23:59:60 GMT", 1_483_228_800),
            ("Fri, 31 Dec 9999 23:59:59 GMT", 253_402_300_799),
            // The day's name is wrong.
            ("Mon, 06 Nov 1994 08:49:37 GMT", 784_111_777),
            // Fifty years ahead, and one more.
            ("Tuesday, 24-Nov-76 00:00:00 GMT", NOW + 18_263 * DAY_SECONDS),
            ("Thursday, 24-Nov-77 00:00:00 GMT", 249_177_600),
            ("Friday, 01-Jan-99 00:00:00 GMT", 915_148_800),
            ("Saturday, 01-Jan-00 00:00:00 GMT", 946_684_800),
        ];
        for (text, expected) in cases {
            assert_eq!(parse(text, NOW), Some(expected), "{text}");
        }
    }

    #[test]
    fn other_texts_are_not_dates() {
        let cases = [
            "",
            "120",
            "Sun",
            "Sun, 06 Nov 1994 08:49:37",
            "Sun, 06 Nov 1994 08:49:37 UTC",
            "Sun, 06 Nov 1994 08:49:37 GMT ",
            "Sun,  06 Nov 1994 08:49:37 GMT",
            "Sun, 6 Nov 1994 08:49:37 GMT",
            "Sun, 06 nov 1994 08:49:37 GMT",
            "Sun, 30 Feb 1994 08:49:37 GMT",
            "Sun, 29 Feb 2023 08:49:37 GMT",
            "Sun, 00 Nov 1994 08:49:37 GMT",
            "Sun, 06 Nov 94 08:49:37 GMT",
            "Sun, 06 Nov 1994 24:00:00 GMT",
            "Sun, 06 Nov 1994 08:60:00 GMT",
            "Sun, 06 Nov 1994 08:49:61 GMT",
            "Sun, 06 Nov 1994 08:49 GMT",
            "Sun, +6 Nov 1994 08:49:37 GMT",
            "Sunday, 06 Nov 1994 08:49:37 GMT",
            "Sun, 06-Nov-94 08:49:37 GMT",
            "Sun Nov 6 08:49:37 1994",
            "Sun Nov  6 08:49:37 1994 GMT",
            "Sun Nov é 08:49:37 1994",
            "1994-11-06T08:49:37Z",
        ];
        for text in cases {
            assert_eq!(parse(text, NOW), None, "{text}");
        }
    }

    #[test]
    fn days_and_dates_are_converted_back_and_forth() {
        for day in (-1_000_000..3_000_000).step_by(7) {
            let (year, month, of_month) = civil(day);
            assert_eq!(days(year, month, of_month), day);
        }
    }
}
