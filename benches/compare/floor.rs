//! `floor` and `floor-changelog`: the fastest pass-through that can be written with librdkafka, directly on its
//! C interface. Nothing on librdkafka that writes exactly once can be expected to be faster on this broker.
//!
//! A lane waits on one queue for all its partitions and takes what is there in one call. It produces runs of
//! records of one partition in one call, and frees them at once, while they are in the processor's caches.
//! Delivery reports are for errors only, so they need not be read; the commit waits for the deliveries on
//! librdkafka's own counter. Headers and timestamps are not passed on: that call does not take them, and a
//! floor may do less than ratchet.
//!
//! Tried and given up: producing values without a copy and keeping them until the commit (the same CPU
//! time with one lane, a fifth more with two, and more memory); two lanes (a tenth more CPU time).
//!
//! `floor-changelog` writes a changelog record of 40 bytes (key 16, value 24) for each record as well, into the
//! same partition and transaction.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;

use crate::failure::{Failure, Outcome};
use crate::generate::PARTITIONS;
use crate::native;
use crate::native::consumer::{Consumer, Messages};
use crate::native::producer::{Producer, Target, Topic, record};
use crate::spec::Spec;

/// Maximum number of records taken in one call.
const BATCH: usize = 10_000;
/// How long a lane waits for a record before it checks whether to commit or to stop.
const WAIT_MS: i32 = 5;
/// The sizes of a changelog record, like ratchet's, which have between 30 and 45 bytes for this work.
pub const CHANGELOG_KEY: usize = 16;
pub const CHANGELOG_VALUE: usize = 24;

/// Runs until `stop`: a lane for each thread of the spec, each with its share of the partitions.
pub fn run(spec: &Spec, changelog: bool, stop: &AtomicBool) -> Outcome<()> {
    let lanes = spec.threads.clamp(1, PARTITIONS as usize);
    std::thread::scope(|scope| {
        let lane = |number: usize| {
            scope.spawn(move || {
                let done = Lane::open(spec, changelog, number, lanes).and_then(|mut lane| lane.run(stop));
                // The other lanes would never finish.
                stop.store(true, Ordering::Relaxed);
                done
            })
        };
        let lanes: Vec<_> = (0..lanes).map(lane).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().map_err(|_| Failure("a lane panicked".to_owned()))?)
    })
}

struct Lane {
    consumer: Consumer,
    producer: Producer,
    output: Topic,
    changelog: Option<Topic>,
    commit_every: Duration,
    /// The messages read in one call.
    read: Messages,
    /// By partition: the offset to commit.
    next: Vec<Option<i64>>,
    /// The records produced in one call.
    batch: Vec<rd::rd_kafka_message_t>,
    /// The changelog records of one call: keys and values, one after the other.
    bytes: Vec<u8>,
}

impl Lane {
    fn open(spec: &Spec, changelog: bool, number: usize, lanes: usize) -> Outcome<Lane> {
        let own: Vec<i32> = (0..PARTITIONS).filter(|partition| *partition as usize % lanes == number).collect();
        let mut producer = producer(spec, number)?;
        let output = producer.topic(&spec.output)?;
        let changelog = if changelog { Some(producer.topic(&spec.changelog)?) } else { None };
        let consumer = consumer(spec, &own)?;
        Ok(Lane {
            consumer,
            producer,
            output,
            changelog,
            commit_every: Duration::from_millis(spec.commit_ms),
            read: Messages::default(),
            next: vec![None; PARTITIONS as usize],
            batch: Vec::new(),
            bytes: Vec::new(),
        })
    }

    fn run(&mut self, stop: &AtomicBool) -> Outcome<()> {
        let mut began: Option<Instant> = None;
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            if began.is_some_and(|began| stopping || began.elapsed() >= self.commit_every) {
                self.producer.commit(&self.consumer, &self.next)?;
                self.next.fill(None);
                began = None;
            }
            if stopping {
                return Ok(());
            }
            self.consumer.take(&mut self.read, BATCH, WAIT_MS)?;
            if !self.read.is_empty() {
                if began.is_none() {
                    self.producer.begin()?;
                    began = Some(Instant::now());
                }
                self.pass()?;
                self.read.clear();
            }
        }
    }

    /// Produces what was read, run by run.
    fn pass(&mut self) -> Outcome<()> {
        let mut start = 0;
        while let Some(first) = self.read.from(start).next() {
            let partition = first.partition;
            let run = || self.read.from(start).take_while(move |message| message.partition == partition);
            self.batch.clear();
            self.batch.extend(run().map(|message| record(partition, native::key(message), native::payload(message))));
            let length = self.batch.len();
            // SAFETY: the messages are alive until they are cleared.
            unsafe { self.producer.send(self.output, Target::One(partition), &mut self.batch)? };
            if let Some(changelog) = self.changelog {
                self.bytes.clear();
                run().for_each(|message| changelog_record(message.partition, message.offset, &mut self.bytes));
                self.batch.clear();
                self.batch.extend(self.bytes.chunks_exact(CHANGELOG_KEY + CHANGELOG_VALUE).map(|bytes| {
                    let (key, value) = bytes.split_at(CHANGELOG_KEY);
                    record(partition, key, value)
                }));
                // SAFETY: the batch points into `bytes`, which outlives the call.
                unsafe { self.producer.send(changelog, Target::One(partition), &mut self.batch)? };
            }
            let last = self.read.from(start + length - 1).next();
            self.next[partition as usize] = last.map(|message| message.offset + 1);
            start += length;
        }
        Ok(())
    }
}

fn consumer(spec: &Spec, own: &[i32]) -> Outcome<Consumer> {
    let properties = [
        ("bootstrap.servers", &*spec.brokers),
        ("group.id", &spec.group),
        ("enable.auto.commit", "false"),
        ("auto.offset.reset", "earliest"),
        ("isolation.level", "read_committed"),
        ("fetch.queue.backoff.ms", "5"),
        ("queued.min.messages", "1000000"),
        ("queued.max.messages.kbytes", "65536"),
        ("check.crcs", "false"),
    ];
    // From the group's offset, or from the start.
    Consumer::open(&properties, &spec.input, own, rd::RD_KAFKA_OFFSET_STORED)
}

fn producer(spec: &Spec, number: usize) -> Outcome<Producer> {
    let id = format!("{}-{number}", spec.group);
    let properties = [
        ("bootstrap.servers", &*spec.brokers),
        ("transactional.id", &id),
        ("linger.ms", "5"),
        ("batch.size", "1000000"),
        ("batch.num.messages", "100000"),
        ("queue.buffering.max.messages", "10000000"),
        ("queue.buffering.max.kbytes", "2000000"),
        ("delivery.report.only.error", "true"),
    ];
    let producer = Producer::open(&properties)?;
    producer.init_transactions()?;
    Ok(producer)
}

/// A key that differs from record to record, as hashes do, and a value as long as an entry.
pub fn changelog_record(partition: i32, offset: i64, bytes: &mut Vec<u8>) {
    let mixed = (offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ partition as u64;
    bytes.extend_from_slice(&mixed.to_be_bytes());
    bytes.extend_from_slice(&offset.to_be_bytes());
    bytes.extend_from_slice(&mixed.rotate_left(17).to_be_bytes());
    bytes.extend_from_slice(&mixed.rotate_left(37).to_be_bytes());
    bytes.extend_from_slice(&mixed.to_be_bytes());
}
