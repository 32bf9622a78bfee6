//! Tracks the requests that were written and are not synced yet, and the callers that wait for a sync.
//!
//! **Invariant.** Nobody gets a response, an operator's decision, or a reservation that must not be taken over, until a
//! sync that began after its write has ended. A write during a sync belongs to the next sync.
//!
//! A reservation must not be taken over if its request may not be carried out twice (`OnInDoubt::Refuse`). Other
//! reservations are not tracked here: nobody has to wait until they are synced.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::database::Database;
use super::writer::now;
use super::{Outcome, WAITING_MAX};
use crate::request::{AnswerBody, Error, Found, Id};

/// A sync that takes longer counts as late: the disk hangs, and no new requests are begun until the sync has ended.
const LATE: Duration = Duration::from_secs(3);
/// The most bytes of responses that may wait for a sync.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// The sender for an operation's outcome; its caller waits at the other end.
pub(super) type ReplyTo = oneshot::Sender<Result<Outcome, Error>>;

/// The requests that are not synced yet, and the callers that wait for a sync.
#[derive(Default)]
pub(super) struct Syncs {
    /// The batch of the next sync: all requests written since the last sync began.
    next: SyncBatch,
    /// The batch of the sync under way. Empty once the result of that sync does not matter any more.
    under_way: SyncBatch,
    /// Whether a thread is syncing; it continues until nothing is left to sync.
    is_syncing: bool,
    /// Requests that were written, but whose sync failed because the disk is full: nobody gets their outcomes until the
    /// database is reopened.
    lost: HashSet<Id>,
}

/// When a caller gets the outcome of its operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReplyTiming {
    /// At once.
    Now,
    /// Once this request is synced; at once if it is synced already.
    Synced(Id),
    /// Once every request is synced that was written before.
    AllSynced,
}

/// The requests that one sync covers, and the callers that wait for it.
#[derive(Default)]
struct SyncBatch {
    /// When the sync began.
    began: Option<Instant>,
    /// The database that the requests were written to.
    database: Option<Arc<Database>>,
    /// The requests whose outcomes nobody may get before the sync.
    ids: HashSet<Id>,
    /// The callers that wait for the sync, and their outcomes.
    waiting: Vec<(ReplyTo, Outcome)>,
    /// The total size of the responses among these outcomes.
    bytes: usize,
}

impl SyncBatch {
    /// Adds a caller that waits. If too many callers wait already, or for too many bytes, returns the caller with an
    /// error: a disk that hangs must not fill the memory. Callers that have given up do not count.
    fn add_waiting(&mut self, reply_to: ReplyTo, outcome: Outcome) -> Option<(ReplyTo, Error)> {
        let bytes = answer_bytes(&outcome);
        let is_full =
            |batch: &Self| batch.waiting.len() >= WAITING_MAX || batch.bytes.saturating_add(bytes) > WAITING_BYTES_MAX;
        if is_full(self) && !self.waiting.is_empty() {
            self.waiting.retain(|(reply_to, _)| !reply_to.is_closed());
            self.bytes = self.waiting.iter().map(|(_, outcome)| answer_bytes(outcome)).sum();
            if is_full(self) && !self.waiting.is_empty() {
                return Some((reply_to, Error::Unavailable("too many requests wait for the disk".to_owned())));
            }
        }
        self.bytes += bytes;
        self.waiting.push((reply_to, outcome));
        None
    }
}

fn answer_bytes(outcome: &Outcome) -> usize {
    match outcome {
        Outcome::Found(Found::Answered(answer)) => match &answer.body {
            AnswerBody::Whole(body) => body.len(),
            _ => 0,
        },
        _ => 0,
    }
}

impl Syncs {
    /// Records that these requests were written to this database and are not synced yet.
    pub fn add_written(&mut self, ids: impl IntoIterator<Item = Id>, database: &Arc<Database>) {
        self.next.ids.extend(ids);
        if !self.next.ids.is_empty() {
            self.next.database = Some(Arc::clone(database));
        }
    }

    /// Whether this request was written and is not synced yet.
    pub fn is_unsynced(&self, id: Id) -> bool {
        self.next.ids.contains(&id) || self.under_way.ids.contains(&id) || self.lost.contains(&id)
    }

