//! Versions in human-readable form.

use crate::dedup::number;
use crate::dedup::rules::Version;
use crate::dedup::vocabulary::VersionKind;
use crate::format;

use super::decimal::take_pairs;
use super::moment::take_moment;
use super::{CHUNK, LONG, MISSING_HIGHEST, MISSING_LOWEST, PRESENT, complement, list};

/// A version in human-readable form, as JSON: a number, a string, or an array for a sequence, a binlog's position
/// (without the base name) and a version of several parts. A timestamp is RFC 3339 in UTC, a missing part null, hex has
/// `:` between its groups. Bytes that are not such a version are `{"hex":"…"}`.
pub fn describe(bytes: &[u8], version: &Version) -> String {
    describe_parts(bytes, version).unwrap_or_else(|| format!("{{\"hex\":\"{}\"}}", format::hex(bytes)))
}

fn describe_parts(bytes: &[u8], version: &Version) -> Option<String> {
    let mut rest = bytes;
    let described = match &version.parts[..] {
        [part] => describe_part(&mut rest, part.kind)?,
        parts => {
            let mut described = Vec::new();
            for part in parts {
                let (&presence, after) = rest.split_first()?;
                rest = after;
                described.push(match presence {
                    PRESENT => describe_part(&mut rest, part.kind)?,
                    MISSING_LOWEST | MISSING_HIGHEST => "null".to_owned(),
                    _ => return None,
                });
            }
            format!("[{}]", described.join(","))
        }
    };
    rest.is_empty().then_some(described)
}

fn describe_part(rest: &mut &[u8], kind: VersionKind) -> Option<String> {
    match kind {
        VersionKind::Integer => take_integer(rest),
        VersionKind::Decimal => take_decimal(rest),
        VersionKind::Text => take_text(rest),
        VersionKind::Timestamp => take_moment(rest),
        VersionKind::Hex => {
            let groups = list::take(rest, |rest| Some(hex_digits(take_magnitude(rest)?.1)))?;
            Some(format!("\"{}\"", groups.join(":")))
        }
        VersionKind::Binlog | VersionKind::Sequence => Some(format!("[{}]", list::take(rest, take_integer)?.join(","))),
    }
}

pub(super) fn take_integer(rest: &mut &[u8]) -> Option<String> {
    let (negative, magnitude) = take_magnitude(rest)?;
    let digits = decimal(&magnitude);
    Some(if negative { format!("-{digits}") } else { digits })
}

/// An integer's sign and its magnitude, big-endian.
fn take_magnitude(rest: &mut &[u8]) -> Option<(bool, Vec<u8>)> {
    let (&head, after) = rest.split_first()?;
    let negative = head < 0x80;
    let flip = if negative { 0xff } else { 0 };
    let (length, after) = match usize::from((head ^ flip).wrapping_sub(0x80)) {
        LONG => {
            let (length, after) = after.split_first_chunk::<2>()?;
            (usize::from(u16::from_be_bytes(length.map(|byte| byte ^ flip))), after)
        }
        length => (length, after),
    };
    let (magnitude, after) = after.split_at_checked(length)?;
    *rest = after;
    let mut magnitude = magnitude.to_vec();
    if negative {
        complement(&mut magnitude);
    }
    let is_second_zero = negative && length == 0;
    (magnitude.first() != Some(&0) && !is_second_zero).then_some((negative, magnitude))
}

fn take_decimal(rest: &mut &[u8]) -> Option<String> {
    let (&head, after) = rest.split_first()?;
    let flip = match head {
        0x80 => {
            *rest = after;
            return Some("0".to_owned());
        }
        0xc0 => 0,
        0x3f => 0xff,
        _ => return None,
    };
    let bytes: Vec<u8> = after.iter().map(|byte| byte ^ flip).collect();
    let mut after_exponent = &bytes[..];
    let exponent: i64 = take_integer(&mut after_exponent)?.parse().ok()?;
    let digits = take_pairs(&mut after_exponent)?;
    let length = after.len() - after_exponent.len();
    let sign = if flip == 0 { "" } else { "-" };
    let power = exponent.checked_sub(digits.len() as i64)?;
    let text =
        number::humanize(&if power == 0 { format!("{sign}{digits}") } else { format!("{sign}{digits}e{power}") });
    *rest = &after[length..];
    Some(text)
}

fn take_text(rest: &mut &[u8]) -> Option<String> {
    let mut text = Vec::new();
    loop {
        let at = rest.iter().position(|&byte| byte == 0)?;
        text.extend_from_slice(&rest[..at]);
        let follows = *rest.get(at + 1)?;
        *rest = &rest[at + 2..];
        match follows {
            0 => return Some(serde_json::Value::from(String::from_utf8_lossy(&text).into_owned()).to_string()),
            0xff => text.push(0),
            _ => return None,
        }
    }
}

fn hex_digits(magnitude: Vec<u8>) -> String {
    let digits = format::hex(&magnitude);
    let trimmed = digits.trim_start_matches('0');
    if trimmed.is_empty() { "0".to_owned() } else { trimmed.to_owned() }
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
