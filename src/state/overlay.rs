//! A transaction's writes, in memory until Kafka has committed.
//!
//! Keys and values are stored one after the other in one byte vector, and a hash table holds indices into the
//! list of entries: a write allocates nothing, and clearing keeps the memory for the next transaction.
//!
//! All overlays of a process hash alike, so that a key is hashed once on its way from one to another.

use std::sync::OnceLock;

use hashbrown::HashTable;

use super::load::key_head;

/// What a hash table takes for each of its places: an index, and a byte that says whether it is taken.
const PLACE_BYTES: usize = size_of::<u32>() + 1;

/// The writes of one transaction, the last for each key. To abort, drop or clear it.
#[derive(Default)]
pub struct Overlay {
    /// Indices into `entries`.
    table: HashTable<u32>,
    /// In the order in which each key was first written.
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

/// Where the bytes of a key and its value are.
struct Entry {
    hash: u64,
    key_start: u32,
    key_length: u32,
    value_start: u32,
    /// [`DELETED`] if the key is deleted.
    value_length: u32,
    /// The number of bytes that may be overwritten from `value_start` on.
    value_capacity: u32,
}

/// The value length that means that the key is deleted.
const DELETED: u32 = u32::MAX;

impl Entry {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.key_start as usize..][..self.key_length as usize]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let is_there = self.value_length != DELETED;
        is_there.then(|| &bytes[self.value_start as usize..][..self.value_length as usize])
    }
}

/// The hash of a key, the same in all overlays of this process.
fn hash(key: &[u8]) -> u64 {
    static HASHER: OnceLock<ahash::RandomState> = OnceLock::new();
    HASHER.get_or_init(ahash::RandomState::new).hash_one(key)
}

impl Overlay {
    /// An empty overlay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `value`, or deletes the key if it is `None`. Panics beyond 4 GiB or 2^32 keys, far
    /// above any bound of a transaction.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.put_hashed(hash(key), key, value);
    }

    fn put_hashed(&mut self, hash: u64, key: &[u8], value: Option<&[u8]>) {
        let Self { table, entries, bytes } = self;
        if let Some(&index) = table.find(hash, |&index| entries[index as usize].key(bytes) == key) {
            set_value(&mut entries[index as usize], bytes, value);
            return;
        }
        let index = u32::try_from(entries.len()).expect("a transaction is bounded far below 2^32 keys");
        let key_start = place(bytes.len());
        bytes.extend_from_slice(key);
        let mut entry = Entry {
            hash,
            key_start,
            key_length: length(key),
            value_start: place(bytes.len()),
            value_length: DELETED,
            value_capacity: 0,
        };
        set_value(&mut entry, bytes, value);
        entries.push(entry);
        table.insert_unique(hash, index, |&index| entries[index as usize].hash);
    }

    /// Writes everything that `later` holds.
    pub(super) fn put_all(&mut self, later: &Self) {
        for entry in &later.entries {
            self.put_hashed(entry.hash, entry.key(&later.bytes), entry.value(&later.bytes));
        }
    }

    /// The last value written under `key`: `None` if nothing was written, `Some(None)` if it was deleted.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        // Most tasks have little in some of theirs.
        if self.entries.is_empty() { None } else { self.get_hashed(hash(key), key) }
    }

    fn get_hashed(&self, hash: u64, key: &[u8]) -> Option<Option<&[u8]>> {
        let index = self.table.find(hash, |&index| self.entries[index as usize].key(&self.bytes) == key)?;
        Some(self.entries[*index as usize].value(&self.bytes))
    }

    /// The last value written under `key` in the first of these that has it, as [`Overlay::get`] says it.
    pub(super) fn first_of<'a>(mut overlays: impl Iterator<Item = &'a Self>, key: &[u8]) -> Option<Option<&'a [u8]>> {
        let hash = hash(key);
        overlays.find_map(|overlay| overlay.get_hashed(hash, key))
    }

    /// Every key with its last value, in the order in which each key was first written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<&[u8]>)> {
        self.entries.iter().map(|entry| (entry.key(&self.bytes), entry.value(&self.bytes)))
    }

    /// Every key with its last value, in the keys' order.
    pub(super) fn in_order(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        let key = |index: u32| self.entries[index as usize].key(&self.bytes);
        let mut order: Vec<(u128, u32)> = (0..).take(self.len()).map(|index| (key_head(key(index)), index)).collect();
        order.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| key(a.1).cmp(key(b.1))));
        order.into_iter().map(|(_, index)| {
            let entry = &self.entries[index as usize];
            (entry.key(&self.bytes), entry.value(&self.bytes))
        })
    }

    /// How many keys were written.
    pub fn len(&self) -> usize {
        self.entries.len()
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// The bytes that keys and values take, including values that were replaced by longer ones.
    pub fn bytes(&self) -> usize {
        self.bytes.len()
    }

    /// The memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.bytes.len() + self.entries.len() * size_of::<Entry>() + self.table.capacity() * PLACE_BYTES
    }

    /// Removes all writes and keeps the memory.
    pub fn clear(&mut self) {
        self.table.clear();
        self.entries.clear();
        self.bytes.clear();
    }
}

fn length(bytes: &[u8]) -> u32 {
    let length = u32::try_from(bytes.len()).ok().filter(|&length| length != DELETED);
    length.expect("keys and values are far below 4 GiB")
}

fn place(start: usize) -> u32 {
    u32::try_from(start).expect("a transaction is bounded far below 4 GiB")
}

/// Overwrites the value in place if it fits: an entry's versions usually have the same size.
fn set_value(entry: &mut Entry, bytes: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        entry.value_length = DELETED;
        return;
    };
    let value_length = length(value);
    if value_length <= entry.value_capacity {
        bytes[entry.value_start as usize..][..value.len()].copy_from_slice(value);
    } else {
        entry.value_start = place(bytes.len());
        entry.value_capacity = value_length;
        bytes.extend_from_slice(value);
    }
    entry.value_length = value_length;
}
