//! `plain`: a pass-through as most people write it with librdkafka: poll, send, a transaction every 100 ms.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::consumer::{BaseConsumer, Consumer as _};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::{Offset, TopicPartitionList};

use crate::broker::client;
use crate::failure::Outcome;
use crate::generate::PARTITIONS;
use crate::spec::Spec;

/// How long a call may wait for the broker.
const CALL: Duration = Duration::from_secs(30);

/// Runs until `stop`.
pub fn run(spec: &Spec, stop: &AtomicBool) -> Outcome<()> {
    let consumer: BaseConsumer = client(&spec.brokers)
        .set("group.id", &spec.group)
        .set("enable.auto.commit", "false")
        .set("auto.offset.reset", "earliest")
        .set("fetch.queue.backoff.ms", "20")
        .set("queued.min.messages", "1000000")
        .create()?;
    let mut assignment = TopicPartitionList::new();
    for partition in 0..PARTITIONS {
        assignment.add_partition_offset(&spec.input, partition, Offset::Stored)?;
    }
    let producer: BaseProducer = client(&spec.brokers)
        .set("transactional.id", &spec.group)
        .set("linger.ms", "5")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "1000000")
        .create()?;
    producer.init_transactions(CALL)?;
    consumer.assign(&assignment)?;
    while !stop.load(Ordering::Relaxed) {
        producer.begin_transaction()?;
        let (since, mut done) = (Instant::now(), 0);
        while since.elapsed() < Duration::from_millis(spec.commit_ms) {
            let Some(message) = consumer.poll(Duration::from_millis(5)) else { continue };
            let message = message?;
            let mut record = BaseRecord::to(&spec.output)
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
        if let Some(group) = consumer.group_metadata() {
            producer.send_offsets_to_transaction(&consumer.position()?, &group, CALL)?;
        }
        producer.commit_transaction(CALL)?;
    }
    Ok(())
}
