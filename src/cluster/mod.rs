//! Where topics live, as a lane sees it: a group member that reads, a transactional producer that
//! writes, a reader for changelogs, and the questions that a takeover has to ask.
//!
//! The engine is written once against these traits. [`kafka`] speaks to Apache Kafka and is the only
//! room that knows rdkafka; [`embedded`] keeps topics in one folder.
//!
//! Nothing here blocks for longer than the deadline it documents; whatever may take as long as a
//! foreign transaction (the settling of a takeover) is asked for and then polled.
//!
//! **Failure**: every call answers with an [`Error`] whose [`Kind`] says what to do next. A kind is a
//! promise: an implementation that does not know says [`Kind::Unknown`].

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::record::{Headers, Record, TopicPartition};

pub mod embedded;
pub mod kafka;

/// The id that a cluster gives a topic when it is created; a topic that is deleted and created again
/// under the same name has another one (KIP-516).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// Whether the cluster has told it: a broker that knows no ids says zero.
    pub fn is_told(self) -> bool {
        self != Self::default()
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// Records of any number of partitions, each partition's in offset order. Reused from poll to poll.
pub trait RecordBatch: Default {
    /// The partitions that [`RecordBatch::source`] points into; one that has no record may be among them.
    fn partitions(&self) -> &[TopicPartition];
    /// Which of [`RecordBatch::partitions`] the record at `index` is from.
    fn source(&self, index: usize) -> usize;
    /// How many records there are.
    fn len(&self) -> usize;
    /// Whether there is none.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }
    /// The record at `index`; panics beyond [`RecordBatch::len`].
    fn record(&self, index: usize) -> Record<'_>;
}

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct Message<'a> {
    /// The topic to write to.
    pub topic: &'a str,
    /// The partition to write to.
    pub partition: i32,
    /// The key, `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value, `None` for null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: Headers<'a>,
    /// Milliseconds since the epoch; `None` lets the cluster set the present.
    pub timestamp: Option<i64>,
}

impl Message<'_> {
    /// What a producer holds of it in memory until it is delivered, in bytes.
    pub fn held_bytes(&self) -> usize {
        held_bytes(self.key, self.value, self.headers)
    }
}

/// What a producer holds of a record of these parts until it is delivered, in bytes: more than is sent, since each header
/// is an allocation of its own (`rd_kafka_header_t`, and its place in librdkafka's list).
pub fn held_bytes(key: Option<&[u8]>, value: Option<&[u8]>, headers: Headers<'_>) -> usize {
    const HEADER_BYTES: usize = 80;
    let parts = [key, value].map(|part| part.map_or(0, <[u8]>::len));
    parts[0] + parts[1] + headers.as_bytes().len() + headers.iter().count() * HEADER_BYTES
}

/// What a sender wants to know a record by when its delivery is reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The sender's own number, returned as it was given; at most 2^62 - 1.
    pub number: u64,
    /// Whether success is to be reported too (see [`Producer::take_delivered`]); failures always are.
    pub report: bool,
}

/// A record that could not be delivered; its transaction can only be aborted.
#[derive(Clone, Debug)]
pub struct DeliveryFailure {
    /// [`Ticket::number`] of the record.
    pub number: u64,
    /// Whether the cluster refuses what stands in the record or its batch (too large, timestamp out of
    /// range), so that trying again as it is cannot help.
    pub refused: bool,
    /// The cluster's words.
    pub message: String,
}

/// What a consumer group remembers of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// The text beside it, empty where there is none. Others may have written it; bytes that are not
    /// UTF-8 come as replacement characters.
    pub metadata: String,
}

/// An offset to be committed with a transaction.
#[derive(Clone, Debug)]
pub struct OffsetCommit {
    /// The input partition.
    pub partition: TopicPartition,
    /// The next offset to read and the text beside it.
    pub committed: CommittedOffset,
}

