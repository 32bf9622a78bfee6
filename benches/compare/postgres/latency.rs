//! Latency: from when a record is due at the input to when its row is seen in the table, at a constant rate that never
//! waits for the contender.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::seen::Seeing;
use super::{Data, Place, RATE, Run, Who, Writer, accounts};
use crate::failure::{Failure, Outcome, fail};
use crate::generate::PARTITIONS;
use crate::latency::Percentiles;
use crate::live::pace::{Clock, Fed, Feed, Load, Records, histogram};
use crate::part::Bench;

/// Enough for ten thousand records, so that a hundred are beyond the 99th percentile.
const MEASURE: Duration = Duration::from_secs(10);
const MEASURE_QUICK: Duration = Duration::from_secs(3);
/// Load before the measured time, once nothing of the start is left, to warm up caches, connections and Java's compiler.
const WARM_UP: Duration = Duration::from_secs(5);
const JAVA_WARM_UP: Duration = Duration::from_secs(10);
/// How long a start may take, until nothing of what was written meanwhile is left; and how long the last row.
const START_WAIT: Duration = Duration::from_secs(90);
const END_WAIT: Duration = Duration::from_secs(30);
/// A contender has caught up once a record is visible that was due this long ago.
const CAUGHT_UP: Duration = Duration::from_millis(500);

/// How long latency is measured.
pub fn measured_for(bench: &Bench) -> Duration {
    if bench.quick { MEASURE_QUICK } else { MEASURE.mul_f64(bench.scale.clamp(0.2, 1.0)) }
}

/// Measures everybody who takes part in it, in each round.
pub fn run(place: &Place<'_>, data: &mut Data, failures: &mut Vec<String>) {
    for round in 1..=place.bench.rounds {
        for who in Who::LATENCY.into_iter().filter(|who| place.has(*who)) {
            let name = format!("latency-{round}-{}", who.plain_name());
            match measure(place, who, &name) {
                Ok((latency, fed)) => {
                    let latency = Percentiles::of(&latency);
                    let told = [latency.p50, latency.p99, latency.max].map(|us| us as f64 / 1000.0);
                    place.bench.progress.say(format!("latency of {}: p50, p99, max {told:.1?} ms", who.name()));
                    let lateness_p99_us = fed.lateness_us.value_at_quantile(0.99);
                    data.latency.push(Run { who, latency, lateness_p99_us });
                }
                Err(failure) => {
                    let failure = format!("latency of {}: {failure}", who.name());
                    place.bench.progress.say(&failure);
                    failures.push(failure);
                }
            }
            if let Err(failure) = place.bench.broker.delete_others(|_| false) {
                failures.push(format!("clearing up: {failure}"));
            }
        }
    }
}

fn measure(place: &Place<'_>, who: Who, name: &str) -> Outcome<(Histogram<u64>, Fed)> {
    let bench = place.bench;
    let input = format!("in-{name}");
    bench.broker.create(&input, PARTITIONS, &[])?;
    let database = place.server.database(name, accounts::CREATE)?;
    let clock = Clock::start();
    let (latency, window) = (Arc::new(Mutex::new(histogram())), Arc::new(Mutex::new(0..0)));
    let (theirs, between) = (Arc::clone(&latency), Arc::clone(&window));
    let seeing = Seeing::start(&database.url, clock, move |due_us, at_us| {
        if let (Ok(mut latency), Ok(window)) = (theirs.lock(), between.lock())
            && window.contains(&due_us)
        {
            latency.saturating_record(at_us.saturating_sub(due_us));
        }
    })?;
    let mut writer = Writer::start(place, who, name, &input, &database)?;
    let feed = Feed::start(Load {
        brokers: bench.broker.bootstrap().to_owned(),
        topic: input.clone(),
        partitions: PARTITIONS as u64,
        rate: RATE,
        records: Records::Accounts(who.form()),
        clock,
    })?;
    let mut well = || writer.running.check();
    let behind = CAUGHT_UP.as_micros() as u64;
    let has_caught_up = |seeing: &Seeing| seeing.seen() > 0 && clock.now_us() < seeing.newest_due_us() + behind;
    seeing.wait("the contender to catch up", START_WAIT, &mut well, has_caught_up)?;
    let is_java = who == Who::DebeziumJdbc && !bench.quick;
    std::thread::sleep(if is_java { JAVA_WARM_UP } else { WARM_UP });
    let (from, length) = (clock.now_us(), measured_for(bench));
    *window.lock().map_err(poisoned)? = from..from + length.as_micros() as u64;
    let until = Instant::now() + length;
    while Instant::now() < until {
        well()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let fed = feed.stop()?;
    seeing.wait("the last row", END_WAIT, &mut well, |seeing| seeing.seen() >= fed.written)?;
    let seen = seeing.stop()?;
    writer.stop()?;
    if seen != fed.written {
        fail!("wrote {seen} rows, not {}", fed.written);
    }
    let latency = latency.lock().map_err(poisoned)?.clone();
    Ok((latency, fed))
}

fn poisoned<T>(_: T) -> Failure {
    Failure("the reader died".to_owned())
}
