//! A batch's way through a task: read, look up, decide, send.
//!
//! In three passes, so that the store is asked once for all keys of the batch, in ascending order: the fields
//! are read out of every record; the entries that the overlay does not hold are fetched; then the records are
//! decided one after the other in input order, each seeing what those before it have left in the overlay.

use std::borrow::Cow;
use std::ops::Range;

use crate::cluster::{Cluster, Kind, Message, Producer, RecordBatch, Ticket};
use crate::dedup::{self, Action, Candidate, Decision, Reader, Reading, Reason, Refusal, Remember, Verdict};
use crate::format::{self, EntryRef, key_hash};
use crate::record::{HeaderBuf, Headers, Record};
use crate::state::{self, Overlay};

use super::audit::Dropped;
use super::catalog::Topics;
use super::context::Context;
use super::task::{Task, TaskId};
use super::trouble::{Cause, Trouble};

/// Memory that a lane reuses from batch to batch.
pub struct Scratch {
    reader: Reader,
    /// The records' keys and versions.
    arena: Vec<u8>,
    /// What was read of each record, in input order; `None` where it was processed before.
    readings: Vec<Option<Reading>>,
    /// The entries that the store has, one after the other.
    found: Vec<u8>,
    /// Where in `found` each record's entry is.
    entries: Vec<Option<Range<usize>>>,
    entry: Vec<u8>,
    headers: HeaderBuf,
    /// An audit record's value.
    explanation: Vec<u8>,
}

impl Scratch {
    /// Memory for records of the topology's rules.
    pub fn new(context: &Context) -> Self {
        Self {
            reader: Reader::new(context.rules.clone()),
            arena: Vec::new(),
            readings: Vec::new(),
            found: Vec::new(),
            entries: Vec::new(),
            entry: Vec::new(),
            headers: HeaderBuf::default(),
            explanation: Vec::new(),
        }
    }
}

/// What a batch has added to a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// Records decided.
    pub records: usize,
    /// Bytes sent.
    pub bytes: usize,
    /// Records sent to the dead letter topic.
    pub dead_letters: u64,
}

/// What is to be done with a record, and the words for its dead letter.
struct Judgement {
    decision: Decision,
    message: Cow<'static, str>,
}

/// Takes the records at `indices` of `batch`, all of the task's partition and in offset order, through the
/// task. After an error the transaction must be aborted and the task rewound. A record that an action `fail`
/// stops at is left unprocessed, with all that follow it, and [`Task::stop_at`] says why.
pub fn process<C: Cluster>(
    context: &Context,
    id: TaskId,
    task: &mut Task<C>,
    batch: &C::Batch,
    indices: &[usize],
    producer: &mut C::Producer,
    scratch: &mut Scratch,
) -> Result<Added, Trouble> {
    read(task, batch, indices, scratch);
    look_up(task, scratch).map_err(|error| Trouble::state(id, error))?;
    let mut added = Added::default();
    let wall_ms = context.clock.wall_ms();
    for (position, &index) in indices.iter().enumerate() {
        let record = batch.record(index);
        let reading = scratch.readings[position].take();
        let candidate = match &reading {
            Some(Reading::Candidate(candidate)) => Some(candidate),
            _ => None,
        };
        let found = scratch.entries[position].clone().map(|range| &scratch.found[range]);
        let judgement =
            judge(context, task, &record, reading.as_ref(), found, &scratch.arena, wall_ms).map_err(|error| {
                Trouble::refused(id, format!("{}: {error}; start the release that wrote it", task.input))
            })?;
        if judgement.decision.action == Action::Fail {
            let Decision { verdict, reason, .. } = judgement.decision;
            let (verdict, reason) = (verdict.as_str(), reason.as_str());
            task.stop_at = Some(format!(
                "{}:{} is {verdict} ({reason}): {}; the topology says `fail`",
                task.input, record.offset, judgement.message
            ));
            break;
        }
        let mut outlet = Outlet {
            context,
            id,
            topics: task.topics,
            producer: &mut *producer,
            headers: &mut scratch.headers,
            added: &mut added,
        };
        let decision = outlet.emit(task, &record, judgement)?;
        if decision.action == Action::Drop
            && let Some(topic) = &context.topology.audit
        {
            let against = candidate.and_then(|candidate| known(&task.overlay, candidate, found, &scratch.arena));
            let bytes = |range: &Range<usize>| &scratch.arena[range.clone()];
            let dropped = Dropped {
                topology: &context.topology.name,
                record: &record,
                decision,
                identity: candidate.map(|candidate| bytes(&candidate.key)),
                version: candidate.and_then(|candidate| candidate.version.as_ref()).map(bytes),
                epoch: None,
                // What could not be decoded was refused before.
                against: against.and_then(|entry| EntryRef::decode(entry).ok()),
                against_epoch: None,
            };
            scratch.explanation.clear();
            dropped.write(&mut scratch.explanation);
            outlet.explain(task, &record, topic, &scratch.explanation)?;
        }
        if let (Remember::Entry { .. }, Some(candidate)) = (&decision.remember, candidate) {
            remember(task, &decision, candidate, &scratch.arena, &mut scratch.entry);
        }
        task.tally.add(decision.verdict, decision.reason);
        task.last_timestamp = record.timestamp.or(task.last_timestamp);
        task.pending.next = record.offset + 1;
        added.records += 1;
    }
    Ok(added)
}

