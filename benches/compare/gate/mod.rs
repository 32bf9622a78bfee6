//! A gate in front of a topology: records by their id through Redis, beside the same topology without a gate, and beside
//! the driver alone.
//!
//! [`turns`] measures topologies, [`driver`] the driver, and [`page`] shows the figures.

mod driver;
mod page;
mod turns;

use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::failure::Outcome;
use crate::measure::Sample;
use crate::part::{Bench, Part};
use crate::results::Findings;
use crate::stats::Spread;

/// The part.
pub const PART: Part = Part {
    name: "gate",
    about: "a gate in Redis, beside the same topology without one, and beside its driver alone",
    has_built: false,
    run,
    sections: page::sections,
    goals: page::goals,
};

const RECORDS: u64 = 1_000_000;
const RECORDS_QUICK: u64 = 200_000;

/// What is known of the records.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Kind {
    /// Nothing.
    New,
    /// Each id stands in two partitions.
    Shared,
}

impl Kind {
    const ALL: [Kind; 2] = [Kind::New, Kind::Shared];

    /// Its name on the page.
    fn name(self) -> &'static str {
        match self {
            Kind::New => "all new",
            Kind::Shared => "half known from another partition",
        }
    }

    /// Its name in those of topics.
    fn plain_name(self) -> &'static str {
        match self {
            Kind::New => "new",
            Kind::Shared => "shared",
        }
    }
}

/// By which data path the topology runs.
const WHO: [Contender; 2] = [Contender::Ratchet, Contender::RatchetLibrdkafka];

/// One turn of a topology.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Turn {
    round: usize,
    who: Contender,
    kind: Kind,
    has_gate: bool,
    sample: Sample,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    /// The server, as it names itself.
    server: String,
    turns: Vec<Turn>,
    driver: Vec<driver::Run>,
}

impl Data {
    /// A figure over the rounds.
    fn spread(&self, who: Contender, kind: Kind, has_gate: bool, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        let turns = self.turns.iter().filter(|turn| (turn.who, turn.kind, turn.has_gate) == (who, kind, has_gate));
        Spread::of(turns.map(|turn| figure(&turn.sample)))
    }

    /// The ratio of a figure with a gate to that without, round by round.
    fn ratio(&self, who: Contender, kind: Kind, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        let turns = || self.turns.iter().filter(|turn| (turn.who, turn.kind) == (who, kind));
        let ratio = |gated: &Turn| {
            let plain = turns().find(|turn| turn.round == gated.round && !turn.has_gate)?;
            Some(figure(&gated.sample) / figure(&plain.sample))
        };
        Spread::of(turns().filter(|turn| turn.has_gate).filter_map(ratio))
    }
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut data, mut failures) = (Data::default(), Vec::new());
    data.server = crate::redis::Redis::start(&[])?.version().to_owned();
    turns::run(bench, &mut data, &mut failures)?;
    driver::run(bench, &mut data, &mut failures);
    let mut findings = Findings::new(&data)?
        .setting("records", turns::records(bench))
        .setting("rounds", bench.rounds)
        .setting("driver", format!("measured for {} s", driver::measured_for(bench).as_secs_f64()));
    findings.failures = failures;
    Ok(findings)
}
