//! The bytes of a version: they sort as the versions do, so that comparing is `memcmp`.
//!
//! A version of one part is that part's bytes. In a version of several, a byte precedes each: `01` if the part is
//! missing and sorts lowest, `02` before the part's bytes, `03` if it is missing and sorts highest. Every part's bytes
//! show where they end, so that a later part counts only if all before it are equal.
//!
//! **integer** is its sign and length, then its magnitude, big-endian, without leading zero bytes. With n bytes of
//! magnitude (0 for the number 0), the head is the byte `80 + n`, or, if n is 127 or more, `ff` and n in two bytes. A
//! negative integer is the complement of every byte of its absolute value's encoding.
//!
//! | integer | bytes |
//! |---|---|
//! | -256 | `7d fe ff` |
//! | -1 | `7e fe` |
//! | 0 | `80` |
//! | 1 | `81 01` |
//! | 255 | `81 ff` |
//! | 2^64 | `89 01 00 00 00 00 00 00 00 00` |
//!
//! The others are built from integers and single bytes:
//!
//! | kind | bytes |
//! |---|---|
//! | decimal | `80` for 0. Otherwise `c0`; the integer e for which the number is 0.ddd… × 10^e with a first digit that is not 0; the digits in pairs, each as its number + 1, the last padded with a 0; `00`. A negative one is the complement of all that |
//! | text | its bytes, each `00` as `00 ff`; `00 00` |
//! | timestamp | the integer of its nanoseconds since 1970, rounded down. If that is not all of it: `04`; its further digits in pairs, each as its number + 1, the last padded with a 0; `00` |
//! | hex, sequence | `02` and an integer for each group or element, `01` for null; `00` |
//! | binlog | the same for the file's number and, if there is one, the position. The base name is part of the scope |
//!
//! So a list that is a prefix of another sorts lower, and null sorts below every number. A timestamp between two
//! nanoseconds sorts above the lower of them, whatever follows that one: `04` is greater than what precedes a part.
//! (A release that writes no such timestamps yet compares their bytes rightly all the same, and shows them in hex.)

mod decimal;
mod describe;
mod list;
mod moment;

pub(super) use decimal::push_decimal;
pub use describe::describe;
pub(super) use list::{push_binlog, push_hex, push_sequence, raise_integer};
pub(super) use moment::{push_moment, push_moment_number};

/// Maximum number of digits, whatever the limits say: reading takes time quadratic in them.
pub const DIGITS_MAX: usize = 10_000;

/// Maximum size of a string in a version.
pub const TEXT_BYTES_MAX: usize = 1024;

/// Marks a missing part that sorts lowest.
pub(super) const MISSING_LOWEST: u8 = 1;
/// Precedes a part that is there.
pub(super) const PRESENT: u8 = 2;
/// Marks a missing part that sorts highest.
pub(super) const MISSING_HIGHEST: u8 = 3;

/// 10^18: numbers are converted in chunks of 18 digits, each of which fits into a u64.
const CHUNK: u64 = 1_000_000_000_000_000_000;
const CHUNK_DIGITS: usize = 18;

/// The smallest length of a magnitude that does not fit into the head byte.
const LONG: usize = 0x7f;

/// Why a value is not a part of a version.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NotVersion {
    /// It is not of the expected kind.
    Malformed,
    /// This one of its groups of hex digits, from 1, has no digits.
    EmptyGroup {
        /// Which.
        group: usize,
        /// How many there are.
        groups: usize,
    },
    /// It has this many digits, more than the limit.
    TooLong(usize),
    /// It is a string of this many bytes, more than [`TEXT_BYTES_MAX`].
    TextTooLong(usize),
    /// It is less than this minimum.
    TooLow(i64),
}

/// Appends the encoding of the decimal integer `text`: digits, with at most a minus sign before them;
/// leading zeros are fine. `limbs` is scratch space.
pub(super) fn push_integer(
    text: &[u8],
    digits_max: usize,
    limbs: &mut Vec<u64>,
    out: &mut Vec<u8>,
) -> Result<(), NotVersion> {
    let (negative, digits) = match text.strip_prefix(b"-") {
        Some(digits) => (true, digits),
        None => (false, text),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(NotVersion::Malformed);
    }
    let zeros = digits.iter().take_while(|&&digit| digit == b'0').count();
    let digits = &digits[zeros..];
    if digits.len() > digits_max.min(DIGITS_MAX) {
        return Err(NotVersion::TooLong(digits.len()));
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
    // There is only one zero.
    if negative && magnitude != 0 {
        complement(&mut out[from..]);
    }
}

/// Appends the encoding of a string.
pub(super) fn push_text(text: &[u8], out: &mut Vec<u8>) -> Result<(), NotVersion> {
    if text.len() > TEXT_BYTES_MAX {
        return Err(NotVersion::TextTooLong(text.len()));
    }
    for &byte in text {
        out.push(byte);
        if byte == 0 {
            out.push(0xff);
        }
    }
    out.extend_from_slice(&[0, 0]);
    Ok(())
}

/// Appends the encoding of an integer of up to 127 bits.
pub(super) fn push_i128(value: i128, out: &mut Vec<u8>) {
    let from = out.len();
    let magnitude = value.unsigned_abs();
    let length = 16 - magnitude.leading_zeros() as usize / 8;
    push_head(length, out);
    out.extend_from_slice(&magnitude.to_be_bytes()[16 - length..]);
    if value < 0 {
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

#[cfg(test)]
mod tests;
