//! A transaction's writes, in memory until Kafka has committed. Memtables have the same shape.
//!
//! Records lie one after the other in a [`Run`], and a hash table holds their places, each beside its key's hash: a write
//! allocates nothing, clearing keeps the memory for the next transaction, and a look-up looks into memory twice. What is
//! looked up in large ones is looked up many at a time, so that the processor waits for memory once for all of them.
//!
//! All overlays of a process hash alike.

use std::hint::black_box;
use std::sync::OnceLock;

use super::run::Run;

/// How many keys are looked up at a time.
const BLOCK: usize = 32;
/// The places of the smallest table, and the largest part of them that is taken: [`TAKEN`] of [`TAKEN_OF`].
const SLOTS_MIN: usize = 16;
const TAKEN: usize = 7;
const TAKEN_OF: usize = 10;
/// If only one in so many is taken, the others are not touched to clear it.
const FEW: usize = 16;

/// The writes of one transaction, the last for each key. To abort, drop or clear it.
#[derive(Default)]
pub struct Overlay {
    /// For each key its hash, in the upper half, and one more than its record's place; 0 if there is none. A key is at the
    /// first free place from its hash's own on, so that hashes ascend, nearly.
    slots: Vec<u64>,
    records: Run,
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

/// The place in its run of a record that a slot holds.
fn place(slot: u64) -> u32 {
    slot as u32 - 1
}

fn hash_of(slot: u64) -> KeyHash {
    KeyHash((slot >> 32) as u32)
}

impl Overlay {
    /// An empty overlay.
    pub fn new() -> Self {
        Self::default()
    }

    /// An empty one with room for what `other` holds.
    pub(super) fn as_large_as(other: &Self) -> Self {
        let slots = (other.len + 1) * TAKEN_OF / TAKEN;
        let mut new = Self { slots: vec![0; slots.max(SLOTS_MIN)], ..Self::default() };
        new.records.reserve(other.records.len());
        new
    }

    /// Writes `value`, or deletes the key if it is `None`. Panics beyond 4 GiB, far above any bound of a transaction.
    pub fn put(&mut self, key: &[u8], value: Option<&[u8]>) {
        self.put_hashed(KeyHash::of(key), key, value);
    }

    /// The same to a key of which this is the hash: with another one it would neither be found nor cleared.
    pub fn put_hashed(&mut self, hash: KeyHash, key: &[u8], value: Option<&[u8]>) {
        let free = match self.probe(hash, |place| self.records.key(place) == key) {
            Probed::Found(place) => return self.records.set(place, value),
            Probed::Free(at) => at,
        };
        let place = self.records.push(key, value);
        let slot = u64::from(hash.0) << 32 | (u64::from(place) + 1);
        if (self.len + 1) * TAKEN_OF > self.slots.len() * TAKEN {
            self.grow();
            self.insert(slot);
        } else {
            self.slots[free] = slot;
        }
        self.len += 1;
    }

    /// Where a hash's own slot is.
    fn home(&self, hash: KeyHash) -> usize {
        ((u64::from(hash.0) * self.slots.len() as u64) >> 32) as usize
    }

    /// The slot after this one.
    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    /// The first record of this hash that `is_its` accepts, or else the slot where it would be, 0 if there are none yet.
    fn probe(&self, hash: KeyHash, is_its: impl Fn(u32) -> bool) -> Probed {
        let mut at = self.home(hash);
        loop {
            let Some(slot) = self.slots.get(at).copied().filter(|slot| *slot != 0) else {
                return Probed::Free(at);
            };
            if hash_of(slot) == hash && is_its(place(slot)) {
                return Probed::Found(place(slot));
            }
            at = self.next(at);
        }
    }