/// What a cluster says of a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// The topic's id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partition_count: i32,
    /// `cleanup.policy`, as it stands: `delete`, `compact` or `compact,delete`.
    pub cleanup_policy: String,
    /// `delete.retention.ms`: for how long a tombstone stays visible.
    pub delete_retention_ms: i64,
    /// `retention.ms`: for how long records stay where the policy deletes; `i64::MAX` for always.
    pub retention_ms: i64,
    /// `retention.bytes`: how much of a partition stays where the policy deletes; `i64::MAX` for all.
    pub retention_bytes: i64,
    /// Whether the topic stamps records itself when they are appended (`message.timestamp.type`).
    pub stamps: bool,
    /// `message.timestamp.before.max.ms`: how far a record's own timestamp may be before the present.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far it may be beyond it.
    pub timestamp_after_max_ms: i64,
    /// `max.message.bytes`: how large a batch of records may be.
    pub message_bytes_max: i64,
    /// Replicas of the partition that has the fewest; `None` where the cluster has no replicas.
    pub replicas: Option<i32>,
    /// `min.insync.replicas`; `None` where the cluster has no replicas.
    pub min_insync_replicas: Option<i32>,
    /// `unclean.leader.election.enable`: whether a replica may lead that lacks records; `None` where the cluster has no
    /// replicas, or does not say.
    pub elects_uncleanly: Option<bool>,
    /// What this client may do with it; `None` where the cluster does not say.
    pub rights: Option<Rights>,
}

/// What a topic is told from others by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicOutline {
    /// The topic's id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partition_count: i32,
}

/// What a client may do with a topic or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read records, or be a member.
    pub read: bool,
    /// Write records; nobody writes to a group.
    pub write: bool,
    /// Ask about it.
    pub describe: bool,
    /// Change it: an administrator's right, or everybody's where nobody is held off.
    pub alter: bool,
}

impl Rights {
    /// Those of a cluster that holds nobody off.
    pub const ALL: Self = Self { read: true, write: true, describe: true, alter: true };
}

/// A topic to be created.
#[derive(Clone, Debug)]
pub struct NewTopic<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many partitions it shall have.
    pub partition_count: i32,
    /// Replicas of each partition; ignored by the embedded cluster.
    pub replication_factor: i32,
    /// Topic settings, by Kafka's names.
    pub settings: &'a [(&'a str, String)],
}

/// What changed in a member's assignment. Each event must be answered, by [`Member::accept_assigned`]
/// or [`Member::accept_revoked`], before the group can go on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// These partitions are the member's from now on; possibly none.
    Assigned(Vec<TopicPartition>),
    /// These partitions go to others once the member has let go; its offsets can still be committed.
    Revoked(Vec<TopicPartition>),
    /// These partitions are another's already: nothing of them can be committed any more.
    Lost(Vec<TopicPartition>),
}

/// A member of a consumer group.
pub trait Member: Send {
    /// What records are read into.
    type Batch: RecordBatch;
    /// What proves the membership to [`Producer::commit`].
    type Metadata: Send;

    /// Serves the group, then reads what is there, up to `records_max`, waiting up to `wait` for a first
    /// record. The batch is emptied first. While an event is returned, and until it is answered, the
    /// batch stays empty. [`Kind::Retry`] errors are told once and mended by themselves; a record that
    /// can no longer be read at a partition's position comes as [`Kind::Refused`].
    fn poll(
        &mut self,
        batch: &mut Self::Batch,
        records_max: usize,
        wait: Duration,
    ) -> Result<Option<GroupEvent>, Error>;

    /// Subscribes to `topics`, possibly none, in place of those before. What the member keeps it goes on reading;
    /// what comes and goes is told by events, as ever.
    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error>;

    /// Takes the partitions of [`GroupEvent::Assigned`] over, paused: nothing is read from them until
    /// [`Member::start`].
    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error>;

    /// Lets the partitions of [`GroupEvent::Revoked`] or [`GroupEvent::Lost`] go.
    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error>;

    /// Reads `partition` from `offset` on. What was read before and not yet returned is discarded.
    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error>;

    /// Reads nothing of `partition` until the next [`Member::start`]. Records of it that were read
    /// already, but not yet returned, are discarded.
    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error>;

    /// The offset after everything that was returned of `partition`, transaction markers and compacted
    /// gaps included once they were passed; `None` before the first read.
    fn position(&self, partition: &TopicPartition) -> Option<i64>;

    /// The end of `partition` (its high watermark), as last heard, without asking. While a transaction is open on
    /// it, [`Member::position`] stays below.
    fn end(&self, partition: &TopicPartition) -> Option<i64>;

    /// Proof of the membership, as of now. [`Kind::Abort`] while the member has not joined: brokers do
    /// not fence an unjoined member's commits.
    fn metadata(&self) -> Result<Self::Metadata, Error>;

    /// Leaves the group, so that others need not wait for the session to time out.
    fn leave(self) -> Result<(), Error>;
}

/// A transactional producer. At most one transaction is open at a time.
pub trait Producer: Send {
    /// What proves the membership of the group whose offsets are committed.
    type Metadata: Send;

