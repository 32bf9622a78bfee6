//! A [`crate::request::Store`] of HTTP requests, in a folder that one process uses.
//!
//! Two threads take changes from a queue. The one that holds the `Writer` applies the rules of
//! [`crate::request::entry`] to one change after the other, and writes the results as one batch. Then one thread syncs
//! while the other goes on with new changes: so changes that need no sync do not wait for one, and all that need one
//! share it.
//!
//! **An answer is given out only after its sync**, and so is a reservation that must not be taken over: this holds for
//! the caller that wrote it, and for those that ask for it in the meantime (`syncs`). Other reservations are synced
//! with the next answer: a crash of the machine before that loses only requests that were not answered. They are passed
//! to the operating system before the request is carried out, so that the end of the process alone loses none of them.
//!
//! **At once.** A reservation that need not wait for anything is made on the caller's thread: going to another thread
//! and back takes longer than all the rest of it. That is the case if no other change waits or is being made, the entry
//! that is looked up is in memory, and the last writes took less than a millisecond; never if the caller's runtime has
//! only one thread.
//!
//! **Time** is the wall clock when the store was opened plus the monotonic clock since: setting the clock ends no
//! lease. The end of the process ends all of its leases: entries name the run that wrote them.
//!
//! **Unlike a task's store**, this one cannot be rebuilt from elsewhere, syncs its log, and is never removed.
//!
//! **Failure.** After a failed write or sync nobody knows what is on the disk. The database is closed, all waiting
//! callers get an error that it is not available, and it is reopened after a pause: what is on the disk then counts.
//! Opening it writes the log's contents into a file of its own, and syncs that, so nothing that is found can still be
//! lost.
//!
//! On **a full disk** the database could not be reopened. So it stays open, for reading only: it answers from what is
//! synced, and refuses requests that would write. Answers that were written but not synced are given to nobody. Once
//! there is room, the database is reopened, and its contents on the disk count. If the process ends before that, the
//! next process cannot open the folder until there is room: it, too, finds nothing that could still be lost.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::lock::FileLock;
use crate::request::by_hand::{Decision, Listed, Seen, Settle, Settled};
use crate::request::entry;
use crate::request::{Answer, Error, Found, Held, Id, Kept, Reply, Store, Token, Wanted};

mod database;
mod folder;
mod options;
mod room;
mod syncs;
mod writer;

use syncs::Syncs;
use writer::{Done, Writer};

/// The most changes that may wait.
const WAITING_MAX: usize = 4_096;
/// The most changes in one batch, and how many bytes of answers complete it earlier.
const BATCH_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 8 << 20;
/// One writes while the other one syncs.
const THREADS: usize = 2;

/// Answers in a folder.
pub struct Requests {
    dir: PathBuf,
    shared: Arc<Shared>,
    changes: Option<Sender<Waiting>>,
    threads: Vec<JoinHandle<()>>,
}

/// A change that waits, and who waits for its outcome.
struct Waiting {
    asked: Asked,
    reply: syncs::Reply,
}

enum Asked {
    Reserve(Wanted),
    Extend(Held, Duration),
    Complete(Held, Answer, Duration),
    Release(Held),
    Tidy,
    Check,
    Settle(Id, Decision, Token),
}

/// A change's outcome.
#[derive(Debug)]
enum Said {
    Found(Found),
    Kept(Kept),
    Removed(usize),
    Checked,
    Settled(Settled),
}

/// Outcomes, and whom to tell them.
type Told = Vec<(syncs::Reply, Result<Said, Error>)>;

/// What the threads and the callers share. A thread that takes several of the locks takes them in this order.
struct Shared {
    /// A thread holds this while it waits for a change, and until it holds the writer, so that changes are carried out
    /// in the order of their arrival.
    turn: Mutex<()>,
    writer: Mutex<Writer>,
    syncs: Mutex<Syncs>,
    /// Declared last, so that other processes can have the folder only once the database is closed.
    _lock: FileLock,
}

