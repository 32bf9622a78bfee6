//! The tests' own view of Kafka, independent of ratchet's: topics, plain and transactional writers (`writer`), rights
//! (`acls`), a reader that stops at the end, and what a group has committed.

mod acls;
mod policy;
mod writer;

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use rdkafka::admin::{AdminClient, AdminOptions, NewPartitions, NewTopic, TopicReplication, TopicResult};
use rdkafka::client::DefaultClientContext;
use rdkafka::config::ClientConfig;
use rdkafka::consumer::{BaseConsumer, CommitMode, Consumer};
use rdkafka::error::KafkaError;
use rdkafka::message::{BorrowedMessage, Headers, Message};
use rdkafka::metadata::MetadataPartition;
use rdkafka::types::RDKafkaErrorCode;
use rdkafka::{Offset, TopicPartitionList};

pub use acls::{Acl, Resource};
pub use writer::{Transaction, Writer};

use crate::kafka;
use crate::until::{DEADLINE, within};

/// Timeout of a request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(20);
/// Timeout of a request that is repeated: the broker queried may be gone or frozen.
const BRIEF_TIMEOUT: Duration = Duration::from_secs(2);

/// A record read from a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    pub offset: i64,
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Stored {
    /// The text of the last header of this name.
    pub fn header(&self, name: &str) -> Option<String> {
        let (_, value) = self.headers.iter().rev().find(|(n, _)| n == name)?;
        Some(String::from_utf8_lossy(value.as_deref()?).into_owned())
    }
}

/// A record to write.
#[derive(Clone, Debug, Default)]
pub struct Fresh {
    pub partition: i32,
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

impl Fresh {
    pub fn new(partition: i32, key: &str, value: impl Into<Vec<u8>>) -> Fresh {
        Fresh { partition, key: Some(key.as_bytes().to_vec()), value: Some(value.into()), ..Fresh::default() }
    }

    pub fn at(mut self, timestamp: i64) -> Fresh {
        self.timestamp = Some(timestamp);
        self
    }

    pub fn header(mut self, name: &str, value: &[u8]) -> Fresh {
        self.headers.push((name.to_owned(), Some(value.to_vec())));
        self
    }
}

/// The offsets of a partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The first retained offset.
    pub start: i64,
    /// The last stable offset: what a read_committed reader can reach.
    pub stable: i64,
    /// The high watermark.
    pub end: i64,
}

/// A connection to one Kafka.
pub struct Kafka {
    brokers: String,
    uncommitted: BaseConsumer,
    committed: BaseConsumer,
    admin: AdminClient<DefaultClientContext>,
    tokio: tokio::runtime::Runtime,
}

impl Kafka {
    /// The Kafka that the tests share.
    pub fn shared() -> Kafka {
        Kafka::at(kafka::bootstrap())
    }

    pub fn at(brokers: &str) -> Kafka {
        let reader = |isolation: &str| -> BaseConsumer {
            let mut config = client(brokers);
            config.set("isolation.level", isolation).set("group.id", "unused");
            config.create().expect("a consumer")
        };
        Kafka {
            brokers: brokers.to_owned(),
            uncommitted: reader("read_uncommitted"),
            committed: reader("read_committed"),
            admin: client(brokers).create().expect("an admin client"),
            tokio: tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"),
        }
    }

    pub fn brokers(&self) -> &str {
        &self.brokers
    }

    pub fn create(&self, topic: &str, partitions: i32, settings: &[(&str, &str)]) {
        self.create_on(topic, partitions, TopicReplication::Fixed(1), settings);
    }

    /// Creates a topic with this many replicas of each partition.
    pub fn create_replicated(&self, topic: &str, partitions: i32, replicas: i32, settings: &[(&str, &str)]) {
        self.create_on(topic, partitions, TopicReplication::Fixed(replicas), settings);
    }

    /// Creates a topic of one partition with replicas on these brokers, led by the first.
    pub fn create_led(&self, topic: &str, brokers: &[i32], settings: &[(&str, &str)]) {
        self.create_on(topic, 1, TopicReplication::Variable(&[brokers]), settings);
    }

    /// Creates a topic with one partition on each of these brokers.
    pub fn create_placed(&self, topic: &str, brokers: &[i32], settings: &[(&str, &str)]) {
        let placed: Vec<&[i32]> = brokers.chunks(1).collect();
        self.create_on(topic, placed.len() as i32, TopicReplication::Variable(&placed), settings);
    }

