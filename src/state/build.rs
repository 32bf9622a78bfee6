//! Table files, of bulk loads and of frozen memtables, built on separate threads.
//!
//! [`Builders`] sort the records and write them to a file beside the store's; the store ingests the files
//! in the order in which they were submitted, so that the later record of a key wins. Until then a file has a name that
//! RocksDB does not use.
//!
//! **Invariants**: no file of a load contains a position record. Such files survive a crash that the meta written after
//! them does not; the position record is written with the meta, and so is never ahead of it. A memtable's file contains
//! both, and the meta: it is ingested as a whole.
//!
//! **Failure**: an error, even a panic, is returned when the store asks for the file. A store that is dropped waits for
//! the file that is being written for it, and cancels what was not started: no thread writes into its folder
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
use super::memtable::Frozen;

/// Suffix of a table file that is not ingested yet: it is removed when that fails and, after a crash, when the store is
/// opened.
const SUFFIX: &str = ".load.tmp";
/// More threads would only wait for the changelog's records, which are read more slowly than this.
const BUILDERS_MAX: usize = 4;

/// The builder threads, started when they are first needed.
#[derive(Default)]
pub(super) struct Builders {
    jobs: OnceLock<Sender<Job>>,
    /// Whether there are no threads, and everything is built when it is submitted.
    is_threadless: bool,
}

/// What a thread does.
type Job = Box<dyn FnOnce() + Send>;
/// What a thread is to do, unless that was cancelled.
type Work<T> = Box<dyn FnOnce() -> Result<T, Error> + Send>;

/// Something that is being built. Dropping it cancels it.
pub(super) struct Pending<T> {
    work: Arc<Mutex<Option<Work<T>>>>,
    done: Receiver<Result<T, Error>>,
}

impl Builders {
    /// No threads: everything is built when it is submitted.
    pub fn none() -> Self {
        Self { is_threadless: true, ..Self::default() }
    }

    /// Submits something to be built in the folder `dir`.
    pub fn begin<T: Send + 'static>(
        &self,
        dir: &Path,
        work: impl FnOnce() -> Result<T, Error> + Send + 'static,
    ) -> Result<Pending<T>, Error> {
        let (done, built) = crossbeam_channel::bounded(1);
        if self.is_threadless {
            let _ = done.send(work());
            return Ok(Pending { work: Arc::default(), done: built });
        }
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => {
                let started = start().map_err(|error| Error::from_io(dir, &error))?;
                self.jobs.get_or_init(|| started)
            }
        };
        let work: Arc<Mutex<Option<Work<T>>>> = Arc::new(Mutex::new(Some(Box::new(work))));
        let (theirs, dir) = (Arc::clone(&work), dir.to_owned());
        // The channel itself is unbounded, but what is pending holds a share of a budget, which is bounded.
        let _ = jobs.send(Box::new(move || {
            let work = theirs.lock().unwrap_or_else(PoisonError::into_inner).take();
            if let Some(work) = work {
                let _ = done.send(catching_panics(&dir, work));
            }
        }));
        Ok(Pending { work, done: built })
    }
}

impl<T> Pending<T> {
    /// The result, once it is there; waits for it if `wait` is set.
    pub fn outcome(&self, wait: bool) -> Option<Result<T, Error>> {
        const ENDED: &str = "builders answer each job";
        if wait {
            return Some(self.done.recv().expect(ENDED));
        }
        match self.done.try_recv() {
            Ok(outcome) => Some(outcome),
            Err(TryRecvError::Empty) => None,
            #[expect(clippy::panic, reason = "an invariant: a builder's thread answers also where it panics")]
            Err(TryRecvError::Disconnected) => panic!("{ENDED}"),
        }
    }
}

impl<T> Drop for Pending<T> {
    fn drop(&mut self) {
        let begun = self.work.lock().unwrap_or_else(PoisonError::into_inner).take().is_none();
        if begun {
            // Until the file is complete; returns at once if the result was already received.
            let _ = self.done.recv();
        }
    }
}

