//! What is remembered of HTTP requests, in a folder of one process's: a [`crate::request::Store`].
//!
//! One thread has the database. It takes all changes that wait, applies the rules of [`crate::request::entry`] to one after
//! the other, writes what comes of it as one batch, and only then answers. So changes need no locks, and however many
//! wait, they share one sync of the log. An answer is synced before the call returns, and so is a reservation that is
//! not to be taken over; other reservations are synced with the next answer: if the machine crashes before, nothing is
//! remembered of what nobody was told.
//!
//! **Time** is the wall clock of when the store was opened, and goes on with the monotonic clock: a clock that is set
//! ends no lease. The end of the process ends all of its leases: entries name the run that wrote them.
//!
//! **Unlike a task's store** this one cannot be rebuilt from anywhere, has a log that is synced, and is never removed.
//!
//! **Failure.** After a write that failed nobody knows what is on the disk. The database is closed, all that waited are
//! told that it is not available, and it is opened again after a pause: what is then there counts.

use std::collections::HashMap;
use std::fs;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use crossbeam_channel::{Receiver, Sender, bounded};
use rocksdb::WriteBatch;
use tokio::sync::oneshot;

use super::dir;
use crate::format::request::RequestEntry;
use crate::lock::FileLock;
use crate::request::entry::{self, Change};
use crate::request::{Answer, Error, Found, Held, Id, Kept, OnInDoubt, Reply, Store, Wanted};

mod database;
mod options;

use database::{Database, FORMAT_KEY, entry_key, until_key};

/// How many changes may wait.
const WAITING_MAX: usize = 4_096;
/// How many changes are written at once, and how many bytes of answers.
const BATCH_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 8 << 20;
/// How long a database that failed is left alone before it is opened again.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);

/// The file that marks the folder, and its lock.
const MARKER: &str = ".ratchet-requests";
const MARKER_TEXT: &str = "This folder belongs to ratchet: it holds the answers to HTTP requests that must not be carried out twice.\n\
    They are nowhere else. Keep nothing else here.\n";
const LOCK: &str = "lock";

/// Answers in a folder.
pub struct Requests {
    changes: Option<Sender<Waiting>>,
    thread: Option<JoinHandle<()>>,
}

/// What is asked for, and who waits for the answer.
struct Waiting {
    asked: Asked,
    reply: oneshot::Sender<Result<Said, Error>>,
}

enum Asked {
    Reserve(Wanted),
    Extend(Held, Duration),
    Complete(Held, Answer, Duration),
    Release(Held),
    Tidy,
    Check,
}

/// What a change has come to.
#[derive(Debug)]
enum Said {
    Found(Found),
    Kept(Kept),
    Removed(usize),
    Checked,
}

impl Requests {
    /// Opens the folder `dir`, which is created if there is none.
    ///
    /// # Errors
    /// Another process has it open, it is not one of these folders, or it cannot be read or written.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let lock = take_folder(dir)?;
        let database = Database::open(dir)?;
        let (changes, waiting) = bounded(WAITING_MAX);
        let dir = dir.to_owned();
        let thread = thread::Builder::new()
            .name("requests".to_owned())
            .spawn(move || {
                Writer { dir, database: Some(database), failed_at: None, clock: Clock::start(), run: rand::random() }
                    .run(&waiting);
                drop(lock);
            })
            .map_err(|error| Error::Unavailable(format!("no thread: {error}")))?;
        Ok(Self { changes: Some(changes), thread: Some(thread) })
    }

    async fn ask(&self, asked: Asked) -> Result<Said, Error> {
        let (reply, said) = oneshot::channel();
        let gone = || Error::Unavailable("it is being closed".to_owned());
        let changes = self.changes.as_ref().ok_or_else(gone)?;
        changes.try_send(Waiting { asked, reply }).map_err(|error| match error {
            crossbeam_channel::TrySendError::Full(_) => Error::Unavailable(format!("{WAITING_MAX} changes wait")),
            crossbeam_channel::TrySendError::Disconnected(_) => gone(),
        })?;
        said.await.map_err(|_| gone())?
    }

    async fn kept(&self, asked: Asked) -> Result<Kept, Error> {
        match self.ask(asked).await? {
            Said::Kept(kept) => Ok(kept),
            said => Err(unexpected(&said)),
        }
    }
}

fn unexpected(said: &Said) -> Error {
    Error::Refused(format!("it says {said:?} to another question"))
}

impl Drop for Requests {
    /// Waits for what was asked for.
    fn drop(&mut self) {
        drop(self.changes.take());
        if let Some(thread) = self.thread.take()
            && thread.join().is_err()
        {
            tracing::error!("the thread that keeps requests has panicked");
        }
    }
}

