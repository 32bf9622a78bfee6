//! An open-loop load: a constant rate that never waits for the system under it.
//!
//! Record n is *due* at the start plus n / rate, and carries that time: a late generator, or a broker that
//! makes it wait, lengthens the measured latencies and leaves out no record (no coordinated
//! omission). How late records were produced is kept too, to see whether the harness itself was starved.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::{JoinHandle, sleep};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use rdkafka::bindings as rd;

use crate::calls::orders::Order;
use crate::failure::{Context as _, Failure, Outcome};
use crate::native::producer::{Producer, Target, record};
use crate::postgres::accounts::{Account, Form};

/// Bytes of an event's key and of its value.
const KEY_BYTES: usize = 8;
const VALUE_BYTES: usize = 160;
/// Maximum number of records produced in one call.
const BATCH: usize = 1_000;
/// The shortest sleep before the next due records; those that become due meanwhile are late by up to this time.
const NAP_MIN: Duration = Duration::from_micros(200);
/// From this rate on records linger up to a millisecond, to avoid a request for each.
const LINGER_FROM_RATE: u64 = 5_000;

/// The run's clock: microseconds since the harness started, shared by writer and reader.
#[derive(Clone, Copy, Debug)]
pub struct Clock(Instant);

impl Clock {
    pub fn start() -> Clock {
        Clock(Instant::now())
    }

    pub fn now_us(self) -> u64 {
        self.0.elapsed().as_micros() as u64
    }

    /// Sleeps until then, or a little longer.
    pub fn sleep_until(self, due_us: u64) {
        let now = self.now_us();
        if now < due_us {
            sleep(Duration::from_micros(due_us - now).max(NAP_MIN));
        }
    }
}

/// The kind of records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Records {
    /// Every record is new.
    Distinct,
    /// One in five repeats one of the last thousand.
    Repeating,
    /// These keys are written in turn, each time with the next version, so the state does not grow.
    Versions { keys: u64 },
    /// Every record is a new row of a table.
    Accounts(Form),
    /// Every record is a new call.
    Orders,
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

/// A running load. Dropping this stops it.
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
    /// Records that have to be forwarded.
    pub fresh: u64,
    /// How many microseconds after they were due records were produced.
    pub lateness_us: Histogram<u64>,
}

impl Feed {
    pub fn start(load: Load) -> Outcome<Feed> {
        let producer = producer(&load)?;
        let shared = Arc::new(Shared::default());
        let began_us = load.clock.now_us();
        let theirs = Arc::clone(&shared);
        let thread = std::thread::spawn(move || write(&load, producer, began_us, &theirs));
        Ok(Feed { shared, thread: Some(thread) })
    }

    /// Stops, waits until everything is acknowledged, and returns what was written.
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

fn producer(load: &Load) -> Outcome<Producer> {
    let properties = [
        ("bootstrap.servers", &*load.brokers),
        ("log_level", "3"),
        ("acks", "all"),
        ("enable.idempotence", "true"),
        ("linger.ms", if load.rate < LINGER_FROM_RATE { "0" } else { "1" }),
        ("delivery.report.only.error", "true"),
        ("socket.nagle.disable", "true"),
        // Seconds of load: if the queue is full, the broker is far behind, and the waiting counts as latency.
        ("queue.buffering.max.messages", "2000000"),
    ];
    Producer::open(&properties).context("the load's producer")
}

fn write(load: &Load, mut producer: Producer, began_us: u64, shared: &Shared) -> Outcome<()> {
    let topic = producer.topic(&load.topic)?;
    let due_at = |number: u64| began_us + number * 1_000_000 / load.rate;
    let (mut lateness, mut maker, mut batch) = (histogram(), Maker::new(load), Vec::with_capacity(BATCH));
    let mut number = 0;
    while !shared.stop.load(Ordering::Relaxed) {
        load.clock.sleep_until(due_at(number));
        let now_us = load.clock.now_us();
        maker.clear();
        while due_at(number) <= now_us && maker.made() < BATCH {
            maker.make(number, due_at(number));
            lateness.saturating_record(now_us - due_at(number));
            number += 1;
        }
        maker.records(&mut batch);
        // SAFETY: the maker's bytes live until they are cleared.
        unsafe { producer.send(topic, Target::Own, &mut batch) }.context(format_args!("the load of {}", load.topic))?;
        producer.check().context(format_args!("the load of {}", load.topic))?;
        shared.written.store(number, Ordering::Relaxed);
        shared.fresh.store(maker.fresh, Ordering::Relaxed);
    }
    producer.flush().context(format_args!("the load of {}", load.topic))?;
    *shared.lateness.lock().map_err(|_| died())? = Some(lateness);
    Ok(())
}

/// Makes records in one buffer, to leave the cores to the contender.
struct Maker {
    records: Records,
    partitions: u64,
    /// Records so far that do not repeat one.
    fresh: u64,
    /// The partitions of the records since the last clearing.
    targets: Vec<i32>,
    /// Their keys and values, one behind the other.
    bytes: Vec<u8>,
    /// Where each record's key and value end.
    ends: Vec<(usize, usize)>,
}

impl Maker {
    fn new(load: &Load) -> Maker {
        Maker {
            records: load.records,
            partitions: load.partitions,
            fresh: 0,
            targets: Vec::with_capacity(BATCH),
            bytes: Vec::with_capacity(BATCH * (KEY_BYTES + VALUE_BYTES)),
            ends: Vec::with_capacity(BATCH),
        }
    }

