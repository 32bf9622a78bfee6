//! Latency: from when a record is due at the input to when a `read_committed` reader has its answer, at a constant rate
//! that never waits for the contender.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::provider::{Figures, Provider};
use super::{Caller, Data, PROVIDERS, RATE, Run, Transactions, Who};
use crate::failure::{Failure, Outcome, fail};
use crate::generate::PARTITIONS;
use crate::latency::Percentiles;
use crate::live::pace::{Clock, Feed, Load, Records, histogram};
use crate::live::reader::{Arrival, Reading};
use crate::live::within;
use crate::part::Bench;

/// Enough for ten thousand records, so that a hundred are beyond the 99th percentile.
const MEASURE: Duration = Duration::from_secs(10);
const MEASURE_QUICK: Duration = Duration::from_secs(3);
/// Load before the measured time, once nothing of the start is left, to warm up caches and connections.
const WARM_UP: Duration = Duration::from_secs(3);
/// How long a start may take, until nothing of what was written meanwhile is left; and how long the last answer.
const START_WAIT: Duration = Duration::from_secs(60);
const END_WAIT: Duration = Duration::from_secs(30);
/// A contender has caught up once an answer is visible to a record that was due this long ago.
const CAUGHT_UP: Duration = Duration::from_millis(500);
/// How often that is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// How long latency is measured.
pub fn measured_for(bench: &Bench) -> Duration {
    if bench.quick { MEASURE_QUICK } else { MEASURE.mul_f64(bench.scale.clamp(0.2, 1.0)) }
}

/// Measures everybody, in each round, with each provider.
pub fn run(bench: &Bench, data: &mut Data, failures: &mut Vec<String>) {
    for round in 1..=bench.rounds {
        for (latency_ms, _) in PROVIDERS {
            for who in Who::ALL {
                let name = format!("latency-{round}-{latency_ms}-{}", who.plain_name());
                match measure(bench, who, &name, latency_ms) {
                    Ok(run) => {
                        let told = |of: &Percentiles| [of.p50, of.p99, of.max].map(|us| us as f64 / 1000.0);
                        bench.progress.say(format!(
                            "{latency_ms} ms: latency of {}: p50, p99, max {:.1?} ms; the provider's {:.1?}{}",
                            who.name(),
                            told(&run.latency),
                            told(&run.provider),
                            run.transactions.map_or_else(String::new, |of| of.to_string())
                        ));
                        data.latency.push(run);
                    }
                    Err(failure) => {
                        let failure = format!("{latency_ms} ms: latency of {}: {failure}", who.name());
                        bench.progress.say(&failure);
                        failures.push(failure);
                    }
                }
                if let Err(failure) = bench.broker.delete_others(|_| false) {
                    failures.push(format!("clearing up: {failure}"));
                }
            }
        }
    }
}

fn measure(bench: &Bench, who: Who, name: &str, latency_ms: u64) -> Outcome<Run> {
    let (input, output) = (format!("in-{name}"), format!("{name}-out"));
    bench.broker.create(&input, PARTITIONS, &[])?;
    bench.broker.create(&output, PARTITIONS, &[])?;
    let provider = Provider::start(&bench.folder, name, latency_ms)?;
    let clock = Clock::start();
    let (latency, window) = (Arc::new(Mutex::new(histogram())), Arc::new(Mutex::new(0..0)));
    let newest_us = Arc::new(AtomicU64::new(0));
    let (theirs, between, newest) = (Arc::clone(&latency), Arc::clone(&window), Arc::clone(&newest_us));
    let sink = move |arrival: Arrival| {
        newest.fetch_max(arrival.due_us, Ordering::Relaxed);
        if let (Ok(mut latency), Ok(window)) = (theirs.lock(), between.lock())
            && window.contains(&arrival.due_us)
        {
            latency.saturating_record(arrival.at_us.saturating_sub(arrival.due_us));
        }
    };
    let reading = Reading::start(bench.broker.bootstrap(), &output, PARTITIONS as usize, clock, sink)?;
    let mut caller = Caller::start(bench, who, name, (&input, &output), &provider)?;
    let feed = Feed::start(Load {
        brokers: bench.broker.bootstrap().to_owned(),
        topic: input,
        partitions: PARTITIONS as u64,
        rate: RATE,
        records: Records::Orders,
        clock,
    })?;
    let behind_us = CAUGHT_UP.as_micros() as u64;
    within(START_WAIT, LOOK, "the contender to catch up", || {
        caller.running.check()?;
        let newest_us = newest_us.load(Ordering::Relaxed);
        Ok((newest_us > 0 && clock.now_us() < newest_us + behind_us).then_some(()))
    })?;
    std::thread::sleep(WARM_UP);
    provider.figures()?;
    let before = caller.metrics()?;
    let (from, length) = (clock.now_us(), measured_for(bench));
    *window.lock().map_err(poisoned)? = from..from + length.as_micros() as u64;
    let until = Instant::now() + length;
    while Instant::now() < until {
        caller.running.check()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let Figures { took_us: of_provider, .. } = provider.figures()?;
    let calls = RATE as f64 * length.as_secs_f64();
    let transactions =
        before.as_ref().zip(caller.metrics()?.as_ref()).map(|(from, to)| Transactions::between(from, to, calls));
    let fed = feed.stop()?;
    reading.await_seen(fed.written, END_WAIT, || caller.running.check())?;
    caller.stop()?;
    provider.check(fed.written)?;
    let seen = reading.stop()?;
    if seen != fed.written {
        fail!("left {seen} answers, not {}", fed.written);
    }
    let latency = Percentiles::of(&*latency.lock().map_err(poisoned)?);
    let lateness_p99_us = fed.lateness_us.value_at_quantile(0.99);
    Ok(Run { latency_ms, who, latency, provider: of_provider, transactions, lateness_p99_us })
}

fn poisoned<T>(_: T) -> Failure {
    Failure("the reader died".to_owned())
}
