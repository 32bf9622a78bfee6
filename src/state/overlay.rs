//! A transaction's writes, in memory until Kafka has committed. Memtables have the same structure.
//!
//! A [`RecordBuffer`] holds the records one after the other. The slots of a hash table hold the records' **places**
//! (where they start in the buffer), each beside its key's hash. So a write allocates nothing, clearing keeps the
//! memory for the next transaction, and a lookup reads memory twice. In large overlays many keys are looked up at a
//! time, so that the processor waits for memory once for all of them: their slots and records are read first, and the
//! result is given to [`black_box`], which keeps the compiler from leaving such reads out.
//!
//! All overlays of a process use the same hash function.

use std::hint::black_box;
use std::sync::OnceLock;

use super::record_buffer::RecordBuffer;

/// How many keys are looked up at a time.
const BLOCK: usize = 32;
/// The number of slots in the smallest table.
const SLOTS_MIN: usize = 16;
/// The largest fraction of slots that is used is [`FILL_NUMERATOR`] / [`FILL_DENOMINATOR`].
const FILL_NUMERATOR: usize = 7;
const FILL_DENOMINATOR: usize = 10;
/// If fewer than one slot in this many are used, only the used slots are cleared.
const SPARSE_SLOTS: usize = 16;

/// The last write of one transaction for each key. To abort the transaction, drop or clear the overlay.
#[derive(Default)]
pub struct Overlay {
    /// Each used slot has a key's hash in the upper half and its record's place plus one in the lower half; a free slot
    /// is 0. A key's slot is the first one that was free, from its hash's home slot on; so the hashes nearly ascend.
    slots: Vec<u64>,
    records: RecordBuffer,
    /// The number of used slots, and of keys.
    len: usize,
}

/// A key's hash, the same in all overlays of this process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct KeyHash(pub(super) u32);

impl KeyHash {
    /// The hash of this key.
    pub fn of(key: &[u8]) -> Self {
        static HASHER: OnceLock<ahash::RandomState> = OnceLock::new();
        Self((HASHER.get_or_init(ahash::RandomState::new).hash_one(key) >> 32) as u32)
    }
}

/// A key with its hash.
pub(super) type Hashed<'a> = (KeyHash, &'a [u8]);

/// The place of a used slot's record.
fn place(slot: u64) -> u32 {
    slot as u32 - 1
}

/// The hash in a used slot.
fn hash_of(slot: u64) -> KeyHash {
    KeyHash((slot >> 32) as u32)
}

impl Overlay {
    /// An empty overlay.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty overlay with room for as many keys and bytes as `other` holds.
    pub(super) fn with_capacity_of(other: &Self) -> Self {
        let slots = (other.len + 1) * FILL_DENOMINATOR / FILL_NUMERATOR;
        let mut overlay = Self { slots: vec![0; slots.max(SLOTS_MIN)], ..Self::default() };
        overlay.records.reserve(other.records.len());
        overlay
    }

