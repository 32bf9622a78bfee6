//! Timestamps as text: RFC 3339, exact, with any number of digits after the point.
//!
//! A space instead of the `T` is accepted, and so is a missing zone, which means UTC: `2020-05-13 15:40:06.000000`. A
//! leap second counts as the second before it.

use std::borrow::Cow;

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// A moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Moment<'a> {
    /// Nanoseconds since 1970, rounded down.
    pub nanoseconds: i128,
    /// The digits behind those of the nanoseconds, without zeros at the end.
    pub finer: &'a [u8],
}

/// The moment that a text names; `None` if it is no date with a time, as versions of the kind `timestamp` have to be.
pub fn parse(text: &[u8]) -> Option<Moment<'_>> {
    let text = std::str::from_utf8(text).ok().filter(|text| is_date_and_time(text.as_bytes()))?;
    let (text, finer) = split_finer(text);
    let (text, shift) = earlier(text);
    let has_zone = text.as_bytes()[DATE..].iter().any(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-'));
    let moment = if has_zone {
        text.parse::<Timestamp>().ok()?
    } else {
        TimeZone::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()?
    };
    Some(Moment { nanoseconds: moment.as_nanosecond() + shift, finer })
}

/// The text with nine digits after the point at most, and those that were behind them, without zeros at the end.
fn split_finer(text: &str) -> (Cow<'_, str>, &[u8]) {
    let Some(fraction) = text[SECONDS..].strip_prefix('.') else { return (text.into(), b"") };
    let digits = fraction.bytes().take_while(u8::is_ascii_digit).count();
    if digits <= NANOSECOND_DIGITS {
        return (text.into(), b"");
    }
    let (until, from) = (SECONDS + 1 + NANOSECOND_DIGITS, SECONDS + 1 + digits);
    let finer = &text.as_bytes()[until..from];
    let length = finer.iter().rposition(|&digit| digit != b'0').map_or(0, |last| last + 1);
    (format!("{}{}", &text[..until], &text[from..]).into(), &finer[..length])
}

/// A time that the calendar here does not reach in every zone (it ends a day before the year 9999 does) as the same one
/// four hundred years earlier, and how many nanoseconds lie between.
fn earlier(text: Cow<'_, str>) -> (Cow<'_, str>, i128) {
    let year = text[..YEAR].parse::<u32>().ok().filter(|year| *year >= LATE_YEAR);
    match year {
        Some(year) => (format!("{:04}{}", year - CYCLE_YEARS, &text[YEAR..]).into(), CYCLE_NANOSECONDS),
        None => (text, 0),
    }
}

/// After this many years the calendar repeats itself.
const CYCLE_YEARS: u32 = 400;
const CYCLE_NANOSECONDS: i128 = 146_097 * 86_400 * 1_000_000_000;
/// A year that is beyond the calendar's end in no zone, four hundred years earlier.
const LATE_YEAR: u32 = 9_600;
/// The last nanosecond of the year 9999.
const LAST: i128 = 253_402_300_799_999_999_999;
const NANOSECOND_DIGITS: usize = 9;
/// `2020`.
const YEAR: usize = 4;
/// `2020-05-13T15:40:06`.
const SECONDS: usize = 19;
/// `2020-05-13`.
const DATE: usize = 10;

/// Whether this begins with a date and a time, and holds nothing but digits and the separators: what some parsers also
/// read as times (dates alone, weeks, zone names) is not RFC 3339.
fn is_date_and_time(text: &[u8]) -> bool {
    let shape = b"0000-00-00T00:00:00";
    let fits = |(&byte, &shape): (&u8, &u8)| match shape {
        b'0' => byte.is_ascii_digit(),
        b'T' => matches!(byte, b'T' | b't' | b' '),
        other => byte == other,
    };
    text.len() >= shape.len()
        && text.iter().zip(shape).all(fits)
        && text[shape.len()..].iter().all(|byte| matches!(byte, b'0'..=b'9' | b'.' | b':' | b'+' | b'-' | b'Z' | b'z'))
}

/// A timestamp in RFC 3339, in UTC, with these digits behind those of its nanoseconds; `None` beyond the years that it can
/// express.
pub(super) fn format(nanoseconds: i128, finer: &str) -> Option<String> {
    let text = match Timestamp::from_nanosecond(nanoseconds) {
        Ok(moment) => moment.to_string(),
        Err(_) if (0..=LAST).contains(&nanoseconds) => {
            let text = Timestamp::from_nanosecond(nanoseconds - CYCLE_NANOSECONDS).ok()?.to_string();
            let year = text.get(..YEAR)?.parse::<u32>().ok()?;
            format!("{:04}{}", year + CYCLE_YEARS, &text[YEAR..])
        }
        Err(_) => return None,
    };
    if finer.is_empty() {
        return Some(text);
    }
    let whole = text.strip_suffix('Z')?;
    let (seconds, fraction) = whole.split_once('.').unwrap_or((whole, ""));
    Some(format!("{seconds}.{fraction:0<NANOSECOND_DIGITS$}{finer}Z"))
}

#[cfg(test)]
mod tests;
