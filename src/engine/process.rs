//! A batch's way through a task: judged record by record (`judge`), and sent where that says.

use std::borrow::Cow;

use crate::cluster::{self, Cluster, Kind, Message, Producer, RecordBatch, Ticket};
use crate::dedup::{self, Action, Decision, Evaluation, Reason, Refusal, Verdict};
use crate::record::{HeaderBuf, Headers, Record};

use super::context::Context;
use super::crash;
use super::failure::{Cause, Failure};
use super::judge::Judge;
use super::panics::AtHand;
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

    /// The record at hand, where [`process`] has panicked.
    pub fn at_hand(&self) -> AtHand {
        self.judge.at_hand.map_or(AtHand::Nothing, AtHand::Record)
    }
}

/// A task's records of a batch.
pub struct Portion<'a, B> {
    /// The batch.
    pub batch: &'a B,
    /// Which of its records, in offset order.
    pub indices: &'a [usize],
    /// What the transaction has room for.
    pub room: Room,
}

/// What may still be put into a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Room {
    /// Records decided.
    pub records: usize,
    /// Bytes that the producer holds of what is sent. The record that takes the last of them is still processed.
    pub bytes: usize,
    /// Bytes of records that are worth being read at once, of which the last ones may not find room: as many, or more where
    /// only little is left. What does not come to be sent, duplicates, would otherwise be read and looked up one by one.
    pub read_bytes: usize,
}

impl Room {
    /// Room for so much.
    pub fn of(records: usize, bytes: usize) -> Self {
        Self { records, bytes, read_bytes: bytes }
    }

    /// How many of these records are to be read: those that there is room for, were each of them sent. What lies beyond
    /// would be read again for the next transaction.
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

/// What a record may grow by on its way, about: as a dead letter it says why.
const ADDED_BYTES: usize = 1 << 10;

/// What a batch has added to a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// Records decided: the first of those that were to be.
    pub records: usize,
    /// Bytes that the producer holds of what was sent.
    pub bytes: usize,
    /// Records sent to the dead letter topic.
    pub dead_letters: u64,
    /// Records that began an epoch.
    pub epoch_changes: u64,
}

/// Takes a task's records into its share of the open transaction, which must be aborted after an error.
///
/// A record that an action `fail` stops at, or one at which the task has panicked too often, is left unprocessed, with
/// all that follow it, and [`Share::stop`] says why. So is one of which clocks have to be asked. Records for which the transaction has no room are left unprocessed, too; [`Added::records`] says how many are done.
pub fn process<C: Cluster>(
    context: &Context,
    work: &Work<'_, C>,
    share: &mut Share,
    portion: &Portion<'_, C::Batch>,
    producer: &mut C::Producer,
    scratch: &mut Scratch,
) -> Result<Added, Failure> {
    let processed = process_all(context, work, share, portion, producer, scratch);
    // Whatever has come of it: a panic elsewhere is not the record's at which this has stopped.
    scratch.judge.at_hand = None;
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
        judge.at_hand = Some(record.offset);
        crash::record(record.topic, record.partition, record.offset);
        let evaluation = judge
            .judge((context, work), share, at, &record, wall_ms)
            .map_err(|error| Failure::refused_at(id, record.offset, resume::Refusal::of_record(error).to_string()))?;
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
        // What the output refuses is as if it had never been there.
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
    let place = format!("{}:{}:{}", record.topic, record.partition, record.offset);
    if let Some(error) = evaluation.full {
        return format!("{place}: {error}");
    }
    let Decision { verdict, reason, .. } = evaluation.decision;
    let (verdict, reason) = (verdict.as_str(), reason.as_str());
    let words = words(context, evaluation);
    format!("{place} is {verdict} ({reason}): {words}; the topology says `fail`")
}

/// Why a record is set aside, or the task stops before it, for people.
fn words<'a>(context: &Context, evaluation: &'a Evaluation) -> Cow<'a, str> {
    match &evaluation.refusal {
        Some(refusal) => context.topology.refusal(refusal),
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
    /// Sends the record where its evaluation says. What comes back is the decision that was carried out: another
    /// one where the output refuses the record.
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
        let refusal =
            Refusal { reason: Reason::Unsendable, message: format!("the output refuses the record: {refusal}") };
        let decision = dedup::refuse(&self.context.rules, &refusal);
        match decision.action {
            Action::DeadLetter => self.dead_letter(record, Reason::Unsendable, &refusal.message)?,
            Action::Fail => {
                return Err(Failure::refused_at(self.share.task, record.offset, refusal.message));
            }
            Action::Forward | Action::Drop => {}
        }
        Ok(Decision { verdict: Verdict::Invalid, ..decision })
    }

    /// The cluster's words where it has refused the record before.
    fn unsendable(&self, record: &Record<'_>) -> Option<&str> {
        let (offset, message) = self.work.task.quarantine.as_ref()?.unsendable.as_ref()?;
        (*offset == record.offset).then_some(message)
    }

    /// Sends the record on as it is; the cluster's words if it will not take it.
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
            Err(error) if error.kind == Kind::Refused => Ok(Some(error.message)),
            // A record that cannot even be handed over is its task's trouble, not the lane's.
            Err(error) if error.kind == Kind::Abort => {
                Err(Failure { task: Some(self.share.task), cause: Cause::Cluster(error) })
            }
            Err(error) => Err(Failure::cluster(error)),
        }
    }

    /// Sends the original bytes to the dead letter topic, with headers that say where they stood and what is
    /// wrong with them. A timestamp that a topic may refuse is replaced by the present.
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
            partition: record.partition % self.work.task.topics.dead_letter_partitions,
            key: record.key,
            value: record.value,
            headers: headers.as_headers(),
            timestamp: record.timestamp.filter(|_| believable),
        };
        let refusal = self.send(&letter)?;
        *self.headers = headers;
        if let Some(refusal) = refusal {
            let reason = format!("the dead letter topic refuses the record too: {refusal}");
            return Err(Failure::refused_at(self.share.task, record.offset, reason));
        }
        self.added.dead_letters += 1;
        self.share.set_aside.add(record, reason, message);
        Ok(())
    }

    /// Sends what explains a drop to the audit topic. Where a topic has refused the record before, it may have been
    /// the timestamp: the present replaces it.
    fn explain(&mut self, record: &Record<'_>, topic: &str, value: &[u8]) -> Result<(), Failure> {
        let believable = self.unsendable(record).is_none();
        let explanation = Message {
            topic,
            partition: record.partition % self.work.task.topics.audit_partitions,
            key: record.key,
            value: Some(value),
            headers: Headers::default(),
            timestamp: record.timestamp.filter(|_| believable),
        };
        match self.send(&explanation)? {
            None => Ok(()),
            Some(refusal) => {
                let reason = format!("the audit topic refuses what explains it: {refusal}");
                Err(Failure::refused_at(self.share.task, record.offset, reason))
            }
        }
    }
}
