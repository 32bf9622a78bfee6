//! The schemas that are known, absent, or being fetched.
//!
//! Bounds: at most [`FETCHING_MAX`] schemas are being fetched, and at most [`ABSENT_MAX`] are remembered as absent,
//! since damaged records can name any id. Known schemas are as many as the registry has.

use std::collections::hash_map::Entry as At;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ahash::AHashMap;
use tokio::time::Instant;

use crate::observe::SchemaMetrics;
use crate::schemas::{Id, LookUp, Written};

/// How many schemas are fetched at once. Others are pending until one of these has arrived or is absent.
const FETCHING_MAX: usize = 1_000;
/// How many schemas are remembered as absent.
const ABSENT_MAX: usize = 10_000;

/// A known schema.
pub type Kept = Arc<Written>;

/// The state of a schema.
enum Entry {
    Known(Kept),
    Fetching,
    Absent { why: String, until: Instant },
}

/// The result of looking for a schema.
#[derive(Debug)]
pub enum Found {
    /// The schema.
    Known(Kept),
    /// It is being fetched.
    Fetching,
    /// The registry does not have it, or ratchet cannot use it; the text says why.
    Absent(String),
    /// It has not been requested.
    Unknown,
}

/// The states of all schemas.
pub struct Shelf {
    entries: RwLock<Entries>,
    trouble: Mutex<Option<String>>,
    /// Wakes threads that wait until an entry changes.
    waiting: (Mutex<()>, Condvar),
    metrics: SchemaMetrics,
}

#[derive(Default)]
struct Entries {
    by_id: AHashMap<Id, Entry>,
    known: usize,
    fetching: usize,
    absent: usize,
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shelf")
    }
}

impl Shelf {
    /// An empty shelf.
    pub fn new(metrics: SchemaMetrics) -> Self {
        Self { entries: RwLock::default(), trouble: Mutex::default(), waiting: Default::default(), metrics }
    }

    /// Looks for a schema.
    pub fn find(&self, id: &Id) -> Found {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        match entries.by_id.get(id) {
            None => Found::Unknown,
            Some(Entry::Fetching) => Found::Fetching,
            Some(Entry::Known(written)) => Found::Known(Kept::clone(written)),
            Some(Entry::Absent { why, .. }) => Found::Absent(why.clone()),
        }
    }

    /// Records that a schema is being fetched; false if it has an entry, or if too many are being fetched.
    pub fn begin(&self, id: &Id) -> bool {
        let mut entries = self.write();
        if entries.fetching >= FETCHING_MAX {
            return false;
        }
        match entries.by_id.entry(*id) {
            At::Occupied(_) => false,
            At::Vacant(vacant) => {
                vacant.insert(Entry::Fetching);
                entries.fetching += 1;
                true
            }
        }
    }

    /// Adds a schema that was fetched.
    pub fn put(&self, id: Id, written: Written) {
        let known = {
            let mut entries = self.write();
            entries.take(&id);
            entries.by_id.insert(id, Entry::Known(Kept::new(written)));
            entries.known += 1;
            entries.known
        };
        self.metrics.known(known);
        self.changed();
    }

    /// Records that a schema is absent, until then.
    pub fn absent(&self, id: Id, why: String, until: Instant) {
        {
            let mut entries = self.write();
            entries.take(&id);
            if entries.absent >= ABSENT_MAX {
                entries.forget_absent(|_| true);
            }
            entries.by_id.insert(id, Entry::Absent { why, until });
            entries.absent += 1;
        }
        self.changed();
    }

    /// Forgets absent schemas whose time is over; the next look-up requests them again.
    pub fn expire(&self, now: Instant) {
        self.write().forget_absent(|until| until <= now);
    }

