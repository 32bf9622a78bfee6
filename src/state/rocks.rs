//! RocksDB on this machine's disk: see [`super::disk`].
//!
//! There are two ways into the database. A large load (a buffer of changelog records that a restore has read) or a
//! large frozen memtable (a table of the last commits that accepts no more) becomes a **table file**, which RocksDB
//! **ingests**: adds to its own files. A small load or memtable is written as a batch, together with the store's
//! **meta** (how far the store has applied its changelog).
//!
//! There is no write-ahead log. A write batch goes whole into one of RocksDB's write buffers, write buffers reach the
//! disk in order, and all keys share them; table files reach the disk at once. A frozen memtable's file and every write
//! batch contain the meta's key: because of this overlap, RocksDB flushes the earlier batches before it ingests the
//! file.

use std::collections::VecDeque;
use std::ffi::OsString;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use rocksdb::checkpoint::Checkpoint;
use rocksdb::{
    ColumnFamily, DB, DEFAULT_COLUMN_FAMILY_NAME, FlushOptions, IngestExternalFileOptions, Options, ReadOptions,
    WriteBatch, WriteOptions,
};

use super::build::{self, BuiltLoad, PendingBuild, TableFile};
use super::cache_filling::CacheFilling;
use super::disk::{Disk, Files, Ingest, Read};
use super::load::LoadBuffer;
use super::memory::{LoadBufferShare, RocksMemory};
use super::memtable::{FrozenMemtable, MemtableBudget};
use super::records::{Put, Records};
use super::stalls::DiskCall;
use super::{Error, dir};
use crate::format::{KIND_IDENTITY, KIND_IDENTITY_DIGEST, STORE_META_KEY, StoreMeta};
use crate::logs;

/// The most keys looked up at once: more would save nothing and hold more blocks in memory.
const GET_KEYS_MAX: usize = 512;
/// A load or a memtable of at least this size becomes a table file.
const INGEST_BYTES_MIN: usize = 2 << 20;
/// From this number of table files in one restore on, they are compacted during the restore, since every lookup has to
/// check each of them.
const LOAD_FILES_MAX: usize = 64;
/// The pause between two attempts at a write that waits for flushes and compactions.
const STALL_STEP: Duration = Duration::from_millis(1);
/// The most such pauses for one write: half a minute in all.
const STALL_STEPS_MAX: u32 = 30_000;
/// With less free space than this, a failure of RocksDB's background work is taken for a lack of space.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// An open RocksDB database, with its pending loads and memtables.
pub(super) struct Rocks {
    /// Loads that were submitted and not yet ingested, in order, each with the meta to be written after it. Dropped
    /// before the other fields, since their builds use the folder.
    loads: VecDeque<(PendingBuild<BuiltLoad>, StoreMeta)>,
    /// Memtables that are not in the database yet, in order; empty while there are loads. Dropped before `db`, too.
    memtables: VecDeque<(Arc<FrozenMemtable>, BuildState)>,
    /// The number of table files that loads of the current restore have become; `None` before the first, and without a
    /// restore.
    load_files: Option<usize>,
    db: DB,
    dir: PathBuf,
    memory: RocksMemory,
    cache_filling: CacheFilling,
    /// A load or a memtable of at least this size becomes a table file.
    ingest_bytes_min: usize,
}

/// The state of a memtable's file.
enum BuildState {
    /// The memtable is too small for a file, and is written as a batch instead.
    Small,
    /// The file is being built, or waits to be ingested.
    UnderWay(PendingBuild<TableFile>),
    /// Building, ingesting or writing the memtable has failed.
    Failed,
}

/// The only column family, which holds all keys.
fn column_family(db: &DB) -> &ColumnFamily {
    db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME).expect("a store is opened with its column family")
}

/// Adds a table file to `db`, whose folder is `dir`.
fn ingest(db: &DB, dir: &Path, file: &TableFile) -> Result<(), Error> {
    let mut options = IngestExternalFileOptions::default();
    // Hard-linked into place, not copied.
    options.set_move_files(true);
    db.ingest_external_file_cf_opts(&column_family(db), &options, vec![file.path()])
        .map_err(|error| Error::from_rocksdb(dir, &error))
}

