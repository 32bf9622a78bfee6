//! Processes a task's records of a batch: each record is judged (`judge`) and sent where its verdict says (`output`).

use crate::cluster::{Cluster, RecordBatch};
use crate::dedup::{Action, Decision, Evaluation, Reason, Verdict};
use crate::record::{HeaderBuf, Record};
use crate::rendering::Renderer;

use super::capacity::{Added, Capacity};
use super::context::Context;
use super::crash;
use super::failure::{Failure, Unprocessable};
use super::gate::{GateReply, LaneGate, RecordOutcome, known_elsewhere};
use super::judge::Judge;
use super::output::{Outlet, SinkInput, description};
use super::panics::InProgress;
use super::present::FutureSuspicion;
use super::resume;
use super::share::{Share, Stop};
use super::task::Work;

/// Memory that a lane reuses from batch to batch.
pub struct Scratch {
    pub(super) judge: Judge,
    pub(super) headers: HeaderBuf,
    /// An audit record's value.
    explanation: Vec<u8>,
    /// Renders effects, if the topology has a sink.
    renderer: Option<Renderer>,
    /// The lane's access to the topology's gate, if there is one.
    gate: Option<LaneGate>,
}

impl Scratch {
    /// Memory for records of the topology's rules.
    pub fn new(context: &Context) -> Self {
        let (headers, explanation) = Default::default();
        let gate = context.gate.as_ref().and_then(|gate| LaneGate::of(context, gate.as_ref()));
        let renderer = Renderer::new(&context.topology);
        Self { judge: Judge::new(context), headers, explanation, renderer, gate }
    }

    /// The lane's access to the topology's gate, if there is one.
    pub(super) fn gate(&mut self) -> Option<&mut LaneGate> {
        self.gate.as_mut()
    }

    /// The record that [`process`] was working on when it panicked.
    pub fn in_progress(&self) -> InProgress {
        self.judge.in_progress.map_or(InProgress::Nothing, InProgress::Record)
    }
}

/// A task's records in a batch.
pub struct BatchPortion<'a, B> {
    /// The batch.
    pub batch: &'a B,
    /// The indices of its records, in offset order.
    pub indices: &'a [usize],
    /// The room left in the transaction.
    pub room: Capacity,
}

/// Processes a task's records in the open transaction, which must be aborted after an error.
///
/// If a record's action is `fail`, if the task must stop before it, if clocks or the gate have to be asked about it
/// first, or if its schema is not known yet, that record and all later ones are not processed; [`Share::stop`] says
/// why. Records that do not fit into the transaction are not processed either; [`Added::records`] is the number of
/// processed records.
pub fn process<C: Cluster>(
    context: &Context,
    work: &Work<'_, C>,
    share: &mut Share,
    portion: &BatchPortion<'_, C::Batch>,
    producer: &mut C::Producer,
    scratch: &mut Scratch,
) -> Result<Added, Failure> {
    let processed = process_all(context, work, share, portion, producer, scratch);
    // Reset whatever the result: a later panic elsewhere must not be attributed to this record.
    scratch.judge.in_progress = None;
    processed
}

