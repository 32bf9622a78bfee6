//! Protobuf's wire format: the keys of fields, and the extent of their values.
//!
//! Nothing is allocated, and nothing is read beyond the end: each length is compared with the bytes that are left.

use crate::schemas::varint::{self, NoVarint};

/// An integer of one to ten bytes.
pub const VARINT: u8 = 0;
/// Eight bytes.
pub const FIXED64: u8 = 1;
/// A length, and as many bytes.
pub const LENGTH: u8 = 2;
/// Fields up to the key that ends the group.
pub const GROUP: u8 = 3;
const GROUP_END: u8 = 4;
/// Four bytes.
pub const FIXED32: u8 = 5;

/// Why bytes are not in the wire format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed {
    /// The offset at which the error was noticed.
    pub at: usize,
    /// What is wrong.
    pub what: &'static str,
}

/// A position in a message.
#[derive(Clone, Copy, Debug)]
pub struct Cursor<'b> {
    /// The record up to the end of the message.
    bytes: &'b [u8],
    at: usize,
}

impl<'b> Cursor<'b> {
    /// A cursor at offset `from`, in a message that ends where the bytes end.
    pub fn new(bytes: &'b [u8], from: usize) -> Self {
        Self { bytes, at: from }
    }

    /// The current offset.
    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Whether the message ends here.
    #[inline]
    pub fn is_at_end(&self) -> bool {
        self.at >= self.bytes.len()
    }

    /// Reads an integer.
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

    /// Reads a field's number and wire type.
    #[inline]
    pub fn key(&mut self) -> Result<(u32, u8), Malformed> {
        let at = self.at;
        let key = self.varint()?;
        let wire = (key & 7) as u8; // Three bits.
        match u32::try_from(key >> 3) {
            Ok(number @ 1..=NUMBER_MAX) if wire <= FIXED32 => Ok((number, wire)),
            Ok(1..=NUMBER_MAX) => Err(Malformed { at, what: "an unknown wire type" }),
            _ => Err(Malformed { at, what: "a field number out of range" }),
        }
    }

    /// Skips the value of the field whose key was read; returns where it begins and ends, without its length or the key
    /// that ends it. Groups may be nested `depth` deep.
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
            _ => return Err(self.malformed("the end of a group that was not begun")),
        }
        Ok((from, self.at))
    }

    /// Skips a group; returns where the key that ends it begins. Recurses `depth` deep.
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
            _ => Err(self.malformed("a value that is longer than the rest of the message")),
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
    //! Goal: values are skipped as a whole; bytes that end early, or whose lengths are wrong, are refused.

    use super::*;

    fn value(bytes: &[u8]) -> Result<(usize, usize), Malformed> {
        let mut cursor = Cursor::new(bytes, 0);
        let (number, wire) = cursor.key()?;
        cursor.value(number, wire, 3)
    }

    #[test]
    fn values_are_skipped_as_a_whole() {
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
    fn invalid_bytes_are_refused_where_they_are() {
        let huge = [0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01, 0];
        for (bytes, at, what) in [
            (&[0x00][..], 0, "a field number out of range"),
            (&[0x80, 0x80, 0x80, 0x80, 0x10, 0], 0, "a field number out of range"),
            (&[0x0e, 0], 0, "an unknown wire type"),
            (&[0x0c], 1, "the end of a group that was not begun"),
            (&[0x0b, 0x14], 1, "the end of another group"),
            (&[0x0b, 0x0b, 0x0b, 0x0b, 0x0c, 0x0c, 0x0c, 0x0c], 4, "nested too deep"),
            (&huge, 11, "a value that is longer than the rest of the message"),
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