    /// Writes `value`, or deletes the key if it is `None`. Panics beyond 4 GiB, far above any bound of a transaction.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.put_hashed(KeyHash::of(key), key, value);
    }

    /// Like [`Self::put`], with the key's hash. With a wrong hash the key would be neither found nor cleared.
    pub fn put_hashed(&mut self, hash: KeyHash, key: &[u8], value: Option<&[u8]>) {
        let free_slot = match self.probe(hash, |place| self.records.key(place) == key) {
            ProbeResult::Found(place) => return self.records.set(place, value),
            ProbeResult::Free(at) => at,
        };
        let place = self.records.push(key, value);
        let slot = u64::from(hash.0) << 32 | (u64::from(place) + 1);
        if (self.len + 1) * FILL_DENOMINATOR > self.slots.len() * FILL_NUMERATOR {
            self.grow();
            self.insert(slot);
        } else {
            self.slots[free_slot] = slot;
        }
        self.len += 1;
    }

    /// A hash's home slot: the index of the slot where the search for the hash starts.
    fn home_slot(&self, hash: KeyHash) -> usize {
        ((u64::from(hash.0) * self.slots.len() as u64) >> 32) as usize
    }

    /// The index of the slot after this one.
    fn next_slot(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// The first record with this hash that `is_match` accepts, or else the index of the free slot for it.
    fn probe(&self, hash: KeyHash, is_match: impl Fn(u32) -> bool) -> ProbeResult {
        let mut at = self.home_slot(hash);
        loop {
            let Some(slot) = self.slots.get(at).copied().filter(|slot| *slot != 0) else {
                return ProbeResult::Free(at);
            };
            if hash_of(slot) == hash && is_match(place(slot)) {
                return ProbeResult::Found(place(slot));
            }
            at = self.next_slot(at);
        }
    }

    /// Stores the contents of a new key's slot.
    fn insert(&mut self, slot: u64) {
        let mut at = self.home_slot(hash_of(slot));
        while self.slots[at] != 0 {
            at = self.next_slot(at);
        }
        self.slots[at] = slot;
    }

    /// Doubles the number of slots, to [`SLOTS_MIN`] at least.
    fn grow(&mut self) {
        let slot_count = (self.slots.len() * 2).max(SLOTS_MIN);
        let slots = std::mem::replace(&mut self.slots, vec![0; slot_count]);
        slots.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.insert(slot));
    }

    /// For each of these keys, at most [`BLOCK`], the place of the first record with the key's hash, which may have
    /// another key; `None` if there is no record with that hash. The processor fetches all slots, and then all records,
    /// at once. The table must have slots.
    fn find_by_hash(&self, keys: &[Hashed<'_>]) -> [Option<u32>; BLOCK] {
        black_box(keys.iter().fold(0, |sum, (hash, _)| sum ^ self.slots[self.home_slot(*hash)]));
        let mut first_places = [None; BLOCK];
        for ((hash, _), first_place) in keys.iter().zip(&mut first_places) {
            if let ProbeResult::Found(place) = self.probe(*hash, |_| true) {
                *first_place = Some(place);
            }
        }
        let touch = |sum, ((_, key), first_place): (&Hashed<'_>, &Option<u32>)| match first_place {
            Some(place) => sum ^ self.records.touch(*place, key.len()),
            None => sum,
        };
        black_box(keys.iter().zip(&first_places).fold(0, touch));
        first_places
    }

    /// Makes the processor fetch the home slots of these hashes, all at once.
    pub fn prefetch(&self, hashes: impl Iterator<Item = KeyHash>) {
        if !self.is_empty() {
            black_box(hashes.fold(0, |sum, hash| sum ^ self.slots[self.home_slot(hash)]));
        }
    }

    /// Writes all records of `later`.
    pub(super) fn put_all(&mut self, later: &Self) {
        self.put_each(later.iter());
    }

    /// Writes these records.
    pub(super) fn put_each<'a>(&mut self, mut records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) {
        let (mut keys, mut values) = ([(KeyHash::default(), &[][..]); BLOCK], [None; BLOCK]);
        loop {
            let mut count = 0;
            for (key, value) in records.by_ref().take(BLOCK) {
                (keys[count], values[count]) = ((KeyHash::of(key), key), value);
                count += 1;
            }
            if count == 0 {
                return;
            }
            if !self.is_empty() {
                // The result is ignored: this only makes the processor fetch the slots and records.
                self.find_by_hash(&keys[..count]);
            }
            for ((hash, key), value) in keys[..count].iter().zip(values) {
                self.put_hashed(*hash, key, value);
            }
        }
    }

    /// The last value written under `key`: `None` if nothing was written, `Some(None)` if it was deleted.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        // Checked first, because most tasks have overlays that are empty.
        if self.is_empty() { None } else { self.get_hashed(KeyHash::of(key), key) }
    }

    /// Like [`Self::get`], with the key's hash.
    pub fn get_hashed(&self, hash: KeyHash, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.probe(hash, |place| self.records.key(place) == key) {
            ProbeResult::Found(place) => Some(self.records.value(place)),
            ProbeResult::Free(_) => None,
        }
    }

    /// The last value of `key` in the first of these overlays that has it, in the form of [`Overlay::get`].
    pub(super) fn get_first<'a>(overlays: impl Iterator<Item = &'a Self>, key: &[u8]) -> Option<Option<&'a [u8]>> {
        let hash = KeyHash::of(key);
        overlays.filter(|overlay| !overlay.is_empty()).find_map(|overlay| overlay.get_hashed(hash, key))
    }

    /// Like [`Self::get_first`] for many keys: passes each value, with its key's index, to `on_value`, in order.
    pub(super) fn get_first_of_each<'a>(
        overlays: impl Iterator<Item = &'a Self> + Clone,
        keys: &[&[u8]],
        mut on_value: impl FnMut(usize, Option<Option<&'a [u8]>>),
    ) {
        for (block, keys) in keys.chunks(BLOCK).enumerate() {
            let mut hashed = [(KeyHash::default(), &[][..]); BLOCK];
            keys.iter().zip(&mut hashed).for_each(|(key, hashed)| *hashed = (KeyHash::of(key), *key));
            let values = Self::get_first_of_block(overlays.clone(), &hashed[..keys.len()]);
            (0..keys.len()).for_each(|at| on_value(block * BLOCK + at, values[at]));
        }
    }

    /// Like [`Self::get_first`] for at most [`BLOCK`] keys.
    pub(super) fn get_first_of_block<'a>(
        overlays: impl Iterator<Item = &'a Self>,
        keys: &[Hashed<'_>],
    ) -> [Option<Option<&'a [u8]>>; BLOCK] {
        let mut values = [None; BLOCK];
        // The keys that were not found yet, and their indices in `keys`.
        let (mut wanted, mut indices) = ([(KeyHash::default(), &[][..]); BLOCK], [0; BLOCK]);
        for (at, key) in keys.iter().enumerate() {
            (wanted[at], indices[at]) = (*key, at);
        }
        let mut remaining = keys.len();
        for overlay in overlays.filter(|overlay| !overlay.is_empty()) {
            let first_places = overlay.find_by_hash(&wanted[..remaining]);
            let mut still_missing = 0;
            for at in 0..remaining {
                let (hash, key) = wanted[at];
                let value = match first_places[at] {
                    Some(place) if overlay.records.key(place) == key => Some(overlay.records.value(place)),
                    // The record is another key's with the same hash.
                    Some(_) => overlay.get_hashed(hash, key),
                    None => None,
                };
                values[indices[at]] = value;
                // Kept for the next overlay, unless the value was found.
                (wanted[still_missing], indices[still_missing]) = (wanted[at], indices[at]);
                still_missing += usize::from(value.is_none());
            }
            remaining = still_missing;
        }
        values
    }

    /// Every key with its last value, in the order in which each key was first written.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.records.iter()
    }

    /// The records in the order of their keys.
    pub(super) fn in_order(&self) -> Ordered<'_> {
        // A number for each record, its head: the key's first 12 bytes, and below them the record's place. Sorting
        // numbers is far cheaper than comparing keys.
        let head = |place| {
            let (key, mut bytes) = (self.records.key(place), [0; 16]);
            let length = key.len().min(12);
            bytes[..length].copy_from_slice(&key[..length]);
            u128::from_be_bytes(bytes) | u128::from(place)
        };
        let mut order: Vec<u128> = Vec::with_capacity(self.len);
        order.extend(self.records.places().map(head));
        order.sort_unstable();
        for same_head in order.chunk_by_mut(|a, b| a >> 32 == b >> 32).filter(|same_head| same_head.len() > 1) {
            same_head.sort_unstable_by_key(|head| self.records.key(*head as u32));
        }
        Ordered { records: &self.records, order }
    }

    /// The number of keys that were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The size of the records in bytes: keys, values and their lengths, and the former spaces of values that were
    /// replaced by longer ones.
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    /// The memory that the overlay takes, in bytes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.records.len() + self.slots.len() * size_of::<u64>()
    }

    /// The memory that [`Overlay::clear`] keeps, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.records.kept_bytes() + self.slots.len() * size_of::<u64>()
    }

    /// Removes all writes and keeps the memory.
    pub fn clear(&mut self) {
        if self.len * SPARSE_SLOTS < self.slots.len() {
            // Clears all used slots that follow a key's home slot without a gap: the key may be in any of them.
            for (key, _) in self.records.iter() {
                let mut at = self.home_slot(KeyHash::of(key));
                while self.slots[at] != 0 {
                    self.slots[at] = 0;
                    at = self.next_slot(at);
                }
            }
        } else {
            self.slots.fill(0);
        }
        self.records.clear();
        self.len = 0;
    }
}

