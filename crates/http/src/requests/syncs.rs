//! Tracks what was written and is not synced yet, and who waits for its sync.
//!
//! **Invariant.** Nobody gets an answer, or a reservation that must not be taken over, until a sync that began after it
//! was written has ended. What is written while a sync is under way belongs to the next one.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::oneshot;

use super::database::Database;
use super::writer::start;
use super::{Said, WAITING_MAX};
use crate::request::{AnswerBody, Error, Found, Id};

/// If a sync takes longer, the disk hangs: then no new requests are begun.
const LATE: Duration = Duration::from_secs(3);
/// The most bytes of answers that may wait for a sync.
const WAITING_BYTES_MAX: usize = 64 << 20;

/// Sends a change's outcome to the caller that waits for it.
pub(super) type Reply = oneshot::Sender<Result<Said, Error>>;

/// What is not synced yet.
#[derive(Default)]
pub(super) struct Syncs {
    /// Written since the last sync began.
    next: Portion,
    /// What the sync that is under way covers. Empty once the result of that sync does not matter any more.
    under_way: Portion,
    /// Whether a thread syncs, which it does until nothing is left.
    is_syncing: bool,
    /// Requests that were written, but whose sync failed for lack of room: nobody gets them until the database is
    /// reopened.
    lost: HashSet<Id>,
}

/// When an outcome is given out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum When {
    /// At once.
    Now,
    /// Once this request is synced; at once if it is.
    Synced(Id),
    /// Once every request that waits for a sync now is synced.
    AllSynced,
}

/// What one sync covers.
#[derive(Default)]
struct Portion {
    /// When the sync began.
    began: Option<Instant>,
    /// The database it was written to.
    database: Option<Arc<Database>>,
    /// The requests that were written, and that nobody may get before the sync.
    ids: HashSet<Id>,
    /// Who gets what after the sync; `bytes` is the total size of the answers among it.
    waiting: Vec<(Reply, Said)>,
    bytes: usize,
}

impl Portion {
    /// Adds a caller that waits, unless too many do: a disk that hangs must not fill the memory. Callers that have
    /// given up do not count.
    fn wait(&mut self, reply: Reply, said: Said) -> Option<(Reply, Error)> {
        let bytes = bytes_of(&said);
        let is_full = |portion: &Self| {
            portion.waiting.len() >= WAITING_MAX || portion.bytes.saturating_add(bytes) > WAITING_BYTES_MAX
        };
        if is_full(self) && !self.waiting.is_empty() {
            self.waiting.retain(|(reply, _)| !reply.is_closed());
            self.bytes = self.waiting.iter().map(|(_, said)| bytes_of(said)).sum();
            if is_full(self) && !self.waiting.is_empty() {
                return Some((reply, Error::Unavailable("too many requests wait for the disk".to_owned())));
            }
        }
        self.bytes += bytes;
        self.waiting.push((reply, said));
        None
    }
}

fn bytes_of(said: &Said) -> usize {
    match said {
        Said::Found(Found::Answered(answer)) => match &answer.body {
            AnswerBody::Whole(body) => body.len(),
            _ => 0,
        },
        _ => 0,
    }
}

impl Syncs {
    /// Records that these requests were written to this database, and are not synced yet.
    pub fn written(&mut self, ids: impl IntoIterator<Item = Id>, database: &Arc<Database>) {
        self.next.ids.extend(ids);
        if !self.next.ids.is_empty() {
            self.next.database = Some(Arc::clone(database));
        }
    }

    /// Whether this request's entry is still to be synced.
    pub fn has(&self, id: Id) -> bool {
        self.next.ids.contains(&id) || self.under_way.ids.contains(&id) || self.lost.contains(&id)
    }

    /// Gives an outcome out when it is time; returns it if that is now, or if it is refused.
    pub fn tell(&mut self, when: When, reply: Reply, said: Said) -> Option<(Reply, Result<Said, Error>)> {
        if let When::Synced(id) = when
            && self.lost.contains(&id)
        {
            return Some((reply, Err(Error::Full("it is not known whether this is on the disk".to_owned()))));
        }
        let is_for = |portion: &Portion| match when {
            When::Now => false,
            When::Synced(id) => portion.ids.contains(&id),
            When::AllSynced => !portion.ids.is_empty(),
        };
        let portions = [&mut self.next, &mut self.under_way];
        match portions.into_iter().find(|portion| is_for(portion)) {
            Some(portion) => portion.wait(reply, said).map(|(reply, error)| (reply, Err(error))),
            None => Some((reply, Ok(said))),
        }
    }

