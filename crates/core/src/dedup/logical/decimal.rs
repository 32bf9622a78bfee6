//! Decimals as Connect writes them: an unscaled integer in two's complement, the highest byte first, and a scale.

use super::Unlike;

/// The maximum number of bytes: about 10,000 digits, more than any database has.
const BYTES_MAX: usize = 4_152;
/// The maximum number of decimal places, as in PostgreSQL.
const SCALE_MAX: u32 = 16_383;
/// 10^18: the digits are found 18 at a time.
const CHUNK: u128 = 1_000_000_000_000_000_000;
/// The digits of 2^127.
const SMALL_DIGITS_MAX: usize = 39;

/// Appends the number in decimal. Nothing is allocated for a number of up to 128 bits.
pub(in crate::dedup) fn write(unscaled: &[u8], scale: i32, out: &mut Vec<u8>) -> Result<(), Unlike> {
    if unscaled.is_empty() || unscaled.len() > BYTES_MAX || scale.unsigned_abs() > SCALE_MAX {
        return Err(Unlike);
    }
    let is_negative = unscaled[0] & 0x80 != 0;
    let (mut buffer, large);
    let digits = if unscaled.len() <= size_of::<i128>() {
        buffer = [0; SMALL_DIGITS_MAX];
        small_digits(unscaled, is_negative, &mut buffer)
    } else {
        large = digits(&magnitude(unscaled, is_negative));
        &large
    };
    if is_negative {
        out.push(b'-');
    }
    let places = scale.unsigned_abs() as usize;
    if scale <= 0 {
        let zeros = if digits == b"0" { 0 } else { places };
        out.extend_from_slice(digits);
        out.resize(out.len() + zeros, b'0');
        return Ok(());
    }
    // At least one digit stands before the point.
    let zeros = (places + 1).saturating_sub(digits.len());
    out.resize(out.len() + zeros, b'0');
    out.extend_from_slice(digits);
    out.insert(out.len() - places, b'.');
    Ok(())
}

/// The decimal digits of the absolute value, without leading zeros; for at most 16 bytes.
fn small_digits<'b>(unscaled: &[u8], is_negative: bool, buffer: &'b mut [u8; SMALL_DIGITS_MAX]) -> &'b [u8] {
    let fill = if is_negative { -1_i128 } else { 0 };
    let mut rest = unscaled.iter().fold(fill, |value, &byte| value << 8 | i128::from(byte)).unsigned_abs();
    let mut from = buffer.len();
    let mut push = |mut word: u64, digits_min: usize| {
        let until = from - digits_min;
        while word != 0 || from > until {
            from -= 1;
            buffer[from] = b'0' + (word % 10) as u8;
            word /= 10;
        }
    };
    while rest > u128::from(u64::MAX) {
        push((rest % CHUNK) as u64, 18);
        rest /= CHUNK;
    }
    push(rest as u64, 1);
    &buffer[from..]
}

/// The absolute value's bytes, the highest first.
fn magnitude(unscaled: &[u8], is_negative: bool) -> Vec<u8> {
    if !is_negative {
        return unscaled.to_vec();
    }
    let mut bytes: Vec<u8> = unscaled.iter().map(|byte| !byte).collect();
    for byte in bytes.iter_mut().rev() {
        let (sum, is_carried) = byte.overflowing_add(1);
        *byte = sum;
        if !is_carried {
            break;
        }
    }
    bytes
}

/// The decimal digits of an integer, without leading zeros.
fn digits(bytes: &[u8]) -> Vec<u8> {
    // The lowest first.
    let mut chunks: Vec<u64> = Vec::new();
    let head = bytes.len() % 8;
    let words = std::iter::once(&bytes[..head]).chain(bytes[head..].chunks(8));
    for word in words {
        let mut carry = word.iter().fold(0_u128, |value, &byte| value << 8 | u128::from(byte));
        for chunk in &mut chunks {
            let wide = (u128::from(*chunk) << 64) + carry;
            (*chunk, carry) = ((wide % CHUNK) as u64, wide / CHUNK);
        }
        while carry != 0 {
            chunks.push((carry % CHUNK) as u64);
            carry /= CHUNK;
        }
    }
    let mut text = chunks.last().unwrap_or(&0).to_string();
    for chunk in chunks.iter().rev().skip(1) {
        text.push_str(&format!("{chunk:018}"));
    }
    text.into_bytes()
}

#[cfg(test)]
mod tests {
    //! Goal: every integer and every scale gives the exact number.

    use proptest::prelude::*;

    use super::*;

    fn written(unscaled: &[u8], scale: i32) -> Result<String, Unlike> {
        let mut out = Vec::new();
        write(unscaled, scale, &mut out).map(|()| String::from_utf8(out).unwrap())
    }

    #[test]
    fn decimals_are_exact() {
        for (unscaled, scale, expected) in [
            (&[0x00][..], 0, "0"),
            (&[0x00], 2, "0.00"),
            (&[0x00], -3, "0"),
            (&[0xff], 2, "-0.01"),
            (&[0x80], 0, "-128"),
            (&[0x00, 0x80], 0, "128"),
            (&[0x04, 0xd2], 2, "12.34"),
            (&[0x01], -3, "1000"),
            (&[0xd7, 0x6d, 0xf8], 2, "-26588.24"),
            (&[0x80, 0, 0, 0, 0, 0, 0, 0], 0, "-9223372036854775808"),
            (&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], 10, "236118324143.4822606847"),
        ] {
            assert_eq!(written(unscaled, scale).as_deref(), Ok(expected), "{unscaled:?} {scale}");
        }
    }

    #[test]
    fn what_no_database_has_is_refused() {
        for (unscaled, scale) in [(&[][..], 0), (&[1], 16_384), (&[1], i32::MIN), (&[1; BYTES_MAX + 1], 0)] {
            assert_eq!(written(unscaled, scale), Err(Unlike));
        }
        assert_eq!(written(&[1; BYTES_MAX], 0).unwrap().len(), 9_997);
    }

    proptest! {
        #[test]
        fn integers_of_any_size_are_exact(number in any::<i128>(), padding in 0..9_usize, scale in -40..40_i32) {
            let fill = if number < 0 { 0xff } else { 0 };
            let bytes = [vec![fill; padding], number.to_be_bytes().to_vec()].concat();
            prop_assert_eq!(written(&bytes, 0).unwrap(), number.to_string());
            let text = written(&bytes, scale).unwrap();
            let (whole, places) = text.split_once('.').unwrap_or((&text, ""));
            prop_assert_eq!(places.len(), scale.max(0) as usize);
            // As many zeros follow as a negative scale says; zero has none.
            let zeros = if number == 0 { 0 } else { scale.min(0).unsigned_abs() as usize };
            let (whole, zeros) = whole.split_at(whole.len() - zeros);
            prop_assert!(zeros.bytes().all(|digit| digit == b'0'), "{}", text);
            prop_assert_eq!(format!("{whole}{places}").parse::<i128>().unwrap(), number);
        }
    }
}
