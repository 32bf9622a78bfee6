//! Dates, times and timestamps that are written as numbers, as text that PostgreSQL reads.

use std::io::Write as _;

use super::{Unit, Unlike};

const DAY_S: i64 = 86_400;
/// Debezium's PostgreSQL connector writes infinite timestamps as constants of the JDBC driver. Some releases write them
/// where microseconds are meant, others where milliseconds are.
const INFINITY: i64 = 9_223_372_036_825_200_000;
const NEGATIVE_INFINITY: i64 = -9_223_372_036_832_400_000;
/// The constants divided by 1,000: with `time.precision.mode=connect` the connector takes them for microseconds, and
/// writes milliseconds. Taken literally these are moments of the year 294247 and of 290308 BC.
const INFINITY_MILLIS: i64 = INFINITY / 1_000;
const NEGATIVE_INFINITY_MILLIS: i64 = NEGATIVE_INFINITY / 1_000;
/// No database's calendar reaches further than this many days.
const DAYS_MAX: u64 = 1 << 40;

impl Unit {
    /// How many make a second.
    const fn per_second(self) -> i64 {
        match self {
            Self::Milli => 1_000,
            Self::Micro => 1_000_000,
            Self::Nano => 1_000_000_000,
        }
    }

    /// How many digits a fraction of a second has.
    const fn digits(self) -> usize {
        match self {
            Self::Milli => 3,
            Self::Micro => 6,
            Self::Nano => 9,
        }
    }
}

/// Appends the date that is so many days after 1970 began: `2026-01-31`, or `0044-03-15 BC`.
pub(super) fn write_date(days: i64, out: &mut Vec<u8>) -> Result<(), Unlike> {
    let is_bc = write_day(days, out)?;
    if is_bc {
        out.extend_from_slice(b" BC");
    }
    Ok(())
}

/// Appends a timestamp: `2026-01-31T12:00:00.5`, with `Z` if it is an instant.
pub(super) fn write_timestamp(count: i64, unit: Unit, is_instant: bool, out: &mut Vec<u8>) -> Result<(), Unlike> {
    if let Some(infinity) = infinity(count, unit) {
        out.extend_from_slice(infinity);
        return Ok(());
    }
    let (seconds, fraction) = (count.div_euclid(unit.per_second()), count.rem_euclid(unit.per_second()));
    let is_bc = write_day(seconds.div_euclid(DAY_S), out)?;
    out.push(b'T');
    write_clock(seconds.rem_euclid(DAY_S), fraction, unit, out);
    out.extend_from_slice(if is_instant { b"Z" } else { b"" });
    out.extend_from_slice(if is_bc { b" BC" } else { b"" });
    Ok(())
}

/// The infinity that a connector means by this number, if it means one.
fn infinity(count: i64, unit: Unit) -> Option<&'static [u8]> {
    match (unit, count) {
        (Unit::Milli | Unit::Micro, INFINITY) | (Unit::Milli, INFINITY_MILLIS) => Some(b"infinity"),
        (Unit::Milli | Unit::Micro, NEGATIVE_INFINITY) | (Unit::Milli, NEGATIVE_INFINITY_MILLIS) => Some(b"-infinity"),
        // The constants would be moments of 2262 and 1677. What does not fit becomes the number closest to it.
        (Unit::Nano, i64::MAX) => Some(b"infinity"),
        (Unit::Nano, i64::MIN) => Some(b"-infinity"),
        _ => None,
    }
}

/// Appends a time of day, or a span of time, which may be negative or longer than a day: `12:30:00.25`.
pub(super) fn write_time(count: i64, unit: Unit, out: &mut Vec<u8>) {
    if count < 0 {
        out.push(b'-');
    }
    let (count, per_second) = (count.unsigned_abs(), unit.per_second().unsigned_abs());
    // Both fit: they are less than half of what an unsigned number holds.
    let (seconds, fraction) = ((count / per_second) as i64, (count % per_second) as i64);
    write_clock(seconds, fraction, unit, out);
}

/// Appends hours, minutes and seconds, with a fraction if there is one.
fn write_clock(seconds: i64, fraction: i64, unit: Unit, out: &mut Vec<u8>) {
    // writing to a vector never fails
    let _ = write!(out, "{:02}:{:02}:{:02}", seconds / 3_600, seconds / 60 % 60, seconds % 60);
    if fraction != 0 {
        let _ = write!(out, ".{fraction:0width$}", width = unit.digits());
        let zeros = out.iter().rev().take_while(|byte| **byte == b'0').count();
        out.truncate(out.len() - zeros);
    }
}

/// Appends a day of the Gregorian calendar; returns whether its year is before Christ.
fn write_day(days: i64, out: &mut Vec<u8>) -> Result<bool, Unlike> {
    if days.unsigned_abs() > DAYS_MAX {
        return Err(Unlike);
    }
    let (year, month, day_of_month) = date_of(days);
    let is_bc = year < 1;
    // There is no year 0.
    let year = if is_bc { 1 - year } else { year };
    // writing to a vector never fails
    let _ = write!(out, "{year:04}-{month:02}-{day_of_month:02}");
    Ok(is_bc)
}

/// The year, the month and the day of the month of the date this many days after 1970-01-01, at most [`DAYS_MAX`]. The
/// year before 1 is 0.
pub(in crate::dedup) fn date_of(days: i64) -> (i64, i64, i64) {
    // Years begin in March here, so that a leap day is the last one; 719,468 days lie between 0000-03-01 and 1970.
    let days = days + 719_468;
    let (era, day) = (days.div_euclid(146_097), days.rem_euclid(146_097));
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day_of_year = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day_of_year + 2) / 153;
    let day_of_month = day_of_year - (153 * month + 2) / 5 + 1;
    let (month, year) = if month < 10 { (month + 3, year) } else { (month - 9, year + 1) };
    (year + era * 400, month, day_of_month)
}

