//! Decimals: exact, of any size.

use crate::dedup::number;

use super::{NotVersion, complement, push_i64};

const ZERO: u8 = 0x80;
const POSITIVE: u8 = 0xc0;

/// A parsed number: the digits times a power of ten. There are no digits for 0.
pub(super) struct Parts<'a> {
    pub negative: bool,
    pub digits: &'a [u8],
    pub exponent: i64,
}

/// Parses a number by JSON's grammar, with leading zeros allowed; `scratch` holds its digits.
pub(super) fn parts<'a>(text: &[u8], digits_max: usize, scratch: &'a mut Vec<u8>) -> Result<Parts<'a>, NotVersion> {
    if !is_decimal(text) {
        return Err(NotVersion::Malformed);
    }
    scratch.clear();
    number::write_canonical(text, scratch).map_err(|_| NotVersion::TooLong(text.len()))?;
    let (negative, unsigned) = match scratch.strip_prefix(b"-") {
        Some(rest) => (true, rest),
        None => (false, &scratch[..]),
    };
    let (digits, exponent) = match unsigned.iter().position(|&byte| byte == b'e') {
        Some(at) => (&unsigned[..at], std::str::from_utf8(&unsigned[at + 1..]).ok()),
        None => (unsigned, Some("0")),
    };
    if digits.len() > digits_max.min(super::DIGITS_MAX) {
        return Err(NotVersion::TooLong(digits.len()));
    }
    let exponent = exponent.and_then(|text| text.parse().ok()).ok_or(NotVersion::TooLong(text.len()))?;
    Ok(Parts { negative, digits: if digits == b"0" { b"" } else { digits }, exponent })
}

/// Digits, optionally preceded by a minus sign and followed by a fraction and an exponent.
fn is_decimal(text: &[u8]) -> bool {
    let text = text.strip_prefix(b"-").unwrap_or(text);
    let (mantissa, exponent) = match text.iter().position(|byte| matches!(byte, b'e' | b'E')) {
        Some(at) => (&text[..at], Some(&text[at + 1..])),
        None => (text, None),
    };
    let (whole, fraction) = match mantissa.iter().position(|&byte| byte == b'.') {
        Some(at) => (&mantissa[..at], Some(&mantissa[at + 1..])),
        None => (mantissa, None),
    };
    let digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    let unsigned = |text: &[u8]| digits(text.strip_prefix(b"-").or(text.strip_prefix(b"+")).unwrap_or(text));
    digits(whole) && fraction.is_none_or(digits) && exponent.is_none_or(unsigned)
}

/// Appends the encoding of the decimal `text`. `scratch` is scratch space.
pub(in crate::dedup) fn push_decimal(
    text: &[u8],
    digits_max: usize,
    scratch: &mut Vec<u8>,
    out: &mut Vec<u8>,
) -> Result<(), NotVersion> {
    let Parts { negative, digits, exponent } = parts(text, digits_max, scratch)?;
    if digits.is_empty() {
        out.push(ZERO);
        return Ok(());
    }
    let from = out.len();
    out.push(POSITIVE);
    push_i64(exponent + digits.len() as i64, out);
    push_pairs(digits, out);
    if negative {
        complement(&mut out[from..]);
    }
    Ok(())
}

/// Appends digits in pairs, each as its number + 1, the last padded with a 0; then a zero byte.
pub(super) fn push_pairs(digits: &[u8], out: &mut Vec<u8>) {
    for pair in digits.chunks(2) {
        let value = |i: usize| pair.get(i).map_or(0, |digit| digit - b'0');
        out.push(10 * value(0) + value(1) + 1);
    }
    out.push(0);
}

/// Takes digits that [`push_pairs`] has appended, without zeros at the end.
pub(super) fn take_pairs(rest: &mut &[u8]) -> Option<String> {
    let end = rest.iter().position(|&byte| byte == 0)?;
    let mut digits = String::new();
    for &pair in &rest[..end] {
        digits.push_str(&format!("{:02}", pair.checked_sub(1).filter(|&pair| pair < 100)?));
    }
    digits.truncate(digits.trim_end_matches('0').len());
    *rest = &rest[end + 1..];
    Some(digits)
}