    /// The transactional id.
    fn id(&self) -> &str;

    /// Opens a transaction.
    fn begin(&mut self) -> Result<(), Error>;

    /// Hands a record over; its delivery goes on in the background. A full queue is waited for, up to
    /// the delivery timeout. An error of kind [`Kind::Refused`] concerns this record alone and leaves the
    /// transaction as it was.
    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error>;

    /// Hands over records, given by key and value, to one partition: as [`Producer::send`] would one by one, without
    /// headers, with the present for their time, and without a report of success. After an error, some may be
    /// handed over.
    fn send_all<'a>(
        &mut self,
        number: u64,
        to: &TopicPartition,
        records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), Error> {
        for (key, value) in records {
            let message = Message {
                topic: &to.topic,
                partition: to.partition,
                key: Some(key),
                value,
                headers: Headers::default(),
                timestamp: None,
            };
            self.send(Ticket { number, report: false }, &message)?;
        }
        Ok(())
    }

    /// Says that what is reported of `number` has to come to stand at `offset` or beyond, in the open transaction. Where
    /// something does not, what stood there is lost: [`Producer::commit`] then answers [`Kind::Abort`], nothing is
    /// committed, and [`Producer::take_delivered`] tells where it came to stand. Where a partition's end never falls
    /// back, there is nothing to be seen to.
    fn expect_from(&mut self, _number: u64, _offset: i64) {}

    /// How many records are handed over and neither delivered nor failed.
    fn in_flight(&self) -> usize;

    /// Whether there are failures for [`Producer::take_failures`] to take: the transaction cannot be committed any more.
    fn has_failed(&self) -> bool;

    /// What could not be delivered since the last call.
    fn take_failures(&mut self) -> Vec<DeliveryFailure>;

    /// The numbers and offsets of delivered records whose [`Ticket::report`] was set, since the last call.
    fn take_delivered(&mut self) -> Vec<(u64, i64)>;

    /// Waits for the deliveries, adds the group's offsets and commits. `Ok` means: all of it is visible.
    /// [`Kind::Abort`]: none of it ever will be, once [`Producer::abort`] was called or the producer
    /// dropped. Any other kind: the outcome is not known, and the producer must be dropped.
    fn commit(&mut self, offsets: &[OffsetCommit], group: Self::Metadata) -> Result<(), Error>;

    /// Ends the transaction without effect. After an error the producer must be dropped.
    fn abort(&mut self) -> Result<(), Error>;

    /// Whether the producer can go on after a commit that failed and an abort that did not: everything that the
    /// commit asked for was answered, so that nothing of it can arrive late and meet the next transaction.
    fn is_fit(&self) -> bool {
        true
    }
}

/// Reads one partition from an offset to a known end, read_committed, outside any group.
pub trait Reader: Send {
    /// What records are read into.
    type Batch: RecordBatch;

    /// Reads what is there, up to `records_max`, waiting up to `wait` for a first record. The batch is
    /// emptied first.
    fn read(&mut self, batch: &mut Self::Batch, records_max: usize, wait: Duration) -> Result<(), Error>;

    /// The offset after everything returned so far; passes transaction markers and compacted gaps, also
    /// at the end of the partition where no record follows them.
    fn position(&self) -> i64;
}

/// What a task has to know before it can restore, learnt in this order once nobody else can write:
/// the committed offset (stable: no transaction pending on it), then the changelog's end, then that the
/// changelog's last stable offset has passed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What the group has committed for the input partition; `None` where nothing was, or the group is gone.
    pub committed: Option<CommittedOffset>,
    /// The input topic's id.
    pub input_id: TopicId,
    /// The input partition's first offset that is retained.
    pub input_start: i64,
    /// The input partition's end.
    pub input_end: i64,
    /// The changelog topic's id.
    pub changelog_id: TopicId,
    /// The changelog partition's first offset that is retained.
    pub changelog_start: i64,
    /// The changelog partition's end (high watermark), open transactions included when it was read and
    /// all of them ended since.
    pub changelog_end: i64,
    /// The latest timestamp below that end, in milliseconds since the epoch, of records and of the markers that brokers
    /// stamp; `None` where it was not asked for, or the cluster does not tell.
    pub changelog_time: Option<i64>,
    /// What the changelog holds where it was to be looked at; `None` where it was not.
    pub seen: Option<Seen>,
}

/// What a changelog holds from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The offset.
    pub from: i64,
    /// The first record there or behind; `None` where there is none, or the offset lies outside of the changelog.
    pub first: Option<SeenRecord>,
}

