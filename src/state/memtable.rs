//! The memtable: what was committed and is not in a store's files yet, in a hash table.
//!
//! Commits go into the active table. Full, it is frozen: the files take it in as a whole, with the meta of its last
//! commit, and lookups go on to ask it until they have. So what is on the disk after a crash is some earlier commit, as
//! ever; what the tables held is read again from the changelog, which is why they are bounded by its records, too.
//! The table that was taken in last stays as a cache, as long as there is memory: a hot set is not read from the files
//! after each freeze.
//!
//! RocksDB has a memtable of its own, a sorted list in which each write searches for its place. It gets what is too little
//! for a table file.
//!
//! All memtables of a process share a [`Budget`].

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::overlay::Overlay;
use super::records::Put;
use crate::format::{STORE_META_KEY, StoreMeta};
use crate::sabotage::{self, Sabotage};

/// How many frozen tables of a store may wait for its files; a commit that needs one more waits, too.
const WAITING_MAX: usize = 2;
/// One store's share of the budget is for its active table and the one before.
const TABLES: usize = 2;

/// A table that is not written to any more.
pub struct Frozen {
    records: Overlay,
    meta: StoreMeta,
}

impl Frozen {
    /// The meta of its last commit.
    pub fn meta(&self) -> &StoreMeta {
        &self.meta
    }

    /// The memory that its records take.
    pub fn bytes(&self) -> usize {
        self.records.bytes()
    }

    /// Passes on its records in the order of their keys, its meta in its place among them; up to the first failure.
    pub fn try_each_with_meta<E>(&self, mut put: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>) -> Result<(), E> {
        let records = self.records.in_order();
        let (mut before, mut after) = records.split(STORE_META_KEY);
        before.try_for_each(|(key, value)| put(key, value))?;
        put(STORE_META_KEY, Some(&self.meta.encode()))?;
        after.try_for_each(|(key, value)| put(key, value))
    }

    /// Passes on its records in the order of their keys, without its meta.
    pub fn each(&self, put: &mut Put<'_>) {
        self.records.in_order().iter().for_each(|(key, value)| put(key, value));
    }
}

/// A store's tables.
pub(super) struct Memtable {
    budget: Arc<Budget>,
    active: Overlay,
    /// The meta of the last commit in the active table; `None` if there is none.
    meta: Option<StoreMeta>,
    /// How many changelog records have gone into the active table.
    records: usize,
    /// Oldest first. The last `waiting` of them are not in the files yet.
    frozen: VecDeque<Arc<Frozen>>,
    waiting: usize,
    /// What the budget knows of.
    charged: usize,
}

impl Memtable {
    /// An empty one.
    pub fn new(budget: Arc<Budget>) -> Self {
        budget.stores.fetch_add(1, Ordering::Relaxed);
        let (active, frozen) = (Overlay::new(), VecDeque::new());
        Self { budget, active, meta: None, records: 0, frozen, waiting: 0, charged: 0 }
    }

    /// The newest meta, unless it is the files'.
    pub fn meta(&self) -> Option<&StoreMeta> {
        let waiting = self.frozen.back().filter(|_| self.waiting > 0);
        self.meta.as_ref().or_else(|| waiting.map(|frozen| frozen.meta()))
    }

