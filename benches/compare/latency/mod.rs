//! End-to-end latency: from when a record is due at the input to when a `read_committed` reader has it from the
//! output, at constant rates that never wait for the contender.
//!
//! [`plan`] decides who is measured when, [`measure`] does one run; [`page`] and [`goals`] read the figures.

mod goals;
mod measure;
mod page;
mod plan;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::collector::Pauses;
use crate::contender::{COMMIT_MS, Contender};
use crate::part::{Bench, Part};
use crate::stats::Spread;

/// The part.
pub const PART: Part = Part {
    name: "latency",
    about: "end-to-end latency at constant rates",
    has_built: true,
    run: plan::run,
    sections: page::sections,
    goals: goals::goals,
};

const PARTITIONS: i32 = 4;
/// The rates at which everyone is measured, in records per second; then half of the own maximum.
const RATES: &[u64] = &[100, 1_000, 10_000];
/// The goals' rate. The contenders that have goals are measured at it in every round.
const GOAL_RATE: u64 = 1_000;
/// Kafka Streams' commit interval when it is tuned for latency.
const TUNED_COMMIT_MS: u64 = 20;

/// Whose latency is measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Who {
    /// `None` is the harness alone: its reader reads what its generator writes.
    contender: Option<Contender>,
    commit_ms: u64,
}

impl Who {
    const HARNESS: Who = Who { contender: None, commit_ms: 0 };
    const RATCHET: Who = Who { contender: Some(Contender::Ratchet), commit_ms: COMMIT_MS };
    const STREAMS: Who = Who { contender: Some(Contender::KafkaStreams), commit_ms: COMMIT_MS };
    const TUNED: Who = Who { contender: Some(Contender::KafkaStreams), commit_ms: TUNED_COMMIT_MS };

    const ALL: [Who; 6] = [
        Who::HARNESS,
        Who { contender: Some(Contender::FloorChangelog), commit_ms: COMMIT_MS },
        Who::RATCHET,
        Who::STREAMS,
        Who::TUNED,
        Who { contender: Some(Contender::Quix), commit_ms: COMMIT_MS },
    ];

    fn name(self) -> String {
        match self.contender {
            None => "(harness alone)".to_owned(),
            Some(Contender::KafkaStreams) => format!("kafka-streams, commit {} ms", self.commit_ms),
            Some(contender) => contender.name().to_owned(),
        }
    }

    fn takes_part(self, bench: &Bench) -> bool {
        self.contender.is_none_or(|contender| bench.has(contender))
    }

    /// Whether it has a goal, and so is measured in every round.
    fn has_a_goal(self) -> bool {
        [Who::RATCHET, Who::STREAMS, Who::TUNED].contains(&self)
    }
}

/// Microseconds at the reported percentiles.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Percentiles {
    pub p50: u64,
    pub p90: u64,
    pub p99: u64,
    pub p999: u64,
    pub max: u64,
    pub count: u64,
}

impl Percentiles {
    /// Those of a histogram of microseconds.
    pub fn of(histogram: &Histogram<u64>) -> Percentiles {
        let at = |quantile| histogram.value_at_quantile(quantile);
        Percentiles {
            p50: at(0.5),
            p90: at(0.9),
            p99: at(0.99),
            p999: at(0.999),
            max: histogram.max(),
            count: histogram.len(),
        }
    }
}

/// One run.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    who: Who,
    round: usize,
    rate: u64,
    /// Whether the rate is half of the maximum.
    half: bool,
    latency: Percentiles,
    /// How late the generator was at its 99th percentile.
    lateness_p99_us: u64,
    /// Those of the broker's collector.
    #[serde(default)]
    broker_pauses: Pauses,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    runs: Vec<Run>,
    /// Maximum rates in records per second, of those measured at half of theirs.
    maxima: Vec<(Who, u64)>,
}

/// The median over the rounds of one percentile.
fn median(data: &Data, who: Who, at: impl Fn(&Run) -> bool, of: impl Fn(&Percentiles) -> u64) -> Option<f64> {
    let runs = data.runs.iter().filter(|run| run.who == who && at(run));
    Spread::of(runs.map(|run| of(&run.latency) as f64)).map(|spread| spread.median)
}
