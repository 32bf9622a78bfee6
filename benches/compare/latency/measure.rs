//! One run: a contender, or none, under a constant rate.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;

use super::{GOAL_RATE, PARTITIONS, Who};
use crate::collector::Pauses;
use crate::contender::Contender;
use crate::failure::{Failure, Outcome, fail};
use crate::live::pace::{Clock, Fed, Feed, Load, Records, histogram};
use crate::live::reader::{Arrival, Reading};
use crate::live::stage::Stage;
use crate::part::Bench;
use crate::spec::Work;

/// Enough for ten thousand records, so that ten are beyond the highest percentile. Longer at lower rates.
const MEASURE: Duration = Duration::from_secs(10);
const MEASURE_SLOW: Duration = Duration::from_secs(15);
const MEASURE_QUICK: Duration = Duration::from_secs(3);
/// Load before the measured time, to warm up caches, connections and Java's compiler.
const WARM_UP: Duration = Duration::from_secs(5);
const JAVA_WARM_UP: Duration = Duration::from_secs(10);
/// The end of the warm-up, between asking for the broker's pauses, which takes a core for a moment, and measuring.
const SETTLING: Duration = Duration::from_secs(1);
/// How long a start may take, and how long the last record may be in flight.
const START_WAIT: Duration = Duration::from_secs(90);
const END_WAIT: Duration = Duration::from_secs(30);

/// How long a run at this rate is measured.
pub fn measured_for(bench: &Bench, rate: u64) -> Duration {
    let whole = if rate < GOAL_RATE { MEASURE_SLOW } else { MEASURE };
    if bench.quick { MEASURE_QUICK } else { whole.mul_f64(bench.scale.clamp(0.2, 1.0)) }
}

fn warm_up(bench: &Bench, who: Who) -> Duration {
    match who.contender {
        Some(Contender::KafkaStreams) if !bench.quick => JAVA_WARM_UP,
        _ => WARM_UP,
    }
}

/// What was seen of one run.
pub struct Measured {
    /// Those of the records that were due in the measured time, in microseconds.
    pub latency: Histogram<u64>,
    /// What was written.
    pub fed: Fed,
    /// Those of the broker's collector, from [`SETTLING`] before the measured time until all records were in.
    pub broker_pauses: Pauses,
}

/// Runs a contender under a constant rate.
pub fn measure(bench: &Bench, who: Who, rate: u64) -> Outcome<Measured> {
    // Without a contender, the stage is just the two topics.
    let mut stage = Stage::set(bench, who.contender.unwrap_or(Contender::Floor), Work::Ids, PARTITIONS, &[])?;
    stage.spec.commit_ms = who.commit_ms;
    let clock = Clock::start();
    let (latency, window) = (Arc::new(Mutex::new(histogram())), Arc::new(Mutex::new(0..0)));
    let (theirs, between) = (Arc::clone(&latency), Arc::clone(&window));
    let sink = move |arrival: Arrival| {
        if let (Ok(mut latency), Ok(window)) = (theirs.lock(), between.lock())
            && window.contains(&arrival.due_us)
        {
            latency.saturating_record(arrival.at_us.saturating_sub(arrival.due_us));
        }
    };
    let topic = if who.contender.is_some() { &stage.spec.output } else { &stage.spec.input };
    let reading = Reading::start(bench.broker.bootstrap(), topic, PARTITIONS as usize, clock, sink)?;
    let mut live = who.contender.map(|_| stage.start()).transpose()?;
    // Records that pile up during a start must not count as latency; the others do not report when they are ready, and
    // start at once.
    if let (Some(live), Some(Contender::Ratchet | Contender::KafkaStreams)) = (&mut live, who.contender) {
        live.await_ready(PARTITIONS, START_WAIT)?;
    }
    let feed = Feed::start(Load {
        brokers: bench.broker.bootstrap().to_owned(),
        topic: stage.spec.input.clone(),
        partitions: PARTITIONS as u64,
        rate,
        records: Records::Repeating,
        clock,
    })?;
    let mut well = || live.as_mut().map_or(Ok(()), |live| live.running.check());
    reading.await_seen(1, START_WAIT, &mut well)?;
    std::thread::sleep(warm_up(bench, who) - SETTLING);
    let before = Pauses::of(bench.broker.pid())?;
    std::thread::sleep(SETTLING);
    let from = clock.now_us();
    let length = measured_for(bench, rate);
    *window.lock().map_err(poisoned)? = from..from + length.as_micros() as u64;
    let until = Instant::now() + length;
    while Instant::now() < until {
        well()?;
        std::thread::sleep(Duration::from_millis(50));
    }
    let fed = feed.stop()?;
    let decides = who.contender.is_some_and(Contender::decides);
    let expected = if decides { fed.fresh } else { fed.written };
    reading.await_seen(expected, END_WAIT, &mut well)?;
    // Only now, since to ask takes a core for a moment.
    let broker_pauses = Pauses::of(bench.broker.pid())?.since(&before);
    if let Some(mut live) = live {
        live.running.stop()?;
    }
    let seen = reading.stop()?;
    if seen != expected {
        fail!("gave {seen} records, not {expected}");
    }
    let latency = latency.lock().map_err(poisoned)?.clone();
    Ok(Measured { latency, fed, broker_pauses })
}

fn poisoned<T>(_: T) -> Failure {
    Failure("the reader died".to_owned())
}