    /// The last value of a key, as [`Overlay::get`] says it.
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.is_blank() { None } else { Overlay::first_of(self.newest_first(), key) }
    }

    /// The last value of each of these keys, the same way, passed on with the key's number.
    pub fn get_each<'a>(&'a self, keys: &[&[u8]], found: impl FnMut(usize, Option<Option<&'a [u8]>>)) {
        Overlay::first_of_each(self.newest_first(), keys, found);
    }

    fn newest_first(&self) -> impl Iterator<Item = &Overlay> + Clone {
        let frozen = self.frozen.iter().rev().filter(|_| !sabotage::is_on(Sabotage::FrozenNotAsked));
        [&self.active].into_iter().chain(frozen.map(|frozen| &frozen.records))
    }

    /// Whether no key can be found in it.
    pub fn is_blank(&self) -> bool {
        self.active.is_empty() && self.frozen.is_empty()
    }

    /// Adds a commit.
    pub fn put(&mut self, overlay: &Overlay, meta: &StoreMeta) {
        self.active.put_all(overlay);
        self.records += overlay.len();
        self.meta = Some(meta.clone());
        self.charge();
    }

    /// Adds records, which are the last of their keys, with their meta.
    pub fn put_each<'a>(&mut self, records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>, meta: &StoreMeta) {
        self.active.put_each(records.inspect(|_| self.records += 1));
        self.meta = Some(meta.clone());
        self.charge();
    }

    /// Whether the active table is to be frozen.
    pub fn is_full(&self) -> bool {
        self.budget.is_full(self.active.memory_bytes(), self.records)
    }

    /// Whether one more frozen table would be too many.
    pub fn is_backed_up(&self) -> bool {
        self.waiting >= WAITING_MAX
    }

    /// Freezes the active table, if there was a commit since the last time. It is to be passed to the files.
    pub fn freeze(&mut self) -> Option<Arc<Frozen>> {
        let meta = self.meta.take()?;
        // The next will take as much, and need not grow.
        let next = Overlay::as_large_as(&self.active);
        let frozen = Arc::new(Frozen { records: std::mem::replace(&mut self.active, next), meta });
        self.records = 0;
        self.frozen.push_back(Arc::clone(&frozen));
        self.waiting += 1;
        self.trim();
        Some(frozen)
    }

    /// Only so many of the frozen tables, the last ones, are not in the files yet.
    pub fn set_waiting(&mut self, count: usize) {
        self.waiting = count;
        self.trim();
    }

    /// Drops the tables that are in the files. The last of them is worth its memory, if there is any.
    fn trim(&mut self) {
        while self.frozen.len() > self.waiting + 1 {
            self.frozen.pop_front();
        }
        self.charge();
        if self.budget.is_exceeded() {
            self.drop_cached();
        }
    }

    /// Drops all tables that are in the files.
    pub fn drop_cached(&mut self) {
        self.frozen.drain(..self.frozen.len() - self.waiting);
        self.charge();
    }

    /// How many keys it has that may not be in the files.
    pub fn len(&self) -> usize {
        let waiting = self.frozen.iter().rev().take(self.waiting);
        self.active.len() + waiting.map(|frozen| frozen.records.len()).sum::<usize>()
    }

    /// Every key in it, as often as it is in a table.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.newest_first().flat_map(|table| table.iter().map(|(key, _)| key.to_vec())).collect()
    }

    /// The memory that it takes.
    pub fn bytes(&self) -> usize {
        self.newest_first().map(Overlay::memory_bytes).sum()
    }

    fn charge(&mut self) {
        let bytes = self.bytes();
        self.budget.change(self.charged, bytes);
        self.charged = bytes;
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.budget.change(self.charged, 0);
        self.budget.stores.fetch_sub(1, Ordering::Relaxed);
    }
}

/// What all tables may have together, and the bounds of one of them, whatever its share is.
#[derive(Clone, Debug)]
pub struct Bounds {
    /// All of them.
    pub all: usize,
    /// One.
    pub table: RangeInclusive<usize>,
}

impl Bounds {
    /// One table of so many that share it.
    fn of_table(&self, tables: usize) -> usize {
        (self.all / tables.max(1)).clamp(*self.table.start(), *self.table.end())
    }
}

/// What all memtables of a process may take.
pub struct Budget {
    bytes: Bounds,
    /// Changelog records in active tables: after a crash they are read again.
    records: Bounds,
    stores: AtomicUsize,
    used: AtomicUsize,
    /// Is told how much is used.
    told: Box<dyn Fn(usize) + Send + Sync>,
}

impl Budget {
    /// So many bytes, and so many changelog records. `told` is told how many bytes are used whenever that changes.
    pub fn new(bytes: Bounds, records: Bounds, told: impl Fn(usize) + Send + Sync + 'static) -> Self {
        let (stores, used) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { bytes, records, stores, used, told: Box::new(told) }
    }

    /// The bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether a store's table has its share of so many bytes and changelog records.
    fn is_full(&self, bytes: usize, records: usize) -> bool {
        let stores = self.stores.load(Ordering::Relaxed);
        records >= self.records.of_table(stores) || bytes >= self.bytes.of_table(stores * TABLES)
    }

    fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.bytes.all
    }

    fn change(&self, from: usize, to: usize) {
        if from == to {
            return;
        }
        // Wraps around where it becomes less.
        let difference = to.wrapping_sub(from);
        let used = self.used.fetch_add(difference, Ordering::Relaxed).wrapping_add(difference);
        (self.told)(used);
    }
}

impl fmt::Debug for Budget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Budget").field("bytes", &self.bytes).field("used", &self.used).finish_non_exhaustive()
    }
}
