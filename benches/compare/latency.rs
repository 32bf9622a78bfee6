//! End-to-end latency: from the moment that a record is due at the input to the moment that a `read_committed`
//! reader has it from the output, at constant rates that never wait for anyone.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

use crate::contender::{COMMIT_MS, Contender};
use crate::failure::{Failure, Outcome, fail};
use crate::live::fill::{drain, fill};
use crate::live::pace::{Clock, Fed, Feed, Load, Records, histogram};
use crate::live::reader::{Arrival, Reading};
use crate::live::stage::Stage;
use crate::part::{Bench, Drawing, Goal, Line, Part, Plot, Section, Table};
use crate::results::{self, Findings, Machine, Results};
use crate::spec::Work;
use crate::stats::Spread;
use crate::throughput;

/// The part.
pub const PART: Part = Part { name: "latency", about: "end-to-end latency at constant rates", run, sections, goals };

const PARTITIONS: i32 = 4;
/// The rates that everyone is measured at, records a second; then half of the own maximum.
const RATES: &[u64] = &[100, 1_000, 10_000];
/// The rate that the goals speak of, at which those that they name are measured in every round.
const GOAL_RATE: u64 = 1_000;
/// The highest rate for a contender that is not built for more.
const QUIX_RATE_MAX: u64 = 1_000;
/// Kafka Streams' commit interval when it is tuned for latency.
const TUNED_COMMIT_MS: u64 = 20;
const MEASURE: Duration = Duration::from_secs(15);
/// Load before the measured time: caches, connections, and Java's compiler.
const WARM_UP: Duration = Duration::from_secs(5);
const JAVA_WARM_UP: Duration = Duration::from_secs(12);
/// How long a start may take, and how long the last record may be on its way.
const START_WAIT: Duration = Duration::from_secs(90);
const END_WAIT: Duration = Duration::from_secs(30);
/// Records of the short measurement of a maximum.
const MAXIMUM_RECORDS: u64 = 2_000_000;
/// A generator this late at its 99th percentile was starved: the figures say more of the harness.
const LATENESS_MAX_US: u64 = 5_000;

/// Whose latency.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Who {
    /// None is the harness alone: its reader reads what its generator writes.
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

    /// Whether a goal speaks of it: then it is measured in every round.
    fn has_a_goal(self) -> bool {
        [Who::RATCHET, Who::STREAMS, Who::TUNED].contains(&self)
    }

    fn warm_up(self) -> Duration {
        match self.contender {
            Some(Contender::KafkaStreams) => JAVA_WARM_UP,
            _ => WARM_UP,
        }
    }
}

/// Microseconds at the percentiles that are told.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Percentiles {
    p50: u64,
    p90: u64,
    p99: u64,
    p999: u64,
    max: u64,
    count: u64,
}

impl Percentiles {
    fn of(histogram: &Histogram<u64>) -> Percentiles {
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
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    runs: Vec<Run>,
    /// Records a second of who was measured at half of it.
    maxima: Vec<(Who, u64)>,
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut data, mut failures) = (Data::default(), Vec::new());
    for round in 0..bench.rounds {
        for &rate in RATES.iter().filter(|&&rate| round == 0 || rate == GOAL_RATE) {
            for who in Who::ALL.into_iter().filter(|who| who.takes_part(bench)) {
                let is_too_much = who.contender == Some(Contender::Quix) && rate > QUIX_RATE_MAX;
                if is_too_much || (round > 0 && !who.has_a_goal()) {
                    continue;
                }
                keep(bench, &mut data, &mut failures, (who, rate, false, round));
            }
        }
    }
    for who in Who::ALL.into_iter().filter(|who| who.takes_part(bench)) {
        let Some(contender) = who.contender.filter(|contender| *contender != Contender::Quix) else { continue };
        let known = data.maxima.iter().find(|(other, _)| other.contender == who.contender).map(|(_, rate)| *rate);
        match known.map_or_else(|| maximum(bench, contender), Ok) {
            Ok(maximum) => {
                data.maxima.push((who, maximum));
                keep(bench, &mut data, &mut failures, (who, maximum / 2, true, 0));
            }
            Err(error) => failures.push(format!("the maximum of {}: {error}", who.name())),
        }
    }
    // The harness alone at the highest of these rates: what of those figures is its own.
    if let Some(rate) = data.runs.iter().filter(|run| run.half).map(|run| run.rate).max() {
        keep(bench, &mut data, &mut failures, (Who::HARNESS, rate, true, 0));
    }
    let mut findings = Findings::new(&data)?
        .setting("measured for", format!("{:?}", measured_for(bench)))
        .setting("partitions", PARTITIONS)
        .setting("producer", "acks all, idempotent, linger 0 ms (1 ms from 5,000 records/s)")
        .setting("reader", "read_committed, fetch.min.bytes 1, fetch.wait.max.ms 10");
    findings.failures = failures;
    Ok(findings)
}

