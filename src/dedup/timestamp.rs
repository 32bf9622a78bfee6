//! Timestamps as text: RFC 3339, exact to the nanosecond.
//!
//! A space instead of the `T` is accepted, and so is a missing zone, which means UTC: `2020-05-13 15:40:06.000000`. A
//! leap second counts as the second before it.

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// Nanoseconds since 1970.
pub(super) fn parse(text: &[u8]) -> Option<i128> {
    let text = std::str::from_utf8(text).ok().filter(|text| is_date_and_time(text.as_bytes()))?;
    let has_zone = text.as_bytes()[DATE..].iter().any(|byte| matches!(byte, b'Z' | b'z' | b'+' | b'-'));
    let moment = if has_zone {
        text.parse::<Timestamp>().ok()?
    } else {
        TimeZone::UTC.to_timestamp(text.parse::<DateTime>().ok()?).ok()?
    };
    Some(moment.as_nanosecond())
}

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

/// A timestamp in RFC 3339, in UTC; `None` beyond the years that it can express.
pub(super) fn format(nanoseconds: i128) -> Option<String> {
    Timestamp::from_nanosecond(nanoseconds).ok().map(|moment| moment.to_string())
}

#[cfg(test)]
mod tests;
