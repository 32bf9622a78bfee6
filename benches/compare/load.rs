//! Writes an input once, before anything reads it.

use std::time::Duration;

use rdkafka::error::KafkaError;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::types::RDKafkaErrorCode;

use crate::broker::{Broker, client};
use crate::failure::{Context as _, Outcome};
use crate::generate::{Generated, PARTITIONS};
use crate::progress::Screen;

/// How long produced records may take to arrive.
const FLUSH_WAIT: Duration = Duration::from_secs(120);
/// How many records the bar moves at a time.
const STEP: u64 = 10_000;

/// A complete input.
#[derive(Clone, Debug)]
pub struct Input {
    /// The topic.
    pub topic: String,
    /// Its records.
    pub records: u64,
    /// How many of them a contender that decides has to forward.
    pub fresh: u64,
}

/// Creates the topic and fills it with `records` records of `generator`.
pub fn input(
    broker: &Broker,
    progress: &Screen,
    topic: &str,
    records: u64,
    generator: impl FnMut(&mut Generated),
) -> Outcome<Input> {
    broker.create(topic, PARTITIONS, &[])?;
    append(broker, progress, topic, records, generator)
}

/// Appends `records` records of `generator` to an existing topic.
pub fn append(
    broker: &Broker,
    progress: &Screen,
    topic: &str,
    records: u64,
    mut generator: impl FnMut(&mut Generated),
) -> Outcome<Input> {
    let producer: BaseProducer = client(broker.bootstrap())
        .set("linger.ms", "20")
        .set("batch.size", "1000000")
        .set("queue.buffering.max.messages", "200000")
        .set("enable.idempotence", "true")
        .set("delivery.report.only.error", "true")
        .create()?;
    let mut step = progress.step(format!("writing {topic}"), records);
    let (mut made, mut fresh) = (Generated::default(), 0);
    for number in 0..records {
        generator(&mut made);
        fresh += u64::from(made.fresh);
        let mut record = BaseRecord::to(topic).partition(made.partition).key(&made.key).payload(&made.value);
        while let Err((error, back)) = producer.send(record) {
            if !matches!(error, KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull)) {
                return Err(error).context(format_args!("writing {topic}"));
            }
            producer.poll(Duration::from_millis(5));
            record = back;
        }
        if number % STEP == 0 {
            step.at(number);
            producer.poll(Duration::ZERO);
        }
    }
    producer.flush(FLUSH_WAIT).context(format_args!("writing {topic}"))?;
    Ok(Input { topic: topic.to_owned(), records, fresh })
}
