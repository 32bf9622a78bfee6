//! Judges a batch's records: read, look up, evaluate.
//!
//! This takes three passes, so that the store is read once for all keys of the batch, in ascending order: the fields of
//! every record are read; their entries are fetched; then the records are evaluated ([`dedup::evaluate`]) one after the
//! other in input order, each with the entries that the records before it have left in the overlay.

use std::ops::Range;

use crate::cluster::Cluster;
use crate::dedup::{
    Action, Candidate, Decision, Evaluation, Evaluator, Kept, Memory, Progress, Reader, Reading, Row, Subject,
    evaluate, explain,
};
use crate::format;
use crate::record::Record;
use crate::rendering::Renderer;
use crate::rendering::work::WorkRenderer;
use crate::sabotage::{self, Sabotage};
use crate::schemas::Id;
use crate::state::{self, KeyHash, Overlay, Store};

use super::audit::Dropped;
use super::context::Context;
use super::gate::LookAhead;
use super::share::Share;
use super::task::Work;

#[cfg(test)]
mod tests;

/// Memory that a lane reuses from batch to batch.
pub struct Judge {
    reader: Reader,
    /// The records' keys, versions and scopes.
    arena: Vec<u8>,
    /// The reading of each record, in input order; `None` for records processed before.
    readings: Vec<Option<Reading>>,
    /// The entries found in the store, one after the other.
    bytes: Vec<u8>,
    /// The keys to look up.
    wanted: Vec<Wanted>,
    /// The order of the keys: for each key its first 12 bytes, then its index in `wanted`.
    order: Vec<u128>,
    /// The ranges of `bytes` that hold the entries of each row.
    found: Vec<Found>,
    /// The index in `found` of each record's first row.
    first_rows: Vec<usize>,
    evaluator: Evaluator,
    /// The offset of the record in progress, in case of a panic.
    pub in_progress: Option<i64>,
}

/// The entries that the store holds for a row.
#[derive(Clone, Debug)]
struct Found {
    /// The hash of the row's key.
    hash: KeyHash,
    entry: Option<Range<usize>>,
    table: Option<Range<usize>>,
}

/// A key to look up.
struct Wanted {
    /// Its range in the arena.
    key: Range<usize>,
    /// The index of the key among the distinct keys.
    number: usize,
    /// The index of the row that it belongs to.
    row: usize,
    /// Whether it is the key of the row's table.
    is_table: bool,
}

/// The bits of an element of [`Judge::order`] that hold the index.
const INDEX_MASK: u128 = u32::MAX as u128;
/// The number of records whose keys are prefetched into the processor's cache at once, before they are judged.
const PREFETCH_RECORDS: usize = 32;

/// The number that represents a key in [`Judge::order`]: sorting numbers is far cheaper than comparing keys.
fn sort_key(key: &[u8], index: usize) -> u128 {
    state::key_head(key) & !INDEX_MASK | index as u128
}

/// Sorts the keys. Returns the distinct keys, and sets the index among them of every wanted key.
fn distinct<'a>(wanted: &mut [Wanted], order: &mut [u128], arena: &'a [u8]) -> Vec<&'a [u8]> {
    order.sort_unstable();
    for equal_heads in
        order.chunk_by_mut(|a, b| a & !INDEX_MASK == b & !INDEX_MASK).filter(|equal_heads| equal_heads.len() > 1)
    {
        equal_heads.sort_unstable_by_key(|at| &arena[wanted[(at & INDEX_MASK) as usize].key.clone()]);
    }
    let mut keys: Vec<&[u8]> = Vec::with_capacity(order.len());
    for at in order {
        let wanted = &mut wanted[(*at & INDEX_MASK) as usize];
        let key = &arena[wanted.key.clone()];
        if keys.last() != Some(&key) {
            keys.push(key);
        }
        wanted.number = keys.len() - 1;
    }
    keys
}

/// A task's entries: an entry in the overlay takes precedence over the entry that was read from the store.
struct Remembered<'a> {
    overlay: &'a Overlay,
    /// An overlay that takes precedence, if records are judged ahead of time.
    ahead: Option<&'a Overlay>,
    bytes: &'a [u8],
    /// The stored entries, by row of the current record.
    found: &'a [Found],
    /// The entry of the identity to use instead of the stored entry.
    substitute: Option<Option<&'a [u8]>>,
}

