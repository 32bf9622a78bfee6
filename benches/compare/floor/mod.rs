//! `floor` and `floor-changelog`: a pass-through as well as one can write it with librdkafka, straight on its
//! C interface. Nothing that keeps a log exactly once can be expected to be faster on this broker.
//!
//! A lane waits on one queue for all of its partitions and takes what is there in one call. It hands runs of
//! records of one partition over in one call, and lets them go at once, while they are in the processor's caches.
//! Delivery reports are for errors only, so nobody has to take them; the commit waits for the deliveries on
//! librdkafka's own counter. Headers and timestamps are not passed on: that call has no room for them, and a
//! floor may be lower than what stands on it.
//!
//! Tried and given up: values handed over where they lie, without a copy, and kept until the commit (the same CPU
//! time with one lane, a fifth more with two, and more memory); two lanes (a tenth more CPU time).
//!
//! `floor-changelog` writes a changelog record of 40 bytes (key 16, value 24) for each record as well, into the
//! same partition and transaction.

mod native;

use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::bindings as rd;

use crate::failure::{Context as _, Failure, Outcome};
use crate::generate::PARTITIONS;
use crate::spec::Spec;
use native::{Consumer, Producer, Topic};

/// The most that is taken in one call.
const BATCH: usize = 10_000;
/// How long a lane waits for a record before it looks whether to commit or to stop.
const WAIT_MS: i32 = 5;
/// A changelog record: as ratchet's, whose own are between 30 and 45 bytes for this work.
const CHANGELOG_KEY: usize = 16;
const CHANGELOG_VALUE: usize = 24;

/// Runs until `stop`: a lane for each thread of the spec, each with its share of the partitions.
pub fn run(spec: &Spec, changelog: bool, stop: &AtomicBool) -> Outcome<()> {
    let lanes = spec.threads.clamp(1, PARTITIONS as usize);
    std::thread::scope(|scope| {
        let lane = |number: usize| {
            scope.spawn(move || {
                let done = Lane::open(spec, changelog, number, lanes).and_then(|mut lane| lane.run(stop));
                // One lane alone would never be done.
                stop.store(true, Ordering::Relaxed);
                done
            })
        };
        let lanes: Vec<_> = (0..lanes).map(lane).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().map_err(|_| Failure("a lane panicked".to_owned()))?)
    })
}

type RawMessage = *mut rd::rd_kafka_message_t;

struct Lane {
    consumer: Consumer,
    producer: Producer,
    output: Topic,
    changelog: Option<Topic>,
    commit_every: Duration,
    /// What was read in one call.
    read: Vec<RawMessage>,
    /// By partition: the offset to commit.
    next: Vec<Option<i64>>,
    /// What is handed over in one call.
    batch: Vec<rd::rd_kafka_message_t>,
    /// The changelog records of one call: key and value of each, one behind the other.
    bytes: Vec<u8>,
}

impl Lane {
    fn open(spec: &Spec, changelog: bool, number: usize, lanes: usize) -> Outcome<Lane> {
        let own: Vec<i32> = (0..PARTITIONS).filter(|partition| *partition as usize % lanes == number).collect();
        let producer = Producer::open(&spec.brokers, &format!("{}-{number}", spec.group))?;
        let output = producer.topic(&spec.output)?;
        let changelog = if changelog { Some(producer.topic(&spec.changelog)?) } else { None };
        let consumer = Consumer::open(&spec.brokers, &spec.group, &spec.input, &own)?;
        Ok(Lane {
            consumer,
            producer,
            output,
            changelog,
            commit_every: Duration::from_millis(spec.commit_ms),
            read: Vec::new(),
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
                self.forget();
            }
        }
    }

    /// Hands over what was read, run by run.
    fn pass(&mut self) -> Outcome<()> {
        let mut start = 0;
        while start < self.read.len() {
            // SAFETY: what was read is alive until it is forgotten.
            let partition = unsafe { (*self.read[start]).partition };
            self.batch.clear();
            for &message in &self.read[start..] {
                // SAFETY: as above.
                let message = unsafe { &*message };
                if message.partition != partition {
                    break;
                }
                self.batch.push(outgoing(message.key, message.key_len, message.payload, message.len));
            }
            let length = self.batch.len();
            // SAFETY: as above.
            unsafe { self.producer.send(&self.output, partition, &mut self.batch)? };
            // SAFETY: as above.
            let last = unsafe { (*self.read[start + length - 1]).offset };
            if let Some(changelog) = &self.changelog {
                self.bytes.clear();
                for &message in &self.read[start..start + length] {
                    // SAFETY: as above.
                    changelog_record(unsafe { &*message }, &mut self.bytes);
                }
                self.batch.clear();
                for record in self.bytes.chunks_exact(CHANGELOG_KEY + CHANGELOG_VALUE) {
                    let (key, value) = record.split_at(CHANGELOG_KEY);
                    self.batch.push(outgoing(
                        key.as_ptr().cast_mut().cast(),
                        key.len(),
                        value.as_ptr().cast_mut().cast(),
                        value.len(),
                    ));
                }
                // SAFETY: the batch is of `bytes`.
                unsafe { self.producer.send(changelog, partition, &mut self.batch)? };
            }
            self.next[partition as usize] = Some(last + 1);
            start += length;
        }
        Ok(())
    }

    fn forget(&mut self) {
        for message in self.read.drain(..) {
            // SAFETY: owned, and destroyed only here.
            unsafe { rd::rd_kafka_message_destroy(message) }
        }
    }
}

/// A record to be handed over.
fn outgoing(
    key: *mut std::ffi::c_void,
    key_len: usize,
    payload: *mut std::ffi::c_void,
    len: usize,
) -> rd::rd_kafka_message_t {
    rd::rd_kafka_message_t {
        err: rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR,
        rkt: ptr::null_mut(),
        partition: 0,
        payload,
        len,
        key,
        key_len,
        offset: 0,
        _private: ptr::null_mut(),
    }
}

/// A key that differs from record to record, as hashes do, and a value as long as an entry.
fn changelog_record(message: &rd::rd_kafka_message_t, bytes: &mut Vec<u8>) {
    let mixed = (message.offset as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ message.partition as u64;
    bytes.extend_from_slice(&mixed.to_be_bytes());
    bytes.extend_from_slice(&message.offset.to_be_bytes());
    bytes.extend_from_slice(&mixed.rotate_left(17).to_be_bytes());
    bytes.extend_from_slice(&mixed.rotate_left(37).to_be_bytes());
    bytes.extend_from_slice(&mixed.to_be_bytes());
}

/// Words for what librdkafka refused.
fn refused(code: rd::rd_kafka_resp_err_t, what: &str) -> Outcome<()> {
    if code == rd::rd_kafka_resp_err_t::RD_KAFKA_RESP_ERR_NO_ERROR {
        return Ok(());
    }
    Err(format!("{code:?}")).context(what)
}
