//! The part's section of the page, and its goal.

use super::driver::{PORTIONS, Run};
use super::{Data, Kind, WHO};
use crate::contender::Contender;
use crate::failure::Outcome;
use crate::figures::{thousands, two, with_range};
use crate::measure::Sample;
use crate::part::{Goal, Section, Table};
use crate::results::Results;
use crate::stats::Spread;

/// The least number of records a second.
const RATE_MIN: f64 = 200_000.0;

pub fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let tables = [Some(figures(&data)), ratios(&data), Some(driver(&data))];
    Ok(vec![Section {
        title: "A gate".to_owned(),
        text: text(&data),
        tables: tables.into_iter().flatten().collect(),
        plots: Vec::new(),
        notes: notes(),
    }])
}

fn text(data: &Data) -> Vec<String> {
    vec![
        format!(
            "A topology with `gate: {{redis: ...}}` ([docs](redis.md#a-gate)), beside the same one without: events of 160 \
             bytes by their id from 4 partitions to a topic, none of which its partition has seen before, so that Redis is \
             asked about each. Either all are new, or each id stands in two partitions, and the gate drops one of the two. \
             {}, without persistence, on the same machine; each turn has a server of its own.",
            data.server
        ),
        "A turn counts only if exactly one record of each id came out; without a gate, if all came out.".to_owned(),
    ]
}

/// A column: its head, a sample's figure, and its format.
type Column = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);

const COLUMNS: &[Column] = &[
    ("records/s", |s| s.rate, thousands),
    ("CPU, us a record", |s| s.cpu_us, two),
    ("Redis's CPU, us", |s| s.server_cpu_us, two),
    ("broker's CPU, us", |s| s.broker_cpu_us, two),
    ("peak memory, MiB", |s| s.peak_mib, thousands),
];

fn pairs() -> impl Iterator<Item = (Kind, Contender)> {
    Kind::ALL.into_iter().flat_map(|kind| WHO.map(|who| (kind, who)))
}

fn figures(data: &Data) -> Table {
    let mut table = Table { head: vec!["records, topology".to_owned()], ..Table::default() };
    table.head.extend(COLUMNS.iter().map(|(head, _, _)| (*head).to_owned()));
    for (kind, who) in pairs() {
        for has_gate in [false, true] {
            let cell = |(_, figure, write): &Column| {
                let spread = data.spread(who, kind, has_gate, figure);
                spread.map_or("failed".to_owned(), |spread| with_range(spread, *write))
            };
            let name = format!("{}, {who}, {} gate", kind.name(), if has_gate { "a" } else { "no" });
            table.rows.push([vec![name], COLUMNS.iter().map(cell).collect()].concat());
        }
    }
    table
}

fn ratios(data: &Data) -> Option<Table> {
    let head = ["a gate by none", "records/s", "CPU a record", "broker's CPU"].map(str::to_owned).to_vec();
    let row = |(kind, who): (Kind, Contender)| {
        let ratio = |figure: fn(&Sample) -> f64| Some(with_range(data.ratio(who, kind, figure)?, two));
        Some(vec![
            format!("{}, {who}", kind.name()),
            ratio(|s| s.rate)?,
            ratio(|s| s.cpu_us)?,
            ratio(|s| s.broker_cpu_us)?,
        ])
    };
    let rows: Vec<_> = pairs().filter_map(row).collect();
    (!rows.is_empty()).then_some(Table { head, rows })
}

fn driver(data: &Data) -> Table {
    let head = ["the driver alone, asked about", "records/s", "CPU, us a record", "Redis's CPU, us"];
    let row = |portion: i64| {
        let figure = |figure: fn(&Run) -> f64, write: fn(f64) -> String| {
            let runs = data.driver.iter().filter(|run| run.portion == portion);
            Spread::of(runs.map(figure)).map_or("failed".to_owned(), |spread| with_range(spread, write))
        };
        let name = if portion == 1 { "1 record at once".to_owned() } else { format!("{portion} records at once") };
        vec![name, figure(|run| run.rate, thousands), figure(|run| run.own_us, two), figure(|run| run.server_us, two)]
    };
    Table { head: head.map(str::to_owned).to_vec(), rows: PORTIONS.into_iter().map(row).collect() }
}

fn notes() -> Vec<String> {
    vec![
        "The driver alone is the program's own way to Redis, called by one thread over one connection, without Kafka: the \
         most that one lane can ask about. Each portion comes again from another partition, so that half are known."
            .to_owned(),
    ]
}

pub fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let goal = |who: Contender| {
        let rate = data.spread(who, Kind::New, true, |sample| sample.rate)?;
        Some(Goal {
            what: format!("records/s through a gate in Redis, all new, {who}"),
            wanted: "at least 200,000".to_owned(),
            figure: with_range(rate, thousands),
            met: rate.median >= RATE_MIN,
        })
    };
    Ok(WHO.into_iter().filter_map(goal).collect())
}
