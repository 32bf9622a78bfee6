//! Applies the rules to the changes that are asked for, and writes the results as one batch.
//!
//! Only the holder of the [`Writer`] changes the database, so changes need no locks against each other.
//!
//! **Without room** (the disk is full, or the bound is reached) known requests are still answered. On a full disk
//! nothing is written any more, and the database stays open for reading until there is room to reopen it.

use std::path::PathBuf;
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use ahash::AHashMap;
use rocksdb::WriteBatch;

use super::database::{Database, FORMAT_KEY, Reading, Writing, entry_key, until_key};
use super::room::{self, Room};
use super::syncs::When;
use super::{Asked, Said};
use crate::format::request::{RequestEntry, RequestState};
use crate::request::entry::{self, Change};
use crate::request::{Error, Found, Held, Id, Kept, OnInDoubt, Wanted};

/// The pause before a database that failed is reopened.
const REOPEN_PAUSE: Duration = Duration::from_secs(1);
/// The disk is at ease if each of the last [`AT_EASE_MIN`] writes took less than this.
const AT_EASE: Duration = Duration::from_millis(1);
const AT_EASE_MIN: u32 = 16;

/// Removal times of entries are rounded up to a multiple of this.
const DUE_STEP_MS: i64 = 1_000;
/// The most reservations that are kept in memory as well.
const RESERVED_MAX: usize = 4_096;

/// The wall clock at the start, plus the monotonic clock since.
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

/// Changes the database; only its holder does.
pub(super) struct Writer {
    dir: PathBuf,
    /// `None` after it has failed.
    database: Option<Arc<Database>>,
    /// The database that has failed: a sync of it may still be under way.
    closing: Weak<Database>,
    failed_at: Option<(Instant, Error)>,
    /// When the disk was found full, or was last tried, and the error. While this is set, the database is only read.
    no_room: Option<(Instant, Error)>,
    /// The disk space that the database may take.
    pub room: Room,
    clock: Clock,
    run: [u8; 16],
    /// How many writes, up to the last one, took less than [`AT_EASE`] each.
    at_ease: u32,
    /// A copy of reservations in the database, which are soon looked up again.
    reserved: AHashMap<Id, RequestEntry>,
}

/// Changes that were carried out.
pub(super) struct Done {
    /// The outcome of each change, and when to give it out.
    pub said: Vec<(Result<Said, Error>, When)>,
    /// The requests that nobody may get before they are synced.
    pub to_sync: Vec<Id>,
    /// The database they were written to.
    pub database: Arc<Database>,
}

impl Writer {
    /// Opens the database in this folder.
    pub fn open(dir: PathBuf) -> Result<Self, Error> {
        let database = Some(Arc::new(Database::open(&dir)?));
        let room = Room::new(dir.clone());
        Ok(Self {
            dir,
            database,
            closing: Weak::new(),
            failed_at: None,
            no_room: None,
            room,
            clock: Clock::start(),
            run: rand::random(),
            at_ease: 0,
            reserved: AHashMap::new(),
        })
    }

