//! Records as the client has fetched them.

use ratchet::cluster::RecordBatch;
use ratchet::cluster::kafka::client;
use ratchet::record::{Record, TopicPartition};

/// Records that were read.
#[derive(Default)]
pub struct Batch {
    pub records: client::Batch,
    /// The records that are shown, if not all are.
    kept: Option<Vec<usize>>,
}

impl Batch {
    pub fn clear(&mut self) {
        self.records.clear();
        self.kept = None;
    }

    pub fn drop_tombstones(&mut self) {
        let has_value = |index: &usize| self.records.record(*index).value.is_some();
        self.kept = Some((0..self.records.len()).filter(has_value).collect());
    }

    fn place(&self, index: usize) -> usize {
        self.kept.as_ref().map_or(index, |kept| kept[index])
    }
}

impl RecordBatch for Batch {
    fn partitions(&self) -> &[TopicPartition] {
        self.records.partitions()
    }

    fn partition_index(&self, index: usize) -> usize {
        self.records.partition_index(self.place(index))
    }

    fn len(&self) -> usize {
        self.kept.as_ref().map_or(self.records.len(), Vec::len)
    }

    fn record(&self, index: usize) -> Record<'_> {
        self.records.record(self.place(index))
    }
}
