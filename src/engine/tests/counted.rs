//! Batches of an embedded cluster that count how often their records are accessed, and how many are held.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::*;
use crate::cluster::{Error, GroupEvent, Member, RecordBatch, Waker};
use crate::record::{Record, TopicPartition};

type InnerBatch = <Embedded as Cluster>::Batch;

/// A counting batch.
#[derive(Default)]
pub struct Counted {
    pub inner: InnerBatch,
    /// The count of what a reader has read into it.
    pub holding: Option<Holding>,
    looks: Arc<AtomicU64>,
}

/// Counts this many records as held while it exists.
pub struct Holding {
    records: usize,
    held: Arc<AtomicUsize>,
}

impl Holding {
    pub fn new(records: usize, held: &Arc<AtomicUsize>) -> Self {
        held.fetch_add(records, Ordering::SeqCst);
        Self { records, held: Arc::clone(held) }
    }
}

impl Drop for Holding {
    fn drop(&mut self) {
        self.held.fetch_sub(self.records, Ordering::SeqCst);
    }
}

/// How the records of an input come: one at a time, and the next one is on its way before it is there.
#[derive(Clone, Copy)]
pub struct Trickle {
    /// One with so many polls.
    pub every: u64,
    /// From this offset on they are on their way for ever.
    pub until: i64,
}

/// A member whose batches share a count.
pub struct CountedMember {
    pub inner: <Embedded as Cluster>::Member,
    pub looks: Arc<AtomicU64>,
    pub trickle: Option<Trickle>,
    /// The partition that was first read.
    pub reads: Option<TopicPartition>,
    /// How many polls there were.
    pub polls: u64,
    /// Whether the group is gone, as when no broker answers.
    pub is_out: Arc<AtomicBool>,
    /// The partitions that it has, or had before it has lost them.
    pub has: Vec<TopicPartition>,
    /// Whether it was told that it loses its membership, and whether it has lost it.
    pub is_losing: bool,
    pub is_lost: bool,
}

impl CountedMember {
    /// What a member hears of a group that is gone, or is back; `None` while it is none of both.
    fn hears(&mut self, wait: Duration) -> Option<Option<GroupEvent>> {
        match (self.is_out.load(Ordering::SeqCst), self.is_lost) {
            (false, false) => None,
            (true, false) if !self.has.is_empty() => {
                self.is_losing = true;
                Some(Some(GroupEvent::Lost(self.has.clone())))
            }
            (true, _) => {
                // Without partitions there is nothing to be told.
                self.is_lost = true;
                std::thread::sleep(wait);
                Some(None)
            }
            (false, true) => Some(Some(GroupEvent::Assigned(self.has.clone()))),
        }
    }

    /// Whether nothing is there at this poll.
    fn keeps_back(&self, Trickle { every, until }: Trickle) -> bool {
        let next = self.reads.as_ref().and_then(|partition| self.inner.position(partition)).unwrap_or(0);
        next >= until || !self.polls.is_multiple_of(every)
    }
}

impl RecordBatch for Counted {
    fn partitions(&self) -> &[TopicPartition] {
        self.inner.partitions()
    }

    fn source(&self, index: usize) -> usize {
        self.inner.source(index)
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn record(&self, index: usize) -> Record<'_> {
        self.looks.fetch_add(1, Ordering::Relaxed);
        self.inner.record(index)
    }
}

impl Member for CountedMember {
    type Batch = Counted;
    type Metadata = <Embedded as Cluster>::Metadata;

    fn poll(&mut self, batch: &mut Counted, records_max: usize, wait: Duration) -> Result<Option<GroupEvent>, Error> {
        (batch.looks, batch.holding) = (Arc::clone(&self.looks), None);
        self.polls += 1;
        if let Some(heard) = self.hears(wait) {
            batch.inner = Default::default();
            return Ok(heard);
        }
        let records_max = match self.trickle {
            Some(trickle) => usize::from(!self.keeps_back(trickle)),
            None => records_max,
        };
        self.inner.poll(&mut batch.inner, records_max, wait)
    }

    fn waker(&self) -> Waker {
        self.inner.waker()
    }

    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error> {
        self.inner.subscribe(topics)
    }

    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        if std::mem::take(&mut self.is_lost) {
            return Ok(());
        }
        self.has.extend_from_slice(partitions);
        self.inner.accept_assigned(partitions)
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        // Even if the group is back by now.
        if std::mem::take(&mut self.is_losing) {
            self.is_lost = true;
            return partitions.iter().try_for_each(|partition| self.inner.pause(partition));
        }
        self.has.retain(|partition| !partitions.contains(partition));
        self.inner.accept_revoked(partitions)
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        self.reads.get_or_insert_with(|| partition.clone());
        self.inner.start(partition, offset)
    }

    fn pause(&mut self, partition: &TopicPartition) -> Result<(), Error> {
        self.inner.pause(partition)
    }

    fn position(&self, partition: &TopicPartition) -> Option<i64> {
        self.inner.position(partition)
    }

    fn end(&self, partition: &TopicPartition) -> Option<i64> {
        self.inner.end(partition)
    }

    fn is_member(&self) -> bool {
        // Only a member that has noticed the loss is assigned its partitions again.
        !self.is_lost
    }

    fn has_more(&self) -> bool {
        let is_behind = |partition| self.inner.position(partition) < self.inner.end(partition);
        self.trickle.is_some() && self.reads.as_ref().is_some_and(is_behind)
    }

    fn metadata(&self) -> Result<Self::Metadata, Error> {
        self.inner.metadata()
    }

    fn leave(self) -> Result<(), Error> {
        self.inner.leave()
    }
}
