//! The buffer of a bulk load: records of a store's changelog that a restore has read and the store does not have yet.
//!
//! The **changelog** is a topic from which the store can be rebuilt: its records are those of the store, and a
//! tombstone, a record without a value, deletes its key. The **position record** says how far the input was processed.
//!
//! Records are only appended here; sorting once per load is cheaper than finding the previous record of each
//! key. A large load becomes a table file that RocksDB adds to its own unchanged, bypassing its write buffers (measured
//! at five times the speed of the next best way); for a small load a file would not pay. [`super::build`] sorts the
//! records and writes the file.
//!
//! `sabotage::is_on` says whether a test has switched on a deliberate fault.

use std::path::Path;

use super::Error;
use crate::format::{POSITION_KEY, STORE_META_KEY};
use crate::sabotage::{self, Sabotage};

/// The size of a typical entry, key and value. Buffers have space for as many typical entries as fill their memory.
const ENTRY_BYTES: usize = 32;

/// Changelog records to be loaded into a store; the last record of each key wins.
#[derive(Default)]
pub struct LoadBuffer {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// `None` for an unbounded buffer.
    bound: Option<Box<dyn BufferBound>>,
}

/// The bound on a buffer; dropped with the buffer.
pub trait BufferBound: Send + Sync {
    /// Whether this many more records of typical size fit into `buffer`.
    fn has_room(&self, buffer: &LoadBuffer, records: usize) -> bool;
}

#[derive(Clone, Copy)]
struct Entry {
    /// [`key_head`] of the key, which is enough for most comparisons.
    head: u128,
    /// Where the key starts; the value follows it. Of two records with the same key, the later one has the greater
    /// start.
    start: usize,
    key_length: u32,
    /// [`DELETED`] for a tombstone.
    value_length: u32,
}

/// The value length of a tombstone.
const DELETED: u32 = u32::MAX;

impl Entry {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.start..][..self.key_length as usize]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let start = self.start + self.key_length as usize;
        (self.value_length != DELETED).then(|| &bytes[start..][..self.value_length as usize])
    }
}

/// A key's first 16 bytes as a number, padded with zeros. If the numbers of two keys differ, they have the same order
/// as the keys.
pub fn key_head(key: &[u8]) -> u128 {
    if let Some(head) = key.first_chunk::<16>() {
        return u128::from_be_bytes(*head);
    }
    let mut head = [0; 16];
    head[..key.len()].copy_from_slice(key);
    u128::from_be_bytes(head)
}

impl LoadBuffer {
    /// An empty, unbounded buffer.
    pub fn new() -> Self {
        Self::default()
    }

    /// The memory of a record of typical size.
    pub(super) const RECORD_BYTES: usize = ENTRY_BYTES + size_of::<Entry>();

    /// An empty buffer for this many records of typical size, which `bound` enforces. All of its memory is allocated at
    /// once, so that nothing is moved while it fills; memory that is never written to costs nothing.
    pub(super) fn allocated(records: usize, bound: Box<dyn BufferBound>) -> Self {
        Self {
            entries: Vec::with_capacity(records),
            bytes: Vec::with_capacity(records * ENTRY_BYTES),
            bound: Some(bound),
        }
    }

    /// Whether `records` more records of typical size fit into a buffer for `records_max`.
    pub(super) fn fits(&self, records: usize, records_max: usize) -> bool {
        self.entries.len() + records <= records_max
            && self.bytes.len() + records * ENTRY_BYTES <= records_max * ENTRY_BYTES
    }

    /// An empty buffer that allocates memory as it grows, while `bound` permits.
    pub fn bounded_by(bound: Box<dyn BufferBound>) -> Self {
        Self { bound: Some(bound), ..Self::default() }
    }

    /// Whether this many more records of typical size fit.
    pub fn has_room(&self, records: usize) -> bool {
        self.bound.as_ref().is_none_or(|bound| bound.has_room(self, records))
    }

    /// Adds a record; `None` deletes the key.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        const NOT_HUGE: &str = "keys and values are far below 4 GiB";
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.entries.push(Entry {
            head: key_head(key),
            start,
            key_length: u32::try_from(key.len()).expect(NOT_HUGE),
            value_length: value.map_or(DELETED, |value| {
                u32::try_from(value.len()).ok().filter(|&length| length != DELETED).expect(NOT_HUGE)
            }),
        });
    }

    /// The allocated memory, in bytes.
    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.bytes.capacity()
    }

    /// The number of records; before sorting, repeated keys count each time.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory that the records take, in bytes.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// The value of the last record added under `key`: `Some(None)` for a tombstone, `None` if `key` has no record.
    pub fn last(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let entry = self.entries.iter().rev().find(|entry| entry.key(&self.bytes) == key)?;
        Some(entry.value(&self.bytes))
    }

    /// The index of the record of `key`. The records must be [sorted](LoadBuffer::sort).
    fn find(&self, key: &[u8]) -> Option<usize> {
        let head = key_head(key);
        let compare = |entry: &Entry| entry.head.cmp(&head).then_with(|| entry.key(&self.bytes).cmp(key));
        self.entries.binary_search_by(compare).ok()
    }

    /// Moves the position record to a buffer of its own, which stays empty if there is no position record. The records
    /// must be [sorted](LoadBuffer::sort).
    pub fn split_position(&mut self) -> Self {
        let mut position = Self::new();
        if let Some(index) = self.find(POSITION_KEY) {
            let entry = self.entries.remove(index);
            position.put(entry.key(&self.bytes), entry.value(&self.bytes));
        }
        position
    }

    /// Sorts the records by key, and drops all but the last record of each key.
    ///
    /// # Errors
    /// [`Error::ReservedKey`], which names the store's folder `dir`, if the records cannot be from a changelog.
    pub fn sort(&mut self, dir: &Path) -> Result<(), Error> {
        let Self { entries, bytes, .. } = self;
        entries.sort_unstable_by(|a, b| {
            // Of records with the same key, the latest comes first, except under a deliberate fault for tests.
            let (one, other) = if sabotage::is_on(Sabotage::LoadOldestWins) { (b, a) } else { (a, b) };
            a.head.cmp(&b.head).then_with(|| a.key(bytes).cmp(b.key(bytes))).then(other.start.cmp(&one.start))
        });
        // Keeps the first entry of each key.
        entries.dedup_by(|entry, kept| entry.head == kept.head && entry.key(bytes) == kept.key(bytes));
        if self.find(STORE_META_KEY).is_some() {
            return Err(Error::ReservedKey { path: dir.to_owned() });
        }
        Ok(())
    }

    /// The records, in key order after [`LoadBuffer::sort`].
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&[u8], Option<&[u8]>)> + Clone {
        self.entries.iter().map(|entry| (entry.key(&self.bytes), entry.value(&self.bytes)))
    }
}