    /// Whether the sync under way has taken too long already.
    pub fn is_late(&self) -> bool {
        self.under_way.began.is_some_and(|began| began.elapsed() > LATE)
    }

    /// Begins a sync; returns its database, if anything is left to sync and nobody else syncs. `goes_on`: the caller is
    /// the one that has synced until now.
    pub fn begin(&mut self, goes_on: bool) -> Option<Arc<Database>> {
        if self.is_syncing && !goes_on {
            return None;
        }
        let database = self.next.database.take();
        self.is_syncing = database.is_some();
        if self.is_syncing {
            self.under_way = std::mem::take(&mut self.next);
            self.under_way.began = Some(start());
        }
        database
    }

    /// Ends the sync under way, which has succeeded. Returns who can be answered now.
    pub fn end(&mut self) -> Vec<(Reply, Said)> {
        std::mem::take(&mut self.under_way).waiting
    }

    /// Handles a disk without room for what was written. Returns the callers that must be told. The requests are given
    /// to nobody until the database is reopened: what is found then is on the disk.
    pub fn lose(&mut self) -> Vec<(Reply, Said)> {
        self.lost.extend(self.next.ids.iter().chain(&self.under_way.ids));
        self.fail()
    }

    /// Forgets the lost requests: the database is not, or no longer, only read.
    pub fn is_anew(&mut self) {
        self.lost.clear();
    }

    /// Handles a failed database. Returns the callers that must be told. The result of a sync under way does not matter
    /// any more.
    pub fn fail(&mut self) -> Vec<(Reply, Said)> {
        let Self { next, under_way, .. } = self;
        let (mut failed, under_way) = (std::mem::take(next).waiting, std::mem::take(under_way).waiting);
        failed.extend(under_way);
        failed
    }
}

#[cfg(test)]
mod tests {
    //! Goal: nobody gets anything that no sync has covered.

    use super::*;
    use crate::request::{Answer, Kept};

    fn id(number: u8) -> Id {
        Id([number; 32])
    }

    fn open(folder: &tempfile::TempDir) -> Arc<Database> {
        Arc::new(Database::open(folder.path()).unwrap())
    }

    /// A caller that waits for this request's sync, or is answered at once.
    fn wait(syncs: &mut Syncs, number: u8) -> oneshot::Receiver<Result<Said, Error>> {
        let (reply, told) = oneshot::channel();
        if let Some((reply, said)) = syncs.tell(When::Synced(id(number)), reply, Said::Kept(Kept::Yes)) {
            reply.send(said).unwrap();
        }
        told
    }

    fn tell(all: Vec<(Reply, Said)>) -> usize {
        all.into_iter().map(|(reply, said)| reply.send(Ok(said)).unwrap()).count()
    }

