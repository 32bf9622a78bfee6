//! An open-loop load: a constant rate that never waits for the system under it.
//!
//! Record n is *due* at the start plus n / rate, and carries that time: a generator that is late, or a broker
//! that makes it wait, lengthens the latencies that are measured and thins out nothing (no coordinated
//! omission). How late records were handed over is kept too, to see whether the harness itself was starved.

use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};

use crate::broker;
use crate::failure::{Context as _, Failure, Outcome, fail};

/// Bytes of a record's value.
const VALUE_BYTES: usize = 160;
/// The shortest sleep between two looks at what is due; what becomes due meanwhile is late by as much.
const NAP_MIN: Duration = Duration::from_micros(200);
/// How long the last records may take to be acknowledged.
const FLUSH_WAIT: Duration = Duration::from_secs(30);
/// From this rate on records wait up to a millisecond for company: a request for each would be the load.
const LINGER_FROM_RATE: u64 = 5_000;

/// The run's clock: microseconds since the harness began, the same for who writes and who reads.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now_us(self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }

    fn sleep_until(self, due_us: u64) {
        let now = self.now_us();
        if now < due_us {
            sleep(Duration::from_micros(due_us - now).max(NAP_MIN));
        }
    }
}

/// What the records are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Every record is new.
    Distinct,
    /// One in five repeats one of the last thousand.
    Repeating,
    /// So many keys come round, each time with the next version: the state does not grow.
    Versions { keys: u64 },
}

/// What to write.
#[derive(Clone, Debug)]
pub struct Load {
    pub brokers: String,
    pub topic: String,
    pub partitions: u64,
    pub rate: u64,
    pub records: Records,
    pub clock: Clock,
}

/// A load that is being written. Dropped, it stops.
pub struct Feed {
    shared: Arc<Shared>,
    thread: Option<JoinHandle<Outcome<()>>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    written: AtomicU64,
    fresh: AtomicU64,
    lateness: Mutex<Option<Histogram<u64>>>,
}

/// What was written.
#[derive(Debug)]
pub struct Fed {
    /// All records.
    pub written: u64,
    /// Those that are to be forwarded.
    pub fresh: u64,
    /// By how many microseconds records were handed over after they were due.
    pub lateness_us: Histogram<u64>,
}

impl Feed {
    pub fn start(load: Load) -> Outcome<Feed> {
        let producer = producer(&load)?;
        let shared = Arc::new(Shared::default());
        let began_us = load.clock.now_us();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || write(&load, &producer, began_us, &theirs));
        Ok(Feed { shared, thread: Some(thread) })
    }

    /// Stops, waits until all is acknowledged, and tells what was written.
    pub fn stop(mut self) -> Outcome<Fed> {
        self.shared.stop.store(true, Ordering::Relaxed);
        let thread = self.thread.take().ok_or_else(died)?;
        thread.join().map_err(|_| died())??;
        let lateness = self.shared.lateness.lock().map_err(|_| died())?.take();
        Ok(Fed {
            written: self.shared.written.load(Ordering::Relaxed),
            fresh: self.shared.fresh.load(Ordering::Relaxed),
            lateness_us: lateness.ok_or_else(died)?,
        })
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.shared.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn died() -> Failure {
    Failure("the load generator died".to_owned())
}

/// Notes what could not be delivered: the counts would be wrong without a reason.
struct Undelivered(AtomicU64);

impl rdkafka::ClientContext for Undelivered {}

impl ProducerContext for Undelivered {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if result.is_err() {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }
}

fn producer(load: &Load) -> Outcome<BaseProducer<Undelivered>> {
    let linger = if load.rate < LINGER_FROM_RATE { "0" } else { "1" };
    broker::client(&load.brokers)
        .set("acks", "all")
        .set("enable.idempotence", "true")
        .set("linger.ms", linger)
        .set("delivery.report.only.error", "true")
        .set("socket.nagle.disable", "true")
        .set("queue.buffering.max.messages", "2000000")
        .create_with_context(Undelivered(AtomicU64::new(0)))
        .context("the load's producer")
}

fn write(load: &Load, producer: &BaseProducer<Undelivered>, began_us: u64, shared: &Shared) -> Outcome<()> {
    let mut lateness = histogram();
    let mut maker = Maker::new(load);
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        let due_us = began_us + number * 1_000_000 / load.rate;
        load.clock.sleep_until(due_us);
        let now_us = load.clock.now_us();
        if now_us < due_us {
            continue;
        }
        maker.make(number, due_us);
        send(load, producer, &maker)?;
        lateness.saturating_record(now_us - due_us);
        number += 1;
        shared.written.store(number, Ordering::Relaxed);
        shared.fresh.store(maker.fresh, Ordering::Relaxed);
        if number % 64 == 0 || load.rate < LINGER_FROM_RATE {
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(FLUSH_WAIT).context("the load was not acknowledged")?;
    let failed = producer.context().0.load(Ordering::Relaxed);
    if failed > 0 {
        fail!("{failed} records of the load were not delivered to {}", load.topic);
    }
    *shared.lateness.lock().map_err(|_| died())? = Some(lateness);
    Ok(())
}

fn send(load: &Load, producer: &BaseProducer<Undelivered>, maker: &Maker) -> Outcome<()> {
    let mut record =
        BaseRecord::to(&load.topic).partition(maker.partition).key(&maker.key[..]).payload(&maker.value[..]);
    loop {
        match producer.send(record) {
            Ok(()) => return Ok(()),
            // The queue holds seconds of load: the broker is far behind, and the waiting counts as latency.
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), back)) => {
                producer.poll(Duration::from_millis(1));
                record = back;
            }
            Err((error, _)) => fail!("the load cannot be written to {}: {error}", load.topic),
        }
    }
}

/// Makes records one by one, without allocating.
struct Maker {
    records: Records,
    partitions: u64,
    fresh: u64,
    partition: i32,
    key: Vec<u8>,
    value: Vec<u8>,
}

impl Maker {
    fn new(load: &Load) -> Maker {
        Maker {
            records: load.records,
            partitions: load.partitions,
            fresh: 0,
            partition: 0,
            key: Vec::with_capacity(16),
            value: Vec::with_capacity(VALUE_BYTES),
        }
    }

    fn make(&mut self, number: u64, due_us: u64) {
        let repeats = self.records == Records::Repeating && number % 5 == 4;
        let id = if repeats { self.fresh.saturating_sub(1 + (number * 7919) % 1000) } else { self.fresh };
        self.fresh += u64::from(!repeats);
        let keys = if let Records::Versions { keys } = self.records { keys } else { 1_000_000 };
        let (account, version) = (id % keys, id / keys);
        self.partition = (account % self.partitions) as i32;
        self.key.clear();
        self.value.clear();
        // Writing to a vector does not fail.
        let _ = write!(self.key, "{account:08}");
        let _ = write!(
            self.value,
            r#"{{"event_id":{id},"account":"{account:08}","version":{version},"due_us":{due_us},"note":""#
        );
        self.value.resize(VALUE_BYTES - 2, b'x');
        self.value.extend_from_slice(b"\"}");
    }
}

/// When the record with this value was due; none where it is not of a load.
pub fn due_us(value: &[u8]) -> Option<u64> {
    const FIELD: &[u8] = b"\"due_us\":";
    let at = value.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    let digits = value[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// Of microseconds, up to an hour, at three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are in order")
}
