//! The three forms of dates in HTTP (RFC 9110, section 5.6.7): the preferred one, and two obsolete ones that a
//! recipient has to accept.
//!
//! | form | example |
//! |---|---|
//! | IMF-fixdate | `Sun, 06 Nov 1994 08:49:37 GMT` |
//! | RFC 850 | `Sunday, 06-Nov-94 08:49:37 GMT` |
//! | asctime | `Sun Nov  6 08:49:37 1994` |
//!
//! The name of the day is not compared with the date: a provider that gets the name wrong still means the date. A year
//! of two digits is at most fifty years in the future.

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun"];
const LONG_DAYS: [&str; 7] = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"];
const DAY_SECONDS: i64 = 86_400;

/// Reads a date, in seconds since the epoch; `None` if the text is not a date. `now_s`, in the same unit, decides the
/// century of a year with two digits.
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
    let [day, month, year, time, zone] = exactly(&mut parts)?;
    let date = (parse_digits(year, 4)?, month_number(month)?, parse_digits(day, 2)?);
    (zone == "GMT").then(|| seconds_since_epoch(date, time))?
}

/// `06-Nov-94 08:49:37 GMT`
fn parse_rfc850(text: &str, now_s: i64) -> Option<i64> {
    let mut parts = text.split(' ');
    let [date, time, zone] = exactly(&mut parts)?;
    let mut parts = date.split('-');
    let [day, month, year] = exactly(&mut parts)?;
    let (this_year, _, _) = date_of_day(now_s.div_euclid(DAY_SECONDS));
    let year = parse_digits(year, 2)? + this_year - this_year.rem_euclid(100);
    // The latest century in which the year is at most fifty years ahead.
    let year = [year + 100, year, year - 100].into_iter().find(|year| *year <= this_year + 50)?;
    (zone == "GMT").then(|| seconds_since_epoch((year, month_number(month)?, parse_digits(day, 2)?), time))?
}

/// `Nov  6 08:49:37 1994`
fn parse_asctime(text: &str) -> Option<i64> {
    let (month, rest) = text.split_once(' ')?;
    let (day, rest) = rest.split_at_checked(2)?;
    let mut parts = rest.strip_prefix(' ')?.split(' ');
    let [time, year] = exactly(&mut parts)?;
    let day = day.strip_prefix(' ').map_or_else(|| parse_digits(day, 2), |day| parse_digits(day, 1))?;
    seconds_since_epoch((parse_digits(year, 4)?, month_number(month)?, day), time)
}

/// The parts as an array; `None` if there are not exactly `N`.
fn exactly<'a, const N: usize>(parts: &mut impl Iterator<Item = &'a str>) -> Option<[&'a str; N]> {
    let mut array = [""; N];
    for part in &mut array {
        *part = parts.next()?;
    }
    parts.next().is_none().then_some(array)
}

/// Reads a number of exactly this many digits.
fn parse_digits(text: &str, digits: usize) -> Option<i64> {
    let is_number = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    is_number.then(|| text.parse().ok())?
}

/// The number of a month, from 1.
fn month_number(month: &str) -> Option<i64> {
    (1..).zip(MONTHS).find(|(_, name)| *name == month).map(|(month, _)| month)
}

/// The seconds since the epoch of a date (year, month, day) and a time of day. A leap second counts as the next second.
fn seconds_since_epoch((year, month, day): (i64, i64, i64), time: &str) -> Option<i64> {
    let mut parts = time.split(':');
    let [hour, minute, second] = exactly(&mut parts)?.map(|part| parse_digits(part, 2));
    let (hour, minute, second) = (hour?, minute?, second?);
    let days_since_epoch = days_since_epoch(year, month, day);
    let is_valid = date_of_day(days_since_epoch) == (year, month, day) && hour < 24 && minute < 60 && second <= 60;
    is_valid.then_some(days_since_epoch * DAY_SECONDS + hour * 3_600 + minute * 60 + second)
}

/// The days since the epoch of a date in the Gregorian calendar (Howard Hinnant, "chrono-compatible low-level date
/// algorithms").
fn days_since_epoch(year: i64, month: i64, day: i64) -> i64 {
    let year = year - i64::from(month <= 2);
    let (era, year_of_era) = (year.div_euclid(400), year.rem_euclid(400));
    let day_of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    era * 146_097 + year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year - 719_468
}

/// Year, month and day of the date that is this many days after the epoch: the reverse of [`days_since_epoch`], from
/// the same source.
fn date_of_day(days_since_epoch: i64) -> (i64, i64, i64) {
    let days = days_since_epoch + 719_468;
    let (era, day_of_era) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
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
            // Fifty years ahead, and fifty-one.
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
    fn days_and_dates_convert_back_and_forth() {
        for day in (-1_000_000..3_000_000).step_by(7) {
            let (year, month, day_of_month) = date_of_day(day);
            assert_eq!(days_since_epoch(year, month, day_of_month), day);
        }
    }
}
