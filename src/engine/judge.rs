//! What becomes of a batch's records: read, look up, decide.
//!
//! In three passes, so that the store is asked once for all keys of the batch, in ascending order: the fields
//! are read out of every record; the entries that the overlay does not hold are fetched; then the records are
//! decided one after the other in input order, each seeing what those before it have left in the overlay.

use std::borrow::Cow;
use std::ops::Range;

use crate::cluster::{Cluster, RecordBatch};
use crate::dedup::{
    self, Action, Candidate, Decision, Judged, Known, Progress, Reader, Reading, Reason, Refusal, explain,
};
use crate::format::{self, EntryRef};
use crate::mistakes::{self, Mistake};
use crate::record::Record;
use crate::state::{self, Overlay};

use super::audit::Dropped;
use super::context::Context;
use super::task::Task;

/// Memory that a lane reuses from batch to batch.
pub struct Judge {
    reader: Reader,
    /// The records' keys, versions and scopes.
    arena: Vec<u8>,
    /// What was read of each record, in input order; `None` where it was processed before.
    readings: Vec<Option<Reading>>,
    /// The entries that the store has, one after the other.
    bytes: Vec<u8>,
    /// The keys to look up.
    wanted: Vec<Wanted>,
    /// Where in `bytes` the entries of each record's rows are, and where each record's rows begin.
    found: Vec<Found>,
    first_rows: Vec<usize>,
    /// What is decided of the record at hand, row by row.
    decided: Vec<Decided>,
    /// The entries to remember of it.
    entries: Vec<u8>,
    /// The offset of the record at hand, for whoever catches a panic.
    pub at_hand: Option<i64>,
}

/// What the store has of a row.
#[derive(Clone, Debug, Default)]
struct Found {
    entry: Option<Range<usize>>,
    table: Option<Range<usize>>,
}

/// A key to look up.
struct Wanted {
    /// The order of keys, as far as it goes.
    head: u128,
    /// Where in the arena it is.
    key: Range<usize>,
    /// The row that it is for.
    row: usize,
    /// Whether it is the row's table.
    is_table: bool,
}

/// What is decided of a row.
struct Decided {
    decision: Decision,
    /// Where the entry to remember is.
    entry: Option<Range<usize>>,
}

/// What is to be done with a record, and the words for its dead letter.
pub struct Judgement {
    /// What is to be done.
    pub decision: Decision,
    /// Why, for people.
    pub message: Cow<'static, str>,
}

impl Judge {
    /// Memory for records of the topology's rules.
    pub fn new(context: &Context) -> Self {
        Self {
            reader: Reader::new(context.rules.clone()),
            arena: Vec::new(),
            readings: Vec::new(),
            bytes: Vec::new(),
            wanted: Vec::new(),
            found: Vec::new(),
            first_rows: Vec::new(),
            decided: Vec::new(),
            entries: Vec::new(),
            at_hand: None,
        }
    }

    /// Reads each record that was not processed before.
    pub fn read<C: Cluster>(&mut self, task: &Task<C>, batch: &C::Batch, indices: &[usize]) {
        self.arena.clear();
        self.readings.clear();
        let mut expected = task.pending.next;
        for &index in indices {
            self.at_hand = Some(expected);
            let record = batch.record(index);
            self.at_hand = Some(record.offset);
            assert!(record.offset >= expected, "{}: offset {} came after {expected}", task.input, record.offset);
            expected = record.offset + 1;
            let replayed = task.pending.progress.is_replayed(record.offset);
            self.readings.push((!replayed).then(|| self.reader.read(&record, &mut self.arena)));
        }
        // What follows is done for all of them.
        self.at_hand = Some(task.pending.next);
    }

