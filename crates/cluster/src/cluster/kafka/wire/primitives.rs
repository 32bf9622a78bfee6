//! Numbers, strings and arrays as Kafka writes them: checked when read, appended when written.
//!
//! Fixed-width numbers are big-endian. A *varint* has seven bits per byte, the lowest first. In records, varints are
//! zigzag-encoded. In the flexible versions of messages (KIP-482) they are unsigned, and a length is written as the
//! length plus one, with 0 for null: such a length is called *compact* here, and so is what it precedes.
//!
//! The bytes come from brokers, and those of records from any producer. They are not trusted: a count or a length that
//! exceeds the available bytes is refused before memory is allocated for it.
//!
//! **Failure**: malformed bytes are `None`; no function panics.

/// Maximum bytes of a varint of 32 bits: a length, a count, an offset delta.
pub const VARINT_BYTES_MAX: usize = 5;
/// Maximum bytes of a varint of 64 bits: a timestamp delta.
pub const VARLONG_BYTES_MAX: usize = 10;

/// Reads an unsigned varint of at most `BYTES_MAX` bytes; also returns the rest. Nearly all varints take one or two
/// bytes.
#[inline(always)]
fn unsigned<const BYTES_MAX: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let (&first, rest) = bytes.split_first()?;
    if first < 0x80 {
        return Some((u64::from(first), rest));
    }
    let (&second, rest) = rest.split_first()?;
    if second < 0x80 {
        return Some((u64::from(first & 0x7f) | u64::from(second) << 7, rest));
    }
    unsigned_long::<BYTES_MAX>(bytes)
}

#[cold]
fn unsigned_long<const BYTES_MAX: usize>(bytes: &[u8]) -> Option<(u64, &[u8])> {
    let mut value = 0_u64;
    for (index, byte) in bytes.iter().enumerate().take(BYTES_MAX) {
        value |= u64::from(byte & 0x7f) << (7 * index);
        if *byte < 0x80 {
            return Some((value, bytes.get(index + 1..)?));
        }
    }
    None
}

#[inline(always)]
fn unzigzag(value: u64) -> i64 {
    (value >> 1) as i64 ^ -((value & 1) as i64)
}

#[inline(always)]
fn zigzag(value: i64) -> u64 {
    ((value << 1) ^ (value >> 63)) as u64
}

/// Reads a 32-bit zigzag varint as in records; also returns the rest. Its five bytes can hold 35 bits: a value beyond
/// 32 bits is out of range for every use, and the caller refuses it.
#[inline(always)]
pub fn varint(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (value, rest) = unsigned::<VARINT_BYTES_MAX>(bytes)?;
    Some((unzigzag(value), rest))
}

/// Reads a 64-bit zigzag varint as in records; also returns the rest.
#[inline(always)]
pub fn varlong(bytes: &[u8]) -> Option<(i64, &[u8])> {
    let (value, rest) = unsigned::<VARLONG_BYTES_MAX>(bytes)?;
    Some((unzigzag(value), rest))
}

/// Reads a varint that is a length, a count or a delta; also returns the rest. `None` if it is negative.
#[inline(always)]
pub fn non_negative(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (value, rest) = unsigned::<VARINT_BYTES_MAX>(bytes)?;
    // In zigzag, odd numbers are negative.
    if value & 1 == 0 { Some((usize::try_from(value >> 1).ok()?, rest)) } else { None }
}

/// Reads bytes preceded by their length as a varint, `None` for null (-1); also returns the rest.
#[inline(always)]
pub fn prefixed_bytes(bytes: &[u8]) -> Option<(Option<&[u8]>, &[u8])> {
    const NULL: u64 = 1;
    let (value, rest) = unsigned::<VARINT_BYTES_MAX>(bytes)?;
    if value & 1 != 0 {
        return (value == NULL).then_some((None, rest));
    }
    let (bytes, rest) = rest.split_at_checked(usize::try_from(value >> 1).ok()?)?;
    Some((Some(bytes), rest))
}

/// How many bytes an unsigned varint takes.
#[inline(always)]
fn unsigned_bytes(value: u64) -> usize {
    (70 - (value | 1).leading_zeros() as usize) / 7
}

/// How many bytes [`put_varint`] writes.
#[inline(always)]
pub fn varint_bytes(value: i64) -> usize {
    unsigned_bytes(zigzag(value))
}

/// Appends a zigzag varint as in records.
pub fn put_varint(into: &mut Vec<u8>, value: i64) {
    put_unsigned(into, zigzag(value));
}

/// Appends an unsigned varint, the form of lengths, counts and tags in flexible messages.
pub fn put_unsigned(into: &mut Vec<u8>, mut value: u64) {
    while value >= 0x80 {
        into.push(value as u8 | 0x80);
        value >>= 7;
    }
    into.push(value as u8);
}

/// A small buffer for numbers that are appended together, which is cheaper than one append for each byte.
#[derive(Default)]
pub struct Scratch {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Scratch {
    const CAPACITY: usize = 32;

    /// An empty buffer.
    #[inline(always)]
    pub fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    /// Adds a byte. No caller adds more than the capacity of 32 bytes.
    #[inline(always)]
    pub fn byte(&mut self, byte: u8) {
        self.bytes[self.len % Self::CAPACITY] = byte;
        self.len += 1;
    }

