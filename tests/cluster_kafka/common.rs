//! What the tests share: a cluster, topics and groups of their own, and independent clients.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use ratchet::cluster::kafka::{Batch, DataPath, Kafka, Member, Producer};
use ratchet::cluster::{
    Cluster, CommittedOffset, Error, GroupEvent, Member as _, Message, NewTopic, OffsetCommit, Producer as _, Queues,
    RecordBatch, Ticket,
};
use ratchet::record::{Headers, TopicPartition};
use rdkafka::ClientConfig;
use rdkafka::consumer::{BaseConsumer, Consumer};
use rdkafka::message::Message as _;
use rdkafka::producer::{BaseProducer, BaseRecord, Producer as _};
use rdkafka::topic_partition_list::Offset;

use crate::kafka;

/// Long enough for anything that a healthy broker does on a busy machine.
pub const PATIENCE: Duration = Duration::from_secs(30);
pub const STEP: Duration = Duration::from_millis(20);

pub fn map(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
    pairs.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

/// A cluster whose lanes read and write by what `RATCHET_TEST_DATA_PATH` says, or on the wire.
pub fn kafka(
    common: &BTreeMap<String, String>,
    consumer: &BTreeMap<String, String>,
    producer: &BTreeMap<String, String>,
) -> Result<Kafka, Error> {
    Kafka::within(Queues::default(), data_path(), common, consumer, producer)
}

/// Who reads and writes records.
pub fn data_path() -> DataPath {
    if kafka::is_on_the_wire() { DataPath::Wire } else { DataPath::Librdkafka }
}

pub fn cluster() -> Kafka {
    cluster_with(&[])
}

/// A cluster whose producers have further properties.
pub fn cluster_with(producer: &[(&str, &str)]) -> Kafka {
    kafka(&map(&[("bootstrap.servers", kafka::bootstrap())]), &map(&[]), &map(producer)).unwrap()
}

/// A name that no other test, in this or another run, has.
pub fn unique(what: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let nanos = std::time::SystemTime::UNIX_EPOCH.elapsed().unwrap().subsec_nanos();
    format!("{what}-{}-{nanos}-{count}", std::process::id())
}

pub fn topic(what: &str, partition_count: i32) -> Arc<str> {
    topic_with(what, partition_count, &[])
}

pub fn topic_with(what: &str, partition_count: i32, settings: &[(&str, &str)]) -> Arc<str> {
    let name = unique(what);
    create(&name, partition_count, settings);
    name.into()
}

/// A topic on a broker of the test's own.
pub fn topic_on(broker: &kafka::Broker, partition_count: i32, settings: &[(&str, &str)]) -> String {
    let name = unique("own");
    let settings: Vec<(&str, String)> = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let new = NewTopic { name: &name, partition_count, replication_factor: 1, settings: &settings };
    let own = map(&[("bootstrap.servers", &broker.bootstrap())]);
    self::kafka(&own, &map(&[]), &map(&[])).unwrap().create_topic(&new).unwrap();
    name
}

pub fn create(name: &str, partition_count: i32, settings: &[(&str, &str)]) {
    let settings: Vec<(&str, String)> = settings.iter().map(|(name, value)| (*name, (*value).to_owned())).collect();
    let new = NewTopic { name, partition_count, replication_factor: 1, settings: &settings };
    cluster().create_topic(&new).unwrap();
}

pub fn at(topic: &Arc<str>, partition: i32) -> TopicPartition {
    TopicPartition::new(Arc::clone(topic), partition)
}

/// Waits until `look` returns something.
pub fn eventually<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let deadline = Instant::now() + PATIENCE;
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(Instant::now() < deadline, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(5));
    }
}

// Ratchet's clients

pub fn message<'a>(to: &'a TopicPartition, key: &'a str, value: &'a str) -> Message<'a> {
    Message {
        topic: &to.topic,
        partition: to.partition,
        key: Some(key.as_bytes()),
        value: Some(value.as_bytes()),
        headers: Headers::default(),
        timestamp: None,
    }
}

pub const SILENT: Ticket = Ticket { number: 0, report: false };

