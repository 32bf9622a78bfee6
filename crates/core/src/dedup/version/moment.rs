//! Timestamps: exact, however fine and however far away.

use crate::dedup::timestamp;
use crate::dedup::vocabulary::TimeUnit;

use super::decimal::{Parts, parts, push_pairs, take_pairs};
use super::describe::take_integer;
use super::{DIGITS_MAX, NotVersion, push_i64, push_i128, push_integer};

/// Precedes the digits behind those of the nanoseconds. Greater than any byte that precedes a part, so that a moment
/// between two nanoseconds sorts above the lower of them, whatever follows.
const FINER: u8 = 4;
/// The digits of a second's nanoseconds.
const NANOSECOND_DIGITS: usize = 9;

/// Appends the encoding of a moment: nanoseconds since 1970, rounded down, and the digits behind theirs, without zeros at
/// the end.
pub(in crate::dedup) fn push_moment(
    nanoseconds: i128,
    finer: &[u8],
    digits_max: usize,
    out: &mut Vec<u8>,
) -> Result<(), NotVersion> {
    let digits = NANOSECOND_DIGITS + finer.len();
    if !finer.is_empty() && digits > digits_max.min(DIGITS_MAX) {
        return Err(NotVersion::TooLong(digits));
    }
    push_i128(nanoseconds, out);
    push_finer(finer, out);
    Ok(())
}

fn push_finer(finer: &[u8], out: &mut Vec<u8>) {
    if !finer.is_empty() {
        out.push(FINER);
        push_pairs(finer, out);
    }
}

/// Appends the encoding of the timestamp that is `text` units after 1970.
pub(in crate::dedup) fn push_moment_number(
    text: &[u8],
    unit: TimeUnit,
    digits_max: usize,
    scratch: &mut Vec<u8>,
    limbs: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<(), NotVersion> {
    let Parts { negative, digits, exponent } = parts(text, digits_max, scratch)?;
    if digits.is_empty() {
        push_i64(0, out);
        return Ok(());
    }
    let exponent = exponent
        + match unit {
            TimeUnit::Seconds => 9,
            TimeUnit::Milliseconds => 6,
            TimeUnit::Microseconds => 3,
            TimeUnit::Nanoseconds => 0,
        };
    let Ok(zeros) = usize::try_from(exponent) else {
        let places = usize::try_from(exponent.unsigned_abs()).unwrap_or(usize::MAX);
        return push_fraction((negative, digits), places, digits_max, limbs, out);
    };
    let length = digits.len().saturating_add(zeros);
    if length > digits_max.min(DIGITS_MAX) {
        return Err(NotVersion::TooLong(length));
    }
    if length <= 38 {
        let value = digits.iter().fold(0, |value: i128, digit| value * 10 + i128::from(digit - b'0'));
        let value = value * 10_i128.pow(zeros as u32);
        push_i128(if negative { -value } else { value }, out);
        return Ok(());
    }
    let start = usize::from(negative);
    scratch.truncate(start + length - zeros);
    scratch.resize(start + length, b'0');
    push_integer(scratch, digits_max, limbs, out)
}

/// Appends the encoding of the nanoseconds that these digits are, of which the last is not 0, with this many places behind
/// the point.
fn push_fraction(
    (negative, digits): (bool, &[u8]),
    places: usize,
    digits_max: usize,
    limbs: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<(), NotVersion> {
    let length = digits.len().max(places);
    if length > digits_max.min(DIGITS_MAX) {
        return Err(NotVersion::TooLong(length));
    }
    let mut padded = vec![b'0'; places.saturating_sub(digits.len())];
    padded.extend_from_slice(digits);
    let (whole, finer) = padded.split_at(padded.len() - places);
    if !negative {
        let whole = if whole.is_empty() { b"0" } else { whole };
        push_integer(whole, digits_max, limbs, out)?;
        push_finer(finer, out);
        return Ok(());
    }
    // Rounded down: one more before 1970, and what is missing of it behind that.
    push_integer(&next_below(whole), DIGITS_MAX, limbs, out)?;
    push_finer(&rest_to_one(finer), out);
    Ok(())
}

/// The number before the negative one with these digits, as text.
fn next_below(digits: &[u8]) -> Vec<u8> {
    let mut text = b"-0".to_vec();
    text.extend_from_slice(digits);
    for digit in text[1..].iter_mut().rev() {
        if *digit != b'9' {
            *digit += 1;
            break;
        }
        *digit = b'0';
    }
    text
}

/// What is missing to 1 of a fraction whose last digit is not 0.
fn rest_to_one(finer: &[u8]) -> Vec<u8> {
    let Some((last, others)) = finer.split_last() else { return Vec::new() };
    let mut rest: Vec<u8> = others.iter().map(|digit| b'9' - (digit - b'0')).collect();
    rest.push(b'9' + 1 - (last - b'0'));
    rest
}

/// A moment as JSON: RFC 3339 in UTC; beyond its years, a number of nanoseconds.
pub(super) fn take_moment(rest: &mut &[u8]) -> Option<String> {
    let nanoseconds = take_integer(rest)?;
    let finer = match rest.strip_prefix(&[FINER]) {
        Some(after) => {
            *rest = after;
            take_pairs(rest).filter(|finer| !finer.is_empty())?
        }
        None => String::new(),
    };
    let known = nanoseconds.parse::<i128>().ok();
    if let Some(text) = known.and_then(|known| timestamp::format(known, &finer)) {
        return Some(format!("\"{text}\""));
    }
    match known {
        _ if finer.is_empty() => Some(nanoseconds),
        Some(known) if known < 0 => {
            let finer = String::from_utf8(rest_to_one(finer.as_bytes())).ok()?;
            Some(format!("-{}.{finer}", (known + 1).unsigned_abs()))
        }
        _ => Some(format!("{nanoseconds}.{finer}")).filter(|text| !text.starts_with('-')),
    }
}
