//! Where stores are kept: in RocksDB on this machine's disk ([`super::rocks`]), or in what a simulation has in its place.
//!
//! What a disk promises is what [`Store`](super::Store) and [`aside`](super::aside) rest on: a write is whole, writes
//! reach the disk in order, what was flushed, renamed or synced is there after a crash, and a folder is never renamed over
//! another store.

use std::path::{Path, PathBuf};

use super::{Error, LoadBuffer};
use crate::format::StoreMeta;

/// Records to be written: shows each of them, in order of key, to what it is called with; `None` deletes. It may be asked
/// more than once.
pub type Records<'a> = dyn Fn(&mut dyn FnMut(&[u8], Option<&[u8]>)) + 'a;

/// Where stores are kept. Whoever calls holds the lock on the folders that are named.
pub trait Disk: Send + Sync {
    /// Opens the store in `dir`, making an empty one where there is none. [`Error::Damaged`] says that it has to be built
    /// anew.
    fn open(&self, dir: &Path) -> Result<Box<dyn Files>, Error>;

    /// Opens the store in `dir` as it is on the disk, to be read only; `None` where none was made yet.
    fn open_to_read(&self, dir: &Path) -> Result<Option<Box<dyn Read>>, Error>;

    /// Whether there is a store in `dir`.
    fn exists(&self, dir: &Path) -> Result<bool, Error>;

    /// Renames a store's folder, on the disk too when this returns. Nobody may have it open, and none may stand where it
    /// goes.
    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error>;

    /// Removes a store with its folder; fine if there is none. Refused while anybody has it open.
    fn wipe(&self, dir: &Path) -> Result<(), Error>;

    /// Removes what is left of [`Files::copy`] to the folder `to` where that was killed.
    fn remove_unfinished(&self, to: &Path) -> Result<(), Error>;

    /// Brings to the disk that stores in `folder` were made or renamed.
    fn sync(&self, folder: &Path) -> Result<(), Error>;

    /// The folders of a topology's tasks, whose name as a folder is `topology`, in all slots of the state folder `root`.
    fn folders(&self, root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error>;

    /// A buffer for a load; `None` while other loads have all there is room for.
    fn load_buffer(&self) -> Option<LoadBuffer>;

    /// Bytes of memory in use, write buffers included.
    fn used_bytes(&self) -> usize;
}

/// What can be read of a store.
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

    /// One write: `records`, which take so many bytes, then `meta`.
    fn write(&mut self, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> Result<(), Error>;

    /// Brings all that was written to the disk.
    fn flush(&self) -> Result<(), Error>;

    /// Makes a copy in the folder `to`, which is not there yet; whole when this returns.
    fn copy(&self, to: &Path) -> Result<(), Error>;

    /// Whether this is so little that it is written, and not made a table file.
    fn takes_at_once(&self, buffer: &LoadBuffer) -> bool;

    /// Takes what a restore has read, to be brought into the store by [`Files::take_over`] in this order.
    fn load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error>;

    /// Brings what was loaded and is ready into the store, all of it if it is to `wait`; says how many loads are not.
    fn take_over(&mut self, wait: bool) -> Result<usize, Error>;

    /// Forgets the loads that are on their way.
    fn drop_loads(&mut self);

    /// Nothing is loaded any more.
    fn end_load(&mut self) -> Result<(), Error>;

    /// Whether there is nothing, no meta either.
    fn is_empty(&self) -> Result<bool, Error>;

    /// See [`Store::entries_estimate`](super::Store::entries_estimate).
    fn entries_estimate(&self) -> u64;

    /// The bytes of table files and write buffers.
    fn bytes(&self) -> u64;

    /// The store's folder.
    fn path(&self) -> &Path;

    /// Lets a test see small loads become table files.
    #[doc(hidden)]
    fn set_file_bytes_min(&mut self, bytes: usize);
}