impl Requests {
    /// Opens the folder `dir`, or creates it.
    ///
    /// # Errors
    /// Another process has it open, it holds files of something else, or it cannot be read or written.
    pub fn open(dir: &Path) -> Result<Self, Error> {
        let lock = folder::take(dir)?;
        room::remove_trial(dir).map_err(|error| Error::Unavailable(format!("{}: {error}", dir.display())))?;
        let writer = Mutex::new(Writer::open(dir.to_owned())?);
        let shared = Arc::new(Shared { turn: Mutex::default(), writer, syncs: Mutex::default(), _lock: lock });
        let (changes, waiting) = bounded(WAITING_MAX);
        let mut store = Self { dir: dir.to_owned(), shared, changes: Some(changes), threads: Vec::new() };
        for _ in 0..THREADS {
            let (shared, waiting) = (Arc::clone(&store.shared), waiting.clone());
            let thread = thread::Builder::new().name("requests".to_owned()).spawn(move || shared.serve(&waiting));
            store
                .threads
                .push(thread.map_err(|error| Error::Unavailable(format!("a thread could not be started: {error}")))?);
        }
        Ok(store)
    }

    /// Bounds the size of its files: beyond that it takes no new requests, but goes on with known ones.
    #[must_use]
    pub fn bytes_max(self, bytes: u64) -> Self {
        self.shared.writer().room.set_bytes_max(bytes);
        self
    }

    /// The size of its files.
    pub fn bytes(&self) -> u64 {
        room::bytes(&self.dir)
    }

    /// Opens an existing folder; does not create one.
    ///
    /// # Errors
    /// The folder does not exist, or as for [`Self::open`].
    pub fn open_existing(dir: &Path) -> Result<Self, Error> {
        folder::expect(dir)?;
        Self::open(dir)
    }

    async fn ask(&self, asked: Asked) -> Result<Said, Error> {
        let (reply, said) = oneshot::channel();
        let changes = self.changes.as_ref().ok_or_else(gone)?;
        changes.try_send(Waiting { asked, reply }).map_err(|error| match error {
            crossbeam_channel::TrySendError::Full(_) => {
                Error::Unavailable(format!("its queue is full: {WAITING_MAX} changes wait"))
            }
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

    /// Reserves on the caller's thread; `None` if that would have to wait for somebody or something.
    fn reserve_at_once(&self, wanted: &Wanted) -> Option<Result<Found, Error>> {
        // Changes that already wait are written together, which takes less processor time.
        let is_idle = self.changes.as_ref().is_some_and(Sender::is_empty);
        (is_idle && is_one_of_several()).then(|| self.shared.reserve_at_once(wanted)).flatten()
    }
}

/// Whether this thread's runtime has other threads: a disk that hangs must not stop the whole runtime.
fn is_one_of_several() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
    })
}

fn gone() -> Error {
    Error::Unavailable("it is being closed".to_owned())
}

fn unexpected(said: &Said) -> Error {
    Error::Refused(format!("unexpected reply: {said:?}"))
}

impl Drop for Requests {
    /// Waits until all changes that were asked for are made.
    fn drop(&mut self) {
        drop(self.changes.take());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store of requests has panicked");
            }
        }
        self.shared.writer().end();
    }
}

impl Store for Requests {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async move {
            if let Some(found) = self.reserve_at_once(wanted) {
                return found;
            }
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

impl Settle for Requests {
    fn list<'a>(&'a self, wanted: &'a Listed) -> Reply<'a, Vec<Seen>> {
        let (shared, wanted) = (Arc::clone(&self.shared), wanted.clone());
        // It reads all entries, and must not delay other tasks.
        Box::pin(async { tokio::task::spawn_blocking(move || shared.list(&wanted)).await.map_err(|_| gone())? })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        Box::pin(async move {
            match self.ask(Asked::Settle(id, decision.clone(), token)).await? {
                Said::Settled(settled) => Ok(settled),
                said => Err(unexpected(&said)),
            }
        })
    }
}

impl Shared {
    fn writer(&self) -> MutexGuard<'_, Writer> {
        self.writer.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn syncs(&self) -> MutexGuard<'_, Syncs> {
        self.syncs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Lists requests as they were written when the listing began. Damaged entries are left out.
    fn list(&self, wanted: &Listed) -> Result<Vec<Seen>, Error> {
        let (database, run, now_ms) = self.writer().view()?;
        let mut seen = Vec::new();
        database.each_entry(|id, entry| {
            let entry = entry.inspect_err(|error| tracing::warn!(%error, "a request cannot be read")).ok();
            let one = entry.and_then(|entry| entry::seen(id, &entry, run, now_ms));
            seen.extend(one.filter(|one| wanted.has(one)));
        })?;
        Ok(wanted.sorted(seen))
    }

