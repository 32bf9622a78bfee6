//! Calls to a provider: ratchet beside the same window of calls without ratchet, which is the limit.
//!
//! All of them read the same input, call the same kind of provider with the same requests, and write what it answers to
//! a topic. [`orders`] makes the records, [`provider`] answers, [`window`] is the other, [`turns`] and [`latency`]
//! measure, and [`page`] shows the figures.

mod latency;
pub mod orders;
mod page;
pub mod provider;
mod turns;
mod window;

use std::collections::BTreeMap;
use std::fmt;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::contender::{self, Contender, Running};
use crate::failure::{Context as _, Outcome};
use crate::kafka;
use crate::latency::Percentiles;
use crate::metrics::Metrics;
use crate::part::{Bench, Part};
use crate::results::Findings;
use crate::spec::Work;
use crate::stats::Spread;

use provider::Provider;
use window::CallArgs as Window;

pub use provider::{ProvideArgs, run as provide};
pub use window::{CallArgs, run as call};

/// The part.
pub const PART: Part = Part {
    name: "calls",
    about: "calls to a provider, beside the same window of calls without ratchet",
    has_built: false,
    run,
    sections: page::sections,
    goals: page::goals,
};

/// After how many milliseconds the provider answers, and how many records a turn has then.
const PROVIDERS: [(u64, u64); 2] = [(1, 80_000), (20, 60_000)];
const RECORDS_QUICK: u64 = 20_000;
/// Calls under way in each lane or thread: ratchet's default.
const IN_FLIGHT: usize = 64;
/// The rate at which latency is measured, in records a second.
const RATE: u64 = 1_000;

/// Lanes of ratchet, and threads of the window.
fn lanes() -> usize {
    Contender::Ratchet.threads()
}

/// Who calls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
enum Who {
    /// The same window of calls without ratchet.
    Window,
    /// ratchet, with a key.
    Ratchet,
    /// ratchet, with a key, and a reservation before each call.
    RatchetReserves,
}

impl Who {
    /// All of them, in the order of the first round.
    const ALL: [Who; 3] = [Who::Window, Who::Ratchet, Who::RatchetReserves];

    /// Its name on the page.
    fn name(self) -> &'static str {
        match self {
            Who::Window => "window",
            Who::Ratchet => "ratchet",
            Who::RatchetReserves => "ratchet, `reserve: always`",
        }
    }

    /// Its name in a picture.
    fn label(self) -> &'static str {
        match self {
            Who::RatchetReserves => "ratchet, reserving",
            who => who.name(),
        }
    }

    /// Its name in those of topics, groups and folders.
    fn plain_name(self) -> &'static str {
        match self {
            Who::Window => "window",
            Who::Ratchet => "ratchet",
            Who::RatchetReserves => "reserves",
        }
    }
}

/// Figures of one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sample {
    /// Settled calls a second.
    rate: f64,
    /// Microseconds of CPU a call: the contender's, the provider's, Kafka's.
    cpu_us: f64,
    provider_us: f64,
    broker_us: f64,
    /// The contender's peak resident memory.
    peak_mib: f64,
    /// Of ratchet: its transactions.
    transactions: Option<Transactions>,
}

/// What ratchet's transactions were like.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Transactions {
    /// How many calls one settles.
    calls: f64,
    /// How long its commit takes.
    commit_ms: f64,
}

impl Transactions {
    /// Those between two looks at the metrics, which settled so many calls.
    fn between(from: &Metrics, to: &Metrics, calls: f64) -> Transactions {
        let grown = |name: &str| to.sum(name) - from.sum(name);
        let commits = grown("ratchet_commit_duration_seconds_count").max(1.0);
        let commit_ms = grown("ratchet_commit_duration_seconds_sum") * 1000.0 / commits;
        Transactions { calls: calls / commits, commit_ms }
    }
}

impl fmt::Display for Transactions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "; {:.0} calls in a transaction, {:.1} ms for a commit", self.calls, self.commit_ms)
    }
}

/// A turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Turn {
    round: usize,
    /// The provider's.
    latency_ms: u64,
    who: Who,
    sample: Sample,
}

