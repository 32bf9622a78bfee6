//! Apache Kafka: the one that a test binary starts, through `cluster::kafka` and rust-rdkafka's own clients.

use std::collections::BTreeMap;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ratchet::cluster::Queues;
use ratchet::cluster::kafka::{DataPath, Kafka};
use ratchet::record::TopicPartition;
use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions};
use rdkafka::client::DefaultClientContext;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::Message;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer};
use rdkafka::{ClientConfig, Offset, TopicPartitionList};

use crate::differential::ground::{Ground, Pair};
use crate::differential::play::Play;
use crate::differential::script::Script;
use crate::differential::support;

/// How long a healthy broker may take on a busy machine.
const PATIENCE: Duration = Duration::from_secs(30);

static BEGAN: LazyLock<Instant> = LazyLock::new(Instant::now);

/// The observations for a script.
pub fn observe(script: &Script) -> Vec<String> {
    // Long enough to be seen open while other tests run.
    let (long, brief) = (cluster("30000"), cluster("8000"));
    Play::new(long, brief, Real::new()).run(script)
}

/// A cluster whose producers' transactions have this timeout, on the data path that the tests are to use.
fn cluster(timeout_ms: &str) -> Kafka {
    let map = |pairs: &[(&str, &str)]| -> BTreeMap<String, String> {
        pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
    };
    let common = map(&[("bootstrap.servers", support::bootstrap())]);
    let path = if support::is_on_the_wire() { DataPath::Wire } else { DataPath::Librdkafka };
    let producer = map(&[("transaction.timeout.ms", timeout_ms)]);
    Kafka::within(Queues::default(), path, &common, &map(&[]), &producer).expect("properties that are fine")
}

fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", support::bootstrap());
    config
}

/// A client that reads, or speaks for a group.
fn reader_config(group: &str) -> ClientConfig {
    let mut config = config();
    config.set("group.id", group).set("enable.auto.commit", "false");
    config
}