impl Rocks {
    /// Opens the database in `dir`, creating an empty one if it does not exist.
    fn open(dir: &Path, memory: &RocksMemory) -> Result<Self, Error> {
        dir::create_dir(dir)?;
        // RocksDB identifies its locks by path within a process: a folder must have only one path.
        let dir = fs::canonicalize(dir).map_err(|error| Error::from_io(dir, &error))?;
        let _call = DiskCall::begin(&dir, "open");
        let db = open_db(&dir, memory)?;
        let memory = memory.clone();
        build::remove_leftovers(&dir)?;
        Ok(Self::new(db, dir, memory))
    }

    /// Opens the database in `dir` read-only, in its state on the disk; `None` if it was not created yet.
    fn open_to_read(dir: &Path, memory: &RocksMemory) -> Result<Option<Self>, Error> {
        if !dir.join("CURRENT").exists() && !has_table_files(dir)? {
            return Ok(None);
        }
        expect_whole_manifest(dir)?;
        let options = memory.options();
        let family = [(DEFAULT_COLUMN_FAMILY_NAME, options.clone())];
        let db = DB::open_cf_with_opts_for_read_only(&options, dir, family, false)
            .map_err(|error| Error::from_opening(dir, &error))?;
        Ok(Some(Self::new(db, dir.to_owned(), memory.clone())))
    }

    fn new(db: DB, dir: PathBuf, memory: RocksMemory) -> Self {
        let (loads, memtables, cache_filling) = (VecDeque::new(), VecDeque::new(), CacheFilling::default());
        Self { loads, memtables, load_files: None, db, dir, memory, cache_filling, ingest_bytes_min: INGEST_BYTES_MIN }
    }

    /// Ingests or writes the loads that are built; with `wait`, all loads, waiting for them.
    fn ingest_loads(&mut self, wait: bool) -> Result<(), Error> {
        while let Some(outcome) = self.loads.front().and_then(|(first, _)| first.outcome(wait)) {
            let (_, meta) = self.loads.pop_front().expect("the queue has a first load");
            match outcome? {
                BuiltLoad::Records(buffer) => self.write(&records_of(&buffer), buffer.bytes(), &meta)?,
                BuiltLoad::File(file, position) => {
                    let _call = DiskCall::begin(&self.dir, "load");
                    self.count_load_file()?;
                    ingest(&self.db, &self.dir, &file)?;
                    // After the file: a crash in between leaves the older meta, from whose offset the changelog is read
                    // again.
                    self.write(&records_of(&position), position.bytes(), &meta)?;
                }
            }
        }
        Ok(())
    }

    /// Ingests or writes the memtables that `mode` selects, in order. A memtable for which that fails stays first.
    fn ingest_memtables(&mut self, mode: Ingest) -> Result<(), Error> {
        while let Some((table, build_state)) = self.memtables.front_mut() {
            let table = Arc::clone(table);
            match build_state {
                BuildState::Small => {
                    // If the write fails, this remains the state.
                    *build_state = BuildState::Failed;
                    self.write(&|put| table.each(put), table.bytes(), table.meta())?;
                }
                BuildState::Failed if mode == Ingest::Ready => return Ok(()),
                BuildState::Failed => {
                    let build_state = self.build(table)?;
                    self.memtables[0].1 = build_state;
                    continue;
                }
                BuildState::UnderWay(pending) => {
                    let _call = DiskCall::begin(&self.dir, "write");
                    let Some(built) = pending.outcome(mode == Ingest::All) else { return Ok(()) };
                    *build_state = BuildState::Failed;
                    ingest(&self.db, &self.dir, &built?)?;
                }
            }
            self.memtables.pop_front();
        }
        Ok(())
    }

    /// Has another thread build a memtable's file.
    fn build(&self, table: Arc<FrozenMemtable>) -> Result<BuildState, Error> {
        let (dir, options) = (self.dir.clone(), self.memory.options());
        let work = move || build::build_memtable(&table, (&dir, &options));
        Ok(BuildState::UnderWay(self.memory.builders().submit(&self.dir, work)?))
    }

    /// Counts a load's table file. Fewer than [`LOAD_FILES_MAX`] files are not compacted until the restore has ended:
    /// compacting them at once would take resources that the restore itself needs, and merge the same entries again and
    /// again.
    fn count_load_file(&mut self) -> Result<(), Error> {
        match &mut self.load_files {
            None => {
                self.set_compactions(false)?;
                self.load_files = Some(1);
            }
            Some(files) => {
                *files += 1;
                if *files == LOAD_FILES_MAX {
                    self.set_compactions(true)?;
                }
            }
        }
        Ok(())
    }

