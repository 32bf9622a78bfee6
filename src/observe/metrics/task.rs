//! A task's metrics: those of one input partition of one topology.

use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use prometheus::{Gauge, GaugeVec, IntCounter, IntGauge};

use super::long_work::{LongWork, Work};
use crate::dedup::{Reason, Verdict};
use crate::observe::Pace;
use crate::record::TopicPartition;

mod series;

pub(super) use series::Families;
use series::Labels;

/// What a task is doing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Phase {
    /// It waits for the former owner's transaction to end.
    Settling,
    /// Its store is being restored to the changelog's end.
    Restoring,
    /// It reads and writes.
    Running,
    /// It reads and writes in its own transactions, because its output refuses records.
    Isolated,
    /// It has stopped; the log says why.
    Failed,
}

impl Phase {
    pub(super) const ALL: [Self; 5] = [Self::Settling, Self::Restoring, Self::Running, Self::Isolated, Self::Failed];

    /// Shows a topology's phases without tasks as 0 instead of leaving them out.
    pub(super) fn show_all(families: &Families, topology: &str) {
        for phase in Self::ALL {
            families.tasks.with_label_values(&[topology, phase.as_str()]);
        }
    }

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Settling => "settling",
            Self::Restoring => "restoring",
            Self::Running => "running",
            Self::Isolated => "isolated",
            Self::Failed => "failed",
        }
    }
}

/// A task's metrics. Its partition's series start when they are first set, so that what is not known
/// yet is not shown as 0, and end when the partition's last handle is dropped. A partition has two handles
/// for a moment when it moves from one lane of this process to another.
pub struct TaskMetrics {
    families: Arc<Families>,
    labels: Labels,
    partition: TopicPartition,
    /// A counter for each verdict and reason that has occurred, at index [`slot`].
    records: Vec<OnceLock<IntCounter>>,
    keyless: OnceLock<IntCounter>,
    lag_records: OnceLock<IntGauge>,
    lag_seconds: OnceLock<Gauge>,
    lag_measured: OnceLock<Gauge>,
    state_entries: OnceLock<IntGauge>,
    state_bytes: OnceLock<IntGauge>,
    restore_remaining: OnceLock<IntGauge>,
    restore_seconds: OnceLock<Gauge>,
    restored_records: OnceLock<IntCounter>,
    sweep_walked: OnceLock<IntCounter>,
    sweep_removed: OnceLock<IntCounter>,
    sweep_remaining: OnceLock<IntGauge>,
    sweep_seconds: OnceLock<Gauge>,
    stream_time: OnceLock<Gauge>,
    last_commit: OnceLock<Gauge>,
    clock_behind: OnceLock<Gauge>,
    awaits_schema: OnceLock<Gauge>,
    phase: Mutex<Phase>,
}

impl TaskMetrics {
    /// A task that is settling.
    pub(super) fn new(families: &Arc<Families>, topology: &str, partition: &TopicPartition) -> Self {
        let labels = [topology.to_owned(), partition.topic.to_string(), partition.partition.to_string()];
        families.take_up(&labels);
        families.tasks.with_label_values(&[topology, Phase::Settling.as_str()]).inc();
        Self {
            families: Arc::clone(families),
            labels,
            partition: partition.clone(),
            records: (0..VERDICTS * Reason::ALL.len()).map(|_| OnceLock::new()).collect(),
            keyless: OnceLock::new(),
            lag_records: OnceLock::new(),
            lag_seconds: OnceLock::new(),
            lag_measured: OnceLock::new(),
            state_entries: OnceLock::new(),
            state_bytes: OnceLock::new(),
            restore_remaining: OnceLock::new(),
            restore_seconds: OnceLock::new(),
            restored_records: OnceLock::new(),
            sweep_walked: OnceLock::new(),
            sweep_removed: OnceLock::new(),
            sweep_remaining: OnceLock::new(),
            sweep_seconds: OnceLock::new(),
            stream_time: OnceLock::new(),
            last_commit: OnceLock::new(),
            clock_behind: OnceLock::new(),
            awaits_schema: OnceLock::new(),
            phase: Mutex::new(Phase::Settling),
        }
    }