    /// Keeps an outcome until its caller may get it, and returns `None`; or returns the caller, with the outcome or the
    /// error that it gets at once.
    pub fn defer(
        &mut self,
        timing: ReplyTiming,
        reply_to: ReplyTo,
        outcome: Outcome,
    ) -> Option<(ReplyTo, Result<Outcome, Error>)> {
        if let ReplyTiming::Synced(id) = timing
            && self.lost.contains(&id)
        {
            return Some((reply_to, Err(Error::Full("it is not known whether the request is on the disk".to_owned()))));
        }
        let must_wait_for = |batch: &SyncBatch| match timing {
            ReplyTiming::Now => false,
            ReplyTiming::Synced(id) => batch.ids.contains(&id),
            ReplyTiming::AllSynced => !batch.ids.is_empty(),
        };
        let batches = [&mut self.next, &mut self.under_way];
        match batches.into_iter().find(|batch| must_wait_for(batch)) {
            Some(batch) => batch.add_waiting(reply_to, outcome).map(|(reply_to, error)| (reply_to, Err(error))),
            None => Some((reply_to, Ok(outcome))),
        }
    }

    /// Whether the sync under way has already taken longer than [`LATE`].
    pub fn is_late(&self) -> bool {
        self.under_way.began.is_some_and(|began| began.elapsed() > LATE)
    }

    /// Begins a sync; returns the database to sync, if anything is left to sync and no other thread syncs.
    /// `is_continuing`: the caller is the thread that has synced until now.
    pub fn begin_sync(&mut self, is_continuing: bool) -> Option<Arc<Database>> {
        if self.is_syncing && !is_continuing {
            return None;
        }
        let database = self.next.database.take();
        self.is_syncing = database.is_some();
        if self.is_syncing {
            self.under_way = std::mem::take(&mut self.next);
            self.under_way.began = Some(now());
        }
        database
    }

    /// Ends the sync under way, which has succeeded. Returns the outcomes that their callers can get now.
    pub fn end_sync(&mut self) -> Vec<(ReplyTo, Outcome)> {
        std::mem::take(&mut self.under_way).waiting
    }

    /// Handles a disk that has no room for a sync. Returns the callers that must get the error. The unsynced requests
    /// are lost: nobody gets their outcomes until the database is reopened and shows what is on the disk.
    pub fn lose(&mut self) -> Vec<(ReplyTo, Outcome)> {
        self.lost.extend(self.next.ids.iter().chain(&self.under_way.ids));
        self.fail()
    }

    /// Forgets the lost requests: the database they were written to was closed since then.
    pub fn forget_lost(&mut self) {
        self.lost.clear();
    }

    /// Handles a failed database. Returns the callers that must get the error. The result of a sync under way does not
    /// matter any more.
    pub fn fail(&mut self) -> Vec<(ReplyTo, Outcome)> {
        let Self { next, under_way, .. } = self;
        let (mut failed, under_way) = (std::mem::take(next).waiting, std::mem::take(under_way).waiting);
        failed.extend(under_way);
        failed
    }
}

#[cfg(test)]
mod tests {
    //! Goal: no caller gets an outcome that must be synced before its sync has ended.

    use super::*;
    use crate::request::{Answer, StillHeld};

    fn id(number: u8) -> Id {
        Id([number; 32])
    }

    fn open(folder: &tempfile::TempDir) -> Arc<Database> {
        Arc::new(Database::open(folder.path()).unwrap())
    }

    /// A caller that waits for this request's sync, or is answered at once.
    fn wait(syncs: &mut Syncs, number: u8) -> oneshot::Receiver<Result<Outcome, Error>> {
        let (reply_to, received) = oneshot::channel();
        if let Some((reply_to, outcome)) =
            syncs.defer(ReplyTiming::Synced(id(number)), reply_to, Outcome::StillHeld(StillHeld::Yes))
        {
            reply_to.send(outcome).unwrap();
        }
        received
    }

    /// Sends the outcomes; returns their number.
    fn send(outcomes: Vec<(ReplyTo, Outcome)>) -> usize {
        outcomes.into_iter().map(|(reply_to, outcome)| reply_to.send(Ok(outcome)).unwrap()).count()
    }

