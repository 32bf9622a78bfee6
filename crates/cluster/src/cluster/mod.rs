//! Where topics live, as a lane sees it: a group member that reads, a transactional producer that
//! writes, a reader for changelogs, and the queries that a takeover needs.
//!
//! The engine is written once against these traits. [`kafka`] speaks to Apache Kafka and is the only
//! room that knows rdkafka; [`embedded`] keeps topics in one folder. [`Contact`] is what a process knows of the
//! brokers of a cluster, [`Abilities`] what these can do.
//!
//! No call blocks for longer than the deadline it documents; whatever may take as long as another
//! owner's transaction (settling a takeover) is started and then polled.
//!
//! **Failure**: every call returns an [`Error`] whose [`ErrorKind`] says what to do next. A kind is a
//! promise: an implementation that cannot tell uses [`ErrorKind::Unknown`].

use std::sync::Arc;
use std::time::Duration;

use crate::format::ChangelogOffset;
use crate::record::{Headers, Record, TopicPartition};

mod abilities;
mod contact;
pub mod embedded;
mod error;
mod expected;
pub mod kafka;
mod topic;

pub use abilities::{Abilities, Without};
pub use contact::{Admitted, Contact, THREAD_WAIT_MAX};
pub use error::{Denied, Detail, Error, ErrorKind};
pub use expected::Expected;
pub use topic::{NewTopic, Rights, TopicDescription, TopicId, TopicOutline};

/// Records of any number of partitions, each partition's in offset order. Reused from poll to poll.
pub trait RecordBatch: Default {
    /// The partitions that [`RecordBatch::partition_index`] indexes; some may have no records.
    fn partitions(&self) -> &[TopicPartition];
    /// Which of [`RecordBatch::partitions`] the record at `index` is from.
    fn partition_index(&self, index: usize) -> usize;
    /// The number of records.
    fn len(&self) -> usize;
    /// Whether there are no records.
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
    /// Milliseconds since the epoch; `None` lets the cluster use the current time.
    pub timestamp: Option<i64>,
}

impl Message<'_> {
    /// The memory a producer holds for it until it is delivered, in bytes.
    pub fn held_bytes(&self) -> usize {
        held_bytes(self.key, self.value, self.headers)
    }
}

/// The memory a producer holds for a record of these parts until it is delivered, in bytes: more than is sent, since
/// each header is an allocation of its own (`rd_kafka_header_t`, and its slot in librdkafka's list).
pub fn held_bytes(key: Option<&[u8]>, value: Option<&[u8]>, headers: Headers<'_>) -> usize {
    const HEADER_BYTES: usize = 80;
    let parts = [key, value].map(|part| part.map_or(0, <[u8]>::len));
    parts[0] + parts[1] + headers.as_bytes().len() + headers.iter().count() * HEADER_BYTES
}

/// What [`Cluster::record_overhead_bytes`] is where a producer queues each record as an object of its own, as librdkafka does.
pub const QUEUED_RECORD_BYTES: usize = 1 << 10;

/// Identifies a record to its sender in delivery reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ticket {
    /// The sender's own number, returned unchanged; at most 2^62 - 1.
    pub number: u64,
    /// Whether success is reported too (see [`Producer::take_delivered`]); failures always are.
    pub report: bool,
}

/// A record that could not be delivered; its transaction can only be aborted.
#[derive(Clone, Debug)]
pub struct DeliveryFailure {
    /// [`Ticket::number`] of the record.
    pub number: u64,
    /// Whether the cluster rejects the record or its batch as it is (too large, timestamp out of
    /// range), so that retrying cannot help.
    pub refused: bool,
    /// The cluster's message.
    pub message: String,
}

/// What a consumer group remembers of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CommittedOffset {
    /// The next offset to read.
    pub offset: i64,
    /// The text stored with it, empty if there is none. Others may have written it; bytes that are not
    /// UTF-8 become replacement characters.
    pub metadata: String,
}

