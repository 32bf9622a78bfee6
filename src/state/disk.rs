//! The storage beneath stores: RocksDB on this machine's disk (`rocks`), or a simulation's substitute.
//!
//! [`Store`](super::Store) and [`aside`](super::aside) depend on these promises of a disk:
//!
//! - A write is atomic, and writes reach the disk in order.
//! - Flushed writes, renamed folders and synced folders survive a crash.
//! - A folder is never renamed onto another store.
//!
//! A store's **meta** says how far the store has applied its changelog, the topic from which it can be rebuilt. A
//! **load** is a buffer of changelog records that a restore has read. Loads and **frozen memtables** (tables of the
//! last commits that accept no more) are **pending** until they are in the store; a large load or memtable first
//! becomes a **table file**, which the store then **ingests**.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::memtable::{FrozenMemtable, MemtableBudget};
pub use super::records::{Put, Records};
use super::{Error, LoadBuffer};
use crate::format::StoreMeta;

/// Which pending loads and memtables [`Files::ingest_pending`] brings into a store, always in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ingest {
    /// Those whose files are ready.
    Ready,
    /// Those whose files are ready; a memtable for which the last attempt failed is tried again.
    ReadyOrFailed,
    /// All of them: waits for files that are not ready.
    All,
}

/// The storage beneath stores. The caller holds the locks on the folders that it passes.
pub trait Disk: Send + Sync {
    /// Opens the store in `dir`, creating an empty one if it does not exist. [`Error::Damaged`] means that the store
    /// has to be rebuilt.
    fn open(&self, dir: &Path) -> Result<Box<dyn Files>, Error>;

    /// Opens the store in `dir` read-only, as it is on the disk; `None` if it was not created yet.
    fn open_to_read(&self, dir: &Path) -> Result<Option<Box<dyn Read>>, Error>;

    /// Whether `dir` exists.
    fn exists(&self, dir: &Path) -> Result<bool, Error>;

    /// Renames a store's folder, durably when this returns. The store must not be open, and `to` must not exist.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;

    /// Removes a store with its folder; succeeds if the folder does not exist. Fails while the store is open.
    fn wipe(&self, dir: &Path) -> Result<(), Error>;

    /// Removes the files of an interrupted [`Files::copy`] to the folder `to`.
    fn remove_unfinished(&self, to: &Path) -> Result<(), Error>;

    /// Makes durable that stores in `folder` were created or renamed.
    fn sync(&self, folder: &Path) -> Result<(), Error>;

    /// The folders of a topology's tasks, in all slots of the state folder `root`; `topology` is the topology's folder
    /// name.
    fn folders(&self, root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error>;

    /// A buffer for a load; `None` while other loads have the whole budget.
    fn load_buffer(&self) -> Option<LoadBuffer>;

    /// The budget of the memtables of its stores.
    fn memtables(&self) -> Arc<MemtableBudget>;

    /// The memory in use, in bytes, memtables included.
    fn used_bytes(&self) -> usize;
}

/// Read access to a store.
pub trait Read {
    /// The value under `key`.
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error>;

    /// See [`Store::scan`](super::Store::scan).
    fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error>;
}

/// The files of an open store. Dropping them closes the store.
pub trait Files: Read + Send {
    /// See [`Store::get_sorted`](super::Store::get_sorted).
    fn get_sorted(&self, keys: &[&[u8]], on_value: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<(), Error>;

    /// Writes `records`, whose size is `bytes`, and `meta`, atomically.
    fn write(&mut self, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> Result<(), Error>;

    /// Flushes all writes to the disk.
    fn flush(&self) -> Result<(), Error>;

    /// Copies the store to the folder `to`, which must not exist; complete when this returns.
    fn copy(&self, to: &Path) -> Result<(), Error>;

    /// Whether this load is small enough to be one write instead of a table file.
    fn fits_one_write(&self, buffer: &LoadBuffer) -> bool;

    /// Queues a load. [`Files::ingest_pending`] brings the loads into the store in the order of the calls.
    fn add_load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error>;

    /// Queues a frozen memtable. [`Files::ingest_pending`] brings the memtables into the store in the order of the
    /// calls, each atomically with its meta. No load may be pending.
    fn add_memtable(&mut self, table: Arc<FrozenMemtable>) -> Result<(), Error>;

    /// Brings pending loads or memtables into the store; returns how many are still pending. After an error, the
    /// memtable that failed and all later ones stay pending, and the failed one is tried again only with
    /// [`Ingest::ReadyOrFailed`] or [`Ingest::All`].
    fn ingest_pending(&mut self, mode: Ingest) -> Result<usize, Error>;

    /// Drops the pending loads: they do not get into the store.
    fn drop_loads(&mut self);

    /// Ends the loads of a restore: compactions run as usual again.
    fn end_load(&mut self) -> Result<(), Error>;

    /// Whether the store has nothing at all, not even a meta.
    fn is_empty(&self) -> Result<bool, Error>;

    /// See [`Store::entries_estimate`](super::Store::entries_estimate).
    fn entries_estimate(&self) -> u64;

    /// The size of the table files and write buffers, in bytes.
    fn bytes(&self) -> u64;

    /// The store's folder.
    fn path(&self) -> &Path;

    /// Sets the size from which loads and memtables become table files, for tests.
    #[doc(hidden)]
    fn set_file_bytes_min(&mut self, bytes: usize);
}