    #[test]
    fn request_written_during_a_sync_waits_for_the_next_one() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        assert!(syncs.begin(false).is_none(), "nothing was written");
        syncs.written([id(1)], &database);
        let mut first = wait(&mut syncs, 1);
        assert!(syncs.begin(false).is_some());
        syncs.written([id(2)], &database);
        let mut second = wait(&mut syncs, 2);
        let mut repeated = wait(&mut syncs, 1);
        assert!(syncs.begin(false).is_none(), "a sync is under way");
        assert!(wait(&mut syncs, 3).try_recv().is_ok(), "request 3 was not written");
        assert_eq!(tell(syncs.end()), 2);
        assert!(first.try_recv().is_ok() && repeated.try_recv().is_ok() && second.try_recv().is_err());
        assert!(!syncs.has(id(1)) && syncs.has(id(2)));
        assert!(syncs.begin(true).is_some());
        assert_eq!(tell(syncs.end()), 1);
        assert!(second.try_recv().is_ok());
        assert!(syncs.begin(true).is_none() && syncs.begin(false).is_none(), "nothing is left");
    }

    /// A request that is written again belongs to the later sync: the one under way may have begun too early.
    #[test]
    fn request_written_twice_waits_for_the_later_sync() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        syncs.written([id(1)], &database);
        assert!(syncs.begin(false).is_some());
        syncs.written([id(1)], &database);
        let mut later = wait(&mut syncs, 1);
        assert_eq!(tell(syncs.end()), 0);
        assert!(syncs.begin(true).is_some() && later.try_recv().is_err());
        assert_eq!(tell(syncs.end()), 1);
        assert!(later.try_recv().is_ok());
    }

    #[test]
    fn check_waits_until_all_earlier_requests_are_synced() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        let all = |syncs: &mut Syncs| {
            let (reply, told) = oneshot::channel();
            if let Some((reply, said)) = syncs.tell(When::AllSynced, reply, Said::Checked) {
                reply.send(said).unwrap();
            }
            told
        };
        assert!(all(&mut syncs).try_recv().is_ok(), "nothing was written");
        syncs.written([id(1)], &database);
        assert!(syncs.begin(false).is_some() && !syncs.is_late());
        let mut during = all(&mut syncs);
        syncs.written([id(2)], &database);
        let mut later = all(&mut syncs);
        assert_eq!(tell(syncs.end()), 1);
        assert!(during.try_recv().is_ok() && later.try_recv().is_err());
    }

    #[test]
    fn callers_that_wait_for_a_hanging_disk_are_bounded() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        syncs.written([id(1)], &database);
        assert!(syncs.begin(false).is_some());
        let mut waiting: Vec<_> = (0..WAITING_MAX).map(|_| wait(&mut syncs, 1)).collect();
        assert!(wait(&mut syncs, 1).try_recv().unwrap().is_err(), "one caller too many");
        waiting.truncate(1);
        assert!(wait(&mut syncs, 1).try_recv().is_err(), "there is room, since the others have given up");
        assert_eq!(syncs.end().len(), 2);

        let body = bytes::Bytes::from(vec![0; WAITING_BYTES_MAX / 2 + 1]);
        let answered = |syncs: &mut Syncs| {
            let answer = Answer { status: 200, headers: Vec::new(), body: AnswerBody::Whole(body.clone()) };
            let (reply, told) = oneshot::channel();
            (syncs.tell(When::Synced(id(2)), reply, Said::Found(Found::Answered(answer))), told)
        };
        syncs.written([id(2)], &database);
        let (first, _told) = answered(&mut syncs);
        assert!(first.is_none());
        assert!(answered(&mut syncs).0.unwrap().1.is_err(), "too many bytes");
    }

    #[test]
    fn sync_that_ends_after_a_failure_answers_nobody() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        let found = |syncs: &mut Syncs, number| {
            let (reply, told) = oneshot::channel();
            assert!(syncs.tell(When::Synced(id(number)), reply, Said::Found(Found::InProgress)).is_none());
            told
        };
        syncs.written([id(1)], &database);
        let first = found(&mut syncs, 1);
        assert!(syncs.begin(false).is_some());
        syncs.written([id(2)], &database);
        let second = found(&mut syncs, 2);
        assert_eq!(syncs.fail().len(), 2);
        assert_eq!(syncs.end().len(), 0);
        drop((first, second));
        syncs.written([id(3)], &database);
        assert!(syncs.begin(false).is_none(), "only the thread that syncs may begin a sync");
        assert!(syncs.begin(true).is_some());
    }

    /// On a full disk nobody gets what was not synced, not even after a later sync, until the database is reopened.
    #[test]
    fn lost_requests_are_refused_until_the_database_is_reopened() {
        let folder = tempfile::tempdir().unwrap();
        let (mut syncs, database) = (Syncs::default(), open(&folder));
        syncs.written([id(1)], &database);
        assert!(syncs.begin(false).is_some());
        syncs.written([id(2)], &database);
        let waiting = [wait(&mut syncs, 1), wait(&mut syncs, 2)];
        assert_eq!(syncs.lose().len(), waiting.len());
        for number in [1, 2] {
            assert!(syncs.has(id(number)));
            assert!(matches!(wait(&mut syncs, number).try_recv().unwrap(), Err(Error::Full(_))), "{number}");
        }
        assert!(wait(&mut syncs, 3).try_recv().unwrap().is_ok(), "it was synced before");
        assert!(syncs.begin(true).is_none(), "nothing is left to sync");
        syncs.is_anew();
        for number in [1, 2] {
            assert!(!syncs.has(id(number)) && wait(&mut syncs, number).try_recv().unwrap().is_ok(), "{number}");
        }
    }
}
