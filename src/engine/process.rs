//! A batch's way through a task: each record is judged (`judge`) and sent where its verdict says.

use std::borrow::Cow;

use crate::cluster::{self, Cluster, ErrorKind, Message, Producer, RecordBatch, Ticket};
use crate::dedup::{self, Action, Decision, Evaluation, Reason, Rejection, Verdict};
use crate::record::{HeaderBuf, Headers, Record};

use super::context::Context;
use super::crash;
use super::failure::{Cause, Failure, Unprocessable};
use super::judge::Judge;
use super::panics::InProgress;
use super::present::Doubt;
use super::resume;
use super::share::{Share, Stop};
use super::task::Work;

/// Memory that a lane reuses from batch to batch.
pub struct Scratch {
    judge: Judge,
    headers: HeaderBuf,
    /// An audit record's value.
    explanation: Vec<u8>,
}

impl Scratch {
    /// Memory for records of the topology's rules.
    pub fn new(context: &Context) -> Self {
        Self { judge: Judge::new(context), headers: HeaderBuf::default(), explanation: Vec::new() }
    }

    /// The record that [`process`] was working on when it panicked.
    pub fn in_progress(&self) -> InProgress {
        self.judge.in_progress.map_or(InProgress::Nothing, InProgress::Record)
    }
}

/// A task's records in a batch.
pub struct Portion<'a, B> {
    /// The batch.
    pub batch: &'a B,
    /// The indices of its records, in offset order.
    pub indices: &'a [usize],
    /// What the transaction has room for.
    pub room: Room,
}

/// How much more fits into a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Records decided.
    pub records: usize,
    /// Bytes held by the producer for what is sent. The record that uses up the last of them is still processed.
    pub bytes: usize,
    /// Bytes of records worth reading at once, the last of which may not fit: the same number, or more where only
    /// little is left. Otherwise duplicates, which are never sent, would be read and looked up one at a time.
    pub read_bytes: usize,
}

impl Room {
    /// Room for this much.
    pub fn of(records: usize, bytes: usize) -> Self {
        Self { records, bytes, read_bytes: bytes }
    }

    /// How many of these records to read: those that would fit if every one of them were sent. Anything beyond would be
    /// read again for the next transaction.
    fn reach<B: RecordBatch>(&self, batch: &B, indices: &[usize]) -> usize {
        let mut left = self.read_bytes;
        let has_room = |index: &&usize| {
            let had_room = left > 0;
            let record = batch.record(**index);
            left = left.saturating_sub(cluster::held_bytes(record.key, record.value, record.headers) + ADDED_BYTES);
            had_room
        };
        indices.iter().take(self.records).take_while(has_room).count()
    }
}

/// Roughly how much a record may grow on its way: a dead letter carries the reason.
const ADDED_BYTES: usize = 1 << 10;

/// What a batch has added to a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// Records decided, counted from the first.
    pub records: usize,
    /// Bytes held by the producer for what was sent.
    pub bytes: usize,
    /// Records sent to the dead letter topic.
    pub dead_letters: u64,
    /// Records that began an epoch.
    pub epoch_changes: u64,
}

/// Takes a task's records into its share of the open transaction, which must be aborted after an error.
///
/// A record that an action `fail` stops at, or at which the task has panicked too often, is left unprocessed, as is
/// everything after it; [`Share::stop`] says why. The same goes for a record that needs the clocks checked first.
/// Records that do not fit into the transaction are also left; [`Added::records`] says how many were processed.
pub fn process<C: Cluster>(
    context: &Context,
    work: &Work<'_, C>,
    share: &mut Share,
    portion: &Portion<'_, C::Batch>,
    producer: &mut C::Producer,
    scratch: &mut Scratch,
) -> Result<Added, Failure> {
    let processed = process_all(context, work, share, portion, producer, scratch);
    // Whatever the result: a later panic elsewhere must not be blamed on this record.
    scratch.judge.in_progress = None;
    processed
}