    /// Adds a zigzag varint.
    #[inline(always)]
    pub fn varint(&mut self, value: i64) {
        let mut value = zigzag(value);
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    /// Appends the buffered bytes: copies the whole buffer, which has a fixed size, then truncates.
    #[inline(always)]
    pub fn flush(&self, into: &mut Vec<u8>) {
        let end = into.len() + self.len.min(Self::CAPACITY);
        into.extend_from_slice(&self.bytes);
        into.truncate(end);
    }
}

/// Reads a message from front to back.
#[derive(Clone, Copy, Debug)]
pub struct Reader<'a> {
    total_bytes: usize,
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// Starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8]) -> Self {
        Self { total_bytes: bytes.len(), rest: bytes }
    }

    /// How many bytes were read.
    pub fn position(&self) -> usize {
        self.total_bytes - self.rest.len()
    }

    /// The unread bytes.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// The next `count` bytes.
    #[inline]
    pub fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (taken, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(taken)
    }

    #[inline(always)]
    fn chunk<const N: usize>(&mut self) -> Option<[u8; N]> {
        let (chunk, rest) = self.rest.split_first_chunk::<N>()?;
        self.rest = rest;
        Some(*chunk)
    }

    /// A number of 8 bits.
    #[inline(always)]
    pub fn i8(&mut self) -> Option<i8> {
        self.chunk().map(i8::from_be_bytes)
    }

    /// A number of 16 bits.
    #[inline(always)]
    pub fn i16(&mut self) -> Option<i16> {
        self.chunk().map(i16::from_be_bytes)
    }

    /// A number of 32 bits.
    #[inline(always)]
    pub fn i32(&mut self) -> Option<i32> {
        self.chunk().map(i32::from_be_bytes)
    }

    /// An unsigned number of 32 bits.
    #[inline(always)]
    pub fn u32(&mut self) -> Option<u32> {
        self.chunk().map(u32::from_be_bytes)
    }

    /// A number of 64 bits.
    #[inline(always)]
    pub fn i64(&mut self) -> Option<i64> {
        self.chunk().map(i64::from_be_bytes)
    }

    /// An unsigned varint.
    pub fn unsigned(&mut self) -> Option<u64> {
        let (value, rest) = unsigned::<VARINT_BYTES_MAX>(self.rest)?;
        self.rest = rest;
        Some(value)
    }

    /// A length or a count of 32 bits, `Some(None)` for null (-1).
    fn length(&mut self) -> Option<Option<usize>> {
        match self.i32()? {
            -1 => Some(None),
            length => Some(Some(usize::try_from(length).ok()?)),
        }
    }

    /// A length or a count of a flexible message, `Some(None)` for null.
    fn compact_length(&mut self) -> Option<Option<usize>> {
        let length = self.unsigned()?;
        Some(usize::try_from(length).ok()?.checked_sub(1))
    }

    /// The count of an array whose items take at least `item_bytes_min` bytes each, 0 for null. `None` also if the
    /// unread bytes are too few for this count.
    pub fn count(&mut self, item_bytes_min: usize) -> Option<usize> {
        let count = self.length()?.unwrap_or(0);
        (count <= self.rest.len() / item_bytes_min.max(1)).then_some(count)
    }

    /// Like [`Reader::count`], for an array in a flexible message.
    pub fn compact_count(&mut self, item_bytes_min: usize) -> Option<usize> {
        let count = self.compact_length()?.unwrap_or(0);
        (count <= self.rest.len() / item_bytes_min.max(1)).then_some(count)
    }

    /// Bytes preceded by a 32-bit length, `Some(None)` for null.
    pub fn bytes(&mut self) -> Option<Option<&'a [u8]>> {
        match self.length()? {
            None => Some(None),
            Some(length) => self.take(length).map(Some),
        }
    }

    /// Text preceded by a 16-bit length, `Some(None)` for null.
    pub fn text(&mut self) -> Option<Option<&'a str>> {
        match self.i16()? {
            -1 => Some(None),
            length => {
                let bytes = self.take(usize::try_from(length).ok()?)?;
                std::str::from_utf8(bytes).ok().map(Some)
            }
        }
    }

    /// Text of a flexible message, `Some(None)` for null.
    pub fn compact_text(&mut self) -> Option<Option<&'a str>> {
        match self.compact_length()? {
            None => Some(None),
            Some(length) => std::str::from_utf8(self.take(length)?).ok().map(Some),
        }
    }

    /// Reads the tagged fields at the end of a flexible structure (KIP-482): calls `known` with the tag and the bytes
    /// of each. `known` has to return `None` for a malformed field, and `Some` for a tag that it does not know.
    pub fn tags(&mut self, mut known: impl FnMut(u64, Reader<'a>) -> Option<()>) -> Option<()> {
        // A tag and a length.
        const TAG_BYTES_MIN: u64 = 2;
        let count = self.unsigned()?;
        if count > self.rest.len() as u64 / TAG_BYTES_MIN {
            return None;
        }
        for _ in 0..count {
            let (tag, length) = (self.unsigned()?, self.unsigned()?);
            known(tag, Reader::new(self.take(usize::try_from(length).ok()?)?))?;
        }
        Some(())
    }
}

/// Appends text preceded by its 16-bit length. Longer text is truncated: names are shorter by Kafka's own rules.
pub fn put_text(into: &mut Vec<u8>, text: &str) {
    let bytes = &text.as_bytes()[..text.len().min(i16::MAX as usize)];
    into.extend_from_slice(&(bytes.len() as i16).to_be_bytes());
    into.extend_from_slice(bytes);
}

/// Appends text of a flexible message.
pub fn put_compact_text(into: &mut Vec<u8>, text: &str) {
    put_unsigned(into, text.len() as u64 + 1);
    into.extend_from_slice(text.as_bytes());
}

#[cfg(test)]
mod tests;