/// Reads identity and version of each record that was not processed before.
fn read<C: Cluster>(task: &Task<C>, batch: &C::Batch, indices: &[usize], scratch: &mut Scratch) {
    scratch.arena.clear();
    scratch.readings.clear();
    let mut expected = task.pending.next;
    for &index in indices {
        let record = batch.record(index);
        assert!(record.offset >= expected, "{}: offset {} came after {expected}", task.input, record.offset);
        expected = record.offset + 1;
        let replayed = task.pending.progress.is_replayed(record.offset);
        scratch.readings.push((!replayed).then(|| scratch.reader.read(&record, &mut scratch.arena)));
    }
}

/// Fetches the entries of all candidates from the store, in one go. Those in the overlay will not be asked for
/// again: fetching them too costs less than looking twice.
fn look_up<C: Cluster>(task: &Task<C>, scratch: &mut Scratch) -> Result<(), state::Error> {
    let Scratch { arena, readings, found, entries, .. } = scratch;
    found.clear();
    entries.clear();
    entries.resize(readings.len(), None);
    let mut wanted: Vec<(&[u8], usize)> = Vec::with_capacity(readings.len());
    for (position, reading) in readings.iter().enumerate() {
        if let Some(Reading::Candidate(candidate)) = reading {
            wanted.push((&arena[candidate.key.clone()], position));
        }
    }
    wanted.sort_unstable();
    let mut keys: Vec<&[u8]> = wanted.iter().map(|&(key, _)| key).collect();
    keys.dedup();
    let held = task.held.as_ref().expect("a task at work holds its store");
    let mut wanted = wanted.into_iter().peekable();
    held.store.get_sorted(&keys, |at, value| {
        let range = value.map(|value| {
            let start = found.len();
            found.extend_from_slice(value);
            start..found.len()
        });
        while let Some((_, position)) = wanted.next_if(|(key, _)| *key == keys[at]) {
            entries[position].clone_from(&range);
        }
    })
}

