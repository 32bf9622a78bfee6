//! RocksDB on this machine's disk: see [`super::disk`].
//!
//! There is no write-ahead log. A write batch goes whole into one write buffer, write buffers reach the disk in
//! order, and all keys share them; table files reach the disk at once. A frozen memtable's file has the meta's key among
//! its own, which every write batch has, too: so RocksDB flushes what was written before it ingests the file.

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

use super::build::{self, Loaded, Pending, TableFile};
use super::disk::{Disk, Files, Read, Take};
use super::filling::Filling;
use super::load::LoadBuffer;
use super::memory::{BudgetShare, RocksMemory};
use super::memtable::{Budget, Frozen};
use super::records::{Put, Records};
use super::stalls::DiskCall;
use super::{Error, dir};
use crate::format::{KIND_IDENTITY, KIND_IDENTITY_DIGEST, STORE_META_KEY, StoreMeta};
use crate::logs;

/// Maximum number of keys looked up at once: more saves nothing and holds more blocks.
const GET_KEYS_MAX: usize = 512;
/// A load or a memtable of at least this size becomes a table file.
const INGEST_BYTES_MIN: usize = 2 << 20;
/// From this number of table files in one load on, they are compacted during the load: each is part of every lookup.
const LOAD_FILES_MAX: usize = 64;
/// Pause between two attempts at a write that waits for flushes and compactions.
const STALL_STEP: Duration = Duration::from_millis(1);
const STALL_STEPS_MAX: u32 = 30_000;
/// With less free space than this, failed background work is attributed to a lack of space.
const FREE_BYTES_MIN: u64 = 64 << 20;

/// An open RocksDB, and what is on its way into it.
pub(super) struct Rocks {
    /// Loads that were submitted and not yet ingested, in order, each with the meta to be written after it. Dropped
    /// before the rest, as they use the folder.
    loads: VecDeque<(Pending<Loaded>, StoreMeta)>,
    /// Memtables that are not in the database yet, in order; none while there are loads. Dropped before the rest, too.
    tables: VecDeque<(Arc<Frozen>, Building)>,
    /// How many table files the load has made, `None` if compactions run as usual.
    load_files: Option<usize>,
    db: DB,
    dir: PathBuf,
    memory: RocksMemory,
    filling: Filling,
    ingest_bytes_min: usize,
}

/// How far a memtable's file is.
enum Building {
    /// There will be none: it is small.
    Small,
    UnderWay(Pending<TableFile>),
    /// The table could not be brought in.
    Failed,
}

/// The only column family, which holds everything.
fn column_family(db: &DB) -> &ColumnFamily {
    db.cf_handle(DEFAULT_COLUMN_FAMILY_NAME).expect("a store is opened with its column family")
}

/// Has `db`, whose folder is `dir`, ingest a file.
fn ingest(db: &DB, dir: &Path, file: &TableFile) -> Result<(), Error> {
    let mut options = IngestExternalFileOptions::default();
    // Hard-linked into place, not copied.
    options.set_move_files(true);
    db.ingest_external_file_cf_opts(&column_family(db), &options, vec![file.path()])
        .map_err(|error| Error::from_rocksdb(dir, &error))
}

impl Rocks {
    /// Opens the database in `dir`, creating an empty one if there is none.
    fn open(dir: &Path, memory: &RocksMemory) -> Result<Self, Error> {
        dir::create_dir(dir)?;
        // RocksDB identifies its locks by path within a process: a folder must have only one path.
        let dir = fs::canonicalize(dir).map_err(|error| Error::from_io(dir, &error))?;
        let _call = DiskCall::begin(&dir, "open");
        let db = open_db(&dir, memory)?;
        let memory = memory.clone();
        build::remove_leftovers(&dir)?;
        Ok(Self::of(db, dir, memory))
    }