/// An offset to be committed with a transaction.
#[derive(Clone, Debug)]
pub struct OffsetCommit {
    /// The input partition.
    pub partition: TopicPartition,
    /// The next offset to read and the text stored with it.
    pub committed: CommittedOffset,
}

/// A change in a member's assignment. Each event must be acknowledged, by [`Member::accept_assigned`]
/// or [`Member::accept_revoked`], before the group can continue.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum GroupEvent {
    /// The member owns these partitions from now on; possibly none.
    Assigned(Vec<TopicPartition>),
    /// These partitions go to others once the member has released them; their offsets can still be committed.
    Revoked(Vec<TopicPartition>),
    /// These partitions already belong to others: nothing can be committed for them any more.
    Lost(Vec<TopicPartition>),
}

/// Ends a wait of [`Member::poll`], from any thread: the one under way, or else the next one.
pub type Waker = Arc<dyn Fn() + Send + Sync>;

/// A member of a consumer group.
pub trait Member: Send {
    /// What records are read into.
    type Batch: RecordBatch;
    /// What proves the membership to [`Producer::commit`].
    type Metadata: Send;

    /// Serves the group, then reads what is available, up to `records_max`, waiting up to `wait` for a first record. An
    /// event of the group ends the wait, and so does [`Member::waker`]; it may also end early for no such reason. The
    /// batch is cleared first, and stays empty from when an event is returned until it is acknowledged. A
    /// [`ErrorKind::Retry`] error is reported once and needs no action; a record that can no longer be read at a
    /// partition's position is [`ErrorKind::Refused`].
    fn poll(
        &mut self,
        batch: &mut Self::Batch,
        records_max: usize,
        wait: Duration,
    ) -> Result<Option<GroupEvent>, Error>;

    /// What ends a wait of this member. Without effect once the member is gone.
    fn waker(&self) -> Waker;

    /// Subscribes to `topics`, possibly none, replacing the previous subscription. Partitions that the member keeps are
    /// read on; changes are reported as events, as always.
    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error>;

    /// Takes over the partitions of [`GroupEvent::Assigned`], paused: nothing is read from them until
    /// [`Member::start`].
    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error>;

    /// Releases the partitions of [`GroupEvent::Revoked`] or [`GroupEvent::Lost`].
    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error>;

    /// Reads `partition` from `offset` on. Anything read earlier and not yet returned is discarded.
    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error>;

    /// Stops reading `partition` until the next [`Member::start`]. Records of it that were read
    /// but not yet returned are discarded.
    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error>;

    /// The offset after everything returned from `partition`, including any transaction markers and compacted
    /// gaps that were passed; `None` before the first read.
    fn position(&self, partition: &TopicPartition) -> Option<i64>;

    /// The end of `partition` (its high watermark) as last seen, without a request. While a transaction is open on
    /// it, [`Member::position`] stays below.
    fn end(&self, partition: &TopicPartition) -> Option<i64>;

    /// How long ago a broker was last heard that knows [`Member::end`]; `None` while that is not known. Zero where no
    /// broker has to be heard.
    fn end_heard_ago(&self, _partition: &TopicPartition) -> Option<Duration> {
        Some(Duration::ZERO)
    }

    /// Whether the group has the member, as far as the member knows. One that has lost its membership gets
    /// [`GroupEvent::Assigned`] when it has joined again.
    fn is_member(&self) -> bool {
        true
    }

    /// Whether records are on their way that are known to be there: they were just asked for, so that the next
    /// [`Member::poll`] need not wait long for them. `false` also where the cluster does not say.
    fn has_more(&self) -> bool {
        false
    }

    /// Proof of membership as of now. [`ErrorKind::Abort`] while the member has not joined: brokers do
    /// not fence an unjoined member's commits.
    fn metadata(&self) -> Result<Self::Metadata, Error>;

    /// Leaves the group, so that others need not wait for the session timeout.
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

    /// Hands over a record, which is delivered in the background. Waits while the queue is full, up to
    /// the delivery timeout. A [`ErrorKind::Refused`] error concerns this record alone and leaves the
    /// transaction intact.
    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error>;