/// Measures and keeps the figures, or why there are none.
fn keep(bench: &Bench, data: &mut Data, failures: &mut Vec<String>, what: (Who, u64, bool, usize)) {
    let (who, rate, half, round) = what;
    let measured = measure(bench, who, rate).map(|(latency, fed)| Run {
        who,
        round,
        rate,
        half,
        latency: Percentiles::of(&latency),
        lateness_p99_us: fed.lateness_us.value_at_quantile(0.99),
    });
    match measured {
        Ok(run) => {
            let Percentiles { p50, p99, max, .. } = run.latency;
            let told = [p50, p99, max].map(|us| us as f64 / 1000.0);
            bench.progress.say(format!("latency of {} at {rate}/s: p50, p99, max {told:.1?} ms", who.name()));
            data.runs.push(run);
        }
        Err(error) => {
            let what = format!("latency of {} at {rate}/s: {error}", who.name());
            bench.progress.say(&what);
            failures.push(what);
        }
    }
}

fn measured_for(bench: &Bench) -> Duration {
    if bench.quick { Duration::from_secs(3) } else { MEASURE.mul_f64(bench.scale.clamp(0.2, 1.0)) }
}

/// Runs a contender under a constant rate; the latencies are those of the records that were due in the measured time.
fn measure(bench: &Bench, who: Who, rate: u64) -> Outcome<(Histogram<u64>, Fed)> {
    // Without a contender the stage is only the two topics.
    let mut stage = Stage::set(bench, who.contender.unwrap_or(Contender::Floor), Work::Ids, PARTITIONS, &[])?;
    stage.spec.commit_ms = who.commit_ms;
    let clock = Clock::start();
    let (latency, window) = (Arc::new(Mutex::new(histogram())), Arc::new(Mutex::new(0..0)));
    let (theirs, between) = (Arc::clone(&latency), Arc::clone(&window));
    let sink = move |arrival: Arrival| {
        if let (Ok(mut latency), Ok(window)) = (theirs.lock(), between.lock())
            && window.contains(&arrival.due_us)
        {
            latency.saturating_record(arrival.at_us.saturating_sub(arrival.due_us));
        }
    };
    let topic = if who.contender.is_some() { &stage.spec.output } else { &stage.spec.input };
    let reading = Reading::start(bench.broker.bootstrap(), topic, PARTITIONS as usize, clock, sink)?;
    let mut live = who.contender.map(|_| stage.start()).transpose()?;
    let feed = Feed::start(Load {
        brokers: bench.broker.bootstrap().to_owned(),
        topic: stage.spec.input.clone(),
        partitions: PARTITIONS as u64,
        rate,
        records: Records::Repeating,
        clock,
    })?;
    let mut well = || live.as_mut().map_or(Ok(()), |live| live.running.check());
    // What piled up during the start has to be through before anything is measured.
    reading.await_seen(1, START_WAIT, &mut well)?;
    std::thread::sleep(if bench.quick { WARM_UP } else { who.warm_up() });
    let from = clock.now_us();
    let length = measured_for(bench);
    *window.lock().map_err(poisoned)? = from..from + length.as_micros() as u64;
    let until = Instant::now() + length;
    while Instant::now() < until {
        well()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let fed = feed.stop()?;
    let decides = who.contender.is_some_and(Contender::decides);
    let expected = if decides { fed.fresh } else { fed.written };
    reading.await_seen(expected, END_WAIT, &mut well)?;
    if let Some(mut live) = live {
        live.running.stop()?;
    }
    let seen = reading.stop()?;
    if seen != expected {
        fail!("gave {seen} records, not {expected}");
    }
    let latency = latency.lock().map_err(poisoned)?.clone();
    Ok((latency, fed))
}

fn poisoned<T>(_: T) -> Failure {
    Failure("the reader died".to_owned())
}

/// How many records a second a contender takes off a topic that lies ready: as part (a) has found for these sources
/// on this machine, else by a short measurement of our own.
fn maximum(bench: &Bench, contender: Contender) -> Outcome<u64> {
    if let Some(known) = Results::read("ids")?.as_ref().and_then(|results| known_maximum(results, contender)) {
        return Ok(known);
    }
    let stage = Stage::set(bench, contender, Work::Ids, PARTITIONS, &[])?;
    let records = bench.scaled(MAXIMUM_RECORDS);
    fill(bench, &stage.spec.input, PARTITIONS, 0..records, 160)?;
    Ok(drain(bench, &stage, 0, records)?.records_per_second as u64)
}

/// The median over the rounds of part (a).
fn known_maximum(ids: &Results, contender: Contender) -> Option<u64> {
    if ids.machine != Machine::this() || ids.versions != results::versions() {
        return None;
    }
    let ids: throughput::Data = ids.data().ok()?;
    ids.spread(contender, |sample| sample.rate).map(|spread| spread.median as u64)
}

fn milliseconds(us: f64) -> String {
    let ms = us / 1000.0;
    if ms < 10.0 { format!("{ms:.1}") } else { format!("{ms:.0}") }
}

/// The median over the rounds of one percentile.
fn median(data: &Data, who: Who, at: impl Fn(&Run) -> bool, of: impl Fn(&Percentiles) -> u64) -> Option<f64> {
    let runs = data.runs.iter().filter(|run| run.who == who && at(run));
    Spread::of(runs.map(|run| of(&run.latency) as f64)).map(|spread| spread.median)
}

fn at_goal_rate(run: &Run) -> bool {
    run.rate == GOAL_RATE && !run.half
}

fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let mut tables = Vec::new();
    for &rate in RATES {
        tables.push(table(&data, &format!("{} records/s", thousands(rate)), |run| run.rate == rate && !run.half));
    }
    tables.push(table(&data, "half of its own maximum", |run| run.half));
    let starved: Vec<String> = data
        .runs
        .iter()
        .filter(|run| run.lateness_p99_us > LATENESS_MAX_US)
        .map(|run| format!("{} at {}/s", run.who.name(), thousands(run.rate)))
        .collect();
    let mut notes = vec![
        "`(harness alone)` is the harness's generator and reader without a contender between them: what of every other \
         figure is not the contender's. At half of the maximum generator, broker, contender and reader share the cores."
            .to_owned(),
    ];
    if !starved.is_empty() {
        notes.push(format!(
            "In these runs the generator itself was late by more than {} ms at its 99th percentile, for want of a \
             core: {}.",
            LATENESS_MAX_US / 1000,
            starved.join("; ")
        ));
    }
    Ok(vec![Section {
        title: "End-to-end latency".to_owned(),
        text: vec![
            "From the moment that a record is due at the input to the moment that a `read_committed` reader has it \
             from the output, in milliseconds. The load is open: it never waits for the system, and a record that is \
             handed over late counts from when it was due (no coordinated omission). A fifth of the records are \
             duplicates, and every run's output is counted."
                .to_owned(),
        ],
        tables,
        plots: vec![plot(&data, "p50", |at| at.p50), plot(&data, "p99", |at| at.p99)],
        notes,
    }])
}

