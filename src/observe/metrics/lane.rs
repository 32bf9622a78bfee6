//! A lane's metrics, independent of its partitions.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter};

use super::{Families, Phase};

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
    families: Arc<Families>,
    topology: Arc<str>,
    processing_duration: Histogram,
    commit_duration: Histogram,
    transactions: [IntCounter; TransactionResult::ALL.len()],
    rebalances: IntCounter,
    dead_letters: IntCounter,
    epoch_changes: IntCounter,
}

impl LaneMetrics {
    pub(super) fn new(families: &Arc<Families>, topology: &str) -> Self {
        // a state without tasks is shown as 0, not left out
        for phase in Phase::ALL {
            families.tasks.with_label_values(&[topology, phase.as_str()]);
        }
        Self {
            topology: topology.into(),
            processing_duration: families.processing_duration.with_label_values(&[topology]),
            commit_duration: families.commit_duration.with_label_values(&[topology]),
            transactions: TransactionResult::ALL
                .map(|result| families.transactions.with_label_values(&[topology, result.as_str()])),
            rebalances: families.rebalances.with_label_values(&[topology]),
            dead_letters: families.dead_letters.with_label_values(&[topology]),
            epoch_changes: families.epoch_changes.with_label_values(&[topology]),
            families: Arc::clone(families),
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
        self.families.takeovers.with_label_values(&[&*self.topology, kind]).inc();
    }
}
