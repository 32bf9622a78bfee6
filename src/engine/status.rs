//! What a lane reports to its supervisor: the number of its tasks and their states. And what stays of a lane's tasks while
//! it is out of its group.

use std::sync::{Mutex, PoisonError};

use crate::observe::KeptSeries;

/// A lane's latest report.
#[derive(Default)]
pub struct LaneStatus {
    counts: Mutex<Counts>,
    kept: Mutex<Vec<KeptSeries>>,
}

/// The number of a lane's tasks, by state.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// All its tasks.
    pub tasks: usize,
    /// Those that have committed everything there is to read.
    pub drained: usize,
    /// Those that have stopped for good.
    pub failed: usize,
    /// Those of them that a later start may get beyond without any change: the others were refused.
    pub passing: usize,
    /// Those that are not at work yet.
    pub restoring: usize,
}

impl LaneStatus {
    /// Replaces the report.
    pub fn set(&self, counts: Counts) {
        // The counts are plain numbers: a panic elsewhere cannot leave them half written.
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner) = counts;
    }

    /// Keeps these series, and no others any longer.
    pub fn keep(&self, series: Vec<KeptSeries>) {
        let former = std::mem::replace(&mut *self.kept.lock().unwrap_or_else(PoisonError::into_inner), series);
        // Not while the lock is held, and after the new ones are there.
        drop(former);
    }

    /// The last report.
    pub fn counts(&self) -> Counts {
        *self.counts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