    fn set_compactions(&self, are_enabled: bool) -> Result<(), Error> {
        let disabled = if are_enabled { "false" } else { "true" };
        self.db.set_options(&[("disable_auto_compactions", disabled)]).map_err(|error| self.error_of(&error))
    }

    /// Returns an error if background work fails for lack of space, and is not merely behind.
    fn expect_space(&self) -> Result<(), Error> {
        let free_bytes = dir::free_bytes(&self.dir)?;
        if self.property("rocksdb.background-errors") == 0 || free_bytes >= FREE_BYTES_MIN {
            return Ok(());
        }
        let reason = format!("RocksDB cannot write, {free_bytes} bytes are free");
        Err(Error::Full { path: self.dir.clone(), reason })
    }

    /// A number that RocksDB reports about itself; 0 if RocksDB does not report it.
    fn property(&self, name: &str) -> u64 {
        let value = self.db.property_int_value_cf(&column_family(&self.db), name);
        value.ok().flatten().unwrap_or(0)
    }

    fn error_of(&self, error: &rocksdb::Error) -> Error {
        Error::from_rocksdb(&self.dir, error)
    }
}

impl Read for Rocks {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let _call = DiskCall::begin(&self.dir, "look up");
        let db = &self.db;
        db.get_cf(&column_family(db), key).map_err(|error| self.error_of(&error))
    }

    fn scan(
        &self,
        after: Option<&[u8]>,
        keys_max: usize,
        visit: &mut dyn FnMut(&[u8], &[u8]),
    ) -> Result<Option<Vec<u8>>, Error> {
        let _call = DiskCall::begin(&self.dir, "read");
        let db = &self.db;
        let mut options = ReadOptions::default();
        // A full scan must not evict blocks that lookups need.
        options.fill_cache(false);
        options.set_iterate_lower_bound([KIND_IDENTITY]);
        options.set_iterate_upper_bound([KIND_IDENTITY_DIGEST + 1]);
        let mut entries = db.raw_iterator_cf_opt(&column_family(db), options);
        match after {
            None => entries.seek_to_first(),
            // The first key after `after`.
            Some(after) => entries.seek([after, &[0]].concat()),
        }
        let mut cursor = Vec::new();
        let mut visited = 0;
        while let Some((key, value)) = entries.item() {
            if visited == keys_max {
                return Ok(Some(cursor));
            }
            visit(key, value);
            visited += 1;
            if visited == keys_max {
                cursor.extend_from_slice(key);
            }
            entries.next();
        }
        entries.status().map_err(|error| self.error_of(&error))?;
        Ok(None)
    }
}

