//! A long run at a constant load over a state of constant size: does memory, cost, latency or disk drift?
//!
//! A fixed set of keys is written again and again with rising versions. The state stops growing once each was written;
//! any growth after that is a leak. Input and output are retained by size, the changelog is compacted in small
//! segments, so that the broker's disk usage settles within the run too.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::contender::Contender;
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::live::pace::{Clock, Feed, Load, Records, histogram};
use crate::live::reader::{Arrival, Reading};
use crate::live::stage::{Live, Stage};
use crate::part::{Bench, Drawing, Goal, Line, Part, Plot, Section, Table};
use crate::results::{Findings, Results};
use crate::spec::Work;
use crate::usage::Usage;

/// The part.
pub const PART: Part = Part {
    name: "steady",
    about: "half an hour at a constant load: does anything drift?",
    has_built: false,
    run,
    sections,
    goals,
};

const PARTITIONS: i32 = 4;
const RATE: u64 = 20_000;
const KEYS: u64 = 1_000_000;
/// How long it runs, unless this variable has another number.
const MINUTES: f64 = 30.0;
const MINUTES_VARIABLE: &str = "BENCH_STEADY_MINUTES";
const SAMPLE_EVERY: Duration = Duration::from_secs(10);
/// This share of the run is not fitted: the state is being built and caches fill.
const WARM_UP: f64 = 0.2;
const START_WAIT: Duration = Duration::from_secs(90);
/// The retention of input and output.
const RETAINED: &[(&str, &str)] = &[("retention.bytes", "134217728"), ("segment.bytes", "67108864")];
/// The changelog is cleaned often, in small segments, so that its size settles within minutes.
const COMPACTED: &[(&str, &str)] =
    &[("cleanup.policy", "compact"), ("segment.bytes", "8388608"), ("min.cleanable.dirty.ratio", "0.1")];
/// A drift of less than this share of the mean per hour counts as none.
const FLAT_SHARE: f64 = 0.05;
/// The series of resident memory, and how much it may rise in an hour.
const MEMORY: &str = "resident memory";
const MEMORY_DRIFT_MIB: f64 = 8.0;
/// A slope within this many standard errors of zero counts as noise.
const FLAT_ERRORS: f64 = 3.0;

/// One sample.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Sample {
    seconds: f64,
    resident_bytes: u64,
    cpu_us: f64,
    broker_us: f64,
    p50_us: u64,
    p99_us: u64,
    state_bytes: u64,
    changelog_bytes: u64,
}

/// The run; without samples if ratchet took no part.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Steady {
    rate: u64,
    keys: u64,
    minutes: f64,
    samples: Vec<Sample>,
}

/// A watched figure: its name, its unit, and how it is read.
type Series = (&'static str, &'static str, fn(&Sample) -> f64);

const SERIES: [Series; 6] = [
    (MEMORY, "MiB", |sample| mib(sample.resident_bytes)),
    ("CPU per record", "us", |sample| sample.cpu_us),
    ("latency p50", "ms", |sample| sample.p50_us as f64 / 1000.0),
    ("latency p99", "ms", |sample| sample.p99_us as f64 / 1000.0),
    ("state folder", "MiB", |sample| mib(sample.state_bytes)),
    ("changelog on the broker", "MiB", |sample| mib(sample.changelog_bytes)),
];

fn mib(bytes: u64) -> f64 {
    bytes as f64 / f64::from(1 << 20)
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let steady = if bench.has(Contender::Ratchet) { watch(bench)? } else { Steady::default() };
    Ok(Findings::new(&steady)?.setting("records/s", RATE).setting("keys", KEYS).setting("partitions", PARTITIONS))
}

