//! Batches of an embedded cluster that count how often their records are looked at.

use std::sync::atomic::AtomicU64;

use super::*;
use crate::cluster::{Error, GroupEvent, Member, RecordBatch};
use crate::record::{Record, TopicPartition};

type InnerBatch = <Embedded as Cluster>::Batch;

/// A batch that counts.
#[derive(Default)]
pub struct Counted {
    pub inner: InnerBatch,
    looks: Arc<AtomicU64>,
}

/// A member whose batches count together.
pub struct CountedMember {
    pub inner: <Embedded as Cluster>::Member,
    pub looks: Arc<AtomicU64>,
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
        batch.looks = Arc::clone(&self.looks);
        self.inner.poll(&mut batch.inner, records_max, wait)
    }

    fn subscribe(&mut self, topics: &[Arc<str>]) -> Result<(), Error> {
        self.inner.subscribe(topics)
    }

    fn accept_assigned(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.inner.accept_assigned(partitions)
    }

    fn accept_revoked(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        self.inner.accept_revoked(partitions)
    }

    fn start(&mut self, partition: &TopicPartition, offset: i64) -> Result<(), Error> {
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

    fn metadata(&self) -> Result<Self::Metadata, Error> {
        self.inner.metadata()
    }

    fn leave(self) -> Result<(), Error> {
        self.inner.leave()
    }
}