    /// Opens the database in `dir` as it is on the disk, read-only; `None` if none was created yet.
    fn open_to_read(dir: &Path, memory: &RocksMemory) -> Result<Option<Self>, Error> {
        if !dir.join("CURRENT").exists() && !holds_tables(dir)? {
            return Ok(None);
        }
        expect_whole_manifest(dir)?;
        let options = memory.options();
        let family = [(DEFAULT_COLUMN_FAMILY_NAME, options.clone())];
        let db = DB::open_cf_with_opts_for_read_only(&options, dir, family, false)
            .map_err(|error| Error::from_opening(dir, &error))?;
        Ok(Some(Self::of(db, dir.to_owned(), memory.clone())))
    }

    fn of(db: DB, dir: PathBuf, memory: RocksMemory) -> Self {
        let (loads, tables, filling) = (VecDeque::new(), VecDeque::new(), Filling::default());
        Self { loads, tables, load_files: None, db, dir, memory, filling, ingest_bytes_min: INGEST_BYTES_MIN }
    }

    /// Brings in the loads that are ready, or all of them.
    fn take_loads(&mut self, wait: bool) -> Result<(), Error> {
        while let Some(outcome) = self.loads.front().and_then(|(first, _)| first.outcome(wait)) {
            let (_, meta) = self.loads.pop_front().expect("it is the first");
            match outcome? {
                Loaded::Records(buffer) => self.write(&all_of(&buffer), buffer.bytes(), &meta)?,
                Loaded::File(file, position) => {
                    let _call = DiskCall::begin(&self.dir, "load");
                    self.hold_compactions()?;
                    ingest(&self.db, &self.dir, &file)?;
                    // After the file: a crash in between leaves the older meta, from which everything is read again.
                    self.write(&all_of(&position), position.bytes(), &meta)?;
                }
            }
        }
        Ok(())
    }

    /// Brings in the memtables that are ready, or all of them. One that could not be brought in stays the first.
    fn take_tables(&mut self, take: Take) -> Result<(), Error> {
        while let Some((table, building)) = self.tables.front_mut() {
            let table = Arc::clone(table);
            match building {
                Building::Small => {
                    *building = Building::Failed;
                    self.write(&|put| table.each(put), table.bytes(), table.meta())?;
                }
                Building::Failed if take == Take::Ready => return Ok(()),
                Building::Failed => {
                    let building = self.build(table)?;
                    self.tables[0].1 = building;
                    continue;
                }
                Building::UnderWay(pending) => {
                    let _call = DiskCall::begin(&self.dir, "write");
                    let Some(built) = pending.outcome(take == Take::All) else { return Ok(()) };
                    *building = Building::Failed;
                    ingest(&self.db, &self.dir, &built?)?;
                }
            }
            self.tables.pop_front();
        }
        Ok(())
    }

    fn build(&self, table: Arc<Frozen>) -> Result<Building, Error> {
        let (dir, options) = (self.dir.clone(), self.memory.options());
        let work = move || build::frozen(&table, (&dir, &options));
        Ok(Building::UnderWay(self.memory.builders().begin(&self.dir, work)?))
    }

