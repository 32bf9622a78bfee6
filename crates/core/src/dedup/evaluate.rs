//! Takes a record through the rules, in the order that [`mod@super::decide`] documents. The engine and [`super::Model`]
//! both use this, each with its own [`Memory`].
//!
//! [`read`] comes first, then [`Evaluator::evaluate`] decides. Once the record has gone where the decision says,
//! [`Evaluator::remember`] stores what to remember. A record that the output refuses is not remembered.
//!
//! **Failure.** Scopes that cannot be kept are found before anything is done with the record: its action is then
//! [`Action::Fail`], whatever the rules say.

use std::ops::Range;

use crate::format::{self, EntryRef, Remembered};
use crate::record::Record;

use super::decide::{Candidate, Decision, Known, Remember, check_time, combine, decide, reject};
use super::epochs::{self, Epochs, Step};
use super::progress::Progress;
use super::reader::{Reading, Rejection, Row};
use super::rules::Rules;
use super::vocabulary::{Action, Kind, Reason, Verdict};

/// The entries that a task remembers, as bytes, expired or not.
pub trait Memory<'m> {
    /// The entry for a row's identity: `row` counts the record's rows from 0, `key` is the store key.
    fn identity(&self, row: usize, key: &[u8]) -> Option<&'m [u8]>;

    /// The entry for a row's table.
    fn table(&self, row: usize, key: &[u8]) -> Option<&'m [u8]>;
}

/// Calls `read`, unless the record at this offset has already been processed: then nothing else is looked at.
#[inline]
pub fn read(progress: &Progress, offset: i64, read: impl FnOnce() -> Reading) -> Option<Reading> {
    (!progress.is_replayed(offset)).then(read)
}

/// A record with what was read from it.
#[derive(Clone, Copy, Debug)]
pub struct Subject<'a> {
    /// The record.
    pub record: &'a Record<'a>,
    /// What [`read`] returned.
    pub reading: Option<&'a Reading>,
    /// What the reading's ranges point into.
    pub arena: &'a [u8],
}

impl<'a> Subject<'a> {
    fn rows(&self) -> &'a [Row] {
        self.reading.map(Reading::rows).unwrap_or_default()
    }

    fn candidate(&self, row: &Row) -> Candidate<'a> {
        Candidate::of(row, self.arena, self.record)
    }

    /// What is remembered of a row.
    fn known<'m>(
        &self,
        memory: &impl Memory<'m>,
        progress: &Progress,
        index: usize,
        row: &Row,
    ) -> Result<Known<'m>, format::Error> {
        let key = |range: &Range<usize>| &self.arena[range.clone()];
        let entry = memory.identity(index, key(&row.key));
        // Until something is truncated, no table has an entry.
        let table = row.table.as_ref().filter(|_| progress.truncates > 0);
        let table = table.and_then(|table| memory.table(index, key(table)));
        let settled = |bytes: Option<&'m [u8]>| bytes.map(Remembered::decode_settled).transpose().map(Option::flatten);
        Ok(Known { entry: settled(entry)?, table: settled(table)? })
    }
}

/// What to do with a record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evaluation {
    /// The decision on all of its rows together.
    pub decision: Decision,
    /// Why it could not be judged, if so.
    pub rejection: Option<Rejection>,
    /// Why the task must stop before it although no rule says so.
    pub full: Option<epochs::Error>,
}

impl From<Decision> for Evaluation {
    fn from(decision: Decision) -> Self {
        Self { decision, rejection: None, full: None }
    }
}

/// Evaluates records one after the other, reusing its buffers.
#[derive(Debug, Default)]
pub struct Evaluator {
    /// The decisions on the current record, row by row.
    rows: Vec<Decided>,
    /// The entries to remember for it.
    entries: Vec<u8>,
    /// The scopes after it, if it starts a scope or a segment.
    epochs: Option<Epochs>,
}

/// What a record leaves behind once what it causes is settled.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Kept {
    /// The entry of its identity, if that changes.
    pub entry: Option<Vec<u8>>,
    /// The scopes after it, if it starts a scope or a segment.
    started: Option<Epochs>,
    /// The number of its scope, and the version that is reached there.
    seen: Option<(u16, Vec<u8>)>,
    is_truncate: bool,
    /// The new scope, if the epoch changes.
    changed: Option<Vec<u8>>,
}

