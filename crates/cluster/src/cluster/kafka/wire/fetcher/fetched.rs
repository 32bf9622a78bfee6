//! What is handed on, that is, returned to the fetcher's caller: the responses' own buffers, unpacked batches, and a
//! list of *places*, which say where in these bytes the records are. Records are not copied; the list keeps its memory
//! when it is cleared.

use std::ops::Range;
use std::sync::Arc;

use super::super::connection::Body;
use super::super::records::{RawRecord, Unpacked};
use crate::record::TopicPartition;

/// Bytes that records are borrowed from.
#[derive(Clone, Debug)]
pub(super) enum HeldBytes {
    /// A response.
    Response(Arc<Body>),
    /// An unpacked batch of a response.
    Unpacked(Arc<Unpacked>),
}

impl HeldBytes {
    pub fn as_slice(&self) -> &[u8] {
        match self {
            Self::Response(body) => body.as_slice(),
            Self::Unpacked(bytes) => bytes,
        }
    }
}

/// Consecutive records of one batch: all of them, or those that were handed on together.
#[derive(Debug)]
struct BatchPart {
    /// Index into [`Fetched::partitions`].
    partition: u32,
    leader_epoch: i32,
    /// The bytes that contain the records.
    held: HeldBytes,
}

/// Where a record is. Each pair is a start, counted from the beginning of its batch part's `held`, and a length, which
/// is [`NULL`] for a key or a value that is null.
#[derive(Clone, Copy, Debug)]
struct RecordPlace {
    /// Index into `Fetched::batch_parts`.
    batch_part: u32,
    offset: i64,
    timestamp: i64,
    key: (u32, u32),
    value: (u32, u32),
    header_count: u32,
    /// Where the headers start, after their count. They end where the tail ends.
    headers_at: u32,
    /// From the length of the key to the end of the headers: see [`RawRecord::tail`].
    tail: (u32, u32),
}

/// The length that means null.
const NULL: u32 = u32::MAX;

/// Consecutive offsets that the partition's position has moved over, all in one leader's epoch: those of records, of
/// aborted records, of transaction markers, and gaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Passed {
    /// Index into [`Fetched::partitions`].
    pub partition: usize,
    /// The first offset.
    pub first: i64,
    /// The offset after the last.
    pub next: i64,
    /// The epoch of the leader that appended them, or that reported the gap; -1 if it is not known.
    pub leader_epoch: i32,
}

/// Records handed on by [`super::Fetcher::take`], from any number of partitions; each partition's are in order.
#[derive(Debug, Default)]
pub struct Fetched {
    partitions: Vec<TopicPartition>,
    batch_parts: Vec<BatchPart>,
    places: Vec<RecordPlace>,
    passed: Vec<Passed>,
    /// Whether any record has headers.
    has_headers: bool,
}

impl Fetched {
    /// The partitions of the records. There may be others without records: for example, only a transaction marker was
    /// passed.
    pub fn partitions(&self) -> &[TopicPartition] {
        &self.partitions
    }

    /// The number of records.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// Whether any record has headers.
    pub fn has_headers(&self) -> bool {
        self.has_headers
    }

    /// Releases everything.
    pub fn clear(&mut self) {
        self.release(&mut Vec::new());
    }

    /// Which of [`Fetched::partitions`] a record is from.
    pub fn partition_index(&self, index: usize) -> Option<usize> {
        Some(self.batch_part(index)?.partition as usize)
    }

    /// The epoch of the leader that wrote a record.
    pub fn leader_epoch(&self, index: usize) -> Option<i32> {
        Some(self.batch_part(index)?.leader_epoch)
    }

    fn batch_part(&self, index: usize) -> Option<&BatchPart> {
        self.batch_parts.get(self.places.get(index)?.batch_part as usize)
    }

    /// A record, borrowed from its response or its unpacked batch; `None` if `index` is out of range.
    pub fn record(&self, index: usize) -> Option<RawRecord<'_>> {
        let place = self.places.get(index)?;
        let bytes = self.batch_parts.get(place.batch_part as usize)?.held.as_slice();
        let cut = |(at, len): (u32, u32)| bytes.get(at as usize..at as usize + len as usize);
        let part = |(at, len): (u32, u32)| if len == NULL { Some(None) } else { Some(Some(cut((at, len))?)) };
        let tail = cut(place.tail)?;
        let end = place.tail.0 as usize + tail.len();
        Some(RawRecord {
            offset: place.offset,
            timestamp: place.timestamp,
            key: part(place.key)?,
            value: part(place.value)?,
            header_count: place.header_count as usize,
            headers_raw: bytes.get(place.headers_at as usize..end)?,
            tail,
        })
    }

    /// The records in order, with the index of the partition of each.
    pub fn iter(&self) -> impl Iterator<Item = (usize, RawRecord<'_>)> {
        (0..self.len()).filter_map(|index| Some((self.partition_index(index)?, self.record(index)?)))
    }

    /// The offsets that the positions have moved over, with their leaders' epochs; each partition's are in order.
    pub fn passed(&self) -> &[Passed] {
        &self.passed
    }

    /// Releases everything. Buffers without other owners are moved to `spare`.
    pub(super) fn release(&mut self, spare: &mut Vec<Vec<u8>>) {
        for part in self.batch_parts.drain(..) {
            if let HeldBytes::Response(body) = part.held
                && let Ok(body) = Arc::try_unwrap(body)
            {
                spare.push(body.into_buffer());
            }
        }
        self.has_headers = false;
        self.places.clear();
        self.passed.clear();
        self.partitions.clear();
    }

    /// Adds a partition, and returns its index.
    pub(super) fn add_partition(&mut self, partition: &TopicPartition) -> usize {
        self.partitions.push(partition.clone());
        self.partitions.len() - 1
    }

    /// Adds a part of a batch, to which the records that are added next belong. `held`: the bytes that contain them.
    pub(super) fn add_batch_part(&mut self, partition: usize, leader_epoch: i32, held: HeldBytes) {
        self.batch_parts.push(BatchPart { partition: partition as u32, leader_epoch, held });
    }

    /// Adds a record of the last batch part. `bytes`: all of that part's `held`, less than 4 GiB.
    pub(super) fn add(&mut self, bytes: &[u8], record: &RawRecord<'_>) {
        let place = |part: &[u8]| (place_in(bytes, part) as u32, part.len() as u32);
        let part = |part: Option<&[u8]>| part.map_or((0, NULL), place);
        self.has_headers |= record.header_count > 0;
        self.places.push(RecordPlace {
            batch_part: self.batch_parts.len() as u32 - 1,
            offset: record.offset,
            timestamp: record.timestamp,
            key: part(record.key),
            value: part(record.value),
            header_count: record.header_count as u32,
            headers_at: place(record.headers_raw).0,
            tail: place(record.tail),
        });
    }

    /// Notes that a partition's position has moved over these offsets.
    pub(super) fn pass(&mut self, partition: usize, offsets: Range<i64>, leader_epoch: i32) {
        match self.passed.last_mut() {
            Some(last)
                if (last.partition, last.leader_epoch, last.next) == (partition, leader_epoch, offsets.start) =>
            {
                last.next = offsets.end;
            }
            _ => self.passed.push(Passed { partition, first: offsets.start, next: offsets.end, leader_epoch }),
        }
    }
}

/// Where in `bytes` a part of it begins.
pub(super) fn place_in(bytes: &[u8], part: &[u8]) -> usize {
    (part.as_ptr() as usize).saturating_sub(bytes.as_ptr() as usize).min(bytes.len())
}
