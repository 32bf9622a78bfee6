//! Reads a scalar and writes it as JSON.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::cursor::{Cursor, Read};
use super::program::Scalar;
use super::skip::NO_SYMBOL;
use crate::dedup::extracted::Extracted;
use crate::dedup::logical::decimal;
use crate::dedup::number;
use crate::dedup::steps::Found;

/// The places of the hyphens in a UUID.
const HYPHENS: [usize; 4] = [8, 13, 18, 23];
/// The length of a UUID's text.
const UUID_LENGTH: usize = 36;

/// Reads a scalar; notes it at the node. `symbols`: of all enums.
pub(super) fn read(
    scalar: Scalar,
    node: usize,
    symbols: &[Box<[Box<str>]>],
    cursor: &mut Cursor<'_>,
    to: &mut Extracted,
) -> Read<()> {
    match scalar {
        Scalar::Null => to.null(node),
        Scalar::Bool => to.bool(node, cursor.bool()?),
        Scalar::Int => write_integer(cursor.int()?.into(), node, to),
        Scalar::Long => write_integer(cursor.long()?, node, to),
        Scalar::Float => write_float(f32::from_le_bytes(cursor.array()?), node, to),
        Scalar::Double => write_float(f64::from_le_bytes(cursor.array()?), node, to),
        Scalar::Text => to.text(node, cursor.text()?),
        Scalar::Bytes => write_base64(cursor.prefixed()?, node, to),
        Scalar::Fixed(size) => write_base64(cursor.fixed(size)?, node, to),
        Scalar::Decimal(Some(size), scale) => {
            let at = cursor.at();
            return write_decimal(cursor.fixed(size)?, scale, node, to).ok_or_else(|| cursor.fault(at, NO_DECIMAL));
        }
        Scalar::Decimal(None, scale) => {
            let at = cursor.at();
            return write_decimal(cursor.prefixed()?, scale, node, to).ok_or_else(|| cursor.fault(at, NO_DECIMAL));
        }
        Scalar::BigDecimal => {
            let at = cursor.at();
            let bytes = cursor.prefixed()?;
            return write_big_decimal(bytes, node, to).ok_or_else(|| cursor.fault(at, NO_DECIMAL));
        }
        Scalar::Uuid => write_text_uuid(cursor.text()?, node, to),
        Scalar::FixedUuid => write_uuid(u128::from_be_bytes(cursor.array()?), node, to),
        Scalar::Enum(number) => {
            let symbols = &symbols[number as usize];
            to.text(node, &symbols[cursor.choice(symbols.len(), NO_SYMBOL)?]);
        }
    }
    Ok(())
}

const NO_DECIMAL: &str = "a decimal without bytes, or with more digits than any database has";

pub(super) fn write_integer(value: i64, node: usize, to: &mut Extracted) {
    to.number(node, |out| out.extend_from_slice(number::format_i64(value, &mut [0; 20])));
}

fn write_float<F: ryu_js::Float + Into<f64> + Copy>(value: F, node: usize, to: &mut Extracted) {
    let wide: f64 = value.into();
    if wide.is_nan() {
        to.text(node, "NaN");
    } else if wide.is_infinite() {
        to.text(node, if wide > 0.0 { "Infinity" } else { "-Infinity" });
    } else if wide == 0.0 && wide.is_sign_negative() {
        // JavaScript writes it without its sign.
        to.number(node, |out| out.extend_from_slice(b"-0.0"));
    } else {
        let mut buffer = ryu_js::Buffer::new();
        to.number(node, |out| out.extend_from_slice(buffer.format_finite(value).as_bytes()));
    }
}

fn write_base64(bytes: &[u8], node: usize, to: &mut Extracted) {
    let out = to.out();
    out.push(b'"');
    let from = out.len();
    out.resize(from + bytes.len().div_ceil(3) * 4, 0);
    // It has the room that it needs.
    let length = BASE64_STANDARD.encode_slice(bytes, &mut out[from..]).unwrap_or_default();
    out.truncate(from + length);
    out.push(b'"');
    to.note(node, Found::Text { from, to: from + length, escaped: false });
}

/// Writes a decimal; `None` if it is none.
fn write_decimal(unscaled: &[u8], scale: i32, node: usize, to: &mut Extracted) -> Option<()> {
    let mut written = None;
    to.number(node, |out| written = decimal::write(unscaled, scale, out).ok());
    written
}

/// Writes a decimal that is bytes, an unscaled integer and a scale, within bytes.
fn write_big_decimal(bytes: &[u8], node: usize, to: &mut Extracted) -> Option<()> {
    let mut inner = Cursor::new(bytes);
    let unscaled = inner.prefixed().ok()?;
    let scale = inner.int().ok()?;
    if !inner.is_at_end() {
        return None;
    }
    write_decimal(unscaled, scale, node, to)
}

/// Writes a UUID that is a text, as one that is not: in lower case, with hyphens.
fn write_text_uuid(text: &str, node: usize, to: &mut Extracted) {
    let bytes = text.as_bytes();
    let has_hyphens = bytes.len() == UUID_LENGTH && HYPHENS.iter().all(|&at| bytes[at] == b'-');
    let digits = bytes.iter().enumerate().filter(|(i, _)| !(has_hyphens && HYPHENS.contains(i)));
    let value = digits.clone().try_fold(0_u128, |value, (_, &digit)| {
        char::from(digit).to_digit(16).map(|digit| value << 4 | u128::from(digit))
    });
    match value {
        Some(value) if digits.count() == 32 => write_uuid(value, node, to),
        _ => to.text(node, text),
    }
}

fn write_uuid(value: u128, node: usize, to: &mut Extracted) {
    let mut text = [b'-'; UUID_LENGTH];
    let places = (0..UUID_LENGTH).filter(|at| !HYPHENS.contains(at));
    for (place, digit) in places.zip((0..32).rev()) {
        text[place] = b"0123456789abcdef"[(value >> (digit * 4) & 0xf) as usize];
    }
    to.text(node, std::str::from_utf8(&text).unwrap_or_default());
}