impl Kept {
    /// Whether it changes how records of other identities are judged: nothing behind it can be judged before it is
    /// settled, and it cannot be settled before everything that precedes it.
    pub fn concerns_others(&self) -> bool {
        self.started.is_some() || self.is_truncate
    }

    /// The same with another entry.
    pub fn with_entry(self, entry: Vec<u8>) -> Self {
        Self { entry: Some(entry), ..self }
    }

    /// Starts its scope or segment, if it does: what is reserved for it names the scope by its number.
    pub fn start(&self, progress: &mut Progress) {
        self.started.iter().for_each(|epochs| progress.epochs.clone_from(epochs));
    }

    /// Changes what decisions depend on besides the entries. Returns the new scope if the epoch changes.
    pub fn note(&self, progress: &mut Progress, offset: i64) -> Option<&[u8]> {
        match (&self.started, &self.seen) {
            (Some(epochs), _) => progress.epochs.clone_from(epochs),
            (None, Some((scope, version))) => progress.epochs.seen(*scope, version, offset),
            (None, None) => {}
        }
        progress.truncates += u64::from(self.is_truncate);
        self.changed.as_deref()
    }
}

/// The decision on a row.
#[derive(Debug)]
struct Decided {
    decision: Decision,
    /// Where the entry to remember is.
    entry: Option<Range<usize>>,
}

