//! Protobuf's wire format: keys of fields, and how far their values reach.
//!
//! Nothing is allocated, and nothing is read behind the end. Lengths are compared with what is left, so none can lie.

use crate::schemas::varint::{self, NoVarint};

/// The value is an integer of one to ten bytes.
pub const VARINT: u8 = 0;
/// The value has eight bytes.
pub const FIXED64: u8 = 1;
/// The value begins with its length.
pub const LENGTH: u8 = 2;
/// The value ends with the key of its end.
pub const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
/// The value has four bytes.
pub const FIXED32: u8 = 5;

/// Bytes that are not in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The byte at which it was noticed.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// A place in a message.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'b> {
    /// Up to the end of the message, and no further.
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    /// At byte `from` of a message that ends where the bytes end.
    pub fn new(bytes: &'b [u8], from: usize) -> Self {
        Self { bytes, at: from }
    }

    /// Where it is.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether nothing is left.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// The next integer.
    #[inline]
    pub fn varint(&mut self) -> Result<u64, Malformed> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(byte.into())
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Result<u64, Malformed> {
        match varint::read(self.bytes.get(self.at..).unwrap_or_default(), 64) {
            Ok((value, length)) => {
                self.at += length;
                Ok(value)
            }
            Err(NoVarint::TooLong) => Err(self.malformed("an integer of more than 64 bits")),
            Err(NoVarint::CutOff) => Err(Malformed { at: self.bytes.len(), what: "the bytes end inside an integer" }),
        }
    }

    /// The next field's number and wire type.
    #[inline]
    pub fn key(&mut self) -> Result<(u32, u8), Malformed> {
        let at = self.at;
        let key = self.varint()?;
        let wire = (key & 7) as u8; // Three bits.
        match u32::try_from(key >> 3) {
            Ok(number @ 1..=NUMBER_MAX) if wire <= FIXED32 => Ok((number, wire)),
            Ok(1..=NUMBER_MAX) => Err(Malformed { at, what: "a wire type that does not exist" }),
            _ => Err(Malformed { at, what: "a field's number that cannot be" }),
        }
    }

    /// Passes the value of the field whose key was read: where it begins and ends, without a length before it or an end
    /// after it. At most `depth` groups are in each other.
    #[inline]
    pub fn value(&mut self, number: u32, wire: u8, depth: usize) -> Result<(usize, usize), Malformed> {
        let from = self.at;
        match wire {
            VARINT => {
                self.varint()?;
            }
            FIXED64 => self.pass(8)?,
            LENGTH => {
                let length = self.varint()?;
                let from = self.at;
                self.pass(length)?;
                return Ok((from, self.at));
            }
            GROUP => return Ok((from, self.group(number, depth)?)),
            FIXED32 => self.pass(4)?,
            _ => return Err(self.malformed("the end of a group that did not begin")),
        }
        Ok((from, self.at))
    }

    /// Passes a group with its end; returns where the end begins. Recurses as deep as `depth` says.
    fn group(&mut self, number: u32, depth: usize) -> Result<usize, Malformed> {
        let Some(depth) = depth.checked_sub(1) else { return Err(self.malformed("nested too deep")) };
        loop {
            let end = self.at;
            match self.key()? {
                (ended, GROUP_END) if ended == number => return Ok(end),
                (_, GROUP_END) => return Err(Malformed { at: end, what: "the end of another group" }),
                (inner, wire) => {
                    self.value(inner, wire, depth)?;
                }
            }
        }
    }

    #[inline]
    fn pass(&mut self, length: u64) -> Result<(), Malformed> {
        let left = self.bytes.len() - self.at;
        match usize::try_from(length) {
            Ok(length) if length <= left => {
                self.at += length;
                Ok(())
            }
            _ => Err(self.malformed("a value that is longer than what is left")),
        }
    }

    fn malformed(&self, what: &'static str) -> Malformed {
        Malformed { at: self.at, what }
    }
}

/// The largest number of a field.
pub const NUMBER_MAX: u32 = (1 << 29) - 1;

#[cfg(test)]
mod tests {
    //! Goal: each value is passed as a whole, and bytes that end early or lie are refused where they do.

    use super::*;

    fn value(bytes: &[u8]) -> Result<(usize, usize), Malformed> {
        let mut cursor = Cursor::new(bytes, 0);
        let (number, wire) = cursor.key()?;
        cursor.value(number, wire, 3)
    }

    #[test]
    fn values_are_passed_as_a_whole() {
        for (bytes, expected) in [
            (&[0x08, 0x01][..], (1, 2)),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01], (1, 11)),
            (&[0x09, 0, 0, 0, 0, 0, 0, 0, 0], (1, 9)),
            (&[0x0d, 0, 0, 0, 0], (1, 5)),
            (&[0x0a, 0x02, b'a', b'b'], (2, 4)),
            (&[0x0b, 0x08, 0x01, 0x0c], (1, 3)),
            (&[0x0b, 0x13, 0x14, 0x0c], (1, 3)),
        ] {
            assert_eq!(value(bytes), Ok(expected), "{bytes:x?}");
            for end in 0..bytes.len() {
                assert!(value(&bytes[..end]).is_err(), "{bytes:x?} up to {end}");
            }
        }
    }

    #[test]
    fn what_cannot_be_is_refused_where_it_is() {
        let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0];
        for (bytes, at, what) in [
            (&[0x00][..], 0, "a field's number that cannot be"),
            (&[0x80, 0x80, 0x80, 0x80, 0x10, 0], 0, "a field's number that cannot be"),
            (&[0x0e, 0], 0, "a wire type that does not exist"),
            (&[0x0c], 1, "the end of a group that did not begin"),
            (&[0x0b, 0x14], 1, "the end of another group"),
            (&[0x0b, 0x0b, 0x0b, 0x0b, 0x0c, 0x0c, 0x0c, 0x0c], 4, "nested too deep"),
            (&huge, 11, "a value that is longer than what is left"),
            (&[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02], 1, "an integer of more than 64 bits"),
            (
                &[0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 1],
                1,
                "an integer of more than 64 bits",
            ),
            (&[0x08, 0x80], 2, "the bytes end inside an integer"),
        ] {
            assert_eq!(value(bytes), Err(Malformed { at, what }), "{bytes:x?}");
        }
    }
}
