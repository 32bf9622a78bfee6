//! Into a table of PostgreSQL: ratchet beside Debezium's JDBC sink, and beside a bare loader, which is the limit.
//!
//! All of them drain the same input into a table of the same form, by upserts, on the same Kafka and the same
//! PostgreSQL. [`accounts`] makes the records and says what the table has to hold in the end, [`server`] is the
//! database, [`loader`] and [`jdbc`] are the others, [`turns`] and [`latency`] measure, and [`page`] shows the figures.

pub mod accounts;
mod jdbc;
mod lanes;
mod latency;
mod loader;
mod page;
mod seen;
pub mod server;
mod turns;

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use serde::{Deserialize, Serialize};

use crate::contender::{self, Contender, Running};
use crate::failure::{Context as _, Outcome};
use crate::kafka;
use crate::latency::Percentiles;
use crate::part::{Bench, Part};
use crate::results::Findings;
use crate::spec::Work;
use crate::stats::Spread;

use accounts::Form;
use server::{Database, Server};

pub use loader::LoadArgs;
pub use loader::run as load;

/// The part.
pub const PART: Part = Part {
    name: "postgres",
    about: "into a table of PostgreSQL, beside a bare loader and Debezium's JDBC sink",
    has_built: false,
    run,
    sections: page::sections,
    goals: page::goals,
};

/// Records of a round.
const RECORDS: u64 = 200_000;
const RECORDS_QUICK: u64 = 40_000;
/// The rate at which latency is measured, in records a second.
const RATE: u64 = 1_000;
/// Where ratchet finds the database's address.
const URL: &str = "BENCH_DATABASE_URL";

/// Who writes the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Who {
    /// The bare loader.
    Loader,
    /// ratchet, with the upsert as a statement.
    Ratchet,
    /// ratchet, which writes the upsert itself: `table:`.
    RatchetTable,
    /// ratchet, with the statement and an inbox.
    RatchetInbox,
    /// Debezium's JDBC sink.
    DebeziumJdbc,
}

impl Who {
    /// All of them, in the order of the first round.
    pub const ALL: [Who; 5] = [Who::Loader, Who::Ratchet, Who::RatchetTable, Who::RatchetInbox, Who::DebeziumJdbc];
    /// Those whose latency is measured.
    const LATENCY: [Who; 4] = [Who::Loader, Who::Ratchet, Who::RatchetTable, Who::DebeziumJdbc];

    /// Its name on the page.
    pub fn name(self) -> &'static str {
        match self {
            Who::Loader => "loader",
            Who::Ratchet => "ratchet",
            Who::RatchetTable => "ratchet, `table:`",
            Who::RatchetInbox => "ratchet, `dedup: inbox`",
            Who::DebeziumJdbc => "debezium-jdbc",
        }
    }

    /// Its name in a picture.
    fn label(self) -> &'static str {
        match self {
            Who::RatchetTable => "ratchet, table",
            Who::RatchetInbox => "ratchet, inbox",
            who => who.name(),
        }
    }

    /// Its name in those of topics, groups, databases and folders.
    fn plain_name(self) -> &'static str {
        match self {
            Who::Loader => "loader",
            Who::Ratchet => "ratchet",
            Who::RatchetTable => "table",
            Who::RatchetInbox => "inbox",
            Who::DebeziumJdbc => "jdbc",
        }
    }

    fn is_ratchet(self) -> bool {
        matches!(self, Who::Ratchet | Who::RatchetTable | Who::RatchetInbox)
    }

    /// The form of records that it reads.
    fn form(self) -> Form {
        if self == Who::DebeziumJdbc { Form::WithSchema } else { Form::Plain }
    }
}

/// Figures of one turn.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Sample {
    /// Records a second.
    rate: f64,
    /// Microseconds of CPU a record: the contender's, PostgreSQL's, Kafka's.
    cpu_us: f64,
    database_us: f64,
    broker_us: f64,
    /// The contender's peak resident memory.
    peak_mib: f64,
    /// Of ratchet: what its lanes spent their time with.
    lanes: Option<lanes::Shares>,
}

/// One measurement of latency.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Run {
    who: Who,
    latency: Percentiles,
    /// How late the generator was at its 99th percentile.
    lateness_p99_us: u64,
}

#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Data {
    /// The server, as it names itself.
    server: String,
    rounds: Vec<BTreeMap<Who, Sample>>,
    latency: Vec<Run>,
}

impl Data {
    /// A figure over the rounds.
    fn spread(&self, who: Who, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        Spread::of(self.rounds.iter().filter_map(|round| round.get(&who)).map(figure))
    }

    /// The ratio of two contenders' figures, round by round.
    fn ratio(&self, of: Who, to: Who, figure: impl Fn(&Sample) -> f64) -> Option<Spread> {
        let ratio = |round: &BTreeMap<Who, Sample>| Some(figure(round.get(&of)?) / figure(round.get(&to)?));
        Spread::of(self.rounds.iter().filter_map(ratio))
    }