    fn create_on(&self, topic: &str, partitions: i32, replication: TopicReplication<'_>, settings: &[(&str, &str)]) {
        let mut new = NewTopic::new(topic, partitions, replication);
        new.config.extend_from_slice(settings);
        // On a busy machine a broker may be fenced for a moment, and is then none that could have a replica.
        let results = within(DEADLINE, &format!("enough brokers for topic {topic}"), || {
            let results = self.tokio.block_on(self.admin.create_topics([&new], &admin_options()));
            let results = results.expect("create_topics");
            let lacks_brokers =
                |result: &TopicResult| matches!(result, Err((_, RDKafkaErrorCode::InvalidReplicationFactor)));
            (!results.iter().any(lacks_brokers)).then_some(results)
        });
        assert_eq!(results, [Ok(topic.to_owned())]);
        within(DEADLINE, &format!("topic {topic} to have {partitions} partitions with leaders"), || {
            (self.partitions(topic) == Some(partitions) && (0..partitions).all(|p| self.try_bounds(topic, p).is_ok()))
                .then_some(())
        });
    }

    /// Deletes a topic and waits until it is gone.
    pub fn delete(&self, topic: &str) {
        let results = self.tokio.block_on(self.admin.delete_topics(&[topic], &admin_options())).expect("delete_topics");
        assert_eq!(results, [Ok(topic.to_owned())]);
        within(DEADLINE, &format!("topic {topic} to be gone"), || self.partitions(topic).is_none().then_some(()));
    }

    /// Adds partitions to a topic, up to this count.
    pub fn add_partitions(&self, topic: &str, count: i32) {
        let wanted = NewPartitions::new(topic, count as usize);
        let results =
            self.tokio.block_on(self.admin.create_partitions([&wanted], &admin_options())).expect("create_partitions");
        assert_eq!(results, [Ok(topic.to_owned())]);
        within(DEADLINE, &format!("topic {topic} to have {count} partitions"), || {
            (self.partitions(topic) == Some(count) && (0..count).all(|p| self.try_bounds(topic, p).is_ok()))
                .then_some(())
        });
    }

    /// Whether every partition of every topic, Kafka's own included, has all its replicas in sync.
    pub fn is_in_sync(&self) -> bool {
        let Ok(all) = self.uncommitted.fetch_metadata(None, REQUEST_TIMEOUT) else { return false };
        let mut partitions = all.topics().iter().flat_map(|topic| topic.partitions());
        partitions.all(|p| p.leader() >= 0 && p.isr().len() == p.replicas().len())
    }

    /// The leader of each partition of a topic; empty if no broker responds.
    pub fn leaders(&self, topic: &str) -> Vec<i32> {
        self.of_partitions(topic, |partition| partition.leader())
    }

    /// The in-sync replicas of each partition of a topic; empty if no broker responds.
    pub fn in_sync(&self, topic: &str) -> Vec<Vec<i32>> {
        self.of_partitions(topic, |partition| partition.isr().to_vec())
    }

    fn of_partitions<T>(&self, topic: &str, look: impl Fn(&MetadataPartition) -> T) -> Vec<T> {
        // A new client: one that has met a broker before it froze may query that one again and again.
        let querying: BaseConsumer = client(&self.brokers).create().expect("a consumer");
        let Ok(all) = querying.fetch_metadata(None, BRIEF_TIMEOUT) else { return Vec::new() };
        let found = all.topics().iter().find(|t| t.name() == topic);
        found.map_or_else(Vec::new, |t| t.partitions().iter().map(look).collect())
    }

    pub fn delete_group(&self, group: &str) {
        let results = self.tokio.block_on(self.admin.delete_groups(&[group], &admin_options())).expect("delete_groups");
        assert_eq!(results, [Ok(group.to_owned())]);
    }

    /// Removes a partition's records below `offset`, as retention would.
    pub fn delete_records(&self, topic: &str, partition: i32, offset: i64) {
        let mut list = TopicPartitionList::new();
        list.add_partition_offset(topic, partition, Offset::Offset(offset)).expect("an offset");
        let result = self.tokio.block_on(self.admin.delete_records(&list, &admin_options())).expect("delete_records");
        assert!(result.elements().iter().all(|e| e.error().is_ok()), "{result:?}");
    }

    /// The number of a topic's partitions; `None` if there is no such topic.
    pub fn partitions(&self, topic: &str) -> Option<i32> {
        // From the list of all topics: querying a single one might create it.
        let all = self.uncommitted.fetch_metadata(None, REQUEST_TIMEOUT).expect("the broker responds");
        let found = all.topics().iter().find(|t| t.name() == topic)?;
        (found.error().is_none() && !found.partitions().is_empty()).then_some(found.partitions().len() as i32)
    }