/// What is to be done with a record. The task's stream time moves with every record whose timestamp can be
/// believed, whatever becomes of it.
fn judge<C: Cluster>(
    context: &Context,
    task: &mut Task<C>,
    record: &Record<'_>,
    reading: Option<&Reading>,
    found: Option<&[u8]>,
    arena: &[u8],
    wall_ms: i64,
) -> Result<Judgement, format::Error> {
    let Some(reading) = reading else {
        return Ok(Judgement { decision: Decision::REPLAYED, message: Cow::Borrowed(Reason::Replayed.meaning()) });
    };
    let rules = &context.rules;
    let progress = &mut task.pending.progress;
    if let Some(refusal) = dedup::check_time(rules, progress, record.timestamp, wall_ms) {
        return Ok(refused(context, &refusal));
    }
    progress.advance(rules, record.timestamp);
    match reading {
        Reading::Rows(_) => unreachable!("nothing is read row by row yet"),
        Reading::Refused(refusal) => Ok(refused(context, refusal)),
        Reading::Candidate(candidate) => {
            let entry = known(&task.overlay, candidate, found, arena).map(EntryRef::decode).transpose()?;
            let version = candidate.version.clone().map(|range| &arena[range]);
            let decision = dedup::decide(rules, progress, entry, version, record.timestamp, record.key.map(key_hash));
            let message = Cow::Borrowed(decision.reason.meaning());
            Ok(Judgement { decision, message })
        }
    }
}

fn refused(context: &Context, refusal: &Refusal) -> Judgement {
    Judgement { decision: dedup::refuse(&context.rules, refusal), message: Cow::Owned(refusal.message.clone()) }
}

/// The entry of the candidate's identity: what the transaction has written, or what the store has.
fn known<'a>(overlay: &'a Overlay, candidate: &Candidate, found: Option<&'a [u8]>, arena: &[u8]) -> Option<&'a [u8]> {
    match overlay.get(&arena[candidate.key.clone()]) {
        Some(written) => written,
        None => found,
    }
}

/// Puts the record's entry into the overlay.
fn remember<C: Cluster>(
    task: &mut Task<C>,
    decision: &Decision,
    candidate: &Candidate,
    arena: &[u8],
    entry: &mut Vec<u8>,
) {
    entry.clear();
    let version = candidate.version.clone().map(|range| &arena[range]);
    decision.encode_entry(version, entry);
    task.overlay.put(&arena[candidate.key.clone()], Some(entry));
}

/// Where the records of a transaction go.
struct Outlet<'a, P> {
    context: &'a Context,
    id: TaskId,
    topics: Topics,
    producer: &'a mut P,
    headers: &'a mut HeaderBuf,
    added: &'a mut Added,
}

