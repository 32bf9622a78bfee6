//! Batches of an embedded cluster that count the accesses to their records, and the records that are held.

use std::sync::atomic::{AtomicU64, AtomicUsize};

use super::*;
use crate::cluster::{Error, GroupEvent, Member, RecordBatch, Waker};
use crate::record::{Record, TopicPartition};

type InnerBatch = <Embedded as Cluster>::Batch;

/// A batch that counts.
#[derive(Default)]
pub struct CountedBatch {
    pub inner: InnerBatch,
    /// Counts the records that a reader has read into the batch.
    pub held_records: Option<HeldRecords>,
    accesses: Arc<AtomicU64>,
}

/// Counts this many records as held while it exists.
pub struct HeldRecords {
    records: usize,
    held: Arc<AtomicUsize>,
}

impl HeldRecords {
    pub fn new(records: usize, held: &Arc<AtomicUsize>) -> Self {
        held.fetch_add(records, Ordering::SeqCst);
        Self { records, held: Arc::clone(held) }
    }
}

impl Drop for HeldRecords {
    fn drop(&mut self) {
        self.held.fetch_sub(self.records, Ordering::SeqCst);
    }
}

/// Delivers the records of an input one at a time; the member reports that there is more before the next record
/// arrives.
#[derive(Clone, Copy)]
pub struct Trickle {
    /// The number of polls for each record.
    pub polls_per_record: u64,
    /// Records from this offset on never arrive.
    pub end_offset: i64,
}

/// A member whose batches share a counter.
pub struct CountedMember {
    pub inner: <Embedded as Cluster>::Member,
    pub accesses: Arc<AtomicU64>,
    pub trickle: Option<Trickle>,
    /// The first partition that was read.
    pub first_partition: Option<TopicPartition>,
    /// The number of polls.
    pub polls: u64,
    /// Whether the group is unreachable, as if no broker responded.
    pub is_group_unreachable: Arc<AtomicBool>,
    /// The partitions that it owns, or owned before it lost them.
    pub partitions: Vec<TopicPartition>,
    /// Whether it was informed that it is losing its membership.
    pub is_losing: bool,
    /// Whether it has lost its membership.
    pub is_lost: bool,
}

impl CountedMember {
    /// The result of a poll if the group is unreachable, or reachable again; `None` otherwise.
    fn group_event(&mut self, wait: Duration) -> Option<Option<GroupEvent>> {
        match (self.is_group_unreachable.load(Ordering::SeqCst), self.is_lost) {
            (false, false) => None,
            (true, false) if !self.partitions.is_empty() => {
                self.is_losing = true;
                Some(Some(GroupEvent::Lost(self.partitions.clone())))
            }
            (true, _) => {
                // Without partitions there is no event.
                self.is_lost = true;
                std::thread::sleep(wait);
                Some(None)
            }
            (false, true) => Some(Some(GroupEvent::Assigned(self.partitions.clone()))),
        }
    }

    /// Whether this poll delivers no record.
    fn withholds(&self, Trickle { polls_per_record, end_offset }: Trickle) -> bool {
        let next = self.first_partition.as_ref().and_then(|partition| self.inner.position(partition)).unwrap_or(0);
        next >= end_offset || !self.polls.is_multiple_of(polls_per_record)
    }
}

impl RecordBatch for CountedBatch {
    fn partitions(&self) -> &[TopicPartition] {
        self.inner.partitions()
    }

    fn partition_index(&self, index: usize) -> usize {
        self.inner.partition_index(index)
    }

    fn len(&self) -> usize {
        self.inner.len()
    }

    fn record(&self, index: usize) -> Record<'_> {
        self.accesses.fetch_add(1, Ordering::Relaxed);
        self.inner.record(index)
    }
}

impl Member for CountedMember {
    type Batch = CountedBatch;
    type Metadata = <Embedded as Cluster>::Metadata;

    fn poll(
        &mut self,
        batch: &mut CountedBatch,
        records_max: usize,
        wait: Duration,
    ) -> Result<Option<GroupEvent>, Error> {
        (batch.accesses, batch.held_records) = (Arc::clone(&self.accesses), None);
        self.polls += 1;
        if let Some(event) = self.group_event(wait) {
            batch.inner = Default::default();
            return Ok(event);
        }
        let records_max = match self.trickle {
            Some(trickle) => usize::from(!self.withholds(trickle)),
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
        self.partitions.extend_from_slice(partitions);
        self.inner.accept_assigned(partitions)
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        // This applies even if the group is reachable again.
        if std::mem::take(&mut self.is_losing) {
            self.is_lost = true;
            return partitions.iter().try_for_each(|partition| self.inner.pause(partition));
        }
        self.partitions.retain(|partition| !partitions.contains(partition));
        self.inner.accept_revoked(partitions)
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
        self.first_partition.get_or_insert_with(|| partition.clone());
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
        self.trickle.is_some() && self.first_partition.as_ref().is_some_and(is_behind)
    }

    fn metadata(&self) -> Result<Self::Metadata, Error> {
        self.inner.metadata()
    }

    fn leave(self) -> Result<(), Error> {
        self.inner.leave()
    }
}
