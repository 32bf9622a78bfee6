//! Parts (a) to (d): records per second, and the resources per record.

mod large;
mod pages;
mod turns;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::measure::Sample;
use crate::part::Part;
use crate::stats::Spread;

pub use pages::{figures, ratios};
pub use turns::{Turn, ratios_of, rounds, turn, write};

/// (a)
pub const IDS: Part = Part {
    name: "ids",
    about: "(a) 4 M events of 160 bytes by their id, a UUID, 1 M accounts, a fifth duplicates",
    has_built: true,
    run: turns::ids,
    sections: pages::sections,
    goals: pages::goals_by_turns,
};
/// (b)
pub const VERSIONS: Part = Part {
    name: "versions",
    about: "(b) 4 M events of 160 bytes by account and version, 10 M accounts, a fifth late or repeated",
    has_built: true,
    run: turns::versions,
    sections: pages::sections,
    goals: pages::goals_by_turns,
};
/// (c)
pub const ENVELOPES: Part = Part {
    name: "envelopes",
    about: "(c) 1 M change events of Debezium for PostgreSQL, 1.5 KB each, a fifth delivered again",
    has_built: true,
    run: turns::envelopes,
    sections: pages::sections,
    goals: pages::goals_by_turns,
};
/// (d)
pub const LARGE: Part = Part {
    name: "large",
    about: "(d) 50 M ids in the store, then 2 M events, half of them duplicates",
    has_built: true,
    run: large::run,
    sections: pages::sections,
    goals: pages::goals_large,
};

/// The figures of such a part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Data {
    /// How many records each contender has read in a round.
    pub records: BTreeMap<Contender, u64>,
    /// Each contender's figures, round by round, without those that failed.
    pub rounds: Vec<BTreeMap<Contender, Sample>>,
    /// (a): the same with numbers that rise for ids, for comparison.
    #[serde(default)]
    pub numbers: Vec<BTreeMap<Contender, Sample>>,
    /// (d): the figures of building the state.
    pub built: BTreeMap<Contender, Sample>,
    /// (d): how many entries.
    pub entries: u64,
}

impl Data {
    /// A contender's figure over the rounds.
    pub fn spread(&self, contender: Contender, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        spread_of(&self.rounds, contender, figure)
    }

    /// The same with numbers for ids.
    pub fn spread_of_numbers(&self, contender: Contender, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        spread_of(&self.numbers, contender, figure)
    }

    /// The ratio of two contenders' figures, round by round.
    pub fn ratio(&self, of: Contender, to: Contender, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(ratios_of(&self.rounds, of, to, figure))
    }
}

fn spread_of(
    rounds: &[BTreeMap<Contender, Sample>],
    contender: Contender,
    figure: impl Fn(&Sample) -> f64,
) -> Option<Spread> {
    Spread::of(rounds.iter().filter_map(|round| round.get(&contender)).map(figure))
}
