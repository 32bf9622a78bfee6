//! The remaining room in a transaction, and the amounts that a batch has added to it.

use crate::cluster::{self, RecordBatch};
use crate::observe::Settled;

/// The remaining room in a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// Records decided.
    pub records: usize,
    /// Bytes that the producer may hold for sent records. The record that exceeds this bound is still processed.
    pub bytes: usize,
    /// Bytes of records to read at once, the last of which may not fit: equal to `bytes`, or more if little room
    /// remains. Otherwise duplicates, which are never sent, would be read and looked up one at a time.
    pub read_bytes: usize,
}

impl Capacity {
    /// Room for this many records and bytes.
    pub fn of(records: usize, bytes: usize) -> Self {
        Self { records, bytes, read_bytes: bytes }
    }

    /// How many of these records to read: as many as would fit if all of them were sent. Any further record would be
    /// read again for the next transaction.
    pub fn fitting<B: RecordBatch>(&self, batch: &B, indices: &[usize]) -> usize {
        let mut remaining = self.read_bytes;
        let has_room = |index: &&usize| {
            let had_room = remaining > 0;
            let record = batch.record(**index);
            remaining =
                remaining.saturating_sub(cluster::held_bytes(record.key, record.value, record.headers) + ADDED_BYTES);
            had_room
        };
        indices.iter().take(self.records).take_while(has_room).count()
    }
}

/// Roughly how much a sent record may exceed the record that was read: a dead letter carries the reason.
const ADDED_BYTES: usize = 1 << 10;

/// The amounts that a batch has added to a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub struct Added {
    /// Records decided.
    pub records: usize,
    /// Bytes that the producer holds for sent records.
    pub bytes: usize,
    /// Records sent to the dead letter topic.
    pub dead_letters: u64,
    /// Records that began an epoch.
    pub epoch_changes: u64,
    /// For a topology that calls a provider: the numbers of settled records, by outcome.
    pub settled: Settled,
}
