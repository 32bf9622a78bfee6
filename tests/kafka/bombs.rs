//! Goal: what a batch unpacks to is bounded, for each of Kafka's compressions, for one batch and for all that are
//! unpacked at once: the process stays within a memory limit, other partitions continue, and an unreadable batch is
//! refused with its place.

use crate::cluster::{Fresh, Kafka};
use crate::job::Job;
use crate::load::{now_ms, things};
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

const MIB: u64 = 1 << 20;
/// The smallest value allowed.
const MEMORY: &str = "memory: 64MiB";
const UNPACKED: &str = "unpacked: 20MiB";
/// What a working process may allocate on top of what it has: less than the bombs here unpack to.
const FURTHER_BYTES: u64 = 224 * MIB;
/// In one record.
const ZEROS_BYTES: usize = 10_000_000;
/// Puts all records into one batch.
const ONE_BATCH: [(&str, &str); 3] =
    [("batch.size", "1000000000"), ("message.max.bytes", "1000000000"), ("linger.ms", "5000")];

/// A job whose memory is limited, with an input that takes large batches.
fn job(theme: &str, partitions: i32) -> Job {
    let mut job = Job::on(Kafka::shared(), theme);
    job.worker.extend([MEMORY.to_owned(), UNPACKED.to_owned()]);
    job.kafka.create(&job.input, partitions, &[("max.message.bytes", "20000000")]);
    job.kafka.create(&job.output, partitions, &[]);
    job
}

/// An operator at work, with so little memory left that a bomb would kill it.
fn start(job: &Job) -> Operator {
    job.send((0..job.partitions()).flat_map(|partition| things(partition, 0..10, 1)));
    let operator = Operator::start(job, "a");
    job.await_drained(DEADLINE);
    operator.limit_further_memory(FURTHER_BYTES);
    operator
}

/// Sends one batch of this many records of ten megabytes each.
fn send_bomb(job: &Job, codec: &str, partition: i32, records: usize) {
    let mut properties = vec![("compression.type", codec)];
    properties.extend(ONE_BATCH);
    let writer = job.kafka.writer_with(&properties);
    let zeros = "0".repeat(ZEROS_BYTES);
    for nth in 0..records {
        let value = format!("{{\"id\":\"bomb-{nth}\",\"version\":1,\"zeros\":\"{zeros}\"}}");
        writer.send(&job.input, &Fresh::new(partition, "bomb", value).at(now_ms()));
    }
    writer.flush();
}

/// Ends the operator by SIGTERM; it reports that a task has stopped.
#[track_caller]
fn end_refused(mut operator: Operator) {
    operator.terminate();
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(2), "{}", operator.tail());
}

/// A batch that unpacks to more than `unpacked` is refused, and neither the process nor the other partition suffers.
#[track_caller]
fn is_refused(codec: &str, records: usize) {
    let job = job(&format!("bomb-{codec}"), 2);
    let mut operator = start(&job);
    let before = job.committed();
    send_bomb(&job, codec, 0, records);
    let offset = format!("at offset {}", before[0]);
    let input = format!("{}:0", job.input);
    operator.await_error(&[
        "task stopped",
        &input,
        &offset,
        "unpacks to more than the 20mib",
        "raise it",
        "give it up",
    ]);
    job.send(things(1, 10..200, 1));
    let end = job.kafka.bounds(&job.input, 1).end;
    within(DEADLINE, "the other partition to be drained", || (job.committed()[1] >= end).then_some(()));
    assert_eq!(job.committed()[0], before[0], "it went past what it could not read");
    operator.assert_running();
    println!("{codec}: peak {} MiB", operator.memory_peak_bytes() / MIB);
    end_refused(operator);
}

#[test]
fn gzip_bomb_is_refused() {
    is_refused("gzip", 40);
}

#[test]
fn lz4_bomb_is_refused() {
    is_refused("lz4", 40);
}

#[test]
fn zstd_bomb_is_refused() {
    is_refused("zstd", 40);
}

/// Only six records: snappy packs at most about twentyfold, and the broker itself unpacks all of it in memory.
#[test]
fn snappy_bomb_is_refused() {
    is_refused("snappy", 6);
}

/// Each unpacks to less than the bound, all together to many times as much; and one response carries them all.
#[test]
fn many_small_bombs_are_unpacked_one_by_one() {
    const BATCHES: usize = 50;
    let job = job("bombs-many", 2);
    let mut operator = start(&job);
    let mut properties = vec![("compression.type", "gzip")];
    properties.extend(ONE_BATCH);
    let writer = job.kafka.writer_with(&properties);
    let zeros = "0".repeat(100_000);
    // All of them are there before the next fetch.
    operator.freeze();
    for batch in 0..BATCHES {
        for _ in 0..100 {
            let value = format!("{{\"id\":\"many-{batch}\",\"version\":1,\"zeros\":\"{zeros}\"}}");
            writer.send(&job.input, &Fresh::new(0, "many", value).at(now_ms()));
        }
        writer.flush();
    }
    operator.thaw();
    job.await_drained(DEADLINE);
    operator.assert_running();
    assert_eq!(job.output().len(), 2 * 10 + BATCHES, "one of each batch is new");
    println!("many: peak {} MiB", operator.memory_peak_bytes() / MIB);
    operator.stop();
}

/// librdkafka's bookkeeping takes more memory than the records.
#[test]
fn batch_of_a_million_records_is_refused() {
    const RECORDS: usize = 1_000_000;
    let job = job("bomb-records", 2);
    let mut operator = start(&job);
    let before = job.committed();
    let mut properties = vec![("compression.type", "gzip"), ("batch.num.messages", "1000000")];
    properties.extend(ONE_BATCH);
    let writer = job.kafka.writer_with(&properties);
    let empty = Fresh { partition: 0, timestamp: Some(now_ms()), ..Fresh::default() };
    for _ in 0..RECORDS {
        writer.send(&job.input, &empty);
    }
    writer.flush();
    operator.await_error(&["task stopped", &job.input, "unpacks to more than"]);
    assert_eq!(job.committed()[0], before[0], "it went past what it could not read");
    operator.assert_running();
    println!("records: peak {} MiB", operator.memory_peak_bytes() / MIB);
    end_refused(operator);
}
