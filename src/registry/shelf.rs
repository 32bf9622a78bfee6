//! The schemas that are known, those that are absent, and those that are asked for.
//!
//! Bounds: at most [`ASKED_MAX`] schemas are asked for at once, and at most [`ABSENT_MAX`] are noted as absent: records
//! with any bytes may name any id. Those that are known are as many as the registry has.

use std::collections::hash_map::Entry as At;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock};
use std::time::Duration;

use ahash::AHashMap;
use tokio::time::Instant;

use crate::observe::SchemaMetrics;
use crate::schemas::{Id, LookUp, Written};

/// The most schemas that are asked for at once. Others are pending until there is room.
const ASKED_MAX: usize = 1_000;
/// The most schemas that are noted as absent.
const ABSENT_MAX: usize = 10_000;

/// A schema as it is kept.
pub type Kept = Arc<Written>;

/// What is known of a schema.
enum Entry {
    Known(Kept),
    Asked,
    Absent { why: String, until: Instant },
}

/// What is found of a schema.
#[derive(Debug)]
pub enum Found {
    /// It is known.
    Known(Kept),
    /// It is being asked for.
    Asked,
    /// There is none, and why.
    Absent(String),
    /// Nobody has asked yet.
    Unknown,
}

/// All that is known.
pub struct Shelf {
    entries: RwLock<Entries>,
    trouble: Mutex<Option<String>>,
    /// Those who wait for a change.
    waiting: (Mutex<()>, Condvar),
    metrics: SchemaMetrics,
}

#[derive(Default)]
struct Entries {
    by_id: AHashMap<Id, Entry>,
    known: usize,
    asked: usize,
    absent: usize,
}

impl std::fmt::Debug for Shelf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Shelf")
    }
}

impl Shelf {
    /// An empty one.
    pub fn new(metrics: SchemaMetrics) -> Self {
        Self { entries: RwLock::default(), trouble: Mutex::default(), waiting: Default::default(), metrics }
    }

    /// What is known of a schema now.
    pub fn find(&self, id: &Id) -> Found {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        match entries.by_id.get(id) {
            None => Found::Unknown,
            Some(Entry::Asked) => Found::Asked,
            Some(Entry::Known(written)) => Found::Known(Kept::clone(written)),
            Some(Entry::Absent { why, .. }) => Found::Absent(why.clone()),
        }
    }

    /// Notes that a schema is asked for; false if it is already, or there is no room for more now.
    pub fn begin(&self, id: &Id) -> bool {
        let mut entries = self.write();
        if entries.asked >= ASKED_MAX {
            return false;
        }
        match entries.by_id.entry(*id) {
            At::Occupied(_) => false,
            At::Vacant(vacant) => {
                vacant.insert(Entry::Asked);
                entries.asked += 1;
                true
            }
        }
    }

    /// A schema has come.
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

    /// There is no such schema, until then.
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

    /// Forgets the absent schemas whose time is over: they are asked for again when they are looked up.
    pub fn expire(&self, now: Instant) {
        self.write().forget_absent(|until| until <= now);
    }

    /// The schemas that are known.
    pub fn known(&self) -> Vec<(Id, Kept)> {
        let entries = self.entries.read().unwrap_or_else(PoisonError::into_inner);
        let known = entries.by_id.iter().filter_map(|(id, entry)| match entry {
            Entry::Known(written) => Some((*id, Kept::clone(written))),
            _ => None,
        });
        known.collect()
    }

    /// The registry has not answered, and why; true if that was not known.
    pub fn failed(&self, why: String) -> bool {
        let mut trouble = self.lock_trouble();
        let is_new = trouble.as_ref() != Some(&why);
        *trouble = Some(why);
        is_new
    }

    /// The registry has answered; true if it had not before.
    pub fn answered(&self) -> bool {
        self.lock_trouble().take().is_some()
    }

    /// Why the registry does not answer.
    pub fn trouble(&self) -> Option<String> {
        self.lock_trouble().clone()
    }

    /// Waits for a change until `look` finds something.
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
    /// Removes what is noted of a schema.
    fn take(&mut self, id: &Id) {
        match self.by_id.remove(id) {
            Some(Entry::Known(_)) => self.known -= 1,
            Some(Entry::Asked) => self.asked -= 1,
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
    //! Goal: any number of ids takes a bounded room, and a schema stays known.

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
    fn so_many_are_asked_for_at_once_and_no_more() {
        let shelf = shelf();
        assert!((0..ASKED_MAX).all(|number| shelf.begin(&id(number))));
        assert!(!shelf.begin(&id(0)) && !shelf.begin(&id(ASKED_MAX)));
        shelf.put(id(0), Written::alone(Language::Avro, "\"int\""));
        assert!(shelf.begin(&id(ASKED_MAX)) && !shelf.begin(&id(0)));
        assert!(matches!(shelf.find(&id(0)), Found::Known(_)));
    }

    #[test]
    fn absent_ones_are_forgotten_in_time_and_before_they_are_too_many() {
        let (shelf, now) = (shelf(), Instant::now());
        let (soon, later) = (now + Duration::from_secs(1), now + Duration::from_secs(2));
        shelf.put(id(0), Written::alone(Language::Avro, "\"int\""));
        shelf.absent(id(1), "gone".to_owned(), soon);
        shelf.absent(id(2), "gone".to_owned(), later);
        shelf.expire(soon);
        assert!(matches!(shelf.find(&id(1)), Found::Unknown) && matches!(shelf.find(&id(2)), Found::Absent(_)));
        (2..ABSENT_MAX + 3).for_each(|number| shelf.absent(id(number), "gone".to_owned(), later));
        assert!(shelf.write().absent <= ABSENT_MAX, "room is bounded");
        assert!(matches!(shelf.find(&id(0)), Found::Known(_)), "what is known stays");
    }
}
