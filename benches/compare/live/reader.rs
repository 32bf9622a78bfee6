//! The reader at the end: which records a `read_committed` consumer of the output gets, and when.
//!
//! It adds no delay of its own: it fetches from the first byte on. What it measures without a contender is the
//! harness's floor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;

use super::pace::{Clock, due_us};
use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::native::consumer::{Consumer, Messages};
use crate::native::payload;

/// Maximum number of records taken in one call.
const BATCH: usize = 10_000;
/// How long one call waits, and so how soon an idle reader notices that it should stop.
const WAIT_MS: i32 = 50;
/// How often a count is checked.
const LOOK: Duration = Duration::from_millis(20);

/// A record from the output.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub partition: usize,
    /// When it was due at the input.
    pub due_us: u64,
    /// When the reader had it.
    pub at_us: u64,
}

/// Receives each record as it arrives.
pub trait Sink: Send + 'static {
    fn take(&mut self, arrival: Arrival);
}

impl<F: FnMut(Arrival) + Send + 'static> Sink for F {
    fn take(&mut self, arrival: Arrival) {
        self(arrival);
    }
}

/// A running reader. Dropping this stops it.
pub struct Reading {
    stop: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
    thread: Option<JoinHandle<Outcome<()>>>,
    topic: String,
}

impl Reading {
    /// Reads all partitions of a topic from the start.
    pub fn start(brokers: &str, topic: &str, partitions: usize, clock: Clock, mut sink: impl Sink) -> Outcome<Reading> {
        let consumer = consumer(brokers, topic, partitions)?;
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted, name) = (Arc::clone(&stop), Arc::clone(&seen), topic.to_owned());
        let thread = std::thread::spawn(move || {
            let mut read = Messages::default();
            while !stopped.load(Ordering::Relaxed) {
                consumer.take(&mut read, BATCH, WAIT_MS).context(format_args!("reading {name}"))?;
                let at_us = clock.now_us();
                for message in read.from(0) {
                    let due_us = due_us(payload(message))
                        .ok_or_else(|| Failure(format!("{name} holds a record that the load did not write")))?;
                    sink.take(Arrival { partition: message.partition as usize, due_us, at_us });
                }
                counted.fetch_add(read.len() as u64, Ordering::Relaxed);
                read.clear();
            }
            Ok(())
        });
        Ok(Reading { stop, seen, thread: Some(thread), topic: topic.to_owned() })
    }

    /// Records read so far.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Waits until at least `count` records have arrived, while `alive` finds nothing wrong.
    pub fn await_seen(&self, count: u64, wait: Duration, mut alive: impl FnMut() -> Outcome<()>) -> Outcome<()> {
        let deadline = Instant::now() + wait;
        while self.seen() < count {
            alive()?;
            if self.thread.as_ref().is_some_and(JoinHandle::is_finished) {
                fail!("the reader of {} ended", self.topic);
            }
            if Instant::now() > deadline {
                fail!("{} of {count} records had come to {} after {wait:?}", self.seen(), self.topic);
            }
            std::thread::sleep(LOOK);
        }
        Ok(())
    }

    /// Stops and returns how many records arrived.
    pub fn stop(mut self) -> Outcome<u64> {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            thread.join().map_err(|_| Failure("the reader died".to_owned()))??;
        }
        Ok(self.seen())
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

fn consumer(brokers: &str, topic: &str, partitions: usize) -> Outcome<Consumer> {
    let group = format!("{topic}.reader");
    let properties = [
        ("bootstrap.servers", brokers),
        ("log_level", "3"),
        ("group.id", &group),
        ("enable.auto.commit", "false"),
        ("isolation.level", "read_committed"),
        ("fetch.min.bytes", "1"),
        ("fetch.wait.max.ms", "10"),
        ("fetch.queue.backoff.ms", "1"),
        ("fetch.error.backoff.ms", "10"),
        ("check.crcs", "false"),
        ("socket.nagle.disable", "true"),
    ];
    let all: Vec<i32> = (0..partitions as i32).collect();
    Consumer::open(&properties, topic, &all, rd::RD_KAFKA_OFFSET_BEGINNING).context(format_args!("a reader of {topic}"))
}
