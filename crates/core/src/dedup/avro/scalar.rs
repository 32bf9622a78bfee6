//! Reads a scalar and writes it as JSON.

use super::cursor::{Cursor, Read};
use super::program::Scalar;
use super::skip::NO_SYMBOL;
use crate::dedup::extracted::Extracted;
use crate::dedup::logical::decimal;
use crate::schemas::id::{uuid_of, uuid_text};

/// Reads a scalar, and notes it at the node. `symbols` has the symbols of all enums.
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
        Scalar::Int => to.integer(node, cursor.int()?.into()),
        Scalar::Long => to.integer(node, cursor.long()?),
        Scalar::Float => to.float(node, f32::from_le_bytes(cursor.array()?)),
        Scalar::Double => to.float(node, f64::from_le_bytes(cursor.array()?)),
        Scalar::Text => to.text(node, cursor.text()?),
        Scalar::Bytes => to.base64(node, cursor.prefixed()?),
        Scalar::Fixed(size) => to.base64(node, cursor.fixed(size)?),
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
        Scalar::FixedUuid => write_uuid(cursor.array()?, node, to),
        Scalar::Enum(number) => {
            let symbols = &symbols[number as usize];
            to.text(node, &symbols[cursor.choice(symbols.len(), NO_SYMBOL)?]);
        }
    }
    Ok(())
}

const NO_DECIMAL: &str = "a decimal without bytes, or with more digits than any database has";

/// Writes a decimal; `None` if it is invalid.
fn write_decimal(unscaled: &[u8], scale: i32, node: usize, to: &mut Extracted) -> Option<()> {
    let mut written = None;
    to.number(node, |out| written = decimal::write(unscaled, scale, out).ok());
    written
}

/// Writes a big-decimal: bytes that contain the unscaled integer, as bytes, and the scale.
fn write_big_decimal(bytes: &[u8], node: usize, to: &mut Extracted) -> Option<()> {
    let mut inner = Cursor::new(bytes);
    let unscaled = inner.prefixed().ok()?;
    let scale = inner.int().ok()?;
    if !inner.is_at_end() {
        return None;
    }
    write_decimal(unscaled, scale, node, to)
}

/// Writes a UUID in lower case, with hyphens; any other string unchanged.
fn write_text_uuid(text: &str, node: usize, to: &mut Extracted) {
    match uuid_of(text) {
        Some(uuid) => write_uuid(uuid, node, to),
        None => to.text(node, text),
    }
}

fn write_uuid(uuid: [u8; 16], node: usize, to: &mut Extracted) {
    to.text(node, std::str::from_utf8(&uuid_text(uuid)).unwrap_or_default());
}
