//! Contenders take turns on one input; the order rotates from round to round.

use std::collections::BTreeMap;
use std::fs;

use super::Data;
use crate::contender::Contender;
use crate::failure::Outcome;
use crate::generate::{Generated, Generator, PARTITIONS};
use crate::load::{self, Input};
use crate::measure::{self, Sample, Task};
use crate::part::Bench;
use crate::results::Findings;
use crate::spec::Work;
use crate::warm;

/// Quix gets this fraction of the records: it processes them one at a time, and a full round would take minutes.
const QUIX_PART: u64 = 40;
/// A contender that has failed this often is left out from then on.
const FAILURES_MAX: usize = 2;

/// (a): with UUIDs, and for comparison with numbers that rise.
pub fn ids(bench: &Bench) -> Outcome<Findings> {
    run(bench, Work::Ids, if bench.quick { 1_000_000 } else { 4_000_000 })
}

/// (b)
pub fn versions(bench: &Bench) -> Outcome<Findings> {
    run(bench, Work::Versions, if bench.quick { 1_000_000 } else { 4_000_000 })
}

/// (c)
pub fn envelopes(bench: &Bench) -> Outcome<Findings> {
    run(bench, Work::Envelopes, if bench.quick { 250_000 } else { 1_000_000 })
}

fn run(bench: &Bench, work: Work, records: u64) -> Outcome<Findings> {
    let records = bench.scaled(records);
    let (data, failures) = rounds(bench, work, records, &bench.contenders)?;
    let mut findings = Findings::new(&data)?.setting("records", records).setting("rounds", bench.rounds);
    findings.failures = failures;
    Ok(findings)
}

/// Runs the contenders in turns, in each round with this number of records. Also returns the failures, after which the other
/// contenders continued.
pub fn rounds(bench: &Bench, work: Work, records: u64, contenders: &[Contender]) -> Outcome<(Data, Vec<String>)> {
    let mut inputs = vec![write(bench, work, &format!("in-{work}"), records, &[])?];
    if contenders.contains(&Contender::Quix) {
        inputs.push(write(bench, work, &format!("in-{work}-few"), (records / QUIX_PART).max(1), &[])?);
    }
    warm::broker(bench, &inputs[0].topic, records)?;
    let input_of = |contender: Contender| &inputs[usize::from(contender == Contender::Quix)];
    let mut data = Data::default();
    data.records.extend(contenders.iter().map(|contender| (*contender, input_of(*contender).records)));
    let mut failures: Vec<(Contender, String)> = Vec::new();
    let mut order = contenders.to_vec();
    for number in 1..=bench.rounds {
        let left: Vec<Contender> = order.iter().copied().filter(|who| failed(&failures, *who) < FAILURES_MAX).collect();
        data.rounds.push(round(bench, (work, number), &left, input_of, &mut failures));
        order.rotate_left(1);
    }
    if work == Work::Ids {
        data.numbers = numbers(bench, records, &mut failures)?;
    }
    bench.broker.delete_others(|_| false)?;
    Ok((data, failures.into_iter().map(|(_, words)| words).collect()))
}

/// Ratchet and the floor with numbers that rise for ids, in turns.
fn numbers(
    bench: &Bench,
    records: u64,
    failures: &mut Vec<(Contender, String)>,
) -> Outcome<Vec<BTreeMap<Contender, Sample>>> {
    let mut order = vec![Contender::FloorChangelog, Contender::Ratchet];
    order.retain(|contender| bench.has(*contender));
    if order.is_empty() {
        return Ok(Vec::new());
    }
    let input = write(bench, Work::Numbers, "in-numbers", records, &[])?;
    let mut rounds = Vec::new();
    for number in 1..=bench.rounds {
        rounds.push(round(bench, (Work::Numbers, number), &order, |_| &input, failures));
        order.rotate_left(1);
    }
    Ok(rounds)
}

/// Each contender's turn.
fn round<'a>(
    bench: &Bench,
    (work, number): (Work, usize),
    order: &[Contender],
    input_of: impl Fn(Contender) -> &'a Input,
    failures: &mut Vec<(Contender, String)>,
) -> BTreeMap<Contender, Sample> {
    let mut round = BTreeMap::new();
    for &contender in order {
        match turn(bench, Turn::of_round(contender, work, input_of(contender), number)) {
            Ok(sample) => drop(round.insert(contender, sample)),
            Err(failure) => {
                bench.progress.say(format!("FAILED: {failure}"));
                failures.push((contender, format!("{work}, round {number}: {failure}")));
            }
        }
    }
    round
}

fn failed(failures: &[(Contender, String)], contender: Contender) -> usize {
    failures.iter().filter(|(who, _)| *who == contender).count()
}

/// Writes an input of this work into a topic with these settings.
pub fn write(bench: &Bench, work: Work, topic: &str, records: u64, settings: &[(&str, &str)]) -> Outcome<Input> {
    bench.progress.say(format!("writing {records} records into {topic}"));
    let mut generator = Generator::new(work);
    bench.broker.create(topic, PARTITIONS, settings)?;
    load::append(&bench.broker, &bench.progress, topic, records, |record: &mut Generated| generator.next(record))
}

/// One contender's turn.
pub struct Turn<'a> {
    /// The contender.
    pub contender: Contender,
    /// What there is to decide.
    pub work: Work,
    /// What it reads.
    pub input: &'a Input,
    /// The run's name, which is new on this broker.
    pub name: String,
    /// What is shown.
    pub label: String,
    /// Further settings of ratchet's.
    pub settings: Vec<(String, String)>,
}

impl<'a> Turn<'a> {
    /// A contender's turn in a round of a part.
    pub fn of_round(contender: Contender, work: Work, input: &'a Input, round: usize) -> Self {
        let (name, label) = (format!("{work}-{contender}-{round}"), format!("{work}, round {round}: {contender}"));
        Turn { contender, work, input, name, label, settings: Vec::new() }
    }
}

/// Lets a contender take its turn; everything that it created is removed afterwards.
pub fn turn(bench: &Bench, turn: Turn<'_>) -> Outcome<Sample> {
    let Turn { contender, work, input, name, label, settings } = turn;
    let mut spec = contender.spec(&bench.broker, &bench.folder, &name, work, &input.topic);
    spec.settings.extend(settings);
    let expected = if contender.decides() { input.fresh } else { input.records };
    let task = Task { from: 0, to: input.records, expected };
    let done = measure::run(bench, contender, &spec, task, &label);
    let _ = fs::remove_dir_all(&spec.state_dir);
    let cleared = bench.broker.delete_others(|topic| topic.starts_with("in-"));
    let sample = done?;
    cleared?;
    bench.progress.say(format!(
        "{label}: {:.0} records/s, {:.2} us CPU a record, {:.0} MiB",
        sample.rate, sample.cpu_us, sample.peak_mib
    ));
    Ok(sample)
}

/// One contender's figure divided by another's, for each round in which both have one.
pub fn ratios_of(
    rounds: &[BTreeMap<Contender, Sample>],
    of: Contender,
    to: Contender,
    figure: impl Fn(&Sample) -> f64,
) -> Vec<f64> {
    let ratio = |round: &BTreeMap<Contender, Sample>| Some(figure(round.get(&of)?) / figure(round.get(&to)?));
    rounds.iter().filter_map(ratio).collect()
}
