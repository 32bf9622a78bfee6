//! The reader at the end: what a `read_committed` consumer of the output gets, and when.
//!
//! It adds no waiting of its own: it fetches from the first byte on, and what it measures without a contender
//! between is the harness's floor.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message;
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use super::pace::{Clock, due_us};
use crate::broker;
use crate::failure::{Context as _, Failure, Outcome, fail};

/// How long one poll waits, which is how soon a reader that has nothing to read sees that it is to stop.
const POLL_WAIT: Duration = Duration::from_millis(50);
/// How often a count is looked at.
const LOOK: Duration = Duration::from_millis(20);

/// A record that has come out.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    pub partition: usize,
    /// When it was due at the input.
    pub due_us: u64,
    /// When the reader had it.
    pub at_us: u64,
}

/// What looks at each record as it comes.
pub trait Sink: Send + 'static {
    fn take(&mut self, arrival: Arrival);
}

impl<F: FnMut(Arrival) + Send + 'static> Sink for F {
    fn take(&mut self, arrival: Arrival) {
        self(arrival);
    }
}

/// A reader at work. Dropped, it stops.
pub struct Reading {
    stop: Arc<AtomicBool>,
    seen: Arc<AtomicU64>,
    thread: Option<JoinHandle<Outcome<()>>>,
    topic: String,
}

impl Reading {
    /// Reads all partitions of a topic from their beginning.
    pub fn start(brokers: &str, topic: &str, partitions: usize, clock: Clock, mut sink: impl Sink) -> Outcome<Reading> {
        let consumer = consumer(brokers, topic, partitions)?;
        let (stop, seen) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted, name) = (Arc::clone(&stop), Arc::clone(&seen), topic.to_owned());
        let thread = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                let Some(message) = consumer.poll(POLL_WAIT) else { continue };
                let message = message.context(format_args!("reading {name}"))?;
                let at_us = clock.now_us();
                let due_us = due_us(message.payload().unwrap_or_default())
                    .ok_or_else(|| Failure(format!("{name} holds a record that the load did not write")))?;
                sink.take(Arrival { partition: message.partition() as usize, due_us, at_us });
                counted.fetch_add(1, Ordering::Relaxed);
            }
            Ok(())
        });
        Ok(Reading { stop, seen, thread: Some(thread), topic: topic.to_owned() })
    }

    /// Records read so far.
    pub fn seen(&self) -> u64 {
        self.seen.load(Ordering::Relaxed)
    }

    /// Waits until at least so many records have come, while `alive` finds nothing wrong.
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

    /// Stops and tells how many records came.
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

fn consumer(brokers: &str, topic: &str, partitions: usize) -> Outcome<BaseConsumer> {
    let consumer: BaseConsumer = broker::client(brokers)
        .set("group.id", format!("{topic}.reader"))
        .set("enable.auto.commit", "false")
        .set("enable.auto.offset.store", "false")
        .set("isolation.level", "read_committed")
        .set("fetch.min.bytes", "1")
        .set("fetch.wait.max.ms", "10")
        .set("fetch.queue.backoff.ms", "1")
        .set("fetch.error.backoff.ms", "10")
        .set("socket.nagle.disable", "true")
        .create()
        .context(format_args!("a reader of {topic}"))?;
    let mut assignment = TopicPartitionList::new();
    for partition in 0..partitions {
        assignment.add_partition_offset(topic, partition as i32, Offset::Beginning)?;
    }
    consumer.assign(&assignment).context(format_args!("a reader of {topic}"))?;
    Ok(consumer)
}
