//! A lane's way to its topology's gate: what is asked about, what follows from the answers, and what happens while there
//! are none.
//!
//! A batch's records are judged ahead of time, and those that the store would let through as new are asked about, all at
//! once. Only then are they judged for good: what the gate knows from elsewhere is a duplicate.
//!
//! **Why judging ahead tells which ones**: a record that the gate drops is remembered in the store as if it had been passed
//! on. So what the gate says of one record changes nothing for the next, and both times the same is decided. Only a
//! record that the output or the sink refuses is not remembered after all; what follows from that is asked about with the
//! next portion ([`OpenGate::through`]), and its mark is taken back.
//!
//! **Failure**: while the gate does not answer, nothing is asked before the next try is due, however many tasks there are.
//! With `hold`, a task stops before the first record that would have to be asked about, and waits; with `pass` its records
//! go on unasked.

use std::time::Duration;

use crate::cluster::{Cluster, RecordBatch};
use crate::dedup::{Action, Decision, Progress, Reason, Verdict};
use crate::effect::gate::{Answer, Asked, Error, ErrorKind, Gate, Identity, Place, RowOf, Session};
use crate::observe::GateMetrics;
use crate::state::Overlay;
use crate::topology::gate::OnUnavailable;

use super::context::{Context, backoff};
use super::crash;
use super::judge::Judge;
use super::share::Share;
use super::sink_trouble::Said;
use super::task::Work;

/// What judging ahead of time has changed, apart from the task.
#[derive(Default)]
pub struct Ahead {
    /// As a share's.
    pub progress: Progress,
    /// As a share's, beside it.
    pub overlay: Overlay,
}

/// A lane's way to its topology's gate.
pub struct OpenGate {
    session: Box<dyn Session>,
    /// Where counts go.
    pub metrics: GateMetrics,
    topology: String,
    on_unavailable: OnUnavailable,
    down: Option<Down>,
    ahead: Ahead,
    /// What the current portion asks about, and the number that each has there.
    asked: Vec<Asked>,
    numbers: Vec<usize>,
    answers: Vec<Answer>,
    /// What was asked about in it and is not passed on.
    refused: Vec<Asked>,
}

/// The gate does not answer.
struct Down {
    since: Duration,
    /// How often it was tried in vain.
    attempts: u32,
    retry_at: Duration,
    said: Said,
    /// How many records went on unasked.
    unasked: u64,
}

/// What the gate says of a portion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Passage {
    /// Each record that was asked about has an answer.
    Answered,
    /// Records go on unasked.
    Unasked,
    /// It does not answer: the record of this number, from 0, and all that follow have to wait.
    Held(usize),
}

impl Passage {
    /// Those of a portion's records that need not wait.
    pub fn reach(self, indices: &[usize]) -> &[usize] {
        match self {
            Self::Held(first) => &indices[..first],
            Self::Answered | Self::Unasked => indices,
        }
    }
}

/// What follows for a record that the store lets through.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Through {
    /// It goes where its decision says.
    Goes,
    /// It was passed on elsewhere.
    Elsewhere,
    /// It was not asked about, and has to be.
    Unasked,
}

impl OpenGate {
    /// A way to `gate`.
    pub fn of(context: &Context, gate: &dyn Gate) -> Option<Self> {
        let on_unavailable = context.topology.gate.as_ref()?.on_unavailable;
        Some(Self {
            session: gate.session(),
            metrics: context.metrics.gate(&context.topology.name),
            topology: context.topology.name.clone(),
            on_unavailable,
            down: None,
            ahead: Ahead::default(),
            asked: Vec::new(),
            numbers: Vec::new(),
            answers: Vec::new(),
            refused: Vec::new(),
        })
    }

