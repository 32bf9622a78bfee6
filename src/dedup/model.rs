//! One partition's task as a plain, sequential evaluator in memory: what the engine's output is defined
//! to equal, without transactions, store or Kafka.

use std::collections::HashMap;
use std::sync::Arc;

use crate::format::{self, EntryRef};
use crate::record::Record;

use super::decide::{Decision, check_time, decide, refuse};
use super::progress::Progress;
use super::reader::{Candidate, Reader, Reading, Refusal};
use super::rules::Rules;
use super::vocabulary::Action;
use super::{identity, version};

/// Judges one partition's records, one after the other, and remembers all of them in memory.
///
/// Where offsets go up, those in between are taken as processed, as they would be in the partition's log.
#[derive(Debug)]
pub struct Model {
    rules: Arc<Rules>,
    reader: Reader,
    progress: Progress,
    entries: HashMap<Box<[u8]>, Vec<u8>>,
    /// The offset after the last record.
    next: Option<i64>,
    /// What was read of the last record.
    arena: Vec<u8>,
    candidate: Option<Candidate>,
    refusal: Option<Refusal>,
}

impl Model {
    /// A task that has seen nothing yet.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self {
            reader: Reader::new(Arc::clone(&rules)),
            rules,
            progress: Progress::default(),
            entries: HashMap::new(),
            next: None,
            arena: Vec::new(),
            candidate: None,
            refusal: None,
        }
    }

    /// Judges the next record; `wall_ms` is the wall clock, in milliseconds since the epoch. A record whose
    /// action is [`Action::Fail`] leaves everything as it was: the task would have stopped in front of it.
    pub fn judge(&mut self, record: &Record<'_>, wall_ms: i64) -> Decision {
        self.arena.clear();
        self.candidate = None;
        self.refusal = None;
        if self.progress.is_replayed(record.offset) {
            self.next = Some(record.offset.saturating_add(1));
            return Decision::REPLAYED;
        }
        let before = (self.progress.stream_time, self.progress.horizon);
        let decision = self.judge_new(record, wall_ms);
        if decision.action == Action::Fail {
            (self.progress.stream_time, self.progress.horizon) = before;
            return decision;
        }
        let next = record.offset.saturating_add(1);
        let from = self.next.filter(|&from| from <= record.offset).unwrap_or(record.offset);
        self.progress.processed.insert(from, next);
        self.next = Some(next);
        decision
    }

    fn judge_new(&mut self, record: &Record<'_>, wall_ms: i64) -> Decision {
        if let Some(refusal) = check_time(&self.rules, &self.progress, record.timestamp, wall_ms) {
            return self.refuse(refusal);
        }
        self.progress.advance(&self.rules, record.timestamp);
        let candidate = match self.reader.read(record, &mut self.arena) {
            Reading::Candidate(candidate) => self.candidate.insert(candidate),
            Reading::Rows(_) => unreachable!("nothing is read row by row yet"),
            Reading::Refused(refusal) => return self.refuse(refusal),
        };
        let key = &self.arena[candidate.key.clone()];
        let version = candidate.version.clone().map(|range| &self.arena[range]);
        // The model decodes what it encoded itself.
        let entry = self.entries.get(key).and_then(|bytes| EntryRef::decode(bytes).ok());
        let key_hash = record.key.map(format::key_hash);
        let decision = decide(&self.rules, &self.progress, entry, version, record.timestamp, key_hash);
        let mut bytes = Vec::new();
        if decision.encode_entry(version, &mut bytes) {
            self.entries.insert(key.into(), bytes);
        }
        decision
    }

    fn refuse(&mut self, refusal: Refusal) -> Decision {
        let decision = refuse(&self.rules, &refusal);
        self.refusal = Some(refusal);
        decision
    }

    /// The last record's identity in human-readable form: see [`identity::describe`]. `None` where it was
    /// not read: refused, or replayed.
    pub fn identity(&self) -> Option<String> {
        self.candidate.as_ref().map(|candidate| identity::describe(&self.arena[candidate.key.clone()]))
    }

    /// The last record's version in human-readable form: see [`version::describe`]. `None` where it has none.
    pub fn version(&self) -> Option<String> {
        let range = self.candidate.as_ref()?.version.clone()?;
        Some(version::describe(&self.arena[range]))
    }

    /// The bytes of the last record's version, which sort as versions do within one epoch.
    pub fn version_bytes(&self) -> Option<&[u8]> {
        Some(&self.arena[self.candidate.as_ref()?.version.clone()?])
    }

    /// Why the last record could not be judged; `None` where it could.
    pub fn refusal(&self) -> Option<&Refusal> {
        self.refusal.as_ref()
    }

    /// What the task has seen.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Everything that is remembered, expired or not: store keys and entries, in no order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.entries.iter().map(|(key, entry)| (&**key, entry.as_slice()))
    }
}

#[cfg(test)]
mod tests;
