//! A cluster with faults that an embedded one does not have.

use std::collections::VecDeque;
use std::sync::Mutex;
use std::sync::atomic::{AtomicI32, AtomicI64, AtomicU32, AtomicU64, AtomicUsize};

use super::counted::{Counted, CountedMember, Holding, Trickle};
use super::*;
use crate::cluster::{
    Abilities, CommittedOffset, DeliveryFailure, Inquiry, OffsetCommit, RecordBatch, Rights, Settled, Ticket,
    TopicDescription, TopicOutline,
};
use crate::record::TopicPartition;

/// What a broker that does not know it was replaced reports differently.
pub type Outdated = fn(&mut Settled);

/// Called for each check of a topic with `None`, and for each lookup of an open transaction, which gets no response,
/// with the time it may take.
pub type Watched = Box<dyn Fn(Option<Duration>) + Send + Sync>;

/// Readers of an input outside the group.
#[derive(Default)]
pub struct Alone {
    /// The input.
    pub input: &'static str,
    /// How many there are, and the most there ever were.
    pub now: AtomicU32,
    pub max: AtomicU32,
    /// Partitions below this one deliver nothing.
    pub silent_below: AtomicI32,
}

/// What goes wrong.
#[derive(Default)]
pub struct Faults {
    /// The output topic that fails a task at the first record sent to it.
    pub failing_output: Option<&'static str>,
    /// How many records were sent to it.
    pub sent: AtomicU32,
    /// The input topic that cannot be read outside the group.
    pub unreadable: Option<&'static str>,
    /// How often that was tried.
    pub read: AtomicU32,
    /// How many offsets the end of each changelog has fallen back.
    pub fallen_back: AtomicI64,
    /// What a broker that does not know it was replaced reports, and how often such a one is asked; it also responds to
    /// later queries for the same task, such as what a changelog holds.
    pub outdated: Option<(Outdated, AtomicU32)>,
    /// A topic that brokers have not heard of, for this many queries.
    pub unheard_of: Option<(&'static str, AtomicU32)>,
    /// Whether the last broker asked was an outdated one.
    pub is_outdated: AtomicBool,
    /// How often a response was doubted.
    pub doubted: AtomicU32,
    /// Whether the second send to the failing output panics.
    pub panics_when_sent_again: bool,
    /// A topic whose readers panic after reading, from this read on.
    pub panicking_reader: Option<(&'static str, u32)>,
    /// How many records read by readers are held, and the most that were held when a reader was created.
    pub held: Arc<AtomicUsize>,
    pub held_before: AtomicUsize,
    /// An output topic, and the most records that one transaction has written to it.
    pub counted_output: Option<&'static str>,
    pub sent_at_once_max: AtomicU32,
    /// An output topic that accepts nothing while it is down, and how often each partition was tried meanwhile.
    pub output: Option<&'static str>,
    pub is_down: AtomicBool,
    pub tried: Mutex<BTreeMap<i32, u32>>,
    /// The readers that are counted.
    pub alone: Alone,
    /// How often members' records were accessed.
    pub looks: Arc<AtomicU64>,
    /// How members' records come, if not as they are.
    pub trickle: Option<Trickle>,
    /// Whether the group is gone.
    pub is_out: Arc<AtomicBool>,
    /// How many commits are refused after the lane has gone on during them: its generation is over.
    pub refused_commits: AtomicU32,
    /// Called for what the watch checks.
    pub watched: Option<Watched>,
    /// What the brokers say that they can do, to one question after the other.
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
    /// How many records of the open transaction were sent to the changelog, and to the counted output.
    logged: i64,
    counted: u32,
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
    fn is_alone(&self) -> bool {
        &*self.partition.topic == self.faults.alone.input
    }
}

impl Drop for FaultyReader {
    fn drop(&mut self) {
        if self.is_alone() {
            self.faults.alone.now.fetch_sub(1, Ordering::SeqCst);
        }
    }
}

impl cluster::Producer for FaultyProducer {
    type Metadata = <Embedded as Cluster>::Metadata;

    fn id(&self) -> &str {
        self.inner.id()
    }

    fn begin(&mut self) -> Result<(), cluster::Error> {
        (self.expected, self.logged, self.counted) = (Vec::new(), 0, 0);
        self.inner.begin()
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), cluster::Error> {
        if Some(message.topic) == self.faults.failing_output {
            match self.faults.sent.fetch_add(1, Ordering::SeqCst) {
                0 => return Err(cluster::Error::new(ErrorKind::Abort, "the output is not there")),
                1 if self.faults.panics_when_sent_again => panic!("on purpose, at a record"),
                _ => {}
            }
        }
        if Some(message.topic) == self.faults.counted_output {
            self.counted += 1;
            self.faults.sent_at_once_max.fetch_max(self.counted, Ordering::SeqCst);
        }
        if Some(message.topic) == self.faults.output && self.faults.is_down.load(Ordering::SeqCst) {
            *self.faults.tried.lock().unwrap().entry(message.partition).or_default() += 1;
            let message = "the output is down".to_owned();
            self.failures.push(DeliveryFailure { number: ticket.number, refused: false, message });
            return Ok(());
        }
        let fallen_back = self.faults.fallen_back.load(Ordering::SeqCst);
        if message.topic.ends_with(".changelog") {
            let end = self.expected.iter().find(|(number, _)| *number == ticket.number).map_or(0, |(_, end)| *end);
            // The previous transaction's marker is at its end.
            let lands = end + 1 - fallen_back + self.logged;
            self.logged += 1;
            if ticket.report && fallen_back > 0 {
                self.delivered.push((ticket.number, lands));
            }
        }
        self.inner.send(ticket, message)
    }

    fn expect_from(&mut self, number: u64, offset: i64) {
        self.expected.push((number, offset));
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
        if refused.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok() {
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
        let mut answer = self.0.poll();
        if let (Some(Ok(settled)), Some((tell, _))) = (&mut answer, &self.1.outdated)
            && self.1.is_outdated.load(Ordering::SeqCst)
        {
            tell(settled);
        }
        answer
    }
}

impl cluster::Reader for FaultyReader {
    type Batch = Counted;

    fn read(&mut self, batch: &mut Self::Batch, records_max: usize, wait: Duration) -> Result<(), cluster::Error> {
        let Self { inner, partition, faults } = self;
        batch.holding = None;
        if faults.unreadable == Some(&*partition.topic) {
            faults.read.fetch_add(1, Ordering::SeqCst);
            return Err(cluster::Error::new(ErrorKind::Refused, format!("{partition} cannot be read at offset 0"))
                .with(Some(cluster::Detail::Damaged))
                .of(partition));
        }
        if &*partition.topic == faults.alone.input
            && partition.partition < faults.alone.silent_below.load(Ordering::SeqCst)
        {
            batch.inner = Default::default();
            return Ok(());
        }
        inner.read(&mut batch.inner, records_max, wait)?;
        batch.holding = Some(Holding::new(batch.len(), &faults.held));
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
    type Batch = Counted;
    type Metadata = <Embedded as Cluster>::Metadata;
    type Member = CountedMember;
    type Producer = FaultyProducer;
    type Reader = FaultyReader;
    type Settling = FaultySettling;

    const IS_SHARED: bool = true;

    fn describe_topic(&self, topic: &str) -> Result<Option<TopicDescription>, cluster::Error> {
        if let Some((_, times)) = self.faults.unheard_of.as_ref().filter(|(name, _)| *name == topic)
            && times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
        {
            return Ok(None);
        }
        self.inner.describe_topic(topic)
    }

    fn outline_topic(&self, topic: &str) -> Result<Option<TopicOutline>, cluster::Error> {
        self.faults.watched.iter().for_each(|watched| watched(None));
        self.inner.outline_topic(topic)
    }

    fn open_transaction(&self, partition: &TopicPartition, wait: Duration) -> Result<Option<i64>, cluster::Error> {
        let Some(watched) = &self.faults.watched else { return self.inner.open_transaction(partition, wait) };
        watched(Some(wait));
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
        let (inner, looks) = (self.inner.member(group, topics)?, Arc::clone(&self.faults.looks));
        let (trickle, is_out) = (self.faults.trickle, Arc::clone(&self.faults.is_out));
        Ok(CountedMember {
            inner,
            looks,
            trickle,
            reads: None,
            polls: 0,
            is_out,
            has: Vec::new(),
            is_losing: false,
            is_lost: false,
        })
    }

    fn producer(&self, transactional_id: &str) -> Result<Self::Producer, cluster::Error> {
        Ok(FaultyProducer {
            inner: self.inner.producer(transactional_id)?,
            faults: Arc::clone(&self.faults),
            expected: Vec::new(),
            logged: 0,
            counted: 0,
            delivered: Vec::new(),
            failures: Vec::new(),
        })
    }

    fn reader(&self, partition: &TopicPartition, offset: i64) -> Result<Self::Reader, cluster::Error> {
        self.faults.held_before.fetch_max(self.faults.held.load(Ordering::SeqCst), Ordering::SeqCst);
        let (partition, faults) = (partition.clone(), Arc::clone(&self.faults));
        let reader = FaultyReader { inner: self.inner.reader(&partition, offset)?, partition, faults };
        if reader.is_alone() {
            let Alone { now, max, .. } = &self.faults.alone;
            max.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
        }
        Ok(reader)
    }

    fn settle(&self, inquiry: Inquiry) -> FaultySettling {
        if inquiry.looks_from.is_none() {
            self.faults.doubted.fetch_add(u32::from(inquiry.is_doubted), Ordering::SeqCst);
            let is_outdated = self.faults.outdated.as_ref().is_some_and(|(_, times)| {
                times.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok()
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
