//! A disk in memory: its stores keep the contract of [`Store`](ratchet::state::Store) without files, threads or
//! waits, and disk faults can be injected at will. A property test of `ratchet::state`, which includes this file,
//! compares it with RocksDB.
//!
//! As with RocksDB, a write goes to memory first, and when the process is killed any prefix of the writes has reached
//! the disk, in whole batches; the table files of loads and memtables are on disk at once, whatever came before, except
//! that writes which they overlap are flushed first. They are built on the calling thread, and are ready when checked for
//! the second time.
//!
//! **Failure**: as on a real disk. On a full disk a store can be neither opened nor flushed, and accepts writes until
//! its buffers are full; then it must be reopened. A damaged store fails when it is opened, or later, when the damage
//! is read; it can be wiped, or set aside.

mod open;

use std::collections::BTreeMap;
use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ratchet::format::{KIND_IDENTITY, KIND_IDENTITY_DIGEST};
use ratchet::state::disk::{self, Files, Read};
use ratchet::state::{BufferBound, Error, LoadBuffer, Memory, MemtableBounds, MemtableBudget, StateSlot};

use open::Simulated;

type Map = BTreeMap<Box<[u8]>, Box<[u8]>>;
type Records = Vec<(Box<[u8]>, Option<Box<[u8]>>)>;

/// A disk with the stores of one process. Cheap to clone; all clones are the same disk.
#[derive(Clone)]
pub struct SimulatedDisk(Arc<Mutex<Disk>>);

struct Disk {
    folders: BTreeMap<PathBuf, Folder>,
    /// How many more writes each store accepts while nothing can be flushed; `None` while there is space.
    full: Option<u32>,
    loads: Loads,
    memtables: Arc<MemtableBudget>,
    /// A place for each existing buffer.
    buffers: Vec<Weak<()>>,
    /// How often no buffer was free.
    turned_away: u64,
    opened: u64,
}

/// The bounds of a memtable.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memtables {
    /// Its bytes at most, of one store; 0 freezes each commit.
    pub bytes: usize,
    /// Its changelog records at most.
    pub records: usize,
}

impl Memtables {
    /// Nothing fills one.
    pub const UNBOUNDED: Self = Self { bytes: usize::MAX, records: usize::MAX };
}

/// How loads behave.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Loads {
    /// Minimum size of a load that becomes a table file.
    pub file_bytes_min: usize,
    /// Whether each read of the changelog is a separate load.
    pub one_read: bool,
    /// Maximum number of buffers at once, for all stores together; 0 for any number.
    pub buffers_max: usize,
}

/// A store's content on the disk, and what is still to be flushed.
#[derive(Default)]
struct Folder {
    kept: Map,
    unflushed: Vec<Step>,
    /// The store that has it open.
    holder: Option<u64>,
    /// How many reads until the damage shows; with 0 the store cannot be opened.
    damage: Option<u32>,
}

/// A change to a store, in order.
struct Step {
    /// A table file, already on the disk.
    is_file: bool,
    records: Records,
}

/// A store's content on the disk at one time; empty by default.
#[derive(Clone, Default)]
pub struct StoreCopy(Map);

impl StoreCopy {
    /// All keys with their values, in key order, including the store's meta.
    pub fn records(&self) -> impl Iterator<Item = (&[u8], &[u8])> {
        self.0.iter().map(|(key, value)| (&**key, &**value))
    }
}

impl SimulatedDisk {
    /// An empty disk with enough space.
    pub fn new(loads: Loads, memtables: Memtables) -> Self {
        let Memtables { bytes, records } = memtables;
        // More than all stores together would take if each had one, another before it, and two that wait.
        let all = if bytes == 0 { 0 } else { usize::MAX };
        let (bytes, records) = (
            MemtableBounds { total: all, table: bytes..=bytes },
            MemtableBounds { total: records, table: records..=records },
        );
        let memtables = Arc::new(MemtableBudget::new(bytes, records, |_| {}));
        let (folders, buffers) = (BTreeMap::new(), Vec::new());
        Self(Arc::new(Mutex::new(Disk { folders, full: None, loads, memtables, buffers, turned_away: 0, opened: 0 })))
    }

