//! The fields of messages whose flexible versions (KIP-482) differ from earlier ones only in how lengths are encoded,
//! and in the tagged fields at the ends of structures, which earlier versions do not have.
//!
//! **Failure**: `None` if bytes are missing or invalid. No memory is reserved for more items than the message's bytes
//! can hold.

use crate::cluster::kafka::wire::primitives::{Reader, put_compact_text, put_text, put_unsigned};

/// Reads a message in one of its versions.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// Reads the fields that do not depend on the version.
    pub reader: Reader<'a>,
    is_flexible: bool,
}

impl<'a> Fields<'a> {
    /// Starts at the beginning of `bytes`.
    pub fn new(bytes: &'a [u8], is_flexible: bool) -> Self {
        Self { reader: Reader::new(bytes), is_flexible }
    }

    /// Continues at `reader`'s position.
    pub fn of(reader: Reader<'a>, is_flexible: bool) -> Self {
        Self { reader, is_flexible }
    }

    /// Text, `Some(None)` for null.
    pub fn nullable_text(&mut self) -> Option<Option<&'a str>> {
        match self.is_flexible {
            true => self.reader.compact_text(),
            false => self.reader.text(),
        }
    }

    /// Text that is not null.
    pub fn text(&mut self) -> Option<&'a str> {
        self.nullable_text()?
    }

    /// Bytes preceded by their length; empty for null.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.is_flexible {
            true => {
                let length = self.reader.compact_count(1)?;
                self.reader.take(length)
            }
            false => Some(self.reader.bytes()?.unwrap_or_default()),
        }
    }

    /// The number of items in an array, 0 for null. Each item takes at least `item_bytes_min` bytes.
    pub fn count(&mut self, item_bytes_min: usize) -> Option<usize> {
        match self.is_flexible {
            true => self.reader.compact_count(item_bytes_min),
            false => self.reader.count(item_bytes_min),
        }
    }

    /// Skips an array of items of four bytes.
    pub fn skip_i32s(&mut self) -> Option<()> {
        let count = self.count(4)?;
        self.reader.take(count.checked_mul(4)?).map(drop)
    }

    /// Reads the tagged fields at the end of a structure, which only flexible versions have: calls `known` with each
    /// field's tag and bytes. See [`Reader::tags`].
    pub fn tags(&mut self, known: impl FnMut(u64, Reader<'a>) -> Option<()>) -> Option<()> {
        match self.is_flexible {
            true => self.reader.tags(known),
            false => Some(()),
        }
    }

    /// Skips the tagged fields.
    pub fn skip_tags(&mut self) -> Option<()> {
        self.tags(|_, _| Some(()))
    }
}

/// Appends text preceded by its length.
pub fn put(out: &mut Vec<u8>, text: &str, is_flexible: bool) {
    match is_flexible {
        true => put_compact_text(out, text),
        false => put_text(out, text),
    }
}

/// Appends bytes preceded by their length, which is less than 2^31.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8], is_flexible: bool) {
    put_count(out, bytes.len(), is_flexible);
    out.extend_from_slice(bytes);
}

/// Appends a number of items or of bytes, which is less than 2^31.
pub fn put_count(out: &mut Vec<u8>, count: usize, is_flexible: bool) {
    match is_flexible {
        true => put_unsigned(out, count as u64 + 1),
        false => out.extend_from_slice(&(count as i32).to_be_bytes()),
    }
}

/// Appends an empty list of tagged fields, in flexible versions.
pub fn put_no_tags(out: &mut Vec<u8>, is_flexible: bool) {
    if is_flexible {
        out.push(0);
    }
}
