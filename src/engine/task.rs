//! A task: one input partition's work, its state and its phase.
//!
//! It holds what is committed. What the open transaction would change is in the task's [`Share`] of it, and is taken
//! over ([`Task::take_committed`]) only after Kafka has confirmed the commit.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use crate::cluster::{Cluster, Settled, TopicId};
use crate::effect::Mark;
use crate::format::{PositionRecord, StoreMeta, Token};
use crate::observe::{Phase as PhaseName, TaskMetrics};
use crate::record::TopicPartition;
use crate::state::Store;

use super::calling::window::Window;
use super::catalog::InputTopic;
use super::commitment::Commitment;
use super::context::Context;
use super::failing::Failing;
use super::failure::Unprocessable;
use super::hold::{Applied, Held};
use super::isolate::{Isolated, Quarantine};
use super::keyless::KeylessLog;
use super::lag::Lag;
use super::load::Loading;
use super::panics::Panics;
use super::present::{Disagreement, Doubt, Present};
use super::record_log::RecordLog;
use super::redoing::Redoing;
use super::rows::Claim;
use super::share::{Position, Share, TaskId};
use super::sink_trouble::Wait;
use super::sweep::Sweep;

mod presence;

use presence::Presence;

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
    /// The changelog partition.
    pub changelog: TopicPartition,
    /// The output topic; the partition is the input's.
    pub output: Arc<str>,
    /// Where the store is kept.
    pub dir: PathBuf,
    /// What was found out about its topics before it started.
    pub topic: InputTopic,
    /// Its phase.
    pub phase: Phase<C>,
    /// Whether a later start may get beyond why it has stopped, if it has.
    pub may_pass: bool,
    /// The store, once it is locked.
    pub held: Option<Held>,
    /// What was found wrong with the store's files while reading it: the next time it is opened, another is built.
    pub damaged: Option<String>,
    /// The position after the last committed transaction.
    pub committed: Position,
    /// Records that are still to be logged.
    pub record_log: RecordLog,
    /// Records without a key that are still to be logged.
    pub keyless: KeylessLog,
    /// The input topic's id, as settled.
    pub input_id: TopicId,
    /// The input partition's end, as settled.
    pub input_end: i64,
    /// Whether to commit the position even though nothing was read.
    pub commit_start: bool,
    /// Whether the store has been restored from the changelog since the task settled.
    pub restored: bool,
    /// Whether it has been at work since it was assigned.
    pub taken_over: bool,
    /// When it was assigned, on the monotonic clock.
    pub assigned: Duration,
    /// An offset, and how often in a row the record there could not be read.
    pub unreadable: (i64, u32),
    /// The changelog topic's id, as settled.
    pub changelog_id: TopicId,
    /// What the group has committed and the owner it names; `None` where ratchet has committed nothing.
    pub commitment: Option<Commitment>,
    /// Whether it was in a transaction that is not known to have ended.
    pub unsettled: bool,
    /// The last transaction in the changelog: its position record's token.
    pub recorded: Option<Token>,
    /// Its records that were read and are not settled, where the topology calls a provider and it is at work.
    pub window: Option<Window>,
    /// Its row in the topology's sink, once it is claimed.
    pub claim: Option<Claim>,
    /// The group's offset, as settled; `None` if there was none.
    pub group_offset: Option<i64>,
    /// What its row said when it was first found to differ from the changelog.
    pub doubted_row: Option<Mark>,
    /// The records that the sink refuses, by offset, and what it says.
    pub rejected: BTreeMap<i64, String>,
    /// Set while the sink keeps it from working.
    pub waits_for_sink: Option<Wait>,
    /// Set while the output has failed this task.
    pub quarantine: Option<Quarantine>,
    /// How far the sweep has got.
    pub sweep: Sweep,
    /// The record before which the next transaction stops the task for good, and why.
    pub refused_at: Option<(i64, Unprocessable)>,
    /// What its lag is computed from.
    pub lag: Lag,
    /// How many times in a row it was refused because of a broker's response and asked again.
    pub doubted: u32,
    /// How many times in a row the way back has failed.
    pub attempts: u32,
    /// What is known of its failures since its last commit.
    pub failing: Failing,
    /// Its panics since it last got past the record in question.
    pub panics: Panics,
    /// What it knows about the present time.
    pub present: Present,
    /// Its metrics.
    pub metrics: TaskMetrics,
    presence: Presence,
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
    pub fn new(context: &Context, input: TopicPartition, topic: InputTopic, phase: Phase<C>) -> Self {
        let metrics = context.metrics.task(&context.topology.name, &input);
        let task = Self {
            changelog: TopicPartition::new(context.topology.changelog(&input.topic), input.partition),
            output: context.topology.output_topic(&input.topic).unwrap_or_default().into(),
            dir: context.state_dir.task_dir(&context.topology.name, &input),
            topic,
            phase,
            may_pass: false,
            held: None,
            damaged: None,
            committed: Position::default(),
            record_log: RecordLog::default(),
            keyless: KeylessLog::default(),
            input_id: TopicId::default(),
            input_end: 0,
            commit_start: false,
            restored: false,
            taken_over: false,
            assigned: context.clock.monotonic(),
            unreadable: (0, 0),
            changelog_id: TopicId::default(),
            commitment: None,
            unsettled: false,
            recorded: None,
            window: None,
            claim: None,
            group_offset: None,
            doubted_row: None,
            rejected: BTreeMap::new(),
            waits_for_sink: None,
            quarantine: None,
            sweep: Sweep::default(),
            refused_at: None,
            lag: Lag::default(),
            doubted: 0,
            attempts: 0,
            failing: Failing::default(),
            panics: Panics::default(),
            present: Present::default(),
            metrics,
            presence: Presence::new(context, &input),
            input,
        };
        task.metrics.phase(task.phase.name());
        task
    }

    /// The same partition's task with nothing of this one's memory, which a panic may have left half changed; except
    /// when it was assigned, why it is isolated, and its panics. It starts again at `until`.
    pub fn recreated(self, context: &Context, until: Duration) -> Self {
        let mut task = Self::new(context, self.input.clone(), self.topic, Phase::Waiting { until });
        (task.attempts, task.failing) = (self.attempts, self.failing);
        task.panics = self.panics;
        task.quarantine = self.quarantine;
        (task.assigned, task.taken_over) = (self.assigned, self.taken_over);
        task.unsettle();
        task
    }

    /// Changes to `phase` and updates the metrics.
    pub fn set_phase(&mut self, phase: Phase<C>) {
        self.phase = phase;
        self.metrics.phase(self.phase.name());
    }

    /// The record before which the task is to stop for good, and why; everything before it is processed.
    pub fn stops_before(&self) -> Option<(i64, String)> {
        let panicked = self.panics.stop_before().map(|at| (at, self.panics.to_string()));
        let refused = self.refused_at.as_ref().map(|(at, reason)| (*at, reason.to_string()));
        refused.into_iter().chain(panicked).min_by_key(|(at, _)| *at)
    }

    /// Reports that the task is at work.
    pub fn report_restored(&self) {
        self.presence.health.task_restored(&self.presence.topology, &self.input);
    }

    /// The task with its store, if it is at work.
    pub fn work(&self) -> Option<Work<'_, C>> {
        let is_at_work = matches!(self.phase, Phase::Running | Phase::Isolated(_));
        let held = self.held.as_ref().filter(|_| is_at_work)?;
        Some(Work { task: self, store: &held.store })
    }

    /// Whether it works in the lane's shared transactions, with a store.
    pub fn is_running(&self) -> bool {
        matches!(self.phase, Phase::Running) && self.held.is_some()
    }

    /// The committed transaction has stopped before a record that seems to be from the future. Returns how long to wait
    /// before asking Kafka for its time, and logs where clocks disagree.
    pub fn doubt(&mut self, context: &Context, doubt: Doubt) -> Duration {
        let (wait, disagreement) = self.present.doubt(doubt, context.clock.monotonic(), context.clock.wall_ms());
        if let Some(found) = disagreement {
            self.report_clocks(Some(found));
            found.log(&self.input);
        }
        wait
    }

    /// Reports whether the task is waiting for clocks to agree.
    fn report_clocks(&self, disagreement: Option<Disagreement>) {
        self.presence.health.clock_doubted(&self.presence.topology, &self.input, disagreement.is_some());
        let ahead_ms = disagreement.map_or(Some(0), |found| found.kafka_ahead_ms);
        ahead_ms.into_iter().for_each(|ms| self.metrics.clock_behind(ms));
    }

    /// Reports whether the task waits for the topology's gate.
    pub fn report_gated(&self, gated: bool) {
        self.presence.health.gated(&self.presence.topology, &self.input, gated);
    }

    /// Reports whether it gets no further: it fails and commits nothing of what there is up to `end`, or is starved. A sink
    /// that keeps it waiting is reported apart.
    pub fn note_failing(&mut self, end: Option<i64>, is_starved: bool, now: Duration) {
        let failures = self.attempts + self.quarantine.as_ref().map_or(0, Quarantine::failures);
        let is_at_work = matches!(self.phase, Phase::Running | Phase::Loading(_));
        let is_at_rest = matches!(self.phase, Phase::Running) && end.unwrap_or(self.input_end) <= self.committed.next;
        let has_more = !is_at_rest && self.waits_for_sink.is_none();
        let fails = self.failing.note(failures, is_at_work, has_more, now);
        self.presence.health.task_fails(&self.presence.topology, &self.input, fails || is_starved);
    }

    /// Stops the task for good; `may_pass` says whether a later start may succeed without any change.
    pub fn fail(&mut self, reason: &str, may_pass: bool) {
        tracing::error!(task = %self.input, reason, "task stopped");
        self.may_pass = may_pass;
        self.presence.health.task_stopped(&self.presence.topology, &self.input);
        self.held = None;
        self.waits_for_sink = None;
        self.set_phase(Phase::Failed);
    }

    /// Notes that the transaction it was in may not have ended, and may even have been committed.
    pub fn unsettle(&mut self) {
        self.unsettled = true;
        if let Some(held) = &mut self.held {
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
            input_id: self.input_id.0,
            processed: recorded(progress.processed.as_pairs(), position.next),
            stream_time: progress.stream_time,
            horizon: progress.horizon,
            rules_digest,
            generation: 1,
            task_count: self.topic.task_count,
            truncates: progress.truncates,
            scopes: progress.epochs.scopes().to_vec(),
        }
    }

    /// The store's meta record once it has `applied` the changelog so far.
    pub fn store_meta(&self, applied: Applied, token: Option<Token>, wall_ms: i64) -> StoreMeta {
        StoreMeta {
            changelog_id: self.changelog_id.0,
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
        share.tally.publish(&self.metrics);
        self.record_log.add(&mut share.noted);
        self.metrics.keyless(share.keyless.records());
        self.keyless.add(&mut share.keyless);
        self.metrics.removed(share.removed);
        std::mem::swap(&mut self.committed, &mut share.position);
        self.lag.committed(share.last_timestamp);
        self.commit_start = false;
        self.attempts = 0;
        self.panics.pass(self.committed.next);
        self.rejected = self.rejected.split_off(&self.committed.next);
        self.recorded = share.token;
        self.refused_at = self.refused_at.take().filter(|(at, _)| *at >= self.committed.next);
        if self.present.pass(self.committed.next) {
            tracing::info!(task = %self.input, "clocks agree again: the task continues");
            self.report_clocks(None);
        }
        self.metrics.committed_at(wall_ms);
        if self.committed.progress.stream_time != crate::format::NO_TIME {
            self.metrics.stream_time(self.committed.progress.stream_time);
        }
    }
}
