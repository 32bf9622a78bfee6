//! Builds a batch in the buffer from which it will be sent: space for its head, then its records.

use thiserror::Error;

use super::super::primitives::{Scratch, VARINT_BYTES_MAX, VARLONG_BYTES_MAX, varint_bytes};
use super::pack::Packer;
use super::{CHECKED_FROM, Codec, HEAD_BYTES, LENGTH_END, MAGIC, TRANSACTIONAL_BIT, UNSET};
use crate::record::Headers;

/// The most bytes that a record takes before its tail (its key, value and headers): its length, attributes and two
/// deltas.
pub const RECORD_HEAD_BYTES_MAX: usize = 2 * VARINT_BYTES_MAX + 1 + VARLONG_BYTES_MAX;
/// The initial capacity of a buffer.
const BYTES_MIN: usize = 1 << 10;

/// The largest length of a batch: lengths are signed numbers of 32 bits.
const BATCH_BYTES_MAX: usize = i32::MAX as usize;

/// The record does not fit, since the batch would reach 2 GiB. Senders limit batches to far less.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record does not fit into the batch, which must stay below 2 GiB")]
pub struct TooLarge;

/// The producer of a batch, and the batch's position in the producer's sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BatchProducer {
    /// The producer's id, -1 for none.
    pub producer_id: i64,
    /// The producer's epoch, -1 for none.
    pub producer_epoch: i16,
    /// The sequence number of the first record, -1 for none.
    pub base_sequence: i32,
    /// Whether it is part of a transaction.
    pub transactional: bool,
}

/// A batch that is being built.
#[derive(Debug)]
pub struct BatchBuilder {
    /// Space for the head, then the records.
    bytes: Vec<u8>,
    count: i32,
    base_timestamp: i64,
    max_timestamp: i64,
}

impl Default for BatchBuilder {
    fn default() -> Self {
        Self::new()
    }
}

impl BatchBuilder {
    /// An empty batch.
    pub fn new() -> Self {
        Self::within(Vec::new())
    }

    /// An empty batch that is built in `buffer`, which is cleared.
    pub fn within(mut buffer: Vec<u8>) -> Self {
        buffer.clear();
        buffer.resize(HEAD_BYTES, 0);
        Self { bytes: buffer, count: 0, base_timestamp: UNSET, max_timestamp: UNSET }
    }

    /// Its buffer, whose contents are meaningless.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Makes room for `bytes` more bytes. The buffer grows to at most `full_bytes` unless it needs more; a vector that
    /// grows by itself would take up to twice as much.
    #[inline]
    pub fn make_room(&mut self, bytes: usize, full_bytes: usize) {
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.grow(bytes, full_bytes);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize, full_bytes: usize) {
        let doubled = self.bytes.capacity().saturating_mul(2).max(BYTES_MIN).min(full_bytes);
        self.bytes.reserve_exact(bytes.max(doubled.saturating_sub(self.bytes.len())));
    }

    /// Its size in bytes, uncompressed, including its head.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// How many records it has.
    pub fn count(&self) -> i32 {
        self.count
    }

    /// Whether it has no records.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Appends a record. `timestamp` is in milliseconds since the epoch, -1 for none; it is written unchanged. After an
    /// error the batch is unchanged.
    pub fn push(
        &mut self,
        timestamp: i64,
        key: Option<&[u8]>,
        value: Option<&[u8]>,
        headers: Headers<'_>,
    ) -> Result<(), TooLarge> {
        let (header_count, header_bytes) = measure_headers(headers);
        let tail_bytes = prefixed_len(key) + prefixed_len(value) + varint_bytes(header_count) + header_bytes;
        self.push_head(timestamp, tail_bytes)?;
        self.put_prefixed_bytes(key);
        self.put_prefixed_bytes(value);
        put_short(&mut self.bytes, header_count);
        for header in headers.iter() {
            self.put_prefixed_bytes(Some(header.name));
            self.put_prefixed_bytes(header.value);
        }
        Ok(())
    }

    /// Appends a record with another record's key, value and headers, byte for byte: its [`super::RawRecord::tail`].
    /// After an error the batch is unchanged.
    #[inline]
    pub fn push_tail(&mut self, timestamp: i64, tail: &[u8]) -> Result<(), TooLarge> {
        self.push_head(timestamp, tail.len())?;
        self.bytes.extend_from_slice(tail);
        Ok(())
    }