impl<'a> Remembered<'a> {
    fn entry(&self, hash: KeyHash, key: &[u8], found: &Option<Range<usize>>) -> Option<&'a [u8]> {
        let stored = || found.clone().map(|range| &self.bytes[range]);
        let ahead = self.ahead.and_then(|ahead| ahead.get_hashed(hash, key));
        let written = ahead
            .or_else(|| self.overlay.get_hashed(hash, key))
            .filter(|_| !sabotage::is_on(Sabotage::InBatchDuplicatesUnseen));
        written.unwrap_or_else(stored)
    }
}

impl<'a> Memory<'a> for Remembered<'a> {
    fn identity(&self, row: usize, key: &[u8]) -> Option<&'a [u8]> {
        self.substitute.unwrap_or_else(|| self.entry(self.found[row].hash, key, &self.found[row].entry))
    }

    fn table(&self, row: usize, key: &[u8]) -> Option<&'a [u8]> {
        self.entry(KeyHash::of(key), key, &self.found[row].table)
    }
}

/// Whether the record is from the future by the cluster's clock, too. If the cluster is embedded in this process, there
/// is no other clock.
pub fn is_certainly_future<C: Cluster>(context: &Context, work: &Work<'_, C>, record: &Record<'_>) -> bool {
    let is_future = |time| work.task.present.is_future(record.offset, time, context.rules.future_max_ms);
    !C::IS_SHARED || record.timestamp.is_some_and(is_future)
}

impl Judge {
    /// Memory for records of the topology's rules.
    pub fn new(context: &Context) -> Self {
        let (topology, schemas) = (&context.topology, &context.topology.schemas);
        let (key, value) = match WorkRenderer::new(topology) {
            Some(renderer) => renderer.reads(),
            None => Renderer::new(topology).map_or((false, false), |renderer| renderer.reads()),
        };
        Self {
            reader: Reader::with_schemas(context.rules.clone(), schemas).awaiting(key, value, schemas),
            arena: Vec::new(),
            readings: Vec::new(),
            bytes: Vec::new(),
            wanted: Vec::new(),
            order: Vec::new(),
            found: Vec::new(),
            first_rows: Vec::new(),
            evaluator: Evaluator::default(),
            in_progress: None,
        }
    }

