//! Parts (a) to (d): how many records a second, and what each of them takes.

mod large;
mod pages;
mod turns;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::measure::Sample;
use crate::part::Part;
use crate::stats::Spread;

pub use turns::{ratios_of, turn};

/// (a)
pub const IDS: Part = Part {
    name: "ids",
    about: "(a) 4 M events of 160 bytes by their id, 1 M accounts, a fifth duplicates",
    run: turns::ids,
    sections: pages::sections,
    goals: pages::goals_by_turns,
};
/// (b)
pub const VERSIONS: Part = Part {
    name: "versions",
    about: "(b) 4 M events of 160 bytes by account and version, 10 M accounts, a fifth late or repeated",
    run: turns::versions,
    sections: pages::sections,
    goals: pages::goals_by_turns,
};
/// (c)
pub const ENVELOPES: Part = Part {
    name: "envelopes",
    about: "(c) 1 M change events of Debezium for PostgreSQL, 1.5 KB each, a fifth delivered again",
    run: turns::envelopes,
    sections: pages::sections,
    goals: pages::goals_by_turns,
};
/// (d)
pub const LARGE: Part = Part {
    name: "large",
    about: "(d) 50 M ids in the store, then 2 M events, half of them duplicates",
    run: large::run,
    sections: pages::sections,
    goals: pages::goals_large,
};

/// What such a part found.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Data {
    /// How many records each contender has read in a round.
    pub records: BTreeMap<Contender, u64>,
    /// What each took, round by round. Who failed in a round is not in it.
    pub rounds: Vec<BTreeMap<Contender, Sample>>,
    /// (d): what building the state took.
    pub built: BTreeMap<Contender, Sample>,
    /// (d): how many entries.
    pub entries: u64,
}

impl Data {
    /// Of a contender over the rounds.
    pub fn spread(&self, contender: Contender, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| round.get(&contender)).map(figure))
    }

    /// Of one contender to another, round by round.
    pub fn ratio(&self, of: Contender, to: Contender, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(ratios_of(&self.rounds, of, to, figure))
    }
}
