//! A lane's access to its topology's gate: which records the gate is asked about, how its answers are applied, and what
//! happens while it does not answer.
//!
//! A batch's records are judged ahead of time, and the gate is asked, all at once, about the records that the store
//! would let through as new. Then the records are judged again with its answers: a record known from elsewhere is a
//! duplicate.
//!
//! **Why judging ahead finds the right records**: a record that the gate drops is remembered in the store as if it had
//! been passed on. So the answer about one record does not change the decision about the next, and both judgements are
//! the same. The exception is a record that the output or the sink refuses, which is not remembered: the gate is asked
//! about a record whose decision changes for that reason with the next portion ([`LaneGate::outcome`]), and the mark of
//! the refused record is taken back.
//!
//! **Failure**: while the gate does not answer, it is not asked again before the next attempt is due, however many
//! tasks there are. With `hold`, a task stops before the first record that the gate must be asked about, and waits;
//! with `pass` its records are passed on without asking.

use std::time::Duration;

use crate::cluster::{Cluster, RecordBatch};
use crate::dedup::{Action, Decision, Progress, Reason, Verdict};
use crate::effect::gate::{
    Error, ErrorKind, Gate, GateRecord, GateVerdict, Identity, RowIdentity, Session, SourcePartition,
};
use crate::observe::GateMetrics;
use crate::state::Overlay;
use crate::topology::gate::OnUnavailable;

use super::context::{Context, backoff};
use super::crash;
use super::judge::Judge;
use super::share::Share;
use super::sink_trouble::LoggedReasons;
use super::task::Work;

/// The changes made by judging ahead of time, kept apart from the task.
#[derive(Default)]
pub struct LookAhead {
    /// The progress, as in a share.
    pub progress: Progress,
    /// The changes on top of the share's overlay.
    pub overlay: Overlay,
}

/// A lane's access to its topology's gate.
pub struct LaneGate {
    session: Box<dyn Session>,
    /// The gate's metrics.
    pub metrics: GateMetrics,
    topology: String,
    on_unavailable: OnUnavailable,
    outage: Option<Outage>,
    ahead: LookAhead,
    /// The records of the current portion that the gate is asked about.
    asked_records: Vec<GateRecord>,
    /// The numbers of these records in the portion.
    asked_numbers: Vec<usize>,
    /// The answers about these records; empty if the gate has not answered.
    answers: Vec<GateVerdict>,
    /// The records among them that are not passed on, since the output or the sink refuses them.
    refused_records: Vec<GateRecord>,
}

/// A time during which the gate does not answer.
struct Outage {
    since: Duration,
    /// How many attempts have failed.
    attempts: u32,
    retry_at: Duration,
    logged_reasons: LoggedReasons,
    /// How many records were passed on without asking.
    unasked: u64,
}

/// The gate's reply about a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GateReply {
    /// There is an answer about each record that the gate was asked about.
    Answered,
    /// The gate does not answer: records are passed on without asking.
    Unasked,
    /// The gate does not answer: the record with this number, from 0, and all later records have to wait.
    Held(usize),
}

impl GateReply {
    /// The records of a portion that need not wait.
    pub fn ready(self, indices: &[usize]) -> &[usize] {
        match self {
            Self::Held(first) => &indices[..first],
            Self::Answered | Self::Unasked => indices,
        }
    }
}

/// The outcome for a record that the store lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecordOutcome {
    /// Its decision holds.
    Pass,
    /// It was passed on elsewhere.
    KnownElsewhere,
    /// The gate was not asked about it, and has to be.
    Unasked,
}

impl LaneGate {
    /// Access to `gate`; `None` if the topology has none.
    pub fn of(context: &Context, gate: &dyn Gate) -> Option<Self> {
        let on_unavailable = context.topology.gate.as_ref()?.on_unavailable;
        Some(Self {
            session: gate.session(),
            metrics: context.metrics.gate(&context.topology.name),
            topology: context.topology.name.clone(),
            on_unavailable,
            outage: None,
            ahead: LookAhead::default(),
            asked_records: Vec::new(),
            asked_numbers: Vec::new(),
            answers: Vec::new(),
            refused_records: Vec::new(),
        })
    }

