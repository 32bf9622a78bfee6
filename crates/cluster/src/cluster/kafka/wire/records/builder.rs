//! Building a batch in the buffer it will be sent from: room for its head, then its records.

use thiserror::Error;

use super::super::primitives::{Scratch, VARINT_BYTES_MAX, VARLONG_BYTES_MAX, varint_bytes};
use super::pack::Packer;
use super::{CHECKED_FROM, Codec, HEAD_BYTES, LENGTH_END, MAGIC, NONE, TRANSACTIONAL_BIT};
use crate::record::Headers;

/// The most bytes that a record takes besides its tail: its length, attributes and two deltas.
pub const RECORD_HEAD_BYTES_MAX: usize = 2 * VARINT_BYTES_MAX + 1 + VARLONG_BYTES_MAX;
/// The initial capacity of a buffer.
const BYTES_MIN: usize = 1 << 10;

/// Lengths are numbers of 32 bits.
const BATCH_BYTES_MAX: usize = i32::MAX as usize;

/// A record that does not fit: the batch would reach 2 GiB. Senders bound batches far below that.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("the record does not fit into the batch, which must stay below 2 GiB")]
pub struct TooLarge;

/// Who sends a batch, and its place in the sender's sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SealAs {
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
    /// Room for the head, then the records.
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
        Self { bytes: buffer, count: 0, base_timestamp: NONE, max_timestamp: NONE }
    }

    /// Its buffer, whose contents are meaningless.
    pub fn into_buffer(self) -> Vec<u8> {
        self.bytes
    }

    /// Makes room for `bytes` more. The buffer grows to at most `full` bytes unless it needs more; a vector by itself
    /// would take up to twice as much.
    #[inline]
    pub fn make_room(&mut self, bytes: usize, full: usize) {
        if self.bytes.capacity() - self.bytes.len() < bytes {
            self.grow(bytes, full);
        }
    }

    #[cold]
    fn grow(&mut self, bytes: usize, full: usize) {
        let doubled = self.bytes.capacity().saturating_mul(2).max(BYTES_MIN).min(full);
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
        let (header_count, header_bytes) = measure(headers);
        let tail_bytes = counted_bytes(key) + counted_bytes(value) + varint_bytes(header_count) + header_bytes;
        self.start(timestamp, tail_bytes)?;
        self.put_counted(key);
        self.put_counted(value);
        put_short(&mut self.bytes, header_count);
        for header in headers.iter() {
            self.put_counted(Some(header.name));
            self.put_counted(header.value);
        }
        Ok(())
    }

    /// Appends a record with another record's key, value and headers, byte for byte: its [`super::RawRecord::tail`].
    /// After an error the batch is unchanged.
    #[inline]
    pub fn push_tail(&mut self, timestamp: i64, tail: &[u8]) -> Result<(), TooLarge> {
        self.start(timestamp, tail.len())?;
        self.bytes.extend_from_slice(tail);
        Ok(())
    }

    /// Begins a record whose tail takes `tail_bytes`.
    #[inline(always)]
    fn start(&mut self, timestamp: i64, tail_bytes: usize) -> Result<(), TooLarge> {
        let room = BATCH_BYTES_MAX - self.bytes.len().min(BATCH_BYTES_MAX);
        if room < RECORD_HEAD_BYTES_MAX || tail_bytes > room - RECORD_HEAD_BYTES_MAX || self.count == i32::MAX {
            return Err(TooLarge);
        }
        if self.count == 0 {
            (self.base_timestamp, self.max_timestamp) = (timestamp, timestamp);
        }
        self.max_timestamp = self.max_timestamp.max(timestamp);
        let (later, number) = (timestamp.wrapping_sub(self.base_timestamp), i64::from(self.count));
        let length = 1 + varint_bytes(later) + varint_bytes(number) + tail_bytes;
        let mut head = Scratch::new();
        head.varint(length as i64);
        head.byte(0);
        head.varint(later);
        head.varint(number);
        head.flush(&mut self.bytes);
        self.count += 1;
        Ok(())
    }

    #[inline(always)]
    fn put_counted(&mut self, bytes: Option<&[u8]>) {
        put_short(&mut self.bytes, bytes.map_or(NONE, |bytes| bytes.len() as i64));
        self.bytes.extend_from_slice(bytes.unwrap_or_default());
    }

    /// Finishes the batch for sending, compressed if that makes it smaller. The caller returns its buffer to
    /// [`Packer::recycle`] afterwards.
    pub fn seal(mut self, seal: SealAs, packer: &mut Packer) -> Vec<u8> {
        let records = self.bytes.get(HEAD_BYTES..).unwrap_or_default();
        let packed = packer.pack(records);
        let codec = if packed.is_some() { packer.codec() } else { Codec::None };
        let built = std::mem::take(&mut self.bytes);
        let mut batch = match packed {
            Some(packed) => {
                packer.recycle(built);
                packed
            }
            None => built,
        };
        self.write_head(seal, codec, &mut batch);
        batch
    }

    fn write_head(&self, seal: SealAs, codec: Codec, batch: &mut [u8]) {
        let length = batch.len() - LENGTH_END;
        let attributes = codec.bits() | if seal.transactional { TRANSACTIONAL_BIT } else { 0 };
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
        head.put(seal.producer_id.to_be_bytes());
        head.put(seal.producer_epoch.to_be_bytes());
        head.put(seal.base_sequence.to_be_bytes());
        head.put(self.count.to_be_bytes());
        let checksum = crc32c::crc32c(&head.batch[CHECKED_FROM..]);
        head.at = CHECKED_FROM - 4;
        head.put(checksum.to_be_bytes());
    }
}

/// Writes the head of a batch, front to back.
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

/// Appends a zigzag varint that mostly takes one byte.
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
fn counted_bytes(bytes: Option<&[u8]>) -> usize {
    let length = bytes.map_or(0, <[u8]>::len);
    varint_bytes(if bytes.is_some() { length as i64 } else { -1 }) + length
}

/// The count of the headers, and their encoded size in bytes.
#[inline]
fn measure(headers: Headers<'_>) -> (i64, usize) {
    if headers.is_empty() {
        return (0, 0);
    }
    headers.iter().fold((0, 0), |(count, bytes), header| {
        (count + 1, bytes + counted_bytes(Some(header.name)) + counted_bytes(header.value))
    })
}
