//! `limit`: a pass-through with a changelog record for each record, on ratchet's own client: what the log costs where it
//! is read and written by the batch. ratchet on the wire does the same work on the log, and the deciding besides.
//!
//! Lanes are what ratchet's are, a thread each with its own member and its own transactional producer, on the same
//! traits. They pass on headers and timestamps, as ratchet does, and the floors do not.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use ratchet::cluster::kafka::{Batch, DataPath, Kafka, Member as KafkaMember, Producer as KafkaProducer};
use ratchet::cluster::{
    Cluster as _, CommittedOffset, ErrorKind, GroupEvent, Member as _, Message, OffsetCommit, Producer as _, Queues,
    RecordBatch as _, Ticket,
};
use ratchet::record::TopicPartition;

use crate::failure::{Context as _, Failure, Outcome, fail};
use crate::floor::{CHANGELOG_KEY, CHANGELOG_VALUE, changelog_record};
use crate::generate::PARTITIONS;
use crate::spec::Spec;

/// Maximum number of records taken in one call.
const BATCH: usize = 10_000;
/// How long a lane waits for a record before it checks whether to commit or to stop.
const WAIT: Duration = Duration::from_millis(5);
/// How long the group's offsets may take.
const COMMITTED_WAIT: Duration = Duration::from_secs(30);
/// A commit tells whether records have arrived.
const UNREPORTED: Ticket = Ticket { number: 0, report: false };

/// Runs until `stop`: a lane for each thread of the spec.
pub fn run(spec: &Spec, stop: &AtomicBool) -> Outcome<()> {
    let common = BTreeMap::from([("bootstrap.servers".to_owned(), spec.brokers.clone())]);
    let none = BTreeMap::new();
    let cluster = Kafka::within(Queues::default(), DataPath::Wire, &common, &none, &none).context("the cluster")?;
    let settled = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        let lane = |number: usize| {
            let (cluster, settled) = (&cluster, &settled);
            scope.spawn(move || {
                let done = Lane::open(cluster, spec, settled, number).and_then(|lane| lane.run(stop));
                // The other lanes would never finish.
                stop.store(true, Ordering::Relaxed);
                done
            })
        };
        let lanes: Vec<_> = (0..spec.threads.max(1)).map(lane).collect();
        lanes.into_iter().try_for_each(|lane| lane.join().map_err(|_| Failure("a lane panicked".to_owned()))?)
    })
}

struct Lane<'a> {
    cluster: &'a Kafka,
    spec: &'a Spec,
    member: KafkaMember,
    producer: KafkaProducer,
    /// By partition of the input: where its changelog records go.
    changelogs: Vec<TopicPartition>,
    /// The partitions of the input that it has.
    held: BTreeSet<TopicPartition>,
    /// How many lanes have their share of the partitions.
    settled: &'a AtomicUsize,
    /// Whether it is one of them.
    is_settled: bool,
    /// Whether it reads its partitions. Not before all lanes are settled: a commit while the group rebalances would fail.
    reads: bool,
    batch: Batch,
    /// By partition of the input: the offset to commit.
    next: BTreeMap<TopicPartition, i64>,
    /// When the open transaction began.
    began: Option<Instant>,
    /// The changelog records of one batch: keys and values, one after the other.
    bytes: Vec<u8>,
}

impl<'a> Lane<'a> {
    fn open(cluster: &'a Kafka, spec: &'a Spec, settled: &'a AtomicUsize, number: usize) -> Outcome<Self> {
        let member = cluster.member(&spec.group, &[Arc::from(&*spec.input)]).context("a member")?;
        let producer = cluster.producer(&format!("{}-{number}", spec.group)).context("a producer")?;
        let changelogs = (0..PARTITIONS).map(|partition| TopicPartition::new(&*spec.changelog, partition)).collect();
        let (held, batch, next) = (BTreeSet::new(), Batch::default(), BTreeMap::new());
        let (is_settled, reads, began, bytes) = (false, false, None, Vec::new());
        Ok(Lane {
            cluster,
            spec,
            member,
            producer,
            changelogs,
            held,
            settled,
            is_settled,
            reads,
            batch,
            next,
            began,
            bytes,
        })
    }