    /// Counts a load's table file. The first ones are not compacted until the load has ended: compacting them at
    /// once takes resources that the load itself needs, and merges the same entries again and again.
    fn hold_compactions(&mut self) -> Result<(), Error> {
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

    fn set_compactions(&self, on: bool) -> Result<(), Error> {
        let disabled = if on { "false" } else { "true" };
        self.db.set_options(&[("disable_auto_compactions", disabled)]).map_err(|error| self.failed(&error))
    }

    /// Returns an error if background work fails for lack of space, rather than being merely behind.
    fn expect_space(&self) -> Result<(), Error> {
        let free_bytes = dir::free_bytes(&self.dir)?;
        if self.property("rocksdb.background-errors") == 0 || free_bytes >= FREE_BYTES_MIN {
            return Ok(());
        }
        let reason = format!("RocksDB cannot write, {free_bytes} bytes are free");
        Err(Error::Full { path: self.dir.clone(), reason })
    }

    fn property(&self, name: &str) -> u64 {
        let value = self.db.property_int_value_cf(&column_family(&self.db), name);
        value.ok().flatten().unwrap_or(0)
    }

    fn failed(&self, error: &rocksdb::Error) -> Error {
        Error::from_rocksdb(&self.dir, error)
    }
}

impl Read for Rocks {
    fn get(&self, key: &[u8]) -> Result<Option<Vec<u8>>, Error> {
        let _call = DiskCall::begin(&self.dir, "look up");
        let db = &self.db;
        db.get_cf(&column_family(db), key).map_err(|error| self.failed(&error))
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
        // A full scan must not evict what lookups need.
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
        entries.status().map_err(|error| self.failed(&error))?;
        Ok(None)
    }
}

impl Files for Rocks {
    fn get_sorted(&self, keys: &[&[u8]], found: &mut dyn FnMut(usize, Option<&[u8]>)) -> Result<(), Error> {
        let _call = DiskCall::begin(&self.dir, "look up");
        let db = &self.db;
        let family = column_family(db);
        for (chunk, keys) in keys.chunks(GET_KEYS_MAX).enumerate() {
            let mut options = ReadOptions::default();
            options.fill_cache(self.filling.next(|| self.memory.is_cache_full()));
            let values = db.batched_multi_get_cf_opt(&family, keys.iter().copied(), true, &options);
            for (at, value) in values.into_iter().enumerate() {
                let value = value.map_err(|error| self.failed(&error))?;
                found(chunk * GET_KEYS_MAX + at, value.as_deref());
            }
        }
        Ok(())
    }

    /// If RocksDB's background work has fallen behind, RocksDB would block the write, and block it for
    /// ever if the disk is full. So it is told to return an error instead, and the waiting is done here.
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
                Err(error) => return Err(self.failed(&error)),
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
        db.flush_cf_opt(&column_family(db), &options).map_err(|error| self.failed(&error))
    }

    /// The table files are hard-linked.
    fn copy(&self, to: &Path) -> Result<(), Error> {
        let _call = DiskCall::begin(&self.dir, "copy");
        let copied = Checkpoint::new(&self.db).and_then(|checkpoint| checkpoint.create_checkpoint(to));
        copied.map_err(|error| self.failed(&error))
    }

    fn takes_at_once(&self, buffer: &LoadBuffer) -> bool {
        buffer.bytes() < self.ingest_bytes_min
    }

    /// Submits what was read, to be sorted and made into a file by another thread.
    fn load(&mut self, buffer: LoadBuffer, meta: StoreMeta) -> Result<(), Error> {
        let (dir, options, file_bytes_min) = (self.dir.clone(), self.memory.options(), self.ingest_bytes_min);
        let work = move || build::load(buffer, (&dir, &options), file_bytes_min);
        self.loads.push_back((self.memory.builders().begin(&self.dir, work)?, meta));
        Ok(())
    }

    /// A small one is written; another thread makes a file of a large one.
    fn add(&mut self, table: Arc<Frozen>) -> Result<(), Error> {
        debug_assert!(self.loads.is_empty(), "what is loaded does not pass through a memtable");
        let is_small = table.bytes() < self.ingest_bytes_min;
        let building = if is_small { Ok(Building::Small) } else { self.build(Arc::clone(&table)) };
        // Nothing is lost if the threads could not be started: that is tried again.
        self.tables.push_back((table, building.unwrap_or(Building::Failed)));
        Ok(())
    }

    fn take_over(&mut self, take: Take) -> Result<usize, Error> {
        self.take_loads(take == Take::All)?;
        self.take_tables(take)?;
        Ok(self.loads.len() + self.tables.len())
    }

    fn drop_loads(&mut self) {
        self.loads.clear();
    }