/// The result of a search for a key.
enum ProbeResult {
    /// The place of the key's record.
    Found(u32),
    /// The key was not found; this is the index of the free slot for it.
    Free(usize),
}

/// A key and its last value, `None` if it is deleted.
type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// An overlay's records in the order of their keys.
pub(super) struct Ordered<'a> {
    records: &'a RecordBuffer,
    /// The records' heads in the order of the keys. The lower 32 bits of a head are its record's place.
    order: Vec<u128>,
}

impl<'a> Ordered<'a> {
    /// The records before `key`, and the records from `key` on.
    pub fn split(&self, key: &[u8]) -> (impl Iterator<Item = Entry<'a>>, impl Iterator<Item = Entry<'a>>) {
        let at = self.order.partition_point(|head| self.records.key(*head as u32) < key);
        let (before, after) = self.order.split_at(at);
        (entries_at(self.records, before), entries_at(self.records, after))
    }

    /// All records.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> {
        entries_at(self.records, &self.order)
    }
}

/// The records of these heads, in this order. Their places are scattered, so the processor fetches a block of records
/// at a time.
fn entries_at<'a, 'b>(records: &'a RecordBuffer, order: &'b [u128]) -> impl Iterator<Item = Entry<'a>> + use<'a, 'b> {
    order.chunks(BLOCK).flat_map(move |block| {
        black_box(block.iter().fold(0, |sum, head| sum ^ records.touch(*head as u32, BLOCK)));
        block.iter().map(move |head| (records.key(*head as u32), records.value(*head as u32)))
    })
}