pub fn commit_of(partition: &TopicPartition, offset: i64, metadata: &str) -> OffsetCommit {
    OffsetCommit { partition: partition.clone(), committed: CommittedOffset { offset, metadata: metadata.to_owned() } }
}

/// Polls until partitions are assigned to the member, and accepts them; an empty assignment counts.
pub fn joined(member: &mut Member) -> Vec<TopicPartition> {
    let mut batch = Batch::default();
    eventually("an assignment", || match member.poll(&mut batch, 10, STEP).unwrap() {
        Some(GroupEvent::Assigned(partitions)) => {
            member.accept_assigned(&partitions).unwrap();
            Some(partitions)
        }
        other => {
            assert_eq!(other, None);
            None
        }
    })
}

/// A member, alone in a new group, that has been assigned all of `input` and has started none of it.
pub fn lone_member(cluster: &Kafka, input: &Arc<str>) -> (String, Member) {
    let group = unique("group");
    let mut member = cluster.member(&group, &[Arc::clone(input)]).unwrap();
    assert!(!joined(&mut member).is_empty());
    (group, member)
}

/// A record of a batch, copied: partition, offset and value.
pub type Seen = (i32, i64, String);

pub fn seen(batch: &Batch) -> Vec<Seen> {
    let records = (0..batch.len()).map(|index| batch.record(index));
    records.map(|r| (r.partition, r.offset, String::from_utf8(r.value.unwrap_or_default().to_vec()).unwrap())).collect()
}

/// Polls until `count` records have arrived.
pub fn poll_records(member: &mut Member, count: usize) -> Vec<Seen> {
    let (mut batch, mut all) = (Batch::default(), Vec::new());
    eventually("records", || {
        assert_eq!(member.poll(&mut batch, 1000, STEP).unwrap(), None);
        all.extend(seen(&batch));
        (all.len() >= count).then_some(())
    });
    all
}

/// Polls for `time` and asserts that nothing arrives.
pub fn poll_nothing(member: &mut Member, time: Duration) {
    let (mut batch, until) = (Batch::default(), Instant::now() + time);
    while Instant::now() < until {
        assert_eq!(member.poll(&mut batch, 1000, STEP).unwrap(), None);
        assert_eq!(seen(&batch), []);
    }
}

/// Writes records and offsets in one transaction and commits it.
pub fn commit(producer: &mut Producer, member: &Member, messages: &[Message<'_>], offsets: &[OffsetCommit]) {
    producer.begin().unwrap();
    for message in messages {
        producer.send(SILENT, message).unwrap();
    }
    producer.commit(offsets, member.metadata().unwrap()).unwrap();
}

// Independent clients

fn config() -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", kafka::bootstrap());
    config
}

/// How many members a broker counts in a group.
pub fn member_count(group: &str) -> usize {
    let client: BaseConsumer = config().create().unwrap();
    // A fresh broker has no coordinator for groups yet.
    let groups = eventually("a coordinator's response", || client.fetch_group_list(Some(group), PATIENCE).ok());
    groups.groups().iter().map(|group| group.members().len()).sum()
}

/// The epoch committed with an offset, once that offset is committed.
pub fn committed_epoch(group: &str, of: &TopicPartition, offset: i64) -> Option<i32> {
    let client: BaseConsumer = config().set("group.id", group).create().unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition(&of.topic, of.partition);
    let list = eventually("the offset to be committed", || {
        let list = client.committed_offsets(list.clone(), PATIENCE).ok()?;
        (list.elements()[0].offset() == Offset::Offset(offset)).then_some(list)
    });
    // SAFETY: the list is alive and has one element.
    let epoch = unsafe { rdkafka::bindings::rd_kafka_topic_partition_get_leader_epoch((*list.ptr()).elems) };
    (epoch >= 0).then_some(epoch)
}

/// Commits an offset with an epoch, -1 for none, in a group without members.
pub fn commit_in_epoch(group: &str, of: &TopicPartition, offset: i64, epoch: i32) {
    let client: BaseConsumer = config().set("group.id", group).create().unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(&of.topic, of.partition, Offset::Offset(offset)).unwrap();
    // SAFETY: the list is alive and has one element.
    unsafe { rdkafka::bindings::rd_kafka_topic_partition_set_leader_epoch((*list.ptr()).elems, epoch) };
    eventually("the group to take an offset", || client.commit(&list, rdkafka::consumer::CommitMode::Sync).ok());
}