    /// Carries out some changes, as one batch. A damaged entry fails only its own request. `is_late`: a sync takes too
    /// long, so that nobody should begin to carry out a request.
    ///
    /// # Errors
    /// Nothing was carried out, or nobody knows; the database is closed.
    pub fn carry_out<'a>(
        &mut self,
        asked: impl Iterator<Item = &'a Asked> + Clone,
        is_late: bool,
    ) -> Result<Done, Error> {
        self.make_room();
        self.reopen()?;
        let Some(database) = &self.database else { return Err(closed()) };
        let database = Arc::clone(database);
        loop {
            let refusal = self.room.refusal();
            let mut open = Open { refusal, ..self.begin(&database, Reading::Patient) };
            let said = asked.clone().map(|asked| {
                let said = open.carry_out(asked);
                let when = said.as_ref().map_or(When::Now, |said| when(asked, said, is_late));
                (said, when)
            });
            let said = said.collect();
            let Open { batch, to_sync, written, has_removed, .. } = open;
            if !batch.is_empty() {
                match self.write(&database, (batch, written), Writing::Patient) {
                    Ok(_) => {}
                    // Nothing of the batch was written. In the next turn, requests that need no room are answered all
                    // the same.
                    Err(Error::Full(_)) => continue,
                    Err(error) => return Err(error),
                }
            }
            if has_removed {
                self.room.removed();
            }
            self.room.compact(&database);
            return Ok(Done { said, to_sync, database });
        }
    }

    /// Reserves a request if that takes no time: nothing has to be read from the disk, and what is written need not be
    /// synced. Otherwise changes nothing and returns `None`.
    ///
    /// # Errors
    /// As for [`Self::carry_out`].
    pub fn reserve_at_once(
        &mut self,
        wanted: &Wanted,
        is_unsynced: impl Fn(Id) -> bool,
    ) -> Option<Result<Found, Error>> {
        let database = Arc::clone(self.database.as_ref()?);
        if self.at_ease < AT_EASE_MIN || wanted.on_in_doubt == OnInDoubt::Refuse {
            return None;
        }
        let refusal = self.room.refusal();
        let mut open = Open { refusal, ..self.begin(&database, Reading::Cached) };
        let Ok(found) = open.reserve(wanted) else { return None };
        if matches!(found, Found::Answered(_)) && is_unsynced(wanted.held.id) {
            return None;
        }
        let Open { batch, written, .. } = open;
        if batch.is_empty() {
            return Some(Ok(found));
        }
        match self.write(&database, (batch, written), Writing::AtOnce) {
            Ok(true) => Some(Ok(found)),
            Ok(false) | Err(Error::Full(_)) => None,
            Err(error) => Some(Err(error)),
        }
    }

    /// Marks in the log what is synced, if the database may be written to.
    ///
    /// # Errors
    /// Nobody knows what is on the disk.
    pub fn mark(&mut self) -> Result<(), Error> {
        let may_write = !self.is_only_read();
        self.database.as_ref().filter(|_| may_write).map_or(Ok(()), |database| database.mark())
    }

    /// The database, for inspection, with the run whose leases count and the time.
    ///
    /// # Errors
    /// It is closed.
    pub fn view(&mut self) -> Result<(Arc<Database>, [u8; 16], i64), Error> {
        self.make_room();
        self.reopen()?;
        let Some(database) = &self.database else { return Err(closed()) };
        Ok((Arc::clone(database), self.run, self.clock.now_ms()))
    }

    fn begin<'a>(&'a self, database: &'a Database, reading: Reading) -> Open<'a> {
        Open {
            database,
            reading,
            reserved: &self.reserved,
            run: self.run,
            now_ms: self.clock.now_ms(),
            no_room: self.no_room.as_ref().map(|(_, error)| error),
            refusal: None,
            written: AHashMap::new(),
            batch: WriteBatch::default(),
            to_sync: Vec::new(),
            has_removed: false,
        }
    }

    /// Writes a batch, and keeps its entries in memory; returns whether that was done.
    fn write(
        &mut self,
        database: &Database,
        (batch, entries): (WriteBatch, AHashMap<Id, Option<RequestEntry>>),
        how: Writing,
    ) -> Result<bool, Error> {
        let (began, bytes) = (start(), batch.size_in_bytes());
        let written = database.write(batch, how);
        let is_light = matches!(written, Ok(true)) && began.elapsed() < AT_EASE;
        self.at_ease = if is_light { self.at_ease.saturating_add(1) } else { 0 };
        match &written {
            Ok(true) => {
                self.room.wrote(bytes);
                entries.into_iter().for_each(|(id, entry)| self.keep(id, entry));
            }
            Ok(false) => {}
            Err(error @ Error::Full(_)) => self.only_read(error),
            Err(error) => self.fail(error),
        }
        written
    }

    /// Keeps a written entry in memory, if it is a reservation.
    fn keep(&mut self, id: Id, entry: Option<RequestEntry>) {
        match entry {
            Some(entry) if matches!(entry.state, RequestState::Reserved { .. }) => {
                // This also drops reservations that have not ended: what is not here is read from the database.
                if self.reserved.len() >= RESERVED_MAX {
                    self.reserved.clear();
                }
                self.reserved.insert(id, entry);
            }
            _ => drop(self.reserved.remove(&id)),
        }
    }

    /// Whether this is the current database.
    pub fn has(&self, database: &Arc<Database>) -> bool {
        self.database.as_ref().is_some_and(|own| Arc::ptr_eq(own, database))
    }

    /// Handles a write or a sync without room: from now on the database is only read.
    pub fn only_read(&mut self, error: &Error) {
        if !self.is_only_read() {
            tracing::error!(%error, "the store cannot write: it takes no new requests, but still answers known ones");
        }
        self.no_room = Some((start(), error.clone()));
        self.at_ease = 0;
    }

    /// Whether the disk is full, so that the database is only read.
    pub fn is_only_read(&self) -> bool {
        self.no_room.is_some()
    }

    /// Reopens the database if its disk has room again. Until then it stays open, since it could not be reopened.
    fn make_room(&mut self) {
        let (Some((tried, error)), Some(database)) = (&mut self.no_room, &self.database) else { return };
        if tried.elapsed() < REOPEN_PAUSE {
            return;
        }
        *tried = start();
        // A sync, a list or a compaction may be under way.
        if Arc::strong_count(database) > 1 || !room::is_there(&self.dir) {
            return;
        }
        let error = error.clone();
        self.close(&error);
        self.failed_at = None;
        match Database::open(&self.dir) {
            Ok(database) => {
                tracing::info!("the store can write again: it takes new requests");
                self.database = Some(Arc::new(database));
            }
            Err(error) => self.close(&error),
        }
    }

    /// Handles a failed write or sync, after which nobody knows what is on the disk.
    pub fn fail(&mut self, error: &Error) {
        tracing::error!(%error, "requests could not be written: the store is closed, and will be reopened soon");
        self.close(error);
    }

    /// Stops the compaction in the background.
    pub fn end(&mut self) {
        if let Some(database) = &self.database {
            self.room.end(database);
        }
    }

    fn close(&mut self, error: &Error) {
        if let Some(database) = self.database.take() {
            self.room.end(&database);
            self.closing = Arc::downgrade(&database);
        }
        self.failed_at = Some((start(), error.clone()));
        self.no_room = None;
        self.at_ease = 0;
        self.reserved.clear();
    }

    /// Reopens the database, if it has failed and the pause is over.
    fn reopen(&mut self) -> Result<(), Error> {
        let Some((at, error)) = &self.failed_at else { return Ok(()) };
        if at.elapsed() < REOPEN_PAUSE || self.closing.strong_count() > 0 {
            return Err(error.clone());
        }
        match Database::open(&self.dir) {
            Ok(database) => {
                tracing::info!("the store of requests is open again");
                (self.database, self.failed_at) = (Some(Arc::new(database)), None);
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
pub(super) fn start() -> Instant {
    Instant::now()
}

fn closed() -> Error {
    Error::Unavailable("it is closed".to_owned())
}

/// When an entry is removed that is remembered until `until_ms`: a precision of seconds is enough.
fn due_ms(until_ms: i64) -> i64 {
    until_ms.checked_add(DUE_STEP_MS - 1).map_or(until_ms, |ms| ms - ms.rem_euclid(DUE_STEP_MS))
}

/// When an outcome is given out. An answer, a decision by hand, and a reservation that must not be taken over: once it
/// is synced. A check, and any other reservation while a sync is late: once every request that waits for a sync now is
/// synced, so that a disk that hangs is noticed.
fn when(asked: &Asked, said: &Said, is_late: bool) -> When {
    match (asked, said) {
        (Asked::Reserve(wanted), Said::Found(Found::Answered(_))) => When::Synced(wanted.held.id),
        (Asked::Reserve(wanted), Said::Found(Found::Reserved { .. })) if wanted.on_in_doubt == OnInDoubt::Refuse => {
            When::Synced(wanted.held.id)
        }
        (Asked::Reserve(_), Said::Found(Found::Reserved { .. })) if is_late => When::AllSynced,
        (Asked::Complete(held, ..), Said::Kept(Kept::Yes)) => When::Synced(held.id),
        (Asked::Settle(id, ..), _) => When::Synced(*id),
        (Asked::Check, _) => When::AllSynced,
        _ => When::Now,
    }
}

/// A batch that is being put together.
struct Open<'a> {
    database: &'a Database,
    reading: Reading,
    reserved: &'a AHashMap<Id, RequestEntry>,
    run: [u8; 16],
    now_ms: i64,
    /// Why nothing can be written.
    no_room: Option<&'a Error>,
    /// Why requests that are not known are refused.
    refusal: Option<Error>,
    /// The entries that the batch writes, for later changes of the same batch.
    written: AHashMap<Id, Option<RequestEntry>>,
    batch: WriteBatch,
    to_sync: Vec<Id>,
    /// Whether it removes entries.
    has_removed: bool,
}

impl Open<'_> {
    fn carry_out(&mut self, asked: &Asked) -> Result<Said, Error> {
        match asked {
            Asked::Reserve(wanted) => self.reserve(wanted).map(Said::Found),
            Asked::Extend(held, lease) => self.change(*held, |before, now| entry::extend(before, *held, *lease, now)),
            Asked::Complete(held, answer, retention) => {
                let before = self.batch.len();
                let said = self.change(*held, |before, now| entry::complete(before, *held, answer, *retention, now));
                self.to_sync.extend((self.batch.len() > before).then_some(held.id));
                said
            }
            Asked::Release(held) => self.change(*held, |before, now| entry::release(before, *held, now)),
            Asked::Tidy => self.tidy(),
            Asked::Settle(id, decision, token) => {
                let before = self.entry(*id)?;
                let (settled, change) = entry::settle(before.as_ref(), decision, *token, self.run, self.now_ms);
                let is_to_sync = change != Change::None;
                self.write(*id, before, change)?;
                self.to_sync.extend(is_to_sync.then_some(*id));
                Ok(Said::Settled(settled))
            }
            Asked::Check => self.database.get(FORMAT_KEY).map(|_| Said::Checked),
        }
    }

    fn reserve(&mut self, wanted: &Wanted) -> Result<Found, Error> {
        let id = wanted.held.id;
        let before = self.entry(id)?;
        let (found, change) = entry::reserve(before.as_ref(), wanted, self.run, self.now_ms);
        if let Some(refusal) = self.refusal.as_ref().filter(|_| entry::current(before.as_ref(), self.now_ms).is_none())
        {
            return Err(refusal.clone());
        }
        let is_to_sync = wanted.on_in_doubt == OnInDoubt::Refuse && change != Change::None;
        self.write(id, before, change)?;
        self.to_sync.extend(is_to_sync.then_some(id));
        Ok(found)
    }

    fn entry(&self, id: Id) -> Result<Option<RequestEntry>, Error> {
        match (self.written.get(&id), self.reserved.get(&id)) {
            (Some(entry), _) => Ok(entry.clone()),
            (None, Some(entry)) => Ok(Some(entry.clone())),
            (None, None) => self.database.entry(id, self.reading),
        }
    }

    fn change(
        &mut self,
        held: Held,
        rule: impl FnOnce(Option<&RequestEntry>, i64) -> (Kept, Change),
    ) -> Result<Said, Error> {
        let before = self.entry(held.id)?;
        let (kept, change) = rule(before.as_ref(), self.now_ms);
        self.write(held.id, before, change)?;
        Ok(Said::Kept(kept))
    }

    fn write(&mut self, id: Id, before: Option<RequestEntry>, change: Change) -> Result<(), Error> {
        let after = match change {
            Change::None => return Ok(()),
            Change::Put(entry) => Some(entry),
            Change::Remove => None,
        };
        self.has_room()?;
        self.has_removed |= after.is_none();
        let due = |entry: &Option<RequestEntry>| entry.as_ref().map(|entry| due_ms(entry.until_ms));
        // A reservation and its answer mostly have the same removal time: then it is not written again.
        if due(&before) != due(&after) {
            due(&before).iter().for_each(|due| self.batch.delete(until_key(*due, id)));
            due(&after).iter().for_each(|due| self.batch.put(until_key(*due, id), []));
        }
        if let Some(before) = before.filter(|before| !self.is_of_this_run(before)) {
            // An earlier release wrote the removal time without rounding it.
            self.batch.delete(until_key(before.until_ms, id));
        }
        match &after {
            Some(entry) => self.batch.put(entry_key(id), entry.encode()),
            None => self.batch.delete(entry_key(id)),
        }
        self.written.insert(id, after);
        Ok(())
    }

    fn has_room(&self) -> Result<(), Error> {
        self.no_room.map_or(Ok(()), |error| Err(error.clone()))
    }

    fn is_of_this_run(&self, entry: &RequestEntry) -> bool {
        matches!(entry.state, RequestState::Reserved { run, .. } if run == self.run)
            || due_ms(entry.until_ms) == entry.until_ms
    }

    /// Removes the entries whose time has come. A time and its entry are written together, so the entry, which may be
    /// large or damaged, need not be read.
    fn tidy(&mut self) -> Result<Said, Error> {
        let due = self.database.due(self.now_ms)?;
        let count = due.len();
        if count > 0 {
            self.has_room()?;
            self.has_removed = true;
        }
        for (until_ms, id) in due {
            self.batch.delete(until_key(until_ms, id));
            // This batch may have written the entry anew, with a later time.
            let anew = self.written.get(&id).and_then(Option::as_ref);
            if anew.is_none_or(|entry| [entry.until_ms, due_ms(entry.until_ms)].contains(&until_ms)) {
                self.batch.delete(entry_key(id));
                self.written.insert(id, None);
            }
        }
        Ok(Said::Removed(count))
    }
}
