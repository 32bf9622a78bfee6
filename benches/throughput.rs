//! Throughput on real Kafka: one lane of ratchet beside a plain pass-through, on the same broker and topic.
//!
//! The pass-through is what most people write with librdkafka: poll, send, a transaction every 100 ms. Both read
//! the same records (160 bytes of JSON, a fifth of them duplicates) from four partitions, taking turns; medians
//! and the ratio are printed. Only figures of one run can be compared.
//!
//! `RATCHET_BENCH_RECORDS` (default 4,000,000) and `RATCHET_BENCH_ROUNDS` (default 3) set the amount of work.
#![expect(clippy::disallowed_methods, reason = "a benchmark measures with the machine's clocks")]

use std::fs::File;
use std::io::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use rdkafka::ClientConfig;
use rdkafka::admin::{AdminClient, AdminOptions, NewTopic, TopicReplication};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::{KafkaError, RDKafkaErrorCode};
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

#[path = "../tests/support/kafka/mod.rs"]
mod kafka;

const PARTITIONS: i32 = 4;
const INPUT: &str = "bench-in";

/// What one contender took for all records.
#[derive(Clone, Copy)]
struct Taken {
    wall: Duration,
    cpu: Duration,
}

fn main() {
    let records = setting("RATCHET_BENCH_RECORDS", 4_000_000);
    let rounds = setting("RATCHET_BENCH_ROUNDS", 3);
    let broker = kafka::bootstrap();
    load(broker, records);
    let mut taken: [Vec<Taken>; 2] = Default::default();
    for round in 0..rounds {
        taken[0].push(pass_through(broker, records, round));
        taken[1].push(ratchet(broker, round));
    }
    println!("{records} records of 160 bytes, {PARTITIONS} partitions, {rounds} rounds");
    println!("| contender | records/s (min, median, max) | CPU per record |");
    println!("|---|---|---|");
    for (name, taken) in ["plain pass-through, 100 ms", "ratchet, one lane"].iter().zip(&taken) {
        let mut rates: Vec<f64> = taken.iter().map(|taken| records as f64 / taken.wall.as_secs_f64()).collect();
        rates.sort_by(f64::total_cmp);
        let cpu = taken.iter().map(|taken| taken.cpu.as_secs_f64()).sum::<f64>() / taken.len() as f64;
        let (low, middle, high) = (rates[0], rates[rates.len() / 2], rates[rates.len() - 1]);
        println!("| {name} | {low:.0}, {middle:.0}, {high:.0} | {:.2} us |", cpu * 1e6 / records as f64);
    }
    let mut ratios: Vec<f64> = taken[0]
        .iter()
        .zip(&taken[1])
        .map(|(plain, ratchet)| plain.wall.as_secs_f64() / ratchet.wall.as_secs_f64())
        .collect();
    ratios.sort_by(f64::total_cmp);
    println!("ratchet / pass-through, round by round: {ratios:.2?}");
}

fn setting(name: &str, default: u64) -> u64 {
    std::env::var(name)
        .map_or(default, |text| text.parse().unwrap_or_else(|_| panic!("{name} is not a number: {text}")))
}

fn create(broker: &str, topics: &[&str]) {
    let admin: AdminClient<DefaultClientContext> =
        ClientConfig::new().set("bootstrap.servers", broker).create().expect("an admin client");
    let topics: Vec<_> =
        topics.iter().map(|name| NewTopic::new(name, PARTITIONS, TopicReplication::Fixed(1))).collect();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    let created = runtime.block_on(admin.create_topics(&topics, &AdminOptions::new())).expect("create topics");
    for result in created {
        if let Err((name, code)) = result {
            assert_eq!(code, RDKafkaErrorCode::TopicAlreadyExists, "{name}");
        }
    }
}

/// Four records in five are new; the fifth repeats one of the last thousand. Keys come round after a million.
fn load(broker: &str, records: u64) {
    create(broker, &[INPUT]);
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", broker)
        .set("linger.ms", "20")
        .set("queue.buffering.max.messages", "1000000")
        .create()
        .expect("a producer");
    let mut fresh = 0u64;
    for number in 0..records {
        let id = if number % 5 == 4 {
            fresh.saturating_sub(1 + (number * 7919) % 1000)
        } else {
            fresh += 1;
            fresh - 1
        };
        let key = format!("{:08}", id % 1_000_000);
        let mut value =
            format!(r#"{{"event_id":{id},"account":"{key}","kind":"charge","amount":{},"note":""#, id % 10_000);
        while value.len() < 158 {
            value.push('x');
        }
        value.push_str("\"}");
        let partition = (id % PARTITIONS as u64) as i32;
        let mut record = BaseRecord::to(INPUT).partition(partition).key(key.as_bytes()).payload(value.as_bytes());
        while let Err((error, back)) = producer.send(record) {
            assert!(matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)), "{error}");
            producer.poll(Duration::from_millis(10));
            record = back;
        }
    }
    producer.flush(Duration::from_secs(60)).expect("flush");
}