    #[test]
    fn request_written_during_a_sync_waits_for_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        assert!(syncs.begin_sync(false).is_none(), "nothing was written");
        syncs.add_written([id(1)], &database);
        let mut first = wait(&mut syncs, 1);
        assert!(syncs.begin_sync(false).is_some());
        syncs.add_written([id(2)], &database);
        let mut second = wait(&mut syncs, 2);
        let mut repeated = wait(&mut syncs, 1);
        assert!(syncs.begin_sync(false).is_none(), "a sync is under way");
        assert!(wait(&mut syncs, 3).try_recv().is_ok(), "request 3 was not written");
        assert_eq!(send(syncs.end_sync()), 2);
        assert!(first.try_recv().is_ok() && repeated.try_recv().is_ok() && second.try_recv().is_err());
        assert!(!syncs.is_unsynced(id(1)) && syncs.is_unsynced(id(2)));
        assert!(syncs.begin_sync(true).is_some());
        assert_eq!(send(syncs.end_sync()), 1);
        assert!(second.try_recv().is_ok());
        assert!(syncs.begin_sync(true).is_none() && syncs.begin_sync(false).is_none(), "nothing is left");
    }

    /// A request that is written again belongs to the later sync: the one under way may have begun too early.
    #[test]
    fn request_written_twice_waits_for_the_later_sync() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        syncs.add_written([id(1)], &database);
        assert!(syncs.begin_sync(false).is_some());
        syncs.add_written([id(1)], &database);
        let mut later = wait(&mut syncs, 1);
        assert_eq!(send(syncs.end_sync()), 0);
        assert!(syncs.begin_sync(true).is_some() && later.try_recv().is_err());
        assert_eq!(send(syncs.end_sync()), 1);
        assert!(later.try_recv().is_ok());
    }

    #[test]
    fn check_waits_until_all_earlier_requests_are_synced() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        let check = |syncs: &mut Syncs| {
            let (reply_to, received) = oneshot::channel();
            if let Some((reply_to, outcome)) = syncs.defer(ReplyTiming::AllSynced, reply_to, Outcome::Checked) {
                reply_to.send(outcome).unwrap();
            }
            received
        };
        assert!(check(&mut syncs).try_recv().is_ok(), "nothing was written");
        syncs.add_written([id(1)], &database);
        assert!(syncs.begin_sync(false).is_some() && !syncs.is_late());
        let mut during = check(&mut syncs);
        syncs.add_written([id(2)], &database);
        let mut later = check(&mut syncs);
        assert_eq!(send(syncs.end_sync()), 1);
        assert!(during.try_recv().is_ok() && later.try_recv().is_err());
    }

    #[test]
    fn callers_that_wait_for_a_hanging_disk_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        syncs.add_written([id(1)], &database);
        assert!(syncs.begin_sync(false).is_some());
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| wait(&mut syncs, 1)).collect();
        assert!(wait(&mut syncs, 1).try_recv().unwrap().is_err(), "one caller too many");
        waiting.truncate(1);
        assert!(wait(&mut syncs, 1).try_recv().is_err(), "there is room, since the others have given up");
        assert_eq!(syncs.end_sync().len(), 2);

        let body = bytes::Bytes::from(vec![0; WAITING_BYTES_MAX / 2 + 1]);
        let answered = |syncs: &mut Syncs| {
            let answer = Answer { status: 200, headers: Vec::new(), body: AnswerBody::Whole(body.clone()) };
            let (reply_to, received) = oneshot::channel();
            (syncs.defer(ReplyTiming::Synced(id(2)), reply_to, Outcome::Found(Found::Answered(answer))), received)
        };
        syncs.add_written([id(2)], &database);
        let (first, _received) = answered(&mut syncs);
        assert!(first.is_none());
        assert!(answered(&mut syncs).0.unwrap().1.is_err(), "too many bytes");
    }

    #[test]
    fn sync_that_ends_after_a_failure_returns_no_outcomes() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        let wait = |syncs: &mut Syncs, number| {
            let (reply_to, received) = oneshot::channel();
            assert!(
                syncs.defer(ReplyTiming::Synced(id(number)), reply_to, Outcome::Found(Found::InProgress)).is_none()
            );
            received
        };
        syncs.add_written([id(1)], &database);
        let first = wait(&mut syncs, 1);
        assert!(syncs.begin_sync(false).is_some());
        syncs.add_written([id(2)], &database);
        let second = wait(&mut syncs, 2);
        assert_eq!(syncs.fail().len(), 2);
        assert_eq!(syncs.end_sync().len(), 0);
        drop((first, second));
        syncs.add_written([id(3)], &database);
        assert!(syncs.begin_sync(false).is_none(), "only the thread that syncs may begin a sync");
        assert!(syncs.begin_sync(true).is_some());
    }

    /// On a full disk nobody gets an unsynced outcome, not even after a later sync, until the database is reopened.
    #[test]
    fn lost_requests_are_refused_until_the_database_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        syncs.add_written([id(1)], &database);
        assert!(syncs.begin_sync(false).is_some());
        syncs.add_written([id(2)], &database);
        let waiting = [wait(&mut syncs, 1), wait(&mut syncs, 2)];
        assert_eq!(syncs.lose().len(), waiting.len());
        for number in [1, 2] {
            assert!(syncs.is_unsynced(id(number)));
            assert!(matches!(wait(&mut syncs, number).try_recv().unwrap(), Err(Error::Full(_))), "{number}");
        }
        assert!(wait(&mut syncs, 3).try_recv().unwrap().is_ok(), "request 3 was synced before");
        assert!(syncs.begin_sync(true).is_none(), "nothing is left to sync");
        syncs.forget_lost();
        for number in [1, 2] {
            assert!(!syncs.is_unsynced(id(number)) && wait(&mut syncs, number).try_recv().unwrap().is_ok(), "{number}");
        }
    }
}
