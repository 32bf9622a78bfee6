//! A topology with a gate and the same one without take turns on one input, each time with a Redis of its own.
//!
//! A turn counts only if as many records came out as there are ids where there is a gate, and all of them where there is
//! none: within a partition no id stands twice.

use std::fs;

use super::{Data, Kind, RECORDS, RECORDS_QUICK, Turn, WHO};
use crate::contender::{self, Contender, Running};
use crate::failure::{Context as _, Outcome};
use crate::generate::{self, Generated, PARTITIONS};
use crate::load;
use crate::measure::{self, Sample, Task};
use crate::part::Bench;
use crate::redis::Redis;
use crate::spec::{Spec, Work};
use crate::warm;

/// How many records an input has.
pub fn records(bench: &Bench) -> u64 {
    bench.scaled(if bench.quick { RECORDS_QUICK } else { RECORDS }).next_multiple_of(PARTITIONS as u64)
}

fn input(kind: Kind) -> String {
    format!("in-gate-{}", kind.plain_name())
}

/// Puts record `number` of an input into `record`. Shared ids stand one behind the other, in partitions that are two apart.
fn make(kind: Kind, number: u64, record: &mut Generated) {
    record.key.clear();
    record.value.clear();
    record.fresh = true;
    match kind {
        Kind::New => generate::event(record, number),
        Kind::Shared => {
            let id = number / 2;
            generate::event(record, id);
            record.partition = (id % 2 + 2 * (number % 2)) as i32;
        }
    }
}

/// Measures both topologies by each data path on each input in each round; who is first changes from round to round.
pub fn run(bench: &Bench, data: &mut Data, failures: &mut Vec<String>) -> Outcome<()> {
    let records = records(bench);
    for kind in Kind::ALL {
        let (topic, mut number) = (input(kind), 0);
        bench.progress.say(format!("writing {records} records into {topic}"));
        load::input(&bench.broker, &bench.progress, &topic, records, |record| {
            make(kind, number, record);
            number += 1;
        })?;
    }
    warm::broker(bench, &input(Kind::New), records)?;
    for round in 1..=bench.rounds {
        for kind in Kind::ALL {
            let mut order = WHO.map(|who| [round % 2 == 0, round % 2 == 1].map(|has_gate| (who, has_gate))).concat();
            order.rotate_left(round % WHO.len() * 2);
            for (who, has_gate) in order {
                match turn(bench, round, who, kind, has_gate) {
                    Ok(sample) => data.turns.push(Turn { round, who, kind, has_gate, sample }),
                    Err(failure) => {
                        bench.progress.say(format!("FAILED: {failure}"));
                        failures.push(format!("round {round}, {who}, {}, gate: {has_gate}: {failure}", kind.name()));
                    }
                }
            }
        }
    }
    bench.broker.delete_others(|_| false)
}

/// One turn; everything that it created is removed afterwards.
fn turn(bench: &Bench, round: usize, who: Contender, kind: Kind, has_gate: bool) -> Outcome<Sample> {
    let name = format!("gate-{round}-{who}-{}-{}", kind.plain_name(), if has_gate { "gated" } else { "plain" });
    let spec = who.spec(&bench.broker, &bench.folder, &name, Work::Ids, &input(kind));
    let redis = has_gate.then(|| Redis::start(&[])).transpose()?;
    let records = records(bench);
    let expected = if has_gate && kind == Kind::Shared { records / 2 } else { records };
    let task = Task { from: 0, to: records, expected };
    let label = format!("round {round}: {who}, {}, {} gate", kind.name(), if has_gate { "a" } else { "no" });
    let done = measure::run_beside(bench, &spec, task, &label, redis.as_ref().map(Redis::pid), || {
        start(&spec, redis.as_ref())
    });
    let _ = fs::remove_dir_all(&spec.state_dir);
    let cleared = bench.broker.delete_others(|topic| topic.starts_with("in-"));
    let sample = done?;
    cleared?;
    bench.progress.say(format!(
        "{label}: {:.0} records/s; CPU a record: {:.2} us, of Redis {:.2}, of Kafka {:.2}",
        sample.rate, sample.cpu_us, sample.server_cpu_us, sample.broker_cpu_us
    ));
    Ok(sample)
}

fn start(spec: &Spec, redis: Option<&Redis>) -> Outcome<Running> {
    fs::create_dir_all(&spec.state_dir).context(spec.state_dir.display())?;
    let command = contender::ratchet(spec, |name| topology(name, spec, redis))?;
    Running::start("ratchet", command, spec.state_dir.with_extension("log"))
}

fn topology(name: &str, spec: &Spec, redis: Option<&Redis>) -> String {
    let gate = redis.map(|redis| format!("gate: {{redis: {{url: '{}', retention: 7d}}}}\n", redis.url()));
    format!(
        "name: {name}\ninput: {{topics: [{}], value_format: json}}\nidentity: value.event_id\noutput: {{topic: {}}}\n{}",
        spec.input,
        spec.output,
        gate.unwrap_or_default()
    )
}
