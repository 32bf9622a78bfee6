//! A task's reports: its metrics, its entry in the health checks, and log events that are not written yet.

use std::time::Duration;

use crate::engine::context::Context;
use crate::engine::keyless::KeylessLog;
use crate::engine::lag::Lag;
use crate::engine::present::Disagreement;
use crate::engine::record_log::RecordLog;
use crate::engine::share::Share;
use crate::observe::{Health, TaskMetrics};
use crate::record::TopicPartition;

/// A task's reports.
pub struct Report {
    /// Its metrics.
    pub metrics: TaskMetrics,
    /// Records that are not logged yet.
    pub record_log: RecordLog,
    /// Records without a key that are not logged yet.
    pub keyless: KeylessLog,
    /// Its lag.
    pub lag: Lag,
    /// When it was assigned, on the monotonic clock.
    pub assigned_at: Duration,
    /// Whether it has been at work since it was assigned.
    pub has_worked: bool,
    presence: Presence,
}

/// A task's entry in the health checks; removed when a lane drops the task.
struct Presence {
    health: Health,
    topology: String,
    input: TopicPartition,
}

impl Report {
    /// The reports of a newly assigned task.
    pub fn new(context: &Context, input: &TopicPartition) -> Self {
        Self {
            metrics: context.metrics.task(&context.topology.name, input),
            record_log: RecordLog::default(),
            keyless: KeylessLog::default(),
            lag: Lag::default(),
            assigned_at: context.clock.monotonic(),
            has_worked: false,
            presence: Presence::new(context, input),
        }
    }

    /// Reports that the task is at work.
    pub fn on_work_begun(&self) {
        let Presence { health, topology, input } = &self.presence;
        health.task_restored(topology, input);
    }

    /// Reports that the task has stopped for good.
    pub fn on_stop(&self) {
        let Presence { health, topology, input } = &self.presence;
        health.task_stopped(topology, input);
    }

    /// Reports whether the task makes no progress.
    pub fn set_failing(&self, is_failing: bool) {
        let Presence { health, topology, input } = &self.presence;
        health.task_fails(topology, input, is_failing);
    }

    /// Reports whether the task waits for the topology's gate.
    pub fn set_gated(&self, is_gated: bool) {
        let Presence { health, topology, input } = &self.presence;
        health.gated(topology, input, is_gated);
    }

    /// Reports whether the task waits for a schema, and whether it has done so for too long.
    pub fn awaits_schema(&self, is_awaited: bool, for_too_long: bool) {
        let Presence { health, topology, input } = &self.presence;
        self.metrics.awaits_schema(is_awaited);
        health.awaits_schema(topology, input, for_too_long);
    }

    /// Reports whether the task waits for clocks to agree.
    pub fn set_clock_disagreement(&self, disagreement: Option<Disagreement>) {
        let Presence { health, topology, input } = &self.presence;
        health.clock_doubted(topology, input, disagreement.is_some());
        let ahead_ms = disagreement.map_or(Some(0), |found| found.kafka_ahead_ms);
        ahead_ms.into_iter().for_each(|ms| self.metrics.clock_behind(ms));
    }

    /// Publishes the decisions of a committed transaction, and takes over its records for the log.
    pub fn on_commit(&mut self, share: &mut Share, wall_ms: i64) {
        share.tally.publish(&self.metrics);
        self.record_log.add(&mut share.noted);
        self.metrics.keyless(share.keyless.records());
        self.keyless.add(&mut share.keyless);
        self.metrics.removed(share.removed);
        self.lag.committed(share.last_timestamp);
        self.metrics.committed_at(wall_ms);
    }

    /// Logs the remaining records, since the task leaves.
    pub fn log_rest(&mut self, dead_letter: &str, now: Duration) {
        self.record_log.log(&self.presence.input, dead_letter, now);
        self.keyless.log(&self.presence.input, now);
    }

    /// Logs records if that is due.
    pub fn log_if_due(&mut self, dead_letter: &str, now: Duration) {
        self.record_log.log_if_due(&self.presence.input, dead_letter, now);
        self.keyless.log_if_due(&self.presence.input, now);
    }
}

impl Presence {
    /// The entry of a newly assigned task.
    fn new(context: &Context, input: &TopicPartition) -> Self {
        let (health, topology) = (context.health.clone(), context.topology.name.clone());
        health.task_assigned(&topology, input);
        Self { health, topology, input: input.clone() }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.health.task_released(&self.topology, &self.input);
    }
}