    /// Asks about those of a portion's records that would be passed on as new. They are read and looked up.
    pub fn ask<C: Cluster>(
        &mut self,
        (context, work): (&Context, &Work<'_, C>),
        share: &Share,
        judge: &mut Judge,
        (batch, indices): (&C::Batch, &[usize]),
        wall_ms: i64,
    ) -> Passage {
        let Self { ahead, asked, numbers, answers, refused, .. } = self;
        asked.clear();
        numbers.clear();
        answers.clear();
        refused.clear();
        let records = indices.iter().map(|&index| batch.record(index));
        let known = (&share.position.progress, &share.overlay);
        judge.look_ahead(
            (context, work),
            known,
            records,
            (wall_ms, ahead),
            |number, offset, decision, (rows, arena)| {
                if is_asked_about(decision) {
                    let identity = Identity::of(rows.iter().map(|row| RowOf {
                        identity: &arena[row.key.clone()],
                        scope: row.scope.clone().map(|range| &arena[range]),
                        version: row.version.clone().map(|range| &arena[range]),
                    }));
                    asked.push(Asked { identity, offset });
                    numbers.push(number);
                }
            },
        );
        let Some(&first) = self.numbers.first() else { return Passage::Answered };
        match (self.is_answered(context, &place(work, &context.topology.name)), self.on_unavailable) {
            (true, _) => Passage::Answered,
            (false, OnUnavailable::Hold) => Passage::Held(first),
            (false, OnUnavailable::Pass) => {
                let unasked = self.numbers.len() as u64;
                self.metrics.unasked(unasked);
                self.down.iter_mut().for_each(|down| down.unasked += unasked);
                Passage::Unasked
            }
        }
    }

    /// Asks about the portion, unless the gate was asked in vain a short while ago. Says whether there are answers.
    fn is_answered(&mut self, context: &Context, place: &Place<'_>) -> bool {
        let began = context.clock.monotonic();
        if self.down.as_ref().is_some_and(|down| began < down.retry_at) {
            return false;
        }
        match self.session.ask(place, &self.asked, &mut self.answers) {
            Ok(()) => {
                crash::point(crash::Point::AfterGate);
                debug_assert_eq!(self.answers.len(), self.asked.len(), "each has an answer");
                let count = |of: Answer| self.answers.iter().filter(|answer| **answer == of).count() as u64;
                let counts = [Answer::First, Answer::Own, Answer::Elsewhere].map(count);
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

    /// Whether a task that waits for the gate may go on: the next try is due, and the gate can be reached.
    pub fn is_reached(&mut self, context: &Context) -> bool {
        let now = context.clock.monotonic();
        let Some(down) = &mut self.down else { return true };
        if now < down.retry_at {
            return false;
        }
        match self.session.reach() {
            // Whether it answers is seen once it is asked.
            Ok(()) => true,
            Err(error) => {
                self.on_trouble(context, &error);
                false
            }
        }
    }

    fn on_answer(&mut self, context: &Context) {
        let Some(down) = self.down.take() else { return };
        let was_down_ms = context.clock.monotonic().saturating_sub(down.since).as_millis() as u64;
        tracing::info!(topology = self.topology, was_down_ms, unasked = down.unasked, "the gate answers again");
    }

    /// Notes that the gate does not answer, and logs it: once, and with `hold` again from time to time.
    fn on_trouble(&mut self, context: &Context, error: &Error) {
        let now = context.clock.monotonic();
        let is_new = self.down.is_none();
        let down = self.down.get_or_insert_with(|| Down {
            since: now,
            attempts: 0,
            retry_at: now,
            said: Said::default(),
            unasked: 0,
        });
        down.retry_at = now + backoff(down.attempts);
        down.attempts += 1;
        let is_held = self.on_unavailable == OnUnavailable::Hold;
        let is_due = if is_held { down.said.is_due(&error.message, now) } else { is_new };
        let (topology, reason) = (&self.topology, &error.message);
        match (error.kind, is_held) {
            _ if !is_due => tracing::debug!(topology, reason, "the gate does not answer"),
            (ErrorKind::Passing, true) => {
                tracing::warn!(topology, reason, "the gate does not answer: records wait for it")
            }
            (ErrorKind::Lasting, true) => {
                tracing::error!(topology, reason, "the gate cannot be asked: records wait for it")
            }
            (_, false) => tracing::warn!(topology, reason, "the gate does not answer: records go on unasked"),
        }
    }

    /// What follows for the record of this number, which was decided on for good.
    pub fn through(&self, passage: Passage, number: usize, decision: &Decision) -> Through {
        if passage == Passage::Unasked || !is_asked_about(decision) {
            return Through::Goes;
        }
        match self.asked_as(number).map(|at| self.answers[at]) {
            Some(Answer::First | Answer::Own) => Through::Goes,
            Some(Answer::Elsewhere) => Through::Elsewhere,
            None => Through::Unasked,
        }
    }

    /// Where among the answers that of the record of this number is.
    fn asked_as(&self, number: usize) -> Option<usize> {
        let at = self.numbers.binary_search(&number).ok()?;
        (at < self.answers.len()).then_some(at)
    }

    /// Notes that the record of this number is not passed on after all: the output or the sink refuses it.
    pub fn refuse(&mut self, number: usize) {
        if let Some(at) = self.asked_as(number) {
            self.refused.push(self.asked[at]);
        }
    }

    /// Takes back the marks of what is not passed on, so that the same thing may be passed on elsewhere.
    pub fn take_back<C: Cluster>(&mut self, context: &Context, work: &Work<'_, C>) {
        if self.refused.is_empty() {
            return;
        }
        let taken = self.session.take_back(&place(work, &context.topology.name), &self.refused);
        if let Err(error) = taken {
            let marks = self.refused.len();
            tracing::warn!(
                topology = self.topology, marks, reason = %error,
                "records were refused, and the gate keeps their marks: the same things are dropped elsewhere"
            );
            self.on_trouble(context, &error);
        }
    }
}

/// What is dropped because the gate knows it from elsewhere.
pub fn known_elsewhere(decision: Decision) -> Decision {
    Decision { verdict: Verdict::Duplicate, reason: Reason::KnownElsewhere, action: Action::Drop, ..decision }
}

/// Whether the gate is asked about a record with this decision: the store takes it for new. What is passed on for another
/// reason, without a version or as a tombstone, say, is nothing that could be recognised.
fn is_asked_about(decision: &Decision) -> bool {
    decision.action == Action::Forward
        && matches!(decision.reason, Reason::First | Reason::Newer | Reason::Expired | Reason::EpochChanged)
}

fn place<'a, C: Cluster>(work: &'a Work<'_, C>, topology: &'a str) -> Place<'a> {
    let task = work.task;
    Place { topology, topic: &task.input.topic, topic_id: task.topics.input_id.0, partition: task.input.partition }
}
