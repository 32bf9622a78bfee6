//! Bulk load: what a restore has read from the changelog, on its way into the store.
//!
//! Records are only appended here; sorting once per load is cheaper than finding the previous record of each
//! key. A large load becomes a table file that RocksDB ingests as it is, bypassing its write buffers (measured
//! at five times the speed of the next best way); for a small one the file would not pay. [`super::build`] sorts and
//! writes the file.

use std::path::Path;

use super::Error;
use crate::format::{POSITION_KEY, STORE_META_KEY};
use crate::sabotage::{self, Sabotage};

/// Assumed size of an entry, key and value: buffers have space for as many as would fill them.
const ENTRY_BYTES: usize = 32;

/// Changelog records to be loaded into a store; the last one of each key wins.
#[derive(Default)]
pub struct LoadBuffer {
    entries: Vec<Entry>,
    bytes: Vec<u8>,
    /// `None` if it is unbounded.
    bound: Option<Box<dyn Bound>>,
}

/// Bounds a buffer; dropped with it.
pub trait Bound: Send + Sync {
    /// Whether this many more records, of typical size, fit into `buffer`.
    fn has_room(&self, buffer: &LoadBuffer, records: usize) -> bool;
}

#[derive(Clone, Copy)]
struct Entry {
    /// [`key_head`] of the key: most comparisons need no more.
    head: u128,
    /// Where the key starts, followed by the value. Increases from put to put: of two records with the same key,
    /// the later has the greater start.
    start: usize,
    key_length: u32,
    /// [`DELETED`] for a tombstone.
    value_length: u32,
}

/// The value length that means a tombstone.
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

/// A key's first bytes as a number, padded with zeros: if two differ, they have the same order as the keys.
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

    /// The memory that a record of typical size takes.
    pub(super) const RECORD_BYTES: usize = ENTRY_BYTES + size_of::<Entry>();

    /// An empty buffer for `records` of typical size, which `bound` keeps it to. All of its memory is allocated at once,
    /// so nothing is moved as it fills; memory that is never written to costs nothing.
    pub(super) fn allocated(records: usize, bound: Box<dyn Bound>) -> Self {
        Self {
            entries: Vec::with_capacity(records),
            bytes: Vec::with_capacity(records * ENTRY_BYTES),
            bound: Some(bound),
        }
    }

    /// Whether `records` more, of typical size, fit into the memory of `most`.
    pub(super) fn fits(&self, records: usize, most: usize) -> bool {
        self.entries.len() + records <= most && self.bytes.len() + records * ENTRY_BYTES <= most * ENTRY_BYTES
    }

    /// An empty buffer that allocates as it grows, for as long as `bound` permits.
    pub fn bounded_by(bound: Box<dyn Bound>) -> Self {
        Self { bound: Some(bound), ..Self::default() }
    }

    /// Whether this many more records, of typical size, fit.
    pub fn has_room(&self, records: usize) -> bool {
        self.bound.as_ref().is_none_or(|bound| bound.has_room(self, records))
    }

    /// Adds a record; `None` deletes the key.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        const FITS: &str = "keys and values are far below 4 GiB";
        let start = self.bytes.len();
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(value.unwrap_or_default());
        self.entries.push(Entry {
            head: key_head(key),
            start,
            key_length: u32::try_from(key.len()).expect(FITS),
            value_length: value.map_or(DELETED, |value| {
                u32::try_from(value.len()).ok().filter(|&length| length != DELETED).expect(FITS)
            }),
        });
    }

    /// The memory that it has allocated.
    #[cfg(test)]
    pub(super) fn allocated_bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>() + self.bytes.capacity()
    }

    /// The number of records, repeated keys included until it is sorted.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether there are no records.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The memory that the records take.
    pub fn bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>()
    }

    /// The last record added under `key`, `Some(None)` for a tombstone; `None` if there is none.
    pub fn last(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let entry = self.entries.iter().rev().find(|entry| entry.key(&self.bytes) == key)?;
        Some(entry.value(&self.bytes))
    }

    fn find(&self, key: &[u8]) -> Option<usize> {
        let head = key_head(key);
        let of = |entry: &Entry| entry.head.cmp(&head).then_with(|| entry.key(&self.bytes).cmp(key));
        self.entries.binary_search_by(of).ok()
    }

    /// Moves the position record to a buffer of its own, which is empty if there is none. Only after
    /// [`LoadBuffer::sort`].
    pub fn split_position(&mut self) -> Self {
        let mut position = Self::new();
        if let Some(at) = self.find(POSITION_KEY) {
            let entry = self.entries.remove(at);
            position.put(entry.key(&self.bytes), entry.value(&self.bytes));
        }
        position
    }

    /// Sorts by key and drops all but the last record of each. `dir` is the folder of the store that they are for, used
    /// in the error if they cannot be from a changelog.
    pub fn sort(&mut self, dir: &Path) -> Result<(), Error> {
        let Self { entries, bytes, .. } = self;
        entries.sort_unstable_by(|a, b| {
            let (first, later) = if sabotage::is_on(Sabotage::LoadOldestWins) { (b, a) } else { (a, b) };
            a.head.cmp(&b.head).then_with(|| a.key(bytes).cmp(b.key(bytes))).then(later.start.cmp(&first.start))
        });
        // Of equal keys, the first one is kept, which is the latest.
        entries.dedup_by(|later, kept| later.head == kept.head && later.key(bytes) == kept.key(bytes));
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
