//! (d): each contender with a store builds one with many entries, once; then, in turns, each reads further events, half
//! of which it knows. The contender restarts for each round with its existing state, so that every round finds
//! equally cold caches.

use std::collections::BTreeMap;
use std::fs;
use std::time::{Duration, Instant};

use super::Data;
use crate::contender::Contender;
use crate::failure::Outcome;
use crate::generate::{Generator, PARTITIONS, behind};
use crate::load::{self, Input};
use crate::measure::{self, Sample, Task};
use crate::part::Bench;
use crate::results::Findings;
use crate::spec::{Spec, Work};
use crate::warm;

const ENTRIES: u64 = 50_000_000;
const EVENTS: u64 = 2_000_000;
const INPUT: &str = "in-large";
/// How long a contender gets to settle: at least this, as it is starting, and at most [`SETTLE_MAX`].
const SETTLE_MIN: Duration = Duration::from_secs(10);
const SETTLE_MAX: Duration = Duration::from_secs(120);
/// A contender has settled when it uses less than [`IDLE_SHARE`] of a core for this long.
const SETTLE_LOOK: Duration = Duration::from_secs(3);
const IDLE_SHARE: f64 = 0.1;

pub fn run(bench: &Bench) -> Outcome<Findings> {
    let (known, events) = (bench.scaled(if bench.quick { 2_000_000 } else { ENTRIES }), bench.scaled(EVENTS));
    bench.progress.say(format!("writing {known} records into {INPUT}"));
    let mut generator = Generator::new(Work::Large);
    load::input(&bench.broker, &bench.progress, INPUT, known, |record| generator.next(record))?;
    warm::broker(bench, INPUT, known)?;
    let mut data = Data { entries: known, ..Data::default() };
    let mut failures = Vec::new();
    let mut able: Vec<(Contender, Spec)> = Vec::new();
    for &contender in bench.contenders.iter().filter(|contender| takes_part(**contender)) {
        let spec = contender.spec(&bench.broker, &bench.folder, &format!("large-{contender}"), Work::Large, INPUT);
        match build(bench, contender, &spec, known) {
            Ok(sample) => {
                data.built.extend(sample.map(|sample| (contender, sample)));
                data.records.insert(contender, events);
                able.push((contender, spec));
            }
            Err(failure) => {
                bench.progress.say(format!("FAILED: {failure}"));
                failures.push(format!("building the state: {failure}"));
                let _ = fs::remove_dir_all(&spec.state_dir);
            }
        }
    }
    for number in 1..=bench.rounds {
        let events = Round { number, known, events, new: known + (number as u64 - 1) * events };
        let input = events.append(bench)?;
        let mut round = BTreeMap::new();
        let mut broken = Vec::new();
        for (contender, spec) in &able {
            match events.turn(bench, *contender, spec, &input) {
                Ok(sample) => drop(round.insert(*contender, sample)),
                Err(failure) => {
                    bench.progress.say(format!("FAILED: {failure}"));
                    failures.push(format!("round {number}: {failure}"));
                    // Its state is not what the next round expects.
                    broken.push(*contender);
                }
            }
        }
        data.rounds.push(round);
        able.retain(|(contender, _)| !broken.contains(contender));
        if !able.is_empty() {
            able.rotate_left(1);
        }
    }
    for contender in &bench.contenders {
        let _ = fs::remove_dir_all(bench.folder.join(format!("large-{contender}")));
    }
    bench.broker.delete_others(|_| false)?;
    let mut findings =
        Findings::new(&data)?.setting("entries", known).setting("records", events).setting("rounds", bench.rounds);
    findings.failures = failures;
    Ok(findings)
}

/// The contenders with a state; and `floor-changelog`, which has none, for comparison.
fn takes_part(contender: Contender) -> bool {
    matches!(contender, Contender::FloorChangelog | Contender::Ratchet | Contender::KafkaStreams)
}

/// Builds the state, if the contender has one, and deletes the output.
fn build(bench: &Bench, contender: Contender, spec: &Spec, known: u64) -> Outcome<Option<Sample>> {
    if !contender.decides() {
        // It starts after the entries that the others know.
        let watch = bench.broker.watch(&spec.group, INPUT, PARTITIONS)?;
        watch.set(&bench.broker.ends(INPUT)?)?;
        return Ok(None);
    }
    let task = Task { from: 0, to: known, expected: known };
    let label = format!("large: {contender} builds its state");
    let sample = measure::run(bench, contender, spec, task, &label)?;
    bench.progress.say(format!("{label}: {:.0} records/s, {:.0} MiB", sample.rate, sample.peak_mib));
    settle(bench, contender, spec)?;
    bench.broker.delete(&[&spec.output])?;
    Ok(Some(sample))
}

/// Lets the contender finish the background work that fast building has left: a state of this size has usually grown
/// slowly, and each restart would start that work again.
fn settle(bench: &Bench, contender: Contender, spec: &Spec) -> Outcome<()> {
    let mut running = contender.start(spec)?;
    let began = Instant::now();
    let mut busy = true;
    while busy && began.elapsed() < SETTLE_MAX {
        let before = running.usage();
        std::thread::sleep(SETTLE_LOOK);
        running.check()?;
        busy = running.usage().cpu_since(&before) > SETTLE_LOOK.mul_f64(IDLE_SHARE) || began.elapsed() < SETTLE_MIN;
    }
    running.stop()?;
    let took = began.elapsed().as_secs();
    bench.progress.say(format!("large: {contender} has settled after {took} s"));
    Ok(())
}

struct Round {
    number: usize,
    known: u64,
    events: u64,
    new: u64,
}

impl Round {
    fn append(&self, bench: &Bench) -> Outcome<Input> {
        let mut number = 0;
        load::append(&bench.broker, &bench.progress, INPUT, self.events, |record| {
            behind(self.known, self.new, number, record);
            number += 1;
        })
    }

    fn turn(&self, bench: &Bench, contender: Contender, spec: &Spec, input: &Input) -> Outcome<Sample> {
        let from = self.known + (self.number as u64 - 1) * self.events;
        let expected = if contender.decides() { input.fresh } else { self.events };
        let task = Task { from, to: from + self.events, expected };
        let label = format!("large, round {}: {contender}", self.number);
        let sample = measure::run(bench, contender, spec, task, &label)?;
        bench.broker.delete(&[&spec.output, &spec.changelog])?;
        bench.progress.say(format!(
            "{label}: {:.0} records/s, {:.2} us CPU a record, {:.0} MiB",
            sample.rate, sample.cpu_us, sample.peak_mib
        ));
        Ok(sample)
    }
}
