//! A task: one input partition's work, its state and its phase.
//!
//! It holds what is committed. What the open transaction would change is in the task's [`Share`] of it, and is taken
//! over ([`Task::take_committed`]) only after Kafka has confirmed the commit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{Cluster, Settled};
use crate::format::{PositionRecord, StoreMeta, Token};
use crate::observe::Phase as PhaseName;
use crate::record::TopicPartition;
use crate::state::Store;

use super::catalog::InputTopic;
use super::context::Context;
use super::hold::Applied;
use super::isolate::Isolated;
use super::load::Loading;
use super::present::{Doubt, Present};
use super::redoing::Redoing;
use super::share::{Position, Share, TaskId};
use super::sweep::Sweep;

mod ending;
mod known;
mod report;
mod trouble;

pub use ending::TaskEnding;
use known::{LastTransaction, TaskState, TaskTopics};
use report::Report;
use trouble::Trouble;

/// A lane's tasks.
pub type Tasks<C> = BTreeMap<TaskId, Task<C>>;

/// A task's phase.
pub enum Phase<C: Cluster> {
    /// Waiting for the former owner's transaction to end.
    Settling(C::Settling),
    /// Settled; waiting for the store's former holder in this process to release it.
    Locking {
        /// What settling found out.
        settled: Box<Settled>,
        /// When to give up, on the monotonic clock.
        deadline: Duration,
    },
    /// Reading the changelog.
    Loading(Box<Loading<C>>),
    /// The store is current; claiming the task's row in the sink, which is tried again later.
    Claiming {
        /// When, on the monotonic clock.
        until: Duration,
    },
    /// Writing to Kafka what the sink has committed and Kafka has not.
    Redoing(Box<Redoing<C>>),
    /// Waiting for the topology's gate: everything before the record to ask about is committed.
    Gated,
    /// Working in the lane's shared transactions.
    Running,
    /// To work in transactions of its own, since the output has failed it; waiting for a slot.
    Queued {
        /// Since when, on the monotonic clock.
        since: Duration,
    },
    /// Working in transactions of its own; `None` while a step is using its means.
    Isolated(Option<Box<Isolated<C>>>),
    /// Trying again later.
    Waiting {
        /// When, on the monotonic clock.
        until: Duration,
    },
    /// Stopped for good; the reason was logged.
    Failed,
}

impl<C: Cluster> Phase<C> {
    /// Its name in metrics and logs.
    pub fn name(&self) -> PhaseName {
        match self {
            Self::Settling(_)
            | Self::Locking { .. }
            | Self::Waiting { .. }
            | Self::Claiming { .. }
            | Self::Redoing(_) => PhaseName::Settling,
            Self::Loading(_) => PhaseName::Restoring,
            Self::Running | Self::Gated => PhaseName::Running,
            Self::Queued { .. } | Self::Isolated(_) => PhaseName::Isolated,
            Self::Failed => PhaseName::Failed,
        }
    }
}

/// A task at work together with its store; only such a task can process records.
pub struct Work<'a, C: Cluster> {
    /// The task.
    pub task: &'a Task<C>,
    /// Its store.
    pub store: &'a Store,
}

/// One input partition's work.
pub struct Task<C: Cluster> {
    /// The input partition.
    pub input: TopicPartition,
    /// Its topics.
    pub topics: TaskTopics,
    /// Its phase.
    pub phase: Phase<C>,
    /// Its store.
    pub state: TaskState,
    /// The position after the last committed transaction.
    pub committed: Position,
    /// What is known of its transactions, and of what the group has.
    pub last: LastTransaction,
    /// Its part in the topology's ending.
    pub ending: TaskEnding,
    /// How far the sweep has got.
    pub sweep: Sweep,
    /// What it knows about the present time.
    pub present: Present,
    /// What has gone wrong with it.
    pub trouble: Trouble,
    /// Its metrics, its health and its log.
    pub report: Report,
}

/// The processed ranges as a position record has them: the last one ends where the input continues.
fn recorded(processed: &[(i64, i64)], next: i64) -> Vec<(i64, i64)> {
    let mut all = processed.to_vec();
    if all.last().is_none_or(|&(_, end)| end != next) {
        all.push((next, next));
    }
    all
}

impl<C: Cluster> Task<C> {
    /// A new task in this phase.
    pub fn new(context: &Context, input: TopicPartition, facts: InputTopic, phase: Phase<C>) -> Self {
        let report = Report::new(context, &input);
        report.metrics.phase(phase.name());
        Self {
            topics: TaskTopics::of(context, &input, facts),
            phase,
            state: TaskState::at(context.state_dir.task_dir(&context.topology.name, &input)),
            committed: Position::default(),
            last: LastTransaction::default(),
            ending: TaskEnding::of(context),
            sweep: Sweep::default(),
            present: Present::default(),
            trouble: Trouble::default(),
            report,
            input,
        }
    }

