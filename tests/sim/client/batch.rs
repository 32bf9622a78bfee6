//! Records as a client fetches them.

use ratchet::cluster::RecordBatch;
use ratchet::record::{Headers, Record, TopicPartition};

use crate::kafka;

/// Records that were read.
#[derive(Default)]
pub struct Batch {
    partitions: Vec<TopicPartition>,
    records: Vec<(usize, i64, kafka::Record)>,
}

impl Batch {
    pub fn clear(&mut self) {
        self.partitions.clear();
        self.records.clear();
    }

    /// Adds `partition`, which the following records belong to.
    pub fn open(&mut self, partition: &TopicPartition) {
        self.partitions.push(partition.clone());
    }

    pub fn drop_tombstones(&mut self) {
        self.records.retain(|(_, _, record)| record.value.is_some());
    }

    pub fn push(&mut self, offset: i64, record: &kafka::Record) {
        self.records.push((self.partitions.len() - 1, offset, record.clone()));
    }
}

impl RecordBatch for Batch {
    fn partitions(&self) -> &[TopicPartition] {
        &self.partitions
    }

    fn source(&self, index: usize) -> usize {
        self.records[index].0
    }

    fn len(&self) -> usize {
        self.records.len()
    }

    fn record(&self, index: usize) -> Record<'_> {
        let (source, offset, record) = &self.records[index];
        let partition = &self.partitions[*source];
        Record {
            topic: &partition.topic,
            partition: partition.partition,
            offset: *offset,
            timestamp: record.timestamp,
            key: record.key.as_deref(),
            value: record.value.as_deref(),
            headers: Headers::from_bytes(&record.headers),
        }
    }
}