fn within<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let began = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(began.elapsed() < PATIENCE, "waited in vain for {what}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

fn list(of: &TopicPartition, offset: Offset, text: &str) -> TopicPartitionList {
    let mut list = TopicPartitionList::new();
    let mut element = list.add_partition(&of.topic, of.partition);
    element.set_offset(offset).expect("an offset");
    element.set_metadata(text);
    list
}

struct Real {
    /// Makes this script's names unique.
    mark: String,
    committed: BaseConsumer,
    uncommitted: BaseConsumer,
    admin: AdminClient<DefaultClientContext>,
    tokio: tokio::runtime::Runtime,
    foreign: BTreeMap<String, BaseProducer>,
}

impl Real {
    fn new() -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().expect("a clock").subsec_nanos();
        let mark = format!("{}-{nanos}-{}", std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let reader = |isolation: &str| -> BaseConsumer {
            reader_config("unused").set("isolation.level", isolation).create().expect("a consumer")
        };
        Self {
            mark,
            committed: reader("read_committed"),
            uncommitted: reader("read_uncommitted"),
            admin: config().create().expect("an admin client"),
            tokio: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
            foreign: BTreeMap::new(),
        }
    }

    fn write_by(producer: &BaseProducer, to: &TopicPartition, (key, value): Pair<'_>) {
        let mut record: BaseRecord<'_, str, str> = BaseRecord::to(&to.topic).partition(to.partition);
        (record.key, record.payload) = (key, value);
        producer.send(record).map_err(|(error, _)| error).expect("room in the queue");
        producer.flush(PATIENCE).expect("the record is written");
    }

    fn options() -> AdminOptions {
        AdminOptions::new().request_timeout(Some(PATIENCE)).operation_timeout(Some(PATIENCE))
    }

    /// How many partitions a topic has; from the list of all topics, so that the request creates none.
    fn partitions(&self, topic: &str) -> usize {
        let all = within("metadata", || self.uncommitted.fetch_metadata(None, PATIENCE).ok());
        all.topics().iter().find(|known| known.name() == topic).map_or(0, |known| known.partitions().len())
    }
}

impl Ground for Real {
    fn name(&self, name: &str) -> String {
        format!("{name}-{}", self.mark)
    }

    fn now_ms(&self) -> u64 {
        BEGAN.elapsed().as_millis() as u64
    }

    fn pause(&self, ms: u64) {
        std::thread::sleep(Duration::from_millis(ms));
    }

    fn write(&self, to: &TopicPartition, records: &[Pair<'_>]) {
        let producer: BaseProducer = config().set("linger.ms", "0").create().expect("a producer");
        records.iter().for_each(|record| Self::write_by(&producer, to, *record));
    }

    fn read_uncommitted(&self, from: &TopicPartition) -> Vec<(i64, Option<String>)> {
        let mut config = reader_config("unused");
        config.set("isolation.level", "read_uncommitted").set("enable.partition.eof", "true");
        let consumer: BaseConsumer = config.create().expect("a consumer");
        consumer.assign(&list(from, Offset::Beginning, "")).expect("assign");
        let mut read = Vec::new();
        loop {
            match consumer.poll(PATIENCE).expect("an end of the partition") {
                Err(KafkaError::PartitionEOF(_)) => return read,
                Err(error) => panic!("{error}"),
                Ok(message) => {
                    let value = message.payload().map(|value| String::from_utf8_lossy(value).into_owned());
                    read.push((message.offset(), value));
                }
            }
        }
    }

    fn bounds(&self, of: &TopicPartition) -> [i64; 3] {
        let ends = |consumer: &BaseConsumer| {
            within("the ends", || consumer.fetch_watermarks(&of.topic, of.partition, PATIENCE).ok())
        };
        // In this order: a transaction that ends in between still looks open, and never ended too early.
        let (start, stable) = ends(&self.committed);
        [start, stable, ends(&self.uncommitted).1]
    }

    fn delete_records(&self, of: &TopicPartition, upto: i64) {
        let list = list(of, Offset::Offset(upto), "");
        let response = self.tokio.block_on(self.admin.delete_records(&list, &Self::options())).expect("a response");
        assert!(response.elements().iter().all(|element| element.error().is_ok()), "{response:?}");
    }

    fn delete_topic(&self, topic: &str) {
        let responses = self.tokio.block_on(self.admin.delete_topics(&[topic], &Self::options())).expect("a response");
        assert_eq!(responses, [Ok(topic.to_owned())]);
        within("the topic to be gone", || (self.partitions(topic) == 0).then_some(()));
    }

    fn grow(&self, topic: &str, partitions: i32) {
        let more = NewPartitions::new(topic, partitions as usize);
        let responses =
            self.tokio.block_on(self.admin.create_partitions(&[more], &Self::options())).expect("a response");
        assert_eq!(responses, [Ok(topic.to_owned())]);
        within("the partitions", || (self.partitions(topic) == partitions as usize).then_some(()));
    }

    fn compact(&self, _of: &TopicPartition, _upto: i64) {
        // The broker's cleaner runs twice a second.
    }

    fn delete_group(&self, group: &str) -> bool {
        let responses = self.tokio.block_on(self.admin.delete_groups(&[group], &Self::options()));
        responses.is_ok_and(|responses| responses.iter().all(Result::is_ok))
    }

    fn set_offset(&self, group: &str, of: &TopicPartition, offset: i64, text: &str) -> bool {
        let consumer: BaseConsumer = reader_config(group).create().expect("a consumer");
        consumer.commit(&list(of, Offset::Offset(offset), text), CommitMode::Sync).is_ok()
    }

    fn foreign_begin(&mut self, id: &str) {
        let mut config = config();
        config.set("transactional.id", id).set("transaction.timeout.ms", "60000").set("message.timeout.ms", "60000");
        let producer: BaseProducer = config.create().expect("a producer");
        producer.init_transactions(PATIENCE).expect("an id");
        producer.begin_transaction().expect("it begins");
        self.foreign.insert(id.to_owned(), producer);
    }

    fn foreign_write(&mut self, id: &str, to: &TopicPartition, record: Pair<'_>) {
        Self::write_by(&self.foreign[id], to, record);
    }

    fn foreign_offset(&mut self, id: &str, group: &str, of: &TopicPartition, offset: i64, text: &str) {
        let consumer: BaseConsumer = reader_config(group).create().expect("a consumer");
        let proof = consumer.group_metadata().expect("a group's metadata");
        let list = list(of, Offset::Offset(offset), text);
        self.foreign[id].send_offsets_to_transaction(&list, &proof, PATIENCE).expect("brokers take them");
    }

    fn foreign_end(&mut self, id: &str, commit: bool) {
        let producer = self.foreign.remove(id).expect("it was started");
        let ended = if commit { producer.commit_transaction(PATIENCE) } else { producer.abort_transaction(PATIENCE) };
        ended.expect("it is open");
    }
}
