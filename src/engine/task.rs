//! A task: one input partition's work, its state and its phase.
//!
//! It holds the committed state. The changes of the open transaction are in the task's [`Share`], and the task takes
//! them over ([`Task::take_committed`]) only after Kafka has confirmed the commit.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::cluster::{Cluster, Settled};
use crate::format::{PositionRecord, StoreMeta, Token};
use crate::observe::Phase as PhaseName;
use crate::record::TopicPartition;
use crate::schemas::Id;
use crate::state::Store;

use super::catalog::InputTopic;
use super::context::Context;
use super::hold::Applied;
use super::isolate::IsolatedWork;
use super::load::Loading;
use super::present::{FutureSuspicion, Present};
use super::redoing::RedoReplay;
use super::share::{Position, Share, TaskId};
use super::sweep::Sweep;

mod destination;
mod known;
mod report;
mod trouble;

pub use destination::TaskDestination;
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
        /// The result of settling.
        settled: Box<Settled>,
        /// When to give up, on the monotonic clock.
        deadline: Duration,
    },
    /// Reading the changelog.
    Loading(Box<Loading<C>>),
    /// The store is current, but the task's row in the sink is not claimed; trying again later.
    Claiming {
        /// When the next attempt is due, on the monotonic clock.
        until: Duration,
    },
    /// Writing to Kafka the transaction that only the sink has committed.
    Redoing(Box<RedoReplay<C>>),
    /// Waiting before a record; everything before it is committed.
    Held(HeldBy),
    /// Working in the lane's shared transactions.
    Running,
    /// Waiting for a slot to work in transactions of its own, since its output has failed.
    Queued {
        /// When the task was queued, on the monotonic clock.
        since: Duration,
    },
    /// Working in transactions of its own; `None` while a step has taken the work.
    Isolated(Option<Box<IsolatedWork<C>>>),
    /// Waiting until the next restore.
    Waiting {
        /// When the restore is due, on the monotonic clock.
        until: Duration,
    },
    /// Stopped for good; the reason was logged.
    Failed,
}

/// What a task waits for before it can process a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeldBy {
    /// The topology's gate, which has to be asked about the record.
    Gate,
    /// The record's schema, which is not known yet.
    Schema {
        /// The schema's id.
        id: Id,
        /// The beginning of the wait, on the monotonic clock.
        since: Duration,
    },
}

