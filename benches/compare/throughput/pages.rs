//! The throughput parts' sections of the page.

use super::Data;
use crate::contender::{CONSTANT_BYTES, Contender, MEMORY, MEMORY_BYTES};
use crate::failure::Outcome;
use crate::figures::{one, thousands, two, with_range};
use crate::measure::Sample;
use crate::part::{Bar, Drawing, Goal, Plot, Section, Table};
use crate::results::Results;
use crate::stats::Spread;

use Contender::{FloorChangelog, KafkaStreams, Limit, Ratchet, RatchetLibrdkafka};

/// A column: its head, a sample's figure, and its format.
type Column = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);

/// What rows say that are for comparison.
const NUMBERS: &str = "ids that rise";

const COLUMNS: &[Column] = &[
    ("records/s", |s| s.rate, thousands),
    ("CPU, us a record", |s| s.cpu_us, two),
    ("broker's CPU, us", |s| s.broker_cpu_us, two),
    ("peak memory, MiB", |s| s.peak_mib, whole),
    ("bytes to disk a record", |s| s.disk_bytes, whole),
    ("bytes to Kafka a record", |s| s.kafka_bytes, whole),
    ("s to first commit", |s| s.start_seconds, one),
];

pub fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let part = crate::part::ALL.iter().find(|part| part.name == results.part);
    let about = part.map_or("", |part| part.about);
    let mut section = Section { title: format!("Throughput {about}"), ..Section::default() };
    section.tables.push(figures(&data));
    section.tables.extend(ratios(&data));
    if !data.built.is_empty() {
        section.text.push(format!("The state first: {} entries.", thousands(data.entries as f64)));
        section.tables.insert(0, built(&data));
    }
    let few = data.records.values().max().copied().unwrap_or(0);
    for (contender, records) in data.records.iter().filter(|(_, records)| **records < few) {
        section.notes.push(format!("{contender} read only {} records of the same kind.", thousands(*records as f64)));
    }
    section.plots.push(plot(&results.part, "rate", "records/s", &data, |s| s.rate));
    section.plots.push(plot(&results.part, "cpu", "us of CPU a record, without the broker's", &data, |s| s.cpu_us));
    Ok(vec![section])
}

/// A row for each contender.
pub fn figures(data: &Data) -> Table {
    let mut table = Table::default();
    table.head.push("contender".to_owned());
    table.head.extend(COLUMNS.iter().map(|(head, _, _)| (*head).to_owned()));
    for contender in Contender::ALL {
        let cell =
            |(_, figure, write): &Column| data.spread(contender, figure).map(|spread| with_range(spread, *write));
        let cells: Vec<String> = COLUMNS.iter().filter_map(cell).collect();
        if cells.len() == COLUMNS.len() {
            table.rows.push([vec![contender.to_string()], cells].concat());
        } else if data.records.contains_key(&contender) {
            table.rows.push([vec![contender.to_string()], vec!["failed".to_owned(); COLUMNS.len()]].concat());
        }
    }
    for contender in Contender::ALL {
        let cell = |(_, figure, write): &Column| {
            data.spread_of_numbers(contender, figure).map(|spread| with_range(spread, *write))
        };
        let cells: Vec<String> = COLUMNS.iter().filter_map(cell).collect();
        if cells.len() == COLUMNS.len() {
            table.rows.push([vec![format!("{contender}, {NUMBERS}")], cells].concat());
        }
    }
    table
}

/// The ratios of ratchet's figures to those of each other contender; `None` without another contender.
pub fn ratios(data: &Data) -> Option<Table> {
    let mut table = Table { head: ["", "records/s", "CPU a record"].map(str::to_owned).to_vec(), rows: vec![] };
    let others =
        |of: Contender| Contender::ALL.into_iter().filter(move |other| *other != of).map(move |other| (of, other));
    // Each pair once.
    let pairs = others(Ratchet).chain(others(RatchetLibrdkafka).filter(|(_, other)| *other != Ratchet));
    for (of, other) in pairs {
        let (rate, cpu) = (data.ratio(of, other, |s| s.rate), data.ratio(of, other, |s| s.cpu_us));
        if let (Some(rate), Some(cpu)) = (rate, cpu) {
            table.rows.push(vec![format!("{of} by {other}"), with_range(rate, two), with_range(cpu, two)]);
        }
    }
    let ratio =
        |figure: fn(&Sample) -> f64| Spread::of(super::ratios_of(&data.numbers, Ratchet, FloorChangelog, figure));
    if let (Some(rate), Some(cpu)) = (ratio(|s: &Sample| s.rate), ratio(|s: &Sample| s.cpu_us)) {
        table.rows.push(vec![
            format!("{Ratchet} by {FloorChangelog}, {NUMBERS}"),
            with_range(rate, two),
            with_range(cpu, two),
        ]);
    }
    (!table.rows.is_empty()).then_some(table)
}

