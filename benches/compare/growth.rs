//! Growth: ratchet's cost per record with more lanes, more partitions and more entries.

use serde::{Deserialize, Serialize};

use crate::contender::{CONSTANT_BYTES, Contender};
use crate::failure::Outcome;
use crate::live::fill::{Drained, drain, fill, keep_up};
use crate::live::stage::Stage;
use crate::part::{Bench, Goal, Part, Section, Table};
use crate::results::{Findings, Results};
use crate::spec::Work;
use crate::stats::Spread;
use crate::warm;

/// The part.
pub const PART: Part =
    Part { name: "growth", about: "cost by lanes, partitions and entries", has_built: false, run, sections, goals };

const LANES: &[u64] = &[1, 2, 4];
const PARTITIONS: &[u64] = &[4, 64, 256];
const ENTRIES: &[u64] = &[1_000_000, 5_000_000, 10_000_000];
/// How many partitions there are when lanes grow. When something else grows, ratchet has its default number of lanes.
const USUAL_PARTITIONS: i32 = 4;
const RECORDS: u64 = 2_000_000;
const VALUE_BYTES: usize = 160;
/// When entries grow, records are small, so that they take no memory from the stores.
const SMALL_VALUE_BYTES: usize = 32;
/// `memory:` when entries grow.
const MEMORY: &str = "256MiB";
const MEMORY_BYTES: u64 = 256 << 20;

/// What grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Axis {
    Lanes,
    Partitions,
    Entries,
}

impl Axis {
    const ALL: [Axis; 3] = [Axis::Lanes, Axis::Partitions, Axis::Entries];