    /// The median over the rounds of a percentile.
    fn percentile(&self, who: Who, of: impl Fn(&Percentiles) -> u64) -> Option<f64> {
        let runs = self.latency.iter().filter(|run| run.who == who);
        Spread::of(runs.map(|run| of(&run.latency) as f64)).map(|spread| spread.median)
    }
}

fn run(bench: &Bench) -> Outcome<Findings> {
    let records = accounts::rounded(bench.scaled(if bench.quick { RECORDS_QUICK } else { RECORDS }));
    let mut failures = Vec::new();
    let jars = match jdbc::jars() {
        Ok(jars) => Some(jars),
        Err(failure) => {
            bench.progress.say(format!("LEFT OUT: {failure}"));
            failures.push(failure.to_string());
            None
        }
    };
    let place = Place { bench, server: Server::start()?, jars };
    let who: Vec<Who> = Who::ALL.into_iter().filter(|who| place.has(*who)).collect();
    let mut data = Data { server: place.server.version()?, ..Data::default() };
    turns::run(&place, &who, records, &mut data, &mut failures)?;
    latency::run(&place, &mut data, &mut failures);
    let mut findings = Findings::new(&data)?
        .setting("records", records)
        .setting("rounds", bench.rounds)
        .setting("latency", format!("measured for {} s at {RATE}/s", latency::measured_for(bench).as_secs_f64()));
    findings.failures = failures;
    Ok(findings)
}

/// What all turns share.
struct Place<'a> {
    bench: &'a Bench,
    server: Server,
    /// The JDBC sink's; `None` if they cannot be had.
    jars: Option<PathBuf>,
}

impl Place<'_> {
    fn has(&self, who: Who) -> bool {
        who != Who::DebeziumJdbc || self.jars.is_some()
    }
}

/// A contender that writes a database's table.
struct Writer {
    running: Running,
    who: Who,
    /// ratchet's port for metrics, and how many lanes it has.
    metrics: Option<(kafka::Port, usize)>,
    folder: PathBuf,
}

impl Writer {
    /// Starts one under this name, which nobody else has had on this broker.
    fn start(place: &Place<'_>, who: Who, name: &str, input: &str, database: &Database) -> Outcome<Writer> {
        let bench = place.bench;
        let folder = bench.folder.join(name);
        fs::create_dir_all(&folder).context(folder.display())?;
        let mut metrics = None;
        let command = match who {
            Who::Loader => loader::command(bench.broker.bootstrap(), name, input, &database.url)?,
            Who::Ratchet | Who::RatchetTable | Who::RatchetInbox => {
                let port = kafka::Port::free();
                let mut spec = Contender::Ratchet.spec(&bench.broker, &bench.folder, name, Work::Versions, input);
                spec.settings = vec![("http".to_owned(), port.address().to_string())];
                let mut command = contender::ratchet(&spec, |name| topology(who, name, input))?;
                command.env(URL, &database.url);
                metrics = Some((port, spec.threads));
                command
            }
            Who::DebeziumJdbc => {
                let jars = place.jars.as_deref().context("the JDBC sink was left out")?;
                jdbc::command(jars, &folder, bench.broker.bootstrap(), name, input, &database.jdbc_url)?
            }
        };
        let running = Running::start(who.name(), command, folder.with_extension("log"))?;
        Ok(Writer { running, who, metrics, folder })
    }

    /// Ends it. The JDBC sink, whose Java reports a signal as a failure, is killed: its work is looked at before.
    fn stop(mut self) -> Outcome<()> {
        let ended = match self.who {
            Who::DebeziumJdbc => {
                self.running.kill();
                Ok(())
            }
            _ => self.running.stop().map(drop),
        };
        let _ = fs::remove_dir_all(&self.folder);
        ended
    }
}

/// ratchet's topology, which has the database's address from its environment.
fn topology(who: Who, name: &str, input: &str) -> String {
    let columns: Vec<String> = accounts::COLUMNS.iter().map(|column| format!("value.{column}")).collect();
    let statement =
        format!("    statements:\n      - sql: '{}'\n        with: [{}]\n", accounts::upsert(), columns.join(", "));
    let how = match who {
        Who::RatchetTable => format!("    table: {{name: {}, key: [id]}}\n", accounts::TABLE),
        Who::RatchetInbox => format!("{statement}    dedup: inbox\n    inbox: {{name: {name}, retention: 1d}}\n"),
        _ => statement,
    };
    format!(
        "name: {name}\ninput: {{topics: [{input}], key_format: bytes, value_format: json}}\nidentity: value.id\n\
         version: {{of: value.version, as: integer}}\npartitioned_by_identity: true\n\
         sink:\n  postgres:\n    url: ${{env:{URL}}}\n{how}"
    )
}
