//! The tests' own plain and transactional writers.

use std::ffi::CString;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use rdkafka::bindings::rd_kafka_brokers_add;
use rdkafka::client::ClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{Header, Message, OwnedHeaders};
use rdkafka::producer::{BaseProducer, BaseRecord, DeliveryResult, Producer, ProducerContext};
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

use super::{Fresh, REQUEST_TIMEOUT, client};
use crate::until::{DEADLINE, within};

/// What happened in the background.
#[derive(Default)]
struct Background {
    /// The first failed delivery: a test that writes less than it believes proves nothing.
    failed: Mutex<Option<String>>,
    all_brokers_are_down: AtomicBool,
}

impl ClientContext for Background {
    fn error(&self, error: KafkaError, _reason: &str) {
        let is_all = error.rdkafka_error_code() == Some(RDKafkaErrorCode::AllBrokersDown);
        self.all_brokers_are_down.fetch_or(is_all, Ordering::Relaxed);
    }
}

impl ProducerContext for Background {
    type DeliveryOpaque = ();

    fn delivery(&self, result: &DeliveryResult<'_>, (): ()) {
        if let Err((error, message)) = result {
            let mut first = self.failed.lock().expect("nobody panics with it");
            first.get_or_insert_with(|| format!("a record for {} was not written: {error}", message.topic()));
        }
    }
}

/// Writes records.
pub struct Writer {
    producer: BaseProducer<Background>,
    brokers: CString,
}

impl Writer {
    pub(super) fn new(config: &ClientConfig) -> Writer {
        let brokers = config.get("bootstrap.servers").expect("brokers are given");
        let brokers = CString::new(brokers).expect("names without NUL");
        Writer { producer: config.create_with_context(Background::default()).expect("a producer"), brokers }
    }

    pub fn send(&self, topic: &str, fresh: &Fresh) {
        let mut unsent = Some(record(topic, fresh));
        within(DEADLINE, "room in the test writer's queue", || match self.producer.send(unsent.take()?) {
            Ok(()) => Some(()),
            Err((KafkaError::MessageProduction(RDKafkaErrorCode::QueueFull), record)) => {
                self.serve(Duration::from_millis(10));
                unsent = Some(record);
                None
            }
            Err((e, _)) => panic!("writing to {topic}: {e}"),
        });
    }

    pub fn poll(&self) {
        self.serve(Duration::ZERO);
    }

    /// Waits until everything sent is stored.
    pub fn flush(&self) {
        const STEP: Duration = Duration::from_millis(100);
        let deadline = Instant::now() + 2 * DEADLINE;
        while let Err(error) = self.producer.flush(STEP) {
            self.serve(Duration::ZERO);
            let (waiting, fatal) = (self.producer.in_flight_count(), self.producer.client().fatal_error());
            let gives_up = fatal.is_some() || Instant::now() >= deadline;
            assert!(!gives_up, "{waiting} records were not written: {error}; a fatal error before: {fatal:?}");
        }
        let failed = self.producer.context().failed.lock().expect("nobody panics with it").clone();
        assert_eq!(failed, None);
    }

    /// Serves what happens in the background. librdkafka gives up every broker that it knows when a response lists none,
    /// and may never look for others again (its issue 5301).
    fn serve(&self, wait: Duration) {
        self.producer.poll(wait);
        if self.producer.context().all_brokers_are_down.swap(false, Ordering::Relaxed) {
            // SAFETY: the client is alive, and so is the string.
            unsafe { rd_kafka_brokers_add(self.producer.client().native_ptr(), self.brokers.as_ptr()) };
        }
    }
}

fn record<'a>(topic: &'a str, fresh: &'a Fresh) -> BaseRecord<'a, [u8], [u8]> {
    let headers = fresh
        .headers
        .iter()
        .fold(OwnedHeaders::new(), |headers, (key, value)| headers.insert(Header { key, value: value.as_ref() }));
    let mut record: BaseRecord<'_, [u8], [u8]> = BaseRecord::to(topic).partition(fresh.partition);
    record.key = fresh.key.as_deref();
    record.payload = fresh.value.as_deref();
    record.timestamp = fresh.timestamp;
    if !fresh.headers.is_empty() {
        record.headers = Some(headers);
    }
    record
}

/// An open transaction of a test.
pub struct Transaction {
    writer: Writer,
    brokers: String,
}

impl Transaction {
    pub(super) fn begin(writer: Writer, brokers: &str) -> Transaction {
        writer.producer.init_transactions(REQUEST_TIMEOUT).expect("init_transactions");
        writer.producer.begin_transaction().expect("begin_transaction");
        Transaction { writer, brokers: brokers.to_owned() }
    }

    /// Writes records in the transaction and waits until they are stored.
    pub fn send(&self, topic: &str, records: impl IntoIterator<Item = Fresh>) {
        for record in records {
            self.writer.send(topic, &record);
        }
        self.writer.flush();
    }

    /// Writes a record in the transaction, unless another client has taken over its id.
    pub fn send_if_not_fenced(&self, topic: &str, fresh: &Fresh) {
        let producer = &self.writer.producer;
        let sent = producer.send(record(topic, fresh)).map_err(|(error, _)| error);
        if let Err(error) = sent.and_then(|()| producer.flush(2 * DEADLINE)) {
            let fencing = [RDKafkaErrorCode::Fenced, RDKafkaErrorCode::Fatal, RDKafkaErrorCode::PurgeQueue];
            assert!(error.rdkafka_error_code().is_some_and(|code| fencing.contains(&code)), "{error}");
        }
    }

    /// Adds a group's offset to the transaction, which even a client that never joined the group may.
    pub fn offset(&self, group: &str, topic: &str, partition: i32, offset: i64, metadata: &str) {
        let mut config = client(&self.brokers);
        let consumer: BaseConsumer = config.set("group.id", group).create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        let mut element = list.add_partition(topic, partition);
        element.set_offset(Offset::Offset(offset)).expect("an offset");
        element.set_metadata(metadata);
        let proof = consumer.group_metadata().expect("a group's metadata");
        self.writer
            .producer
            .send_offsets_to_transaction(&list, &proof, REQUEST_TIMEOUT)
            .expect("send_offsets_to_transaction");
    }

    pub fn commit(self) {
        self.writer.producer.commit_transaction(REQUEST_TIMEOUT).expect("commit_transaction");
    }

    pub fn abort(self) {
        self.writer.producer.abort_transaction(REQUEST_TIMEOUT).expect("abort_transaction");
    }

    /// Disappears like a killed process: the transaction stays open.
    pub fn die(self) {
        drop(self.writer);
    }
}
