//! A record as it was read: its position and its borrowed bytes.

use std::fmt;
use std::sync::Arc;

/// One partition of one topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPartition {
    /// The topic's name.
    pub topic: Arc<str>,
    /// The partition's number, from 0.
    pub partition: i32,
}

impl TopicPartition {
    /// Partition `partition` of `topic`.
    pub fn new(topic: impl Into<Arc<str>>, partition: i32) -> Self {
        Self { topic: topic.into(), partition }
    }
}

impl fmt::Display for TopicPartition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.topic, self.partition)
    }
}

/// A record, borrowed from the batch it was read into.
#[derive(Clone, Copy, Debug)]
pub struct Record<'a> {
    /// The topic it was read from.
    pub topic: &'a str,
    /// The partition it was read from.
    pub partition: i32,
    /// Its offset there.
    pub offset: i64,
    /// Milliseconds since the epoch; `None` if the record has no timestamp (-1).
    pub timestamp: Option<i64>,
    /// The key's bytes, `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value's bytes, `None` for null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: Headers<'a>,
}

/// One header. Kafka allows several with the same name, and null values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header<'a> {
    /// The name's bytes: UTF-8 in Kafka, case-sensitive.
    pub name: &'a [u8],
    /// The value's bytes, `None` for null.
    pub value: Option<&'a [u8]>,
}

/// A record's headers, in order, encoded in one slice: for each, the name's length (`u32`), the name, the value's
/// length (`u32`, all ones for null) and the value; all numbers are little-endian.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Headers<'a> {
    encoded: &'a [u8],
}

/// The length that stands for a null value.
const NULL: u32 = u32::MAX;

impl<'a> Headers<'a> {
    /// Headers from the bytes of [`Headers::as_bytes`]. Truncated bytes end the list early.
    pub fn from_bytes(encoded: &'a [u8]) -> Self {
        Self { encoded }
    }

    /// The bytes, encoded as described for the type.
    pub fn as_bytes(&self) -> &'a [u8] {
        self.encoded
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.encoded.is_empty()
    }

    /// The headers, in order.
    pub fn iter(&self) -> impl Iterator<Item = Header<'a>> + use<'a> {
        let mut rest = self.encoded;
        std::iter::from_fn(move || {
            let name = take_counted(&mut rest)??;
            let value = take_counted(&mut rest)?;
            Some(Header { name, value })
        })
    }

    /// The last header with this name: the last one wins.
    pub fn last(&self, name: &[u8]) -> Option<Header<'a>> {
        self.iter().filter(|header| header.name == name).last()
    }
}

/// Takes a length and that many bytes off the front: `None` where the bytes end, `Some(None)` for null.
fn take_counted<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, after) = rest.split_first_chunk::<4>()?;
    let length = u32::from_le_bytes(*length);
    if length == NULL {
        *rest = after;
        return Some(None);
    }
    let (bytes, after) = after.split_at_checked(length as usize)?;
    *rest = after;
    Some(Some(bytes))
}

/// Headers being built.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct HeaderBuf {
    encoded: Vec<u8>,
}

impl HeaderBuf {
    /// Appends a header. Its lengths are those of a Kafka record, far below 4 GiB.
    pub fn push(&mut self, name: &[u8], value: Option<&[u8]>) {
        self.put_counted(Some(name));
        self.put_counted(value);
    }

    /// Appends all of `headers`.
    pub fn extend(&mut self, headers: Headers<'_>) {
        self.encoded.extend_from_slice(headers.encoded);
    }

    /// Removes all headers and keeps the memory.
    pub fn clear(&mut self) {
        self.encoded.clear();
    }

    /// How many bytes the headers take.
    pub fn byte_len(&self) -> usize {
        self.encoded.len()
    }

    /// The headers, borrowed.
    pub fn as_headers(&self) -> Headers<'_> {
        Headers { encoded: &self.encoded }
    }

    fn put_counted(&mut self, bytes: Option<&[u8]>) {
        let length = bytes.map_or(NULL, |bytes| u32::try_from(bytes.len()).expect("a record is far below 4 GiB"));
        self.encoded.extend_from_slice(&length.to_le_bytes());
        self.encoded.extend_from_slice(bytes.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_keep_order_nulls_and_repeated_names() {
        let mut headers = HeaderBuf::default();
        headers.push(b"id", Some(b"1"));
        headers.push(b"none", None);
        headers.push(b"id", Some(b""));
        let seen: Vec<_> = headers.as_headers().iter().map(|h| (h.name, h.value)).collect();
        assert_eq!(seen, [(&b"id"[..], Some(&b"1"[..])), (b"none", None), (b"id", Some(b""))]);
        assert_eq!(headers.as_headers().last(b"id").unwrap().value, Some(&b""[..]));
        assert_eq!(headers.as_headers().last(b"ID"), None);
    }

    #[test]
    fn truncated_bytes_end_the_list() {
        let mut headers = HeaderBuf::default();
        headers.push(b"id", Some(b"123"));
        let bytes = headers.as_headers().as_bytes();
        assert_eq!(Headers::from_bytes(&bytes[..bytes.len() - 1]).iter().count(), 0);
    }
}
