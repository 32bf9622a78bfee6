//! How fast one lane can consume, send and commit with nothing in between. A measurement, not a test: run it with
//! `--ignored --nocapture`.

use std::time::{Duration, Instant};

use ratchet::cluster::kafka::Batch;
use ratchet::cluster::{Cluster, Member as _, Message, Producer as _, RecordBatch};

use crate::cluster_kafka::common::*;

const RECORDS: i64 = 2_000_000;
const VALUE_BYTES: usize = 160;
const PARTITIONS: i32 = 4;

#[test]
#[ignore = "it measures"]
fn pass_through() {
    for (name, interval) in [("100 ms", Duration::from_millis(100)), ("1 s", Duration::from_secs(1))] {
        let (cluster, input, output) = (cluster(), topic("in", PARTITIONS), topic("out", PARTITIONS));
        fill(&input);
        let (_, mut member) = lone_member(&cluster, &input);
        let mut producer = cluster.producer(&unique("tx")).unwrap();
        let (mut batch, mut count, mut commits, mut committing) = (Batch::default(), 0, 0, Duration::ZERO);
        let (started, cpu) = (Instant::now(), cpu_time());
        (0..PARTITIONS).for_each(|partition| member.start(&at(&input, partition), 0).unwrap());
        while count < RECORDS {
            producer.begin().unwrap();
            let begun = Instant::now();
            while begun.elapsed() < interval && count < RECORDS {
                member.poll(&mut batch, 4096, Duration::from_millis(5)).unwrap();
                for record in (0..batch.len()).map(|index| batch.record(index)) {
                    let (key, value, headers) = (record.key, record.value, record.headers);
                    let timestamp = record.timestamp;
                    let message =
                        Message { topic: &output, partition: record.partition, key, value, headers, timestamp };
                    producer.send(SILENT, &message).unwrap();
                }
                count += batch.len() as i64;
            }
            let offsets: Vec<_> = (0..PARTITIONS)
                .map(|partition| at(&input, partition))
                .filter_map(|partition| Some(commit_of(&partition, member.position(&partition)?, "")))
                .collect();
            let asked = Instant::now();
            producer.commit(&offsets, member.metadata().unwrap()).unwrap();
            (commits, committing) = (commits + 1, committing + asked.elapsed());
        }
        let (elapsed, cpu) = (started.elapsed(), cpu_time() - cpu);
        println!(
            "{name}: {:.0} records/s, {:.2} us of CPU a record, {commits} commits of {:?} each",
            RECORDS as f64 / elapsed.as_secs_f64(),
            cpu.as_secs_f64() * 1e6 / RECORDS as f64,
            committing / commits
        );
    }
}

#[test]
#[ignore = "it measures"]
fn small_transactions() {
    let (cluster, input, output) = (cluster(), topic("in", 1), topic("out", 1));
    let (_, member) = lone_member(&cluster, &input);
    let mut producer = cluster.producer(&unique("tx")).unwrap();
    let mut took: Vec<Duration> = (0..200)
        .map(|offset| {
            let started = Instant::now();
            commit(
                &mut producer,
                &member,
                &[message(&at(&output, 0), "k", "v")],
                &[commit_of(&at(&input, 0), offset, "")],
            );
            started.elapsed()
        })
        .collect();
    took.sort();
    println!("one record, begin to committed: p50 {:?}, p99 {:?}", took[100], took[198]);
}

fn fill(input: &std::sync::Arc<str>) {
    let value = "x".repeat(VALUE_BYTES);
    for partition in 0..PARTITIONS {
        write(&at(input, partition), (0..RECORDS / i64::from(PARTITIONS)).map(|_| value.clone()));
    }
}

fn cpu_time() -> Duration {
    // SAFETY: zeros are a valid value, and the call fills it.
    let usage = unsafe {
        let mut usage = std::mem::zeroed();
        libc::getrusage(libc::RUSAGE_SELF, &mut usage);
        usage
    };
    let of = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    of(usage.ru_utime) + of(usage.ru_stime)
}
