//! Table files for bulk loads, built on threads of their own while the next records are read.
//!
//! [`Builders`] sort what was gathered and write it to a file beside the store's; the store takes the files over
//! in the order in which they were handed in, so that the later record of a key wins. A file has the name of
//! nothing that RocksDB knows until then.
//!
//! **Invariant**: no file has a position record. Files outlive a crash that the store's meta behind them does not; the
//! position record comes with the meta, and so never tells of more than the meta does.
//!
//! **Failure**: an error, a panic too, is told when the store asks for the file. A store that is dropped waits for the file
//! that is being written for it, and takes back what was not begun: no thread writes into its folder afterwards.

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

/// What the name of a table file ends in before RocksDB takes it over. None is there while no load is under
/// way: it is removed when a load fails and, after a crash, when the store is opened.
const SUFFIX: &str = ".load.tmp";
/// More threads would only wait for the changelog's records, which are read slower than this.
const BUILDERS_MAX: usize = 4;

/// The threads that build, started when there is first something to do.
#[derive(Default)]
pub(super) struct Builders {
    jobs: OnceLock<Sender<Job>>,
    /// Whether there are none, and who hands something over builds it.
    are_none: bool,
}

/// What is to be built.
pub(super) struct Work {
    /// What was gathered.
    pub buffer: LoadBuffer,
    /// The store's folder.
    pub dir: PathBuf,
    /// The store's options.
    pub options: Options,
    /// From which size on it becomes a file.
    pub file_bytes_min: usize,
}

/// What has become of it.
pub(super) enum Built {
    /// A file to be taken over, and the position record, if there is one, which is to come with the meta.
    File(TableFile, LoadBuffer),
    /// Too little for a file: sorted only.
    Records(LoadBuffer),
}

struct Job {
    work: Arc<Mutex<Option<Work>>>,
    done: Sender<Result<Built, Error>>,
}

/// A load on its way. Dropped, it is over.
pub(super) struct UnderWay {
    work: Arc<Mutex<Option<Work>>>,
    done: Receiver<Result<Built, Error>>,
    /// Where the store stands with it.
    pub meta: StoreMeta,
}

impl Builders {
    /// No threads: who hands something over builds it.
    pub fn none() -> Self {
        Self { are_none: true, ..Self::default() }
    }

    /// Hands over what is to be built.
    pub fn begin(&self, work: Work, meta: StoreMeta) -> Result<UnderWay, Error> {
        let (done, built) = crossbeam_channel::bounded(1);
        if self.are_none {
            let _ = done.send(build(work));
            return Ok(UnderWay { work: Arc::default(), done: built, meta });
        }
        let jobs = match self.jobs.get() {
            Some(jobs) => jobs,
            None => {
                let started = start().map_err(|error| Error::from_io(&work.dir, &error))?;
                self.jobs.get_or_init(|| started)
            }
        };
        let work = Arc::new(Mutex::new(Some(work)));
        // Not bounded by itself: all that waits holds room, which is.
        let _ = jobs.send(Job { work: Arc::clone(&work), done });
        Ok(UnderWay { work, done: built, meta })
    }
}

impl UnderWay {
    /// The outcome, once it is there; `wait`s for it if so asked.
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

impl Drop for UnderWay {
    fn drop(&mut self) {
        let begun = self.work.lock().unwrap_or_else(PoisonError::into_inner).take().is_none();
        if begun {
            // Until the file is there, or the outcome was taken before.
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
                    let _ = job.done.send(build_or_say(work));
                }
            }
        })?;
    }
    Ok(jobs)
}

/// Builds, and says so where that panics: the next load may be fine, and the thread is needed for it. What the panic
/// leaves is in the buffer and in the file, both of which are given up.
fn build_or_say(work: Work) -> Result<Built, Error> {
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

/// A table file on its way into the store; removed when dropped, unless RocksDB has taken it over.
pub(super) struct TableFile(PathBuf);

impl Drop for TableFile {
    fn drop(&mut self) {
        // What cannot be removed now is removed when the store is opened next.
        let _ = fs::remove_file(&self.0);
    }
}

/// Writes the records of `buffer`, which are sorted and not none, to a table file in `dir`.
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

/// Hands a file to `db`, whose folder is `dir`.
pub(super) fn ingest(db: &DB, dir: &Path, file: &TableFile) -> Result<(), Error> {
    let mut options = IngestExternalFileOptions::default();
    // Linked into its place, not copied.
    options.set_move_files(true);
    db.ingest_external_file_cf_opts(&super::rocks::column_family(db), &options, vec![&file.0])
        .map_err(|error| Error::from_rocksdb(dir, &error))
}

/// Removes what loads that were killed have left behind. Only to be called while holding the store's lock.
pub(super) fn remove_leftovers(dir: &Path) -> Result<(), Error> {
    for entry in fs::read_dir(dir).map_err(|error| Error::from_io(dir, &error))? {
        let path = entry.map_err(|error| Error::from_io(dir, &error))?.path();
        if path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(SUFFIX)) {
            fs::remove_file(&path).map_err(|error| Error::from_io(&path, &error))?;
        }
    }
    Ok(())
}