    /// Adds records with this verdict and reason, from a committed transaction.
    pub fn records(&self, verdict: Verdict, reason: Reason, count: u64) {
        let counter = self.records[slot(verdict, reason)].get_or_init(|| {
            let [topology, topic, _] = &self.labels;
            self.families.records.with_label_values(&[topology.as_str(), topic, verdict.as_str(), reason.as_str()])
        });
        counter.inc_by(count);
    }

    /// Adds keyless records that should have a key, from a committed transaction; not shown until there is one.
    pub fn keyless(&self, count: u64) {
        if count == 0 {
            return;
        }
        let [topology, topic, _] = &self.labels;
        let counter = self.keyless.get_or_init(|| self.families.keyless.with_label_values(&[topology, topic]));
        counter.inc_by(count);
    }

    /// How many records are still to be read, and how old the next one is (0 when drained).
    pub fn lag(&self, records: i64, seconds: f64) {
        self.lag_records.get_or_init(|| self.families.lag_records.with_label_values(&self.labels)).set(records);
        self.lag_seconds.get_or_init(|| self.families.lag_seconds.with_label_values(&self.labels)).set(seconds);
    }

    /// When a broker said what the lag follows from, in milliseconds since the epoch.
    pub fn lag_measured_at(&self, ms: i64) {
        let gauge = self.lag_measured.get_or_init(|| self.families.lag_measured.with_label_values(&self.labels));
        gauge.set(seconds(ms));
    }

    /// How many changelog offsets a restore has yet to read; 0 means that it has ended.
    pub fn restore_remaining(&self, records: i64) {
        let gauge =
            self.restore_remaining.get_or_init(|| self.families.restore_remaining.with_label_values(&self.labels));
        gauge.set(records);
        if records == 0 {
            set_seconds(&self.restore_seconds, &self.families.restore_seconds, &self.labels, Some(0.0));
        }
    }

    /// The progress of a restore, in changelog offsets.
    pub fn restoring(&self, pace: &Pace) {
        self.restore_remaining(number(pace.remaining()));
        set_seconds(&self.restore_seconds, &self.families.restore_seconds, &self.labels, seconds_left(pace));
        self.list(Work::Restore, pace);
    }

    /// Lists long work in progress.
    fn list(&self, work: Work, pace: &Pace) {
        let (topology, partition) = (self.labels[0].clone(), self.partition.clone());
        let (done, remaining) = (pace.done(), pace.remaining());
        let listed = LongWork { work, topology, partition, done, remaining };
        self.families.long_work().insert(self.labels.clone(), listed);
    }

    /// Adds changelog records that a restore has read.
    pub fn restored(&self, count: u64) {
        let counter =
            self.restored_records.get_or_init(|| self.families.restored_records.with_label_values(&self.labels));
        counter.inc_by(count);
    }

    /// The store's size, in entries and in bytes.
    pub fn state(&self, entries: u64, bytes: u64) {
        let labels = &self.labels;
        self.state_entries.get_or_init(|| self.families.state_entries.with_label_values(labels)).set(number(entries));
        self.state_bytes.get_or_init(|| self.families.state_bytes.with_label_values(labels)).set(number(bytes));
    }

    /// Adds entries that the sweeper has examined, and sets its progress; with nothing left it has ended.
    pub fn walked(&self, entries: u64, pace: &Pace) {
        let (families, labels) = (&self.families, &self.labels);
        self.sweep_walked.get_or_init(|| families.sweep_walked.with_label_values(labels)).inc_by(entries);
        // shown even if it stays 0, so that its rate is known
        self.sweep_removed.get_or_init(|| families.sweep_removed.with_label_values(labels));
        let remaining = self.sweep_remaining.get_or_init(|| families.sweep_remaining.with_label_values(labels));
        remaining.set(number(pace.remaining()));
        set_seconds(&self.sweep_seconds, &families.sweep_seconds, labels, seconds_left(pace));
        if pace.remaining() == 0 {
            families.long_work().remove(labels);
        } else {
            self.list(Work::Sweep, pace);
        }
    }

