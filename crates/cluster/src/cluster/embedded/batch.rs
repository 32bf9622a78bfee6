//! Records as they are read: a batch for lanes, owned records for checks.

use std::ops::Range;

use super::layout::Parts;
use crate::cluster::RecordBatch;
use crate::record::{HeaderBuf, Headers, Record, TopicPartition};

/// Records read from an embedded cluster, with their bytes in one reusable arena.
#[derive(Debug, Default)]
pub struct Batch {
    partitions: Vec<TopicPartition>,
    entries: Vec<Entry>,
    arena: Vec<u8>,
}

#[derive(Debug)]
struct Entry {
    partition_index: usize,
    offset: i64,
    timestamp: Option<i64>,
    key: Option<Range<usize>>,
    value: Option<Range<usize>>,
    headers: Range<usize>,
}

impl Batch {
    /// Removes all records and keeps the memory.
    pub(super) fn clear(&mut self) {
        self.partitions.clear();
        self.entries.clear();
        self.arena.clear();
    }

    /// Adds the partition of the records that follow; returns its index.
    pub(super) fn add_partition(&mut self, partition: &TopicPartition) -> usize {
        self.partitions.push(partition.clone());
        self.partitions.len() - 1
    }

    /// Adds a record of the partition at `partition_index`.
    pub(super) fn push(&mut self, partition_index: usize, offset: i64, parts: &Parts<'_>) {
        let key = parts.key.map(|bytes| self.put(bytes));
        let value = parts.value.map(|bytes| self.put(bytes));
        let headers = self.put(parts.headers.as_bytes());
        self.entries.push(Entry { partition_index, offset, timestamp: parts.timestamp, key, value, headers });
    }

    /// The bytes that the records take.
    pub(super) fn byte_len(&self) -> usize {
        self.arena.len()
    }

    fn put(&mut self, bytes: &[u8]) -> Range<usize> {
        let from = self.arena.len();
        self.arena.extend_from_slice(bytes);
        from..self.arena.len()
    }
}

impl RecordBatch for Batch {
    fn partitions(&self) -> &[TopicPartition] {
        &self.partitions
    }

    fn partition_index(&self, index: usize) -> usize {
        self.entries[index].partition_index
    }

    fn len(&self) -> usize {
        self.entries.len()
    }

    fn record(&self, index: usize) -> Record<'_> {
        let entry = &self.entries[index];
        let partition = &self.partitions[entry.partition_index];
        Record {
            topic: &partition.topic,
            partition: partition.partition,
            offset: entry.offset,
            timestamp: entry.timestamp,
            key: entry.key.clone().map(|range| &self.arena[range]),
            value: entry.value.clone().map(|range| &self.arena[range]),
            headers: Headers::from_bytes(&self.arena[entry.headers.clone()]),
        }
    }
}

/// An owned record, for checks and tests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRecord {
    /// Its offset.
    pub offset: i64,
    /// Milliseconds since the epoch; `None` if it has none.
    pub timestamp: Option<i64>,
    /// The key, `None` for null.
    pub key: Option<Vec<u8>>,
    /// The value, `None` for null.
    pub value: Option<Vec<u8>>,
    /// The headers, in order.
    pub headers: HeaderBuf,
}

impl StoredRecord {
    pub(super) fn new(offset: i64, parts: &Parts<'_>) -> Self {
        let mut headers = HeaderBuf::default();
        headers.extend(parts.headers);
        Self {
            offset,
            timestamp: parts.timestamp,
            key: parts.key.map(<[u8]>::to_vec),
            value: parts.value.map(<[u8]>::to_vec),
            headers,
        }
    }
}