    /// Reads each record that was not processed before. All records are at or after the offset `next`.
    pub fn read<'r>(&mut self, (next, progress): (i64, &Progress), records: impl IntoIterator<Item = Record<'r>>) {
        self.arena.clear();
        self.readings.clear();
        let mut expected = next;
        self.in_progress = Some(expected);
        for record in records {
            let Record { topic, partition, offset, .. } = record;
            self.in_progress = Some(offset);
            assert!(offset >= expected, "{topic}:{partition}: offset {offset} came after {expected}");
            expected = offset + 1;
            let Self { reader, arena, .. } = self;
            let reading = evaluate::read(progress, offset, || reader.read(&record, arena));
            self.readings.push(reading);
        }
        // A later panic may concern any of the records, so the first offset is reported.
        self.in_progress = Some(next);
    }

    /// Fetches the entries of all rows from the store in one pass. An entry that is also in the overlay is not used:
    /// fetching it costs less than checking first. A table's entry is fetched only if the store can hold one: the first
    /// such entry, if this batch writes it, is in the overlay.
    pub fn look_up(&mut self, store: &Store, progress: &Progress) -> Result<(), state::Error> {
        let Self { arena, readings, bytes, wanted, order, found, first_rows, .. } = self;
        let is_kept = sabotage::is_on(Sabotage::LookUpsKept) && first_rows.len() >= readings.len();
        let kept = is_kept.then(|| (bytes.clone(), found.clone()));
        bytes.clear();
        wanted.clear();
        order.clear();
        found.clear();
        first_rows.clear();
        let has_tables = progress.truncates > 0;
        let arena = &arena[..];
        let mut want = |key: Range<usize>, row, is_table| {
            order.push(sort_key(&arena[key.clone()], wanted.len()));
            wanted.push(Wanted { key, number: 0, row, is_table });
        };
        for reading in readings.iter() {
            first_rows.push(found.len());
            for row in reading.as_ref().map(Reading::rows).unwrap_or_default() {
                want(row.key.clone(), found.len(), false);
                if let Some(table) = row.table.clone().filter(|_| has_tables) {
                    want(table, found.len(), true);
                }
                found.push(Found { hash: KeyHash::of(&arena[row.key.clone()]), entry: None, table: None });
            }
        }
        if let Some((former_bytes, former)) = kept {
            *bytes = former_bytes;
            for (found, former) in found.iter_mut().zip(former) {
                (found.entry, found.table) = (former.entry, former.table);
            }
            return Ok(());
        }
        let keys = distinct(wanted, order, arena);
        let mut wanted = order.iter().map(|at| &wanted[(at & INDEX_MASK) as usize]).peekable();
        store.get_sorted(&keys, |at, value| {
            let range = value.map(|value| {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                start..bytes.len()
            });
            while let Some(wanted) = wanted.next_if(|wanted| wanted.number == at) {
                let found = &mut found[wanted.row];
                let slot = if wanted.is_table { &mut found.table } else { &mut found.entry };
                slot.clone_from(&range);
            }
        })
    }

    /// The schema of the record that was read as number `at`, counted from 0, if it is not known yet. The record cannot
    /// be judged before.
    pub fn awaited_schema(&self, at: usize) -> Option<Id> {
        match self.readings[at] {
            Some(Reading::Pending(schema)) => Some(schema),
            _ => None,
        }
    }

    /// Judges the record that was read as number `at`, counted from 0. Returns `None` if its schema is not known yet
    /// ([`Judge::awaited_schema`]), or if the clocks have to be compared first to decide whether it is from the future
    /// ([`super::present`]).
    pub fn judge<C: Cluster>(
        &mut self,
        (context, work): (&Context, &Work<'_, C>),
        (progress, overlay): (&mut Progress, &Overlay),
        at: usize,
        record: &Record<'_>,
        wall_ms: i64,
    ) -> Result<Option<Evaluation>, format::Error> {
        let Self { evaluator, readings, arena, bytes, found, first_rows, .. } = self;
        if at.is_multiple_of(PREFETCH_RECORDS) {
            let end = first_rows.get(at + PREFETCH_RECORDS).copied().unwrap_or(found.len());
            overlay.prefetch(found[first_rows[at]..end].iter().map(|found| found.hash));
        }
        let subject = Subject { record, reading: readings[at].as_ref(), arena };
        let memory = Remembered { overlay, ahead: None, bytes, found: &found[first_rows[at]..], substitute: None };
        let is_from_future = || is_certainly_future::<C>(context, work, record);
        evaluator.evaluate((&context.rules, wall_ms), progress, subject, &memory, is_from_future)
    }

    /// Judges the records that were read, ahead of time, and changes nothing but `ahead`. Calls `on_forwarded` for each
    /// record that will be forwarded, with its number, offset, decision and rows. Stops before the first record at
    /// which judging will stop.
    pub fn look_ahead<'r, C: Cluster>(
        &mut self,
        (context, work): (&Context, &Work<'_, C>),
        (progress, overlay): (&Progress, &Overlay),
        records: impl Iterator<Item = Record<'r>>,
        (wall_ms, ahead): (i64, &mut LookAhead),
        mut on_forwarded: impl FnMut(usize, i64, &Decision, (&[Row], &[u8])),
    ) {
        let Self { evaluator, readings, arena, bytes, found, first_rows, in_progress, .. } = self;
        ahead.progress.clone_from(progress);
        ahead.overlay.clear();
        for (at, record) in records.enumerate() {
            *in_progress = Some(record.offset);
            let subject = Subject { record: &record, reading: readings[at].as_ref(), arena };
            let memory = Remembered {
                overlay,
                ahead: Some(&ahead.overlay),
                bytes,
                found: &found[first_rows[at]..],
                substitute: None,
            };
            let is_from_future = || is_certainly_future::<C>(context, work, &record);
            let judged =
                evaluator.evaluate((&context.rules, wall_ms), &mut ahead.progress, subject, &memory, is_from_future);
            // A record that cannot be judged, or that stops the task, is handled when it is judged in earnest.
            let Ok(Some(Evaluation { decision, .. })) = judged else { return };
            match decision.action {
                Action::Fail => return,
                Action::Forward => {
                    let rows = readings[at].as_ref().map(Reading::rows).unwrap_or_default();
                    on_forwarded(at, record.offset, &decision, (rows, arena));
                }
                Action::Drop | Action::DeadLetter => {}
            }
            let LookAhead { progress, overlay } = &mut *ahead;
            let rows = &found[first_rows[at]..];
            evaluator
                .remember(progress, subject, |row, key, entry| overlay.put_hashed(rows[row].hash, key, Some(entry)));
        }
    }

    /// Judges a record against the given entry of its identity, whatever the store holds. Its timestamp is not in the
    /// future: stream time has reached it.
    pub fn judge_against(
        &mut self,
        context: &Context,
        (progress, overlay): (&mut Progress, &Overlay),
        (at, record): (usize, &Record<'_>),
        entry: Option<&[u8]>,
    ) -> Result<Evaluation, format::Error> {
        let Self { evaluator, readings, arena, bytes, found, first_rows, .. } = self;
        let subject = Subject { record, reading: readings[at].as_ref(), arena };
        let memory =
            Remembered { overlay, ahead: None, bytes, found: &found[first_rows[at]..], substitute: Some(entry) };
        let wall_ms = progress.stream_time;
        let evaluated = evaluator.evaluate((&context.rules, wall_ms), progress, subject, &memory, || true)?;
        Ok(evaluated.expect("the clock is certain"))
    }

    /// The stored state of the identity of the record that was read as number `at`, expired or not; `None` if there is
    /// no such state, or the record was not read.
    pub fn remembered<'a>(&'a self, overlay: &'a Overlay, at: usize) -> Option<&'a [u8]> {
        let row = self.readings[at].as_ref().map(Reading::rows).unwrap_or_default().first()?;
        let memory = Remembered {
            overlay,
            ahead: None,
            bytes: &self.bytes,
            found: &self.found[self.first_rows[at]..],
            substitute: None,
        };
        memory.identity(0, &self.arena[row.key.clone()])
    }

    /// The state that the record judged last, which was read as number `at`, leaves behind once it is settled.
    pub fn keep(&mut self, at: usize, record: &Record<'_>) -> Kept {
        let Self { evaluator, readings, arena, .. } = self;
        evaluator.keep(Subject { record, reading: readings[at].as_ref(), arena })
    }

    /// The key of the record's identity, if it has exactly one. This discards the records read before.
    ///
    /// # Errors
    /// The schema that the record names is not known yet.
    pub fn key(&mut self, record: &Record<'_>) -> Result<Option<Vec<u8>>, Id> {
        let Self { reader, arena, .. } = self;
        arena.clear();
        match reader.read(record, arena) {
            Reading::Pending(schema) => Err(schema),
            reading => match reading.rows() {
                [row] => Ok(Some(arena[row.key.clone()].to_vec())),
                _ => Ok(None),
            },
        }
    }

    /// The audit record of the record judged last; to be called before [`Self::remember`].
    pub fn dropped<'a>(
        &'a self,
        context: &'a Context,
        (progress, overlay): (&'a Progress, &'a Overlay),
        at: usize,
        record: &'a Record<'a>,
        decision: Decision,
    ) -> Dropped<'a> {
        let rows = self.readings[at].as_ref().map(Reading::rows).unwrap_or_default();
        let identities: Vec<String> = rows.iter().map(|row| explain::identity(&self.arena[row.key.clone()])).collect();
        let subject = Subject { record, reading: self.readings[at].as_ref(), arena: &self.arena };
        let memory = Remembered {
            overlay,
            ahead: None,
            bytes: &self.bytes,
            found: &self.found[self.first_rows[at]..],
            substitute: None,
        };
        let against = self.evaluator.compared_with(progress, subject, &memory, decision);
        let candidate = rows.first().map(|row| Candidate::of(row, &self.arena, record));
        Dropped {
            topology: &context.topology.name,
            rules: &context.topology.rules,
            record,
            decision,
            identity: match &identities[..] {
                [] => None,
                [identity] => Some(identity.clone()),
                several => Some(format!("[{}]", several.join(","))),
            },
            version: candidate.and_then(|candidate| candidate.version),
            epoch: candidate.and_then(|candidate| candidate.scope).map(explain::epoch),
            contents: candidate.and_then(|candidate| candidate.contents),
            against,
            against_epoch: against
                .and_then(|entry| entry.scope)
                .and_then(|number| progress.epochs.scope(number))
                .map(explain::epoch),
        }
    }

    /// The rows of the record that was read as number `at`; their ranges point into the returned bytes.
    pub fn rows(&self, at: usize) -> (&[Row], &[u8]) {
        (self.readings[at].as_ref().map(Reading::rows).unwrap_or_default(), &self.arena)
    }

    /// Puts the entries of the record judged last into the overlay. Returns whether that changed the epoch.
    pub fn remember(&mut self, share: &mut Share, at: usize, record: &Record<'_>) -> bool {
        let Share { position, overlay, .. } = share;
        let subject = Subject { record, reading: self.readings[at].as_ref(), arena: &self.arena };
        let rows = &self.found[self.first_rows[at]..];
        let put = |row: usize, key: &[u8], entry: &[u8]| overlay.put_hashed(rows[row].hash, key, Some(entry));
        let Some(scope) = self.evaluator.remember(&mut position.progress, subject, put) else { return false };
        let task = format_args!("{}:{}", record.topic, record.partition);
        tracing::warn!(%task, offset = record.offset, scope = explain::epoch(scope), "the epoch changed");
        true
    }
}
