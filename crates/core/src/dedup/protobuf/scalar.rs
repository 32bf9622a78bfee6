//! Scalars: from the wire to JSON.

use super::walk::{Failure, Walk, failure};
use crate::dedup::extracted::Mark;
use crate::dedup::number;
use crate::schemas::protobuf::wire::{self, Cursor, Malformed};
use crate::schemas::protobuf::{Constant, Scalar, Type};

/// A scalar's value.
#[derive(Clone, Copy)]
pub(super) enum Raw<'b> {
    /// See [`Constant::Bits`].
    Bits(u64),
    Bytes(&'b [u8]),
}

impl<'c> From<&'c Constant> for Raw<'c> {
    fn from(constant: &'c Constant) -> Self {
        match constant {
            Constant::Bits(bits) => Raw::Bits(*bits),
            Constant::Bytes(bytes) => Raw::Bytes(bytes),
        }
    }
}

impl<'b> Walk<'_, 'b, '_> {
    /// Writes a scalar that begins at byte `at` of the record.
    pub fn scalar(&mut self, of: Type, raw: Raw<'_>, node: usize, at: usize) -> Result<(), Failure> {
        match (of, raw) {
            (Type::Scalar(Scalar::Double), Raw::Bits(bits)) => self.to.float(node, f64::from_bits(bits)),
            // A float has 32 bits.
            (Type::Scalar(Scalar::Float), Raw::Bits(bits)) => self.to.float(node, f32::from_bits(bits as u32)),
            (Type::Scalar(Scalar::Bool), Raw::Bits(bits)) => self.to.bool(node, bits != 0),
            (Type::Scalar(scalar), Raw::Bits(bits)) => self.integer(node, bits, is_signed(scalar)),
            (Type::Scalar(Scalar::Bytes), Raw::Bytes(bytes)) => self.to.base64(node, bytes),
            (Type::Scalar(_), Raw::Bytes(bytes)) => {
                let text = utf8(bytes, at)?;
                self.to.text(node, text);
            }
            (Type::Enum(of), Raw::Bits(bits)) => {
                let declared = &self.graph().enums[of];
                // An enum's number has 32 bits.
                match declared.symbol(bits as u32 as i32) {
                    _ if declared.is_null => self.to.null(node),
                    Some(symbol) => self.to.text(node, symbol),
                    None => self.integer(node, bits, true),
                }
            }
            // A message is no scalar, and an enum has no bytes.
            _ => {}
        }
        Ok(())
    }

    fn integer(&mut self, node: usize, bits: u64, is_signed: bool) {
        self.to.number(node, |out| out.extend_from_slice(integer_text(bits, is_signed, &mut [0; 20])));
    }

    /// A map's key as text.
    pub fn key_text<'s>(&self, of: Type, mark: Mark, scratch: &'s mut [u8; 20]) -> Result<&'s [u8], Failure>
    where
        'b: 's,
    {
        Ok(match (raw(self.bytes, of, mark)?, of) {
            (Raw::Bytes(bytes), _) => utf8(bytes, mark.from)?.as_bytes(),
            (Raw::Bits(bits), Type::Scalar(Scalar::Bool)) => {
                if bits != 0 {
                    b"true"
                } else {
                    b"false"
                }
            }
            (Raw::Bits(bits), Type::Scalar(scalar)) => integer_text(bits, is_signed(scalar), scratch),
            (Raw::Bits(_), _) => b"",
        })
    }
}

/// The value of this type at a mark. An empty mark, which stands for an absent key of a map, gives zero.
pub(super) fn raw(record: &[u8], of: Type, mark: Mark) -> Result<Raw<'_>, Failure> {
    let bytes = &record[mark.from..mark.to];
    let wire = match of {
        Type::Scalar(scalar) => scalar.wire(),
        Type::Enum(_) => wire::VARINT,
        Type::Message(_) | Type::Group(_) => wire::LENGTH,
    };
    if wire == wire::LENGTH {
        return Ok(Raw::Bytes(bytes));
    }
    if bytes.is_empty() {
        return Ok(Raw::Bits(0));
    }
    let bits = match wire {
        wire::FIXED32 => bytes.try_into().map(u32::from_le_bytes).unwrap_or_default().into(),
        wire::FIXED64 => bytes.try_into().map(u64::from_le_bytes).unwrap_or_default(),
        _ => Cursor::new(&record[..mark.to], mark.from).varint().map_err(failure)?,
    };
    // By Protobuf's rules, only the lower 32 bits of a 32-bit number count.
    let low = bits as u32;
    let signed = |value: i32| i64::from(value).cast_unsigned();
    Ok(Raw::Bits(match of {
        Type::Enum(_) | Type::Scalar(Scalar::Int32 | Scalar::Sfixed32) => signed(low.cast_signed()),
        Type::Scalar(Scalar::Uint32) => low.into(),
        Type::Scalar(Scalar::Sint32) => signed((low >> 1).cast_signed() ^ -(low & 1).cast_signed()),
        Type::Scalar(Scalar::Sint64) => (bits >> 1) ^ (bits & 1).wrapping_neg(),
        Type::Scalar(Scalar::Bool) => u64::from(bits != 0),
        _ => bits,
    }))
}

fn is_signed(scalar: Scalar) -> bool {
    !matches!(scalar, Scalar::Uint32 | Scalar::Uint64 | Scalar::Fixed32 | Scalar::Fixed64)
}

/// An integer in decimal.
fn integer_text(bits: u64, is_signed: bool, scratch: &mut [u8; 20]) -> &[u8] {
    if is_signed { number::format_i64(bits.cast_signed(), scratch) } else { number::format_u64(bits, scratch) }
}

/// The string in these bytes, which begin at byte `at` of the record.
pub(super) fn utf8(bytes: &[u8], at: usize) -> Result<&str, Failure> {
    simdutf8::basic::from_utf8(bytes).map_err(|_| {
        let valid = std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), str::len);
        failure(Malformed { at: at + valid, what: "a string that is not UTF-8" })
    })
}
