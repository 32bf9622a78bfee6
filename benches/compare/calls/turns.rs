//! Throughput: contenders take turns on one input, each with a provider of its own; the order rotates from round to
//! round.
//!
//! How far a contender is, a `read_committed` reader of the answers says: the measured time begins when it has a fifth
//! of them, and ends with the last one. A turn counts only if the provider was called once for each record, and each
//! answer is there once.

use std::time::{Duration, Instant};

use super::provider::Provider;
use super::{Caller, Data, PROVIDERS, RECORDS_QUICK, Sample, Transactions, Turn, Who, orders};
use crate::failure::{Context as _, Outcome, fail};
use crate::generate::PARTITIONS;
use crate::live::pace::Clock;
use crate::live::reader::{Arrival, Reading};
use crate::load;
use crate::metrics::Metrics;
use crate::part::Bench;
use crate::usage::Usage;

/// How often the reader is asked how far it is.
const LOOK: Duration = Duration::from_millis(5);
/// A contender of whom nothing new is visible for this long has stalled.
const STALL: Duration = Duration::from_secs(60);
/// So many turns are for warming up Kafka's broker.
const WARM_UP_TURNS: usize = 3;
/// This part of the work is for warming up.
const WARM_UP: u64 = 5;

/// The input's name.
fn input(latency_ms: u64) -> String {
    format!("in-calls-{latency_ms}")
}

/// How many records a turn has with a provider of this latency.
pub fn records(bench: &Bench, latency_ms: u64) -> u64 {
    let of = PROVIDERS.into_iter().find(|(of, _)| *of == latency_ms).map_or(0, |(_, records)| records);
    bench.scaled(if bench.quick { RECORDS_QUICK } else { of })
}

/// Measures everybody in each round, with each provider.
pub fn run(bench: &Bench, data: &mut Data, failures: &mut Vec<String>) -> Outcome<()> {
    for (latency_ms, _) in PROVIDERS {
        let (topic, records, mut next) = (input(latency_ms), records(bench, latency_ms), 0);
        bench.progress.say(format!("writing {records} records into {topic}"));
        load::input(&bench.broker, &bench.progress, &topic, records, |record| {
            orders::make(next, record);
            next += 1;
        })?;
    }
    // Kafka's broker compiles its own code while it works.
    bench.progress.say("warming up");
    for number in 1..=WARM_UP_TURNS {
        turn(bench, &format!("warm-up-{number}"), PROVIDERS[0].0, Who::Ratchet)?;
    }
    let mut order = Who::ALL;
    for round in 1..=bench.rounds {
        for (latency_ms, _) in PROVIDERS {
            for who in order {
                match turn(bench, &format!("round-{round}"), latency_ms, who) {
                    Ok(sample) => data.turns.push(Turn { round, latency_ms, who, sample }),
                    Err(failure) => {
                        bench.progress.say(format!("FAILED: {failure}"));
                        failures.push(format!("round {round}, {latency_ms} ms: {failure}"));
                    }
                }
            }
        }
        order.rotate_left(1);
    }
    bench.broker.delete_others(|_| false)
}

/// One contender's turn; everything that it created is removed afterwards.
fn turn(bench: &Bench, which: &str, latency_ms: u64, who: Who) -> Outcome<Sample> {
    let name = format!("calls-{which}-{latency_ms}-{}", who.plain_name());
    let output = format!("{name}-out");
    bench.broker.create(&output, PARTITIONS, &[])?;
    let provider = Provider::start(&bench.folder, &name, latency_ms)?;
    let mut caller = Caller::start(bench, who, &name, (&input(latency_ms), &output), &provider)?;
    let all = records(bench, latency_ms);
    let watched = watch(bench, &mut caller, &provider, (&output, all), who);
    let stopped = caller.stop();
    let called = provider.check(all);
    let counted = bench.broker.committed_records(&output);
    let cleared = bench.broker.delete_others(|topic| topic.starts_with("in-"));
    let sample = watched?;
    stopped?;
    called.context(who.name())?;
    cleared?;
    let counted = counted?;
    if counted != all {
        fail!("{} has left {counted} answers to {all} calls", who.name());
    }
    bench.progress.say(format!(
        "{which}, {latency_ms} ms: {}: {:.0} calls/s; CPU a call: {:.1} us, of the provider {:.1}, of Kafka {:.1}{}",
        who.name(),
        sample.rate,
        sample.cpu_us,
        sample.provider_us,
        sample.broker_us,
        sample.transactions.map_or_else(String::new, |of| of.to_string())
    ));
    Ok(sample)
}

/// All figures at an instant.
struct Mark {
    at: Instant,
    seen: u64,
    own: Usage,
    provider: Usage,
    broker: Usage,
    metrics: Option<Metrics>,
}

impl Mark {
    fn now(bench: &Bench, caller: &Caller, provider: &Provider, seen: u64) -> Outcome<Mark> {
        let at = Instant::now();
        let broker = Usage::of(bench.broker.pid());
        let (own, provider) = (caller.running.usage(), provider.usage());
        Ok(Mark { at, seen, own, provider, broker, metrics: caller.metrics()? })
    }
}

fn watch(
    bench: &Bench,
    caller: &mut Caller,
    provider: &Provider,
    (output, all): (&str, u64),
    who: Who,
) -> Outcome<Sample> {
    let reading =
        Reading::start(bench.broker.bootstrap(), output, PARTITIONS as usize, Clock::start(), |_: Arrival| {})?;
    let mut step = bench.progress.step(who.name(), all);
    let (mut began, mut last, mut moved): (Option<Mark>, _, _) = (None, 0, Instant::now());
    loop {
        caller.running.check()?;
        let seen = reading.seen();
        step.at(seen);
        if seen > last {
            (last, moved) = (seen, Instant::now());
        } else if moved.elapsed() > STALL {
            return Err(caller.running.failure(&format!("answered nothing for {STALL:?}, {seen} of {all} are there")));
        }
        if seen >= all {
            break;
        }
        if began.is_none() && seen >= all / WARM_UP {
            began = Some(Mark::now(bench, caller, provider, seen)?);
        }
        std::thread::sleep(LOOK);
    }
    let end = Mark::now(bench, caller, provider, last)?;
    let Some(start) = began else { fail!("all was visible at once: too few records to measure") };
    reading.stop()?;
    Ok(between(&start, &end))
}

fn between(start: &Mark, end: &Mark) -> Sample {
    let calls = (end.seen - start.seen) as f64;
    let micros = |from: &Usage, to: &Usage| to.cpu_since(from).as_secs_f64() * 1e6 / calls;
    let metrics = start.metrics.as_ref().zip(end.metrics.as_ref());
    let transactions = metrics.map(|(from, to)| Transactions::between(from, to, calls));
    Sample {
        rate: calls / (end.at - start.at).as_secs_f64(),
        cpu_us: micros(&start.own, &end.own),
        provider_us: micros(&start.provider, &end.provider),
        broker_us: micros(&start.broker, &end.broker),
        peak_mib: end.own.peak_bytes as f64 / f64::from(1 << 20),
        transactions,
    }
}
