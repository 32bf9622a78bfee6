//! Avro's binary encoding, value by value.

use crate::schemas::Undecodable;
use crate::schemas::varint::{self, NoVarint};

/// The number of bytes of a map's key that a fault names.
const KEY_BYTES_MAX: usize = 100;
/// The highest bit of each byte: in a varint it says that another byte follows.
const CONTINUED: u64 = 0x8080_8080_8080_8080;

/// Why a record cannot be read. Boxed in results, to keep them small.
#[derive(Debug)]
pub(super) struct Fault {
    at: usize,
    what: &'static str,
    /// The steps to the field, the innermost first.
    path: Vec<String>,
}

/// The result of reading a part of a record.
pub(super) type Read<T> = Result<T, Box<Fault>>;

impl Fault {
    /// Adds the step around the others.
    pub fn under(mut self: Box<Self>, step: impl Into<String>) -> Box<Self> {
        self.path.push(step.into());
        self
    }

    /// Adds a map's key as the step around the others.
    #[cold]
    pub fn under_key(self: Box<Self>, key: &[u8]) -> Box<Self> {
        self.under(String::from_utf8_lossy(&key[..key.len().min(KEY_BYTES_MAX)]))
    }

    /// The error, once all steps are known.
    pub fn finish(mut self) -> Undecodable {
        self.path.reverse();
        Undecodable { at: self.at, field: self.path.join("."), what: self.what }
    }
}

/// A position in a record.
#[derive(Debug)]
pub(super) struct Cursor<'b> {
    bytes: &'b [u8],
    at: usize,
}

/// A block of an array or a map.
#[derive(Clone, Copy, Debug)]
pub(super) struct Block {
    pub count: u64,
    /// The offset of its end, if its size is given.
    pub end: Option<usize>,
}

impl<'b> Cursor<'b> {
    pub fn new(bytes: &'b [u8]) -> Self {
        Self { bytes, at: 0 }
    }

    #[inline]
    pub fn at(&self) -> usize {
        self.at
    }

    /// Moves back to an offset, or to the end of a block.
    #[inline]
    pub fn go_to(&mut self, at: usize) {
        self.at = at;
    }

    pub fn is_at_end(&self) -> bool {
        self.at == self.bytes.len()
    }

    #[cold]
    pub fn fault(&self, at: usize, what: &'static str) -> Box<Fault> {
        Box::new(Fault { at, what, path: Vec::new() })
    }

    #[cold]
    fn ended(&self) -> Box<Fault> {
        self.fault(self.bytes.len(), "the record ends too early")
    }

    /// Reads an unsigned varint.
    #[inline]
    fn varint(&mut self) -> Read<u64> {
        match self.bytes.get(self.at) {
            Some(&byte) if byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(byte))
            }
            _ => self.long_varint(),
        }
    }

    fn long_varint(&mut self) -> Read<u64> {
        let (value, length) =
            varint::read(self.bytes.get(self.at..).unwrap_or_default(), 64).map_err(|error| match error {
                NoVarint::CutOff => self.ended(),
                NoVarint::TooLong => self.fault(self.at, "a number of more than 64 bits"),
            })?;
        self.at += length;
        Ok(value)
    }

    /// Skips an int or a long.
    #[inline]
    pub fn skip_long(&mut self) -> Read<()> {
        let ahead = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        let Some(ahead) = ahead else { return self.long_varint().map(drop) };
        let ends = !u64::from_le_bytes(*ahead) & CONTINUED;
        if ends == 0 {
            return self.long_varint().map(drop);
        }
        self.at += ends.trailing_zeros() as usize / 8 + 1;
        Ok(())
    }

    /// Reads an int or a long.
    #[inline]
    pub fn long(&mut self) -> Read<i64> {
        let value = self.varint()?;
        Ok((value >> 1).cast_signed() ^ -(value & 1).cast_signed())
    }

    /// Reads an int.
    #[inline]
    pub fn int(&mut self) -> Read<i32> {
        let at = self.at;
        i32::try_from(self.long()?).map_err(|_| self.fault(at, "an int of more than 32 bits"))
    }

    /// Takes this many bytes.
    #[inline]
    pub fn take(&mut self, length: usize) -> Read<&'b [u8]> {
        let taken = self.bytes.get(self.at..).and_then(|rest| rest.get(..length)).ok_or_else(|| self.ended())?;
        self.at += length;
        Ok(taken)
    }

    /// Takes the bytes of a fixed type of this size.
    #[inline]
    pub fn fixed(&mut self, size: u32) -> Read<&'b [u8]> {
        self.take(usize::try_from(size).unwrap_or(usize::MAX))
    }

    /// Takes `N` bytes.
    #[inline]
    pub fn array<const N: usize>(&mut self) -> Read<[u8; N]> {
        let array = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        let array = *array.ok_or_else(|| self.ended())?;
        self.at += N;
        Ok(array)
    }

    /// Reads a length, and takes as many bytes.
    #[inline]
    pub fn prefixed(&mut self) -> Read<&'b [u8]> {
        let at = self.at;
        let length = self.long()?;
        let length = usize::try_from(length).map_err(|_| self.fault(at, "a negative length"))?;
        self.take(length)
    }

    /// Reads a string.
    #[inline]
    pub fn text(&mut self) -> Read<&'b str> {
        let bytes = self.prefixed()?;
        let from = self.at - bytes.len();
        simdutf8::basic::from_utf8(bytes).map_err(|_| {
            let valid = std::str::from_utf8(bytes).map_or_else(|e| e.valid_up_to(), str::len);
            self.fault(from + valid, "invalid UTF-8")
        })
    }

    #[inline]
    pub fn bool(&mut self) -> Read<bool> {
        match self.bytes.get(self.at) {
            Some(&byte @ (0 | 1)) => {
                self.at += 1;
                Ok(byte == 1)
            }
            Some(_) => Err(self.fault(self.at, "a boolean that is neither 0 nor 1")),
            None => Err(self.ended()),
        }
    }

    /// Reads the index of one of `count` symbols or branches. An index out of range is an error that says `what`.
    #[inline]
    pub fn choice(&mut self, count: usize, what: &'static str) -> Read<usize> {
        let at = self.at;
        let number = self.long()?;
        usize::try_from(number).ok().filter(|&number| number < count).ok_or_else(|| self.fault(at, what))
    }

    /// Reads the beginning of a block of an array or a map; `None` at the end of all blocks.
    pub fn block(&mut self) -> Read<Option<Block>> {
        let count = self.long()?;
        if count >= 0 {
            return Ok((count > 0).then_some(Block { count: count.unsigned_abs(), end: None }));
        }
        let at = self.at;
        let size = usize::try_from(self.long()?).map_err(|_| self.fault(at, "a block of a negative size"))?;
        let end = self.at.checked_add(size).filter(|&end| end <= self.bytes.len());
        let end = end.ok_or_else(|| self.fault(at, "a block is longer than the record"))?;
        Ok(Some(Block { count: count.unsigned_abs(), end: Some(end) }))
    }

    /// Checks that a block ends here, if its size is given.
    pub fn end_block(&self, block: Block) -> Read<()> {
        match block.end {
            Some(end) if end != self.at => Err(self.fault(self.at, "a block is not as long as it says")),
            _ => Ok(()),
        }
    }
}