impl Files for Rocks {
    fn get_sorted(&self, keys: &[&[u8]], on_value: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<(), Error> {
        let _call = DiskCall::begin(&self.dir, "look up");
        let db = &self.db;
        let family = column_family(db);
        for (chunk, keys) in keys.chunks(GET_KEYS_MAX).enumerate() {
            let mut options = ReadOptions::default();
            options.fill_cache(self.cache_filling.fills_cache(|| self.memory.is_cache_full()));
            let values = db.batched_multi_get_cf_opt(&family, keys.iter().copied(), true, &options);
            for (at, value) in values.into_iter().enumerate() {
                let value = value.map_err(|error| self.error_of(&error))?;
                on_value(chunk * GET_KEYS_MAX + at, value.as_deref());
            }
        }
        Ok(())
    }

    /// If RocksDB's background work is behind, RocksDB would block the write, and on a full disk block it for ever.
    /// Therefore RocksDB is told to return an error instead, and this function waits and retries.
    fn write(&mut self, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> Result<(), Error> {
        let _call = DiskCall::begin(&self.dir, "write");
        let db = &self.db;
        let mut options = WriteOptions::default();
        options.disable_wal(true);
        options.set_no_slowdown(true);
        for _ in 0..STALL_STEPS_MAX {
            match db.write_opt(batch(db, records, bytes, meta), &options) {
                Ok(()) => return Ok(()),
                Err(error) if error.kind() == rocksdb::ErrorKind::Incomplete => self.expect_space()?,
                Err(error) => return Err(self.error_of(&error)),
            }
            #[expect(clippy::disallowed_methods, reason = "RocksDB's background work is waited for in real time")]
            thread::sleep(STALL_STEP);
        }
        let waited = STALL_STEP * STALL_STEPS_MAX;
        let reason = format!(
            "RocksDB has accepted no write for {waited:?}; its file LOG there says why, the disk may be too slow"
        );
        Err(Error::Io { path: self.dir.clone(), reason })
    }

    fn flush(&self) -> Result<(), Error> {
        let _call = DiskCall::begin(&self.dir, "flush");
        let db = &self.db;
        let options = FlushOptions::default();
        db.flush_cf_opt(&column_family(db), &options).map_err(|error| self.error_of(&error))
    }

    /// The table files are hard-linked.
    fn copy(&self, to: &Path) -> Result<(), Error> {
        let _call = DiskCall::begin(&self.dir, "copy");
        let copied = Checkpoint::new(&self.db).and_then(|checkpoint| checkpoint.create_checkpoint(to));
        copied.map_err(|error| self.error_of(&error))
    }

    fn fits_one_write(&self, buffer: &LoadBuffer) -> bool {
        buffer.bytes() < self.ingest_bytes_min
    }

    /// Submits the load to another thread, which sorts it and makes a file of it.
    fn add_load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error> {
        let (dir, options, file_bytes_min) = (self.dir.clone(), self.memory.options(), self.ingest_bytes_min);
        let work = move || build::build_load(buffer, (&dir, &options), file_bytes_min);
        self.loads.push_back((self.memory.builders().submit(&self.dir, work)?, meta));
        Ok(())
    }

    /// Submits a large memtable to another thread, which makes a file of it. A small memtable will be written.
    fn add_memtable(&mut self, table: Arc<FrozenMemtable>) -> Result<(), Error> {
        debug_assert!(self.loads.is_empty(), "loaded records do not pass through a memtable");
        let is_small = table.bytes() < self.ingest_bytes_min;
        let build_state = if is_small { Ok(BuildState::Small) } else { self.build(Arc::clone(&table)) };
        // If the builder threads could not be started, nothing is lost: a later call retries.
        self.memtables.push_back((table, build_state.unwrap_or(BuildState::Failed)));
        Ok(())
    }

    fn ingest_pending(&mut self, mode: Ingest) -> Result<usize, Error> {
        self.ingest_loads(mode == Ingest::All)?;
        self.ingest_memtables(mode)?;
        Ok(self.loads.len() + self.memtables.len())
    }

    fn drop_loads(&mut self) {
        self.loads.clear();
    }

    /// Lets compactions run as usual, if they were held back.
    fn end_load(&mut self) -> Result<(), Error> {
        match self.load_files.take() {
            Some(_) => self.set_compactions(true),
            None => Ok(()),
        }
    }

    fn is_empty(&self) -> Result<bool, Error> {
        let db = &self.db;
        let mut entries = db.raw_iterator_cf(&column_family(db));
        entries.seek_to_first();
        if entries.valid() {
            return Ok(false);
        }
        entries.status().map_err(|error| self.error_of(&error))?;
        Ok(true)
    }

    fn entries_estimate(&self) -> u64 {
        self.property("rocksdb.estimate-num-keys")
    }

    fn bytes(&self) -> u64 {
        self.property("rocksdb.live-sst-files-size") + self.property("rocksdb.cur-size-all-mem-tables")
    }

    /// The folder's path without symbolic links, as RocksDB uses it.
    fn path(&self) -> &Path {
        &self.dir
    }

    fn set_file_bytes_min(&mut self, bytes: usize) {
        self.ingest_bytes_min = bytes;
    }
}

impl Disk for RocksMemory {
    fn open(&self, dir: &Path) -> Result<Box<dyn Files>, Error> {
        Ok(Box::new(Rocks::open(dir, self)?))
    }

    fn open_to_read(&self, dir: &Path) -> Result<Option<Box<dyn Read>>, Error> {
        Ok(Rocks::open_to_read(dir, self)?.map(|rocks| Box::new(rocks) as Box<dyn Read>))
    }

    fn exists(&self, dir: &Path) -> Result<bool, Error> {
        dir.try_exists().map_err(|error| Error::from_io(dir, &error))
    }

    fn rename(&self, from: &Path, to: &Path) -> Result<(), Error> {
        dir::rename(from, to)
    }

    fn wipe(&self, dir: &Path) -> Result<(), Error> {
        if !self.exists(dir)? {
            return Ok(());
        }
        let dir = dir::removable_path(dir)?;
        let _call = DiskCall::begin(&dir, "remove");
        // Takes RocksDB's lock, unlike a mere removal of the folder.
        DB::destroy(&Options::default(), &dir).map_err(|error| Error::from_rocksdb(&dir, &error))?;
        match fs::remove_dir_all(&dir) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => Err(Error::from_io(&dir, &error)),
            _ => Ok(()),
        }
    }

    /// Removes the temporary folder in which RocksDB makes a copy.
    fn remove_unfinished(&self, to: &Path) -> Result<(), Error> {
        let mut path = OsString::from(to);
        path.push(".tmp");
        let path = PathBuf::from(path);
        if !self.exists(&path)? {
            return Ok(());
        }
        let path = dir::removable_path(&path)?;
        fs::remove_dir_all(&path).map_err(|error| Error::from_io(&path, &error))
    }

    fn sync(&self, folder: &Path) -> Result<(), Error> {
        dir::sync(folder)
    }

    fn folders(&self, root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error> {
        dir::task_folders(root, topology)
    }

    fn load_buffer(&self) -> Option<LoadBuffer> {
        self.load_buffer_share().map(LoadBufferShare::buffer)
    }

    fn memtables(&self) -> Arc<MemtableBudget> {
        Arc::clone(RocksMemory::memtables(self))
    }

    fn used_bytes(&self) -> usize {
        self.cache_bytes() + RocksMemory::memtables(self).used_bytes()
    }
}

impl Drop for Rocks {
    /// Flushes the writes since the last flush, which may take long, like any disk call.
    fn drop(&mut self) {
        let _call = DiskCall::begin(&self.dir, "close");
        self.loads.clear();
        self.memtables.clear();
        // An error was already returned by the writes. When the store is next opened, the lost writes are read again
        // from the changelog.
        let _ = self.db.flush_cf_opt(&column_family(&self.db), &FlushOptions::default());
    }
}

/// The records of a sorted buffer.
fn records_of(buffer: &LoadBuffer) -> impl Fn(&mut Put<'_>) {
    |put| buffer.iter().for_each(|(key, value)| put(key, value))
}

/// A write batch of these records and the meta.
fn batch(db: &DB, records: &Records<'_>, bytes: usize, meta: &StoreMeta) -> WriteBatch {
    let family = column_family(db);
    let mut batch = WriteBatch::with_capacity_bytes(bytes);
    records(&mut |key, value| match value {
        Some(value) => batch.put_cf(&family, key, value),
        None => batch.delete_cf(&family, key),
    });
    batch.put_cf(&family, STORE_META_KEY, meta.encode());
    batch
}

/// Opens the database in `dir`, which must exist, creating an empty one if there is none.
fn open_db(dir: &Path, memory: &RocksMemory) -> Result<DB, Error> {
    // RocksDB treats a folder without CURRENT as empty, whatever else is in it.
    if !dir.join("CURRENT").exists() && has_table_files(dir)? {
        let reason = "its file CURRENT is gone".to_owned();
        return Err(Error::Damaged { path: dir.to_owned(), reason });
    }
    expect_whole_manifest(dir)?;
    let options = memory.options();
    DB::open_cf_with_opts(&options, dir, [(DEFAULT_COLUMN_FAMILY_NAME, options.clone())])
        .map_err(|error| Error::from_opening(dir, &error))
}

/// Checks the MANIFEST before RocksDB reads it: with some damage RocksDB would never return, and it takes other damage
/// for the end of the file.
fn expect_whole_manifest(dir: &Path) -> Result<(), Error> {
    match logs::check_manifest(dir).map_err(|error| Error::from_io(dir, &error))? {
        None => Ok(()),
        Some(damage) => Err(Error::Damaged { path: dir.to_owned(), reason: damage.to_string() }),
    }
}

fn has_table_files(dir: &Path) -> Result<bool, Error> {
    for entry in fs::read_dir(dir).map_err(|error| Error::from_io(dir, &error))? {
        let entry = entry.map_err(|error| Error::from_io(dir, &error))?;
        if Path::new(&entry.file_name()).extension().is_some_and(|extension| extension == "sst") {
            return Ok(true);
        }
    }
    Ok(false)
}
