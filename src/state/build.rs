//! Table files for bulk loads, built on separate threads while the next records are read.
//!
//! [`Builders`] sort the records and write them to a file beside the store's; the store ingests the files
//! in the order in which they were submitted, so that the later record of a key wins. Until then a file has a name that
//! RocksDB does not use.
//!
//! **Invariant**: no file contains a position record. Files survive a crash that the meta written after them does not;
//! the position record is written with the meta, and so is never ahead of it.
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
use rocksdb::{DB, IngestExternalFileOptions, Options, SstFileWriter};

use super::Error;
use super::load::LoadBuffer;
use crate::format::StoreMeta;

/// Suffix of a table file that is not ingested yet. There is none while no load is in
/// progress: it is removed when a load fails and, after a crash, when the store is opened.
const SUFFIX: &str = ".load.tmp";
/// More threads would only wait for the changelog's records, which are read more slowly than this.
const BUILDERS_MAX: usize = 4;

/// The builder threads, started when they are first needed.
#[derive(Default)]
pub(super) struct Builders {
    jobs: OnceLock<Sender<Job>>,
    /// Whether there are no threads, and each load is built when it is submitted.
    is_threadless: bool,
}

/// A load to be built.
pub(super) struct Work {
    /// The records.
    pub buffer: LoadBuffer,
    /// The store's folder.
    pub dir: PathBuf,
    /// The store's options.
    pub options: Options,
    /// The minimum size for a file.
    pub file_bytes_min: usize,
}

/// The result of a build.
pub(super) enum Built {
    /// A file to be ingested, and the position record, if there is one, to be written with the meta.
    File(TableFile, LoadBuffer),
    /// Too little for a file: only sorted.
    Records(LoadBuffer),
}

struct Job {
    work: Arc<Mutex<Option<Work>>>,
    done: Sender<Result<Built, Error>>,
}

/// A load in progress. Dropping it cancels it.
pub(super) struct PendingLoad {
    work: Arc<Mutex<Option<Work>>>,
    done: Receiver<Result<Built, Error>>,
    /// The store's meta once it is applied.
    pub meta: StoreMeta,
}

impl Builders {
    /// No threads: each load is built when it is submitted.
    pub fn none() -> Self {
        Self { is_threadless: true, ..Self::default() }
    }

    /// Submits a load to be built.
    pub fn begin(&self, work: Work, meta: StoreMeta) -> Result<PendingLoad, Error> {
        let (done, built) = crossbeam_channel::bounded(1);
        if self.is_threadless {
            let _ = done.send(build(work));
            return Ok(PendingLoad { work: Arc::default(), done: built, meta });
        }
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => {
                let started = start().map_err(|error| Error::from_io(&work.dir, &error))?;
                self.jobs.get_or_init(|| started)
            }
        };
        let work = Arc::new(Mutex::new(Some(work)));
        // The channel itself is unbounded, but every pending load holds a share of a budget, which is bounded.
        let _ = jobs.send(Job { work: Arc::clone(&work), done });
        Ok(PendingLoad { work, done: built, meta })
    }
}

impl PendingLoad {
    /// The result, once it is there; waits for it if `wait` is set.
    pub fn outcome(&self, wait: bool) -> Option<Result<Built, Error>> {
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

impl Drop for PendingLoad {
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
        thread::Builder::new().name(format!("state-load-{number}")).spawn(move || {
            for job in inbox {
                let work = job.work.lock().unwrap_or_else(PoisonError::into_inner).take();
                if let Some(work) = work {
                    let _ = job.done.send(build_catching_panics(work));
                }
            }
        })?;
    }
    Ok(jobs)
}

/// Builds, and returns an error if that panics: the next load may be fine, and needs the thread. The panic
/// leaves a buffer and a file, both of which are dropped.
fn build_catching_panics(work: Work) -> Result<Built, Error> {
    let path = work.dir.clone();
    catch_unwind(AssertUnwindSafe(|| build(work))).unwrap_or_else(|_| {
        Err(Error::Io { path, reason: "building a table file panicked; the log says where".into() })
    })
}

fn build(work: Work) -> Result<Built, Error> {
    let Work { mut buffer, dir, options, file_bytes_min } = work;
    let bytes = buffer.bytes();
    buffer.sort(&dir)?;
    if bytes < file_bytes_min {
        return Ok(Built::Records(buffer));
    }
    let position = buffer.split_position();
    if buffer.is_empty() {
        return Ok(Built::Records(position));
    }
    Ok(Built::File(write(&dir, &options, &buffer)?, position))
}

/// A table file on its way into the store; removed when dropped, unless RocksDB has ingested it.
pub(super) struct TableFile(PathBuf);

impl Drop for TableFile {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the store is next opened.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes the records of `buffer`, which are sorted and not empty, to a table file in `dir`.
fn write(dir: &Path, options: &Options, buffer: &LoadBuffer) -> Result<TableFile, Error> {
    static NUMBER: AtomicU64 = AtomicU64::new(0);
    let number = NUMBER.fetch_add(1, Ordering::Relaxed);
    let failed = |error: rocksdb::Error| Error::from_rocksdb(dir, &error);
    let file = TableFile(dir.join(format!("{number}{SUFFIX}")));
    let mut writer = SstFileWriter::create(options);
    writer.open(&file.0).map_err(failed)?;
    for (key, value) in buffer.iter() {
        match value {
            Some(value) => writer.put(key, value),
            None => writer.delete(key),
        }
        .map_err(failed)?;
    }
    writer.finish().map_err(failed)?;
    drop(writer);
    Ok(file)
}

/// Has `db`, whose folder is `dir`, ingest a file.
pub(super) fn ingest(db: &DB, dir: &Path, file: &TableFile) -> Result<(), Error> {
    let mut options = IngestExternalFileOptions::default();
    // Hard-linked into place, not copied.
    options.set_move_files(true);
    db.ingest_external_file_cf_opts(&super::rocks::column_family(db), &options, vec![&file.0])
        .map_err(|error| Error::from_rocksdb(dir, &error))
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