impl<P: Producer> Outlet<'_, P> {
    /// Sends the record where the judgement says. What comes back is the decision that was carried out: another
    /// one where the output refuses the record.
    fn emit<C: Cluster>(
        &mut self,
        task: &Task<C>,
        record: &Record<'_>,
        judgement: Judgement,
    ) -> Result<Decision, Trouble> {
        let unsendable = task.quarantine.as_ref().and_then(|quarantine| quarantine.unsendable.as_ref());
        let refusal = match judgement.decision.action {
            Action::Drop => return Ok(judgement.decision),
            Action::DeadLetter => {
                self.dead_letter(record, judgement.decision.reason, &judgement.message)?;
                return Ok(judgement.decision);
            }
            Action::Fail => unreachable!("the caller stops before"),
            Action::Forward => match unsendable.filter(|(offset, _)| *offset == record.offset) {
                Some((_, message)) => message.clone(),
                None => match self.forward(task, record)? {
                    None => return Ok(judgement.decision),
                    Some(message) => message,
                },
            },
        };
        let refusal =
            Refusal { reason: Reason::Unsendable, message: format!("the output refuses the record: {refusal}") };
        let decision = dedup::refuse(&self.context.rules, &refusal);
        match decision.action {
            Action::DeadLetter => self.dead_letter(record, Reason::Unsendable, &refusal.message)?,
            Action::Fail => {
                return Err(Trouble::refused(
                    self.id,
                    format!("{}:{}: {}", task.input, record.offset, refusal.message),
                ));
            }
            Action::Forward | Action::Drop => {}
        }
        Ok(Decision { verdict: Verdict::Invalid, remember: Remember::Nothing, ..decision })
    }

    /// Sends the record on as it is; the cluster's words if it will not take it.
    fn forward<C: Cluster>(&mut self, task: &Task<C>, record: &Record<'_>) -> Result<Option<String>, Trouble> {
        let message = Message {
            topic: &task.output,
            partition: record.partition,
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: record.timestamp,
        };
        self.send(&message)
    }

    fn send(&mut self, message: &Message<'_>) -> Result<Option<String>, Trouble> {
        match self.producer.send(Ticket { number: self.id, report: false }, message) {
            Ok(()) => {
                let lengths = [message.key, message.value].map(|part| part.map_or(0, <[u8]>::len));
                self.added.bytes += lengths[0] + lengths[1] + message.headers.as_bytes().len();
                Ok(None)
            }
            Err(error) if error.kind == Kind::Refused => Ok(Some(error.message)),
            // A record that cannot even be handed over is its task's trouble, not the lane's.
            Err(error) if error.kind == Kind::Abort => {
                Err(Trouble { task: Some(self.id), cause: Cause::Cluster(error) })
            }
            Err(error) => Err(Trouble::cluster(error)),
        }
    }

    /// Sends the original bytes to the dead letter topic, with headers that say where they stood and what is
    /// wrong with them. A timestamp that a topic may refuse is replaced by the present.
    fn dead_letter(&mut self, record: &Record<'_>, reason: Reason, message: &str) -> Result<(), Trouble> {
        self.headers.clear();
        self.headers.extend(record.headers);
        let name = &self.context.topology.name;
        let coordinates = [record.partition.to_string(), record.offset.to_string()];
        for (field, value) in [
            ("topology", name.as_str()),
            ("topic", record.topic),
            ("partition", &coordinates[0]),
            ("offset", &coordinates[1]),
            ("reason", reason.as_str()),
            ("message", message),
        ] {
            self.headers.push(format!("__ratchet.errors.{field}").as_bytes(), Some(value.as_bytes()));
        }
        let believable = !matches!(reason, Reason::TimestampInFuture | Reason::Unsendable);
        let headers = std::mem::take(self.headers);
        let letter = Message {
            topic: &self.context.topology.dead_letter,
            partition: record.partition % self.topics.dead_letter_partitions,
            key: record.key,
            value: record.value,
            headers: headers.as_headers(),
            timestamp: record.timestamp.filter(|_| believable),
        };
        let refusal = self.send(&letter)?;
        *self.headers = headers;
        if let Some(refusal) = refusal {
            let (topic, partition, offset) = (record.topic, record.partition, record.offset);
            return Err(Trouble::refused(
                self.id,
                format!("{topic}:{partition}:{offset}: the dead letter topic refuses the record too: {refusal}"),
            ));
        }
        self.added.dead_letters += 1;
        Ok(())
    }

    /// Sends what explains a drop to the audit topic. Where a topic has refused the record before, it may have been
    /// the timestamp: the present replaces it.
    fn explain<C: Cluster>(
        &mut self,
        task: &Task<C>,
        record: &Record<'_>,
        topic: &str,
        value: &[u8],
    ) -> Result<(), Trouble> {
        let refused = task.quarantine.as_ref().and_then(|quarantine| quarantine.unsendable.as_ref());
        let believable = refused.is_none_or(|(offset, _)| *offset != record.offset);
        let explanation = Message {
            topic,
            partition: record.partition % self.topics.audit_partitions,
            key: record.key,
            value: Some(value),
            headers: Headers::default(),
            timestamp: record.timestamp.filter(|_| believable),
        };
        match self.send(&explanation)? {
            None => Ok(()),
            Some(refusal) => {
                let (topic, partition, offset) = (record.topic, record.partition, record.offset);
                let reason =
                    format!("{topic}:{partition}:{offset}: the audit topic refuses what explains it: {refusal}");
                Err(Trouble::refused(self.id, reason))
            }
        }
    }
}
