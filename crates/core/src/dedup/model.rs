//! One partition's task as a plain, sequential evaluator in memory. The engine's output is defined to equal its output;
//! it has no transactions, store or Kafka.

use std::collections::HashMap;
use std::sync::Arc;

use crate::record::Record;
use crate::schemas::Sources;

use super::decide::{Decision, reject};
use super::evaluate::{self, Evaluator, Memory, Subject};
use super::explain;
use super::progress::Progress;
use super::reader::{Reader, Reading, Rejection, Row};
use super::rules::Rules;
use super::vocabulary::{Action, Kind, Reason, Verdict};

/// What became of a record that was to be forwarded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Carried {
    /// It was.
    Out,
    /// It is refused: nothing is remembered of it.
    Refused(Rejection),
    /// It has failed for good, or may have: it is remembered, so that a repetition does not try again.
    Failed(Rejection),
    /// A sink's inbox has it already: it is a duplicate.
    InInbox,
}

/// Judges one partition's records one after the other and remembers all of them in memory.
///
/// Offsets skipped between ascending ones count as processed, as in the partition's log.
#[derive(Debug)]
pub struct Model {
    rules: Arc<Rules>,
    reader: Reader,
    evaluator: Evaluator,
    progress: Progress,
    entries: Entries,
    /// The offset after the last record's.
    next: Option<i64>,
    /// What was read from the last record.
    arena: Vec<u8>,
    reading: Option<Reading>,
    /// What the last record was compared with, as JSON.
    against: Option<String>,
    rejection: Option<Rejection>,
}

/// All entries, by store key.
#[derive(Clone, Debug, Default)]
struct Entries(HashMap<Box<[u8]>, Vec<u8>>);

impl<'a> Memory<'a> for &'a Entries {
    fn identity(&self, _row: usize, key: &[u8]) -> Option<&'a [u8]> {
        self.0.get(key).map(Vec::as_slice)
    }

    fn table(&self, row: usize, key: &[u8]) -> Option<&'a [u8]> {
        self.identity(row, key)
    }
}

impl Model {
    /// A task that has seen nothing yet, for records that name no schemas.
    pub fn new(rules: Arc<Rules>) -> Self {
        Self::with_schemas(rules, &Sources::default())
    }

    /// A task that has seen nothing yet. A record whose schema is still pending is rejected, so the sources should wait
    /// for schemas ([`crate::schemas::Schemas::wait_for`]).
    pub fn with_schemas(rules: Arc<Rules>, sources: &Sources) -> Self {
        Self {
            reader: Reader::with_schemas(Arc::clone(&rules), sources),
            evaluator: Evaluator::default(),
            rules,
            progress: Progress::default(),
            entries: Entries::default(),
            next: None,
            arena: Vec::new(),
            reading: None,
            against: None,
            rejection: None,
        }
    }

    /// Judges the next record; `wall_ms` is the wall clock, in milliseconds since the epoch. A record whose action is
    /// [`Action::Fail`] leaves everything as it was: the task would have stopped before it.
    pub fn judge(&mut self, record: &Record<'_>, wall_ms: i64) -> Decision {
        self.judge_and_carry(record, wall_ms, |_, _| Carried::Out)
    }

    /// Judges the next record, and carries it out by `carry` if it is to be forwarded, which gets its rows and what
    /// their ranges point into.
    pub fn judge_and_carry(
        &mut self,
        record: &Record<'_>,
        wall_ms: i64,
        carry: impl FnOnce(&[Row], &[u8]) -> Carried,
    ) -> Decision {
        self.judge_with(record, wall_ms, |reader, arena| reader.read(record, arena), carry)
    }