fn pass_through(broker: &str, records: u64, round: u64) -> Taken {
    let output = format!("bench-plain-{round}");
    create(broker, &[&output]);
    let consumer: BaseConsumer = ClientConfig::new()
        .set("bootstrap.servers", broker)
        .set("group.id", &output)
        .set("enable.auto.commit", "false")
        .set("fetch.queue.backoff.ms", "20")
        .set("queued.min.messages", "1000000")
        .create()
        .expect("a consumer");
    let mut assignment = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        assignment.add_partition_offset(INPUT, partition, Offset::Beginning).expect("an offset");
    }
    let producer: BaseProducer = ClientConfig::new()
        .set("bootstrap.servers", broker)
        .set("transactional.id", &output)
        .set("linger.ms", "5")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "1000000")
        .create()
        .expect("a producer");
    producer.init_transactions(Duration::from_secs(30)).expect("init");
    let (started, cpu) = (Instant::now(), cpu_used(libc::RUSAGE_SELF));
    consumer.assign(&assignment).expect("assign");
    let mut done = 0;
    while done < records {
        producer.begin_transaction().expect("begin");
        let since = Instant::now();
        while since.elapsed() < Duration::from_millis(100) && done < records {
            let Some(message) = consumer.poll(Duration::from_millis(5)) else { continue };
            let message = message.expect("a message");
            let mut record = BaseRecord::to(&output)
                .partition(message.partition())
                .key(message.key().unwrap_or_default())
                .payload(message.payload().unwrap_or_default());
            while let Err((_, back)) = producer.send(record) {
                producer.poll(Duration::from_millis(1));
                record = back;
            }
            done += 1;
            if done % 1000 == 0 {
                producer.poll(Duration::ZERO);
            }
        }
        let group = consumer.group_metadata().expect("group metadata");
        let position = consumer.position().expect("a position");
        producer.send_offsets_to_transaction(&position, &group, Duration::from_secs(30)).expect("offsets");
        producer.commit_transaction(Duration::from_secs(30)).expect("commit");
    }
    Taken { wall: started.elapsed(), cpu: cpu_used(libc::RUSAGE_SELF) - cpu }
}

/// The built program, from its first log line to its end: it stops when everything is committed.
fn ratchet(broker: &str, round: u64) -> Taken {
    let folder = tempfile::tempdir().expect("a folder");
    let name = format!("bench-{round}-{}", std::process::id());
    let output = format!("bench-ratchet-{round}");
    create(broker, &[&output]);
    let topology = folder.path().join("bench.yaml");
    write(
        &topology,
        &format!(
            "name: {name}\ninput: {{topics: [{INPUT}], value_format: json}}\nidentity: value.event_id\npartitioned_by_identity: true\noutput: {{topic: {output}}}\n"
        ),
    );
    let config = folder.path().join("ratchet.yaml");
    write(
        &config,
        &format!(
            "cluster: kafka\nkafka: {{bootstrap.servers: \"{broker}\"}}\nstate_dir: {}\nlanes: 1\nhttp: \"off\"\n\
             topics: {{create: internal, replication_factor: 1, min_insync_replicas: 1}}\n",
            folder.path().join("state").display()
        ),
    );
    let before = cpu_used(libc::RUSAGE_CHILDREN);
    let started = Instant::now();
    let status = Command::new(env!("CARGO_BIN_EXE_ratchet"))
        .args(["run", "--until-drained", "--config"])
        .args([&config, &topology])
        .stderr(File::create(folder.path().join("log")).expect("a log"))
        .status()
        .expect("ratchet starts");
    let wall = started.elapsed();
    assert!(status.success(), "{}", std::fs::read_to_string(folder.path().join("log")).unwrap_or_default());
    Taken { wall, cpu: cpu_used(libc::RUSAGE_CHILDREN) - before }
}

fn write(path: &Path, text: &str) {
    File::create(path).and_then(|mut file| file.write_all(text.as_bytes())).expect("a file in a new folder");
}

/// User and system time of this process or of its ended children.
fn cpu_used(of: libc::c_int) -> Duration {
    // SAFETY: `rusage` is plain numbers, for which all zeroes are fine, and `getrusage` fills it in.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        libc::getrusage(of, &raw mut usage);
        usage
    };
    let time = |time: libc::timeval| Duration::new(time.tv_sec as u64, time.tv_usec as u32 * 1000);
    time(usage.ru_utime) + time(usage.ru_stime)
}