    pub fn bounds(&self, topic: &str, partition: i32) -> Bounds {
        within(REQUEST_TIMEOUT, &format!("the ends of {topic}:{partition}"), || self.try_bounds(topic, partition).ok())
    }

    fn try_bounds(&self, topic: &str, partition: i32) -> Result<Bounds, KafkaError> {
        // In this order: a transaction that ends in between may still look open, but an open one never looks ended.
        let (start, stable) = self.committed.fetch_watermarks(topic, partition, REQUEST_TIMEOUT)?;
        let (_, end) = self.uncommitted.fetch_watermarks(topic, partition, REQUEST_TIMEOUT)?;
        Ok(Bounds { start, stable, end })
    }

    /// Whether a transaction is open on any partition of a topic, as far as can be seen from outside.
    pub fn has_open_transaction(&self, topic: &str) -> bool {
        (0..self.partitions(topic).unwrap_or(0)).any(|p| {
            let bounds = self.bounds(topic, p);
            bounds.stable < bounds.end
        })
    }

    /// Waits until no transaction is open on a topic.
    pub fn await_settled(&self, topic: &str) {
        within(DEADLINE, &format!("the transactions on {topic} to end"), || {
            (!self.has_open_transaction(topic)).then_some(())
        });
    }

    /// All committed records of a topic, by partition. Waits until no transaction is open on it.
    pub fn read(&self, topic: &str) -> BTreeMap<i32, Vec<Stored>> {
        self.await_settled(topic);
        self.read_visible(topic)
    }

    /// The records that a read_committed reader sees at present, by partition.
    pub fn read_visible(&self, topic: &str) -> BTreeMap<i32, Vec<Stored>> {
        let (reader, count) = self.reader(topic);
        let mut records: BTreeMap<i32, Vec<Stored>> = (0..count).map(|p| (p, Vec::new())).collect();
        let mut unread: Vec<i32> = (0..count).collect();
        let deadline = Instant::now() + 2 * DEADLINE;
        while !unread.is_empty() {
            assert!(Instant::now() < deadline, "reading {topic}: partitions {unread:?} did not end");
            match reader.poll(Duration::from_millis(200)) {
                Some(Ok(message)) => records.entry(message.partition()).or_default().push(stored(&message)),
                Some(Err(KafkaError::PartitionEOF(partition))) => unread.retain(|&p| p != partition),
                Some(Err(e)) if passing(&e) => {}
                Some(Err(e)) => panic!("reading {topic}: {e}"),
                None => {}
            }
        }
        records
    }

    /// A reader that follows a topic from its start.
    pub fn follow(&self, topic: &str) -> Follower {
        Follower { reader: self.reader(topic).0, topic: topic.to_owned() }
    }

    /// A read_committed reader at the start of a topic, and the topic's number of partitions.
    fn reader(&self, topic: &str) -> (BaseConsumer, i32) {
        let count = self.partitions(topic).unwrap_or_else(|| panic!("there is no topic {topic}"));
        let mut config = client(&self.brokers);
        config.set("isolation.level", "read_committed").set("group.id", "unused");
        config.set("enable.partition.eof", "true").set("fetch.queue.backoff.ms", "20");
        config.set("check.crcs", "true").set("enable.auto.commit", "false");
        let reader: BaseConsumer = config.create().expect("a consumer");
        let mut list = TopicPartitionList::new();
        for partition in 0..count {
            list.add_partition_offset(topic, partition, Offset::Beginning).expect("an offset");
        }
        reader.assign(&list).expect("assign");
        (reader, count)
    }

    /// What a group has committed for a partition, without pending transactions.
    pub fn committed(&self, group: &str, topic: &str, partition: i32) -> Option<(i64, String)> {
        self.group(group).committed(topic, partition)
    }

    /// A group, for repeated queries.
    pub fn group(&self, group: &str) -> Group {
        let mut config = client(&self.brokers);
        config.set("group.id", group).set("enable.auto.commit", "false").set("isolation.level", "read_uncommitted");
        // A request to a frozen broker is retried with another one before the test gives up.
        config.set("socket.timeout.ms", "10000");
        Group { name: group.to_owned(), consumer: config.create().expect("a consumer") }
    }

    /// Makes the broker create its internal topics, so that they are on the brokers that exist now.
    pub fn warm_up(&self, topic: &str) {
        self.transaction("warm-up", DEADLINE).abort();
        self.group("warm-up").set(topic, 0, 0, "");
    }

