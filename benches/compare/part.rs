//! Parts: what `run` runs one after the other, and what each contributes to the page. A part has its own file
//! and is listed in [`ALL`].

use std::path::PathBuf;

use crate::broker::Broker;
use crate::contender::Contender;
use crate::failure::Outcome;
use crate::progress::Screen;
use crate::results::{Findings, Results};
use crate::{calls, formats, gate, growth, latency, moves, postgres, requests, restore, steady, throughput, transport};

/// A part of the benchmarks.
pub struct Part {
    /// Its name on the command line and of its results' file.
    pub name: &'static str,
    /// What it measures, in one line.
    pub about: &'static str,
    /// Whether contenders take part that have to be built ([`Contender::is_built`]).
    pub has_built: bool,
    /// Runs it. Failures go into the findings, so that the rest is kept.
    pub run: fn(&Bench) -> Outcome<Findings>,
    /// Its sections of the page.
    pub sections: fn(&Results) -> Outcome<Vec<Section>>,
    /// Its goals, and whether they were met.
    pub goals: fn(&Results) -> Outcome<Vec<Goal>>,
}

/// All parts, in the order of running and of the page.
pub const ALL: &[Part] = &[
    throughput::IDS,
    throughput::VERSIONS,
    throughput::ENVELOPES,
    throughput::LARGE,
    transport::PART,
    formats::PART,
    latency::PART,
    restore::PART,
    moves::PART,
    growth::PART,
    steady::PART,
    postgres::PART,
    calls::PART,
    requests::PART,
    gate::PART,
];

/// What a part works with.
pub struct Bench {
    /// One broker for the whole run. A part deletes the topics that it has created.
    pub broker: Broker,
    /// The run's folder, empty at first; a part creates its own folders in it and removes them.
    pub folder: PathBuf,
    /// How often everything is measured.
    pub rounds: usize,
    /// Whether this is a short run.
    pub quick: bool,
    /// The contenders that take part.
    pub contenders: Vec<Contender>,
    /// Sizes are multiplied by this: 1 for a real run, less to try out the harness.
    pub scale: f64,
    /// Reports progress.
    pub progress: Screen,
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

/// A section of the page: a heading with its contents, in this order.
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
    /// Paragraphs at the end, about how to read the figures.
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
    /// The file's name, without its extension.
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
    /// A bar for each, from zero, with a whisker from minimum to maximum.
    Bars(Vec<Bar>),
    /// A line for each. The x axis is logarithmic where `log_x`, the y axis where `log_y`.
    Lines {
        /// The label below the picture.
        x_label: String,
        /// Whether the x axis is logarithmic.
        log_x: bool,
        /// Whether the y axis is logarithmic.
        log_y: bool,
        /// The lines.
        lines: Vec<Line>,
    },
}

/// A bar.
#[derive(Clone, Debug)]
pub struct Bar {
    /// The label before the bar.
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
    /// The label in the legend.
    pub label: String,
    /// From left to right.
    pub points: Vec<(f64, f64)>,
}

/// A goal.
#[derive(Clone, Debug)]
pub struct Goal {
    /// What: "throughput (a)".
    pub what: String,
    /// The target: "at least 0.9 of floor-changelog".
    pub wanted: String,
    /// The result.
    pub figure: String,
    /// Whether the target was met.
    pub met: bool,
}