fn table(data: &Data, title: &str, at: impl Fn(&Run) -> bool) -> Table {
    let mut rows = Vec::new();
    for who in Who::ALL {
        let told = |of: fn(&Percentiles) -> u64| median(data, who, &at, of).map(milliseconds).unwrap_or_default();
        if let Some(run) = data.runs.iter().find(|run| run.who == who && at(run)) {
            let percentiles: [fn(&Percentiles) -> u64; 5] = [|p| p.p50, |p| p.p90, |p| p.p99, |p| p.p999, |p| p.max];
            let mut row = vec![who.name(), thousands(run.rate)];
            row.extend(percentiles.map(told));
            rows.push(row);
        }
    }
    let head = [title, "records/s", "p50", "p90", "p99", "p99.9", "max"];
    Table { head: head.map(str::to_owned).to_vec(), rows }
}

fn plot(data: &Data, name: &str, of: fn(&Percentiles) -> u64) -> Plot {
    let line = |who: Who| {
        let mut rates: Vec<u64> = data.runs.iter().filter(|run| run.who == who).map(|run| run.rate).collect();
        rates.sort_unstable();
        rates.dedup();
        let point = |rate: u64| Some((rate as f64, median(data, who, |run| run.rate == rate, of)? / 1000.0));
        Line { label: who.name(), points: rates.into_iter().filter_map(point).collect() }
    };
    let lines = Who::ALL.into_iter().map(line).filter(|line| !line.points.is_empty()).collect();
    Plot {
        name: format!("latency-{name}"),
        title: format!("End-to-end latency, {name}"),
        unit: "ms".to_owned(),
        kind: Drawing::Lines { x_label: "records/s".to_owned(), log_x: true, log_y: true, lines },
    }
}

fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let p99 = |who| median(&data, who, at_goal_rate, |at| at.p99);
    let mut goals = Vec::new();
    let Some(ratchet) = p99(Who::RATCHET) else { return Ok(goals) };
    goals.push(Goal {
        what: "latency p99 at 1,000 records/s".to_owned(),
        wanted: "at most 20 ms".to_owned(),
        figure: format!("{} ms", milliseconds(ratchet)),
        met: ratchet <= 20_000.0,
    });
    let peers =
        [(Who::STREAMS, 6.0, "a sixth of Kafka Streams'"), (Who::TUNED, 2.0, "half of Kafka Streams' at 20 ms")];
    for (who, times, wanted) in peers {
        let Some(peer) = p99(who) else { continue };
        goals.push(Goal {
            what: "latency p99 at 1,000 records/s".to_owned(),
            wanted: format!("at most {wanted}"),
            figure: format!("1/{:.1} of {} ms", peer / ratchet, milliseconds(peer)),
            met: ratchet * times <= peer,
        });
    }
    if let Some(half) = median(&data, Who::RATCHET, |run| run.half, |at| at.p99) {
        goals.push(Goal {
            what: "latency p99 at half of the maximum".to_owned(),
            wanted: "under 100 ms".to_owned(),
            figure: format!("{} ms", milliseconds(half)),
            met: half < 100_000.0,
        });
    }
    Ok(goals)
}
