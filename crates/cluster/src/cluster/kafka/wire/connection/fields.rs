//! A message's fields where flexible versions (KIP-482) and earlier ones differ only in how lengths are written.
//!
//! **Failure**: `None` where bytes are missing or cannot be what they should; nothing is reserved for what a message
//! only claims to hold.

use crate::cluster::kafka::wire::primitives::{Reader, put_compact_text, put_text, put_unsigned};

/// Reads a message in one of its versions.
#[derive(Clone, Copy, Debug)]
pub struct Fields<'a> {
    /// For what does not depend on the version.
    pub reader: Reader<'a>,
    is_flexible: bool,
}

impl<'a> Fields<'a> {
    /// Begins at the first of `bytes`.
    pub fn new(bytes: &'a [u8], is_flexible: bool) -> Self {
        Self { reader: Reader::new(bytes), is_flexible }
    }

    /// Goes on where `reader` is.
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

    /// Bytes after their length; none for null.
    pub fn bytes(&mut self) -> Option<&'a [u8]> {
        match self.is_flexible {
            true => {
                let length = self.reader.compact_count(1)?;
                self.reader.take(length)
            }
            false => Some(self.reader.bytes()?.unwrap_or_default()),
        }
    }

    /// The count of an array whose items take at least `item_bytes_min`, 0 for null.
    pub fn count(&mut self, item_bytes_min: usize) -> Option<usize> {
        match self.is_flexible {
            true => self.reader.compact_count(item_bytes_min),
            false => self.reader.count(item_bytes_min),
        }
    }

    /// Passes over an array of items of four bytes.
    pub fn skip_i32s(&mut self) -> Option<()> {
        let count = self.count(4)?;
        self.reader.take(count.checked_mul(4)?).map(drop)
    }

    /// The tagged fields at the end of a structure; before flexible versions there are none. See [`Reader::tags`].
    pub fn tags(&mut self, known: impl FnMut(u64, Reader<'a>) -> Option<()>) -> Option<()> {
        match self.is_flexible {
            true => self.reader.tags(known),
            false => Some(()),
        }
    }

    /// Passes over the tagged fields.
    pub fn skip_tags(&mut self) -> Option<()> {
        self.tags(|_, _| Some(()))
    }
}

/// Appends text.
pub fn put(out: &mut Vec<u8>, text: &str, is_flexible: bool) {
    match is_flexible {
        true => put_compact_text(out, text),
        false => put_text(out, text),
    }
}

/// Appends bytes after their length. There are less than 2^31.
pub fn put_bytes(out: &mut Vec<u8>, bytes: &[u8], is_flexible: bool) {
    put_count(out, bytes.len(), is_flexible);
    out.extend_from_slice(bytes);
}

/// Appends the count of an array. It is less than 2^31.
pub fn put_count(out: &mut Vec<u8>, count: usize, is_flexible: bool) {
    match is_flexible {
        true => put_unsigned(out, count as u64 + 1),
        false => out.extend_from_slice(&(count as i32).to_be_bytes()),
    }
}

/// Appends that a structure has no tagged fields, in versions where it could.
pub fn put_no_tags(out: &mut Vec<u8>, is_flexible: bool) {
    if is_flexible {
        out.push(0);
    }
}