    /// Asks the gate about the records of a portion that would be passed on as new. `judge` has read and looked up the
    /// portion.
    pub fn ask<C: Cluster>(
        &mut self,
        (context, work): (&Context, &Work<'_, C>),
        share: &Share,
        judge: &mut Judge,
        (batch, indices): (&C::Batch, &[usize]),
        wall_ms: i64,
    ) -> GateReply {
        let Self { ahead, asked_records, asked_numbers, answers, refused_records, .. } = self;
        asked_records.clear();
        asked_numbers.clear();
        answers.clear();
        refused_records.clear();
        let records = indices.iter().map(|&index| batch.record(index));
        let known = (&share.position.progress, &share.overlay);
        judge.look_ahead(
            (context, work),
            known,
            records,
            (wall_ms, ahead),
            |number, offset, decision, (rows, arena)| {
                if is_asked_about(decision) {
                    let identity = Identity::of(rows.iter().map(|row| RowIdentity {
                        identity: &arena[row.key.clone()],
                        scope: row.scope.clone().map(|range| &arena[range]),
                        version: row.version.clone().map(|range| &arena[range]),
                    }));
                    asked_records.push(GateRecord { identity, offset });
                    asked_numbers.push(number);
                }
            },
        );
        let Some(&first) = self.asked_numbers.first() else { return GateReply::Answered };
        match (self.try_ask(context, &source_partition(work, &context.topology.name)), self.on_unavailable) {
            (true, _) => GateReply::Answered,
            (false, OnUnavailable::Hold) => GateReply::Held(first),
            (false, OnUnavailable::Pass) => {
                let unasked = self.asked_numbers.len() as u64;
                self.metrics.unasked(unasked);
                self.outage.iter_mut().for_each(|outage| outage.unasked += unasked);
                GateReply::Unasked
            }
        }
    }

    /// Asks the gate about the portion, unless the next attempt is not due yet. Returns whether it has answered.
    fn try_ask(&mut self, context: &Context, source: &SourcePartition<'_>) -> bool {
        let began = context.clock.monotonic();
        if self.outage.as_ref().is_some_and(|outage| began < outage.retry_at) {
            return false;
        }
        match self.session.ask(source, &self.asked_records, &mut self.answers) {
            Ok(()) => {
                crash::point(crash::Point::AfterGate);
                debug_assert_eq!(self.answers.len(), self.asked_records.len(), "one answer for each record");
                let count = |kind: GateVerdict| self.answers.iter().filter(|answer| **answer == kind).count() as u64;
                let counts = [GateVerdict::First, GateVerdict::Own, GateVerdict::Elsewhere].map(count);
                self.metrics.answered(context.clock.monotonic().saturating_sub(began), counts);
                self.on_answer(context);
                true
            }
            Err(error) => {
                self.on_trouble(context, &error);
                false
            }
        }
    }

    /// Whether a task that waits for the gate may continue: the next attempt is due, and the gate can be reached.
    pub fn is_reachable(&mut self, context: &Context) -> bool {
        let now = context.clock.monotonic();
        let Some(outage) = &mut self.outage else { return true };
        if now < outage.retry_at {
            return false;
        }
        match self.session.reach() {
            // Only asking shows whether it answers.
            Ok(()) => true,
            Err(error) => {
                self.on_trouble(context, &error);
                false
            }
        }
    }

    fn on_answer(&mut self, context: &Context) {
        let Some(outage) = self.outage.take() else { return };
        let was_down_ms = context.clock.monotonic().saturating_sub(outage.since).as_millis() as u64;
        tracing::info!(topology = self.topology, was_down_ms, unasked = outage.unasked, "the gate answers again");
    }

    /// Notes that the gate does not answer, and logs it: once, and with `hold` again from time to time.
    fn on_trouble(&mut self, context: &Context, error: &Error) {
        let now = context.clock.monotonic();
        let is_new = self.outage.is_none();
        let outage = self.outage.get_or_insert_with(|| Outage {
            since: now,
            attempts: 0,
            retry_at: now,
            logged_reasons: LoggedReasons::default(),
            unasked: 0,
        });
        outage.retry_at = now + backoff(outage.attempts);
        outage.attempts += 1;
        let is_held = self.on_unavailable == OnUnavailable::Hold;
        let is_due = if is_held { outage.logged_reasons.is_due(&error.message, now) } else { is_new };
        let (topology, reason) = (&self.topology, &error.message);
        match (error.kind, is_held) {
            _ if !is_due => tracing::debug!(topology, reason, "the gate does not answer"),
            (ErrorKind::Transient, true) => {
                tracing::warn!(topology, reason, "the gate does not answer: records wait for it")
            }
            (ErrorKind::Permanent, true) => {
                tracing::error!(topology, reason, "the gate cannot be asked: records wait for it")
            }
            (_, false) => tracing::warn!(topology, reason, "the gate does not answer: records go on unasked"),
        }
    }

    /// The outcome for the record with this number; `decision` is the final one.
    pub fn outcome(&self, reply: GateReply, number: usize, decision: &Decision) -> RecordOutcome {
        if reply == GateReply::Unasked || !is_asked_about(decision) {
            return RecordOutcome::Pass;
        }
        match self.answer_index(number).map(|index| self.answers[index]) {
            Some(GateVerdict::First | GateVerdict::Own) => RecordOutcome::Pass,
            Some(GateVerdict::Elsewhere) => RecordOutcome::KnownElsewhere,
            None => RecordOutcome::Unasked,
        }
    }

    /// The index of the answer about the record with this number.
    fn answer_index(&self, number: usize) -> Option<usize> {
        let index = self.asked_numbers.binary_search(&number).ok()?;
        (index < self.answers.len()).then_some(index)
    }

    /// Notes that the record with this number is not passed on: the output or the sink refuses it.
    pub fn on_refused(&mut self, number: usize) {
        if let Some(index) = self.answer_index(number) {
            self.refused_records.push(self.asked_records[index]);
        }
    }

    /// Takes back the marks of records that are not passed on, so that an equal record may be passed on elsewhere.
    pub fn take_back<C: Cluster>(&mut self, context: &Context, work: &Work<'_, C>) {
        if self.refused_records.is_empty() {
            return;
        }
        let result = self.session.remove_marks(&source_partition(work, &context.topology.name), &self.refused_records);
        if let Err(error) = result {
            let marks = self.refused_records.len();
            tracing::warn!(
                topology = self.topology, marks, reason = %error,
                "records were refused, but the gate still has their marks: equal records are dropped elsewhere"
            );
            self.on_trouble(context, &error);
        }
    }
}

/// The decision to drop a record that the gate knows from elsewhere.
pub fn known_elsewhere(decision: Decision) -> Decision {
    Decision { verdict: Verdict::Duplicate, reason: Reason::KnownElsewhere, action: Action::Drop, ..decision }
}

/// Whether the gate is asked about a record with this decision: the store takes it for new. A record that is passed on
/// for another reason, such as a tombstone or a record without a version, cannot be recognised elsewhere.
fn is_asked_about(decision: &Decision) -> bool {
    decision.action == Action::Forward
        && matches!(decision.reason, Reason::First | Reason::Newer | Reason::Expired | Reason::EpochChanged)
}

/// The coordinates of a task's records.
fn source_partition<'a, C: Cluster>(work: &'a Work<'_, C>, topology: &'a str) -> SourcePartition<'a> {
    let task = work.task;
    SourcePartition {
        topology,
        topic: &task.input.topic,
        topic_id: task.topics.input_id.0,
        partition: task.input.partition,
    }
}