fn process_all<C: Cluster>(
    context: &Context,
    work: &Work<'_, C>,
    share: &mut Share,
    portion: &Portion<'_, C::Batch>,
    producer: &mut C::Producer,
    scratch: &mut Scratch,
) -> Result<Added, Failure> {
    let Scratch { judge, headers, explanation } = scratch;
    let Portion { batch, indices: all, room } = *portion;
    let (task, id) = (work.task, share.task);
    let stops = task.stops_before();
    let before_stop = match &stops {
        None => all,
        Some((offset, _)) => &all[..all.partition_point(|&index| batch.record(index).offset < *offset)],
    };
    let indices = &before_stop[..room.reach(batch, before_stop)];
    judge.read(work, share, batch, indices);
    judge.look_up(work.store, &share.position.progress).map_err(|error| Failure::state(id, error))?;
    let mut added = Added::default();
    let wall_ms = context.clock.wall_ms();
    for (at, &index) in indices.iter().enumerate() {
        let record = batch.record(index);
        judge.in_progress = Some(record.offset);
        crash::record(record.topic, record.partition, record.offset);
        let evaluation = judge.judge((context, work), share, at, &record, wall_ms).map_err(|error| {
            Failure::refused_at(id, record.offset, Unprocessable::Entry(resume::Refusal::of_record(error)))
        })?;
        let Some(evaluation) = evaluation else {
            let last = all.last().map_or(record.offset, |&last| batch.record(last).offset);
            let timestamp = record.timestamp.unwrap_or_default();
            share.stop = Some(Stop::Doubted(Doubt { offset: record.offset, timestamp, there: last + 1 }));
            break;
        };
        if evaluation.decision.action == Action::Fail {
            share.stop = Some(Stop::Refused(stops_at(context, &record, &evaluation)));
            break;
        }
        let (producer, headers) = (&mut *producer, &mut *headers);
        let mut outlet = Outlet { context, work, share, producer, headers, added: &mut added };
        let decision = outlet.emit(&record, &evaluation)?;
        if decision.action == Action::Drop
            && let Some(topic) = &context.topology.audit
        {
            explanation.clear();
            judge.dropped(context, outlet.share, at, &record, decision).write(explanation);
            outlet.explain(&record, topic, explanation)?;
        }
        // A record that the output refuses is treated as if it had never existed.
        if decision.reason != Reason::Unsendable {
            added.epoch_changes += u64::from(judge.remember(share, at, &record));
        }
        share.tally.add(decision.verdict, decision.reason);
        share.last_timestamp = record.timestamp.or(share.last_timestamp);
        share.position.next = record.offset + 1;
        added.records += 1;
        if added.bytes >= room.bytes {
            break;
        }
    }
    let is_next = before_stop.len() < all.len() && added.records == before_stop.len() && share.stop.is_none();
    if let Some((_, reason)) = stops.filter(|_| is_next) {
        let offset = batch.record(all[before_stop.len()]).offset;
        share.stop = Some(Stop::Refused(format!("{}:{offset}: {reason}", task.input)));
    }
    Ok(added)
}

/// Why the task stops before a record.
fn stops_at(context: &Context, record: &Record<'_>, evaluation: &Evaluation) -> String {
    let location = format!("{}:{}:{}", record.topic, record.partition, record.offset);
    if let Some(error) = evaluation.full {
        return format!("{location}: {error}");
    }
    let Decision { verdict, reason, .. } = evaluation.decision;
    let (verdict, reason) = (verdict.as_str(), reason.as_str());
    let words = words(context, evaluation);
    format!("{location} is {verdict} ({reason}): {words}; the topology says `fail`")
}

/// Why a record is set aside or the task stops before it, in words.
fn words<'a>(context: &Context, evaluation: &'a Evaluation) -> Cow<'a, str> {
    match &evaluation.rejection {
        Some(rejection) => context.topology.rejection(rejection),
        None => context.topology.meaning(evaluation.decision.reason),
    }
}

/// Where the records of a transaction go.
struct Outlet<'a, C: Cluster> {
    context: &'a Context,
    work: &'a Work<'a, C>,
    share: &'a mut Share,
    producer: &'a mut C::Producer,
    headers: &'a mut HeaderBuf,
    added: &'a mut Added,
}