    fn name(self) -> &'static str {
        match self {
            Axis::Lanes => "lanes",
            Axis::Partitions => "partitions",
            Axis::Entries => "entries",
        }
    }

    /// How much the cost per record may rise along this axis and still count as flat.
    fn flat(self) -> f64 {
        if self == Axis::Partitions { 1.15 } else { 1.25 }
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
struct Cost {
    axis: Axis,
    number: u64,
    drained: Drained,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    costs: Vec<Cost>,
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let (mut data, mut failures) = (Data::default(), Vec::new());
    let mut keep = |what: &str, done: Outcome<()>| {
        if let Err(error) = done {
            bench.progress.say(format!("growth, {what}: {error}"));
            failures.push(format!("{what}: {error}"));
        }
    };
    if bench.has(Contender::Ratchet) {
        keep("lanes", lanes(bench, &mut data.costs));
        for round in 0..bench.rounds {
            keep("partitions", partitions(bench, round, &mut data.costs));
        }
        keep("entries", entries(bench, &mut data.costs));
    }
    let mut findings = Findings::new(&data)?
        .setting("records", bench.scaled(RECORDS))
        .setting("rounds", bench.rounds)
        .setting("memory, by entries", MEMORY);
    findings.failures = failures;
    Ok(findings)
}

/// Records the cost for one number.
fn note(bench: &Bench, costs: &mut Vec<Cost>, axis: Axis, number: u64, drained: Drained) {
    bench.progress.say(format!(
        "{number} {}: {:.0} records/s, CPU {:.2} us and {:.2} us of the broker, {} MiB",
        axis.name(),
        drained.records_per_second,
        drained.cpu_us,
        drained.broker_us,
        drained.peak_bytes >> 20
    ));
    costs.push(Cost { axis, number, drained });
}

fn lanes(bench: &Bench, costs: &mut Vec<Cost>) -> Outcome<()> {
    let records = bench.scaled(RECORDS);
    let first = Stage::set(bench, Contender::Ratchet, Work::Ids, USUAL_PARTITIONS, &[])?;
    fill(bench, &first.spec.input, USUAL_PARTITIONS, 0..records, VALUE_BYTES)?;
    warm::broker(bench, &first.spec.input, records)?;
    for _ in 0..bench.rounds {
        for &lanes in LANES {
            let mut stage = Stage::over(bench, Contender::Ratchet, Work::Ids, USUAL_PARTITIONS, &first.spec.input)?;
            stage.spec.settings.push(("lanes".to_owned(), lanes.to_string()));
            let drained = drain(bench, &stage, 0, records)?;
            stage.check_output(records)?;
            note(bench, costs, Axis::Lanes, lanes, drained);
        }
    }
    Ok(())
}

fn partitions(bench: &Bench, round: usize, costs: &mut Vec<Cost>) -> Outcome<()> {
    let records = bench.scaled(RECORDS);
    // The machine may drift within a round, so every other one runs in reverse order.
    let mut order = PARTITIONS.to_vec();
    if round % 2 == 1 {
        order.reverse();
    }
    for partitions in order {
        let stage = Stage::set(bench, Contender::Ratchet, Work::Ids, partitions as i32, &[])?;
        // Not drained: each task would start and finish its small share at once, one after the other.
        let drained = keep_up(bench, &stage, records, VALUE_BYTES)?;
        stage.check_output(records)?;
        note(bench, costs, Axis::Partitions, partitions, drained);
    }
    Ok(())
}

/// A growing state: each step is a new process, over the store of the step before.
fn entries(bench: &Bench, costs: &mut Vec<Cost>) -> Outcome<()> {
    let mut stage = Stage::set(bench, Contender::Ratchet, Work::Ids, USUAL_PARTITIONS, &[])?;
    stage.spec.settings.push(("memory".to_owned(), MEMORY.to_owned()));
    let mut there = 0;
    for &entries in ENTRIES {
        let entries = bench.scaled(entries);
        fill(bench, &stage.spec.input, USUAL_PARTITIONS, there..entries, SMALL_VALUE_BYTES)?;
        note(bench, costs, Axis::Entries, entries, drain(bench, &stage, there, entries)?);
        there = entries;
    }
    stage.check_output(there)
}

/// The numbers of an axis that have figures, with the medians over the rounds.
fn medians(costs: &[Cost], axis: Axis) -> Vec<Cost> {
    let mut numbers: Vec<u64> = costs.iter().filter(|cost| cost.axis == axis).map(|cost| cost.number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    let median = |number: u64| {
        let of = |field: fn(&Drained) -> f64| {
            let same = costs.iter().filter(|cost| cost.axis == axis && cost.number == number);
            Spread::of(same.map(|cost| field(&cost.drained))).map(|spread| spread.median)
        };
        Some(Cost {
            axis,
            number,
            drained: Drained {
                records_per_second: of(|drained| drained.records_per_second)?,
                cpu_us: of(|drained| drained.cpu_us)?,
                broker_us: of(|drained| drained.broker_us)?,
                peak_bytes: of(|drained| drained.peak_bytes as f64)? as u64,
            },
        })
    };
    numbers.into_iter().filter_map(median).collect()
}

fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let head = |axis: Axis| {
        [axis.name(), "records/s", "CPU per record", "the broker's", "peak memory"].map(str::to_owned).to_vec()
    };
    let row = |cost: &Cost| {
        vec![
            cost.number.to_string(),
            format!("{:.0}", cost.drained.records_per_second),
            format!("{:.2} us", cost.drained.cpu_us),
            format!("{:.2} us", cost.drained.broker_us),
            format!("{} MiB", cost.drained.peak_bytes >> 20),
        ]
    };
    let table = |axis| Table { head: head(axis), rows: medians(&data.costs, axis).iter().map(row).collect() };
    Ok(vec![Section {
        title: "Growth".to_owned(),
        text: vec![format!(
            "What a record costs ratchet, medians over the rounds: by lanes (over {USUAL_PARTITIONS} partitions), by \
             partitions (ready before the records are written, and writing shares the cores), and by the entries in the \
             store (`memory: {MEMORY}`, each size taken by a new process \
             over the store of the one before). All ids are new."
        )],
        tables: Axis::ALL.into_iter().map(table).filter(|table| !table.rows.is_empty()).collect(),
        plots: Vec::new(),
        notes: Vec::new(),
    }])
}

fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let mut goals = Vec::new();
    for axis in [Axis::Lanes, Axis::Partitions] {
        let costs = medians(&data.costs, axis);
        let (Some(first), Some(last)) = (costs.first(), costs.last()) else { continue };
        let worst = costs.iter().map(|cost| cost.drained.cpu_us).fold(0.0, f64::max) / first.drained.cpu_us;
        goals.push(Goal {
            what: format!("cost per record, {} to {} {}", first.number, last.number, axis.name()),
            wanted: format!("flat: at most {} times the first", axis.flat()),
            figure: format!("at most {worst:.2} times {:.2} us", first.drained.cpu_us),
            met: worst <= axis.flat(),
        });
    }
    let entries = medians(&data.costs, Axis::Entries);
    if let Some(most) = entries.iter().map(|cost| cost.drained.peak_bytes).max() {
        let largest = entries.last().map_or(0, |cost| cost.number);
        goals.push(Goal {
            what: format!("memory up to {largest} entries, `memory: {MEMORY}`"),
            wanted: format!("at most `memory:` plus {} MiB", CONSTANT_BYTES >> 20),
            figure: format!("{} MiB", most >> 20),
            met: most <= MEMORY_BYTES + CONSTANT_BYTES,
        });
    }
    Ok(goals)
}