    /// All known schemas.
    pub fn known(&self) -> Vec<(Id, Kept)> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let known = entries.by_id.iter().filter_map(|(id, entry)| match entry {
            Entry::Known(written) => Some((*id, Kept::clone(written))),
            _ => None,
        });
        known.collect()
    }

    /// Records why the registry has not answered.
    pub fn failed(&self, why: String) {
        *self.lock_trouble() = Some(why);
    }

    /// Records that the registry has answered.
    pub fn answered(&self) {
        *self.lock_trouble() = None;
    }

    /// Why the registry has not answered last; `None` if it has.
    pub fn trouble(&self) -> Option<String> {
        self.lock_trouble().clone()
    }

    /// Waits until `look` finds something, at most for this time.
    pub fn wait(&self, wait: Duration, look: impl Fn() -> Option<LookUp>) -> LookUp {
        let (lock, changed) = &self.waiting;
        let (mut found, guard) = (look(), lock.lock().unwrap_or_else(PoisonError::into_inner));
        let waited = changed.wait_timeout_while(guard, wait, |()| {
            found = found.take().or_else(&look);
            found.is_none()
        });
        drop(waited);
        found.unwrap_or(LookUp::Pending)
    }

    fn changed(&self) {
        let (lock, changed) = &self.waiting;
        drop(lock.lock().unwrap_or_else(PoisonError::into_inner));
        changed.notify_all();
    }

    fn write(&self) -> std::sync::RwLockWriteGuard<'_, Entries> {
        self.entries.write().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_trouble(&self) -> MutexGuard<'_, Option<String>> {
        self.trouble.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Entries {
    /// Removes a schema's entry.
    fn take(&mut self, id: &Id) {
        match self.by_id.remove(id) {
            Some(Entry::Known(_)) => self.known -= 1,
            Some(Entry::Fetching) => self.fetching -= 1,
            Some(Entry::Absent { .. }) => self.absent -= 1,
            None => {}
        }
    }

    fn forget_absent(&mut self, is_over: impl Fn(Instant) -> bool) {
        self.by_id.retain(|_, entry| !matches!(entry, Entry::Absent { until, .. } if is_over(*until)));
        self.absent = self.by_id.values().filter(|entry| matches!(entry, Entry::Absent { .. })).count();
    }
}

#[cfg(test)]
mod tests {
    //! Goal: any number of ids takes bounded memory, and a schema stays known.

    use super::*;
    use crate::observe::Metrics;
    use crate::schemas::Language;

    fn shelf() -> Shelf {
        Shelf::new(Metrics::new().schemas())
    }

    fn id(number: usize) -> Id {
        Id::Number(u32::try_from(number).unwrap())
    }

    #[test]
    fn number_of_schemas_that_are_fetched_at_once_is_bounded() {
        let shelf = shelf();
        assert!((0..FETCHING_MAX).all(|number| shelf.begin(&id(number))));
        assert!(!shelf.begin(&id(0)) && !shelf.begin(&id(FETCHING_MAX)));
        shelf.put(id(0), Written::alone(Language::Avro, "\"int\""));
        assert!(shelf.begin(&id(FETCHING_MAX)) && !shelf.begin(&id(0)));
        assert!(matches!(shelf.find(&id(0)), Found::Known(_)));
    }

    #[test]
    fn absent_schemas_are_forgotten_when_their_time_is_over_or_they_are_too_many() {
        let (shelf, now) = (shelf(), Instant::now());
        let (soon, later) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        shelf.put(id(0), Written::alone(Language::Avro, "\"int\""));
        shelf.absent(id(1), "gone".to_owned(), soon);
        shelf.absent(id(2), "gone".to_owned(), later);
        shelf.expire(soon);
        assert!(matches!(shelf.find(&id(1)), Found::Unknown) && matches!(shelf.find(&id(2)), Found::Absent(_)));
        (2..ABSENT_MAX + 3).for_each(|number| shelf.absent(id(number), "gone".to_owned(), later));
        assert!(shelf.write().absent <= ABSENT_MAX, "memory is bounded");
        assert!(matches!(shelf.find(&id(0)), Found::Known(_)), "a known schema stays");
    }
}