    /// The memory to open stores on this disk with.
    pub fn memory(&self) -> Memory {
        Memory::with_disk(Arc::new(self.clone()))
    }

    /// The slot that names the folders of its stores.
    pub fn state_slot(&self) -> StateSlot {
        StateSlot::unlocked("/simulated".into())
    }

    /// The folders that hold anything.
    pub fn folders(&self) -> Vec<PathBuf> {
        let disk = self.lock();
        disk.folders.iter().filter(|(_, folder)| !folder.is_blank()).map(|(path, _)| path.clone()).collect()
    }

    /// The process dies: open stores fall back to what has reached the disk, and handles that still exist have no
    /// effect any more. `choose` gets the number of unflushed batches and returns how many of them had reached it.
    pub fn crash(&self, mut choose: impl FnMut(usize) -> usize) {
        for folder in self.lock().folders.values_mut().filter(|folder| folder.holder.is_some()) {
            folder.holder = None;
            let batches = folder.unflushed.iter().filter(|step| !step.is_file).count();
            folder.fall_back(choose(batches));
        }
    }

    /// Sets whether the disk is full. If so, each store accepts `writes` more until its buffers are full.
    pub fn set_full(&self, writes: Option<u32>) {
        self.lock().full = writes;
    }

    /// Damages what a store has on the disk. It shows after `reads` reads; with 0 the store cannot be opened. Returns
    /// whether there was anything to damage.
    pub fn damage(&self, dir: &Path, reads: u32) -> bool {
        let mut disk = self.lock();
        let Some(folder) = disk.folders.get_mut(dir).filter(|folder| !folder.kept.is_empty()) else { return false };
        folder.damage = Some(reads);
        true
    }

    /// A store's content on the disk.
    pub fn copy(&self, dir: &Path) -> StoreCopy {
        StoreCopy(self.lock().folders.get(dir).map(|folder| folder.kept.clone()).unwrap_or_default())
    }

    /// Replaces a store, which nobody may have open, by a copy; an empty copy removes it.
    pub fn put_back(&self, dir: &Path, copy: StoreCopy) {
        let folder = Folder { kept: copy.0, ..Folder::default() };
        let folders = &mut self.lock().folders;
        let former = match folder.is_blank() {
            true => folders.remove(dir),
            false => folders.insert(dir.to_owned(), folder),
        };
        assert!(former.is_none_or(|former| former.holder.is_none()), "{} is open", dir.display());
    }

    /// How often a load had to wait for the buffer of another.
    pub fn turned_away(&self) -> u64 {
        self.lock().turned_away
    }

    /// No change can panic halfway.
    fn lock(&self) -> MutexGuard<'_, Disk> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Folder {
    fn is_blank(&self) -> bool {
        self.kept.is_empty() && self.unflushed.is_empty()
    }

    /// Keeps table files, and only the first of the batches.
    fn fall_back(&mut self, mut batches: usize) {
        for Step { is_file, records } in self.unflushed.drain(..) {
            if is_file || batches > 0 {
                batches -= usize::from(!is_file);
                apply(&mut self.kept, records);
            }
        }
    }

    fn flush(&mut self) {
        self.fall_back(usize::MAX);
    }
}

fn apply(map: &mut Map, records: Records) {
    for (key, value) in records {
        match value {
            Some(value) => map.insert(key, value),
            None => map.remove(&key),
        };
    }
}

impl disk::Disk for SimulatedDisk {
    fn open(&self, dir: &Path) -> Result<Box<dyn Files>, Error> {
        Ok(Box::new(Simulated::open(self, dir)?))
    }

    fn open_to_read(&self, dir: &Path) -> Result<Option<Box<dyn Read>>, Error> {
        match self.lock().folders.get(dir) {
            Some(folder) if folder.damage.is_some() => Err(damaged(dir)),
            folder => Ok(Some(Box::new(StoreCopy(folder.map(|folder| folder.kept.clone()).unwrap_or_default())))),
        }
    }