    /// Judges the next record as `read` reads it.
    fn judge_with(
        &mut self,
        record: &Record<'_>,
        wall_ms: i64,
        read: impl FnOnce(&mut Reader, &mut Vec<u8>) -> Reading,
        carry: impl FnOnce(&[Row], &[u8]) -> Carried,
    ) -> Decision {
        let Self { rules, reader, evaluator, progress, entries, arena, .. } = self;
        arena.clear();
        let reading = evaluate::read(progress, record.offset, || match read(reader, arena) {
            Reading::Pending(schema) => {
                Reading::Rejected(Rejection::new(Reason::ValueMalformed, format!("{schema} is not known yet")))
            }
            reading => reading,
        });
        let subject = Subject { record, reading: reading.as_ref(), arena };
        let evaluation = evaluator
            .evaluate((rules, wall_ms), progress, subject, &&*entries, || true)
            .expect("the model decodes what it encoded itself")
            .expect("the wall clock is the only one");
        let mut decision = evaluation.decision;
        let against = evaluator.compared_with(progress, subject, &&*entries, decision);
        self.against = against.map(|entry| explain::entry(&entry, &progress.epochs, rules));
        let rows = reading.as_ref().map(Reading::rows).unwrap_or_default();
        let (mut refused, mut is_remembered) = (None, true);
        if decision.action == Action::Forward {
            match carry(rows, arena) {
                Carried::Out => {}
                Carried::InInbox => {
                    decision = Decision {
                        verdict: Verdict::Duplicate,
                        reason: Reason::InInbox,
                        action: Action::Drop,
                        ..decision
                    };
                }
                Carried::Refused(rejection) => {
                    decision = reject(rules, &rejection);
                    (refused, is_remembered) = (Some(rejection), false);
                }
                Carried::Failed(rejection) => {
                    decision = reject(rules, &rejection);
                    refused = Some(rejection);
                }
            }
        }
        if decision.action != Action::Fail {
            if is_remembered {
                evaluator.remember(progress, subject, |_, key, entry| {
                    entries.0.insert(key.into(), entry.to_vec());
                });
            }
            if reading.is_some() {
                let from = self.next.filter(|&from| from <= record.offset).unwrap_or(record.offset);
                progress.processed.insert(from, record.offset.saturating_add(1));
            }
            self.next = Some(record.offset.saturating_add(1));
        }
        let is_read = evaluation.rejection.is_none() || evaluation.full.is_some();
        self.reading = reading.filter(|_| is_read);
        self.rejection = refused.or(evaluation.rejection);
        decision
    }

    /// What became of the last record after all, which was judged to be a repetition: it is rejected for this.
    pub fn reject_last(&mut self, rejection: Rejection) -> Decision {
        let decision = reject(&self.rules, &rejection);
        self.rejection = Some(rejection);
        decision
    }

    /// What the ranges of [`Model::rows`] point into.
    pub fn arena(&self) -> &[u8] {
        &self.arena
    }

    /// The rows read from the last record.
    pub fn rows(&self) -> &[Row] {
        self.reading.as_ref().map(Reading::rows).unwrap_or_default()
    }

    /// The last record's identity as JSON, a list of its parts, or a list of such lists for several rows. `None` if it
    /// was not read: rejected, or replayed.
    pub fn identity(&self) -> Option<String> {
        let mut rows = self.rows().iter().map(|row| explain::identity(&self.arena[row.key.clone()]));
        match self.rows() {
            [] | [_] => rows.next(),
            _ => Some(format!("[{}]", rows.collect::<Vec<_>>().join(","))),
        }
    }

    /// The last record's version as JSON, if it has one.
    pub fn version(&self) -> Option<String> {
        let range = self.rows().first()?.version.clone()?;
        Some(explain::version(&self.arena[range], &self.rules))
    }

    /// The last record's scope as JSON, a list of its parts, if it is in one.
    pub fn epoch(&self) -> Option<String> {
        let range = self.rows().first()?.scope.clone()?;
        Some(explain::epoch(&self.arena[range]))
    }

    /// The last record's kind of change; `None` if it was not read.
    pub fn kind(&self) -> Option<Kind> {
        Some(self.rows().first()?.kind)
    }

    /// What the last record was compared with, as JSON (see [`explain::entry`]); `None` if with nothing.
    pub fn against(&self) -> Option<&str> {
        self.against.as_deref()
    }

    /// The bytes of the last record's version, which sort as versions do within one epoch.
    pub fn version_bytes(&self) -> Option<&[u8]> {
        Some(&self.arena[self.rows().first()?.version.clone()?])
    }

    /// Why the last record could not be judged, if so.
    pub fn rejection(&self) -> Option<&Rejection> {
        self.rejection.as_ref()
    }

    /// What the task has seen.
    pub fn progress(&self) -> &Progress {
        &self.progress
    }

    /// Everything remembered, expired or not: store keys and entries, in no particular order.
    pub fn entries(&self) -> impl ExactSizeIterator<Item = (&[u8], &[u8])> {
        self.entries.0.iter().map(|(key, entry)| (&**key, entry.as_slice()))
    }
}

#[cfg(test)]
mod meaning;
#[cfg(test)]
mod tests;