    /// Puts the slot of a key that is not there.
    fn insert(&mut self, slot: u64) {
        let mut at = self.home(hash_of(slot));
        while self.slots[at] != 0 {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    fn grow(&mut self) {
        let more = (self.slots.len() * 2).max(SLOTS_MIN);
        let slots = std::mem::replace(&mut self.slots, vec![0; more]);
        slots.into_iter().filter(|slot| *slot != 0).for_each(|slot| self.insert(slot));
    }

    /// For each of these keys, at most [`BLOCK`], the first record with its hash; a key without one is not here. Has the
    /// processor fetch slots and records from all places at once. There must be slots.
    fn seek(&self, keys: &[Hashed<'_>]) -> [Option<u32>; BLOCK] {
        black_box(keys.iter().fold(0, |sum, (hash, _)| sum ^ self.slots[self.home(*hash)]));
        let mut first = [None; BLOCK];
        for ((hash, _), first) in keys.iter().zip(&mut first) {
            if let Probed::Found(place) = self.probe(*hash, |_| true) {
                *first = Some(place);
            }
        }
        let touch = |sum, ((_, key), first): (&Hashed<'_>, &Option<u32>)| match first {
            Some(place) => sum ^ self.records.touch(*place, key.len()),
            None => sum,
        };
        black_box(keys.iter().zip(&first).fold(0, touch));
        first
    }

    /// Has the processor fetch where keys of these hashes are looked up first, from all places at once.
    pub fn prefetch(&self, hashes: impl Iterator<Item = KeyHash>) {
        if !self.is_empty() {
            black_box(hashes.fold(0, |sum, hash| sum ^ self.slots[self.home(hash)]));
        }
    }

    /// Writes everything that `later` holds.
    pub(super) fn put_all(&mut self, later: &Self) {
        self.put_each(later.iter());
    }

    /// Writes all of these.
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
                self.seek(&keys[..count]);
            }
            for ((hash, key), value) in keys[..count].iter().zip(values) {
                self.put_hashed(*hash, key, value);
            }
        }
    }

    /// The last value written under `key`: `None` if nothing was written, `Some(None)` if it was deleted.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        // Most tasks have little in some of theirs.
        if self.is_empty() { None } else { self.get_hashed(KeyHash::of(key), key) }
    }

    /// The same of a key with this hash.
    pub fn get_hashed(&self, hash: KeyHash, key: &[u8]) -> Option<Option<&[u8]>> {
        match self.probe(hash, |place| self.records.key(place) == key) {
            Probed::Found(place) => Some(self.records.value(place)),
            Probed::Free(_) => None,
        }
    }