    /// Fetches the entries of all rows from the store, in one go. Those in the overlay will not be asked for
    /// again: fetching them too costs less than looking twice. A table's entry is asked for only where one can be:
    /// the first is made in this very batch, and then it is in the overlay.
    pub fn look_up<C: Cluster>(&mut self, task: &Task<C>) -> Result<(), state::Error> {
        let Self { arena, readings, bytes, wanted, found, first_rows, .. } = self;
        if mistakes::made(Mistake::LookUpsKept) && first_rows.len() >= readings.len() {
            return Ok(());
        }
        bytes.clear();
        wanted.clear();
        found.clear();
        first_rows.clear();
        let has_tables = task.pending.progress.truncates > 0;
        let arena = &arena[..];
        let mut want = |key: Range<usize>, row, is_table| {
            wanted.push(Wanted { head: state::key_head(&arena[key.clone()]), key, row, is_table });
        };
        for reading in readings.iter() {
            first_rows.push(found.len());
            for row in reading.as_ref().map(Reading::rows).unwrap_or_default() {
                want(row.key.clone(), found.len(), false);
                if let Some(table) = row.table.clone().filter(|_| has_tables) {
                    want(table, found.len(), true);
                }
                found.push(Found::default());
            }
        }
        let key = |wanted: &Wanted| &arena[wanted.key.clone()];
        wanted.sort_unstable_by(|a, b| a.head.cmp(&b.head).then_with(|| key(a).cmp(key(b))));
        let mut keys: Vec<&[u8]> = wanted.iter().map(key).collect();
        keys.dedup();
        let held = task.held.as_ref().expect("a task at work holds its store");
        let mut wanted = wanted.iter().peekable();
        held.store.get_sorted(&keys, |at, value| {
            let range = value.map(|value| {
                let start = bytes.len();
                bytes.extend_from_slice(value);
                start..bytes.len()
            });
            while let Some(wanted) = wanted.next_if(|wanted| key(wanted) == keys[at]) {
                let found = &mut found[wanted.row];
                let place = if wanted.is_table { &mut found.table } else { &mut found.entry };
                place.clone_from(&range);
            }
        })
    }

    /// What is to be done with the record at `position` of those that were read; `None` where clocks have yet to be asked
    /// whether it is of the future ([`super::present`]). The task's stream time moves with every record whose timestamp
    /// can be believed, whatever becomes of it, except where the task stops.
    pub fn judge<C: Cluster>(
        &mut self,
        context: &Context,
        task: &mut Task<C>,
        position: usize,
        record: &Record<'_>,
        wall_ms: i64,
    ) -> Result<Option<Judgement>, format::Error> {
        self.decided.clear();
        self.entries.clear();
        let Some(reading) = &self.readings[position] else {
            let message = Cow::Borrowed(Reason::Replayed.meaning());
            return Ok(Some(Judgement { decision: Decision::REPLAYED, message }));
        };
        let rules = &context.rules;
        let progress = &mut task.pending.progress;
        if let Some(refusal) = dedup::check_time(rules, progress, record.timestamp, wall_ms) {
            // Where the topics are this process's own there is no other clock.
            let is_future = |at| task.present.is_future(record.offset, at, rules.future_max_ms);
            let is_certain =
                !C::IS_SHARED || mistakes::made(Mistake::KafkaTimeNotAsked) || record.timestamp.is_some_and(is_future);
            return Ok(is_certain.then(|| refused(context, &refusal)));
        }
        let before = (progress.stream_time, progress.horizon);
        progress.advance(rules, record.timestamp);
        let judgement = match reading {
            Reading::Refused(refusal) => refused(context, refusal),
            reading => {
                for (row, found) in reading.rows().iter().zip(&self.found[self.first_rows[position]..]) {
                    let known = known(row, &self.arena, &task.overlay, found, &self.bytes, progress)?;
                    let judged = Judged::of(row, &self.arena, record);
                    let decision = dedup::decide(rules, progress, &judged, known);
                    let start = self.entries.len();
                    let has_entry = decision.encode_entry(judged.version, known.entry, &mut self.entries);
                    self.decided.push(Decided { decision, entry: has_entry.then_some(start..self.entries.len()) });
                }
                let decision = match &self.decided[..] {
                    [only] => only.decision,
                    rows => {
                        dedup::spokesman(rows.iter().map(|row| row.decision)).expect("a record that was read has a row")
                    }
                };
                let message = match decision.action {
                    Action::DeadLetter | Action::Fail => context.topology.meaning(decision.reason),
                    Action::Forward | Action::Drop => decision.reason.meaning().into(),
                };
                Judgement { decision, message }
            }
        };
        if judgement.decision.action == Action::Fail {
            (progress.stream_time, progress.horizon) = before;
        }
        Ok(Some(judgement))
    }