impl<C: Cluster> Outlet<'_, C> {
    /// Sends the record where its evaluation says. Returns the decision that was carried out: a different one if the
    /// output refuses the record.
    fn emit(&mut self, record: &Record<'_>, evaluation: &Evaluation) -> Result<Decision, Failure> {
        let refusal = match evaluation.decision.action {
            Action::Drop => return Ok(evaluation.decision),
            Action::DeadLetter => {
                self.dead_letter(record, evaluation.decision.reason, &words(self.context, evaluation))?;
                return Ok(evaluation.decision);
            }
            Action::Fail => unreachable!("the caller stops before"),
            Action::Forward => match self.unsendable(record) {
                Some(message) => message.to_owned(),
                None => match self.forward(record)? {
                    None => return Ok(evaluation.decision),
                    Some(message) => message,
                },
            },
        };
        let rejection =
            Rejection { reason: Reason::Unsendable, message: format!("the output refuses the record: {refusal}") };
        let decision = dedup::reject(&self.context.rules, &rejection);
        match decision.action {
            Action::DeadLetter => self.dead_letter(record, Reason::Unsendable, &rejection.message)?,
            Action::Fail => {
                return Err(Failure::refused_at(
                    self.share.task,
                    record.offset,
                    Unprocessable::Failed(rejection.message),
                ));
            }
            Action::Forward | Action::Drop => {}
        }
        Ok(Decision { verdict: Verdict::Invalid, ..decision })
    }

    /// The cluster's message if it has refused the record before.
    fn unsendable(&self, record: &Record<'_>) -> Option<&str> {
        let (offset, message) = self.work.task.quarantine.as_ref()?.unsendable.as_ref()?;
        (*offset == record.offset).then_some(message)
    }

    /// Forwards the record unchanged; returns the cluster's message if it refuses it.
    fn forward(&mut self, record: &Record<'_>) -> Result<Option<String>, Failure> {
        let message = Message {
            topic: &self.work.task.output,
            partition: record.partition,
            key: record.key,
            value: record.value,
            headers: record.headers,
            timestamp: record.timestamp,
        };
        self.send(&message)
    }

    fn send(&mut self, message: &Message<'_>) -> Result<Option<String>, Failure> {
        match self.producer.send(Ticket { number: self.share.task, report: false }, message) {
            Ok(()) => {
                self.added.bytes += message.held_bytes();
                Ok(None)
            }
            Err(error) if error.kind == ErrorKind::Refused => Ok(Some(error.message)),
            // A record that cannot even be handed to the producer is its task's trouble, not the lane's.
            Err(error) if error.kind == ErrorKind::Abort => {
                Err(Failure { task: Some(self.share.task), cause: Cause::Cluster(error) })
            }
            Err(error) => Err(Failure::cluster(error)),
        }
    }

    /// Sends the original bytes to the dead letter topic, with headers that say where the record was and what is wrong
    /// with it. A timestamp that a topic may refuse is replaced by the current time.
    fn dead_letter(&mut self, record: &Record<'_>, reason: Reason, message: &str) -> Result<(), Failure> {
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
            partition: record.partition % self.work.task.topic.dead_letter_partitions,
            key: record.key,
            value: record.value,
            headers: headers.as_headers(),
            timestamp: record.timestamp.filter(|_| believable),
        };
        let refusal = self.send(&letter)?;
        *self.headers = headers;
        if let Some(refusal) = refusal {
            return Err(Failure::refused_at(self.share.task, record.offset, Unprocessable::Letter(refusal)));
        }
        self.added.dead_letters += 1;
        self.share.set_aside.add(record, reason, message);
        Ok(())
    }

    /// Sends the explanation of a drop to the audit topic. If a topic has refused the record before, that may have been
    /// because of its timestamp, so the current time is used instead.
    fn explain(&mut self, record: &Record<'_>, topic: &str, value: &[u8]) -> Result<(), Failure> {
        let believable = self.unsendable(record).is_none();
        let explanation = Message {
            topic,
            partition: record.partition % self.work.task.topic.audit_partitions,
            key: record.key,
            value: Some(value),
            headers: Headers::default(),
            timestamp: record.timestamp.filter(|_| believable),
        };
        match self.send(&explanation)? {
            None => Ok(()),
            Some(refusal) => {
                Err(Failure::refused_at(self.share.task, record.offset, Unprocessable::Explanation(refusal)))
            }
        }
    }
}
