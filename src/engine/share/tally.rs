//! What the open transaction has decided.

use crate::dedup::{Reason, Verdict};
use crate::observe::TaskMetrics;

/// What a transaction has decided, counted once it is committed.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Vec<(Verdict, Reason, u64)>,
}

impl Tally {
    /// Counts one record.
    pub fn add(&mut self, verdict: Verdict, reason: Reason) {
        match self.counts.iter_mut().find(|(v, r, _)| (*v, *r) == (verdict, reason)) {
            Some((_, _, count)) => *count += 1,
            None => self.counts.push((verdict, reason, 1)),
        }
    }

    /// It is committed.
    pub fn publish(&mut self, metrics: &TaskMetrics) {
        for (verdict, reason, count) in self.counts.drain(..) {
            metrics.records(verdict, reason, count);
        }
    }

    /// Forgets all.
    pub fn clear(&mut self) {
        self.counts.clear();
    }
}