/// Starts the threads; they end when the sender is dropped.
fn start() -> io::Result<Sender<Job>> {
    let (jobs, inbox): (_, Receiver<Job>) = crossbeam_channel::unbounded();
    let cores = thread::available_parallelism().map_or(1, usize::from);
    for number in 0..cores.min(BUILDERS_MAX) {
        let inbox = inbox.clone();
        thread::Builder::new()
            .name(format!("state-build-{number}"))
            .spawn(move || inbox.into_iter().for_each(|job| job()))?;
    }
    Ok(jobs)
}

/// Builds, and returns an error if that panics: the next one may be fine, and needs the thread. The panic
/// leaves a buffer and a file, both of which are dropped.
fn catching_panics<T>(dir: &Path, work: Work<T>) -> Result<T, Error> {
    catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| {
        let reason = "building a table file panicked; the log says where".into();
        Err(Error::Io { path: dir.to_owned(), reason })
    })
}

/// A load that was built.
pub(super) enum Loaded {
    /// A file to be ingested, and the position record, if there is one, to be written with the meta.
    File(TableFile, LoadBuffer),
    /// Too little for a file: only sorted.
    Records(LoadBuffer),
}

/// Builds what a restore has read, for the store in `dir`; a file of less than `file_bytes_min` would not pay.
pub(super) fn load(
    mut buffer: LoadBuffer,
    (dir, options): (&Path, &Options),
    file_bytes_min: usize,
) -> Result<Loaded, Error> {
    let bytes = buffer.bytes();
    buffer.sort(dir)?;
    if bytes < file_bytes_min {
        return Ok(Loaded::Records(buffer));
    }
    let position = buffer.split_position();
    if buffer.is_empty() {
        return Ok(Loaded::Records(position));
    }
    let file = write((dir, options), |put| buffer.iter().try_for_each(|(key, value)| put(key, value)))?;
    Ok(Loaded::File(file, position))
}

/// Builds a frozen memtable's file, for the store in `dir`.
pub(super) fn frozen(table: &Frozen, (dir, options): (&Path, &Options)) -> Result<TableFile, Error> {
    let file = write((dir, options), |put| table.try_each_with_meta(put))?;
    // RocksDB asks the system to forget what it writes there, and lanes would wait for the disk at once.
    let read = fs::File::open(&file.0).and_then(|mut written| io::copy(&mut written, &mut io::sink()));
    read.map_err(|error| Error::from_io(dir, &error))?;
    Ok(file)
}

/// A table file on its way into the store; removed when dropped, unless RocksDB has ingested it.
pub(super) struct TableFile(PathBuf);

impl TableFile {
    /// Where it is.
    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for TableFile {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the store is next opened.
        let _ = fs::remove_file(&self.0);
    }
}

/// Takes one record, in the order of keys; `None` deletes.
type Put<'a> = dyn FnMut(&[u8], Option<&[u8]>) -> Result<(), rocksdb::Error> + 'a;

/// Writes records, of which there is at least one, to a table file in `dir`.
fn write(
    (dir, options): (&Path, &Options),
    records: impl FnOnce(&mut Put<'_>) -> Result<(), rocksdb::Error>,
) -> Result<TableFile, Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let failed = |error: rocksdb::Error| Error::from_rocksdb(dir, &error);
    let file = TableFile(dir.join(format!("{number}{SUFFIX}")));
    let mut writer = SstFileWriter::create(options);
    writer.open(&file.0).map_err(failed)?;
    records(&mut |key, value| match value {
        Some(value) => writer.put(key, value),
        None => writer.delete(key),
    })
    .map_err(failed)?;
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(file)
}

/// Removes files left behind by killed loads. Only to be called while holding the store's lock.
pub(super) fn remove_leftovers(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(|error| Error::from_io(dir, &error))? {
        let path = entry.map_err(|error| Error::from_io(dir, &error))?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX)) {
            fs::remove_file(&path).map_err(|error| Error::from_io(&path, &error))?;
        }
    }
    Ok(())
}
