//! What is remembered of HTTP requests, in a folder of one process's: a [`crate::request::Store`].
//!
//! Two threads take what waits. The one that has the `Writer` applies the rules of [`crate::request::entry`] to one
//! change after the other, and writes what comes of them as one batch. Then one of the two syncs, while the other goes on
//! with what comes: so changes that need no sync do not wait behind one, and however many need one, they share it.
//!
//! **An answer is given out after its sync**, and so is a reservation that is not to be taken over: to the caller that
//! has brought it, and to those that ask for it in between (`syncs`). Other reservations are synced with the next
//! answer: if the machine crashes before, nothing is remembered of what nobody has seen. They are on the way to the
//! disk, so that the end of the process alone loses none of them, before the request is carried out.
//!
//! **At once.** Where nothing has to be waited for, a reservation is made on the caller's thread: going to another
//! thread and back takes longer than all the rest of it. That is so as long as nobody else is at it, what is looked up is
//! in memory, and the last writes took less than a millisecond; never where the caller's runtime has no other thread.
//!
//! **Time** is the wall clock of when the store was opened, and goes on with the monotonic clock: a clock that is set
//! ends no lease. The end of the process ends all of its leases: entries name the run that wrote them.
//!
//! **Unlike a task's store** this one cannot be rebuilt from anywhere, has a log that is synced, and is never removed.
//!
//! **Failure.** After a write or a sync that failed nobody knows what is on the disk. The database is closed, all that
//! waited get the error that it is not available, and it is opened again after a pause: what is then there counts.
//! Opening it writes what the log has into a file of its own, and syncs that: nothing is found that may still be lost.
//!
//! On **a full disk** the database could not be opened again. So it stays open, for reading only: it answers from what
//! is synced, and refuses requests that would write. Answers that were written but not synced are given to nobody. Once
//! there is room, the database is opened anew, and its contents on the disk count. If the process ends before that, the
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

/// How many changes may wait.
const WAITING_MAX: usize = 4_096;
/// How many changes are written at once, and how many bytes of answers.
const BATCH_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 8 << 20;
/// One that writes while the other one syncs.
const THREADS: usize = 2;

/// Answers in a folder.
pub struct Requests {
    dir: PathBuf,
    shared: Arc<Shared>,
    changes: Option<Sender<Waiting>>,
    threads: Vec<JoinHandle<()>>,
}

/// What is asked for, and who waits for the answer.
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

/// Whom to tell what.
type Told = Vec<(syncs::Reply, Result<Said, Error>)>;

/// What the threads and the callers share. A thread that takes several takes them in this order.
struct Shared {
    /// A thread that takes what waits has it until the writer is its own: changes are carried out in the order of
    /// asking.
    turn: Mutex<()>,
    writer: Mutex<Writer>,
    syncs: Mutex<Syncs>,
    /// The folder is another's when the database is closed.
    _lock: FileLock,
}

impl Requests {
    /// Opens the folder `dir`, which is created if there is none.
    ///
    /// # Errors
    /// Another process has it open, it is not one of these folders, or it cannot be read or written.
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
            store.threads.push(thread.map_err(|error| Error::Unavailable(format!("no thread: {error}")))?);
        }
        Ok(store)
    }

    /// Bounds the size of its files: beyond that it takes no new requests, and goes on with known ones.
    #[must_use]
    pub fn bytes_max(self, bytes: u64) -> Self {
        self.shared.writer().room.set_bytes_max(bytes);
        self
    }

    /// The size of its files.
    pub fn bytes(&self) -> u64 {
        room::bytes(&self.dir)
    }

    /// Opens an existing folder: a missing one holds nothing to read.
    ///
    /// # Errors
    /// There is none, or as for [`Self::open`].
    pub fn open_existing(dir: &Path) -> Result<Self, Error> {
        folder::expect(dir)?;
        Self::open(dir)
    }

    async fn ask(&self, asked: Asked) -> Result<Said, Error> {
        let (reply, said) = oneshot::channel();
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

    /// Reserves on this very thread, unless somebody or something would have to be waited for.
    fn reserve_at_once(&self, wanted: &Wanted) -> Option<Result<Found, Error>> {
        // What waits already is written together, which takes less of the processor.
        let is_idle = self.changes.as_ref().is_some_and(Sender::is_empty);
        (is_idle && is_one_of_several()).then(|| self.shared.reserve_at_once(wanted)).flatten()
    }
}

/// Whether this thread's runtime has others: a disk that hangs must not stop all of it.
fn is_one_of_several() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
    })
}

fn gone() -> Error {
    Error::Unavailable("it is being closed".to_owned())
}

fn unexpected(said: &Said) -> Error {
    Error::Refused(format!("it says {said:?} to another question"))
}

impl Drop for Requests {
    /// Waits for what was asked for.
    fn drop(&mut self) {
        drop(self.changes.take());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread that keeps requests has panicked");
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
        // It reads all there is, which must hold nobody up.
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

    /// Some requests, as they were written when it began. An entry that is damaged is one request's trouble: it is left out.
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

    /// Takes what waits until there is nobody any more who could ask.
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

    /// Carries out some changes. Returns what to answer at once, and to whom; the others are answered after a sync.
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

    /// Syncs what has to be, again and again as long as there is something, unless the other one is at it.
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
                    // Otherwise a write has failed meanwhile, and all have heard of it.
                    if writer.has(&database) {
                        self.give_up(writer, &error);
                    }
                }
            }
        }
    }

    /// The log could not be written or synced: nobody knows what is on the disk.
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

    /// Nothing is left to be synced: says so in the log, unless somebody writes, who says it anyway.
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
    /// About how much it writes.
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