    /// Appends the head of a record whose tail takes `tail_bytes`.
    #[inline(always)]
    fn push_head(&mut self, timestamp: i64, tail_bytes: usize) -> Result<(), TooLarge> {
        let room = BATCH_BYTES_MAX - self.bytes.len().min(BATCH_BYTES_MAX);
        if room < RECORD_HEAD_BYTES_MAX || tail_bytes > room - RECORD_HEAD_BYTES_MAX || self.count == i32::MAX {
            return Err(TooLarge);
        }
        if self.count == 0 {
            (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let (timestamp_delta, offset_delta) = (timestamp.wrapping_sub(self.base_timestamp), i64::from(self.count));
        let length = 1 + varint_bytes(timestamp_delta) + varint_bytes(offset_delta) + tail_bytes;
        let mut head = Scratch::new();
        head.varint(length as i64);
        head.byte(0);
        head.varint(timestamp_delta);
        head.varint(offset_delta);
        head.flush(&mut self.bytes);
        self.count += 1;
        Ok(())
    }

    #[inline(always)]
    fn put_prefixed_bytes(&mut self, bytes: Option<&[u8]>) {
        put_short(&mut self.bytes, bytes.map_or(UNSET, |bytes| bytes.len() as i64));
        self.bytes.extend_from_slice(bytes.unwrap_or_default());
    }

    /// Finishes the batch for sending, compressed if that makes it smaller. After sending, the caller returns the
    /// buffer to [`Packer::recycle`].
    pub fn seal(mut self, producer: BatchProducer, packer: &mut Packer) -> Vec<u8> {
        let records = self.bytes.get(HEAD_BYTES..).unwrap_or_default();
        let packed = packer.pack(records);
        let codec = if packed.is_some() { packer.codec() } else { Codec::None };
        let unpacked = std::mem::take(&mut self.bytes);
        let mut batch = match packed {
            Some(packed) => {
                packer.recycle(unpacked);
                packed
            }
            None => unpacked,
        };
        self.write_head(producer, codec, &mut batch);
        batch
    }

    fn write_head(&self, producer: BatchProducer, codec: Codec, batch: &mut [u8]) {
        let length = batch.len() - LENGTH_END;
        let attributes = codec.bits() | if producer.transactional { TRANSACTIONAL_BIT } else { 0 };
        // The broker sets the base offset and the leader's epoch.
        let mut head = Head { batch, at: 0 };
        head.put(0_i64.to_be_bytes());
        head.put((length as i32).to_be_bytes());
        head.put((-1_i32).to_be_bytes());
        head.put(MAGIC.to_be_bytes());
        head.put([0; 4]);
        head.put(attributes.to_be_bytes());
        head.put((self.count - 1).max(0).to_be_bytes());
        head.put(self.base_timestamp.to_be_bytes());
        head.put(self.max_timestamp.to_be_bytes());
        head.put(producer.producer_id.to_be_bytes());
        head.put(producer.producer_epoch.to_be_bytes());
        head.put(producer.base_sequence.to_be_bytes());
        head.put(self.count.to_be_bytes());
        let checksum = crc32c::crc32c(&head.batch[CHECKED_FROM..]);
        head.at = CHECKED_FROM - 4;
        head.put(checksum.to_be_bytes());
    }
}

/// Writes the head of a batch from front to back.
struct Head<'a> {
    batch: &'a mut [u8],
    at: usize,
}

impl Head<'_> {
    fn put<const N: usize>(&mut self, bytes: [u8; N]) {
        self.batch[self.at..self.at + N].copy_from_slice(&bytes);
        self.at += N;
    }
}

/// Appends a zigzag varint; fast if it takes one byte, as most do.
#[inline(always)]
fn put_short(into: &mut Vec<u8>, number: i64) {
    if varint_bytes(number) == 1 {
        return into.push((number << 1 ^ number >> 63) as u8);
    }
    let mut scratch = Scratch::new();
    scratch.varint(number);
    scratch.flush(into);
}

#[inline(always)]
fn prefixed_len(bytes: Option<&[u8]>) -> usize {
    let length = bytes.map_or(0, <[u8]>::len);
    varint_bytes(if bytes.is_some() { length as i64 } else { -1 }) + length
}

/// The count of the headers, and their encoded size in bytes.
#[inline]
fn measure_headers(headers: Headers<'_>) -> (i64, usize) {
    if headers.is_empty() {
        return (0, 0);
    }
    headers.iter().fold((0, 0), |(count, bytes), header| {
        (count + 1, bytes + prefixed_len(Some(header.name)) + prefixed_len(header.value))
    })
}
