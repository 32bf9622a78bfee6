//! The decisions of the open transaction.

use crate::dedup::{Reason, Verdict};
use crate::observe::TaskMetrics;

/// A transaction's decisions, published once it is committed.
#[derive(Debug, Default)]
pub struct Tally {
    counts: Vec<Count>,
}

#[derive(Debug)]
struct Count {
    verdict: Verdict,
    reason: Reason,
    records: u64,
}

impl Tally {
    /// Counts one record.
    pub fn add(&mut self, verdict: Verdict, reason: Reason) {
        match self.counts.iter_mut().find(|count| (count.verdict, count.reason) == (verdict, reason)) {
            Some(count) => count.records += 1,
            None => self.counts.push(Count { verdict, reason, records: 1 }),
        }
    }

    /// Moves one record from one count to another.
    pub fn change(&mut self, from: (Verdict, Reason), to: (Verdict, Reason)) {
        if let Some(count) = self.counts.iter_mut().find(|count| (count.verdict, count.reason) == from) {
            count.records = count.records.saturating_sub(1);
        }
        self.add(to.0, to.1);
    }

    /// How many records were counted for this reason.
    pub fn count(&self, reason: Reason) -> u64 {
        self.counts.iter().filter(|count| count.reason == reason).map(|count| count.records).sum()
    }

    /// Publishes the counts of a committed transaction.
    pub fn publish(&mut self, metrics: &TaskMetrics) {
        for Count { verdict, reason, records } in self.counts.drain(..) {
            metrics.records(verdict, reason, records);
        }
    }

    /// Drops all counts.
    pub fn clear(&mut self) {
        self.counts.clear();
    }
}
