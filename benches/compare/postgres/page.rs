//! The part's section of the page, and its goals.

use super::accounts::{self, VALUE_BYTES};
use super::server::SETTINGS;
use super::{Data, Sample, Who, jdbc, loader};
use crate::failure::Outcome;
use crate::figures::{milliseconds, one, thousands, two, with_range};
use crate::latency::Percentiles;
use crate::part::{Bar, Drawing, Goal, Plot, Section, Table};
use crate::results::Results;
use crate::stats::Spread;

/// The least of the loader's rate, and of the JDBC sink's.
const OF_LOADER: f64 = 0.6;
const OF_JDBC: f64 = 3.0;
/// The most at the 99th percentile, in microseconds.
const P99_MAX: f64 = 30_000.0;

pub fn sections(results: &Results) -> Outcome<Vec<Section>> {
    let data: Data = results.data()?;
    let mut section = Section { title: "Into PostgreSQL".to_owned(), text: text(&data), ..Section::default() };
    section.tables =
        [Some(figures(&data)), ratios(&data), lanes(&data), latency(&data)].into_iter().flatten().collect();
    section.plots.push(plot(&data));
    section.notes = notes();
    Ok(vec![section])
}

fn text(data: &Data) -> Vec<String> {
    let settings = SETTINGS.map(|setting| format!("`{setting}`")).join(", ");
    vec![
        format!(
            "The same input into a table of {}, {} columns with a primary key, by upserts: every record is a whole row \
             of {VALUE_BYTES} bytes of JSON, of an id drawn at random among half as many accounts (43 in a hundred \
             insert, the others update), and none is repeated, so that everybody has the same to do. Kafka as above; {}, on the same machine, with {settings}, and what makes a \
             commit durable as PostgreSQL has it by itself (`fsync`, `synchronous_commit`, `full_page_writes` on), \
             reached by TCP without TLS. Each turn has a database of its own.",
            accounts::TABLE,
            accounts::COLUMNS.len(),
            data.server
        ),
        "How far a contender is, the harness sees in the table itself, through rows that each hundredth part of a \
         partition ends with: from a fifth of them to the last. A turn counts only if the table then holds what the \
         model says."
            .to_owned(),
    ]
}

