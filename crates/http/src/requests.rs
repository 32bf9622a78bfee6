//! A [`crate::request::Store`] of HTTP requests, in a folder that one process uses.
//!
//! Two threads take callers' operations from a queue. The thread that holds the `Writer` applies the rules of
//! [`crate::request::entry`] to one operation after the other, and writes the resulting changes as one batch. Then one
//! thread syncs (has the operating system put the writes on the disk) while the other continues with new operations: so
//! operations that need no sync do not wait for one, and operations that need one share it.
//!
//! **Callers get a response only after its sync**, and likewise a reservation that must not be taken over
//! ([`OnInDoubt::Refuse`](crate::request::OnInDoubt::Refuse)): this holds for the caller that wrote it, and for other
//! callers with the same request (`syncs`). Other reservations are synced with the next response: a crash of the
//! machine before that loses only requests that were not answered. They are passed to the operating system before the
//! request is carried out, so that the end of the process alone loses none of them.
//!
//! **At once.** A reservation that need not wait for anything is made on the caller's thread, since switching to
//! another thread and back takes longer than the reservation itself. The conditions: no other operation is queued or
//! being carried out, the entry that is looked up is in memory, the last writes took less than a millisecond each, and
//! the caller's runtime has more than one thread.
//!
//! **Time** is the wall clock when the store was opened plus the monotonic clock since: setting the clock ends no
//! lease. The end of the process ends all of its leases: each opening of the store begins a run, a reservation names
//! the run that wrote it, and a lease of another run counts as over.
//!
//! **Unlike the store of a Kafka partition** (ratchet's module `state`), this one cannot be rebuilt from elsewhere,
//! syncs its log, and is never removed.
//!
//! **Failure.** After a failed write or sync it is not known what is on the disk. The database is closed, all waiting
//! callers get the error, and the database is reopened after a pause, with the state that is on the disk then. Opening
//! it writes the log's contents into another file, and syncs that file, so nothing that is found can still be lost.
//!
//! On **a full disk** the database could not be reopened. So it stays open, for reading only: it replays synced
//! responses, and refuses requests that would write. Nobody gets responses that were written but not synced. Once there
//! is room, the database is reopened, with the state that is on the disk. If the process ends before that, the
//! next process cannot open the folder until there is room: it, too, finds nothing that could still be lost.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, TryLockError};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use crossbeam_channel::{Receiver, Sender, bounded};
use tokio::runtime::{Handle, RuntimeFlavor};
use tokio::sync::oneshot;

use crate::lock::FileLock;
use crate::request::entry;
use crate::request::operator::{Decision, ListFilter, ListedRequest, Settle, Settled};
use crate::request::{Answer, Error, Found, Id, Reply, Reservation, StillHeld, Store, Token, Wanted};

mod database;
mod disk_space;
mod folder;
mod options;
mod syncs;
mod writer;

use syncs::{ReplyTo, Syncs};
use writer::{BatchOutcome, Writer};

/// The most operations that may wait.
const WAITING_MAX: usize = 4_096;
/// The most operations in one batch, and the bytes of responses with which a batch is complete earlier.
const BATCH_MAX: usize = 512;
const BATCH_BYTES_MAX: usize = 8 << 20;
/// One thread writes while the other one syncs.
const THREADS: usize = 2;

/// The store of requests and their responses, in a folder.
pub struct Requests {
    dir: PathBuf,
    shared: Arc<Shared>,
    operations: Option<Sender<QueuedOperation>>,
    threads: Vec<JoinHandle<()>>,
}

/// A queued operation, and the caller that waits for its outcome.
struct QueuedOperation {
    operation: Operation,
    reply_to: ReplyTo,
}

/// A caller's operation: a change, or a check.
enum Operation {
    Reserve(Wanted),
    Extend(Reservation, Duration),
    Complete(Reservation, Answer, Duration),
    Release(Reservation),
    Tidy,
    Check,
    Settle(Id, Decision, Token),
}

/// The outcome of an [`Operation`].
#[derive(Debug)]
enum Outcome {
    Found(Found),
    StillHeld(StillHeld),
    Removed(usize),
    Checked,
    Settled(Settled),
}