impl Store for Requests {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async move {
            match self.ask(Asked::Reserve(*wanted)).await? {
                Said::Found(found) => Ok(found),
                said => Err(unexpected(&said)),
            }
        })
    }

    fn extend(&self, held: Held, lease: Duration) -> Reply<'_, Kept> {
        Box::pin(self.kept(Asked::Extend(held, lease)))
    }

    fn complete<'a>(&'a self, held: Held, answer: &'a Answer, retention: Duration) -> Reply<'a, Kept> {
        Box::pin(self.kept(Asked::Complete(held, answer.clone(), retention)))
    }

    fn release(&self, held: Held) -> Reply<'_, Kept> {
        Box::pin(self.kept(Asked::Release(held)))
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            match self.ask(Asked::Tidy).await? {
                Said::Removed(count) => Ok(count),
                said => Err(unexpected(&said)),
            }
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async { self.ask(Asked::Check).await.map(|_| ()) })
    }
}

/// Locks and marks the folder.
fn take_folder(dir: &Path) -> Result<FileLock, Error> {
    let failed = |error: io::Error| from_io(dir, &error);
    dir::create_dir(dir).map_err(|error| Error::Refused(error.to_string()))?;
    let marker = dir.join(MARKER);
    if !marker.exists() {
        let mut others = fs::read_dir(dir).map_err(failed)?;
        let is_foreign = |entry: io::Result<fs::DirEntry>| entry.is_ok_and(|entry| entry.file_name() != "lost+found");
        if others.any(is_foreign) {
            return Err(Error::Refused(format!(
                "{} is not empty and holds no requests; name an empty or a new folder",
                dir.display()
            )));
        }
        let mut file = fs::File::create(&marker).map_err(failed)?;
        file.write_all(MARKER_TEXT.as_bytes()).and_then(|()| file.sync_all()).map_err(failed)?;
    }
    FileLock::try_take(&dir.join(LOCK)).map_err(failed)?.ok_or_else(|| {
        Error::Refused(format!(
            "{} is in use by another process; stop that one, or name another folder; several processes share \
             PostgreSQL or Redis",
            dir.display()
        ))
    })
}

fn from_io(path: &Path, error: &io::Error) -> Error {
    let text = format!("{}: {error}", path.display());
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => Error::Unavailable(text),
        _ => Error::Refused(text),
    }
}

/// The wall clock of the beginning, going on with the monotonic clock.
struct Clock {
    began_ms: i64,
    began: Instant,
}

impl Clock {
    #[expect(clippy::disallowed_methods, reason = "leases and retention pass on this machine's clocks")]
    fn start() -> Self {
        let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self { began_ms: i64::try_from(since_epoch.as_millis()).unwrap_or(i64::MAX), began: Instant::now() }
    }

    fn now_ms(&self) -> i64 {
        entry::after(self.began_ms, self.began.elapsed())
    }
}

/// The thread's own.
struct Writer {
    dir: PathBuf,
    /// `None` after it has failed.
    database: Option<Database>,
    failed_at: Option<(Instant, Error)>,
    clock: Clock,
    run: [u8; 16],
}

impl Writer {
    fn run(&mut self, waiting: &Receiver<Waiting>) {
        let mut all = Vec::new();
        while let Ok(first) = waiting.recv() {
            let mut bytes = first.asked.bytes();
            all.push(first);
            while all.len() < BATCH_MAX
                && bytes < BATCH_BYTES_MAX
                && let Ok(next) = waiting.try_recv()
            {
                bytes += next.asked.bytes();
                all.push(next);
            }
            let said = self.carry_out(all.iter().map(|waiting| &waiting.asked));
            let said = said.unwrap_or_else(|error| all.iter().map(|_| Err(error.clone())).collect());
            for (Waiting { reply, .. }, said) in all.drain(..).zip(said) {
                // Whoever has asked may be gone.
                let _ = reply.send(said);
            }
        }
    }

