//! A lane's report to its supervisor: the number of its tasks and their states. Also the metrics of a lane's tasks that
//! are retained while the lane is out of its group.

use std::sync::{Mutex, PoisonError};

use crate::observe::KeptSeries;

/// A lane's latest report.
#[derive(Default)]
pub struct LaneStatus {
    counts: Mutex<Counts>,
    retained_series: Mutex<Vec<KeptSeries>>,
}

/// The number of a lane's tasks, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All tasks.
    pub tasks: usize,
    /// Tasks that have committed all records of their input.
    pub drained: usize,
    /// Tasks that have stopped for good.
    pub failed: usize,
    /// Those of the stopped tasks that may continue at a later start without any change: the others were refused.
    pub passing: usize,
    /// Tasks that are not active yet.
    pub restoring: usize,
}

impl LaneStatus {
    /// Replaces the report.
    pub fn set(&self, counts: Counts) {
        // The counts are plain numbers: a panic elsewhere cannot leave them half written.
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Retains these series, and releases those retained before.
    pub fn retain_series(&self, series: Vec<KeptSeries>) {
        let former =
            std::mem::replace(&mut *self.retained_series.lock().unwrap_or_else(PoisonError::into_inner), series);
        // The former series are dropped without the lock, and after the new ones exist.
        drop(former);
    }

    /// The last report.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