/// Writes records outside any transaction.
pub fn write(to: &TopicPartition, values: impl IntoIterator<Item = String>) {
    let producer: BaseProducer = config().set("linger.ms", "5").create().unwrap();
    for (index, value) in values.into_iter().enumerate() {
        let key = format!("k{index}");
        let record = BaseRecord::to(&to.topic).partition(to.partition).key(&key).payload(&value);
        producer.send(record).map_err(|(error, _)| error).unwrap();
        if index % 50_000 == 49_999 {
            producer.flush(PATIENCE).unwrap();
        }
    }
    producer.flush(PATIENCE).unwrap();
}

/// A foreign transactional producer with a transaction open.
pub fn foreign_transaction(timeout_ms: u32) -> BaseProducer {
    let mut config = config();
    config.set("transactional.id", unique("foreign")).set("transaction.timeout.ms", timeout_ms.to_string());
    config.set("message.timeout.ms", timeout_ms.to_string());
    let producer: BaseProducer = config.create().unwrap();
    producer.init_transactions(PATIENCE).unwrap();
    producer.begin_transaction().unwrap();
    producer
}

/// Writes one record in a foreign producer's open transaction, and waits until it is written.
pub fn write_in(producer: &BaseProducer, to: &TopicPartition, value: &str) {
    let record = BaseRecord::to(&to.topic).partition(to.partition).key("foreign").payload(value);
    producer.send(record).map_err(|(error, _)| error).unwrap();
    producer.flush(PATIENCE).unwrap();
}

/// One record as another client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Read {
    pub offset: i64,
    pub timestamp: Option<i64>,
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
    pub headers: Vec<(String, Option<Vec<u8>>)>,
}

/// Waits until no transaction is open in a partition: a commit returns before its markers are written.
fn await_settled(partition: &TopicPartition) {
    let ends = ["read_committed", "read_uncommitted"].map(|isolation| {
        let client: BaseConsumer = config().set("isolation.level", isolation).create().unwrap();
        move || client.fetch_watermarks(&partition.topic, partition.partition, PATIENCE).unwrap().1
    });
    eventually("no transaction to be open", || {
        let [stable, end] = ends.each_ref().map(|ask| ask());
        (stable == end).then_some(())
    });
}

/// All that a reader sees in a partition, up to its end, once no transaction is open there.
pub fn read_all(from: &TopicPartition, isolation: &str) -> Vec<Read> {
    use rdkafka::message::Headers as _;
    await_settled(from);
    let mut config = config();
    config.set("group.id", unique("reads")).set("isolation.level", isolation).set("enable.partition.eof", "true");
    config.set("enable.auto.commit", "false");
    let consumer: BaseConsumer = config.create().unwrap();
    let mut list = rdkafka::TopicPartitionList::new();
    list.add_partition_offset(&from.topic, from.partition, Offset::Beginning).unwrap();
    consumer.assign(&list).unwrap();
    let mut all = Vec::new();
    loop {
        match consumer.poll(PATIENCE).expect("an end of the partition") {
            Err(rdkafka::error::KafkaError::PartitionEOF(_)) => return all,
            Err(error) => panic!("{error}"),
            Ok(message) => all.push(Read {
                offset: message.offset(),
                timestamp: message.timestamp().to_millis(),
                key: message.key().map(<[u8]>::to_vec),
                value: message.payload().map(<[u8]>::to_vec),
                headers: message.headers().map_or(Vec::new(), |headers| {
                    headers.iter().map(|h| (h.key.to_owned(), h.value.map(<[u8]>::to_vec))).collect()
                }),
            }),
        }
    }
}

/// The values that a reader sees in a partition now.
pub fn values(from: &TopicPartition, isolation: &str) -> Vec<String> {
    read_all(from, isolation)
        .into_iter()
        .map(|read| String::from_utf8(read.value.unwrap_or_default()).unwrap())
        .collect()
}