    /// Hands over records, given as key and value, for one partition: like [`Producer::send`] one by one, without
    /// headers, stamped with the current time, and without reports of success. After an error, some may have been
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

    /// Says where the records whose success is reported under `number` must be in the open transaction. Any other place
    /// means that their partition has lost records: [`Producer::commit`] then returns [`ErrorKind::Abort`], nothing is
    /// committed, and [`Producer::take_delivered`] returns where the records were written. A cluster whose partitions
    /// never lose their end can ignore this.
    fn expect(&mut self, _number: u64, _expected: Expected) {}

    /// Sends what is due, and takes what brokers have said, without waiting. A cluster that does so in the background
    /// can ignore this.
    fn serve(&mut self) {}

    /// How many records were handed over and are neither delivered nor failed.
    fn in_flight(&self) -> usize;

    /// Whether [`Producer::take_failures`] has anything to return: the transaction can no longer be committed.
    fn has_failed(&self) -> bool;

    /// The deliveries that failed since the last call.
    fn take_failures(&mut self) -> Vec<DeliveryFailure>;

    /// The numbers and offsets of records with [`Ticket::report`] set that were delivered since the last call.
    fn take_delivered(&mut self) -> Vec<(u64, i64)>;

    /// Waits for the deliveries, adds the group's offsets and commits. `Ok` means that all of it is visible.
    /// [`ErrorKind::Abort`]: none of it ever will be, once [`Producer::abort`] was called or the producer
    /// dropped. Any other kind: the outcome is unknown, and the producer must be dropped.
    fn commit(&mut self, offsets: &[OffsetCommit], group: Self::Metadata) -> Result<(), Error>;

    /// The same. Until the outcome is there `meanwhile` is called, again and again, with how long it may wait. A cluster
    /// whose commits take no time need not call it.
    fn commit_while(
        &mut self,
        offsets: &[OffsetCommit],
        group: Self::Metadata,
        _meanwhile: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        self.commit(offsets, group)
    }

    /// For how long a transaction that is begun now would have to wait first.
    fn begins_in(&self) -> Duration {
        Duration::ZERO
    }

    /// Ends the transaction without effect. After an error the producer must be dropped.
    fn abort(&mut self) -> Result<(), Error>;

    /// Whether the producer can be used again after a commit failed and an abort succeeded: every request of the commit
    /// got its response, so none can arrive late and affect the next transaction.
    fn is_usable(&self) -> bool {
        true
    }
}

/// Reads one partition from an offset to a known end, read_committed, outside any group.
pub trait Reader: Send {
    /// What records are read into.
    type Batch: RecordBatch;

    /// Reads what is available, up to `records_max`, waiting up to `wait` for a first record. The batch is
    /// cleared first.
    fn read(&mut self, batch: &mut Self::Batch, records_max: usize, wait: Duration) -> Result<(), Error>;

    /// The offset after everything returned so far; passes transaction markers and compacted gaps, even
    /// at the end of the partition where no record follows them.
    fn position(&self) -> i64;
}

/// What a task must know before it can restore, learnt in this order once nobody else can write:
/// the committed offset (stable: no transaction is pending on it), then the changelog's end, then that the
/// changelog's last stable offset has passed that end.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settled {
    /// What the group has committed for the input partition; `None` if nothing was, or the group is gone.
    pub committed: Option<CommittedOffset>,
    /// The input topic's id.
    pub input_id: TopicId,
    /// The input partition's first retained offset.
    pub input_start: i64,
    /// The input partition's end.
    pub input_end: i64,
    /// The changelog topic's id.
    pub changelog_id: TopicId,
    /// The changelog partition's first retained offset.
    pub changelog_start: ChangelogOffset,
    /// The changelog partition's end (high watermark), including the transactions that were open when it was read;
    /// all of them have ended since.
    pub changelog_end: ChangelogOffset,
    /// The latest timestamp below that end, in milliseconds since the epoch, of records and of the markers that brokers
    /// stamp; `None` if it was not requested or the cluster does not provide it.
    pub changelog_time: Option<i64>,
    /// What the changelog holds from [`Inquiry::looks_from`] on; `None` if it was not requested.
    pub seen: Option<Seen>,
}