/// A record that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its offset.
    pub offset: i64,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

impl SeenRecord {
    /// What is kept of a record.
    pub fn of(record: &Record<'_>) -> Self {
        let [key, value] = [record.key, record.value].map(|part| part.map(<[u8]>::to_vec));
        Self { offset: record.offset, key, value }
    }
}

/// Whose transactions a takeover may end, so that it need not wait for them to time out. What makes a takeover
/// right does not depend on it.
#[derive(Clone, Debug, Default)]
pub struct Fencing {
    /// How the transactional ids of this topology begin; others' are never touched.
    pub prefix: String,
    /// Those in use by this process, which are never touched either.
    pub in_use: Vec<String>,
}

impl Fencing {
    /// Whether what is open under this id may be ended.
    pub fn allows(&self, id: &str) -> bool {
        !self.prefix.is_empty() && id.starts_with(&self.prefix) && !self.in_use.iter().any(|own| own == id)
    }
}

/// Of what a [`Settled`] is to tell.
#[derive(Clone, Debug)]
pub struct Inquiry {
    /// The group.
    pub group: String,
    /// The input partition.
    pub input: TopicPartition,
    /// Its changelog.
    pub changelog: TopicPartition,
    /// Whose transactions may be ended.
    pub fencing: Fencing,
    /// Whether the changelog's time is wanted.
    pub asks_time: bool,
    /// Whether an earlier answer is doubted: a broker that does not lead a partition any more, and does not know it, may
    /// have given it. Then it is first asked anew who leads.
    pub is_doubted: bool,
    /// From which offset on the changelog's first record is wanted, if any is.
    pub looks_from: Option<i64>,
}

impl Inquiry {
    /// An inquiry that ends nobody's transactions.
    pub fn of(group: &str, input: &TopicPartition, changelog: &TopicPartition) -> Self {
        Self {
            group: group.to_owned(),
            input: input.clone(),
            changelog: changelog.clone(),
            fencing: Fencing::default(),
            asks_time: false,
            is_doubted: false,
            looks_from: None,
        }
    }
}

/// A [`Settled`] in the making.
pub trait Settling: Send {
    /// The answer, once it is there. Never blocks. Not to be called again after an answer.
    fn poll(&mut self) -> Option<Result<Settled, Error>>;
}

/// A place where topics live. Cheap to clone; shared by all lanes.
pub trait Cluster: Clone + Send + Sync + 'static {
    /// What records are read into.
    type Batch: RecordBatch;
    /// What proves a membership to a producer.
    type Metadata: Send;
    /// A group's member.
    type Member: Member<Batch = Self::Batch, Metadata = Self::Metadata> + 'static;
    /// A transactional producer.
    type Producer: Producer<Metadata = Self::Metadata> + 'static;
    /// A changelog's reader.
    type Reader: Reader<Batch = Self::Batch> + 'static;
    /// A takeover's questions, under way.
    type Settling: Settling + 'static;

    /// Whether other programs may write to its topics while this one runs.
    const IS_SHARED: bool = true;

    /// What the cluster says of `topic`; `None` where there is no such topic.
    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, Error>;

    /// The least of [`Cluster::describe_topic`], for who asks often.
    fn outline_topic(&self, topic: &str) -> Result<Option<TopicOutline>, Error> {
        let found = self.describe_topic(topic)?;
        Ok(found.map(|found| TopicOutline { id: found.id, partition_count: found.partition_count }))
    }

    /// Where the first transaction begins that is open on `partition`, which nobody gets beyond who reads committed records;
    /// `None` where none is, or where the cluster does not tell. Takes no longer than `wait`.
    fn open_transaction(&self, _partition: &TopicPartition, _wait: Duration) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    /// The names of all topics that may be seen, internal ones included, in any order.
    fn list_topics(&self) -> Result<Vec<String>, Error>;

    /// A partition's first offset and its end (its high watermark): what lies between are records, or what is left of
    /// transactions.
    fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), Error>;

    /// What this client may do with `group`, which need not exist; `None` where the cluster does not say.
    fn group_rights(&self, group: &str) -> Result<Option<Rights>, Error>;

    /// How many members `group`, which need not exist, has at present.
    fn members_of(&self, group: &str) -> Result<usize, Error>;

    /// Whether [`Cluster::create_topic`] could make this topic, as far as the cluster tells; changes nothing.
    fn check_creation(&self, _topic: &NewTopic<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Creates a topic and waits until it can be used. Fine if it was created meanwhile by another.
    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), Error>;

    /// Joins `group` and subscribes to `topics`; to none at first, where none are given.
    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Self::Member, Error>;

    /// A producer with this transactional id; whatever was open under it has been aborted.
    fn producer(&self, transactional_id: &str) -> Result<Self::Producer, Error>;

    /// Reads `partition` from `offset` on.
    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Self::Reader, Error>;

    /// The same, of an input whose offsets are committed in `group`: refused like [`Member::start`] where the partition
    /// does not hold any more what was read of it up to there.
    fn reader_for(&self, _group: &str, partition: &TopicPartition, offset: i64) -> Result<Self::Reader, Error> {
        self.reader(partition, offset)
    }

    /// Starts asking what [`Settled`] lists. Where the text beside the committed offset names an owner that may be fenced,
    /// its transaction is ended meanwhile.
    fn settle(&self, inquiry: Inquiry) -> Self::Settling;

    /// Begins to end whatever is open under this transactional id, whose producer is gone; never waits for it.
    fn fence(&self, transactional_id: &str);

    /// What `group` has committed for these partitions, asked for no longer than `wait`. A transaction whose markers are
    /// not written yet has committed nothing, although its commit may have been answered.
    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error>;
}

