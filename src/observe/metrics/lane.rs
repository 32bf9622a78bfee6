//! A lane's metrics, independent of its partitions.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, Registry};

use super::register::{TOPOLOGY, counter, exponential, histogram};

/// The families of lanes.
pub(super) struct Families {
    processing_duration: HistogramVec,
    commit_duration: HistogramVec,
    transactions: IntCounterVec,
    rebalances: IntCounterVec,
    dead_letters: IntCounterVec,
    epoch_changes: IntCounterVec,
    takeovers: IntCounterVec,
}

impl Families {
    pub fn new(registry: &Registry) -> Self {
        Self {
            processing_duration: histogram(
                registry,
                "ratchet_processing_duration_seconds",
                "Time from reading a batch to having handed over all that is written because of it.",
                exponential(0.000_05, 4.0, 10),
            ),
            commit_duration: histogram(
                registry,
                "ratchet_commit_duration_seconds",
                "Time of a transaction's end: deliveries, commit and the store's write.",
                exponential(0.001, 2.0, 16),
            ),
            transactions: counter(
                registry,
                "ratchet_transactions_total",
                "Transactions by how they ended: committed, aborted or unknown.",
                &["topology", "result"],
            ),
            rebalances: counter(registry, "ratchet_rebalances_total", "Changes of a lane's assignment.", TOPOLOGY),
            dead_letters: counter(
                registry,
                "ratchet_dead_letters_total",
                "Records that were written to the dead letter topic.",
                TOPOLOGY,
            ),
            epoch_changes: counter(
                registry,
                "ratchet_epoch_changes_total",
                "Changes of the scope in which versions are comparable.",
                TOPOLOGY,
            ),
            takeovers: counter(
                registry,
                "ratchet_takeovers_total",
                "Tasks that were taken over, by kind.",
                &["topology", "kind"],
            ),
        }
    }
}

/// How a transaction ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TransactionResult {
    /// All of it is visible.
    Committed,
    /// None of it will ever be visible.
    Aborted,
    /// The cluster did not say; the restore that follows finds out.
    Unknown,
}

impl TransactionResult {
    const ALL: [Self; 3] = [Self::Committed, Self::Aborted, Self::Unknown];

    /// The label's value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Committed => "committed",
            Self::Aborted => "aborted",
            Self::Unknown => "unknown",
        }
    }
}

/// A lane's metrics. Cheap to clone.
#[derive(Clone)]
pub struct LaneMetrics {
    topology: Arc<str>,
    processing_duration: Histogram,
    commit_duration: Histogram,
    transactions: [IntCounter; TransactionResult::ALL.len()],
    rebalances: IntCounter,
    dead_letters: IntCounter,
    epoch_changes: IntCounter,
    takeovers: IntCounterVec,
}

impl LaneMetrics {
    pub(super) fn new(families: &Families, topology: &str) -> Self {
        Self {
            topology: topology.into(),
            processing_duration: families.processing_duration.with_label_values(&[topology]),
            commit_duration: families.commit_duration.with_label_values(&[topology]),
            transactions: TransactionResult::ALL
                .map(|result| families.transactions.with_label_values(&[topology, result.as_str()])),
            rebalances: families.rebalances.with_label_values(&[topology]),
            dead_letters: families.dead_letters.with_label_values(&[topology]),
            epoch_changes: families.epoch_changes.with_label_values(&[topology]),
            takeovers: families.takeovers.clone(),
        }
    }

    /// A batch took this long, from being read until everything that follows from it was handed over.
    pub fn processing(&self, duration: Duration) {
        self.processing_duration.observe(duration.as_secs_f64());
    }

    /// A transaction's end took this long.
    pub fn commit(&self, duration: Duration) {
        self.commit_duration.observe(duration.as_secs_f64());
    }

    /// A transaction ended.
    pub fn transaction(&self, result: TransactionResult) {
        self.transactions[result as usize].inc();
    }

    /// The assignment changed.
    pub fn rebalance(&self) {
        self.rebalances.inc();
    }

    /// Adds records that were written to the dead letter topic.
    pub fn dead_letters(&self, count: u64) {
        self.dead_letters.inc_by(count);
    }

    /// Adds changes of the scope in which versions are comparable.
    pub fn epoch_changes(&self, count: u64) {
        self.epoch_changes.inc_by(count);
    }

    /// A task was taken over; `kind` is one of a few fixed words.
    pub fn takeover(&self, kind: &'static str) {
        self.takeovers.with_label_values(&[&*self.topology, kind]).inc();
    }
}