    /// Adds entries that the sweeper has removed in a committed transaction.
    pub fn removed(&self, entries: u64) {
        if entries == 0 {
            return;
        }
        let counter = self.sweep_removed.get_or_init(|| self.families.sweep_removed.with_label_values(&self.labels));
        counter.inc_by(entries);
    }

    /// The stream time in milliseconds since the epoch; not shown while it is unknown (negative).
    pub fn stream_time(&self, ms: i64) {
        if ms >= 0 {
            let gauge = self.stream_time.get_or_init(|| self.families.stream_time.with_label_values(&self.labels));
            gauge.set(seconds(ms));
        }
    }

    /// When the last transaction was committed, in milliseconds since the epoch.
    pub fn committed_at(&self, ms: i64) {
        let gauge = self.last_commit.get_or_init(|| self.families.last_commit.with_label_values(&self.labels));
        gauge.set(seconds(ms));
    }

    /// How many milliseconds this host's clock is behind Kafka's, while the task waits for that; 0 when it continues.
    pub fn clock_behind(&self, ms: i64) {
        let gauge = self.clock_behind.get_or_init(|| self.families.clock_behind.with_label_values(&self.labels));
        gauge.set(seconds(ms));
    }

    /// Whether the task waits for a schema.
    pub fn awaits_schema(&self, awaits: bool) {
        let gauge = self.awaits_schema.get_or_init(|| self.families.awaits_schema.with_label_values(&self.labels));
        gauge.set(f64::from(u8::from(awaits)));
    }

    /// The task changes to this phase.
    pub fn phase(&self, phase: Phase) {
        let mut current = self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        let before = std::mem::replace(&mut *current, phase);
        if before != phase {
            self.in_phase(before).dec();
            self.in_phase(phase).inc();
        }
        // A sweep in progress is not resumed but restarts.
        if before != phase || phase != Phase::Restoring {
            self.families.long_work().remove(&self.labels);
        }
    }

    fn in_phase(&self, phase: Phase) -> IntGauge {
        self.families.tasks.with_label_values(&[self.labels[0].as_str(), phase.as_str()])
    }

    /// Keeps the partition's series beyond this task, apart from those of its long work, which ends with it.
    pub fn keep(&self) -> KeptSeries {
        self.families.hold(&self.labels);
        self.families.long_work().remove(&self.labels);
        self.families.remove_long_work(&self.labels);
        KeptSeries { families: Arc::clone(&self.families), labels: self.labels.clone() }
    }
}

/// A partition's series, which stay as they are for as long as this lives: of a task that was lost, while nobody can say
/// who has the partition.
pub struct KeptSeries {
    families: Arc<Families>,
    labels: Labels,
}

impl Drop for KeptSeries {
    fn drop(&mut self) {
        self.families.let_go(&self.labels);
    }
}

impl Drop for TaskMetrics {
    fn drop(&mut self) {
        let phase = *self.phase.lock().unwrap_or_else(PoisonError::into_inner);
        self.in_phase(phase).dec();
        self.families.let_go(&self.labels);
    }
}

/// How many verdicts there are.
const VERDICTS: usize = 4;

/// The index of the counter for a verdict and a reason.
fn slot(verdict: Verdict, reason: Reason) -> usize {
    verdict as usize * Reason::ALL.len() + reason as usize
}

/// A count as a gauge's value.
fn number(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn seconds_left(pace: &Pace) -> Option<f64> {
    pace.left().map(|left| left.as_secs_f64())
}

/// Shows an estimate. One that is not known yet is not shown; one that is no longer known is infinite.
fn set_seconds(shown: &OnceLock<Gauge>, family: &GaugeVec, labels: &Labels, seconds: Option<f64>) {
    match (seconds, shown.get()) {
        (Some(seconds), _) => shown.get_or_init(|| family.with_label_values(labels)).set(seconds),
        (None, Some(gauge)) => gauge.set(f64::INFINITY),
        (None, None) => {}
    }
}

/// Milliseconds as seconds, exact to the millisecond for all times that occur here.
fn seconds(ms: i64) -> f64 {
    ms as f64 / 1000.0
}
