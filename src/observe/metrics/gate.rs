//! A lane's metrics of its topology's gate.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter};

use super::Families;
use super::sink::Part;

/// A lane's metrics of its gate. Lanes of one topology add up.
pub struct GateMetrics {
    duration: Histogram,
    answers: [IntCounter; 3],
    unasked: IntCounter,
    held: Part,
}

impl GateMetrics {
    pub(super) fn new(families: &Arc<Families>, topology: &str) -> Self {
        let answers = |answer| families.gate_answers.with_label_values(&[topology, answer]);
        Self {
            duration: families.gate_duration.with_label_values(&[topology]),
            answers: ["first", "own", "elsewhere"].map(answers),
            unasked: families.gate_unasked.with_label_values(&[topology]),
            held: Part::of(families.gate_held.with_label_values(&[topology])),
        }
    }

    /// The gate has answered about a portion of records: how long that took, and about how many it has said that they are
    /// the first, that it had their partition's own mark, and that they were passed on elsewhere.
    pub fn answered(&self, took: Duration, counts: [u64; 3]) {
        self.duration.observe(took.as_secs_f64());
        for (counter, count) in self.answers.iter().zip(counts) {
            counter.inc_by(count);
        }
    }

    /// So many records went on unasked.
    pub fn unasked(&self, records: u64) {
        self.unasked.inc_by(records);
    }

    /// Whether the lane waits for the gate.
    pub fn held(&mut self, is_held: bool) {
        self.held.set(i64::from(is_held));
    }
}