    /// The last value written under `key` in the first of these that has it, as [`Overlay::get`] says it.
    pub(super) fn first_of<'a>(overlays: impl Iterator<Item = &'a Self>, key: &[u8]) -> Option<Option<&'a [u8]>> {
        let hash = KeyHash::of(key);
        overlays.filter(|overlay| !overlay.is_empty()).find_map(|overlay| overlay.get_hashed(hash, key))
    }

    /// The same for many keys: passes each on with its number, in order.
    pub(super) fn first_of_each<'a>(
        overlays: impl Iterator<Item = &'a Self> + Clone,
        keys: &[&[u8]],
        mut found: impl FnMut(usize, Option<Option<&'a [u8]>>),
    ) {
        for (block, keys) in keys.chunks(BLOCK).enumerate() {
            let mut hashed = [(KeyHash::default(), &[][..]); BLOCK];
            keys.iter().zip(&mut hashed).for_each(|(key, hashed)| *hashed = (KeyHash::of(key), *key));
            let values = Self::first_of_block(overlays.clone(), &hashed[..keys.len()]);
            (0..keys.len()).for_each(|at| found(block * BLOCK + at, values[at]));
        }
    }

    /// The same for at most [`BLOCK`] keys.
    pub(super) fn first_of_block<'a>(
        overlays: impl Iterator<Item = &'a Self>,
        keys: &[Hashed<'_>],
    ) -> [Option<Option<&'a [u8]>>; BLOCK] {
        let mut values = [None; BLOCK];
        let (mut wanted, mut places) = ([(KeyHash::default(), &[][..]); BLOCK], [0; BLOCK]);
        for (at, key) in keys.iter().enumerate() {
            (wanted[at], places[at]) = (*key, at);
        }
        let mut left = keys.len();
        for overlay in overlays.filter(|overlay| !overlay.is_empty()) {
            let first = overlay.seek(&wanted[..left]);
            let mut missing = 0;
            for at in 0..left {
                let (hash, key) = wanted[at];
                let value = match first[at] {
                    Some(place) if overlay.records.key(place) == key => Some(overlay.records.value(place)),
                    // Another key has the same hash.
                    Some(_) => overlay.get_hashed(hash, key),
                    None => None,
                };
                values[places[at]] = value;
                (wanted[missing], places[missing]) = (wanted[at], places[at]);
                missing += usize::from(value.is_none());
            }
            left = missing;
        }
        values
    }

    /// Every key with its last value, in the order in which each key was first written.
    pub fn iter(&self) -> impl Iterator<Item = (&[u8], Option<&[u8]>)> {
        self.records.iter()
    }

    /// The records in their keys' order.
    pub(super) fn in_order(&self) -> Ordered<'_> {
        // A key's first 12 bytes, and its record's place: to sort numbers is far cheaper than to look at keys.
        let head = |place| {
            let (key, mut bytes) = (self.records.key(place), [0; 16]);
            let length = key.len().min(12);
            bytes[..length].copy_from_slice(&key[..length]);
            u128::from_be_bytes(bytes) | u128::from(place)
        };
        let mut order: Vec<u128> = Vec::with_capacity(self.len);
        order.extend(self.records.places().map(head));
        order.sort_unstable();
        for alike in order.chunk_by_mut(|a, b| a >> 32 == b >> 32).filter(|alike| alike.len() > 1) {
            alike.sort_unstable_by_key(|head| self.records.key(*head as u32));
        }
        Ordered { records: &self.records, order }
    }

    /// How many keys were written.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether nothing was written.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The bytes that keys and values take, with what says how long they are, and including values that were replaced by
    /// longer ones.
    pub fn bytes(&self) -> usize {
        self.records.len()
    }

    /// The memory that it takes.
    pub(super) fn memory_bytes(&self) -> usize {
        self.records.len() + self.slots.len() * size_of::<u64>()
    }

    /// The memory that [`Overlay::clear`] keeps, in bytes.
    pub fn kept_bytes(&self) -> usize {
        self.records.kept_bytes() + self.slots.len() * size_of::<u64>()
    }

    /// Removes all writes and keeps the memory.
    pub fn clear(&mut self) {
        if self.len * FEW < self.slots.len() {
            // From a key's own slot on all that are in a row, so that nothing that was pushed on by others is left.
            for (key, _) in self.records.iter() {
                let mut at = self.home(KeyHash::of(key));
                while self.slots[at] != 0 {
                    self.slots[at] = 0;
                    at = self.next(at);
                }
            }
        } else {
            self.slots.fill(0);
        }
        self.records.clear();
        self.len = 0;
    }
}

/// The result of looking for a key.
enum Probed {
    /// Its record is here.
    Found(u32),
    /// There is none; its slot would be this one.
    Free(usize),
}

/// A key and its last value, `None` if it is deleted.
type Entry<'a> = (&'a [u8], Option<&'a [u8]>);

/// An overlay's records in their keys' order.
pub(super) struct Ordered<'a> {
    records: &'a Run,
    order: Vec<u128>,
}

impl<'a> Ordered<'a> {
    /// Passes on those before `key`, and those from there on.
    pub fn split(&self, key: &[u8]) -> (impl Iterator<Item = Entry<'a>>, impl Iterator<Item = Entry<'a>>) {
        let at = self.order.partition_point(|head| self.records.key(*head as u32) < key);
        let (before, after) = self.order.split_at(at);
        (of(self.records, before), of(self.records, after))
    }

    /// All of them.
    pub fn iter(&self) -> impl Iterator<Item = Entry<'a>> {
        of(self.records, &self.order)
    }
}

/// The records of these heads; they lie anywhere, so some are fetched at a time.
fn of<'a, 'b>(records: &'a Run, order: &'b [u128]) -> impl Iterator<Item = Entry<'a>> + use<'a, 'b> {
    order.chunks(BLOCK).flat_map(move |block| {
        black_box(block.iter().fold(0, |sum, head| sum ^ records.touch(*head as u32, BLOCK)));
        block.iter().map(move |head| (records.key(*head as u32), records.value(*head as u32)))
    })
}
