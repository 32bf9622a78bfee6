//! A value of a logical type as text.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::{Logical, Unlike, decimal, time};
use crate::dedup::json::{Tape, TokenKind};

/// No column has more bits than this.
const BITS_MAX: usize = 1 << 20;

/// A value as it stands in a document; never null.
#[derive(Clone, Copy, Debug)]
pub(in crate::dedup) enum Raw<'a> {
    Bool,
    Number(&'a [u8]),
    /// Without quotes and escapes.
    Text(&'a [u8]),
    /// An object or an array.
    Composite(&'a [u8]),
}

impl Logical {
    /// Whether its text is a number by JSON's grammar.
    pub fn is_number(self) -> bool {
        matches!(self, Self::Decimal(_) | Self::VariableDecimal)
    }

    /// Appends a value of this type as text, which is ASCII.
    pub fn write(self, raw: Raw<'_>, out: &mut Vec<u8>) -> Result<(), Unlike> {
        match (self, raw) {
            (Self::Decimal(scale), Raw::Text(text)) => decimal::write(&bytes(text)?, scale, out),
            // Connect's converter with `decimal.format=NUMERIC`.
            (Self::Decimal(_), Raw::Number(number)) => {
                out.extend_from_slice(number);
                Ok(())
            }
            (Self::VariableDecimal, Raw::Composite(object)) => {
                let (unscaled, scale) = variable(object)?;
                decimal::write(&unscaled, scale, out)
            }
            (Self::Date, Raw::Number(number)) => time::write_date(integer(number)?, out),
            (Self::Time(unit) | Self::Duration(unit), Raw::Number(number)) => {
                time::write_time(integer(number)?, unit, out);
                Ok(())
            }
            (Self::Timestamp(unit, is_instant), Raw::Number(number)) => {
                time::write_timestamp(integer(number)?, unit, is_instant, out)
            }
            (Self::Bits(length), Raw::Text(text)) => write_bits(&bytes(text)?, length, out),
            _ => Err(Unlike),
        }
    }
}

/// The bytes that are written in base64.
fn bytes(text: &[u8]) -> Result<Vec<u8>, Unlike> {
    BASE64_STANDARD.decode(text).map_err(|_| Unlike)
}

fn integer(number: &[u8]) -> Result<i64, Unlike> {
    std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).ok_or(Unlike)
}

/// The unscaled integer and the scale of `{"scale": 2, "value": "AQ=="}`.
fn variable(object: &[u8]) -> Result<(Vec<u8>, i32), Unlike> {
    let mut tape = Tape::default();
    tape.read(object).map_err(|_| Unlike)?;
    let (mut scale, mut value) = (None, None);
    if tape.token(0).kind != TokenKind::Object {
        return Err(Unlike);
    }
    for (name, field) in tape.fields(0) {
        let (kind, text) = (tape.token(field).kind, tape.bytes(field, object));
        match (tape.bytes(name, object), kind) {
            (b"scale", TokenKind::Number) => scale = i32::try_from(integer(text)?).ok(),
            (b"value", TokenKind::Text | TokenKind::Escaped) => value = Some(bytes(text)?),
            _ => return Err(Unlike),
        }
    }
    value.zip(scale).ok_or(Unlike)
}

/// Appends this many binary digits, the highest first. The first byte has the lowest digits.
fn write_bits(bytes: &[u8], length: usize, out: &mut Vec<u8>) -> Result<(), Unlike> {
    let is_set = |bit: usize| bytes.get(bit / 8).is_some_and(|byte| byte >> (bit % 8) & 1 == 1);
    if length > BITS_MAX || (length..bytes.len() * 8).any(is_set) {
        return Err(Unlike);
    }
    out.extend((0..length).rev().map(|bit| if is_set(bit) { b'1' } else { b'0' }));
    Ok(())
}
