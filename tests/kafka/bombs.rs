//! Goal: what a batch unpacks to is bounded, by each of Kafka's compressions, by itself and with all that is unpacked at
//! the same time: the process lives under a limit of memory, other partitions go on, and what cannot be read is refused
//! by name.

use crate::cluster::{Fresh, Kafka};
use crate::job::Job;
use crate::load::{now_ms, things};
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

const MIB: u64 = 1 << 20;
/// The least that may be configured.
const MEMORY: &str = "memory: 64MiB";
const UNPACKED: &str = "unpacked: 20MiB";
/// What a process may get beside what it has when it is at work: less than what is unpacked here.
const FURTHER_BYTES: u64 = 224 * MIB;
/// Of one record.
const ZEROS_BYTES: usize = 10_000_000;
/// Whatever comes is to come in one batch.
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

/// An operator that is at work, and can get so little more memory that a bomb would end it.
fn start(job: &Job) -> Operator {
    job.send((0..job.partitions()).flat_map(|partition| things(partition, 0..10, 1)));
    let operator = Operator::start(job, "a");
    job.await_drained(DEADLINE);
    operator.limit_further_memory(FURTHER_BYTES);
    operator
}

/// Sends a batch of so many records of ten megabytes, that unpacks to all of them.
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

/// It ends by itself when it is asked to, and says that a task has stopped.
#[track_caller]
fn end_refused(mut operator: Operator) {
    operator.terminate();
    assert_eq!(operator.await_exit(DEADLINE).code(), Some(1), "{}", operator.tail());
}

/// A batch that unpacks to more than `unpacked` is refused; neither the process nor the other partition minds it.
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
    assert_eq!(job.committed()[0], before[0], "it went on beyond what it could not read");
    operator.assert_running();
    println!("{codec}: peak {} MiB", operator.memory_peak_bytes() / MIB);
    end_refused(operator);
}

#[test]
fn a_bomb_of_gzip_is_refused() {
    is_refused("gzip", 40);
}

#[test]
fn a_bomb_of_lz4_is_refused() {
    is_refused("lz4", 40);
}

#[test]
fn a_bomb_of_zstd_is_refused() {
    is_refused("zstd", 40);
}

/// By snappy no more than twentyfold: the broker itself takes memory for all of it.
#[test]
fn a_bomb_of_snappy_is_refused() {
    is_refused("snappy", 6);
}

/// Each unpacks to less than the bound, all together to many times as much; and all of them come in one answer.
#[test]
fn many_small_bombs_come_through_one_after_the_other() {
    const BATCHES: usize = 50;
    let job = job("bombs-many", 2);
    let mut operator = start(&job);
    let mut properties = vec![("compression.type", "gzip")];
    properties.extend(ONE_BATCH);
    let writer = job.kafka.writer_with(&properties);
    let zeros = "0".repeat(100_000);
    // All of it is there when it is fetched.
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

/// What librdkafka notes of each record takes more than the record.
#[test]
fn a_batch_of_very_many_records_is_refused_as_well() {
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
    assert_eq!(job.committed()[0], before[0], "it went on beyond what it could not read");
    operator.assert_running();
    println!("records: peak {} MiB", operator.memory_peak_bytes() / MIB);
    end_refused(operator);
}
