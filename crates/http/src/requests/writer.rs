//! Applies the rules of [`entry`] to callers' operations, and writes the resulting changes as one batch.
//!
//! An **entry** is what is remembered of a request: its reservation or its response.
//!
//! Only the holder of the [`Writer`] changes the database, so changes need no locks against each other.
//!
//! **Without disk space** (the disk is full, or the database has reached the bound on its size) known requests are
//! still answered. On a full disk nothing is written any more, and the database stays open for reading until there is
//! room to reopen it.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ahash::AHashMap;
use rocksdb::WriteBatch;

use super::database::{Database, FORMAT_KEY, Reading, Writing, entry_key, expiry_key};
use super::disk_space::{self, DiskSpace};
use super::syncs::ReplyTiming;
use super::{Operation, Outcome};
use crate::format::request::{RequestEntry, RequestState};
use crate::request::entry::{self, Change};
use crate::request::{Error, Found, Id, OnInDoubt, Reservation, StillHeld, Wanted};

/// The pause before each attempt to reopen a database that failed, or whose disk was full.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// The disk counts as fast while each of the last [`FAST_WRITES_MIN`] writes took less than this. Only then does
/// [`Writer::reserve_at_once`] reserve anything.
const FAST_WRITE: Duration = Duration::from_millis(1);
const FAST_WRITES_MIN: u32 = 16;

/// Removal times of entries are rounded up to a multiple of this.
const REMOVAL_STEP_MS: i64 = 1_000;
/// The most reservations that are kept in memory as well.
const RESERVED_MAX: usize = 4_096;

/// The wall clock when the store was opened, plus the monotonic clock since.
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

/// Changes the database; nothing else does.
pub(super) struct Writer {
    dir: PathBuf,
    /// `None` after the database has failed.
    database: Option<Arc<Database>>,
    /// The database that has failed: a sync of it may still be under way.
    closing: Weak<Database>,
    /// When the database failed, or could not be reopened, and the error.
    failed: Option<(Instant, Error)>,
    /// When the disk was found full, or reopening was last attempted, and the error. While this is set, the database is
    /// only read.
    disk_full: Option<(Instant, Error)>,
    /// The disk space that the database may take.
    pub disk_space: DiskSpace,
    clock: Clock,
    /// Names this run of the store in its reservations; drawn at random. Leases of earlier runs count as ended.
    run: [u8; 16],
    /// The number of latest consecutive writes that took less than [`FAST_WRITE`] each.
    fast_writes: u32,
    /// Copies of some of the database's reservations, which are soon looked up again.
    reserved: AHashMap<Id, RequestEntry>,
}

/// The outcome of a batch of operations.
pub(super) struct BatchOutcome {
    /// The outcome of each operation, and when its caller gets it.
    pub outcomes: Vec<(Result<Outcome, Error>, ReplyTiming)>,
    /// The requests whose outcomes nobody may get before a sync.
    pub to_sync: Vec<Id>,
    /// The database that the requests were written to.
    pub database: Arc<Database>,
}

impl Writer {
    /// Opens the database in this folder.
    pub fn open(dir: PathBuf) -> Result<Self, Error> {
        let database = Some(Arc::new(Database::open(&dir)?));
        let disk_space = DiskSpace::new(dir.clone());
        Ok(Self {
            dir,
            database,
            closing: Weak::new(),
            failed: None,
            disk_full: None,
            disk_space,
            clock: Clock::start(),
            run: rand::random(),
            fast_writes: 0,
            reserved: AHashMap::new(),
        })
    }