impl Evaluator {
    /// Decides what to do with the record; `wall_ms` is the wall clock, in milliseconds since the epoch. Returns
    /// `None`, with nothing changed, if the record's schema is not known yet ([`Reading::Pending`]), or if the
    /// timestamp is too far in the future by that clock but `is_clock_certain` returns false. Stream time and horizon
    /// move with every record whose timestamp can be believed, unless the task stops before it.
    pub fn evaluate<'m>(
        &mut self,
        (rules, wall_ms): (&Rules, i64),
        progress: &mut Progress,
        subject: Subject<'_>,
        memory: &impl Memory<'m>,
        is_clock_certain: impl FnOnce() -> bool,
    ) -> Result<Option<Evaluation>, format::Error> {
        self.rows.clear();
        self.entries.clear();
        self.epochs = None;
        let Some(reading) = subject.reading else { return Ok(Some(Decision::REPLAYED.into())) };
        if let Reading::Pending(_) = reading {
            return Ok(None);
        }
        if let Some(rejection) = check_time(rules, progress, subject.record.timestamp, wall_ms) {
            return Ok(is_clock_certain().then(|| rejected(rules, rejection)));
        }
        let before = (progress.stream_time, progress.horizon);
        progress.advance(rules, subject.record.timestamp);
        let evaluation = match reading {
            Reading::Rejected(rejection) => rejected(rules, rejection.clone()),
            reading => self.decide(rules, progress, subject, (reading.rows(), memory))?,
        };
        if evaluation.decision.action == Action::Fail {
            (progress.stream_time, progress.horizon) = before;
        }
        Ok(Some(evaluation))
    }

    fn decide<'m>(
        &mut self,
        rules: &Rules,
        progress: &Progress,
        subject: Subject<'_>,
        (rows, memory): (&[Row], &impl Memory<'m>),
    ) -> Result<Evaluation, format::Error> {
        for (index, row) in rows.iter().enumerate() {
            let known = subject.known(memory, progress, index, row)?;
            let candidate = subject.candidate(row);
            let decision = decide(rules, progress, &candidate, known);
            let start = self.entries.len();
            let has_entry = decision.encode_entry(&candidate, known.entry, &mut self.entries);
            self.rows.push(Decided { decision, entry: has_entry.then_some(start..self.entries.len()) });
        }
        let decision = match &self.rows[..] {
            [only] => only.decision,
            rows => combine(rows.iter().map(|row| row.decision)).expect("a record that was read has a row"),
        };
        if decision.action == Action::Fail {
            return Ok(decision.into());
        }
        // Where another row forwards the record, such a row is carried out with it, and has to be remembered.
        if decision.action != Action::Forward {
            self.rows.iter_mut().filter(|row| row.decision.is_conflict_set_aside()).for_each(|row| row.entry = None);
        }
        Ok(match self.start_epochs(&progress.epochs, subject) {
            Ok(()) => decision.into(),
            Err(error) => Evaluation {
                decision: Decision { action: Action::Fail, verdict: Verdict::Invalid, ..decision },
                rejection: Some(Rejection::new(Reason::EpochChanged, error.to_string())),
                full: Some(error),
            },
        })
    }

    /// Applies the rows to the scopes, if any row starts a scope or segment: only a start can be refused.
    fn start_epochs(&mut self, epochs: &Epochs, subject: Subject<'_>) -> Result<(), epochs::Error> {
        if self.rows.iter().all(|row| matches!(row.decision.step, Step::Nothing | Step::Seen { .. })) {
            return Ok(());
        }
        let mut epochs = epochs.clone();
        for (row, decided) in subject.rows().iter().zip(&self.rows) {
            let candidate = subject.candidate(row);
            if let (Some(scope), Some(version)) = (candidate.scope, candidate.version) {
                epochs.note(decided.decision.step, scope, version, candidate.offset)?;
            }
        }
        self.epochs = Some(epochs);
        Ok(())
    }

    /// The entry that the last evaluated record was compared with, if `decision` was that on one of its rows. Call it
    /// before [`Evaluator::remember`].
    pub fn compared_with<'m>(
        &self,
        progress: &Progress,
        subject: Subject<'_>,
        memory: &impl Memory<'m>,
        decision: Decision,
    ) -> Option<EntryRef<'m>> {
        let index = self.rows.iter().position(|row| row.decision == decision)?;
        // An entry that cannot be decoded was already refused.
        let known = subject.known(memory, progress, index, subject.rows().get(index)?).ok()?;
        decision.compared_with(known)
    }

    /// What is to be stored of the last evaluated record, which has one row, once what it causes is settled.
    pub fn keep(&mut self, subject: Subject<'_>) -> Kept {
        let Some((row, Decided { decision, entry })) = subject.rows().iter().zip(&self.rows).next() else {
            return Kept::default();
        };
        let candidate = subject.candidate(row);
        let seen = match (decision.step, candidate.version) {
            (Step::Seen { scope }, Some(version)) if self.epochs.is_none() => Some((scope, version.to_vec())),
            _ => None,
        };
        Kept {
            entry: entry.clone().map(|range| self.entries[range].to_vec()),
            changed: candidate.scope.filter(|_| decision.step.is_change()).map(<[u8]>::to_vec),
            started: self.epochs.take(),
            seen,
            is_truncate: is_truncate(&candidate, decision),
        }
    }

    /// Stores what to remember of the last evaluated record; `put` is called with the numbers of rows, their store keys
    /// and entries. Returns the new scope if the epoch changed.
    pub fn remember<'a>(
        &mut self,
        progress: &mut Progress,
        subject: Subject<'a>,
        mut put: impl FnMut(usize, &[u8], &[u8]),
    ) -> Option<&'a [u8]> {
        let mut changed = None;
        let has_started = self.epochs.is_some();
        if let Some(epochs) = self.epochs.take() {
            progress.epochs = epochs;
        }
        for (number, (row, decided)) in subject.rows().iter().zip(&self.rows).enumerate() {
            let Decided { decision, entry } = decided;
            let candidate = subject.candidate(row);
            if let (Step::Seen { scope }, Some(version), false) = (decision.step, candidate.version, has_started) {
                progress.epochs.seen(scope, version, candidate.offset);
            }
            progress.truncates += u64::from(is_truncate(&candidate, decision));
            if let Some(entry) = entry.clone() {
                put(number, &subject.arena[row.key.clone()], &self.entries[entry]);
            }
            if decision.step.is_change() {
                changed = candidate.scope;
            }
        }
        changed
    }
}

/// Whether the candidate empties its table.
fn is_truncate(candidate: &Candidate<'_>, decision: &Decision) -> bool {
    candidate.kind == Kind::Truncate && matches!(decision.remember, Remember::Entry { .. })
}

fn rejected(rules: &Rules, rejection: Rejection) -> Evaluation {
    Evaluation { decision: reject(rules, &rejection), rejection: Some(rejection), full: None }
}

#[cfg(test)]
mod tests;
