//! The storage beneath stores: RocksDB on this machine's disk (`rocks`), or a simulation's substitute.
//!
//! [`Store`](super::Store) and [`aside`](super::aside) depend on these promises of a disk: a write is atomic, writes
//! reach the disk in order, what was flushed, renamed or synced is there after a crash, and a folder is never renamed
//! onto another store.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::memtable::{Budget, Frozen};
pub use super::records::{Put, Records};
use super::{Error, LoadBuffer};
use crate::format::StoreMeta;

/// What is to be brought into a store.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Take {
    /// What is ready.
    Ready,
    /// The same, and what could not be brought in is tried again.
    Retry,
    /// Everything, waiting for it.
    All,
}

/// The storage beneath stores. The caller holds the lock on the folders named.
pub trait Disk: Send + Sync {
    /// Opens the store in `dir`, creating an empty one if there is none. [`Error::Damaged`] means that it has to be
    /// rebuilt.
    fn open(&self, dir: &Path) -> Result<Box<dyn Files>, Error>;

    /// Opens the store in `dir` as it is on the disk, read-only; `None` if none was created yet.
    fn open_to_read(&self, dir: &Path) -> Result<Option<Box<dyn Read>>, Error>;

    /// Whether there is a store in `dir`.
    fn exists(&self, dir: &Path) -> Result<bool, Error>;

    /// Renames a store's folder, durably when this returns. It must not be open, and there must be none at the
    /// destination.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;

    /// Removes a store with its folder; succeeds if there is none. Refused while it is open.
    fn wipe(&self, dir: &Path) -> Result<(), Error>;

    /// Removes what an interrupted [`Files::copy`] to the folder `to` left behind.
    fn remove_unfinished(&self, to: &Path) -> Result<(), Error>;

    /// Makes the creation and renaming of stores in `folder` durable.
    fn sync(&self, folder: &Path) -> Result<(), Error>;

    /// The folders of a topology's tasks, in all slots of the state folder `root`; `topology` is its folder name.
    fn folders(&self, root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error>;

    /// A buffer for a load; `None` while other loads have the whole budget.
    fn load_buffer(&self) -> Option<LoadBuffer>;

    /// What the memtables of its stores may take.
    fn memtables(&self) -> Arc<Budget>;

    /// Bytes of memory in use, memtables included.
    fn used_bytes(&self) -> usize;
}

/// What can be read from a store.
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

/// The files of an open store. Dropping them closes it.
pub trait Files: Read + Send {
    /// See [`Store::get_sorted`](super::Store::get_sorted).
    fn get_sorted(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<(), Error>;

    /// One atomic write: `records`, which take `bytes`, then `meta`.
    fn write(&mut self, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> Result<(), Error>;

    /// Flushes everything that was written to the disk.
    fn flush(&self) -> Result<(), Error>;

    /// Copies the store to the folder `to`, which must not exist; complete when this returns.
    fn copy(&self, to: &Path) -> Result<(), Error>;

    /// Whether this is small enough to be written rather than made into a table file.
    fn takes_at_once(&self, buffer: &LoadBuffer) -> bool;

    /// Takes what a restore has read, to be brought into the store by [`Files::take_over`] in the order of the calls.
    fn load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error>;

    /// Takes a frozen memtable, to be brought into the store by [`Files::take_over`] in the order of the calls: atomically,
    /// with its meta. Not while there are pending loads.
    fn add(&mut self, table: Arc<Frozen>) -> Result<(), Error>;

    /// Brings loads or memtables into the store; returns how many are not in it. A memtable that could not be brought in
    /// is not lost, nor is any that follows: the error is that of the last try.
    fn take_over(&mut self, take: Take) -> Result<usize, Error>;

    /// Drops the pending loads.
    fn drop_loads(&mut self);

    /// Ends loading.
    fn end_load(&mut self) -> Result<(), Error>;

    /// Whether it is empty, without even a meta.
    fn is_empty(&self) -> Result<bool, Error>;

    /// See [`Store::entries_estimate`](super::Store::entries_estimate).
    fn entries_estimate(&self) -> u64;

    /// The bytes of table files and write buffers.
    fn bytes(&self) -> u64;

    /// The store's folder.
    fn path(&self) -> &Path;

    /// Lets a test have small loads and memtables become table files.
    #[doc(hidden)]
    fn set_file_bytes_min(&mut self, bytes: usize);
}
