//! A lane's metrics of the calls that it makes to its topology's provider.

use std::ops::AddAssign;
use std::time::Duration;

use prometheus::{Histogram, IntCounter, IntCounterVec, IntGauge, IntGaugeVec, Registry};

use super::part::Part;
use super::register::{TOPOLOGY, counter, int_gauge};
use super::sink;

/// The families that only calls use.
pub(super) struct Families {
    effect_attempts: IntCounterVec,
    effects_in_flight: IntGaugeVec,
    effects_in_doubt: IntGaugeVec,
    commands: IntCounterVec,
    commands_waiting: IntGaugeVec,
    handlers_blocked: IntGaugeVec,
}

impl Families {
    pub fn new(registry: &Registry) -> Self {
        Self {
            effect_attempts: counter(
                registry,
                "ratchet_effect_attempts_total",
                "Attempts of calls, by what their answers meant.",
                &["topology", "sink", "class"],
            ),
            effects_in_flight: int_gauge(
                registry,
                "ratchet_effects_in_flight",
                "Requests that are on the wire.",
                TOPOLOGY,
            ),
            effects_in_doubt: int_gauge(
                registry,
                "ratchet_effects_in_doubt",
                "Calls that this process has settled in doubt: each may have happened, and a person has to look.",
                TOPOLOGY,
            ),
            commands: counter(
                registry,
                "ratchet_commands_total",
                "Commands that this process's partitions have acknowledged, by what became of them.",
                &["topology", "outcome"],
            ),
            commands_waiting: int_gauge(
                registry,
                "ratchet_commands_waiting",
                "Partitions whose next command waits.",
                TOPOLOGY,
            ),
            handlers_blocked: int_gauge(
                registry,
                "ratchet_handlers_blocked",
                "Lanes with a handler that blocks its thread.",
                TOPOLOGY,
            ),
        }
    }
}

/// What became of the records of a transaction that has settled them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// The provider has done it.
    pub done: u64,
    /// The provider will not do it, or no request could be made of the record.
    pub rejected: u64,
    /// Its key was used for another request.
    pub conflict: u64,
    /// It may have happened, and nobody knows.
    pub in_doubt: u64,
    /// Its attempts were exhausted.
    pub unavailable: u64,
    /// Duplicates that were answered with what is remembered.
    pub duplicate_result: u64,
}

impl AddAssign for Settled {
    fn add_assign(&mut self, more: Self) {
        self.done += more.done;
        self.rejected += more.rejected;
        self.conflict += more.conflict;
        self.in_doubt += more.in_doubt;
        self.unavailable += more.unavailable;
        self.duplicate_result += more.duplicate_result;
    }
}

/// A lane's metrics of its calls. Lanes of one topology add up.
pub struct CallMetrics {
    effects: [IntCounter; 6],
    /// By class.
    attempts: Vec<IntCounter>,
    duration: Histogram,
    in_flight: Part,
    in_doubt: IntGauge,
    /// By outcome.
    commands: Vec<IntCounter>,
    commands_waiting: Part,
    held: Part,
    blocked: Part,
}

impl CallMetrics {
    pub(super) fn new(
        (families, of_sinks): (&Families, &sink::Families),
        (topology, sink): (&str, &str),
        (classes, commands): (&[&str], &[&str]),
    ) -> Self {
        let effects = |outcome| of_sinks.effects.with_label_values(&[topology, sink, outcome]);
        let attempts = |class: &&str| families.effect_attempts.with_label_values(&[topology, sink, class]);
        let commanded = |outcome: &&str| families.commands.with_label_values(&[topology, outcome]);
        Self {
            effects: ["done", "rejected", "conflict", "in_doubt", "unavailable", "duplicate_result"].map(effects),
            attempts: classes.iter().map(attempts).collect(),
            duration: of_sinks.effect_duration.with_label_values(&[topology]),
            in_flight: Part::of(families.effects_in_flight.with_label_values(&[topology])),
            in_doubt: families.effects_in_doubt.with_label_values(&[topology]),
            commands: commands.iter().map(commanded).collect(),
            commands_waiting: Part::of(families.commands_waiting.with_label_values(&[topology])),
            held: Part::of(of_sinks.sink_held.with_label_values(&[topology])),
            blocked: Part::of(families.handlers_blocked.with_label_values(&[topology])),
        }
    }

    /// A transaction that has settled records is committed.
    pub fn settled(&self, settled: Settled) {
        let Settled { done, rejected, conflict, in_doubt, unavailable, duplicate_result } = settled;
        let counts = [done, rejected, conflict, in_doubt, unavailable, duplicate_result];
        self.effects.iter().zip(counts).for_each(|(effects, count)| effects.inc_by(count));
        self.in_doubt.add(i64::try_from(in_doubt).unwrap_or(i64::MAX));
    }

    /// An attempt is over: the number of its answer's class, and how long it was in flight, if it was.
    pub fn attempt(&self, class: usize, took: Option<Duration>) {
        self.attempts[class].inc();
        if let Some(took) = took {
            self.duration.observe(took.as_secs_f64());
        }
    }

    /// How many of the lane's requests are in flight.
    pub fn in_flight(&mut self, count: usize) {
        self.in_flight.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// A partition has acknowledged a command, and that is committed: the number of what became of it.
    pub fn command(&self, outcome: usize) {
        self.commands[outcome].inc();
    }

    /// How many of the lane's partitions have a command that waits.
    pub fn commands_waiting(&mut self, count: usize) {
        self.commands_waiting.set(i64::try_from(count).unwrap_or(i64::MAX));
    }

    /// Whether the lane waits for the provider.
    pub fn held(&mut self, is_held: bool) {
        self.held.set(i64::from(is_held));
    }

    /// Whether a handler blocks the lane's handlers.
    pub fn blocked(&mut self, is_blocked: bool) {
        self.blocked.set(i64::from(is_blocked));
    }
}