    /// Carries out some operations, as one batch. A damaged entry fails only its own request. `is_late`: a sync takes
    /// too long, so that callers get new reservations only after it.
    ///
    /// # Errors
    /// The database was closed, and nothing was carried out; or the write failed, and parts of the batch may be on the
    /// disk: the database is closed now.
    pub fn carry_out<'a>(
        &mut self,
        operations: impl Iterator<Item = &'a Operation> + Clone,
        is_late: bool,
    ) -> Result<BatchOutcome, Error> {
        self.reopen_if_room();
        self.reopen_if_failed()?;
        let Some(database) = &self.database else { return Err(closed_error()) };
        let database = Arc::clone(database);
        loop {
            let refusal = self.disk_space.refusal();
            let mut batch = OpenBatch { refusal, ..self.begin_batch(&database, Reading::MayWait) };
            let outcomes = operations.clone().map(|operation| {
                let outcome = batch.carry_out(operation);
                let timing =
                    outcome.as_ref().map_or(ReplyTiming::Now, |outcome| reply_timing(operation, outcome, is_late));
                (outcome, timing)
            });
            let outcomes = outcomes.collect();
            let OpenBatch { writes, to_sync, entries, has_removed, .. } = batch;
            if !writes.is_empty() {
                match self.write(&database, (writes, entries), Writing::MayWait) {
                    Ok(_) => {}
                    // The batch has no effect on the open database, which is only read from now on. The batch is built
                    // again: this time, only the operations that write nothing succeed.
                    Err(Error::Full(_)) => continue,
                    Err(error) => return Err(error),
                }
            }
            if has_removed {
                self.disk_space.note_removal();
            }
            self.disk_space.compact_if_due(&database);
            return Ok(BatchOutcome { outcomes, to_sync, database });
        }
    }

    /// Reserves a request if that takes hardly any time: the disk counts as fast, nothing has to be read from it, and
    /// what is written need not be synced. Otherwise changes nothing and returns `None`. `is_unsynced` says whether a
    /// request was written and is not synced yet.
    ///
    /// # Errors
    /// As for [`Self::carry_out`].
    pub fn reserve_at_once(
        &mut self,
        wanted: &Wanted,
        is_unsynced: impl Fn(Id) -> bool,
    ) -> Option<Result<Found, Error>> {
        let database = Arc::clone(self.database.as_ref()?);
        if self.fast_writes < FAST_WRITES_MIN || wanted.on_in_doubt == OnInDoubt::Refuse {
            return None;
        }
        let refusal = self.disk_space.refusal();
        let mut batch = OpenBatch { refusal, ..self.begin_batch(&database, Reading::Cached) };
        let Ok(found) = batch.reserve(wanted) else { return None };
        if matches!(found, Found::Answered(_)) && is_unsynced(wanted.held.id) {
            return None;
        }
        let OpenBatch { writes, entries, .. } = batch;
        if writes.is_empty() {
            return Some(Ok(found));
        }
        match self.write(&database, (writes, entries), Writing::AtOnce) {
            Ok(true) => Some(Ok(found)),
            Ok(false) | Err(Error::Full(_)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Marks in the log the point up to which it is synced, if the database may be written to.
    ///
    /// # Errors
    /// As for [`Database::mark_synced`].
    pub fn mark_synced(&mut self) -> Result<(), Error> {
        let may_write = !self.is_read_only();
        self.database.as_ref().filter(|_| may_write).map_or(Ok(()), |database| database.mark_synced())
    }

    /// The database, for listing requests, with the current run and time.
    ///
    /// # Errors
    /// The database is closed.
    pub fn view(&mut self) -> Result<(Arc<Database>, [u8; 16], i64), Error> {
        self.reopen_if_room();
        self.reopen_if_failed()?;
        let Some(database) = &self.database else { return Err(closed_error()) };
        Ok((Arc::clone(database), self.run, self.clock.now_ms()))
    }

    fn begin_batch<'a>(&'a self, database: &'a Database, reading: Reading) -> OpenBatch<'a> {
        OpenBatch {
            database,
            reading,
            reserved: &self.reserved,
            run: self.run,
            now_ms: self.clock.now_ms(),
            disk_full: self.disk_full.as_ref().map(|(_, error)| error),
            refusal: None,
            entries: AHashMap::new(),
            writes: WriteBatch::default(),
            to_sync: Vec::new(),
            has_removed: false,
        }
    }

    /// Writes a batch, and keeps its reservations in memory. Returns `false` if nothing was written: the write would
    /// have to wait, and `mode` does not allow that.
    fn write(
        &mut self,
        database: &Database,
        (writes, entries): (WriteBatch, AHashMap<Id, Option<RequestEntry>>),
        mode: Writing,
    ) -> Result<bool, Error> {
        let (began, bytes) = (now(), writes.size_in_bytes());
        let written = database.write(writes, mode);
        let is_fast = matches!(written, Ok(true)) && began.elapsed() < FAST_WRITE;
        self.fast_writes = if is_fast { self.fast_writes.saturating_add(1) } else { 0 };
        match &written {
            Ok(true) => {
                self.disk_space.add_written(bytes);
                entries.into_iter().for_each(|(id, entry)| self.cache_reservation(id, entry));
            }
            Ok(false) => {}
            Err(error @ Error::Full(_)) => self.become_read_only(error),
            Err(error) => self.fail(error),
        }
        written
    }

    /// Keeps a written entry in memory, if it is a reservation.
    fn cache_reservation(&mut self, id: Id, entry: Option<RequestEntry>) {
        match entry {
            Some(entry) if matches!(entry.state, RequestState::Reserved { .. }) => {
                // This also drops reservations that are still needed: these are then read from the database.
                if self.reserved.len() >= RESERVED_MAX {
                    self.reserved.clear();
                }
                self.reserved.insert(id, entry);
            }
            _ => drop(self.reserved.remove(&id)),
        }
    }

    /// Whether this is the database that is open now.
    pub fn is_current(&self, database: &Arc<Database>) -> bool {
        self.database.as_ref().is_some_and(|current| Arc::ptr_eq(current, database))
    }

    /// Handles a write or a sync for which the disk had no room: from now on the database is only read.
    pub fn become_read_only(&mut self, error: &Error) {
        if !self.is_read_only() {
            tracing::error!(%error, "the store cannot write: it takes no new requests, but still answers known ones");
        }
        self.disk_full = Some((now(), error.clone()));
        self.fast_writes = 0;
    }

    /// Whether the disk is full, so that the database is only read.
    pub fn is_read_only(&self) -> bool {
        self.disk_full.is_some()
    }

    /// Reopens the database if a full disk has room again. It is not closed before, since without room it could not be
    /// opened again.
    fn reopen_if_room(&mut self) {
        let (Some((tried, error)), Some(database)) = (&mut self.disk_full, &self.database) else { return };
        if tried.elapsed() < REOPEN_PAUSE {
            return;
        }
        *tried = now();
        // A sync, a listing or a compaction may still use the database.
        if Arc::strong_count(database) > 1 || !disk_space::has_room_to_reopen(&self.dir) {
            return;
        }
        let error = error.clone();
        self.close(&error);
        self.failed = None;
        match Database::open(&self.dir) {
            Ok(database) => {
                tracing::info!("the store can write again: it takes new requests");
                self.database = Some(Arc::new(database));
            }
            Err(error) => self.close(&error),
        }
    }

    /// Handles a failed write or sync: closes the database, since it is not known what is on the disk.
    pub fn fail(&mut self, error: &Error) {
        tracing::error!(%error, "requests could not be written: the store is closed, and will be reopened soon");
        self.close(error);
    }

    /// Stops the compaction in the background.
    pub fn stop_compaction(&mut self) {
        if let Some(database) = &self.database {
            self.disk_space.stop_compaction(database);
        }
    }

    /// Closes the database; until it is reopened, callers get this error.
    fn close(&mut self, error: &Error) {
        if let Some(database) = self.database.take() {
            self.disk_space.stop_compaction(&database);
            self.closing = Arc::downgrade(&database);
        }
        self.failed = Some((now(), error.clone()));
        self.disk_full = None;
        self.fast_writes = 0;
        self.reserved.clear();
    }

    /// Reopens a database that has failed, once the pause is over.
    ///
    /// # Errors
    /// The database is still closed.
    fn reopen_if_failed(&mut self) -> Result<(), Error> {
        let Some((failed_at, error)) = &self.failed else { return Ok(()) };
        if failed_at.elapsed() < REOPEN_PAUSE || self.closing.strong_count() > 0 {
            return Err(error.clone());
        }
        match Database::open(&self.dir) {
            Ok(database) => {
                tracing::info!("the store of requests is open again");
                (self.database, self.failed) = (Some(Arc::new(database)), None);
                Ok(())
            }
            Err(error) => {
                self.close(&error);
                Err(error)
            }
        }
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "how long the disk takes, and the pause before a failed store is opened again"
)]
pub(super) fn now() -> Instant {
    Instant::now()
}

fn closed_error() -> Error {
    Error::Unavailable("it is closed".to_owned())
}

/// When an entry that is remembered until `until_ms` is removed: a precision of seconds is enough.
fn removal_ms(until_ms: i64) -> i64 {
    until_ms.checked_add(REMOVAL_STEP_MS - 1).map_or(until_ms, |ms| ms - ms.rem_euclid(REMOVAL_STEP_MS))
}

/// When a caller gets the outcome of its operation:
///
/// - once the request is synced: a response, an operator's decision, a reservation that must not be taken over
/// - once all earlier requests are synced, so that a disk that hangs is noticed: a check, and any other reservation
///   while a sync is late
/// - at once: any other outcome
fn reply_timing(operation: &Operation, outcome: &Outcome, is_late: bool) -> ReplyTiming {
    match (operation, outcome) {
        (Operation::Reserve(wanted), Outcome::Found(Found::Answered(_))) => ReplyTiming::Synced(wanted.held.id),
        (Operation::Reserve(wanted), Outcome::Found(Found::Reserved { .. }))
            if wanted.on_in_doubt == OnInDoubt::Refuse =>
        {
            ReplyTiming::Synced(wanted.held.id)
        }
        (Operation::Reserve(_), Outcome::Found(Found::Reserved { .. })) if is_late => ReplyTiming::AllSynced,
        (Operation::Complete(held, ..), Outcome::StillHeld(StillHeld::Yes)) => ReplyTiming::Synced(held.id),
        (Operation::Settle(id, ..), _) => ReplyTiming::Synced(*id),
        (Operation::Check, _) => ReplyTiming::AllSynced,
        _ => ReplyTiming::Now,
    }
}

/// A batch that is being put together.
struct OpenBatch<'a> {
    database: &'a Database,
    reading: Reading,
    reserved: &'a AHashMap<Id, RequestEntry>,
    run: [u8; 16],
    now_ms: i64,
    /// The error for operations that would write, if the disk is full.
    disk_full: Option<&'a Error>,
    /// The error for new requests, if the bound is reached.
    refusal: Option<Error>,
    /// The entries that the batch writes, or `None` for those that it removes: later operations of the same batch see
    /// them.
    entries: AHashMap<Id, Option<RequestEntry>>,
    writes: WriteBatch,
    /// The requests whose outcomes nobody may get before a sync.
    to_sync: Vec<Id>,
    /// Whether the batch removes entries.
    has_removed: bool,
}

impl OpenBatch<'_> {
    /// Adds the changes of one operation to the batch. Nothing reaches the database before the batch is written.
    fn carry_out(&mut self, operation: &Operation) -> Result<Outcome, Error> {
        match operation {
            Operation::Reserve(wanted) => self.reserve(wanted).map(Outcome::Found),
            Operation::Extend(held, lease) => {
                self.change(*held, |before, now| entry::extend(before, *held, *lease, now))
            }
            Operation::Complete(held, answer, retention) => {
                let writes_before = self.writes.len();
                let outcome = self.change(*held, |before, now| entry::complete(before, *held, answer, *retention, now));
                self.to_sync.extend((self.writes.len() > writes_before).then_some(held.id));
                outcome
            }
            Operation::Release(held) => self.change(*held, |before, now| entry::release(before, *held, now)),
            Operation::Tidy => self.tidy(),
            Operation::Settle(id, decision, token) => {
                let before = self.entry(*id)?;
                let (settled, change) = entry::settle(before.as_ref(), decision, *token, self.run, self.now_ms);
                let is_to_sync = change != Change::None;
                self.write(*id, before, change)?;
                self.to_sync.extend(is_to_sync.then_some(*id));
                Ok(Outcome::Settled(settled))
            }
            Operation::Check => self.database.get(FORMAT_KEY).map(|_| Outcome::Checked),
        }
    }

    fn reserve(&mut self, wanted: &Wanted) -> Result<Found, Error> {
        let id = wanted.held.id;
        let before = self.entry(id)?;
        let (found, change) = entry::reserve(before.as_ref(), wanted, self.run, self.now_ms);
        // A full store refuses only new requests.
        if let Some(refusal) = self.refusal.as_ref().filter(|_| entry::current(before.as_ref(), self.now_ms).is_none())
        {
            return Err(refusal.clone());
        }
        let is_to_sync = wanted.on_in_doubt == OnInDoubt::Refuse && change != Change::None;
        self.write(id, before, change)?;
        self.to_sync.extend(is_to_sync.then_some(id));
        Ok(found)
    }

    /// The request's entry after the earlier changes of this batch.
    fn entry(&self, id: Id) -> Result<Option<RequestEntry>, Error> {
        match (self.entries.get(&id), self.reserved.get(&id)) {
            (Some(entry), _) => Ok(entry.clone()),
            (None, Some(entry)) => Ok(Some(entry.clone())),
            (None, None) => self.database.entry(id, self.reading),
        }
    }

    /// Makes a change that only the holder of a reservation may make, by this rule.
    fn change(
        &mut self,
        held: Reservation,
        rule: impl FnOnce(Option<&RequestEntry>, i64) -> (StillHeld, Change),
    ) -> Result<Outcome, Error> {
        let before = self.entry(held.id)?;
        let (still_held, change) = rule(before.as_ref(), self.now_ms);
        self.write(held.id, before, change)?;
        Ok(Outcome::StillHeld(still_held))
    }

    /// Adds a change of an entry to the batch; `before` is the entry until now.
    fn write(&mut self, id: Id, before: Option<RequestEntry>, change: Change) -> Result<(), Error> {
        let after = match change {
            Change::None => return Ok(()),
            Change::Put(entry) => Some(entry),
            Change::Remove => None,
        };
        self.expect_room()?;
        self.has_removed |= after.is_none();
        let removal = |entry: &Option<RequestEntry>| entry.as_ref().map(|entry| removal_ms(entry.remembered_until_ms));
        // A reservation and its response mostly have the same removal time, which then is not written again.
        if removal(&before) != removal(&after) {
            removal(&before).iter().for_each(|ms| self.writes.delete(expiry_key(*ms, id)));
            removal(&after).iter().for_each(|ms| self.writes.put(expiry_key(*ms, id), []));
        }
        if let Some(before) = before.filter(|before| !self.is_removal_rounded(before)) {
            // An earlier version of ratchet wrote the removal time without rounding it.
            self.writes.delete(expiry_key(before.remembered_until_ms, id));
        }
        match &after {
            Some(entry) => self.writes.put(entry_key(id), entry.encode()),
            None => self.writes.delete(entry_key(id)),
        }
        self.entries.insert(id, after);
        Ok(())
    }

    fn expect_room(&self) -> Result<(), Error> {
        self.disk_full.map_or(Ok(()), |error| Err(error.clone()))
    }

    /// Whether the entry's removal time is known to be rounded: this run wrote it, or rounding changes nothing.
    fn is_removal_rounded(&self, entry: &RequestEntry) -> bool {
        matches!(entry.state, RequestState::Reserved { run, .. } if run == self.run)
            || removal_ms(entry.remembered_until_ms) == entry.remembered_until_ms
    }

    /// Removes the entries whose removal time has passed. An entry and its removal time are written together, so the
    /// entry, which may be large or damaged, need not be read.
    fn tidy(&mut self) -> Result<Outcome, Error> {
        let expired = self.database.expired_entries(self.now_ms)?;
        let count = expired.len();
        if count > 0 {
            self.expect_room()?;
            self.has_removed = true;
        }
        for (expired_ms, id) in expired {
            self.writes.delete(expiry_key(expired_ms, id));
            // This batch may have written the entry again, with a later time.
            let rewritten = self.entries.get(&id).and_then(Option::as_ref);
            if rewritten.is_none_or(|entry| {
                [entry.remembered_until_ms, removal_ms(entry.remembered_until_ms)].contains(&expired_ms)
            }) {
                self.writes.delete(entry_key(id));
                self.entries.insert(id, None);
            }
        }
        Ok(Outcome::Removed(count))
    }
}
