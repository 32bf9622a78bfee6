//! The memtable of a store: hash tables of the commits that are not in the store's files yet.
//!
//! Commits go into the **active** table. When that table is full, or the store is flushed, it is **frozen**: it accepts
//! no more. It is **pending** until the store's files have **ingested** it as a whole, with the **meta** of its last
//! commit (up to where the changelog was applied). So the disk always holds the state after some commit. After a crash,
//! the records of tables that were not ingested are read again from the changelog, the topic with all that was
//! committed; therefore the number of changelog records in them is bounded, too. Lookups search all tables. The table
//! that was ingested last stays as a cache while there is memory for it, so that keys in frequent use are not read from
//! the files after each freeze.
//!
//! RocksDB has a memtable of its own, a sorted list in which each write searches for its place. RocksDB's is used for
//! frozen tables that are too small for a file, and while a store is being restored.
//!
//! All memtables of a process share a [`MemtableBudget`]. `sabotage::is_on` says whether a test has switched on a
//! deliberate fault.

use std::collections::VecDeque;
use std::fmt;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use super::overlay::Overlay;
use super::records::Put;
use crate::format::{STORE_META_KEY, StoreMeta};
use crate::sabotage::{self, Sabotage};

/// The most frozen tables of a store that may be pending. A commit that would freeze one more waits.
const PENDING_MAX: usize = 2;
/// A store's share of the bytes is for this many tables: the active one, and the one that was frozen before.
const TABLES_PER_STORE: usize = 2;

/// A table that accepts no more writes.
pub struct FrozenMemtable {
    records: Overlay,
    meta: StoreMeta,
}

impl FrozenMemtable {
    /// The meta of its last commit.
    pub fn meta(&self) -> &StoreMeta {
        &self.meta
    }

    /// The size of its records, in bytes.
    pub fn bytes(&self) -> usize {
        self.records.bytes()
    }

    /// Passes its records and its meta to `put`, in the order of their keys, up to the first failure.
    pub fn try_each_with_meta<E>(&self, mut put: impl FnMut(&[u8], Option<&[u8]>) -> Result<(), E>) -> Result<(), E> {
        let records = self.records.in_order();
        let (mut before, mut after) = records.split(STORE_META_KEY);
        before.try_for_each(|(key, value)| put(key, value))?;
        put(STORE_META_KEY, Some(&self.meta.encode()))?;
        after.try_for_each(|(key, value)| put(key, value))
    }

    /// Passes its records, without its meta, to `put`, in the order of their keys.
    pub fn each(&self, put: &mut Put<'_>) {
        self.records.in_order().iter().for_each(|(key, value)| put(key, value));
    }
}

/// A store's tables.
pub(super) struct Memtable {
    budget: Arc<MemtableBudget>,
    active: Overlay,
    /// The meta of the last commit in the active table; `None` if that table has no commit.
    meta: Option<StoreMeta>,
    /// The number of changelog records that went into the active table.
    record_count: usize,
    /// The frozen tables, oldest first.
    frozen: VecDeque<Arc<FrozenMemtable>>,
    /// How many of the frozen tables are pending: the last ones.
    pending: usize,
    /// The bytes that the budget counts for this memtable.
    charged_bytes: usize,
}

impl Memtable {
    /// An empty memtable.
    pub fn new(budget: Arc<MemtableBudget>) -> Self {
        budget.stores.fetch_add(1, Ordering::Relaxed);
        let (active, frozen) = (Overlay::new(), VecDeque::new());
        Self { budget, active, meta: None, record_count: 0, frozen, pending: 0, charged_bytes: 0 }
    }

    /// The meta of the last commit; `None` if the files have it.
    pub fn meta(&self) -> Option<&StoreMeta> {
        let pending_table = self.frozen.back().filter(|_| self.pending > 0);
        self.meta.as_ref().or_else(|| pending_table.map(|frozen| frozen.meta()))
    }

    /// The last value of a key, in the form of [`Overlay::get`].
    pub fn get(&self, key: &[u8]) -> Option<Option<&[u8]>> {
        if self.has_no_keys() { None } else { Overlay::get_first(self.newest_first(), key) }
    }

    /// Passes the last value of each of these keys to `on_value`, with the key's index, in the form of
    /// [`Overlay::get`].
    pub fn get_each<'a>(&'a self, keys: &[&[u8]], on_value: impl FnMut(usize, Option<Option<&'a [u8]>>)) {
        Overlay::get_first_of_each(self.newest_first(), keys, on_value);
    }

    /// All tables; a deliberate fault for tests leaves the frozen ones out.
    fn newest_first(&self) -> impl Iterator<Item = &Overlay> + Clone {
        let frozen = self.frozen.iter().rev().filter(|_| !sabotage::is_on(Sabotage::FrozenNotAsked));
        [&self.active].into_iter().chain(frozen.map(|frozen| &frozen.records))
    }

    /// Whether neither the active table nor a frozen one has a key.
    pub fn has_no_keys(&self) -> bool {
        self.active.is_empty() && self.frozen.is_empty()
    }

    /// Adds a commit: the transaction's writes and the meta after it.
    pub fn put(&mut self, overlay: &Overlay, meta: &StoreMeta) {
        self.active.put_all(overlay);
        self.record_count += overlay.len();
        self.meta = Some(meta.clone());
        self.update_budget();
    }