    /// Carries out the changes that wait, until the channel is closed.
    fn serve(&self, waiting: &Receiver<Waiting>) {
        let mut all = Vec::new();
        loop {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(first) = waiting.recv() else { return };
            let mut writer = self.writer();
            drop(turn);
            let mut bytes = first.asked.bytes();
            all.push(first);
            while all.len() < BATCH_MAX
                && bytes < BATCH_BYTES_MAX
                && let Ok(next) = waiting.try_recv()
            {
                bytes += next.asked.bytes();
                all.push(next);
            }
            let told = self.carry_out(&mut writer, &mut all);
            drop(writer);
            tell(told);
            self.sync();
        }
    }

    /// Carries out some changes. Returns the callers that can be answered at once; the others are answered after a
    /// sync.
    fn carry_out(&self, writer: &mut Writer, all: &mut Vec<Waiting>) -> Told {
        let is_late = self.syncs().is_late();
        let done = writer.carry_out(all.iter().map(|waiting| &waiting.asked), is_late);
        let mut syncs = self.syncs();
        if !writer.is_only_read() {
            syncs.is_anew();
        }
        match done {
            Ok(Done { said, to_sync, database }) => {
                syncs.written(to_sync, &database);
                let each = all.drain(..).zip(said);
                let told = each.filter_map(|(Waiting { reply, .. }, (said, when))| match said {
                    Ok(said) => syncs.tell(when, reply, said),
                    Err(error) => Some((reply, Err(error))),
                });
                told.collect()
            }
            Err(error) => {
                let failed = syncs.fail().into_iter().map(|(reply, _)| reply);
                failed
                    .chain(all.drain(..).map(|waiting| waiting.reply))
                    .map(|reply| (reply, Err(error.clone())))
                    .collect()
            }
        }
    }

    /// Syncs until nothing is left to sync, unless the other thread does so.
    fn sync(&self) {
        let mut goes_on = false;
        loop {
            let Some(database) = self.syncs().begin(goes_on) else {
                if goes_on {
                    self.mark();
                }
                return;
            };
            goes_on = true;
            match database.sync() {
                Ok(()) => {
                    let synced = self.syncs().end();
                    tell(synced.into_iter().map(|(reply, said)| (reply, Ok(said))).collect());
                }
                Err(error) => {
                    let writer = self.writer();
                    // Otherwise a write has failed meanwhile, and all callers were told.
                    if writer.has(&database) {
                        self.give_up(writer, &error);
                    }
                }
            }
        }
    }

    /// Handles a failed write or sync of the log, after which nobody knows what is on the disk.
    fn give_up(&self, mut writer: MutexGuard<'_, Writer>, error: &Error) {
        let failed = if writer.is_only_read() || matches!(error, Error::Full(_)) {
            writer.only_read(error);
            self.syncs().lose()
        } else {
            writer.fail(error);
            self.syncs().fail()
        };
        drop(writer);
        tell(failed.into_iter().map(|(reply, _)| (reply, Err(error.clone()))).collect());
    }

    /// Marks in the log that all is synced, unless somebody is writing, whose batch marks it anyway.
    fn mark(&self) {
        let Ok(mut writer) = self.writer.try_lock() else { return };
        if let Err(error) = writer.mark() {
            self.give_up(writer, &error);
        }
    }

    fn reserve_at_once(&self, wanted: &Wanted) -> Option<Result<Found, Error>> {
        if self.syncs().is_late() {
            return None;
        }
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let found = writer.reserve_at_once(wanted, |id| self.syncs().has(id))?;
        if let Err(error) = &found {
            let failed = self.syncs().fail();
            drop(writer);
            tell(failed.into_iter().map(|(reply, _)| (reply, Err(error.clone()))).collect());
        }
        Some(found)
    }
}

fn tell(told: Told) {
    for (reply, said) in told {
        // The caller may be gone.
        let _ = reply.send(said);
    }
}

impl Asked {
    /// About how many bytes it writes.
    fn bytes(&self) -> usize {
        match self {
            Self::Complete(_, Answer { body: crate::request::AnswerBody::Whole(body), .. }, _)
            | Self::Settle(_, Decision::Answer(Answer { body: crate::request::AnswerBody::Whole(body), .. }), _) => {
                body.len()
            }
            _ => 0,
        }
    }
}

#[cfg(test)]
mod tests;
