//! Builds table files from bulk loads and frozen memtables, on separate threads.
//!
//! A **table file** is a file of sorted records in RocksDB's format. A **load** is a buffer of changelog records that
//! a restore has read. A **frozen memtable** is a hash table of a store's last commits that accepts no more.
//!
//! [`Builders`] sort the records and write them to a file in the store's folder; the store **ingests** the files, which
//! adds them to RocksDB's own, in the order in which they were submitted, so that the later record of a key wins. Until
//! it is ingested, a file has a name that RocksDB does not use.
//!
//! **Invariants**: no file of a load contains a position record (how far the input was processed). A crash may keep
//! such a file and lose the meta (how far the store has applied the changelog) that is written after it; the position
//! record is written with the meta, and so is never ahead of it. A memtable's file contains the entries, the position
//! record and the meta: it is ingested as a whole.
//!
//! **Failure**: an error, even a panic, is returned when the store asks for the file. A store that is dropped waits for
//! the file that is being written for it, and cancels builds that were not started: no thread writes into its folder
//! afterwards.

use std::fs;
use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread;

use crossbeam_channel::{Receiver, Sender, TryRecvError};
use rocksdb::{Options, SstFileWriter};

use super::Error;
use super::load::LoadBuffer;
use super::memtable::FrozenMemtable;

/// The suffix of a table file that is not ingested yet. Such a file is removed if ingesting it fails and, after a
/// crash, when the store is opened.
const UNINGESTED_SUFFIX: &str = ".load.tmp";
/// More threads would only wait for the changelog's records, which are read more slowly than this.
const BUILDERS_MAX: usize = 4;

/// The builder threads, started when they are first needed.
#[derive(Default)]
pub(super) struct Builders {
    /// Sends jobs to the threads.
    jobs: OnceLock<Sender<Job>>,
    /// Whether there are no threads, so that each file is built when it is submitted.
    is_threadless: bool,
}

/// A queued build, which does nothing if it was cancelled.
type Job = Box<dyn FnOnce() + Send>;
/// The function that builds a `T`.
type Work<T> = Box<dyn FnOnce() -> Result<T, Error> + Send>;

/// A build whose outcome was not taken yet. Dropping it cancels the build.
pub(super) struct PendingBuild<T> {
    /// Shared with the job; `None` once a thread has begun the build.
    work: Arc<Mutex<Option<Work<T>>>>,
    outcome: Receiver<Result<T, Error>>,
}

impl Builders {
    /// No threads: each file is built when it is submitted.
    pub fn none() -> Self {
        Self { is_threadless: true, ..Self::default() }
    }

    /// Submits a build in the folder `dir`.
    pub fn submit<T: Send + 'static>(
        &self,
        dir: &Path,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<PendingBuild<T>, Error> {
        let (sender, receiver) = crossbeam_channel::bounded(1);
        if self.is_threadless {
            let _ = sender.send(work());
            return Ok(PendingBuild { work: Arc::default(), outcome: receiver });
        }
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => {
                let started = start().map_err(|error| Error::from_io(dir, &error))?;
                self.jobs.get_or_init(|| started)
            }
        };
        let work: Arc<Mutex<Option<Work<T>>>> = Arc::new(Mutex::new(Some(Box::new(work))));
        let (job_work, dir) = (Arc::clone(&work), dir.to_owned());
        // The channel itself is unbounded, but each pending build holds a share of a bounded budget.
        let _ = jobs.send(Box::new(move || {
            let work = job_work.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(work) = work {
                let _ = sender.send(catching_panics(&dir, work));
            }
        }));
        Ok(PendingBuild { work, outcome: receiver })
    }
}

impl<T> PendingBuild<T> {
    /// Takes the outcome. With `wait`, waits until the build has ended; without, returns `None` until then.
    pub fn outcome(&self, wait: bool) -> Option<Result<T, Error>> {
        const NO_OUTCOME: &str = "builders send an outcome for each job";
        if wait {
            return Some(self.outcome.recv().expect(NO_OUTCOME));
        }
        match self.outcome.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            #[expect(
                clippy::panic,
                reason = "an invariant: a builder's thread sends an outcome even if the build panics"
            )]
            Err(TryRecvError::Disconnected) => panic!("{NO_OUTCOME}"),
        }
    }
}