    /// The same partition's task with nothing of this one's memory, which a panic may have left half changed; except
    /// when it was assigned, why it is isolated, and its panics. It starts again at `until`.
    pub fn recreated(self, context: &Context, until: Duration) -> Self {
        let mut task = Self::new(context, self.input.clone(), self.topics.facts, Phase::Waiting { until });
        task.trouble = self.trouble.after_panic();
        (task.report.assigned, task.report.taken_over) = (self.report.assigned, self.report.taken_over);
        task.unsettle();
        task
    }

    /// Changes to `phase` and updates the metrics.
    pub fn set_phase(&mut self, phase: Phase<C>) {
        self.phase = phase;
        self.report.metrics.phase(self.phase.name());
    }

    /// The task with its store, if it is at work.
    pub fn work(&self) -> Option<Work<'_, C>> {
        let is_at_work = matches!(self.phase, Phase::Running | Phase::Isolated(_));
        let held = self.state.held.as_ref().filter(|_| is_at_work)?;
        Some(Work { task: self, store: &held.store })
    }

    /// Whether it works in the lane's shared transactions, with a store.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.state.held.is_some()
    }

    /// The committed transaction has stopped before a record that seems to be from the future. Returns how long to wait
    /// before asking Kafka for its time, and logs where clocks disagree.
    pub fn doubt(&mut self, context: &Context, doubt: Doubt) -> Duration {
        let (wait, disagreement) = self.present.doubt(doubt, context.clock.monotonic(), context.clock.wall_ms());
        if let Some(found) = disagreement {
            self.report.clocks(Some(found));
            found.log(&self.input);
        }
        wait
    }

    /// Reports whether it gets no further: it fails and commits nothing of what there is up to `end`, or is starved. A sink
    /// that keeps it waiting is reported apart.
    pub fn note_failing(&mut self, end: Option<i64>, is_starved: bool, now: Duration) {
        let is_at_work = matches!(self.phase, Phase::Running | Phase::Loading(_));
        let is_at_rest =
            matches!(self.phase, Phase::Running) && end.unwrap_or(self.topics.input_end) <= self.committed.next;
        let has_more = !is_at_rest && !self.ending.waits();
        let fails = self.trouble.lasts(is_at_work, has_more, now);
        self.report.fails(fails || is_starved);
    }

    /// Stops the task for good; `may_pass` says whether a later start may succeed without any change.
    pub fn fail(&mut self, reason: &str, may_pass: bool) {
        tracing::error!(task = %self.input, reason, "task stopped");
        self.trouble.may_pass = may_pass;
        self.report.stopped();
        self.state.held = None;
        if let Some(sink) = self.ending.sink_mut() {
            sink.waits = None;
        }
        self.set_phase(Phase::Failed);
    }

    /// Notes that the transaction it was in may not have ended, and may even have been committed.
    pub fn unsettle(&mut self) {
        self.last.unsettled = true;
        if let Some(held) = &mut self.state.held {
            held.is_latest = false;
        }
    }

    /// The position record of a transaction that brings the task to `position`: what was done, and by whom.
    pub fn position_record(
        &self,
        position: &Position,
        token: Token,
        (owner, rules_digest): (&str, [u8; 32]),
    ) -> PositionRecord {
        let progress = &position.progress;
        PositionRecord {
            token,
            owner: owner.to_owned(),
            input_id: self.topics.input_id.0,
            processed: recorded(progress.processed.as_pairs(), position.next),
            stream_time: progress.stream_time,
            horizon: progress.horizon,
            rules_digest,
            generation: 1,
            task_count: self.topics.facts.task_count,
            truncates: progress.truncates,
            scopes: progress.epochs.scopes().to_vec(),
        }
    }

    /// The store's meta record once it has `applied` the changelog so far.
    pub fn store_meta(&self, applied: Applied, token: Option<Token>, wall_ms: i64) -> StoreMeta {
        StoreMeta {
            changelog_id: self.topics.changelog_id.0,
            partition: self.input.partition,
            changelog_offset: applied.next,
            token,
            synced_at: wall_ms,
            position_offset: applied.position,
        }
    }

    /// Takes over what Kafka has committed: publishes the counts and moves the position. The share's memory can then be
    /// reused.
    pub fn take_committed(&mut self, share: &mut Share, wall_ms: i64) {
        self.report.committed(share, wall_ms);
        std::mem::swap(&mut self.committed, &mut share.position);
        let next = self.committed.next;
        self.last.commit_start = false;
        self.last.recorded = share.token;
        self.trouble.pass(next);
        self.ending.pass(next);
        if self.present.pass(next) {
            tracing::info!(task = %self.input, "clocks agree again: the task continues");
            self.report.clocks(None);
        }
        if self.committed.progress.stream_time != crate::format::NO_TIME {
            self.report.metrics.stream_time(self.committed.progress.stream_time);
        }
    }
}