    /// A plain writer.
    pub fn writer(&self) -> Writer {
        self.writer_with(&[])
    }

    /// The same with further properties, which override the usual ones.
    pub fn writer_with(&self, properties: &[(&str, &str)]) -> Writer {
        let mut config = client(&self.brokers);
        config.set("enable.idempotence", "true").set("linger.ms", "2").set("queue.buffering.max.messages", "1000000");
        for (name, value) in properties {
            config.set(*name, *value);
        }
        Writer::new(&config)
    }

    /// Writes records and waits until they are stored.
    pub fn send(&self, topic: &str, records: impl IntoIterator<Item = Fresh>) {
        let writer = self.writer();
        for record in records {
            writer.send(topic, &record);
        }
        writer.flush();
    }

    /// Opens a transaction; one that is open under this id is aborted.
    pub fn transaction(&self, id: &str, timeout: Duration) -> Transaction {
        let mut config = client(&self.brokers);
        config.set("transactional.id", id).set("transaction.timeout.ms", timeout.as_millis().to_string());
        config.set("message.timeout.ms", timeout.as_millis().to_string());
        Transaction::begin(Writer::new(&config), &self.brokers)
    }
}

/// A reader of a growing topic.
pub struct Follower {
    reader: BaseConsumer,
    topic: String,
}

impl Follower {
    /// The committed records that arrived since the last call.
    pub fn look(&mut self) -> Vec<Stored> {
        let mut arrived = Vec::new();
        while let Some(polled) = self.reader.poll(Duration::ZERO) {
            match polled {
                Ok(message) => arrived.push(stored(&message)),
                Err(KafkaError::PartitionEOF(_)) => {}
                Err(e) if passing(&e) => {}
                Err(e) => panic!("following {}: {e}", self.topic),
            }
        }
        arrived
    }
}

/// A consumer group, seen from outside.
pub struct Group {
    name: String,
    consumer: BaseConsumer,
}

impl Group {
    pub fn committed(&self, topic: &str, partition: i32) -> Option<(i64, String)> {
        let mut list = TopicPartitionList::new();
        list.add_partition(topic, partition);
        let result = within(DEADLINE, &format!("the committed offset of {}", self.name), || {
            let result = self.consumer.committed_offsets(list.clone(), BRIEF_TIMEOUT).ok()?;
            result.elements().iter().all(|e| e.error().is_ok()).then_some(result)
        });
        let element = result.elements().into_iter().next().expect("one partition was queried");
        let Offset::Offset(offset) = element.offset() else { return None };
        Some((offset, element.metadata().to_owned()))
    }

    /// Sets the group's offset, as an administrator would. Waits until the group is empty.
    pub fn set(&self, topic: &str, partition: i32, offset: i64, metadata: &str) {
        let mut list = TopicPartitionList::new();
        let mut element = list.add_partition(topic, partition);
        element.set_offset(Offset::Offset(offset)).expect("an offset");
        element.set_metadata(metadata);
        within(DEADLINE, &format!("group {} to be empty and take an offset", self.name), || {
            self.consumer.commit(&list, CommitMode::Sync).ok()
        });
    }
}

fn client(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("retry.backoff.ms", "20").set("reconnect.backoff.max.ms", "500");
    config.set("topic.metadata.refresh.interval.ms", "5000").set("log_level", "3");
    // The tests may send whatever brokers accept: the client's own limit is lower.
    config.set("message.max.bytes", "20000000");
    // And read it, whatever it unpacks to.
    config.set("receive.message.max.bytes", "1000000000");
    config
}

fn admin_options() -> AdminOptions {
    AdminOptions::new().request_timeout(Some(REQUEST_TIMEOUT)).operation_timeout(Some(REQUEST_TIMEOUT))
}

/// Whether a reader's error is transient.
fn passing(error: &KafkaError) -> bool {
    use RDKafkaErrorCode::{AllBrokersDown, BrokerTransportFailure, OperationTimedOut};
    matches!(error.rdkafka_error_code(), Some(AllBrokersDown | BrokerTransportFailure | OperationTimedOut))
}

fn stored(message: &BorrowedMessage<'_>) -> Stored {
    let headers = message.headers().map_or_else(Vec::new, |headers| {
        headers.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect()
    });
    Stored {
        offset: message.offset(),
        timestamp: message.timestamp().to_millis(),
        key: message.key().map(<[u8]>::to_vec),
        value: message.payload().map(<[u8]>::to_vec),
        headers,
    }
}
