//! A lane's metrics of its topology's gate.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};

use super::part::Part;
use super::register::{TOPOLOGY, counter, exponential, histogram, int_gauge};

/// The families of gates.
pub(super) struct Families {
    gate_answers: IntCounterVec,
    gate_duration: HistogramVec,
    gate_unasked: IntCounterVec,
    gate_held: IntGaugeVec,
}

impl Families {
    pub fn new(registry: &Registry) -> Self {
        Self {
            gate_answers: counter(
                registry,
                "ratchet_gate_answers_total",
                "Records that a gate was asked about, by what it said.",
                &["topology", "answer"],
            ),
            gate_duration: histogram(
                registry,
                "ratchet_gate_duration_seconds",
                "Time in which a gate has answered about a portion of records.",
                exponential(0.0001, 2.0, 16),
            ),
            gate_unasked: counter(
                registry,
                "ratchet_gate_unasked_total",
                "Records that went on unasked while a gate did not answer.",
                TOPOLOGY,
            ),
            gate_held: int_gauge(
                registry,
                "ratchet_gate_held",
                "Lanes in which records wait for a gate: it does not answer, or a person has to act.",
                TOPOLOGY,
            ),
        }
    }
}

/// A lane's metrics of its gate. Lanes of one topology add up.
pub struct GateMetrics {
    duration: Histogram,
    answers: [IntCounter; 3],
    unasked: IntCounter,
    held: Part,
}

impl GateMetrics {
    pub(super) fn new(families: &Families, topology: &str) -> Self {
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
