//! How much fits into a transaction, and how much a batch has added to it.

use crate::cluster::{self, RecordBatch};
use crate::observe::Settled;

/// How much more fits into a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Records decided.
    pub records: usize,
    /// Bytes held by the producer for what is sent. The record that uses up the last of them is still processed.
    pub bytes: usize,
    /// Bytes of records worth reading at once, the last of which may not fit: the same number, or more where only
    /// little is left. Otherwise duplicates, which are never sent, would be read and looked up one at a time.
    pub read_bytes: usize,
}

impl Capacity {
    /// Room for this much.
    pub fn of(records: usize, bytes: usize) -> Self {
        Self { records, bytes, read_bytes: bytes }
    }

    /// How many of these records to read: those that would fit if every one of them were sent. Anything beyond would be
    /// read again for the next transaction.
    pub fn reach<B: RecordBatch>(&self, batch: &B, indices: &[usize]) -> usize {
        let mut left = self.read_bytes;
        let has_room = |index: &&usize| {
            let had_room = left > 0;
            let record = batch.record(**index);
            left = left.saturating_sub(cluster::held_bytes(record.key, record.value, record.headers) + ADDED_BYTES);
            had_room
        };
        indices.iter().take(self.records).take_while(has_room).count()
    }
}

/// Roughly how much a record may grow on its way: a dead letter carries the reason.
const ADDED_BYTES: usize = 1 << 10;

/// What a batch has added to a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// Records decided, counted from the first.
    pub records: usize,
    /// Bytes held by the producer for what was sent.
    pub bytes: usize,
    /// Records sent to the dead letter topic.
    pub dead_letters: u64,
    /// Records that began an epoch.
    pub epoch_changes: u64,
    /// Where the topology calls a provider: what became of its records.
    pub settled: Settled,
}
