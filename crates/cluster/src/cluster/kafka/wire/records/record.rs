//! The records of an unpacked batch.

use super::super::primitives::{non_negative, prefixed_bytes, varlong};
use super::{Batch, Error};
use crate::record::HeaderBuf;

/// The fewest bytes that a header takes: the lengths of its name and of its value.
const HEADER_BYTES_MIN: usize = 2;
/// The fewest bytes that a record takes: its length, attributes, two deltas, the lengths of key and value, and the
/// count of headers.
const RECORD_BYTES_MIN: usize = 7;

/// A record, borrowed from its unpacked batch. It is well formed, headers included.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RawRecord<'a> {
    /// The offset.
    pub offset: i64,
    /// Milliseconds since the epoch, -1 for none.
    pub timestamp: i64,
    /// The key's bytes, `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value's bytes, `None` for null.
    pub value: Option<&'a [u8]>,
    /// How many headers the record has.
    pub header_count: usize,
    /// The encoded headers, without their count.
    pub headers_raw: &'a [u8],
    /// All bytes that do not depend on the record's position: from the key's length to the end of the headers. See
    /// [`super::BatchBuilder::push_tail`].
    pub tail: &'a [u8],
}

impl<'a> RawRecord<'a> {
    /// The headers, in order: names and values.
    #[inline]
    pub fn headers(&self) -> RawHeaders<'a> {
        RawHeaders { rest: self.headers_raw }
    }

    /// Appends the headers to `into`.
    #[inline]
    pub fn copy_headers(&self, into: &mut HeaderBuf) {
        for (name, value) in self.headers() {
            into.push(name, value);
        }
    }
}

/// A record's encoded headers: names and values, `None` for null.
#[derive(Clone, Debug)]
pub struct RawHeaders<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for RawHeaders<'a> {
    type Item = (&'a [u8], Option<&'a [u8]>);

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        header(&mut self.rest)
    }
}

/// Takes a header's name and value off the front.
#[inline(always)]
fn header<'a>(rest: &mut &'a [u8]) -> Option<(&'a [u8], Option<&'a [u8]>)> {
    let (name, after) = prefixed_bytes(rest)?;
    let (value, after) = prefixed_bytes(after)?;
    *rest = after;
    Some((name?, value))
}

/// The records of a batch, in order; an error ends them.
#[derive(Clone, Debug)]
pub struct Records<'a> {
    rest: &'a [u8],
    left: usize,
    base_offset: i64,
    /// The lowest valid offset delta of the next record; `last_delta` is the highest.
    next_delta_min: i64,
    last_delta: i64,
    base_timestamp: i64,
    /// The timestamp of all records, if the broker stamped the batch.
    stamp: Option<i64>,
}

impl<'a> Records<'a> {
    pub(super) fn new(batch: &Batch<'_>, unpacked: &'a [u8]) -> Self {
        Self {
            rest: unpacked,
            left: usize::try_from(batch.count).unwrap_or(0),
            base_offset: batch.base_offset,
            next_delta_min: 0,
            last_delta: batch.last_offset - batch.base_offset,
            base_timestamp: batch.base_timestamp,
            stamp: batch.is_stamped().then_some(batch.max_timestamp),
        }
    }

    /// Resumes where an earlier `Records` stopped: takes its [`Records::rest`] and [`Records::left`], and the lowest
    /// valid offset of the next record.
    pub(super) fn resume(batch: &Batch<'_>, rest: &'a [u8], left: usize, next_offset: i64) -> Self {
        let next_delta_min = next_offset.saturating_sub(batch.base_offset).max(0);
        Self { left, next_delta_min, ..Self::new(batch, rest) }
    }

    /// The bytes of the unread records.
    pub fn rest(&self) -> &'a [u8] {
        self.rest
    }

    /// How many records are unread, according to the batch's head.
    pub fn left(&self) -> usize {
        self.left
    }

    #[inline(always)]
    fn read_next(&mut self) -> Result<RawRecord<'a>, Error> {
        const INVALID_LENGTH: Error =
            Error::Damaged("a record does not match its length, or its length exceeds the batch");
        let (offset_delta, timestamp_delta, record) = self.split_record().ok_or(INVALID_LENGTH)?;
        if offset_delta < self.next_delta_min || offset_delta > self.last_delta {
            return Err(Error::Damaged("a record's offset is out of order, or beyond the batch's last"));
        }
        self.next_delta_min = offset_delta + 1;
        let timestamp = self.stamp.unwrap_or(self.base_timestamp.wrapping_add(timestamp_delta));
        Ok(RawRecord { offset: self.base_offset + offset_delta, timestamp, ..record })
    }

    /// The next record's offset delta and timestamp delta, and the record without its offset and timestamp.
    #[inline(always)]
    fn split_record(&mut self) -> Option<(i64, i64, RawRecord<'a>)> {
        let (length, rest) = non_negative(self.rest)?;
        let (record, rest) = rest.split_at_checked(length)?;
        self.rest = rest;
        let (_attributes, rest) = record.split_first()?;
        let (timestamp_delta, rest) = varlong(rest)?;
        let (offset_delta, tail) = non_negative(rest)?;
        let (key, rest) = prefixed_bytes(tail)?;
        let (value, rest) = prefixed_bytes(rest)?;
        let (header_count, headers_raw) = non_negative(rest)?;
        let are_headers_valid = match header_count {
            0 => headers_raw.is_empty(),
            count => are_headers(count, headers_raw),
        };
        let record = RawRecord { offset: 0, timestamp: 0, key, value, header_count, headers_raw, tail };
        are_headers_valid.then_some((offset_delta as i64, timestamp_delta, record))
    }
}

/// Whether `bytes` are exactly `count` headers.
fn are_headers(count: usize, bytes: &[u8]) -> bool {
    if count > bytes.len() / HEADER_BYTES_MIN {
        return false;
    }
    let mut rest = bytes;
    (0..count).all(|_| header(&mut rest).is_some()) && rest.is_empty()
}

impl<'a> Iterator for Records<'a> {
    type Item = Result<RawRecord<'a>, Error>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        let next = match self.left {
            0 if self.rest.is_empty() => return None,
            0 => Err(Error::Damaged("bytes follow its last record")),
            _ => self.read_next(),
        };
        match next {
            Ok(_) => self.left -= 1,
            Err(_) => (self.left, self.rest) = (0, &[]),
        }
        Some(next)
    }

    /// The upper bound is limited by the unread bytes, whatever the head claims: callers may reserve memory for it.
    fn size_hint(&self) -> (usize, Option<usize>) {
        (0, Some(self.left.min(self.rest.len() / RECORD_BYTES_MIN) + 1))
    }
}