    fn clear(&mut self) {
        self.targets.clear();
        self.bytes.clear();
        self.ends.clear();
    }

    fn made(&self) -> usize {
        self.targets.len()
    }

    fn make(&mut self, number: u64, due_us: u64) {
        let key = match self.records {
            Records::Accounts(form) => self.account(number, due_us, form),
            Records::Orders => self.order(number, due_us),
            Records::Distinct | Records::Repeating | Records::Versions { .. } => self.event(number, due_us),
        };
        self.ends.push((key, self.bytes.len()));
    }

    /// Adds an account's first row; returns where its key ends.
    fn account(&mut self, number: u64, due_us: u64, form: Form) -> usize {
        self.fresh += 1;
        self.targets.push((number % self.partitions) as i32);
        digits(&mut self.bytes, number, 1);
        let key = self.bytes.len();
        Account { id: number as i64, version: 1, due_us }.write(form, &mut self.bytes);
        key
    }

    /// Adds an order; returns where its key ends.
    fn order(&mut self, number: u64, due_us: u64) -> usize {
        self.fresh += 1;
        self.targets.push((number % self.partitions) as i32);
        digits(&mut self.bytes, number, 1);
        let key = self.bytes.len();
        Order::new(number, due_us).write(&mut self.bytes);
        key
    }

    /// Adds an event; returns where its key ends.
    fn event(&mut self, number: u64, due_us: u64) -> usize {
        let repeats = self.records == Records::Repeating && number % 5 == 4;
        let id = if repeats { self.fresh.saturating_sub(1 + (number * 7919) % 1000) } else { self.fresh };
        self.fresh += u64::from(!repeats);
        let keys = if let Records::Versions { keys } = self.records { keys } else { 1_000_000 };
        let (account, version) = (id % keys, id / keys);
        self.targets.push((account % self.partitions) as i32);
        let bytes = &mut self.bytes;
        digits(bytes, account, KEY_BYTES);
        let key = bytes.len();
        let end = key + VALUE_BYTES;
        bytes.extend_from_slice(br#"{"event_id":"#);
        digits(bytes, id, 1);
        bytes.extend_from_slice(br#","account":""#);
        digits(bytes, account, KEY_BYTES);
        bytes.extend_from_slice(br#"","version":"#);
        digits(bytes, version, 1);
        bytes.extend_from_slice(br#","due_us":"#);
        digits(bytes, due_us, 1);
        bytes.extend_from_slice(br#","note":""#);
        bytes.resize(end - 2, b'x');
        bytes.extend_from_slice(b"\"}");
        key
    }

    /// The records since the last clearing; they point into the buffer.
    fn records(&self, into: &mut Vec<rd::rd_kafka_message_t>) {
        let mut from = 0;
        into.clear();
        into.extend(self.targets.iter().zip(&self.ends).map(|(&partition, &(key, end))| {
            let made = record(partition, &self.bytes[from..key], &self.bytes[key..end]);
            from = end;
            made
        }));
    }
}

/// Writes a number with at least `at_least` digits.
fn digits(bytes: &mut Vec<u8>, mut number: u64, at_least: usize) {
    let start = bytes.len();
    while number > 0 || bytes.len() < start + at_least {
        bytes.push(b'0' + (number % 10) as u8);
        number /= 10;
    }
    bytes[start..].reverse();
}

/// When the record with this value was due; `None` if it is not from a load.
pub fn due_us(value: &[u8]) -> Option<u64> {
    const FIELD: &[u8] = b"\"due_us\":";
    let at = value.windows(FIELD.len()).position(|window| window == FIELD)? + FIELD.len();
    let digits = value[at..].iter().take_while(|byte| byte.is_ascii_digit());
    Some(digits.fold(0, |number, digit| number * 10 + u64::from(digit - b'0')))
}

/// A histogram of microseconds, up to an hour, with three digits.
pub fn histogram() -> Histogram<u64> {
    Histogram::new_with_bounds(1, 3_600_000_000, 3).expect("the bounds are in order")
}