    /// Adds records, at most one for each key, and their meta.
    pub fn put_each<'a>(&mut self, records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>, meta: &StoreMeta) {
        self.active.put_each(records.inspect(|_| self.record_count += 1));
        self.meta = Some(meta.clone());
        self.update_budget();
    }

    /// Whether the active table is full and has to be frozen.
    pub fn is_full(&self) -> bool {
        self.budget.is_full(self.active.memory_bytes(), self.record_count)
    }

    /// Whether no further table may become pending.
    pub fn is_pending_full(&self) -> bool {
        self.pending >= PENDING_MAX
    }

    /// Freezes the active table, unless it has no commit. The caller must pass the frozen table to the files.
    pub fn freeze(&mut self) -> Option<Arc<FrozenMemtable>> {
        let meta = self.meta.take()?;
        // The next table will become as large, and then need not grow.
        let next = Overlay::with_capacity_of(&self.active);
        let frozen = Arc::new(FrozenMemtable { records: std::mem::replace(&mut self.active, next), meta });
        self.record_count = 0;
        self.frozen.push_back(Arc::clone(&frozen));
        self.pending += 1;
        self.trim();
        Some(frozen)
    }

    /// Notes that only the last `count` frozen tables are still pending.
    pub fn set_pending(&mut self, count: usize) {
        self.pending = count;
        self.trim();
    }

    /// Drops the frozen tables that are in the files, except the last one while there is memory for it.
    fn trim(&mut self) {
        while self.frozen.len() > self.pending + 1 {
            self.frozen.pop_front();
        }
        self.update_budget();
        if self.budget.is_exceeded() {
            self.drop_ingested();
        }
    }

    /// Drops all frozen tables that are in the files.
    pub fn drop_ingested(&mut self) {
        self.frozen.drain(..self.frozen.len() - self.pending);
        self.update_budget();
    }

    /// The number of keys in tables that are not in the files; a key counts once for each table.
    pub fn len(&self) -> usize {
        let pending_tables = self.frozen.iter().rev().take(self.pending);
        self.active.len() + pending_tables.map(|frozen| frozen.records.len()).sum::<usize>()
    }

    /// The keys of all tables; a key appears once for each table.
    #[cfg(test)]
    pub fn keys(&self) -> Vec<Vec<u8>> {
        self.newest_first().flat_map(|table| table.iter().map(|(key, _)| key.to_vec())).collect()
    }

    /// The memory that all tables take, in bytes.
    pub fn bytes(&self) -> usize {
        self.newest_first().map(Overlay::memory_bytes).sum()
    }

    /// Updates the budget to the memory that the tables take now.
    fn update_budget(&mut self) {
        let bytes = self.bytes();
        self.budget.change(self.charged_bytes, bytes);
        self.charged_bytes = bytes;
    }
}

impl Drop for Memtable {
    fn drop(&mut self) {
        self.budget.change(self.charged_bytes, 0);
        self.budget.stores.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The bound of all stores' tables together, which is divided equally among the tables, and the bounds of one share.
#[derive(Clone, Debug)]
pub struct MemtableBounds {
    /// The bound of all tables together.
    pub total: usize,
    /// The least and the greatest share of one table.
    pub table: RangeInclusive<usize>,
}

impl MemtableBounds {
    /// The share of each table if there are `tables` of them.
    fn share_of_table(&self, tables: usize) -> usize {
        (self.total / tables.max(1)).clamp(*self.table.start(), *self.table.end())
    }
}

/// The budget that all memtables of a process share.
pub struct MemtableBudget {
    bytes: MemtableBounds,
    /// The bounds of the changelog records in active tables, which are read again after a crash.
    records: MemtableBounds,
    /// How many stores have a memtable.
    stores: AtomicUsize,
    /// The bytes in use.
    used: AtomicUsize,
    /// Called with the number of bytes in use whenever it changes.
    on_change: Box<dyn Fn(usize) + Send + Sync>,
}

impl MemtableBudget {
    /// A budget with these bounds of bytes and of changelog records. `on_change` is called with the number of bytes in
    /// use whenever it changes.
    pub fn new(
        bytes: MemtableBounds,
        records: MemtableBounds,
        on_change: impl Fn(usize) + Send + Sync + 'static,
    ) -> Self {
        let (stores, used) = (AtomicUsize::new(0), AtomicUsize::new(0));
        Self { bytes, records, stores, used, on_change: Box::new(on_change) }
    }

    /// The bytes in use.
    pub fn used_bytes(&self) -> usize {
        self.used.load(Ordering::Relaxed)
    }

    /// Whether an active table with this many bytes and changelog records has reached its share.
    fn is_full(&self, bytes: usize, records: usize) -> bool {
        let stores = self.stores.load(Ordering::Relaxed);
        records >= self.records.share_of_table(stores) || bytes >= self.bytes.share_of_table(stores * TABLES_PER_STORE)
    }

    /// Whether all tables together take more than their bound.
    fn is_exceeded(&self) -> bool {
        self.used_bytes() > self.bytes.total
    }

    /// Counts `to` bytes instead of `from` bytes for a memtable.
    fn change(&self, from: usize, to: usize) {
        if from == to {
            return;
        }
        // Wraps around if `to` is less than `from`.
        let difference = to.wrapping_sub(from);
        let used = self.used.fetch_add(difference, Ordering::Relaxed).wrapping_add(difference);
        (self.on_change)(used);
    }
}

impl fmt::Debug for MemtableBudget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemtableBudget").field("bytes", &self.bytes).field("used", &self.used).finish_non_exhaustive()
    }
}