    fn exists(&self, dir: &Path) -> Result<bool, Error> {
        Ok(self.lock().folders.contains_key(dir))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        let folders = &mut self.lock().folders;
        let failed = |reason: &str| Err(Error::Io { path: from.to_owned(), reason: reason.to_owned() });
        match folders.get(from) {
            None => failed("No such file or directory"),
            Some(folder) if folder.holder.is_some() => Err(Error::InUse { path: from.to_owned() }),
            Some(_) if folders.contains_key(to) => failed("Directory not empty"),
            Some(_) => {
                let folder = folders.remove(from).expect("checked above");
                folders.insert(to.to_owned(), folder);
                Ok(())
            }
        }
    }

    fn wipe(&self, dir: &Path) -> Result<(), Error> {
        let mut disk = self.lock();
        if disk.folders.get(dir).is_some_and(|folder| folder.holder.is_some()) {
            return Err(Error::InUse { path: dir.to_owned() });
        }
        disk.folders.remove(dir);
        Ok(())
    }

    /// A copy is complete at once.
    fn remove_unfinished(&self, _to: &Path) -> Result<(), Error> {
        Ok(())
    }

    /// So is a rename.
    fn sync(&self, _folder: &Path) -> Result<(), Error> {
        Ok(())
    }

    fn folders(&self, _root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error> {
        let is_of = |folder: &PathBuf| folder.parent().is_some_and(|parent| parent.ends_with(topology));
        Ok(SimulatedDisk::folders(self).into_iter().filter(is_of).collect())
    }

    fn load_buffer(&self) -> Option<LoadBuffer> {
        let mut guard = self.lock();
        let Disk { loads, buffers, turned_away, .. } = &mut *guard;
        buffers.retain(|place| place.strong_count() > 0);
        if loads.buffers_max > 0 && buffers.len() >= loads.buffers_max {
            *turned_away += 1;
            return None;
        }
        let place = Arc::new(());
        buffers.push(Arc::downgrade(&place));
        Some(LoadBuffer::bounded_by(Box::new(BufferPermit { one_read: loads.one_read, _place: place })))
    }

    fn memtables(&self) -> Arc<MemtableBudget> {
        Arc::clone(&self.lock().memtables)
    }

    fn used_bytes(&self) -> usize {
        self.lock().memtables.used_bytes()
    }
}

/// A buffer's place among the permitted ones.
struct BufferPermit {
    /// Whether the buffer is full as soon as it holds anything.
    one_read: bool,
    /// Freed with the buffer.
    _place: Arc<()>,
}

impl BufferBound for BufferPermit {
    fn has_room(&self, buffer: &LoadBuffer, _records: usize) -> bool {
        !self.one_read || buffer.is_empty()
    }
}

impl Read for StoreCopy {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        Ok(self.0.get(key).map(|value| value.to_vec()))
    }

    fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error> {
        Ok(scan(&self.0, after, keys_max, visit))
    }
}

/// See [`Store::scan`](ratchet::state::Store::scan).
fn scan(map: &Map, after: Option<&[u8]>, keys_max: usize, visit: &mut dyn FnMut(&[u8], &[u8])) -> Option<Vec<u8>> {
    let from = after.map_or_else(|| vec![KIND_IDENTITY], |after| [after, &[0]].concat());
    let mut cursor = None;
    let entries = map.range(from.into_boxed_slice()..);
    let entries = entries.take_while(|(key, _)| key.first().is_some_and(|kind| *kind <= KIND_IDENTITY_DIGEST));
    for (visited, (key, value)) in entries.enumerate() {
        if visited == keys_max {
            return cursor;
        }
        visit(key, value);
        if visited + 1 == keys_max {
            cursor = Some(key.to_vec());
        }
    }
    None
}

impl fmt::Debug for SimulatedDisk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SimulatedDisk").field("folders", &self.folders()).finish_non_exhaustive()
    }
}

fn owned<'a>(records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>) -> Records {
    records.map(|(key, value)| (key.into(), value.map(Into::into))).collect()
}

fn full(dir: &Path) -> Error {
    Error::Full { path: dir.to_owned(), reason: "No space left on device".to_owned() }
}

fn damaged(dir: &Path) -> Error {
    Error::Damaged { path: dir.to_owned(), reason: "block checksum mismatch".to_owned() }
}
