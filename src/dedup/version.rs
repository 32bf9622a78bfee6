//! The bytes of a version: their order is the versions' order, so that comparing is `memcmp`.
//!
//! An integer is its sign and length, then its magnitude, big-endian, without leading zero bytes. With n
//! bytes of magnitude (0 for the number 0), the head is the byte `80 + n`, or, where n is 127 or more,
//! `ff` and n in two bytes. A negative integer is the complement of every byte of its absolute value's
//! encoding.
//!
//! | integer | bytes |
//! |---|---|
//! | -256 | `7d fe ff` |
//! | -1 | `7e fe` |
//! | 0 | `80` |
//! | 1 | `81 01` |
//! | 255 | `81 ff` |
//! | 2^64 | `89 01 00 00 00 00 00 00 00 00` |

use crate::format;

/// More digits are never read, whatever the limits say: reading takes time by the square of them.
pub const DIGITS_MAX: usize = 10_000;

/// 10^18, the greatest power of ten by which a u64 is still read and written digit by digit.
const CHUNK: u64 = 1_000_000_000_000_000_000;
const CHUNK_DIGITS: usize = 18;

/// The least length of a magnitude that does not fit into the head's byte.
const LONG: usize = 0x7f;

/// A text that is not a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotInteger {
    /// Something other than digits, with at most a minus sign before them.
    NotDecimal,
    /// This many digits, which is more than the limit.
    TooLong(usize),
}

/// Appends the encoding of the decimal integer `text`; leading zeros are fine. `limbs` is scratch space.
pub(super) fn push_decimal(
    text: &[u8],
    digits_max: usize,
    limbs: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<(), NotInteger> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NotInteger::NotDecimal);
    }
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    if digits.len() > digits_max.min(DIGITS_MAX) {
        return Err(NotInteger::TooLong(digits.len()));
    }
    if digits.len() <= CHUNK_DIGITS {
        push_u64(negative, read_chunk(digits), out);
        return Ok(());
    }
    limbs.clear();
    let (first, rest) = digits.split_at(digits.len() % CHUNK_DIGITS);
    limbs.push(read_chunk(first));
    for chunk in rest.chunks(CHUNK_DIGITS) {
        let mut carry = read_chunk(chunk);
        for limb in limbs.iter_mut() {
            let wide = u128::from(*limb) * u128::from(CHUNK) + u128::from(carry);
            (*limb, carry) = (wide as u64, (wide >> 64) as u64);
        }
        if carry != 0 {
            limbs.push(carry);
        }
    }
    let from = out.len();
    let top = limbs.iter().rposition(|&limb| limb != 0).unwrap_or(0);
    let top_bytes = 8 - limbs[top].leading_zeros() as usize / 8;
    push_head(top * 8 + top_bytes, out);
    out.extend_from_slice(&limbs[top].to_be_bytes()[8 - top_bytes..]);
    limbs[..top].iter().rev().for_each(|limb| out.extend_from_slice(&limb.to_be_bytes()));
    if negative {
        complement(&mut out[from..]);
    }
    Ok(())
}

/// Appends the encoding of an integer.
pub(super) fn push_i64(value: i64, out: &mut Vec<u8>) {
    push_u64(value < 0, value.unsigned_abs(), out);
}

fn push_u64(negative: bool, magnitude: u64, out: &mut Vec<u8>) {
    let from = out.len();
    let length = 8 - magnitude.leading_zeros() as usize / 8;
    push_head(length, out);
    out.extend_from_slice(&magnitude.to_be_bytes()[8 - length..]);
    // There is one zero only.
    if negative && magnitude != 0 {
        complement(&mut out[from..]);
    }
}

fn push_head(length: usize, out: &mut Vec<u8>) {
    if length < LONG {
        out.push(0x80 + length as u8);
    } else {
        // DIGITS_MAX digits take 4,153 bytes.
        out.push(0xff);
        out.extend_from_slice(&(length as u16).to_be_bytes());
    }
}

fn complement(bytes: &mut [u8]) {
    bytes.iter_mut().for_each(|byte| *byte = !*byte);
}

fn read_chunk(digits: &[u8]) -> u64 {
    digits.iter().fold(0, |value, digit| value * 10 + u64::from(digit.wrapping_sub(b'0')))
}

/// A version in human-readable form: the integer in decimal; bytes that are none in hex, behind `0x`.
pub fn describe(version: &[u8]) -> String {
    describe_integer(version).unwrap_or_else(|| format!("0x{}", format::hex(version)))
}

fn describe_integer(version: &[u8]) -> Option<String> {
    let negative = *version.first()? < 0x80;
    let mut bytes = version.to_vec();
    if negative {
        complement(&mut bytes);
    }
    let (&head, rest) = bytes.split_first()?;
    let (length, magnitude) = match usize::from(head.wrapping_sub(0x80)) {
        LONG => {
            let (length, magnitude) = rest.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(*length)), magnitude)
        }
        length => (length, rest),
    };
    let is_second_zero = negative && length == 0;
    if magnitude.len() != length || magnitude.first() == Some(&0) || is_second_zero {
        return None;
    }
    let digits = decimal(magnitude);
    Some(if negative { format!("-{digits}") } else { digits })
}

/// A big-endian magnitude in decimal.
fn decimal(magnitude: &[u8]) -> String {
    let mut limbs: Vec<u64> =
        magnitude.rchunks(8).map(|chunk| chunk.iter().fold(0, |limb, &byte| limb << 8 | u64::from(byte))).collect();
    let mut chunks = Vec::new();
    while limbs.iter().any(|&limb| limb != 0) {
        let mut rest = 0;
        for limb in limbs.iter_mut().rev() {
            let wide = u128::from(rest) << 64 | u128::from(*limb);
            *limb = (wide / u128::from(CHUNK)) as u64;
            rest = (wide % u128::from(CHUNK)) as u64;
        }
        chunks.push(rest);
    }
    let mut text = chunks.pop().unwrap_or(0).to_string();
    chunks.iter().rev().for_each(|chunk| text.push_str(&format!("{chunk:018}")));
    text
}

#[cfg(test)]
mod tests;