/// A column: its head, a sample's figure, and its format.
type Column = (&'static str, fn(&Sample) -> f64, fn(f64) -> String);

const COLUMNS: &[Column] = &[
    ("rows/s", |s| s.rate, thousands),
    ("CPU, us a record", |s| s.cpu_us, one),
    ("PostgreSQL's CPU, us", |s| s.database_us, one),
    ("broker's CPU, us", |s| s.broker_us, one),
    ("peak memory, MiB", |s| s.peak_mib, thousands),
];

fn figures(data: &Data) -> Table {
    let mut table = Table { head: vec!["contender".to_owned()], ..Table::default() };
    table.head.extend(COLUMNS.iter().map(|(head, _, _)| (*head).to_owned()));
    for who in Who::ALL {
        let cell = |(_, figure, write): &Column| data.spread(who, figure).map(|spread| with_range(spread, *write));
        let cells: Vec<String> = COLUMNS.iter().filter_map(cell).collect();
        let failed = || vec!["failed".to_owned(); COLUMNS.len()];
        table.rows.push([vec![who.name().to_owned()], if cells.is_empty() { failed() } else { cells }].concat());
    }
    table
}

fn ratios(data: &Data) -> Option<Table> {
    let head = ["one by the other", "rows/s", "CPU a record", "PostgreSQL's CPU"].map(str::to_owned).to_vec();
    let row = |of: Who, to: Who| {
        let ratio = |figure: fn(&Sample) -> f64| Some(with_range(data.ratio(of, to, figure)?, two));
        let name = format!("{} by {}", of.name(), to.name());
        Some(vec![name, ratio(|s| s.rate)?, ratio(|s| s.cpu_us)?, ratio(|s| s.database_us)?])
    };
    let pairs = [Who::RatchetTable, Who::Ratchet].into_iter().flat_map(|of| Who::ALL.map(|to| (of, to)));
    let is_told = |(of, to): &(Who, Who)| of != to && (*of, *to) != (Who::Ratchet, Who::RatchetTable);
    let rows: Vec<_> = pairs.filter(is_told).filter_map(|(of, to)| row(of, to)).collect();
    (!rows.is_empty()).then_some(Table { head, rows })
}

/// What ratchet's time is made of.
fn lanes(data: &Data) -> Option<Table> {
    let head = [
        "what ratchet's lanes spend their time with",
        "the database",
        "Kafka's commit",
        "records",
        "reading and the rest",
        "records in a transaction",
    ];
    let row = |who: Who| {
        let median = |figure: fn(&super::lanes::Shares) -> f64| {
            let samples = data.rounds.iter().filter_map(|round| round.get(&who)?.lanes.as_ref());
            Spread::of(samples.map(figure)).map(|spread| spread.median)
        };
        let percent = |share: f64| format!("{:.0} %", share * 100.0);
        Some(vec![
            who.name().to_owned(),
            percent(median(|of| of.database)?),
            percent(median(|of| of.kafka)?),
            percent(median(|of| of.work)?),
            percent(median(|of| of.rest)?),
            thousands(median(|of| of.records)?),
        ])
    };
    let rows: Vec<_> = Who::ALL.into_iter().filter(|who| who.is_ratchet()).filter_map(row).collect();
    (!rows.is_empty()).then(|| Table { head: head.map(str::to_owned).to_vec(), rows })
}

fn latency(data: &Data) -> Option<Table> {
    let head = ["1,000 records/s, ms to the visible row", "p50", "p90", "p99", "p99.9", "max"];
    let row = |who: Who| {
        let percentiles: [fn(&Percentiles) -> u64; 5] = [|p| p.p50, |p| p.p90, |p| p.p99, |p| p.p999, |p| p.max];
        let told: Option<Vec<String>> =
            percentiles.map(|of| data.percentile(who, of).map(milliseconds)).into_iter().collect();
        Some([vec![who.name().to_owned()], told?].concat())
    };
    let rows: Vec<_> = Who::LATENCY.into_iter().filter_map(row).collect();
    (!rows.is_empty()).then(|| Table { head: head.map(str::to_owned).to_vec(), rows })
}

fn plot(data: &Data) -> Plot {
    let bar = |who: Who| {
        let Spread { median, low, high } = data.spread(who, |sample| sample.rate)?;
        Some(Bar { label: who.label().to_owned(), value: median, low, high })
    };
    Plot {
        name: "postgres-rate".to_owned(),
        title: "postgres: rows/s".to_owned(),
        unit: "rows/s".to_owned(),
        kind: Drawing::Bars(Who::ALL.into_iter().filter_map(bar).collect()),
    }
}

fn notes() -> Vec<String> {
    let (jvm, tuned) = (jdbc::JVM.join(" "), jdbc::TUNED.map(|(name, value)| format!("`{name}={value}`")).join(", "));
    vec![
        format!(
            "`loader` is the limit: {} threads, each with a connection, that take what there is, send up to {} upserts \
             one behind the other without waiting, commit, and then commit the offsets. It recognises nothing, keeps \
             nothing of its own, and repeats what was not committed in Kafka after a crash.",
            loader::THREADS,
            loader::BATCH
        ),
        "`ratchet` carries out the same statement; with `table:` it writes the upsert itself, one for up to \
         256 rows of different keys, which takes a column's value from JSON by the column's type; with `dedup: inbox` a row for each account \
         comes on top. Besides, it has its own store and changelog, its rows in the database with what it owes Kafka, \
         and a Kafka transaction for each one of the database; up to 4,096 records are in one."
            .to_owned(),
        format!(
            "`debezium-jdbc` is Debezium's JDBC sink {} on Kafka Connect, standalone, `{jvm}`, upserts, with {tuned} and \
             `{}` in the database's address, the rest as it comes. Its records have the schema in every value, as \
             Connect's JSON converter wants them ({} bytes); their keys have none. It is at least once.",
            jdbc::version(),
            jdbc::URL_SETTINGS.trim_start_matches('?'),
            with_schema_bytes()
        ),
        "Latency is from when a record is due at the input until a reader of the table sees its row. The reader asks \
         again a millisecond after each answer, which is in all of these figures, and takes its share of the cores. The \
         load is open: it waits for nobody."
            .to_owned(),
    ]
}

fn with_schema_bytes() -> usize {
    let mut value = Vec::new();
    accounts::Account { id: 1, version: 1, due_us: 1 }.write(accounts::Form::WithSchema, &mut value);
    value.len()
}

pub fn goals(results: &Results) -> Outcome<Vec<Goal>> {
    let data: Data = results.data()?;
    let mut goals = Vec::new();
    let rates = [
        (Who::Loader, OF_LOADER, "at least 0.6 of a bare loader"),
        (Who::DebeziumJdbc, OF_JDBC, "at least 3 times debezium-jdbc"),
    ];
    for (of, name) in [(Who::RatchetTable, "postgres, `table:`"), (Who::Ratchet, "postgres")] {
        for (to, least, wanted) in rates {
            let Some(ratio) = data.ratio(of, to, |sample| sample.rate) else { continue };
            let (what, wanted) = (format!("throughput, {name}"), wanted.to_owned());
            goals.push(Goal { what, wanted, figure: with_range(ratio, two), met: ratio.median >= least });
        }
        if let Some(p99) = data.percentile(of, |at| at.p99) {
            goals.push(Goal {
                what: format!("latency p99 at 1,000 records/s, {name}"),
                wanted: "at most 30 ms".to_owned(),
                figure: format!("{} ms", milliseconds(p99)),
                met: p99 <= P99_MAX,
            });
        }
    }
    Ok(goals)
}