impl<T> Drop for PendingBuild<T> {
    fn drop(&mut self) {
        let has_begun = self.work.lock().unwrap_or_else(PoisonError::into_inner).take().is_none();
        if has_begun {
            // Waits until the file is complete; returns at once if the outcome was already received.
            let _ = self.outcome.recv();
        }
    }
}

/// Starts the threads, which carry out the jobs that are sent to them; they end when the sender is dropped.
fn start() -> io::Result<Sender<Job>> {
    let (jobs, job_receiver): (_, Receiver<Job>) = crossbeam_channel::unbounded();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for number in 0..cores.min(BUILDERS_MAX) {
        let job_receiver = job_receiver.clone();
        thread::Builder::new()
            .name(format!("state-build-{number}"))
            .spawn(move || job_receiver.into_iter().for_each(|job| job()))?;
    }
    Ok(jobs)
}

/// Runs a build, and returns an error if it panics: the thread must survive for later builds. The buffer and the file
/// of a build that panics are dropped.
fn catching_panics<T>(dir: &Path, work: Work<T>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let reason = "building a table file panicked; the log says where".into();
        Err(Error::Io { path: dir.to_owned(), reason })
    })
}

/// A load that was built.
pub(super) enum BuiltLoad {
    /// A file to be ingested. The buffer is to be written with the meta: it holds the load's position record, or
    /// nothing.
    File(TableFile, LoadBuffer),
    /// The sorted records of a load that is too small for a file: to be written with the meta.
    Records(LoadBuffer),
}

/// Builds a load for the store in `dir`. A load of less than `file_bytes_min` bytes is only sorted: a file would not
/// pay.
pub(super) fn build_load(
    mut buffer: LoadBuffer,
    (dir, options): (&Path, &Options),
    file_bytes_min: usize,
) -> Result<BuiltLoad, Error> {
    let bytes = buffer.bytes();
    buffer.sort(dir)?;
    if bytes < file_bytes_min {
        return Ok(BuiltLoad::Records(buffer));
    }
    let position = buffer.split_position();
    if buffer.is_empty() {
        return Ok(BuiltLoad::Records(position));
    }
    let file = write_file((dir, options), |put| buffer.iter().try_for_each(|(key, value)| put(key, value)))?;
    Ok(BuiltLoad::File(file, position))
}

/// Builds a frozen memtable's file, for the store in `dir`.
pub(super) fn build_memtable(table: &FrozenMemtable, (dir, options): (&Path, &Options)) -> Result<TableFile, Error> {
    let file = write_file((dir, options), |put| table.try_each_with_meta(put))?;
    // Reads the file into the system's cache: RocksDB has dropped it from there, and lookups would wait for the disk.
    let read_back = fs::File::open(&file.0).and_then(|mut written| io::copy(&mut written, &mut io::sink()));
    read_back.map_err(|error| Error::from_io(dir, &error))?;
    Ok(file)
}

/// A table file that is not ingested yet. Dropping it removes the file, unless RocksDB has ingested it.
pub(super) struct TableFile(PathBuf);

impl TableFile {
    /// The file's path.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        // A file that cannot be removed now is removed when the store is next opened.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes one record; records must come in the order of their keys. `None` deletes the key.
type Put<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<(), rocksdb::Error> + 'a;

/// Writes records, at least one, to a table file in `dir`.
fn write_file(
    (dir, options): (&Path, &Options),
    records: impl FnOnce(&mut Put<'_>) -> Result<(), rocksdb::Error>,
) -> Result<TableFile, Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let to_error = |error: rocksdb::Error| Error::from_rocksdb(dir, &error);
    let file = TableFile(dir.join(format!("{number}{UNINGESTED_SUFFIX}")));
    let mut writer = SstFileWriter::create(options);
    writer.open(&file.0).map_err(to_error)?;
    records(&mut |key, value| match value {
        Some(value) => writer.put(key, value),
        None => writer.delete(key),
    })
    .map_err(to_error)?;
    writer.finish().map_err(to_error)?;
    drop(writer);
    Ok(file)
}

/// Removes the files of interrupted builds. The caller must hold the store's lock.
pub(super) fn remove_leftovers(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(|error| Error::from_io(dir, &error))? {
        let path = entry.map_err(|error| Error::from_io(dir, &error))?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(UNINGESTED_SUFFIX)) {
            fs::remove_file(&path).map_err(|error| Error::from_io(&path, &error))?;
        }
    }
    Ok(())
}
