//! A transaction's writes, in memory until Kafka has committed.
//!
//! Keys and values are stored one after the other in one byte vector, and a hash table holds indices into the
//! list of entries: a write allocates nothing, and clearing keeps the memory for the next transaction.

use hashbrown::HashTable;

/// The writes of one transaction, the last for each key. To abort, drop or clear it.
#[derive(Default)]
pub struct Overlay {
    hasher: ahash::RandomState,
    /// Indices into `entries`.
    table: HashTable<u32>,
    /// In the order in which each key was first written.
    entries: Vec<Entry>,
    bytes: Vec<u8>,
}

/// Where the bytes of a key and its value are.
struct Entry {
    hash: u64,
    key_start: usize,
    key_length: u32,
    /// `None` if the key is deleted.
    value_length: Option<u32>,
    value_start: usize,
    /// The number of bytes that may be overwritten from `value_start` on.
    value_capacity: u32,
}

impl Entry {
    fn key<'a>(&self, bytes: &'a [u8]) -> &'a [u8] {
        &bytes[self.key_start..][..self.key_length as usize]
    }

    fn value<'a>(&self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        self.value_length.map(|length| &bytes[self.value_start..][..length as usize])
    }
}

impl Overlay {
    /// An empty overlay.
    pub fn new() -> Self {
        Self::default()
    }

    /// Writes `value`, or deletes the key if it is `None`. Panics beyond 4 GiB or 2^32 keys, far
    /// above any bound of a transaction.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        let Self { hasher, table, entries, bytes } = self;
        let hash = hasher.hash_one(key);
        if let Some(&index) = table.find(hash, |&index| entries[index as usize].key(bytes) == key) {
            set_value(&mut entries[index as usize], bytes, value);
            return;
        }
        let index = u32::try_from(entries.len()).expect("a transaction is bounded far below 2^32 keys");
        let key_start = bytes.len();
        bytes.extend_from_slice(key);
        let mut entry = Entry {
            hash,
            key_start,
            key_length: length(key),
            value_length: None,
            value_start: bytes.len(),
            value_capacity: 0,
        };
        set_value(&mut entry, bytes, value);
        entries.push(entry);
        table.insert_unique(hash, index, |&index| entries[index as usize].hash);
    }

    /// The last value written under `key`: `None` if nothing was written, `Some(None)` if it was deleted.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        let hash = self.hasher.hash_one(key);
        let index = self.table.find(hash, |&index| self.entries[index as usize].key(&self.bytes) == key)?;
        Some(self.entries[*index as usize].value(&self.bytes))
    }

    /// Every key with its last value, in the order in which each key was first written.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (&[u8], Option<&[u8]>)> {
        self.entries.iter().map(|entry| (entry.key(&self.bytes), entry.value(&self.bytes)))
    }

    /// The key and value at `index`, in the order of [`Overlay::iter`].
    pub(super) fn at(&self, index: usize) -> (&[u8], Option<&[u8]>) {
        let entry = &self.entries[index];
        (entry.key(&self.bytes), entry.value(&self.bytes))
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

    /// Removes all writes and keeps the memory.
    pub fn clear(&mut self) {
        self.table.clear();
        self.entries.clear();
        self.bytes.clear();
    }
}

fn length(bytes: &[u8]) -> u32 {
    u32::try_from(bytes.len()).expect("keys and values are far below 4 GiB")
}

/// Overwrites the value in place if it fits: an entry's versions usually have the same size.
fn set_value(entry: &mut Entry, bytes: &mut Vec<u8>, value: Option<&[u8]>) {
    let Some(value) = value else {
        entry.value_length = None;
        return;
    };
    let value_length = length(value);
    if value_length <= entry.value_capacity {
        bytes[entry.value_start..][..value.len()].copy_from_slice(value);
    } else {
        entry.value_start = bytes.len();
        entry.value_capacity = value_length;
        bytes.extend_from_slice(value);
    }
    entry.value_length = Some(value_length);
}
