//! A lane's metrics of its topology's sink.

use std::time::Duration;

use prometheus::{Histogram, HistogramVec, IntCounter, IntCounterVec, IntGaugeVec, Registry};

use super::part::Part;
use super::register::{TOPOLOGY, counter, exponential, histogram, int_gauge};

/// The families of sinks, and of calls.
pub(super) struct Families {
    pub effects: IntCounterVec,
    pub effect_duration: HistogramVec,
    pub sink_held: IntGaugeVec,
}

impl Families {
    pub fn new(registry: &Registry) -> Self {
        Self {
            effects: counter(
                registry,
                "ratchet_effects_total",
                "Records that went to a sink, by what became of them.",
                &["topology", "sink", "outcome"],
            ),
            effect_duration: histogram(
                registry,
                "ratchet_effect_duration_seconds",
                "Time in which a sink has committed a transaction, or a provider was called.",
                exponential(0.001, 2.0, 16),
            ),
            sink_held: int_gauge(
                registry,
                "ratchet_sink_held",
                "Lanes that wait for their sink: it is down, or a person has to act.",
                TOPOLOGY,
            ),
        }
    }
}

/// What became of the records of a transaction that went to a sink.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Outcomes {
    /// What they cause was carried out.
    pub done: u64,
    /// The sink's inbox had them already.
    pub in_inbox: u64,
    /// The sink refuses what they cause, or it could not be written as parameters.
    pub rejected: u64,
}

/// A lane's metrics of its sink. Lanes of one topology add up.
pub struct SinkMetrics {
    duration: Histogram,
    done: IntCounter,
    in_inbox: IntCounter,
    rejected: IntCounter,
    held: Part,
}

impl SinkMetrics {
    pub(super) fn new(families: &Families, topology: &str, sink: &str) -> Self {
        let effects = |outcome| families.effects.with_label_values(&[topology, sink, outcome]);
        Self {
            duration: families.effect_duration.with_label_values(&[topology]),
            done: effects("done"),
            in_inbox: effects("in_inbox"),
            rejected: effects("rejected"),
            held: Part::of(families.sink_held.with_label_values(&[topology])),
        }
    }

    /// The sink has committed a transaction: how long it took, and what became of its records.
    pub fn committed(&self, took: Duration, outcomes: Outcomes) {
        let Outcomes { done, in_inbox, rejected } = outcomes;
        self.duration.observe(took.as_secs_f64());
        self.done.inc_by(done);
        self.in_inbox.inc_by(in_inbox);
        self.rejected.inc_by(rejected);
    }

    /// Whether the lane waits for the sink.
    pub fn held(&mut self, is_held: bool) {
        self.held.set(i64::from(is_held));
    }
}