/// Outcomes, each with the sender to its caller.
type Replies = Vec<(ReplyTo, Result<Outcome, Error>)>;

/// The data that the threads and the callers share. A thread that takes several of the locks takes them in the order of
/// the fields.
struct Shared {
    /// A thread holds this lock while it waits for an operation, and until it holds the writer, so that operations are
    /// carried out in the order of their arrival.
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
        let lock = folder::lock(dir)?;
        disk_space::remove_trial(dir).map_err(|error| Error::Unavailable(format!("{}: {error}", dir.display())))?;
        let writer = Mutex::new(Writer::open(dir.to_owned())?);
        let shared = Arc::new(Shared { turn: Mutex::default(), writer, syncs: Mutex::default(), _lock: lock });
        let (operations, queue) = bounded(WAITING_MAX);
        let mut store = Self { dir: dir.to_owned(), shared, operations: Some(operations), threads: Vec::new() };
        for _ in 0..THREADS {
            let (shared, queue) = (Arc::clone(&store.shared), queue.clone());
            let thread = thread::Builder::new().name("requests".to_owned()).spawn(move || shared.serve(&queue));
            store
                .threads
                .push(thread.map_err(|error| Error::Unavailable(format!("a thread could not be started: {error}")))?);
        }
        Ok(store)
    }

    /// Bounds the size of its files: beyond that it accepts no new requests, but continues to serve known ones.
    #[must_use]
    pub fn bytes_max(self, bytes: u64) -> Self {
        self.shared.writer().disk_space.set_bytes_max(bytes);
        self
    }

    /// The size of its files.
    pub fn bytes(&self) -> u64 {
        disk_space::bytes_used(&self.dir)
    }

    /// Opens an existing folder; does not create one.
    ///
    /// # Errors
    /// The folder does not exist, or as for [`Self::open`].
    pub fn open_existing(dir: &Path) -> Result<Self, Error> {
        folder::expect_marker(dir)?;
        Self::open(dir)
    }

    async fn submit(&self, operation: Operation) -> Result<Outcome, Error> {
        let (reply_to, outcome) = oneshot::channel();
        let operations = self.operations.as_ref().ok_or_else(closing_error)?;
        operations.try_send(QueuedOperation { operation, reply_to }).map_err(|error| match error {
            crossbeam_channel::TrySendError::Full(_) => {
                Error::Unavailable(format!("its queue is full: {WAITING_MAX} changes wait"))
            }
            crossbeam_channel::TrySendError::Disconnected(_) => closing_error(),
        })?;
        outcome.await.map_err(|_| closing_error())?
    }

    /// Submits an operation that only the holder of a reservation may submit.
    async fn submit_as_holder(&self, operation: Operation) -> Result<StillHeld, Error> {
        match self.submit(operation).await? {
            Outcome::StillHeld(still_held) => Ok(still_held),
            outcome => Err(unexpected_outcome(&outcome)),
        }
    }

    /// Reserves on the caller's thread; `None` if that might have to wait for another thread or the disk.
    fn reserve_at_once(&self, wanted: &Wanted) -> Option<Result<Found, Error>> {
        // If operations already wait, this one joins them: a common batch takes less processor time.
        let is_idle = self.operations.as_ref().is_some_and(Sender::is_empty);
        (is_idle && runtime_has_other_threads()).then(|| self.shared.reserve_at_once(wanted)).flatten()
    }
}

/// Whether this thread's runtime has other threads: a disk that hangs must not stop the whole runtime.
fn runtime_has_other_threads() -> bool {
    Handle::try_current().is_ok_and(|runtime| {
        runtime.runtime_flavor() == RuntimeFlavor::MultiThread && runtime.metrics().num_workers() > 1
    })
}

fn closing_error() -> Error {
    Error::Unavailable("it is being closed".to_owned())
}

fn unexpected_outcome(outcome: &Outcome) -> Error {
    Error::Refused(format!("unexpected reply: {outcome:?}"))
}