/// How much the clients that read may hold of what they have fetched. Where a queue is full, nothing is fetched; the
/// answers that were under way still come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// A member's, all its partitions together.
    pub member_bytes: u64,
    /// A changelog reader's.
    pub reader_bytes: u64,
    /// What compressed batches may unpack to, all clients of the process together.
    pub unpacked_bytes: u64,
}

impl Default for Queues {
    fn default() -> Self {
        Self { member_bytes: 64 << 20, reader_bytes: 8 << 20, unpacked_bytes: 128 << 20 }
    }
}

/// For how long a topic that is not known is asked for again: brokers hear of a new topic one after the other, and one
/// that lags behind answers like one that is right.
pub const MISSING_WAIT: Duration = Duration::from_secs(10);

/// What to do about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Passing trouble; the same call may be made again.
    Retry,
    /// The open transaction must be aborted; the producer can go on.
    Abort,
    /// Another has taken this producer's or member's place: drop it and make a new one.
    Fenced,
    /// What was asked for may or may not have happened: drop the producer and look.
    Unknown,
    /// The cluster will not do this whatever is tried (rights, a record too large, a topic that does not
    /// exist, a wrong setting): a person has to change something.
    Refused,
}

/// Something a cluster could not do.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{message}")]
pub struct Error {
    /// What to do about it.
    pub kind: Kind,
    /// What happened, in lower case and without a full stop; never holds a secret.
    pub message: String,
    /// The partition whose trouble it is, where it is one's alone.
    pub partition: Option<TopicPartition>,
    /// The operation that would have to be allowed, where one is not and the cluster says which.
    pub denied: Option<Denied>,
    /// How many brokers there are, where a topic was to have more replicas than that.
    pub brokers: Option<i32>,
    /// Whether it is that a topic or a partition is not known. Of one that was just created, the broker that was asked
    /// may not have heard yet.
    pub is_missing: bool,
    /// Whether it is a right that is missing: whoever had it may be given it again.
    pub right: bool,
}

/// What a client may not do with a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Denied {
    /// See it: each right to use it would do.
    Topic,
    /// See its settings.
    Settings,
}

impl Error {
    /// An error of this kind. Its message becomes one line, whatever words of others stand in it: so does its event in
    /// the log.
    pub fn new(kind: Kind, message: impl Into<String>) -> Self {
        let message = message.into().replace(char::is_control, " ");
        Self { kind, message, partition: None, denied: None, brokers: None, is_missing: false, right: false }
    }

    /// The same, of a topic or a partition that is not known.
    pub fn of_missing(self, is_missing: bool) -> Self {
        Self { is_missing, ..self }
    }

    /// The same, as one partition's trouble alone.
    pub fn of(self, partition: &TopicPartition) -> Self {
        Self { partition: Some(partition.clone()), ..self }
    }

    /// The same, as what is not allowed.
    pub fn denied(self, denied: Denied) -> Self {
        Self { denied: Some(denied), ..self }
    }

    /// The same, as a right that is missing, or as none.
    pub fn of_right(self, right: bool) -> Self {
        Self { right, ..self }
    }

    /// The same, of a cluster of so many brokers, which are too few.
    pub fn of_brokers(self, brokers: Option<i32>) -> Self {
        Self { brokers, ..self }
    }
}