    /// Carries out some changes, as one batch. What is wrong with one request's entry is that one's trouble.
    fn carry_out<'a>(&mut self, asked: impl Iterator<Item = &'a Asked>) -> Result<Vec<Result<Said, Error>>, Error> {
        self.reopen()?;
        let now_ms = self.clock.now_ms();
        let Some(database) = &self.database else { return Err(Error::Unavailable("it is closed".to_owned())) };
        let mut open = Open {
            database,
            run: self.run,
            now_ms,
            written: HashMap::new(),
            batch: WriteBatch::default(),
            sync: false,
        };
        let said: Vec<_> = asked.map(|asked| open.carry_out(asked)).collect();
        let Open { batch, sync, .. } = open;
        if !batch.is_empty()
            && let Err(error) = database.write(batch, sync)
        {
            tracing::error!(%error, "requests could not be written: the store is closed, and opened again soon");
            self.fail(&error);
            return Err(error);
        }
        Ok(said)
    }

    #[expect(clippy::disallowed_methods, reason = "the pause before a failed store is opened again")]
    fn fail(&mut self, error: &Error) {
        self.database = None;
        self.failed_at = Some((Instant::now(), error.clone()));
    }

    /// Opens the database again, if it has failed and the pause is over.
    fn reopen(&mut self) -> Result<(), Error> {
        let Some((at, error)) = &self.failed_at else { return Ok(()) };
        if at.elapsed() < REOPEN_PAUSE {
            return Err(error.clone());
        }
        match Database::open(&self.dir) {
            Ok(database) => {
                tracing::info!("the store of requests is open again");
                (self.database, self.failed_at) = (Some(database), None);
                Ok(())
            }
            Err(error) => {
                self.fail(&error);
                Err(error)
            }
        }
    }
}

impl Asked {
    /// About how much it writes.
    fn bytes(&self) -> usize {
        match self {
            Self::Complete(_, Answer { body: crate::request::AnswerBody::Whole(body), .. }, _) => body.len(),
            _ => 0,
        }
    }
}

/// A batch that is being put together.
struct Open<'a> {
    database: &'a Database,
    run: [u8; 16],
    now_ms: i64,
    /// What the batch writes: later changes see it.
    written: HashMap<Id, Option<RequestEntry>>,
    batch: WriteBatch,
    sync: bool,
}

impl Open<'_> {
    fn carry_out(&mut self, asked: &Asked) -> Result<Said, Error> {
        match asked {
            Asked::Reserve(wanted) => {
                let id = wanted.held.id;
                let before = self.entry(id)?;
                let (found, change) = entry::reserve(before.as_ref(), wanted, self.run, self.now_ms);
                self.sync |= wanted.on_in_doubt == OnInDoubt::Refuse && change != Change::None;
                self.write(id, before, change);
                Ok(Said::Found(found))
            }
            Asked::Extend(held, lease) => self.change(*held, |before, now| entry::extend(before, *held, *lease, now)),
            Asked::Complete(held, answer, retention) => {
                self.sync = true;
                self.change(*held, |before, now| entry::complete(before, *held, answer, *retention, now))
            }
            Asked::Release(held) => self.change(*held, |before, now| entry::release(before, *held, now)),
            Asked::Tidy => self.tidy(),
            Asked::Check => self.database.get(FORMAT_KEY).map(|_| Said::Checked),
        }
    }

    fn entry(&self, id: Id) -> Result<Option<RequestEntry>, Error> {
        self.written.get(&id).map_or_else(|| self.database.entry(id), |entry| Ok(entry.clone()))
    }

    fn change(
        &mut self,
        held: Held,
        rule: impl FnOnce(Option<&RequestEntry>, i64) -> (Kept, Change),
    ) -> Result<Said, Error> {
        let before = self.entry(held.id)?;
        let (kept, change) = rule(before.as_ref(), self.now_ms);
        self.write(held.id, before, change);
        Ok(Said::Kept(kept))
    }

    fn write(&mut self, id: Id, before: Option<RequestEntry>, change: Change) {
        let after = match change {
            Change::None => return,
            Change::Put(entry) => Some(entry),
            Change::Remove => None,
        };
        let until = |entry: &Option<RequestEntry>| entry.as_ref().map(|entry| entry.until_ms);
        if until(&before) != until(&after) {
            before.iter().for_each(|entry| self.batch.delete(until_key(entry.until_ms, id)));
            after.iter().for_each(|entry| self.batch.put(until_key(entry.until_ms, id), []));
        }
        match &after {
            Some(entry) => self.batch.put(entry_key(id), entry.encode()),
            None => self.batch.delete(entry_key(id)),
        }
        self.written.insert(id, after);
    }

    /// A time and its entry are written together. So what has become of the time, the entry need not be read for it: an
    /// answer may be large, or damaged.
    fn tidy(&mut self) -> Result<Said, Error> {
        let due = self.database.due(self.now_ms)?;
        let count = due.len();
        for (until_ms, id) in due {
            self.batch.delete(until_key(until_ms, id));
            // This very batch may have written it anew, for longer.
            let anew = self.written.get(&id).and_then(Option::as_ref);
            if anew.is_none_or(|entry| entry.until_ms == until_ms) {
                self.batch.delete(entry_key(id));
                self.written.insert(id, None);
            }
        }
        Ok(Said::Removed(count))
    }
}

#[cfg(test)]
mod tests;