impl Drop for Requests {
    /// Waits until all queued operations are carried out.
    fn drop(&mut self) {
        drop(self.operations.take());
        for thread in self.threads.drain(..) {
            if thread.join().is_err() {
                tracing::error!("a thread of the store of requests has panicked");
            }
        }
        self.shared.writer().stop_compaction();
    }
}

impl Store for Requests {
    fn reserve<'a>(&'a self, wanted: &'a Wanted) -> Reply<'a, Found> {
        Box::pin(async move {
            if let Some(found) = self.reserve_at_once(wanted) {
                return found;
            }
            match self.submit(Operation::Reserve(*wanted)).await? {
                Outcome::Found(found) => Ok(found),
                outcome => Err(unexpected_outcome(&outcome)),
            }
        })
    }

    fn extend(&self, held: Reservation, lease: Duration) -> Reply<'_, StillHeld> {
        Box::pin(self.submit_as_holder(Operation::Extend(held, lease)))
    }

    fn complete<'a>(&'a self, held: Reservation, answer: &'a Answer, retention: Duration) -> Reply<'a, StillHeld> {
        Box::pin(self.submit_as_holder(Operation::Complete(held, answer.clone(), retention)))
    }

    fn release(&self, held: Reservation) -> Reply<'_, StillHeld> {
        Box::pin(self.submit_as_holder(Operation::Release(held)))
    }

    fn tidy(&self) -> Reply<'_, usize> {
        Box::pin(async {
            match self.submit(Operation::Tidy).await? {
                Outcome::Removed(count) => Ok(count),
                outcome => Err(unexpected_outcome(&outcome)),
            }
        })
    }

    fn check(&self) -> Reply<'_, ()> {
        Box::pin(async { self.submit(Operation::Check).await.map(|_| ()) })
    }
}

impl Settle for Requests {
    fn list<'a>(&'a self, filter: &'a ListFilter) -> Reply<'a, Vec<ListedRequest>> {
        let (shared, filter) = (Arc::clone(&self.shared), filter.clone());
        // Listing reads all entries, and must not delay other tasks.
        Box::pin(async {
            tokio::task::spawn_blocking(move || shared.list(&filter)).await.map_err(|_| closing_error())?
        })
    }

