//! A batch's way through a task: each record is judged (`judge`) and sent where its verdict says (`output`).

use crate::cluster::{Cluster, RecordBatch};
use crate::dedup::{Action, Decision, Evaluation, Reason, Verdict};
use crate::record::{HeaderBuf, Record};
use crate::rendering::Renderer;

use super::capacity::{Added, Capacity};
use super::context::Context;
use super::crash;
use super::failure::{Failure, Unprocessable};
use super::gate::{OpenGate, Passage, Through, known_elsewhere};
use super::judge::Judge;
use super::output::{Known, Outlet, words};
use super::panics::InProgress;
use super::present::Doubt;
use super::resume;
use super::share::{Share, Stop};
use super::task::Work;

/// Memory that a lane reuses from batch to batch.
pub struct Scratch {
    pub(super) judge: Judge,
    pub(super) headers: HeaderBuf,
    /// An audit record's value.
    explanation: Vec<u8>,
    /// What renders effects, if the topology has a sink.
    renderer: Option<Renderer>,
    /// The way to the topology's gate, if it has one.
    gate: Option<OpenGate>,
}

impl Scratch {
    /// Memory for records of the topology's rules.
    pub fn new(context: &Context) -> Self {
        let (headers, explanation) = Default::default();
        let gate = context.gate.as_ref().and_then(|gate| OpenGate::of(context, gate.as_ref()));
        let renderer = Renderer::new(&context.topology);
        Self { judge: Judge::new(context), headers, explanation, renderer, gate }
    }

    /// The way to the topology's gate, if it has one.
    pub(super) fn gate(&mut self) -> Option<&mut OpenGate> {
        self.gate.as_mut()
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
    pub room: Capacity,
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
    let Scratch { judge, headers, explanation, renderer, gate } = scratch;
    let Portion { batch, indices: all, room } = *portion;
    let (task, id) = (work.task, share.task);
    let stops = task.trouble.stops_before();
    let before_stop = match &stops {
        None => all,
        Some((offset, _)) => &all[..all.partition_point(|&index| batch.record(index).offset < *offset)],
    };
    let indices = &before_stop[..room.reach(batch, before_stop)];
    judge.read((share.position.next, &share.position.progress), indices.iter().map(|&index| batch.record(index)));
    judge.look_up(work.store, &share.position.progress).map_err(|error| Failure::state(id, error))?;
    let mut added = Added::default();
    let wall_ms = context.clock.wall_ms();
    let passage = gate
        .as_mut()
        .map_or(Passage::Unasked, |gate| gate.ask::<C>((context, work), share, judge, (batch, indices), wall_ms));
    let indices = passage.reach(indices);
    for (at, &index) in indices.iter().enumerate() {
        let record = batch.record(index);
        judge.in_progress = Some(record.offset);
        crash::record(record.topic, record.partition, record.offset);
        let before = (share.position.progress.stream_time, share.position.progress.horizon);
        let evaluation = judge
            .judge((context, work), (&mut share.position.progress, &share.overlay), at, &record, wall_ms)
            .map_err(|error| {
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
        let Some(evaluation) = through(gate.as_ref(), passage, at, evaluation) else {
            // As if it had not been judged.
            (share.position.progress.stream_time, share.position.progress.horizon) = before;
            break;
        };
        let (producer, headers) = (&mut *producer, &mut *headers);
        let known = renderer.as_mut().map(|renderer| Known {
            rows: judge.rows(at),
            explanation: in_inbox(context, judge, share, (at, &record), &evaluation),
            renderer,
        });
        let mut outlet = Outlet { context, work, share, producer, headers, added: &mut added };
        let decision = outlet.emit(&record, &evaluation, known)?;
        if decision.action == Action::Drop
            && let Some(topic) = &context.topology.audit
        {
            explanation.clear();
            let known = (&outlet.share.position.progress, &outlet.share.overlay);
            judge.dropped(context, known, at, &record, decision).write(explanation);
            outlet.explain(&record, topic, explanation)?;
        }
        // A record that the output or the sink refuses is treated as if it had never existed.
        if !matches!(decision.reason, Reason::Unsendable | Reason::Rejected) {
            added.epoch_changes += u64::from(judge.remember(share, at, &record));
        } else if let Some(gate) = gate {
            gate.refuse(at);
        }
        share.tally.add(decision.verdict, decision.reason);
        share.keyless.note(context, task.topics.facts.task_count, &record);
        share.last_timestamp = record.timestamp.or(share.last_timestamp);
        share.position.next = record.offset + 1;
        added.records += 1;
        if added.bytes >= room.bytes {
            break;
        }
    }
    gate.iter_mut().for_each(|gate| gate.take_back(context, work));
    let is_held = matches!(passage, Passage::Held(_)) && added.records == indices.len() && share.stop.is_none();
    let is_next = before_stop.len() < all.len() && added.records == before_stop.len() && share.stop.is_none();
    if is_held {
        share.stop = Some(Stop::Gated);
    } else if let Some((_, reason)) = stops.filter(|_| is_next) {
        let offset = batch.record(all[before_stop.len()]).offset;
        share.stop = Some(Stop::Refused(format!("{}:{offset}: {reason}", task.input)));
    }
    Ok(added)
}

/// The evaluation once the gate has had its say on the record of this number; `None` if it has to be asked about first,
/// with the next portion.
fn through(gate: Option<&OpenGate>, passage: Passage, number: usize, evaluation: Evaluation) -> Option<Evaluation> {
    match gate.map_or(Through::Goes, |gate| gate.through(passage, number, &evaluation.decision)) {
        Through::Goes => Some(evaluation),
        Through::Elsewhere => Some(Evaluation { decision: known_elsewhere(evaluation.decision), ..evaluation }),
        Through::Unasked => None,
    }
}

/// The audit record to write if the sink's inbox has the record, empty if there is no audit topic; `None` if the sink
/// does not answer for each record.
fn in_inbox(
    context: &Context,
    judge: &Judge,
    share: &Share,
    (at, record): (usize, &Record<'_>),
    evaluation: &Evaluation,
) -> Option<Vec<u8>> {
    let answers = context.sink.as_ref().is_some_and(|sink| sink.answers());
    if !answers || evaluation.decision.action != Action::Forward {
        return None;
    }
    let mut explanation = Vec::new();
    if context.topology.audit.is_some() {
        let (verdict, reason, action) = (Verdict::Duplicate, Reason::InInbox, Action::Drop);
        let decision = Decision { verdict, reason, action, ..evaluation.decision };
        let known = (&share.position.progress, &share.overlay);
        judge.dropped(context, known, at, record, decision).write(&mut explanation);
    }
    Some(explanation)
}

/// Why the task stops before a record.
pub(super) fn stops_at(context: &Context, record: &Record<'_>, evaluation: &Evaluation) -> String {
    let location = format!("{}:{}:{}", record.topic, record.partition, record.offset);
    if let Some(error) = evaluation.full {
        return format!("{location}: {error}");
    }
    let Decision { verdict, reason, .. } = evaluation.decision;
    let (verdict, reason) = (verdict.as_str(), reason.as_str());
    let words = words(context, evaluation);
    format!("{location} is {verdict} ({reason}): {words}; the topology says `fail`")
}