impl<C: Cluster> Phase<C> {
    /// The phase's name in metrics and logs.
    pub fn name(&self) -> PhaseName {
        match self {
            Self::Settling(_)
            | Self::Locking { .. }
            | Self::Waiting { .. }
            | Self::Claiming { .. }
            | Self::Redoing(_) => PhaseName::Settling,
            Self::Loading(_) => PhaseName::Restoring,
            Self::Running | Self::Held(_) => PhaseName::Running,
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
    /// Its last transaction, and what the group has committed.
    pub last: LastTransaction,
    /// Its part in the topology's destination.
    pub destination: TaskDestination,
    /// How far the sweep has got.
    pub sweep: Sweep,
    /// Its knowledge of the present time.
    pub present: Present,
    /// Its failures.
    pub trouble: Trouble,
    /// Its metrics, its health and its log.
    pub report: Report,
}

/// The processed ranges for a position record: the last one ends at the next offset to read.
fn recorded_ranges(processed: &[(i64, i64)], next: i64) -> Vec<(i64, i64)> {
    let mut ranges = processed.to_vec();
    if ranges.last().is_none_or(|&(_, end)| end != next) {
        ranges.push((next, next));
    }
    ranges
}

impl<C: Cluster> Task<C> {
    /// A new task in this phase.
    pub fn new(context: &Context, input: TopicPartition, facts: InputTopic, phase: Phase<C>) -> Self {
        let report = Report::new(context, &input);
        report.metrics.phase(phase.name());
        Self {
            topics: TaskTopics::of(context, &input, facts),
            phase,
            state: TaskState::at(context.state_slot.task_dir(&context.topology.name, &input)),
            committed: Position::default(),
            last: LastTransaction::default(),
            destination: TaskDestination::of(context),
            sweep: Sweep::default(),
            present: Present::default(),
            trouble: Trouble::default(),
            report,
            input,
        }
    }

    /// A new task of the same partition, since a panic may have left this one half changed. It keeps the time of its
    /// assignment, its quarantine, its failures and its panics, and starts again at `until`.
    pub fn recreated(self, context: &Context, until: Duration) -> Self {
        let mut task = Self::new(context, self.input.clone(), self.topics.facts, Phase::Waiting { until });
        task.trouble = self.trouble.after_panic();
        (task.report.assigned_at, task.report.has_worked) = (self.report.assigned_at, self.report.has_worked);
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
        let held = self.state.store.as_ref().filter(|_| is_at_work)?;
        Some(Work { task: self, store: &held.store })
    }

    /// Whether it works in the lane's shared transactions and has its store.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.state.store.is_some()
    }

    /// Called when the committed transaction has stopped before a record that seems to be from the future. Returns how
    /// long to wait before Kafka is asked for its time, and logs a disagreement of clocks.
    pub fn on_future_suspicion(&mut self, context: &Context, suspicion: FutureSuspicion) -> Duration {
        let (wait, disagreement) =
            self.present.suspect_future(suspicion, context.clock.monotonic(), context.clock.wall_ms());
        if let Some(found) = disagreement {
            self.report.set_clock_disagreement(Some(found));
            found.log(&self.input);
        }
        wait
    }

    /// Reports whether the task makes no progress: it fails and commits no records although there are some before
    /// `end`, or it is starved. A task that waits for its sink is reported separately.
    pub fn note_failing(&mut self, end: Option<i64>, is_starved: bool, now: Duration) {
        let is_at_work = matches!(self.phase, Phase::Running | Phase::Loading(_));
        let is_at_rest =
            matches!(self.phase, Phase::Running) && end.unwrap_or(self.topics.input_end) <= self.committed.next;
        let has_more = !is_at_rest && !self.destination.is_waiting();
        let is_failing = self.trouble.has_failed_too_long(is_at_work, has_more, now);
        self.report.set_failing(is_failing || is_starved);
    }

    /// Stops the task for good; `may_pass` says whether a later start may succeed without any change.
    pub fn fail(&mut self, reason: &str, may_pass: bool) {
        tracing::error!(task = %self.input, reason, "task stopped");
        self.trouble.may_pass = may_pass;
        self.report.on_stop();
        self.state.store = None;
        if let Some(sink) = self.destination.sink_mut() {
            sink.wait = None;
        }
        self.set_phase(Phase::Failed);
    }

    /// Notes that the task's last transaction may not have ended, and may even have been committed.
    pub fn unsettle(&mut self) {
        self.last.unsettled = true;
        if let Some(held) = &mut self.state.store {
            held.is_latest = false;
        }
    }

    /// The position record of a transaction after which the task is at `position`.
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
            processed: recorded_ranges(progress.processed.as_pairs(), position.next),
            stream_time: progress.stream_time,
            horizon: progress.horizon,
            rules_digest,
            generation: 1,
            task_count: self.topics.facts.task_count,
            truncates: progress.truncates,
            scopes: progress.epochs.scopes().to_vec(),
        }
    }

    /// The meta record of a store that has `applied` the changelog so far.
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

    /// Takes over a share that Kafka has committed: publishes the counts and moves the position. The share's memory can
    /// then be reused.
    pub fn take_committed(&mut self, share: &mut Share, wall_ms: i64) {
        self.report.on_commit(share, wall_ms);
        std::mem::swap(&mut self.committed, &mut share.position);
        let next = self.committed.next;
        self.last.commit_start = false;
        self.last.recorded_token = share.token;
        self.trouble.on_commit(next);
        self.destination.on_commit(next);
        if self.present.pass(next) {
            tracing::info!(task = %self.input, "clocks agree again: the task continues");
            self.report.set_clock_disagreement(None);
        }
        if self.committed.progress.stream_time != crate::format::NO_TIME {
            self.report.metrics.stream_time(self.committed.progress.stream_time);
        }
    }
}
