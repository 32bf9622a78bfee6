//! What a task reports: its metrics, its entry in the health checks, and what is still to be logged.

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
    /// Records that are still to be logged.
    pub record_log: RecordLog,
    /// Records without a key that are still to be logged.
    pub keyless: KeylessLog,
    /// What its lag is computed from.
    pub lag: Lag,
    /// When it was assigned, on the monotonic clock.
    pub assigned: Duration,
    /// Whether it has been at work since it was assigned.
    pub taken_over: bool,
    presence: Presence,
}

/// A task's entry in the health checks, for as long as a lane has the task.
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
            assigned: context.clock.monotonic(),
            taken_over: false,
            presence: Presence::new(context, input),
        }
    }

    /// Reports that the task is at work.
    pub fn restored(&self) {
        let Presence { health, topology, input } = &self.presence;
        health.task_restored(topology, input);
    }

    /// Reports that the task has stopped for good.
    pub fn stopped(&self) {
        let Presence { health, topology, input } = &self.presence;
        health.task_stopped(topology, input);
    }

    /// Reports whether the task gets no further.
    pub fn fails(&self, fails: bool) {
        let Presence { health, topology, input } = &self.presence;
        health.task_fails(topology, input, fails);
    }

    /// Reports whether the task waits for the topology's gate.
    pub fn gated(&self, gated: bool) {
        let Presence { health, topology, input } = &self.presence;
        health.gated(topology, input, gated);
    }

    /// Reports whether the task waits for clocks to agree.
    pub fn clocks(&self, disagreement: Option<Disagreement>) {
        let Presence { health, topology, input } = &self.presence;
        health.clock_doubted(topology, input, disagreement.is_some());
        let ahead_ms = disagreement.map_or(Some(0), |found| found.kafka_ahead_ms);
        ahead_ms.into_iter().for_each(|ms| self.metrics.clock_behind(ms));
    }

    /// Publishes what a committed transaction has decided, and takes over what is to be logged of it.
    pub fn committed(&mut self, share: &mut Share, wall_ms: i64) {
        share.tally.publish(&self.metrics);
        self.record_log.add(&mut share.noted);
        self.metrics.keyless(share.keyless.records());
        self.keyless.add(&mut share.keyless);
        self.metrics.removed(share.removed);
        self.lag.committed(share.last_timestamp);
        self.metrics.committed_at(wall_ms);
    }

    /// Logs what is still to be logged, since the task leaves.
    pub fn log_rest(&mut self, dead_letter: &str, now: Duration) {
        self.record_log.log(&self.presence.input, dead_letter, now);
        self.keyless.log(&self.presence.input, now);
    }

    /// Logs what is due.
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