    /// What the audit says of the record that was judged last; to be asked before it is remembered.
    pub fn dropped<'a, C: Cluster>(
        &'a self,
        context: &'a Context,
        task: &'a Task<C>,
        position: usize,
        record: &'a Record<'a>,
        decision: Decision,
    ) -> Dropped<'a> {
        let rows = self.readings[position].as_ref().map(Reading::rows).unwrap_or_default();
        let progress = &task.pending.progress;
        let identities: Vec<String> = rows.iter().map(|row| explain::identity(&self.arena[row.key.clone()])).collect();
        let speaks = self.decided.iter().position(|row| row.decision == decision);
        let against = speaks.and_then(|index| {
            let found = &self.found[self.first_rows[position] + index];
            // What could not be decoded was refused before.
            let known = known(&rows[index], &self.arena, &task.overlay, found, &self.bytes, progress).ok()?;
            decision.compared_with(known)
        });
        let judged = rows.first().map(|row| Judged::of(row, &self.arena, record));
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
            version: judged.and_then(|judged| judged.version),
            epoch: judged.and_then(|judged| judged.scope).map(explain::epoch),
            against,
            against_epoch: against
                .and_then(|entry| entry.scope)
                .and_then(|number| progress.epochs.scope(number))
                .map(explain::epoch),
        }
    }

    /// Notes what was decided of the record that was judged last, and puts its entries into the overlay. Gives how
    /// often that changed the epoch.
    pub fn remember<C: Cluster>(
        &self,
        task: &mut Task<C>,
        position: usize,
        record: &Record<'_>,
    ) -> Result<u64, dedup::epochs::Error> {
        let rows = self.readings[position].as_ref().map(Reading::rows).unwrap_or_default();
        let mut changes = 0;
        for (row, decided) in rows.iter().zip(&self.decided) {
            let judged = Judged::of(row, &self.arena, record);
            task.pending.progress.note(&judged, &decided.decision)?;
            if let Some(entry) = decided.entry.clone() {
                task.overlay.put(&self.arena[row.key.clone()], Some(&self.entries[entry]));
            }
            if decided.decision.step.is_change() {
                changes = 1;
                let scope = judged.scope.map(explain::epoch).unwrap_or_default();
                tracing::warn!(task = %task.input, offset = record.offset, scope, "the epoch changed");
            }
        }
        Ok(changes)
    }
}

/// What is remembered of a row: what the overlay has, or else what the store has.
fn known<'a>(
    row: &Candidate,
    arena: &[u8],
    overlay: &'a Overlay,
    found: &Found,
    bytes: &'a [u8],
    progress: &Progress,
) -> Result<Known<'a>, format::Error> {
    let look = |key: &Range<usize>, found: &Option<Range<usize>>| {
        let stored = || found.clone().map(|range| &bytes[range]).filter(|_| !mistakes::made(Mistake::StoreNotAsked));
        let written = overlay.get(&arena[key.clone()]).filter(|_| !mistakes::made(Mistake::InBatchDuplicatesUnseen));
        let entry = written.unwrap_or_else(stored);
        entry.map(EntryRef::decode).transpose()
    };
    let table = row.table.as_ref().filter(|_| progress.truncates > 0);
    Ok(Known {
        entry: look(&row.key, &found.entry)?,
        table: table.map(|key| look(key, &found.table)).transpose()?.flatten(),
    })
}

fn refused(context: &Context, refusal: &Refusal) -> Judgement {
    let message = Cow::Owned(context.topology.refusal(refusal).into_owned());
    Judgement { decision: dedup::refuse(&context.rules, refusal), message }
}