    fn settle<'a>(&'a self, id: Id, decision: &'a Decision, token: Token) -> Reply<'a, Settled> {
        Box::pin(async move {
            match self.submit(Operation::Settle(id, decision.clone(), token)).await? {
                Outcome::Settled(settled) => Ok(settled),
                outcome => Err(unexpected_outcome(&outcome)),
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
    fn list(&self, filter: &ListFilter) -> Result<Vec<ListedRequest>, Error> {
        let (database, run, now_ms) = self.writer().view()?;
        let mut requests = Vec::new();
        database.each_entry(|id, entry| {
            let entry = entry.inspect_err(|error| tracing::warn!(%error, "a request cannot be read")).ok();
            let request = entry.and_then(|entry| entry::listed_request(id, &entry, run, now_ms));
            requests.extend(request.filter(|request| filter.matches(request)));
        })?;
        Ok(filter.first_of(requests))
    }

    /// Carries out the queued operations, until the queue is closed.
    fn serve(&self, queue: &Receiver<QueuedOperation>) {
        let mut queued = Vec::new();
        loop {
            let turn = self.turn.lock().unwrap_or_else(PoisonError::into_inner);
            let Ok(first) = queue.recv() else { return };
            let mut writer = self.writer();
            drop(turn);
            let mut bytes = first.operation.answer_bytes();
            queued.push(first);
            while queued.len() < BATCH_MAX
                && bytes < BATCH_BYTES_MAX
                && let Ok(next) = queue.try_recv()
            {
                bytes += next.operation.answer_bytes();
                queued.push(next);
            }
            let replies = self.carry_out(&mut writer, &mut queued);
            drop(writer);
            send(replies);
            self.sync();
        }
    }

    /// Carries out the queued operations. Returns the replies that can be sent at once; the others are sent after a
    /// sync.
    fn carry_out(&self, writer: &mut Writer, queued: &mut Vec<QueuedOperation>) -> Replies {
        // Whether a sync takes so long that the disk seems to hang.
        let is_late = self.syncs().is_late();
        let outcome = writer.carry_out(queued.iter().map(|queued| &queued.operation), is_late);
        let mut syncs = self.syncs();
        // A database in which writes were lost on a full disk is closed by now: once reopened, it shows what is on the
        // disk.
        if !writer.is_read_only() {
            syncs.forget_lost();
        }
        match outcome {
            Ok(BatchOutcome { outcomes, to_sync, database }) => {
                syncs.add_written(to_sync, &database);
                let queued = queued.drain(..).zip(outcomes);
                let replies =
                    queued.filter_map(|(QueuedOperation { reply_to, .. }, (outcome, timing))| match outcome {
                        Ok(outcome) => syncs.defer(timing, reply_to, outcome),
                        Err(error) => Some((reply_to, Err(error))),
                    });
                replies.collect()
            }
            Err(error) => {
                let failed = syncs.fail().into_iter().map(|(reply_to, _)| reply_to);
                failed
                    .chain(queued.drain(..).map(|queued| queued.reply_to))
                    .map(|reply_to| (reply_to, Err(error.clone())))
                    .collect()
            }
        }
    }

    /// Syncs until nothing is left to sync, unless the other thread does so.
    fn sync(&self) {
        // Whether this thread has just ended a sync: then no other thread begins one until this thread has tried to.
        let mut is_continuing = false;
        loop {
            let Some(database) = self.syncs().begin_sync(is_continuing) else {
                if is_continuing {
                    self.mark_synced();
                }
                return;
            };
            is_continuing = true;
            match database.sync() {
                Ok(()) => {
                    let synced = self.syncs().end_sync();
                    send(synced.into_iter().map(|(reply_to, outcome)| (reply_to, Ok(outcome))).collect());
                }
                Err(error) => {
                    let writer = self.writer();
                    // If the database was closed, a write has failed meanwhile, and all callers got its error.
                    if writer.is_current(&database) {
                        self.handle_failure(writer, &error);
                    }
                }
            }
        }
    }

    /// Handles a failed write or sync of the log: closes the database, or on a full disk only reads it from now on. All
    /// callers that wait get the error.
    fn handle_failure(&self, mut writer: MutexGuard<'_, Writer>, error: &Error) {
        let failed = if writer.is_read_only() || matches!(error, Error::Full(_)) {
            writer.become_read_only(error);
            self.syncs().lose()
        } else {
            writer.fail(error);
            self.syncs().fail()
        };
        drop(writer);
        send(failed.into_iter().map(|(reply_to, _)| (reply_to, Err(error.clone()))).collect());
    }

    /// Marks in the log that everything is synced, unless another thread is writing: its batch has the mark anyway.
    fn mark_synced(&self) {
        let Ok(mut writer) = self.writer.try_lock() else { return };
        if let Err(error) = writer.mark_synced() {
            self.handle_failure(writer, &error);
        }
    }

    /// Reserves if that need not wait for a lock or the disk.
    fn reserve_at_once(&self, wanted: &Wanted) -> Option<Result<Found, Error>> {
        if self.syncs().is_late() {
            return None;
        }
        let mut writer = match self.writer.try_lock() {
            Ok(writer) => writer,
            Err(TryLockError::Poisoned(poisoned)) => poisoned.into_inner(),
            Err(TryLockError::WouldBlock) => return None,
        };
        let found = writer.reserve_at_once(wanted, |id| self.syncs().is_unsynced(id))?;
        if let Err(error) = &found {
            let failed = self.syncs().fail();
            drop(writer);
            send(failed.into_iter().map(|(reply_to, _)| (reply_to, Err(error.clone()))).collect());
        }
        Some(found)
    }
}

fn send(replies: Replies) {
    for (reply_to, outcome) in replies {
        // The caller may be gone.
        let _ = reply_to.send(outcome);
    }
}

impl Operation {
    /// The size of the response that the operation writes, which is about the size of the whole write.
    fn answer_bytes(&self) -> usize {
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
