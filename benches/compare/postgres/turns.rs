//! Throughput: contenders take turns on one input; the order rotates from round to round.
//!
//! Each has a database of its own, which is gone afterwards. How far it is the harness sees in the table, by the marks:
//! the measured time begins when a fifth of them is visible, and ends with the last one. A turn counts only if the table
//! then holds what the model says.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::accounts::{self, Accounts, Form, MARKS, MARKS_SEEN, TOTALS, Totals};
use super::server::Database;
use super::{Data, Place, Sample, Who, Writer, lanes};
use crate::failure::{Outcome, fail};
use crate::generate::PARTITIONS;
use crate::load;
use crate::usage::Usage;

/// How often the table is looked at.
const LOOK: Duration = Duration::from_millis(10);
/// A contender of whom nothing new is visible for this long has stalled.
const STALL: Duration = Duration::from_secs(90);
/// This part of the work is for warming up: caches, and just-in-time compilers.
const WARM_UP: i64 = 5;
/// A contender that has failed this often is left out from then on.
const FAILURES_MAX: usize = 2;

/// An input in one of its forms.
struct Input {
    topic: String,
    records: u64,
    totals: Totals,
}

/// Measures everybody in each round. The topics of the inputs stay until the end.
pub fn run(place: &Place<'_>, who: &[Who], records: u64, data: &mut Data, failures: &mut Vec<String>) -> Outcome<()> {
    let bench = place.bench;
    let plain = fill(place, "in-postgres", records, Form::Plain)?;
    let with_schema = fill(place, "in-postgres-schema", records, Form::WithSchema)?;
    let input = |who: Who| if who.form() == Form::Plain { &plain } else { &with_schema };
    // Kafka's broker compiles its own code while it works, and PostgreSQL makes the files of its log.
    bench.progress.say("warming up");
    turn(place, Who::Ratchet, input(Who::Ratchet), 0)?;
    let (mut order, mut failed) = (who.to_vec(), Vec::new());
    for number in 1..=bench.rounds {
        let mut round = BTreeMap::new();
        for &who in &order {
            if failed.iter().filter(|of| **of == who).count() >= FAILURES_MAX {
                continue;
            }
            match turn(place, who, input(who), number) {
                Ok(sample) => drop(round.insert(who, sample)),
                Err(failure) => {
                    bench.progress.say(format!("FAILED: {failure}"));
                    failures.push(format!("round {number}: {failure}"));
                    failed.push(who);
                }
            }
        }
        data.rounds.push(round);
        order.rotate_left(1);
    }
    bench.broker.delete_others(|_| false)
}

fn fill(place: &Place<'_>, topic: &str, records: u64, form: Form) -> Outcome<Input> {
    let bench = place.bench;
    bench.progress.say(format!("writing {records} records into {topic}"));
    let mut accounts = Accounts::new(records, form);
    load::input(&bench.broker, &bench.progress, topic, records, |record| accounts.next(record))?;
    Ok(Input { topic: topic.to_owned(), records, totals: accounts.totals() })
}

/// One contender's turn; everything that it created is removed afterwards.
fn turn(place: &Place<'_>, who: Who, input: &Input, round: usize) -> Outcome<Sample> {
    let bench = place.bench;
    let name = format!("turn-{round}-{}", who.plain_name());
    let database = place.server.database(&name, accounts::CREATE)?;
    let mut writer = Writer::start(place, who, &name, &input.topic, &database)?;
    let watched = watch(place, &mut writer, &database, input);
    let stopped = writer.stop();
    drop(database);
    let cleared = bench.broker.delete_others(|topic| topic.starts_with("in-"));
    let sample = watched?;
    stopped?;
    cleared?;
    bench.progress.say(format!(
        "round {round}: {}: {:.0} records/s; CPU a record: {:.1} us, of PostgreSQL {:.1}, of Kafka {:.1}",
        who.name(),
        sample.rate,
        sample.cpu_us,
        sample.database_us,
        sample.broker_us
    ));
    Ok(sample)
}

/// All figures at an instant.
struct Mark {
    at: Instant,
    marks: i64,
    own: Usage,
    database: Usage,
    broker: Usage,
    lanes: Option<lanes::Look>,
}

impl Mark {
    fn now(place: &Place<'_>, writer: &Writer, marks: i64) -> Outcome<Mark> {
        let at = Instant::now();
        let lanes = writer.metrics.as_ref().map(|(port, _)| lanes::Look::at(port.address())).transpose()?;
        let broker = Usage::of(place.bench.broker.pid());
        Ok(Mark { at, marks, own: writer.running.usage(), database: place.server.usage(), broker, lanes })
    }
}

fn watch(place: &Place<'_>, writer: &mut Writer, database: &Database, input: &Input) -> Outcome<Sample> {
    let all = MARKS as i64 * i64::from(PARTITIONS);
    let mut step = place.bench.progress.step(writer.who.name(), all as u64);
    let (mut began, mut last, mut moved): (Option<Mark>, _, _) = (None, 0, Instant::now());
    loop {
        writer.running.check()?;
        let marks = database.session().number(MARKS_SEEN)?;
        step.at(marks as u64);
        if marks > last {
            (last, moved) = (marks, Instant::now());
        } else if moved.elapsed() > STALL {
            return Err(writer
                .running
                .failure(&format!("wrote nothing for {STALL:?}, {marks} of {all} marks are there")));
        }
        if marks == all {
            break;
        }
        if began.is_none() && marks >= all / WARM_UP {
            began = Some(Mark::now(place, writer, marks)?);
        }
        std::thread::sleep(LOOK);
    }
    let end = Mark::now(place, writer, last)?;
    let Some(start) = began else { fail!("all was visible at once: too few records to measure") };
    let session = database.session();
    let row = session.wait(session.client().query_one(TOTALS, &[]))?;
    let found: Totals = [row.try_get(0)?, row.try_get(1)?, row.try_get(2)?];
    if found != input.totals {
        let right = input.totals;
        return Err(writer.running.failure(&format!("left {found:?} (rows, versions, balances), {right:?} is right")));
    }
    Ok(between(&start, &end, writer, input.records * (end.marks - start.marks) as u64 / all as u64))
}

fn between(start: &Mark, end: &Mark, writer: &Writer, records: u64) -> Sample {
    let micros = |from: &Usage, to: &Usage| to.cpu_since(from).as_secs_f64() * 1e6 / records as f64;
    let lanes = writer.metrics.as_ref().zip(start.lanes.as_ref().zip(end.lanes.as_ref()));
    Sample {
        rate: records as f64 / (end.at - start.at).as_secs_f64(),
        cpu_us: micros(&start.own, &end.own),
        database_us: micros(&start.database, &end.database),
        broker_us: micros(&start.broker, &end.broker),
        peak_mib: end.own.peak_bytes as f64 / f64::from(1 << 20),
        lanes: lanes.map(|((_, lanes), (from, to))| from.until(to, *lanes, records)),
    }
}