fn built(data: &Data) -> Table {
    let head = ["building the state", "records/s", "CPU, us a record", "peak memory, MiB", "bytes to disk a record"];
    let row = |(contender, sample): (&Contender, &Sample)| {
        let Sample { rate, cpu_us, peak_mib, disk_bytes, .. } = *sample;
        vec![contender.to_string(), thousands(rate), two(cpu_us), whole(peak_mib), whole(disk_bytes)]
    };
    Table { head: head.map(str::to_owned).to_vec(), rows: data.built.iter().map(row).collect() }
}

fn plot(part: &str, what: &str, unit: &str, data: &Data, figure: impl Fn(&Sample) -> f64) -> Plot {
    let bar = |contender: Contender| {
        let Spread { median, low, high } = data.spread(contender, &figure)?;
        Some(Bar { label: contender.to_string(), value: median, low, high })
    };
    Plot {
        name: format!("{part}-{what}"),
        title: format!("{part}: {unit}"),
        unit: unit.to_owned(),
        kind: Drawing::Bars(Contender::ALL.into_iter().filter_map(bar).collect()),
    }
}

/// (a) to (c).
pub fn goals_by_turns(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let part = &results.part;
    let mut goals = Vec::new();
    let mut goal = |what: &str, wanted: &str, ratio: Option<Spread>, met: fn(f64) -> bool| {
        if let Some(ratio) = ratio {
            let (what, wanted) = (format!("{what}, {part}"), wanted.to_owned());
            goals.push(Goal { what, wanted, figure: with_range(ratio, two), met: met(ratio.median) });
        }
    };
    let rate = |to| data.ratio(Ratchet, to, |s: &Sample| s.rate);
    let cpu = |to| data.ratio(Ratchet, to, |s: &Sample| s.cpu_us);
    if part == "envelopes" {
        goal("throughput", "at least 0.9 of floor-changelog", rate(FloorChangelog), |ratio| ratio >= 0.9);
        return Ok(goals);
    }
    goal("throughput", "at least 0.6 of limit", rate(Limit), |ratio| ratio >= 0.6);
    goal("throughput", "at least 1.0 of floor-changelog", rate(FloorChangelog), |ratio| ratio >= 1.0);
    goal("throughput", "at least 4 times kafka-streams", rate(KafkaStreams), |ratio| ratio >= 4.0);
    match part.as_str() {
        "ids" => goal("CPU a record", "at most 1.4 times floor-changelog", cpu(FloorChangelog), |ratio| ratio <= 1.4),
        _ => goal("CPU a record", "at most 1.5 times floor-changelog", cpu(FloorChangelog), |ratio| ratio <= 1.5),
    }
    goal("CPU a record", "at most a fifth of kafka-streams", cpu(KafkaStreams), |ratio| ratio <= 0.2);
    Ok(goals)
}

/// (d), which is compared with (a) on the same machine.
pub fn goals_large(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let entries = thousands(data.entries as f64);
    let mut goals = Vec::new();
    let ids: Data = match Results::read("ids")?.filter(|ids| ids.machine == results.machine) {
        Some(ids) => ids.data()?,
        None => Data::default(),
    };
    if let (Some(large), Some(small)) = (data.spread(Ratchet, |s| s.rate), ids.spread(Ratchet, |s| s.rate)) {
        let ratio = large.median / small.median;
        let what = format!("throughput, {entries} entries in the store");
        let wanted = "at least 0.6 of that of part ids".to_owned();
        goals.push(Goal { what, wanted, figure: two(ratio), met: ratio >= 0.6 });
    }
    if let Some(ratio) = data.ratio(Ratchet, KafkaStreams, |s| s.rate) {
        let what = format!("throughput, {entries} entries in the store");
        let wanted = "at least 3 times kafka-streams".to_owned();
        goals.push(Goal { what, wanted, figure: with_range(ratio, two), met: ratio.median >= 3.0 });
    }
    let rounds = data.rounds.iter().filter_map(|round| round.get(&Ratchet));
    let peaks = data.built.get(&Ratchet).into_iter().chain(rounds).map(|sample| sample.peak_mib);
    if let Some(most) = peaks.reduce(f64::max) {
        goals.push(Goal {
            what: format!("memory with {entries} entries, `memory: {MEMORY}`"),
            wanted: format!("at most `memory:` plus {} MiB", CONSTANT_BYTES >> 20),
            figure: format!("{} MiB", whole(most)),
            met: most <= (MEMORY_BYTES + CONSTANT_BYTES) as f64 / f64::from(1 << 20),
        });
    }
    Ok(goals)
}

fn whole(number: f64) -> String {
    thousands(number)
}
