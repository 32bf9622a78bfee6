//! Goal: the process's memory stays within `memory` and a constant under any load: more keys than fit into memory,
//! records of the maximum size, a slow broker, hundreds of partitions.
//!
//! The measure is the peak of the resident memory that the kernel counts. Two constants have to hold: what
//! docs/operations.md promises; and what an idle process takes, measured in the same run, with some room for what an
//! allocator cannot give back. Each load is clearly larger than that allows for.
//! `make bounds` measures with larger loads (`RATCHET_TEST_BOUNDS=full`).

use std::time::{Duration, Instant};

use crate::cluster::{Fresh, Kafka};
use crate::job::Job;
use crate::kafka::Broker;
use crate::load::{now_ms, things};
use crate::operator::Operator;

/// The smallest value allowed.
const MEMORY_BYTES: u64 = 64 << 20;
/// What the documentation allows for the program, its threads and connections.
const PROGRAM_BYTES: u64 = 64 << 20;
/// What the allocator may hold on top of what is in use.
const ROOM_BYTES: u64 = 32 << 20;
/// What a partition takes on top of `memory`: a store's tables, a consumer's and a producer's bookkeeping.
const PARTITION_BYTES: u64 = 1 << 20;
/// The size of a large record; below it, the setting of a topic for them.
const LARGE_BYTES: usize = 8 << 20;
const LARGE_TOPIC: &[(&str, &str)] = &[("max.message.bytes", "16777216")];
/// How long such a run may take.
const WAIT: Duration = Duration::from_secs(300);

fn is_full() -> bool {
    std::env::var("RATCHET_TEST_BOUNDS").is_ok_and(|word| word == "full")
}

/// `full` for a full measurement, `brief` otherwise.
fn sized<T>(brief: T, full: T) -> T {
    if is_full() { full } else { brief }
}

/// A job with the smallest memory; its topics are created with these settings.
fn job(kafka: Kafka, theme: &str, partitions: i32, settings: &[(&str, &str)]) -> Job {
    let mut job = Job::on(kafka, theme);
    job.worker.push(format!("memory: {MEMORY_BYTES}"));
    job.properties.insert("producer.transaction.timeout.ms".to_owned(), "30000".to_owned());
    for topic in [&job.input, &job.output] {
        job.kafka.create(topic, partitions, settings);
    }
    job
}

/// The peak of a process that drains the job's input.
#[track_caller]
fn peak_of(job: &Job) -> u64 {
    let mut operator = Operator::start(job, "a");
    job.await_drained(WAIT);
    let peak = operator.memory_peak_bytes();
    operator.stop();
    peak
}

/// The peak of a process with almost nothing to do.
fn idle_bytes(kafka: Kafka) -> u64 {
    let job = job(kafka, "memory-idle", 1, &[]);
    job.send(things(0, 0..10, 1));
    peak_of(&job)
}

#[track_caller]
fn assert_within(what: &str, peak: u64, idle: u64, partitions: i32) {
    let grows = MEMORY_BYTES + PARTITION_BYTES * u64::from(partitions.unsigned_abs());
    let bound = (PROGRAM_BYTES + grows).min(idle + ROOM_BYTES + grows);
    let mib = |bytes: u64| bytes >> 20;
    println!("{what}: peak {} MiB, idle {} MiB, bound {} MiB", mib(peak), mib(idle), mib(bound));
    assert!(peak <= bound, "{what}: {} MiB are more than {} MiB", mib(peak), mib(bound));
}

#[test]
fn memory_stays_bounded_with_more_keys_than_fit() {
    let job = job(Kafka::shared(), "memory-keys", 2, &[]);
    let count = sized(1_200_000, 4_000_000);
    // Nearly the longest identities that are kept unhashed: these alone take 120 MiB.
    let thing = |id: usize| Fresh::new((id % 2) as i32, "", format!("{{\"id\":\"thing-{id:0100}\",\"version\":1}}"));
    job.send((0..count).map(thing));
    let peak = peak_of(&job);
    let output: i64 = (0..2).map(|partition| job.kafka.bounds(&job.output, partition).stable).sum();
    assert!(output > count as i64, "all of them should be new, and each transaction leaves a marker");
    assert_within("distinct keys", peak, idle_bytes(Kafka::shared()), 2);
}

#[test]
fn memory_stays_bounded_with_the_largest_records() {
    let job = job(Kafka::shared(), "memory-large", 2, LARGE_TOPIC);
    let count = sized(32, 120);
    let filler = "x".repeat(LARGE_BYTES);
    let large = |id: usize| {
        Fresh::new((id % 2) as i32, "large", format!("{{\"id\":{id},\"version\":1,\"x\":\"{filler}\"}}")).at(now_ms())
    };
    job.send((0..count).map(large));
    let peak = peak_of(&job);
    assert_within("large records", peak, idle_bytes(Kafka::shared()), 2);
}

#[test]
fn memory_stays_bounded_with_a_slow_broker() {
    const RECORD_BYTES: usize = 2_000;
    // A broker lets pass at once what the rate allows for all its windows, some ten seconds' worth by default.
    let broker = Broker::start_with(&[("quota.window.num", "2")]);
    let kafka = || Kafka::at(&broker.bootstrap());
    let idle = idle_bytes(kafka());
    let mut job = job(kafka(), "memory-slow", 2, &[]);
    job.properties.insert("client.id".to_owned(), "slow".to_owned());
    let (count, rate) = sized((100_000, 16 << 20), (400_000, 8 << 20));
    let filler = "x".repeat(RECORD_BYTES);
    let record = |id: usize| {
        Fresh::new((id % 2) as i32, "", format!("{{\"id\":{id},\"version\":1,\"x\":\"{filler}\"}}")).at(now_ms())
    };
    job.send((0..count).map(record));
    broker.throttle_writes("slow", rate);
    let start = Instant::now();
    let peak = peak_of(&job);
    let (took, due) = (start.elapsed(), Duration::from_secs((count * RECORD_BYTES) as u64 / u64::from(rate)));
    assert!(took >= due / 2, "{count} records came out within {took:?}: the broker was not slow");
    assert_within("a slow broker", peak, idle, 2);
}

#[test]
fn memory_stays_bounded_with_many_partitions() {
    let broker = Broker::start();
    let kafka = || Kafka::at(&broker.bootstrap());
    let idle = idle_bytes(kafka());
    let partitions = sized(100, 1_000);
    let job = job(kafka(), "memory-partitions", partitions, &[]);
    job.send((0..partitions).flat_map(|partition| things(partition, 0..20, 1)));
    let peak = peak_of(&job);
    assert_within(&format!("{partitions} partitions"), peak, idle, partitions);
}