fn process_all<C: Cluster>(
    context: &Context,
    work: &Work<'_, C>,
    share: &mut Share,
    portion: &BatchPortion<'_, C::Batch>,
    producer: &mut C::Producer,
    scratch: &mut Scratch,
) -> Result<Added, Failure> {
    let Scratch { judge, headers, explanation, renderer, gate } = scratch;
    let BatchPortion { batch, indices: all, room } = *portion;
    let (task, id) = (work.task, share.task);
    let stops = task.trouble.planned_stop();
    let before_stop = match &stops {
        None => all,
        Some((offset, _)) => &all[..all.partition_point(|&index| batch.record(index).offset < *offset)],
    };
    let indices = &before_stop[..room.fitting(batch, before_stop)];
    judge.read((share.position.next, &share.position.progress), indices.iter().map(|&index| batch.record(index)));
    judge.look_up(work.store, &share.position.progress).map_err(|error| Failure::state(id, error))?;
    let mut added = Added::default();
    let wall_ms = context.clock.wall_ms();
    let known_end = all.last().map_or(0, |&last| batch.record(last).offset + 1);
    let gate_reply = gate
        .as_mut()
        .map_or(GateReply::Unasked, |gate| gate.ask::<C>((context, work), share, judge, (batch, indices), wall_ms));
    let indices = gate_reply.ready(indices);
    for (number, &index) in indices.iter().enumerate() {
        let record = batch.record(index);
        judge.in_progress = Some(record.offset);
        crash::record(record.topic, record.partition, record.offset);
        let before = (share.position.progress.stream_time, share.position.progress.horizon);
        let evaluation = evaluate((context, work), share, judge, (number, &record), (wall_ms, known_end))?;
        let Some(evaluation) = evaluation else { break };
        let Some(evaluation) = after_gate(gate.as_ref(), gate_reply, number, evaluation) else {
            // The record counts as not judged: the next portion judges it again.
            (share.position.progress.stream_time, share.position.progress.horizon) = before;
            break;
        };
        let (producer, headers) = (&mut *producer, &mut *headers);
        let sink_input = renderer.as_mut().map(|renderer| SinkInput {
            rows: judge.rows(number),
            explanation: inbox_explanation(context, judge, share, (number, &record), &evaluation),
            renderer,
        });
        let mut outlet = Outlet { context, work, share, producer, headers, added: &mut added };
        let decision = outlet.emit(&record, &evaluation, sink_input)?;
        audit_drop(&mut outlet, judge, (number, &record), decision, explanation)?;
        // A record that the output or the sink refuses is treated as if it had never existed.
        if !matches!(decision.reason, Reason::Unsendable | Reason::Rejected) {
            added.epoch_changes += u64::from(judge.remember(share, number, &record));
        } else if let Some(gate) = gate {
            gate.on_refused(number);
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
    if share.stop.is_none() && added.records == indices.len() {
        share.stop = match (gate_reply, stops, all.get(indices.len())) {
            (GateReply::Held(_), ..) => Some(Stop::Gated),
            (_, Some((_, reason)), Some(&next)) if indices.len() == before_stop.len() => {
                Some(Stop::Refused(format!("{}:{}: {reason}", task.input, batch.record(next).offset)))
            }
            _ => None,
        };
    }
    Ok(added)
}

/// Judges the record with this number. If the task must stop before the record, sets the share's stop and returns
/// `None`. All records below `known_end` exist.
fn evaluate<C: Cluster>(
    (context, work): (&Context, &Work<'_, C>),
    share: &mut Share,
    judge: &mut Judge,
    (number, record): (usize, &Record<'_>),
    (wall_ms, known_end): (i64, i64),
) -> Result<Option<Evaluation>, Failure> {
    let known = (&mut share.position.progress, &share.overlay);
    let evaluation = judge.judge((context, work), known, number, record, wall_ms).map_err(|error| {
        Failure::refused_at(share.task, record.offset, Unprocessable::Entry(resume::Refusal::of_record(error)))
    })?;
    match evaluation {
        None if judge.awaited_schema(number).is_some() => {
            share.stop = judge.awaited_schema(number).map(Stop::AwaitsSchema);
            Ok(None)
        }
        None => {
            let (offset, timestamp) = (record.offset, record.timestamp.unwrap_or_default());
            share.stop = Some(Stop::SeemsFuture(FutureSuspicion { offset, timestamp, known_end }));
            Ok(None)
        }
        Some(evaluation) if evaluation.decision.action == Action::Fail => {
            share.stop = Some(Stop::Refused(stop_reason(context, record, &evaluation)));
            Ok(None)
        }
        evaluation => Ok(evaluation),
    }
}

/// The evaluation after the gate's answer about the record with this number; `None` if the gate has to be asked about
/// the record first, with the next portion.
fn after_gate(
    gate: Option<&LaneGate>,
    gate_reply: GateReply,
    number: usize,
    evaluation: Evaluation,
) -> Option<Evaluation> {
    match gate.map_or(RecordOutcome::Pass, |gate| gate.outcome(gate_reply, number, &evaluation.decision)) {
        RecordOutcome::Pass => Some(evaluation),
        RecordOutcome::KnownElsewhere => {
            Some(Evaluation { decision: known_elsewhere(evaluation.decision), ..evaluation })
        }
        RecordOutcome::Unasked => None,
    }
}

/// Sends the explanation of a drop to the audit topic, if there is one.
fn audit_drop<C: Cluster>(
    outlet: &mut Outlet<'_, C>,
    judge: &Judge,
    (number, record): (usize, &Record<'_>),
    decision: Decision,
    explanation: &mut Vec<u8>,
) -> Result<(), Failure> {
    let context = outlet.context;
    let Some(topic) = context.topology.audit.as_ref().filter(|_| decision.action == Action::Drop) else {
        return Ok(());
    };
    explanation.clear();
    let known = (&outlet.share.position.progress, &outlet.share.overlay);
    judge.dropped(context, known, number, record, decision).write(explanation);
    outlet.explain(record, topic, explanation)
}

/// The audit record to write if the sink's inbox has the record; empty without an audit topic. `None` if the sink does
/// not answer for each record, or if the record is not forwarded.
fn inbox_explanation(
    context: &Context,
    judge: &Judge,
    share: &Share,
    (number, record): (usize, &Record<'_>),
    evaluation: &Evaluation,
) -> Option<Vec<u8>> {
    let has_answers = context.sink.as_ref().is_some_and(|sink| sink.answers());
    if !has_answers || evaluation.decision.action != Action::Forward {
        return None;
    }
    let mut explanation = Vec::new();
    if context.topology.audit.is_some() {
        let (verdict, reason, action) = (Verdict::Duplicate, Reason::InInbox, Action::Drop);
        let decision = Decision { verdict, reason, action, ..evaluation.decision };
        let known = (&share.position.progress, &share.overlay);
        judge.dropped(context, known, number, record, decision).write(&mut explanation);
    }
    Some(explanation)
}

/// Why the task stops before a record.
pub(super) fn stop_reason(context: &Context, record: &Record<'_>, evaluation: &Evaluation) -> String {
    let location = format!("{}:{}:{}", record.topic, record.partition, record.offset);
    if let Some(error) = evaluation.full {
        return format!("{location}: {error}");
    }
    let Decision { verdict, reason, .. } = evaluation.decision;
    let (verdict, reason) = (verdict.as_str(), reason.as_str());
    let words = description(context, evaluation);
    format!("{location} is {verdict} ({reason}): {words}; the topology says `fail`")
}