/// Runs the load for the whole time.
fn watch(bench: &Bench) -> Outcome<Steady> {
    let minutes = match std::env::var(MINUTES_VARIABLE) {
        Ok(text) => text.parse().context(MINUTES_VARIABLE)?,
        Err(_) if bench.quick => 0.5,
        Err(_) => MINUTES * bench.scale.min(1.0),
    };
    let stage = Stage::set(bench, Contender::Ratchet, Work::Versions, PARTITIONS, RETAINED)?;
    let changelog = format!("{}.{}.changelog", stage.spec.group, stage.spec.input);
    stage.create(&changelog, COMPACTED)?;
    let clock = Clock::start();
    let latency = Arc::new(Mutex::new(histogram()));
    let theirs = Arc::clone(&latency);
    let sink = move |arrival: Arrival| {
        if let Ok(mut latency) = theirs.lock() {
            latency.saturating_record(arrival.at_us.saturating_sub(arrival.due_us));
        }
    };
    let brokers = bench.broker.bootstrap();
    let reading = Reading::start(brokers, &stage.spec.output, PARTITIONS as usize, clock, sink)?;
    let mut live = stage.start()?;
    live.await_ready(PARTITIONS, START_WAIT)?;
    let feed = Feed::start(Load {
        brokers: brokers.to_owned(),
        topic: stage.spec.input.clone(),
        partitions: PARTITIONS as u64,
        rate: RATE,
        records: Records::Versions { keys: KEYS },
        clock,
    })?;
    reading.await_seen(1, START_WAIT, || live.running.check())?;
    let eye = Eye { bench, stage: &stage, changelog: &changelog, reading: &reading, latency: &latency };
    let looks = ((minutes * 60.0 / SAMPLE_EVERY.as_secs_f64()) as u32).max(3);
    let samples = eye.watch(&mut live, looks)?;
    let fed = feed.stop()?;
    reading.await_seen(fed.written, START_WAIT, || live.running.check())?;
    live.running.stop()?;
    let seen = reading.stop()?;
    if seen != fed.written {
        fail!("{seen} records came out, not {}", fed.written);
    }
    Ok(Steady { rate: RATE, keys: KEYS, minutes, samples })
}

/// Takes the samples.
struct Eye<'a> {
    bench: &'a Bench,
    stage: &'a Stage<'a>,
    changelog: &'a str,
    reading: &'a Reading,
    latency: &'a Mutex<Histogram<u64>>,
}

impl Eye<'_> {
    fn watch(&self, live: &mut Live, looks: u32) -> Outcome<Vec<Sample>> {
        let mut samples = Vec::new();
        let began = Instant::now();
        let look = |live: &Live| (live.running.usage(), Usage::of(self.bench.broker.pid()), self.reading.seen());
        let mut before = look(live);
        let mut step = self.bench.progress.step("a long run at a constant load", u64::from(looks));
        for number in 1..=looks {
            while began.elapsed() < SAMPLE_EVERY * number {
                live.running.check()?;
                std::thread::sleep(Duration::from_millis(100));
            }
            let now = look(live);
            let records = (now.2 - before.2).max(1) as f64;
            let latency = take(self.latency)?;
            samples.push(Sample {
                seconds: began.elapsed().as_secs_f64(),
                resident_bytes: now.0.resident_bytes,
                cpu_us: now.0.cpu_since(&before.0).as_secs_f64() * 1e6 / records,
                broker_us: now.1.cpu_since(&before.1).as_secs_f64() * 1e6 / records,
                p50_us: latency.value_at_quantile(0.5),
                p99_us: latency.value_at_quantile(0.99),
                state_bytes: folder_bytes(&self.stage.spec.state_dir),
                changelog_bytes: self.bench.broker.log_bytes(self.changelog),
            });
            before = now;
            step.at(u64::from(number));
        }
        Ok(samples)
    }
}

/// The latencies since the last sample.
fn take(latency: &Mutex<Histogram<u64>>) -> Outcome<Histogram<u64>> {
    let mut latency = latency.lock().map_err(|_| Failure("the reader died".to_owned()))?;
    Ok(std::mem::replace(&mut *latency, histogram()))
}

/// The size of all files in a folder, without those that disappear meanwhile.
fn folder_bytes(folder: &Path) -> u64 {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten();
    let size = |entry: std::fs::DirEntry| match entry.metadata() {
        Ok(file) if file.is_dir() => folder_bytes(&entry.path()),
        Ok(file) => file.len(),
        Err(_) => 0,
    };
    entries.map(size).sum()
}

/// A straight line through samples.
struct Fit {
    mean: f64,
    /// Per hour, with its standard error.
    drift: f64,
    error: f64,
}

impl Fit {
    fn of(points: &[(f64, f64)]) -> Option<Fit> {
        let count = points.len() as f64;
        if points.len() < 3 {
            return None;
        }
        let mean_x = points.iter().map(|(x, _)| x).sum::<f64>() / count;
        let mean = points.iter().map(|(_, y)| y).sum::<f64>() / count;
        let xx: f64 = points.iter().map(|(x, _)| (x - mean_x).powi(2)).sum();
        let xy: f64 = points.iter().map(|(x, y)| (x - mean_x) * (y - mean)).sum();
        let drift = xy / xx;
        let rest: f64 = points.iter().map(|(x, y)| (y - mean - drift * (x - mean_x)).powi(2)).sum();
        Some(Fit { mean, drift, error: (rest / (count - 2.0) / xx).sqrt() })
    }

