//! An embedded cluster with faults.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use super::counted::{CountedBatch, CountedMember, HeldRecords, Trickle};
use super::*;
use crate::cluster::{
    Abilities, CommittedOffset, DeliveryFailure, Expected, Inquiry, OffsetCommit, RecordBatch, Rights, Settled, Ticket,
    TopicDescription, TopicOutline,
};
use crate::record::TopicPartition;

/// Alters the report of a broker that does not know that it was replaced.
pub type Outdated = fn(&mut Settled);

/// Called with `None` for each check of a topic, and with the permitted time for each lookup of an open transaction,
/// which gets no response.
pub type WatchHook = Box<dyn Fn(Option<Duration>) + Send + Sync>;

/// The readers of an input outside the group.
#[derive(Default)]
pub struct IsolatedReaders {
    /// The input.
    pub input: &'static str,
    /// The current number of readers.
    pub current: AtomicU32,
    /// The highest number of readers so far.
    pub max: AtomicU32,
    /// Partitions below this one deliver nothing.
    pub silent_below: AtomicI32,
}

/// The faults, and observations of the cluster's use.
#[derive(Default)]
pub struct Faults {
    /// The output topic that fails a task at the first record sent to it.
    pub failing_output: Option<&'static str>,
    /// How many records were sent to the failing output.
    pub sent: AtomicU32,
    /// The input topic that cannot be read outside the group.
    pub unreadable: Option<&'static str>,
    /// How often reads were attempted.
    pub read: AtomicU32,
    /// How many offsets the end of each changelog has fallen back.
    pub fallen_back: AtomicI64,
    /// The report of a broker that does not know that it was replaced, and how often such a broker is queried. It also
    /// responds to later queries for the same task, for example about the contents of a changelog.
    pub outdated: Option<(Outdated, AtomicU32)>,
    /// A topic that is unknown to brokers, for this many queries.
    pub unknown_topic: Option<(&'static str, AtomicU32)>,
    /// Whether the last queried broker was outdated.
    pub is_outdated: AtomicBool,
    /// How often a response was doubted.
    pub doubted: AtomicU32,
    /// Whether the second send to the failing output panics.
    pub panics_at_second_send: bool,
    /// A topic whose readers panic after reading, from this read on.
    pub panicking_reader: Option<(&'static str, u32)>,
    /// How many records that readers have read are held.
    pub held: Arc<AtomicUsize>,
    /// The most records that were held when a reader was created.
    pub held_before: AtomicUsize,
    /// An output topic whose records are counted per transaction.
    pub counted_output: Option<&'static str>,
    /// The most records that one transaction has written to the counted output.
    pub sent_per_transaction_max: AtomicU32,
    /// An output topic that accepts no records while it is down.
    pub output: Option<&'static str>,
    /// Whether that output is down.
    pub is_down: AtomicBool,
    /// The number of attempts to send to each partition of that output while it is down.
    pub attempts: Mutex<BTreeMap<i32, u32>>,
    /// The counted readers.
    pub isolated_readers: IsolatedReaders,
    /// How often members' records were accessed.
    pub accesses: Arc<AtomicU64>,
    /// How members deliver records, if not as they are stored.
    pub trickle: Option<Trickle>,
    /// Whether the group is unreachable.
    pub is_group_unreachable: Arc<AtomicBool>,
    /// How many commits are refused after the lane has continued during them: its generation has ended.
    pub refused_commits: AtomicU32,
    /// Called for each check of the watch.
    pub watch_hook: Option<WatchHook>,
    /// The brokers' responses to successive queries of their abilities.
    pub abilities: Mutex<VecDeque<Option<Abilities>>>,
}

/// A cluster with faults.
#[derive(Clone)]
pub struct Faulty {
    pub inner: Embedded,
    pub faults: Arc<Faults>,
}

pub struct FaultyProducer {
    inner: <Embedded as Cluster>::Producer,
    faults: Arc<Faults>,
    /// The lowest offset expected in a report, by ticket number.
    expected: Vec<(u64, i64)>,
    /// How many records of the open transaction were sent to the changelog.
    changelog_records: i64,
    /// How many records of the open transaction were sent to the counted output.
    counted_records: u32,
    delivered: Vec<(u64, i64)>,
    failures: Vec<DeliveryFailure>,
}

pub struct FaultySettling(<Embedded as Cluster>::Settling, Arc<Faults>);

pub struct FaultyReader {
    inner: <Embedded as Cluster>::Reader,
    partition: TopicPartition,
    faults: Arc<Faults>,
}

impl FaultyReader {
    fn is_isolated(&self) -> bool {
        &*self.partition.topic == self.faults.isolated_readers.input
    }
}

impl Drop for FaultyReader {
    fn drop(&mut self) {
        if self.is_isolated() {
            self.faults.isolated_readers.current.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl cluster::Producer for FaultyProducer {
    type Metadata = <Embedded as Cluster>::Metadata;

    fn id(&self) -> &str {
        self.inner.id()
    }

    fn begin(&mut self) -> Result<(), cluster::Error> {
        (self.expected, self.changelog_records, self.counted_records) = (Vec::new(), 0, 0);
        self.inner.begin()
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), cluster::Error> {
        if Some(message.topic) == self.faults.failing_output {
            match self.faults.sent.fetch_add(1, Ordering::SeqCst) {
                0 => return Err(cluster::Error::new(ErrorKind::Abort, "the output does not exist")),
                1 if self.faults.panics_at_second_send => panic!("on purpose, at a record"),
                _ => {}
            }
        }
        if Some(message.topic) == self.faults.counted_output {
            self.counted_records += 1;
            self.faults.sent_per_transaction_max.fetch_max(self.counted_records, Ordering::SeqCst);
        }
        if Some(message.topic) == self.faults.output && self.faults.is_down.load(Ordering::SeqCst) {
            *self.faults.attempts.lock().unwrap().entry(message.partition).or_default() += 1;
            let message = "the output is down".to_owned();
            self.failures.push(DeliveryFailure { number: ticket.number, refused: false, message });
            return Ok(());
        }
        let fallen_back = self.faults.fallen_back.load(Ordering::SeqCst);
        if message.topic.ends_with(".changelog") {
            let end = self.expected.iter().find(|(number, _)| *number == ticket.number).map_or(0, |(_, end)| *end);
            // The previous transaction's marker is at its end.
            let delivered_at = end + 1 - fallen_back + self.changelog_records;
            self.changelog_records += 1;
            if ticket.report && fallen_back > 0 {
                self.delivered.push((ticket.number, delivered_at));
            }
        }
        self.inner.send(ticket, message)
    }

    fn expect(&mut self, number: u64, expected: Expected) {
        self.expected.push((number, expected.from));
    }

    fn in_flight(&self) -> usize {
        self.inner.in_flight()
    }

    fn has_failed(&self) -> bool {
        !self.failures.is_empty() || self.inner.has_failed()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        self.failures.drain(..).chain(self.inner.take_failures()).collect()
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        let own = std::mem::take(&mut self.delivered);
        if own.is_empty() { self.inner.take_delivered() } else { own }
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Self::Metadata) -> Result<(), cluster::Error> {
        let is_below = |(number, at): &(u64, i64)| self.expected.iter().any(|(of, from)| of == number && at < from);
        if self.delivered.iter().any(is_below) {
            return Err(cluster::Error::new(ErrorKind::Abort, "a record was delivered to an offset that was taken"));
        }
        if !self.failures.is_empty() {
            return Err(cluster::Error::new(ErrorKind::Abort, "a record could not be delivered"));
        }
        self.inner.commit(offsets, group)
    }

    fn commit_while(
        &mut self,
        offsets: &[OffsetCommit],
        group: Self::Metadata,
        meanwhile: &mut dyn FnMut(Duration),
    ) -> Result<(), cluster::Error> {
        let refused = &self.faults.refused_commits;
        if refused.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| remaining.checked_sub(1)).is_ok() {
            meanwhile(Duration::from_millis(20));
            return Err(cluster::Error::new(ErrorKind::Abort, "the group has a later generation"));
        }
        self.commit(offsets, group)
    }

    fn abort(&mut self) -> Result<(), cluster::Error> {
        self.inner.abort()
    }
}

impl cluster::Settling for FaultySettling {
    fn poll(&mut self) -> Option<Result<Settled, cluster::Error>> {
        let mut result = self.0.poll();
        if let (Some(Ok(settled)), Some((alter, _))) = (&mut result, &self.1.outdated)
            && self.1.is_outdated.load(Ordering::SeqCst)
        {
            alter(settled);
        }
        result
    }
}

impl cluster::Reader for FaultyReader {
    type Batch = CountedBatch;

    fn read(&mut self, batch: &mut Self::Batch, records_max: usize, wait: Duration) -> Result<(), cluster::Error> {
        let Self { inner, partition, faults } = self;
        batch.held_records = None;
        if faults.unreadable == Some(&*partition.topic) {
            faults.read.fetch_add(1, Ordering::SeqCst);
            return Err(cluster::Error::new(ErrorKind::Refused, format!("{partition} cannot be read at offset 0"))
                .with(Some(cluster::Detail::Damaged))
                .of(partition));
        }
        if &*partition.topic == faults.isolated_readers.input
            && partition.partition < faults.isolated_readers.silent_below.load(Ordering::SeqCst)
        {
            batch.inner = Default::default();
            return Ok(());
        }
        inner.read(&mut batch.inner, records_max, wait)?;
        batch.held_records = Some(HeldRecords::new(batch.len(), &faults.held));
        if let Some((_, from)) = faults.panicking_reader.filter(|(topic, _)| *topic == &*partition.topic)
            && faults.read.fetch_add(1, Ordering::SeqCst) + 1 >= from
        {
            panic!("on purpose, of a reader");
        }
        Ok(())
    }

    fn position(&self) -> i64 {
        self.inner.position()
    }
}

impl Cluster for Faulty {
    type Batch = CountedBatch;
    type Metadata = <Embedded as Cluster>::Metadata;
    type Member = CountedMember;
    type Producer = FaultyProducer;
    type Reader = FaultyReader;
    type Settling = FaultySettling;

    const IS_SHARED: bool = true;

    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, cluster::Error> {
        if let Some((_, times)) = self.faults.unknown_topic.as_ref().filter(|(name, _)| *name == topic)
            && times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| remaining.checked_sub(1)).is_ok()
        {
            return Ok(None);
        }
        self.inner.describe_topic(topic)
    }

    fn describe_topic_briefly(&self, topic: &str) -> Result<Option<TopicOutline>, cluster::Error> {
        self.faults.watch_hook.iter().for_each(|watch_hook| watch_hook(None));
        self.inner.describe_topic_briefly(topic)
    }

    fn open_transaction(&self, partition: &TopicPartition, wait: Duration) -> Result<Option<i64>, cluster::Error> {
        let Some(watch_hook) = &self.faults.watch_hook else { return self.inner.open_transaction(partition, wait) };
        watch_hook(Some(wait));
        Err(cluster::Error::new(ErrorKind::Retry, "the leader is gone"))
    }

    fn abilities(&self) -> Option<Abilities> {
        self.faults.abilities.lock().unwrap().pop_front().flatten()
    }

    fn list_topics(&self) -> Result<Vec<String>, cluster::Error> {
        self.inner.list_topics()
    }

    fn bounds(&self, partition: &TopicPartition) -> Result<(i64, i64), cluster::Error> {
        self.inner.bounds(partition)
    }

    fn group_rights(&self, group: &str) -> Result<Option<Rights>, cluster::Error> {
        self.inner.group_rights(group)
    }

    fn members_of(&self, group: &str) -> Result<usize, cluster::Error> {
        self.inner.members_of(group)
    }

    fn create_topic(&self, topic: &NewTopic<'_>) -> Result<(), cluster::Error> {
        self.inner.create_topic(topic)
    }

    fn append_one(&self, message: &Message<'_>) -> Result<i64, cluster::Error> {
        self.inner.append_one(message)
    }

    fn member(&self, group: &str, topics: &[Arc<str>]) -> Result<Self::Member, cluster::Error> {
        let (inner, accesses) = (self.inner.member(group, topics)?, Arc::clone(&self.faults.accesses));
        let (trickle, is_group_unreachable) = (self.faults.trickle, Arc::clone(&self.faults.is_group_unreachable));
        Ok(CountedMember {
            inner,
            accesses,
            trickle,
            first_partition: None,
            polls: 0,
            is_group_unreachable,
            partitions: Vec::new(),
            is_losing: false,
            is_lost: false,
        })
    }

    fn producer(&self, transactional_id: &str) -> Result<Self::Producer, cluster::Error> {
        Ok(FaultyProducer {
            inner: self.inner.producer(transactional_id)?,
            faults: Arc::clone(&self.faults),
            expected: Vec::new(),
            changelog_records: 0,
            counted_records: 0,
            delivered: Vec::new(),
            failures: Vec::new(),
        })
    }

    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Self::Reader, cluster::Error> {
        self.faults.held_before.fetch_max(self.faults.held.load(Ordering::SeqCst), Ordering::SeqCst);
        let (partition, faults) = (partition.clone(), Arc::clone(&self.faults));
        let reader = FaultyReader { inner: self.inner.reader(&partition, offset)?, partition, faults };
        if reader.is_isolated() {
            let IsolatedReaders { current, max, .. } = &self.faults.isolated_readers;
            max.fetch_max(current.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        }
        Ok(reader)
    }

    fn settle(&self, inquiry: Inquiry) -> FaultySettling {
        if inquiry.looks_from.is_none() {
            self.faults.doubted.fetch_add(u32::from(inquiry.is_doubted), Ordering::SeqCst);
            let is_outdated = self.faults.outdated.as_ref().is_some_and(|(_, times)| {
                times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |remaining| remaining.checked_sub(1)).is_ok()
            });
            self.faults.is_outdated.store(is_outdated, Ordering::SeqCst);
        }
        FaultySettling(self.inner.settle(inquiry), Arc::clone(&self.faults))
    }

    fn fence(&self, transactional_id: &str) {
        self.inner.fence(transactional_id);
    }

    fn committed(
        &self,
        group: &str,
        partitions: &[TopicPartition],
        wait: Duration,
    ) -> Result<Vec<Option<CommittedOffset>>, cluster::Error> {
        self.inner.committed(group, partitions, wait)
    }
}
