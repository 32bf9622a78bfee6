//! A lane's metrics of its topology's sink.

use std::sync::Arc;
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntGauge};

use super::Families;

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
    pub(super) fn new(families: &Arc<Families>, topology: &str, sink: &str) -> Self {
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

/// A lane's part of a gauge that lanes add up to. It is taken out when the lane ends.
pub(super) struct Part {
    all: IntGauge,
    own: i64,
}

impl Part {
    /// None of it yet.
    pub fn of(all: IntGauge) -> Self {
        Self { all, own: 0 }
    }

    pub fn set(&mut self, own: i64) {
        // What did not change costs nothing: it is set each time a lane goes round.
        if own != self.own {
            self.all.add(own - self.own);
            self.own = own;
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.set(0);
    }
}