    fn run(mut self, stop: &AtomicBool) -> Outcome<()> {
        let commit_every = Duration::from_millis(self.spec.commit_ms);
        loop {
            let stopping = stop.load(Ordering::Relaxed);
            if self.began.is_some_and(|began| stopping || began.elapsed() >= commit_every) {
                self.commit()?;
            }
            if stopping {
                return self.member.leave().context("leaving the group");
            }
            if !self.reads && self.settled.load(Ordering::Relaxed) >= self.lanes() {
                self.reads = true;
                let held: Vec<_> = self.held.iter().cloned().collect();
                self.begin_at(&held)?;
            }
            let event = match self.member.poll(&mut self.batch, BATCH, WAIT) {
                Err(error) if error.kind == ErrorKind::Retry => continue,
                polled => polled.context("reading")?,
            };
            match event {
                None => self.pass()?,
                Some(GroupEvent::Assigned(partitions)) => {
                    self.member.accept_assigned(&partitions).context("taking partitions")?;
                    self.held.extend(partitions.iter().cloned());
                    if self.reads { self.begin_at(&partitions)? } else { self.settle() }
                }
                Some(GroupEvent::Revoked(partitions)) => {
                    self.commit()?;
                    self.member.accept_revoked(&partitions).context("giving partitions back")?;
                    self.held.retain(|partition| !partitions.contains(partition));
                }
                Some(GroupEvent::Lost(partitions)) => fail!("{} partitions were lost", partitions.len()),
            }
        }
    }

    /// How many lanes get partitions. The group has no others.
    fn lanes(&self) -> usize {
        self.spec.threads.clamp(1, PARTITIONS as usize)
    }

    /// Settled once it has been assigned its share and no more. A lane that gives partitions back gets another assignment,
    /// perhaps an empty one, when the group's next generation begins.
    fn settle(&mut self) {
        let share = (PARTITIONS as usize).div_ceil(self.lanes());
        if !self.is_settled && (1..=share).contains(&self.held.len()) {
            self.is_settled = true;
            self.settled.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn begin_at(&mut self, partitions: &[TopicPartition]) -> Outcome<()> {
        let committed = self.cluster.committed(&self.spec.group, partitions, COMMITTED_WAIT);
        for (partition, committed) in partitions.iter().zip(committed.context("the group's offsets")?) {
            let offset = committed.map_or(0, |committed| committed.offset);
            self.member.start(partition, offset).context(partition)?;
        }
        Ok(())
    }

    /// Sends what was read, and its changelog records, run by run of one partition.
    fn pass(&mut self) -> Outcome<()> {
        if self.batch.is_empty() {
            return Ok(());
        }
        if self.began.is_none() {
            self.producer.begin().context("a transaction")?;
            self.began = Some(Instant::now());
        }
        let mut start = 0;
        while start < self.batch.len() {
            let partition_index = self.batch.partition_index(start);
            let end = (start..self.batch.len())
                .find(|at| self.batch.partition_index(*at) != partition_index)
                .unwrap_or(self.batch.len());
            self.pass_run(partition_index, start..end)?;
            start = end;
        }
        Ok(())
    }

    fn pass_run(&mut self, partition_index: usize, run: Range<usize>) -> Outcome<()> {
        self.bytes.clear();
        let mut next = 0;
        for record in run.map(|at| self.batch.record(at)) {
            let message = Message {
                topic: &self.spec.output,
                partition: record.partition,
                key: record.key,
                value: record.value,
                headers: record.headers,
                timestamp: record.timestamp,
            };
            self.producer.send(UNREPORTED, &message).context("the output")?;
            changelog_record(record.partition, record.offset, &mut self.bytes);
            next = record.offset + 1;
        }
        let partition = self.batch.partitions().get(partition_index).context("a batch knows its partitions")?;
        let records = self.bytes.chunks_exact(CHANGELOG_KEY + CHANGELOG_VALUE).map(|bytes| {
            let (key, value) = bytes.split_at(CHANGELOG_KEY);
            (key, Some(value))
        });
        let changelog = self.changelogs.get(partition.partition as usize).context("a partition too many")?;
        self.producer.send_all(UNREPORTED.number, changelog, records).context("the changelog")?;
        self.next.insert(partition.clone(), next);
        Ok(())
    }

    fn commit(&mut self) -> Outcome<()> {
        if self.began.take().is_none() {
            return Ok(());
        }
        let commit = |(partition, offset)| OffsetCommit {
            partition,
            committed: CommittedOffset { offset, metadata: String::new() },
        };
        let offsets: Vec<_> = std::mem::take(&mut self.next).into_iter().map(commit).collect();
        let membership = self.member.metadata().context("the membership")?;
        self.producer.commit(&offsets, membership).context("a commit")
    }
}
