//! What a store has written, and how much of that is on the disk.
//!
//! Writes go into one log: a sync takes all that was written before, and a crash of the machine loses the end of what was
//! written since, never something from the middle. An entry and the time at which it is to be forgotten are written
//! together.

use std::collections::{BTreeSet, HashMap};

use ratchet::format::request::{RequestEntry, RequestState};
use ratchet::http::request::Id;
use ratchet::http::request::entry::Change;

#[derive(Default)]
pub struct Memory {
    entries: HashMap<Id, RequestEntry>,
    /// When each is to be forgotten.
    times: BTreeSet<(i64, Id)>,
    /// What a crash leaves, and what was written after it.
    synced: HashMap<Id, RequestEntry>,
    unsynced: Vec<(Id, Option<RequestEntry>)>,
}

/// What a crash has taken.
pub struct Lost {
    pub writes: usize,
    /// Whether a request is not known any more that was reserved.
    pub has_reservation: bool,
}

impl Memory {
    pub fn get(&self, id: Id) -> Option<RequestEntry> {
        self.entries.get(&id).cloned()
    }

    /// Writes what has become of an entry. `keeps_time`: by mistake, the time at which it was to be forgotten stays.
    pub fn put(&mut self, id: Id, change: Change, keeps_time: bool) {
        let after = match change {
            Change::None => return,
            Change::Put(entry) => Some(entry),
            Change::Remove => None,
        };
        let before = self.entries.get(&id);
        if !(keeps_time && before.is_some() && after.is_some()) {
            if let Some(entry) = before {
                self.times.remove(&(entry.remembered_until_ms, id));
            }
            self.times.extend(after.iter().map(|entry| (entry.remembered_until_ms, id)));
        }
        self.write(id, after);
    }

    fn write(&mut self, id: Id, after: Option<RequestEntry>) {
        match after.clone() {
            Some(entry) => drop(self.entries.insert(id, entry)),
            None => drop(self.entries.remove(&id)),
        }
        self.unsynced.push((id, after));
    }

    /// Removes some of what is to be forgotten by now; how many.
    pub fn tidy(&mut self, now_ms: i64, max: usize) -> usize {
        let due: Vec<_> =
            self.times.iter().take_while(|(until_ms, _)| *until_ms <= now_ms).take(max).copied().collect();
        for (until_ms, id) in &due {
            self.times.remove(&(*until_ms, *id));
            self.write(*id, None);
        }
        due.len()
    }

    /// How many were to be forgotten by then.
    pub fn over(&self, now_ms: i64) -> usize {
        self.entries.values().filter(|entry| entry.remembered_until_ms <= now_ms).count()
    }

    /// All that was written is on the disk.
    pub fn sync(&mut self) {
        self.synced.clone_from(&self.entries);
        self.unsynced.clear();
    }

    /// How much was written since.
    pub fn unsynced(&self) -> usize {
        self.unsynced.len()
    }

    /// The machine crashes: of what was written since the last sync only so much is there.
    pub fn crash(&mut self, kept: usize) -> Lost {
        self.entries = std::mem::take(&mut self.synced);
        let mut written = std::mem::take(&mut self.unsynced);
        let lost = written.split_off(kept);
        for (id, after) in written {
            match after {
                Some(entry) => drop(self.entries.insert(id, entry)),
                None => drop(self.entries.remove(&id)),
            }
        }
        self.times = self.entries.iter().map(|(id, entry)| (entry.remembered_until_ms, *id)).collect();
        self.sync();
        let is_reservation = |(id, after): &(Id, Option<RequestEntry>)| {
            after.as_ref().is_some_and(|entry| matches!(entry.state, RequestState::Reserved { .. }))
                && !self.entries.contains_key(id)
        };
        Lost { writes: lost.len(), has_reservation: lost.iter().any(is_reservation) }
    }
}