    /// A falling line counts as flat.
    fn is_flat(&self) -> bool {
        self.drift <= self.error * FLAT_ERRORS || self.drift <= self.mean * FLAT_SHARE
    }
}

/// Whether a series grows no more than it may.
fn is_flat(name: &str, fit: &Fit) -> bool {
    if name == MEMORY { fit.drift <= MEMORY_DRIFT_MIB } else { fit.is_flat() }
}

impl Steady {
    fn fit(&self, of: fn(&Sample) -> f64) -> Option<Fit> {
        let from = self.minutes * 60.0 * WARM_UP;
        let points: Vec<(f64, f64)> = self
            .samples
            .iter()
            .filter(|sample| sample.seconds >= from)
            .map(|sample| (sample.seconds / 3600.0, of(sample)))
            .collect();
        Fit::of(&points)
    }
}

fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let steady: Steady = results.data()?;
    if steady.samples.is_empty() {
        return Ok(Vec::new());
    }
    let mut rows = Vec::new();
    let mut plots = Vec::new();
    for (name, unit, of) in SERIES {
        let Some(fit) = steady.fit(of) else { continue };
        rows.push(vec![
            format!("{name}, {unit}"),
            format!("{:.2}", fit.mean),
            format!("{:+.2} ± {:.2}", fit.drift, fit.error),
            format!("{:+.1} %", fit.drift / fit.mean * 100.0),
            if is_flat(name, &fit) { "no growth" } else { "grows" }.to_owned(),
        ]);
        let points = steady.samples.iter().map(|sample| (sample.seconds / 60.0, of(sample))).collect();
        plots.push(Plot {
            name: format!("steady-{}", name.replace(' ', "-").to_lowercase()),
            title: format!("Long run: {name}"),
            unit: unit.to_owned(),
            kind: Drawing::Lines {
                x_label: "minutes".to_owned(),
                log_x: false,
                log_y: false,
                lines: vec![Line { label: "ratchet".to_owned(), points }],
            },
        });
    }
    let head = ["", "mean", "drift in an hour", "of the mean", ""].map(str::to_owned).to_vec();
    Ok(vec![Section {
        title: "Long run".to_owned(),
        text: vec![format!(
            "{} records/s for {:.0} minutes, {} keys with rising versions, sampled every {} s. The drift is a straight \
             line fitted to the samples after the first fifth of the run, with its standard error. It counts as none \
             if it is under {:.0} % of the mean in an hour, or under {FLAT_ERRORS} standard errors; of memory, at \
             most {MEMORY_DRIFT_MIB} MiB.",
            steady.rate,
            steady.minutes,
            steady.keys,
            SAMPLE_EVERY.as_secs(),
            FLAT_SHARE * 100.0
        )],
        tables: vec![Table { head, rows }],
        plots,
        notes: vec![
            "The changelog is cleaned earlier than by default here (segments of 8 MiB, dirty ratio 0.1), so that \
             compaction takes part in the run; its size goes up and down with the cleaner. It rises by the markers \
             that end transactions: Kafka keeps each for `delete.retention.ms`, a day, once the records of its \
             transaction are gone ([what they come to](operations.md#commits-under-low-load)), so a run of half an \
             hour only sees them come."
                .to_owned(),
        ],
    }])
}

/// One for each series.
fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let steady: Steady = results.data()?;
    let goal = |(name, unit, of): Series| {
        let fit = steady.fit(of)?;
        Some(Goal {
            what: format!("{name}, {:.0} minutes at {} records/s", steady.minutes, steady.rate),
            wanted: match name {
                MEMORY => format!("grows by at most {MEMORY_DRIFT_MIB} MiB in an hour"),
                _ => "no drift".to_owned(),
            },
            figure: format!("{:+.2} ± {:.2} {unit} in an hour at a mean of {:.2}", fit.drift, fit.error, fit.mean),
            met: is_flat(name, &fit),
        })
    };
    Ok(SERIES.into_iter().filter_map(goal).collect())
}
