//! Numbers as JSON writes them, kept exact: never a double.
//!
//! A number's canonical form is its sign, its significant digits without zeros at either end, and, unless it is 0, the
//! power of ten that multiplies them: `-12.50` is `-125e-1`, `1000` is `1e3`, `0`, `-0` and `0e9` are `0`. Two numbers
//! are equal if and only if their canonical forms are.

/// Maximum number of digits in an exponent; a number with more cannot be in an identity.
const EXPONENT_DIGITS_MAX: usize = 18;

/// A number whose exponent has too many digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TooLong;

/// Whether this is a number by JSON's grammar with a canonical form.
pub(super) fn is_number(text: &[u8]) -> bool {
    let parts = Parts::of(text);
    let (whole, exponent) = (parts.whole, parts.exponent.map(unsigned));
    let digits = |digits: &[u8]| !digits.is_empty() && digits.iter().all(u8::is_ascii_digit);
    digits(whole)
        && (whole.len() == 1 || whole[0] != b'0')
        && parts.fraction.is_none_or(digits)
        && exponent.is_none_or(digits)
        && write_canonical(text, &mut Vec::new()).is_ok()
}

/// A number's text, split into its parts.
struct Parts<'a> {
    negative: bool,
    whole: &'a [u8],
    fraction: Option<&'a [u8]>,
    exponent: Option<&'a [u8]>,
}

impl<'a> Parts<'a> {
    fn of(text: &'a [u8]) -> Self {
        let (negative, rest) = match text.strip_prefix(b"-") {
            Some(rest) => (true, rest),
            None => (false, text),
        };
        let (rest, exponent) = split(rest, |byte| matches!(byte, b'e' | b'E'));
        let (whole, fraction) = split(rest, |byte| byte == b'.');
        Self { negative, whole, fraction, exponent }
    }
}

fn split(text: &[u8], at: impl Fn(u8) -> bool) -> (&[u8], Option<&[u8]>) {
    match text.iter().position(|&byte| at(byte)) {
        Some(i) => (&text[..i], Some(&text[i + 1..])),
        None => (text, None),
    }
}

fn unsigned(exponent: &[u8]) -> &[u8] {
    exponent.strip_prefix(b"-").or_else(|| exponent.strip_prefix(b"+")).unwrap_or(exponent)
}

fn trim_start(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    &digits[zeros..]
}

fn trim_end(digits: &[u8]) -> &[u8] {
    let zeros = digits.iter().rev().take_while(|&&digit| digit == b'0').count();
    &digits[..digits.len() - zeros]
}

/// Appends the canonical form of `text`, which must be a number by JSON's grammar; for anything else the output is
/// unspecified.
pub(super) fn write_canonical(text: &[u8], out: &mut Vec<u8>) -> Result<(), TooLong> {
    // Nearly every number is an integer that is its own canonical form.
    if let [b'1'..=b'9', .., b'1'..=b'9'] | [b'1'..=b'9'] = text
        && text.iter().all(u8::is_ascii_digit)
    {
        out.extend_from_slice(text);
        return Ok(());
    }
    let parts = Parts::of(text);
    let mut whole = trim_start(parts.whole);
    let mut fraction = trim_end(parts.fraction.unwrap_or_default());
    // The power of ten of the last digit written.
    let mut exponent = -(fraction.len() as i64);
    if whole.is_empty() {
        fraction = trim_start(fraction);
    }
    if fraction.is_empty() {
        let trimmed = trim_end(whole);
        exponent += (whole.len() - trimmed.len()) as i64;
        whole = trimmed;
    }
    if whole.is_empty() && fraction.is_empty() {
        out.push(b'0');
        return Ok(());
    }
    exponent += exponent_value(parts.exponent.unwrap_or_default())?;
    if parts.negative {
        out.push(b'-');
    }
    out.extend_from_slice(whole);
    out.extend_from_slice(fraction);
    if exponent != 0 {
        out.push(b'e');
        out.extend_from_slice(format_i64(exponent, &mut [0; 20]));
    }
    Ok(())
}

/// Whether this is a negative zero written as a floating-point number, such as `-0.0` or `-0e1`: only those have a
/// signed zero.
pub(super) fn is_negative_float_zero(text: &[u8]) -> bool {
    text.starts_with(b"-") && {
        let Parts { whole, fraction, exponent, .. } = Parts::of(text);
        let is_float = fraction.is_some() || exponent.is_some();
        is_float && whole.iter().chain(fraction.unwrap_or_default()).all(|&digit| digit == b'0')
    }
}

/// An exponent's value. Numbers have fewer than 2^62 digits, so adding their count cannot overflow.
fn exponent_value(text: &[u8]) -> Result<i64, TooLong> {
    let digits = trim_start(unsigned(text));
    if digits.len() > EXPONENT_DIGITS_MAX {
        return Err(TooLong);
    }
    let value = digits.iter().fold(0, |value, digit| value * 10 + i64::from(digit.wrapping_sub(b'0') % 10));
    Ok(if text.starts_with(b"-") { -value } else { value })
}

/// An integer in decimal.
pub(super) fn format_i64(value: i64, digits: &mut [u8; 20]) -> &[u8] {
    let mut from = write_digits(value.unsigned_abs(), digits);
    if value < 0 {
        from -= 1;
        digits[from] = b'-';
    }
    &digits[from..]
}

/// An unsigned integer in decimal.
pub(super) fn format_u64(value: u64, digits: &mut [u8; 20]) -> &[u8] {
    let from = write_digits(value, digits);
    &digits[from..]
}

/// Writes an integer to the end of `digits`; returns where it begins.
fn write_digits(value: u64, digits: &mut [u8; 20]) -> usize {
    let mut from = digits.len();
    let mut rest = value;
    loop {
        from -= 1;
        digits[from] = b'0' + (rest % 10) as u8;
        rest /= 10;
        if rest == 0 {
            return from;
        }
    }
}

/// A canonical form as a person would write it: `1000` for `1e3`, `0.5` for `5e-1`, `1e300` as it is.
pub(super) fn humanize(canonical: &str) -> String {
    const ZEROS_MAX: u64 = 20;
    let (sign, unsigned) = match canonical.strip_prefix('-') {
        Some(rest) => ("-", rest),
        None => ("", canonical),
    };
    let Some((digits, exponent)) = unsigned.split_once('e') else { return canonical.to_owned() };
    let exponent = exponent.parse::<i64>().unwrap_or(i64::MAX);
    if exponent.unsigned_abs() > ZEROS_MAX {
        return canonical.to_owned();
    }
    let places = exponent.unsigned_abs() as usize;
    if exponent >= 0 {
        return format!("{sign}{digits}{:0<places$}", "");
    }
    let padded = format!("{digits:0>0$}", places + 1);
    let (whole, fraction) = padded.split_at(padded.len() - places);
    format!("{sign}{whole}.{fraction}")
}

#[cfg(test)]
mod tests;