    /// Lets compactions run as usual: nothing is being loaded any more.
    fn end_load(&mut self) -> Result<(), Error> {
        match self.load_files.take() {
            Some(_) => self.set_compactions(true),
            None => Ok(()),
        }
    }

    fn is_empty(&self) -> Result<bool, Error> {
        let db = &self.db;
        let mut all = db.raw_iterator_cf(&column_family(db));
        all.seek_to_first();
        if all.valid() {
            return Ok(false);
        }
        all.status().map_err(|error| self.failed(&error))?;
        Ok(true)
    }

    fn entries_estimate(&self) -> u64 {
        self.property("rocksdb.estimate-num-keys")
    }

    fn bytes(&self) -> u64 {
        self.property("rocksdb.live-sst-files-size") + self.property("rocksdb.cur-size-all-mem-tables")
    }

    /// The folder, by the path that RocksDB uses.
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
        let dir = dir::removable(dir)?;
        let _call = DiskCall::begin(&dir, "remove");
        // Takes RocksDB's lock, which just removing the folder would not.
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
        let path = dir::removable(&path)?;
        fs::remove_dir_all(&path).map_err(|error| Error::from_io(&path, &error))
    }

    fn sync(&self, folder: &Path) -> Result<(), Error> {
        dir::sync(folder)
    }

    fn folders(&self, root: &Path, topology: &str) -> Result<Vec<PathBuf>, Error> {
        dir::folders(root, topology)
    }

    fn load_buffer(&self) -> Option<LoadBuffer> {
        self.share_for_load().map(BudgetShare::buffer)
    }

    fn memtables(&self) -> Arc<Budget> {
        Arc::clone(RocksMemory::memtables(self))
    }

    fn used_bytes(&self) -> usize {
        self.cache_bytes() + RocksMemory::memtables(self).used_bytes()
    }
}

impl Drop for Rocks {
    /// Closing flushes what was written since the last flush: it may stall like any call.
    fn drop(&mut self) {
        let _call = DiskCall::begin(&self.dir, "close");
        self.loads.clear();
        self.tables.clear();
        // A failure has already shown in the writes, and the next time the store is opened, what it lacks is read
        // again.
        let _ = self.db.flush_cf_opt(&column_family(&self.db), &FlushOptions::default());
    }
}

/// The records of a sorted buffer.
fn all_of(buffer: &LoadBuffer) -> impl Fn(&mut Put<'_>) {
    |put| buffer.iter().for_each(|(key, value)| put(key, value))
}

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

fn open_db(dir: &Path, memory: &RocksMemory) -> Result<DB, Error> {
    // RocksDB treats a folder without CURRENT as empty, whatever else is in it.
    if !dir.join("CURRENT").exists() && holds_tables(dir)? {
        let reason = "its file CURRENT is gone".to_owned();
        return Err(Error::Damaged { path: dir.to_owned(), reason });
    }
    expect_whole_manifest(dir)?;
    let options = memory.options();
    DB::open_cf_with_opts(&options, dir, [(DEFAULT_COLUMN_FAMILY_NAME, options.clone())])
        .map_err(|error| Error::from_opening(dir, &error))
}

/// RocksDB does not return from some damage of its MANIFEST, and takes other damage for its end.
fn expect_whole_manifest(dir: &Path) -> Result<(), Error> {
    match logs::check_manifest(dir).map_err(|error| Error::from_io(dir, &error))? {
        None => Ok(()),
        Some(damage) => Err(Error::Damaged { path: dir.to_owned(), reason: damage.to_string() }),
    }
}

fn holds_tables(dir: &Path) -> Result<bool, Error> {
    for entry in fs::read_dir(dir).map_err(|error| Error::from_io(dir, &error))? {
        let entry = entry.map_err(|error| Error::from_io(dir, &error))?;
        if Path::new(&entry.file_name()).extension().is_some_and(|extension| extension == "sst") {
            return Ok(true);
        }
    }
    Ok(false)
}