/// What a changelog holds from an offset on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Seen {
    /// The offset.
    pub from: ChangelogOffset,
    /// The first record at or after it; `None` if there is none, or the offset is outside the changelog.
    pub first: Option<SeenRecord>,
}

/// A record that was looked at.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SeenRecord {
    /// Its offset.
    pub offset: ChangelogOffset,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Its value.
    pub value: Option<Vec<u8>>,
}

impl SeenRecord {
    /// Copies what is kept of a record.
    pub fn of(record: &Record<'_>) -> Self {
        let [key, value] = [record.key, record.value].map(|part| part.map(<[u8]>::to_vec));
        Self { offset: ChangelogOffset(record.offset), key, value }
    }
}

/// Whose transactions a takeover may end, to avoid waiting for their timeout. The correctness of a takeover
/// does not depend on it.
#[derive(Clone, Debug, Default)]
pub struct Fencing {
    /// The prefix of this topology's transactional ids; other ids are never touched.
    pub prefix: String,
    /// Ids in use by this process, which are never touched either.
    pub in_use: Vec<String>,
}

impl Fencing {
    /// Whether a transaction open under this id may be ended.
    pub fn allows(&self, id: &str) -> bool {
        !self.prefix.is_empty() && id.starts_with(&self.prefix) && !self.in_use.iter().any(|own| own == id)
    }
}

/// What a [`Settled`] is requested for.
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
    /// Whether to find the changelog's latest timestamp.
    pub wants_time: bool,
    /// Whether an earlier result is doubted, because it may have come from a broker that no longer leads a partition
    /// and does not know it. The leaders are then looked up again first.
    pub is_doubted: bool,
    /// The offset from which to look for the changelog's first record, if wanted.
    pub looks_from: Option<ChangelogOffset>,
}

impl Inquiry {
    /// An inquiry that does not end anyone's transactions.
    pub fn of(group: &str, input: &TopicPartition, changelog: &TopicPartition) -> Self {
        Self {
            group: group.to_owned(),
            input: input.clone(),
            changelog: changelog.clone(),
            fencing: Fencing::default(),
            wants_time: false,
            is_doubted: false,
            looks_from: None,
        }
    }
}

/// A [`Settled`] in the making.
pub trait Settling: Send {
    /// The result, once it is there. Never blocks. Not to be called again after it returned a result.
    fn poll(&mut self) -> Option<Result<Settled, Error>>;
}

