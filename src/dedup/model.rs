//! One partition's task as a plain, sequential evaluator in memory: what the engine's output is defined
//! to equal, without transactions, store or Kafka.

use std::collections::HashMap;
use std::sync::Arc;

use crate::format::EntryRef;
use crate::record::Record;

use super::decide::{Decision, Judged, Known, check_time, decide, refuse, spokesman};
use super::progress::Progress;
use super::reader::{Candidate, Reader, Reading, Refusal};
use super::rules::Rules;
use super::vocabulary::{Action, Kind, Reason, Verdict};
use super::{epochs, explain};

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
    reading: Option<Reading>,
    /// What the last record was compared with, as JSON.
    against: Option<String>,
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
            reading: None,
            against: None,
            refusal: None,
        }
    }

    /// Judges the next record; `wall_ms` is the wall clock, in milliseconds since the epoch. A record whose
    /// action is [`Action::Fail`] leaves everything as it was: the task would have stopped in front of it.
    pub fn judge(&mut self, record: &Record<'_>, wall_ms: i64) -> Decision {
        self.judge_with(record, wall_ms, |reader, arena| reader.read(record, arena))
    }

    /// Judges the next record by what `read` makes of it.
    fn judge_with(
        &mut self,
        record: &Record<'_>,
        wall_ms: i64,
        read: impl FnOnce(&mut Reader, &mut Vec<u8>) -> Reading,
    ) -> Decision {
        self.arena.clear();
        self.reading = None;
        self.against = None;
        self.refusal = None;
        if self.progress.is_replayed(record.offset) {
            self.next = Some(record.offset.saturating_add(1));
            return Decision::REPLAYED;
        }
        let before = (self.progress.stream_time, self.progress.horizon);
        let decision = self.judge_new(record, wall_ms, read);
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

    fn judge_new(
        &mut self,
        record: &Record<'_>,
        wall_ms: i64,
        read: impl FnOnce(&mut Reader, &mut Vec<u8>) -> Reading,
    ) -> Decision {
        if let Some(refusal) = check_time(&self.rules, &self.progress, record.timestamp, wall_ms) {
            return self.refuse(refusal);
        }
        self.progress.advance(&self.rules, record.timestamp);
        match read(&mut self.reader, &mut self.arena) {
            Reading::Refused(refusal) => return self.refuse(refusal),
            reading => self.reading = Some(reading),
        }
        let decided: Vec<(Decision, Option<String>)> =
            self.rows().iter().map(|row| self.decide_row(record, row)).collect();
        let Some(decision) = spokesman(decided.iter().map(|(decision, _)| *decision)) else {
            unreachable!("a record that was read has a row")
        };
        self.against = decided.iter().find(|(row, _)| *row == decision).and_then(|(_, against)| against.clone());
        if decision.action != Action::Fail
            && let Err(error) = self.remember(record, &decided)
        {
            self.refusal = Some(Refusal::new(Reason::EpochChanged, error.to_string()));
            return Decision { action: Action::Fail, verdict: Verdict::Invalid, ..decision };
        }
        decision
    }

    /// What is decided of a row, and what it was compared with.
    fn decide_row(&self, record: &Record<'_>, row: &Candidate) -> (Decision, Option<String>) {
        let known = self.known(row);
        let decision = decide(&self.rules, &self.progress, &Judged::of(row, &self.arena, record), known);
        let against =
            decision.compared_with(known).map(|entry| explain::entry(&entry, &self.progress.epochs, &self.rules));
        (decision, against)
    }

    /// What is remembered of a row's identity and of its table.
    fn known(&self, row: &Candidate) -> Known<'_> {
        // The model decodes what it encoded itself.
        let entry = |key: &[u8]| self.entries.get(key).and_then(|bytes| EntryRef::decode(bytes).ok());
        let table = row.table.clone().filter(|_| self.progress.truncates > 0);
        Known { entry: entry(&self.arena[row.key.clone()]), table: table.and_then(|key| entry(&self.arena[key])) }
    }

    /// Notes what was decided of the rows, and remembers their entries. On an error nothing was changed.
    fn remember(&mut self, record: &Record<'_>, decided: &[(Decision, Option<String>)]) -> Result<(), epochs::Error> {
        let rows = self.reading.as_ref().map(Reading::rows).unwrap_or_default();
        let before = (decided.len() > 1).then(|| self.progress.clone());
        for (row, (decision, _)) in rows.iter().zip(decided) {
            if let Err(error) = self.progress.note(&Judged::of(row, &self.arena, record), decision) {
                self.progress = before.unwrap_or_else(|| self.progress.clone());
                return Err(error);
            }
        }
        let mut entries = Vec::new();
        for (row, (decision, _)) in rows.iter().zip(decided) {
            let mut bytes = Vec::new();
            let version = row.version.clone().map(|range| &self.arena[range]);
            if decision.encode_entry(version, self.known(row).entry, &mut bytes) {
                entries.push((self.arena[row.key.clone()].into(), bytes));
            }
        }
        self.entries.extend(entries);
        Ok(())
    }

    fn refuse(&mut self, refusal: Refusal) -> Decision {
        let decision = refuse(&self.rules, &refusal);
        self.refusal = Some(refusal);
        decision
    }

    /// What was read of the last record.
    fn rows(&self) -> &[Candidate] {
        self.reading.as_ref().map(Reading::rows).unwrap_or_default()
    }

    /// The last record's identity as JSON, a list of its parts; that of several rows is a list of theirs. `None`
    /// where it was not read: refused, or replayed.
    pub fn identity(&self) -> Option<String> {
        let mut rows = self.rows().iter().map(|row| explain::identity(&self.arena[row.key.clone()]));
        match self.rows() {
            [] | [_] => rows.next(),
            _ => Some(format!("[{}]", rows.collect::<Vec<_>>().join(","))),
        }
    }

    /// The last record's version as JSON; `None` where it has none.
    pub fn version(&self) -> Option<String> {
        let range = self.rows().first()?.version.clone()?;
        Some(explain::version(&self.arena[range], &self.rules))
    }

    /// The last record's scope as JSON, a list of its parts; `None` where it is in none.
    pub fn epoch(&self) -> Option<String> {
        let range = self.rows().first()?.scope.clone()?;
        Some(explain::epoch(&self.arena[range]))
    }

    /// What kind of change the last record is; `None` where it was not read.
    pub fn kind(&self) -> Option<Kind> {
        Some(self.rows().first()?.kind)
    }

    /// What the last record was compared with, as JSON: see [`explain::entry`]. `None` where it was with nothing.
    pub fn against(&self) -> Option<&str> {
        self.against.as_deref()
    }

    /// The bytes of the last record's version, which sort as versions do within one epoch.
    pub fn version_bytes(&self) -> Option<&[u8]> {
        Some(&self.arena[self.rows().first()?.version.clone()?])
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
mod meaning;
#[cfg(test)]
mod tests;
