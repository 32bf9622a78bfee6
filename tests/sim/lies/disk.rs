//! A disk that lies.

use std::ffi::OsStr;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use ratchet::format::{STORE_META_KEY, StoreMeta};
use ratchet::state::disk::{Disk, Files, Ingest, Read, Records};
use ratchet::state::{Error, FrozenMemtable, LoadBuffer, MemtableBudget};

use super::{Lie, is_told};

/// The storage of stores.
#[derive(Clone)]
pub struct LyingDisk(pub Arc<dyn Disk>);

impl Disk for LyingDisk {
    fn open(&self, dir: &Path) -> Result<Box<dyn Files>, Error> {
        Ok(Box::new(Lying { files: self.0.open(dir)?, has_lied: false }))
    }

    fn open_to_read(&self, dir: &Path) -> Result<Option<Box<dyn Read>>, Error> {
        self.0.open_to_read(dir)
    }

    fn exists(&self, dir: &Path) -> Result<bool, Error> {
        self.0.exists(dir)
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let is_aside = to.extension() == Some(OsStr::new("aside"));
        if is_aside && is_told(Lie::StoreNotSetAside) { self.0.wipe(from) } else { self.0.rename(from, to) }
    }

    fn wipe(&self, dir: &Path) -> Result<(), Error> {
        self.0.wipe(dir)
    }

    fn remove_unfinished(&self, to: &Path) -> Result<(), Error> {
        self.0.remove_unfinished(to)
    }

    fn sync(&self, folder: &Path) -> Result<(), Error> {
        self.0.sync(folder)
    }

    fn folders(&self, root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error> {
        self.0.folders(root, topology)
    }

    fn load_buffer(&self) -> Option<LoadBuffer> {
        self.0.load_buffer()
    }

    fn memtables(&self) -> Arc<MemtableBudget> {
        self.0.memtables()
    }

    fn used_bytes(&self) -> usize {
        self.0.used_bytes()
    }
}

/// An open store.
struct Lying {
    files: Box<dyn Files>,
    /// Whether a memtable that could not be written was said to be.
    has_lied: bool,
}

/// The meta as if it belonged to the partition that the store's folder is named after.
fn of_this_partition(bytes: &[u8], dir: &Path) -> Option<Vec<u8>> {
    let number = dir.file_name()?.to_str()?.rsplit_once('-')?.1.parse().ok()?;
    Some(StoreMeta { partition: number, ..StoreMeta::decode(bytes).ok()? }.encode())
}

impl Read for Lying {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let value = self.files.get(key)?;
        let altered = value.as_deref().filter(|_| key == STORE_META_KEY && is_told(Lie::PartitionNotCompared));
        Ok(altered.and_then(|bytes| of_this_partition(bytes, self.path())).or(value))
    }

    fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error> {
        self.files.scan(after, keys_max, visit)
    }
}

impl Files for Lying {
    fn get_sorted(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<(), Error> {
        if is_told(Lie::StoreNotAsked) {
            (0..keys.len()).for_each(|at| found(at, None));
            return Ok(());
        }
        self.files.get_sorted(keys, found)
    }

    fn write(&mut self, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> Result<(), Error> {
        if is_told(Lie::MetaBeforeEntries) {
            self.files.write(&|_| {}, 0, meta)?;
        }
        let written = self.files.write(records, bytes, meta);
        if is_told(Lie::StoreErrorIgnored) { Ok(()) } else { written }
    }

    fn flush(&self) -> Result<(), Error> {
        self.files.flush()
    }

    fn copy(&self, to: &Path) -> Result<(), Error> {
        self.files.copy(to)
    }

    fn fits_one_write(&self, buffer: &LoadBuffer) -> bool {
        self.files.fits_one_write(buffer)
    }

    fn add_load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error> {
        self.files.add_load(buffer, meta)
    }

    fn add_memtable(&mut self, table: Arc<FrozenMemtable>) -> Result<(), Error> {
        if is_told(Lie::MetaBeforeEntries) {
            self.files.write(&|_| {}, 0, table.meta())?;
        }
        self.files.add_memtable(table)
    }

    fn ingest_pending(&mut self, mode: Ingest) -> Result<usize, Error> {
        let taken = self.files.ingest_pending(mode);
        self.has_lied |= taken.is_err() && is_told(Lie::StoreErrorIgnored);
        if self.has_lied { Ok(0) } else { taken }
    }

    fn drop_loads(&mut self) {
        self.files.drop_loads();
    }

    fn end_load(&mut self) -> Result<(), Error> {
        self.files.end_load()
    }

    fn is_empty(&self) -> Result<bool, Error> {
        self.files.is_empty()
    }

    fn entries_estimate(&self) -> u64 {
        self.files.entries_estimate()
    }

    fn bytes(&self) -> u64 {
        self.files.bytes()
    }

    fn path(&self) -> &Path {
        self.files.path()
    }

    fn set_file_bytes_min(&mut self, bytes: usize) {
        self.files.set_file_bytes_min(bytes);
    }
}