/// A place where topics live. Cheap to clone; shared by all lanes.
pub trait Cluster: Clone + Send + Sync + 'static {
    /// What records are read into.
    type Batch: RecordBatch;
    /// What proves membership to a producer.
    type Metadata: Send;
    /// A group's member.
    type Member: Member<Batch = Self::Batch, Metadata = Self::Metadata> + 'static;
    /// A transactional producer.
    type Producer: Producer<Metadata = Self::Metadata> + 'static;
    /// A changelog's reader.
    type Reader: Reader<Batch = Self::Batch> + 'static;
    /// A takeover's queries in progress.
    type Settling: Settling + 'static;

    /// Whether other programs may write to its topics while this one runs.
    const IS_SHARED: bool = true;

    /// What is known of the brokers; `None` where there are none.
    fn contact(&self) -> Option<Arc<Contact>> {
        None
    }

    /// What the brokers can do. Each call asks them, for some seconds at most, until one call had an answer; `None` where
    /// there are no brokers, none has answered, or none can be asked.
    fn abilities(&self) -> Option<Abilities> {
        None
    }

    /// Describes `topic`; `None` if there is no such topic.
    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, Error>;

    /// A minimal [`Cluster::describe_topic`], for frequent calls.
    fn describe_topic_briefly(&self, topic: &str) -> Result<Option<TopicOutline>, Error> {
        let found = self.describe_topic(topic)?;
        Ok(found.map(|found| TopicOutline { id: found.id, partition_count: found.partition_count }))
    }

    /// Where the first open transaction on `partition` begins, which nobody who reads committed records gets past;
    /// `None` if none is open, or the cluster cannot say. Takes no longer than `wait`.
    fn open_transaction(&self, _partition: &TopicPartition, _wait: Duration) -> Result<Option<i64>, Error> {
        Ok(None)
    }

    /// The names of all visible topics, internal ones included, in any order.
    fn list_topics(&self) -> Result<Vec<String>, Error>;

    /// A partition's first offset and its end (high watermark): between them are records, or the remains of
    /// transactions.
    fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), Error>;

    /// What this client may do with `group`, which need not exist; `None` if the cluster does not say.
    fn group_rights(&self, group: &str) -> Result<Option<Rights>, Error>;

    /// How many members `group`, which need not exist, currently has.
    fn members_of(&self, group: &str) -> Result<usize, Error>;

    /// Whether [`Cluster::create_topic`] could create this topic, as far as the cluster can say; changes nothing.
    fn check_creation(&self, _topic: &NewTopic<'_>) -> Result<(), Error> {
        Ok(())
    }

    /// Creates a topic and waits until it can be used. Succeeds if someone else has created it meanwhile.
    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), Error>;

    /// Writes one record outside of any transaction, and waits until it is there. Returns its offset. After any error
    /// but [`ErrorKind::Refused`] it may be there all the same.
    fn append_one(&self, message: &Message<'_>) -> Result<i64, Error>;

    /// Joins `group` and subscribes to `topics`, which may be empty.
    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Self::Member, Error>;

    /// Roughly how many bytes a record of an open transaction takes besides its own: the producer's bookkeeping for
    /// it, its changelog record, and its entry in the overlay.
    fn record_overhead_bytes(&self) -> usize {
        QUEUED_RECORD_BYTES
    }

    /// A producer with this transactional id; anything open under it has been aborted.
    fn producer(&self, transactional_id: &str) -> Result<Self::Producer, Error>;

    /// Reads `partition` from `offset` on.
    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Self::Reader, Error>;

    /// Like [`Cluster::reader`], for an input whose offsets are committed in `group`: refused like [`Member::start`] if
    /// the partition no longer holds what was read from it up to there.
    fn reader_for(&self, _group: &str, partition: &TopicPartition, offset: i64) -> Result<Self::Reader, Error> {
        self.reader(partition, offset)
    }

    /// Starts the queries for a [`Settled`]. If the text stored with the committed offset names an owner that may be
    /// fenced, its transaction is ended meanwhile.
    fn settle(&self, inquiry: Inquiry) -> Self::Settling;

    /// Starts ending whatever is open under this transactional id, whose producer is gone; never waits for it.
    fn fence(&self, transactional_id: &str);

    /// What `group` has committed for these partitions, waiting no longer than `wait`. A transaction whose markers are
    /// not yet written counts as not committed, even if its commit has been confirmed.
    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, Error>;
}

/// How much fetched data clients may hold. While a queue is full, nothing more is fetched; responses already
/// under way still arrive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Queues {
    /// A member's queue, for all its partitions together.
    pub member_bytes: u64,
    /// A changelog reader's queue.
    pub reader_bytes: u64,
    /// What compressed batches may unpack to, for all clients of the process together.
    pub unpacked_bytes: u64,
}

impl Default for Queues {
    fn default() -> Self {
        Self { member_bytes: 64 << 20, reader_bytes: 8 << 20, unpacked_bytes: 128 << 20 }
    }
}

/// How long to keep asking for an unknown topic: brokers learn of a new topic one after the other, and one
/// that lags behind gives the same response as for a topic that does not exist.
pub const MISSING_WAIT: Duration = Duration::from_secs(10);
