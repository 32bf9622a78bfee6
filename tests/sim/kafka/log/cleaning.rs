//! The cleaner: what it removes of a log, and when.

use std::collections::{BTreeSet, HashMap};

use super::super::{Bytes, Time};
use super::{Body, Entry, Log, Record};

/// How many records the cleaner has removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cleaned {
    /// Aborted records, and those with a later record of the same key.
    pub superseded: usize,
    /// Tombstones that were the last of their key and were kept for long enough.
    pub tombstones: usize,
}

impl Log {
    /// Runs the cleaner over everything below `dirty_end` (the active segment's first offset), but not over open
    /// transactions (`LogCleanerManager.cleanableOffsets`). The last committed record of each key stays; aborted
    /// records go; a tombstone, or a marker whose records are gone, stays for `delete_retention` after the first pass
    /// that met it (KIP-534, `Cleaner.shouldRetainRecord`). Returns how many records were removed.
    pub fn compact(&mut self, dirty_end: i64, now: Time, delete_retention: Time) -> Cleaned {
        let bound = dirty_end.min(self.stable_end());
        let mut last: HashMap<Bytes, i64> = HashMap::new();
        for entry in self.entries.iter().take_while(|entry| entry.offset < bound) {
            if let Body::Record(Record { key: Some(key), .. }) = &entry.body
                && !self.is_aborted(entry)
            {
                last.insert(key.clone(), entry.offset);
            }
        }
        let mut cleaned = Cleaned::default();
        self.clean(bound, |entry, is_over| {
            let (stays, may_go) = match &entry.body {
                Body::Record(record) => {
                    let is_last = record.key.as_ref().is_some_and(|key| last.get(key) == Some(&entry.offset));
                    (is_last && !is_over, record.value.is_none())
                }
                Body::Marker { .. } => (true, is_over),
                Body::Emptied => (false, false),
            };
            if !may_go {
                entry.horizon = None;
            }
            let goes = !stays || may_go && now >= *entry.horizon.get_or_insert(now + delete_retention);
            let is_record = matches!(entry.body, Body::Record(_));
            cleaned.superseded += usize::from(is_record && !stays);
            cleaned.tombstones += usize::from(is_record && stays && goes);
            !goes
        });
        cleaned
    }

    /// The same by any rule: whether a committed record stays, and whether what is left of an emptied batch does, or a
    /// marker without records.
    pub fn thin(&mut self, dirty_end: i64, mut stays: impl FnMut() -> bool, mut is_kept: impl FnMut() -> bool) {
        let bound = dirty_end.min(self.stable_end());
        self.clean(bound, |entry, is_over| match &entry.body {
            Body::Record(_) => !is_over && stays(),
            Body::Marker { .. } => !is_over || is_kept(),
            Body::Emptied => is_kept(),
        });
    }

    /// Runs the cleaner over all batches below `bound`: asks what stays. Over is a record that was aborted, and a marker
    /// of which no record is left.
    fn clean(&mut self, bound: i64, mut stays: impl FnMut(&mut Entry, bool) -> bool) {
        let aborted = self.entries.iter().filter(|entry| self.is_aborted(entry)).map(|entry| entry.offset);
        let aborted: BTreeSet<i64> = aborted.collect();
        let mut entries = std::mem::take(&mut self.entries).into_iter().peekable();
        // The producers with records before the next marker, and whether something is left of the present batch.
        let (mut with_records, mut is_left) = (BTreeSet::new(), false);
        while let Some(mut entry) = entries.next() {
            if entry.reaches() >= bound {
                self.entries.push_back(entry);
                continue;
            }
            let is_marker = matches!(entry.body, Body::Marker { .. });
            let is_over = match entry.producer.filter(|_| is_marker) {
                Some(producer) => !with_records.remove(&producer),
                None => aborted.contains(&entry.offset),
            };
            if is_marker && is_over {
                // A reader that is told of the transaction waits for its marker (`CleanedTransactionMetadata`).
                self.aborted.retain(|aborted| aborted.last != entry.offset);
            }
            let mut is_kept = stays(&mut entry, is_over);
            let ends_batch = entries.peek().is_none_or(|next| next.reaches() != entry.reaches());
            if !is_kept && !is_left && ends_batch && entry.batch.is_some() && matches!(entry.body, Body::Record(_)) {
                entry.body = Body::Emptied;
                is_kept = stays(&mut entry, false);
            }
            is_left = !ends_batch && (is_left || is_kept);
            if is_kept {
                if !is_marker {
                    with_records.extend(entry.producer);
                }
                self.entries.push_back(entry);
            }
        }
    }
}