#[cfg(test)]
mod tests {
    //! Goal: each number is the moment that it counts to.

    use proptest::prelude::*;

    use super::*;

    fn text(write: impl FnOnce(&mut Vec<u8>) -> Result<(), Unlike>) -> Result<String, Unlike> {
        let mut out = Vec::new();
        write(&mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn dates_are_days_since_1970() {
        for (days, expected) in [
            (0, "1970-01-01"),
            (-1, "1969-12-31"),
            (11_016, "2000-02-29"),
            (19_000, "2022-01-08"),
            (-719_162, "0001-01-01"),
            (-719_163, "0001-12-31 BC"),
            (2_932_897, "10000-01-01"),
        ] {
            assert_eq!(text(|out| write_date(days, out)).as_deref(), Ok(expected), "{days}");
        }
        assert_eq!(text(|out| write_date(i64::MAX, out)), Err(Unlike));
        assert_eq!(text(|out| write_date(i64::MIN + 1, out)), Err(Unlike));
        assert_eq!(text(|out| write_date(i64::MIN, out)), Err(Unlike));
    }

    #[test]
    fn timestamps_count_their_units() {
        for (count, unit, is_instant, expected) in [
            (0, Unit::Milli, true, "1970-01-01T00:00:00Z"),
            (1_529_507_596_945, Unit::Milli, false, "2018-06-20T15:13:16.945"),
            (1_529_507_596_945_104, Unit::Micro, false, "2018-06-20T15:13:16.945104"),
            (1_529_507_596_945_104_100, Unit::Nano, false, "2018-06-20T15:13:16.9451041"),
            (-1, Unit::Micro, false, "1969-12-31T23:59:59.999999"),
            (-62_135_596_800_001, Unit::Milli, true, "0001-12-31T23:59:59.999Z BC"),
            (INFINITY, Unit::Micro, false, "infinity"),
            (NEGATIVE_INFINITY, Unit::Milli, false, "-infinity"),
            (INFINITY, Unit::Nano, false, "2262-04-11T23:47:16.8252"),
        ] {
            assert_eq!(text(|out| write_timestamp(count, unit, is_instant, out)).as_deref(), Ok(expected), "{count}");
        }
    }

    /// With `time.precision.mode=connect` the connector writes both forms, depending on its release.
    #[test]
    fn infinite_timestamps_are_known_in_every_unit() {
        for (count, unit, is_instant, expected) in [
            (9_223_372_036_825_200_000, Unit::Milli, true, "infinity"),
            (-9_223_372_036_832_400_000, Unit::Milli, true, "-infinity"),
            (9_223_372_036_825_200, Unit::Milli, true, "infinity"),
            (-9_223_372_036_832_400, Unit::Milli, true, "-infinity"),
            (9_223_372_036_825_200, Unit::Milli, false, "infinity"),
            (9_223_372_036_825_200, Unit::Micro, false, "2262-04-11T23:47:16.8252"),
            (i64::MAX, Unit::Nano, false, "infinity"),
            (i64::MIN, Unit::Nano, false, "-infinity"),
            (i64::MAX - 1, Unit::Nano, false, "2262-04-11T23:47:16.854775806"),
        ] {
            assert_eq!(text(|out| write_timestamp(count, unit, is_instant, out)).as_deref(), Ok(expected), "{count}");
        }
    }

    proptest! {
        /// Whatever a record says, nothing overflows.
        #[test]
        fn every_number_is_written_or_refused(
            count in prop_oneof![any::<i64>(), Just(i64::MIN), Just(i64::MAX)],
            is_instant in any::<bool>(),
        ) {
            write_date(count, &mut Vec::new()).ok();
            for unit in [Unit::Milli, Unit::Micro, Unit::Nano] {
                write_time(count, unit, &mut Vec::new());
                write_timestamp(count, unit, is_instant, &mut Vec::new()).ok();
            }
        }
    }

    #[test]
    fn times_may_be_negative_or_longer_than_a_day() {
        let time = |count, unit| {
            text(|out| {
                write_time(count, unit, out);
                Ok(())
            })
            .unwrap()
        };
        assert_eq!(time(0, Unit::Milli), "00:00:00");
        assert_eq!(time(54_796_945, Unit::Milli), "15:13:16.945");
        assert_eq!(time(86_400_000_000, Unit::Micro), "24:00:00");
        assert_eq!(time(-3_020_399_000_000, Unit::Micro), "-838:59:59");
        assert_eq!(time(i64::MIN, Unit::Nano), "-2562047:47:16.854775808");
    }

    proptest! {
        /// Neighbouring days are neighbours in the calendar.
        #[test]
        fn days_follow_each_other(days in -800_000_i64..3_000_000) {
            let day = |days| {
                let written = text(|out| write_date(days, out)).unwrap();
                let is_bc = written.ends_with(" BC");
                let parts: Vec<i64> = written.trim_end_matches(" BC").split('-').map(|part| part.parse().unwrap()).collect();
                (if is_bc { 1 - parts[0] } else { parts[0] }, parts[1], parts[2])
            };
            let ((year, month, date), next) = (day(days), day(days + 1));
            let is_leap = year.rem_euclid(4) == 0 && (year.rem_euclid(100) != 0 || year.rem_euclid(400) == 0);
            let length = match month { 2 => if is_leap { 29 } else { 28 }, 4 | 6 | 9 | 11 => 30, _ => 31 };
            let expected = match (date < length, month) {
                (true, _) => (year, month, date + 1),
                (false, 12) => (year + 1, 1, 1),
                (false, _) => (year, month + 1, 1),
            };
            prop_assert_eq!(next, expected);
        }
    }
}
