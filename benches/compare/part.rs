//! Parts: what `run` runs one after the other, and what each gives for the page. A part lives in a file of
//! its own and is named in [`ALL`].

use std::path::PathBuf;

use crate::broker::Broker;
use crate::contender::Contender;
use crate::failure::Outcome;
use crate::progress::Progress;
use crate::results::{Findings, Results};
use crate::{growth, latency, moves, restore, throughput};

/// Something that is measured.
pub struct Part {
    /// As it is called on the command line, and its results' file.
    pub name: &'static str,
    /// In a line.
    pub about: &'static str,
    /// Runs it. What fails within it goes into the findings, so that the rest of it is kept.
    pub run: fn(&Bench) -> Outcome<Findings>,
    /// What it has for the page.
    pub sections: fn(&Results) -> Outcome<Vec<Section>>,
    /// What was to be reached, and was or was not.
    pub goals: fn(&Results) -> Outcome<Vec<Goal>>,
}

/// All parts, in the order in which they are run and stand on the page.
pub const ALL: &[Part] = &[
    throughput::IDS,
    throughput::VERSIONS,
    throughput::ENVELOPES,
    throughput::LARGE,
    latency::PART,
    restore::PART,
    moves::PART,
    growth::PART,
];

/// What a part works with.
pub struct Bench {
    /// One for the whole run. A part deletes the topics that it has made.
    pub broker: Broker,
    /// An empty folder of the run's; a part makes folders of its own in it and removes them.
    pub folder: PathBuf,
    /// How often everything is measured.
    pub rounds: usize,
    /// Whether this is the short form.
    pub quick: bool,
    /// Who takes part, of those that the part knows.
    pub contenders: Vec<Contender>,
    /// Sizes are multiplied by this: 1 for the real thing, less to try the harness out.
    pub scale: f64,
    /// Says what is going on.
    pub progress: Progress,
}

impl Bench {
    /// A size, scaled; at least 1.
    pub fn scaled(&self, size: u64) -> u64 {
        ((size as f64 * self.scale) as u64).max(1)
    }

    /// Whether a contender takes part.
    pub fn has(&self, contender: Contender) -> bool {
        self.contenders.contains(&contender)
    }
}

/// A heading of the page with what stands below it, in this order.
#[derive(Clone, Debug, Default)]
pub struct Section {
    /// The heading.
    pub title: String,
    /// Paragraphs before the tables.
    pub text: Vec<String>,
    /// Tables.
    pub tables: Vec<Table>,
    /// Plots.
    pub plots: Vec<Plot>,
    /// Paragraphs at the end: what has to be known to read the figures.
    pub notes: Vec<String>,
}

/// A table; all columns but the first are figures.
#[derive(Clone, Debug, Default)]
pub struct Table {
    /// The columns' heads.
    pub head: Vec<String>,
    /// As many cells as the head has.
    pub rows: Vec<Vec<String>>,
}

/// A picture: `docs/benchmarks/NAME.svg`.
#[derive(Clone, Debug)]
pub struct Plot {
    /// The file's name, without its ending.
    pub name: String,
    /// Above the picture.
    pub title: String,
    /// The unit of the values.
    pub unit: String,
    /// What is drawn.
    pub kind: Drawing,
}

/// What a plot draws.
#[derive(Clone, Debug)]
pub enum Drawing {
    /// A bar for each, from zero, with a whisker from the least to the most.
    Bars(Vec<Bar>),
    /// A line for each. The x axis is logarithmic where `log_x`, the y axis where `log_y`.
    Lines {
        /// Under the picture.
        x_label: String,
        /// Whether equal steps are equal factors.
        log_x: bool,
        /// The same of the values.
        log_y: bool,
        /// The lines.
        lines: Vec<Line>,
    },
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// Before the bar.
    pub label: String,
    /// Its length.
    pub value: f64,
    /// The whisker's start.
    pub low: f64,
    /// The whisker's end.
    pub high: f64,
}

/// A line.
#[derive(Clone, Debug)]
pub struct Line {
    /// In the legend.
    pub label: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// Something that was to be reached.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What: "throughput (a)".
    pub what: String,
    /// How much was wanted: "at least 0.9 of floor-changelog".
    pub wanted: String,
    /// What came out.
    pub figure: String,
    /// Whether that is enough.
    pub met: bool,
}