/// One measurement of latency.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    /// The provider's.
    latency_ms: u64,
    who: Who,
    latency: Percentiles,
    /// How long the provider itself took.
    provider: Percentiles,
    /// Of ratchet: its transactions.
    transactions: Option<Transactions>,
    /// How late the generator was at its 99th percentile.
    lateness_p99_us: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    turns: Vec<Turn>,
    latency: Vec<Run>,
}

impl Data {
    fn rounds(&self, latency_ms: u64) -> Vec<BTreeMap<Who, &Sample>> {
        let mut rounds: BTreeMap<usize, BTreeMap<Who, &Sample>> = BTreeMap::new();
        for turn in self.turns.iter().filter(|turn| turn.latency_ms == latency_ms) {
            rounds.entry(turn.round).or_default().insert(turn.who, &turn.sample);
        }
        rounds.into_values().collect()
    }

    /// A figure over the rounds.
    fn spread(&self, latency_ms: u64, who: Who, figure: impl Fn(&Sample) -> Option<f64>) -> Option<Spread> {
        Spread::of(self.rounds(latency_ms).iter().filter_map(|round| figure(round.get(&who)?)))
    }

    /// The ratio of a contender's figure to the window's, round by round.
    fn ratio(&self, latency_ms: u64, of: Who, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        let ratio = |round: &BTreeMap<Who, &Sample>| Some(figure(round.get(&of)?) / figure(round.get(&Who::Window)?));
        Spread::of(self.rounds(latency_ms).iter().filter_map(ratio))
    }

    /// A figure of the measurements of latency, over the rounds.
    fn told(&self, latency_ms: u64, who: Who, figure: impl Fn(&Run) -> f64) -> Option<Spread> {
        let runs = self.latency.iter().filter(|run| run.latency_ms == latency_ms && run.who == who);
        Spread::of(runs.map(figure))
    }
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut data, mut failures) = (Data::default(), Vec::new());
    turns::run(bench, &mut data, &mut failures)?;
    latency::run(bench, &mut data, &mut failures);
    let records = PROVIDERS.map(|(latency_ms, _)| turns::records(bench, latency_ms));
    let mut findings = Findings::new(&data)?
        .setting("records", format!("{records:?}"))
        .setting("rounds", bench.rounds)
        .setting("calls under way in each lane", IN_FLIGHT)
        .setting("latency", format!("measured for {} s at {RATE}/s", latency::measured_for(bench).as_secs_f64()));
    findings.failures = failures;
    Ok(findings)
}

/// A contender that calls a provider.
struct Caller {
    running: Running,
    /// ratchet's port for metrics.
    metrics: Option<kafka::Port>,
    folder: PathBuf,
}

impl Caller {
    /// Starts one under this name, which nobody else has had on this broker; both topics exist.
    fn start(
        bench: &Bench,
        who: Who,
        name: &str,
        (input, output): (&str, &str),
        provider: &Provider,
    ) -> Outcome<Caller> {
        let (folder, url) = (bench.folder.join(name), provider.url());
        fs::create_dir_all(&folder).context(folder.display())?;
        let mut metrics = None;
        let command = match who {
            Who::Window => Window::new(bench.broker.bootstrap(), name, input, output, &url).command()?,
            Who::Ratchet | Who::RatchetReserves => {
                let port = kafka::Port::free();
                let mut spec = Contender::Ratchet.spec(&bench.broker, &bench.folder, name, Work::Ids, input);
                spec.settings = vec![("http".to_owned(), port.address().to_string())];
                metrics = Some(port);
                let lines: &[&str] = if who == Who::RatchetReserves { &["reserve: always"] } else { &[] };
                contender::ratchet(&spec, |name| orders::topology(name, input, output, &url, lines))?
            }
        };
        let running = Running::start(who.name(), command, folder.with_extension("log"))?;
        Ok(Caller { running, metrics, folder })
    }

    /// ratchet's metrics.
    fn metrics(&self) -> Outcome<Option<Metrics>> {
        self.metrics.as_ref().map(|port| Metrics::of(port.address())).transpose()
    }

    fn stop(mut self) -> Outcome<()> {
        let ended = self.running.stop().map(drop);
        let _ = fs::remove_dir_all(&self.folder);
        ended
    }
}
