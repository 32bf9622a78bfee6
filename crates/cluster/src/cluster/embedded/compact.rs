//! Compaction: of records with the same key, only the last one is kept.
//!
//! **When**: right after a commit or an append that left a partition of a compacted topic with at least
//! [`Options::compact_records_min`] records and twice as many as the last compaction had left, on the
//! thread that wrote them. So its cost is spread over the records that made it due, and a log is never
//! longer than about twice its keys (and the minimum).
//!
//! **What a reader sees**: reading from offset 0 always folds to the same state, whenever it happens
//! and however slowly. Records keep their offsets. A record is removed only while a later one with its key
//! exists; a tombstone is removed only once all records before it are, once it has been there for
//! `delete.retention.ms` since a compaction first saw it, and once every live reader has passed it.
//! A crash in between leaves a log that is less compacted.
//!
//! [`Options::compact_records_min`]: super::Options::compact_records_min

use std::collections::HashSet;

use rocksdb::WriteBatch;

use super::broker::Broker;
use super::buffer::Buffer;
use super::layout::{self, PartitionMeta};
use super::state::{State, lowest_position};
use crate::cluster::{Error, TopicId};
use crate::record::TopicPartition;

/// How much a log must have grown since the last compaction.
const GROWTH: u64 = 2;
/// Maximum number of records removed in one write.
const CHUNK: usize = 50_000;

/// A compaction's input, as of its start.
struct Job<'a> {
    partition: &'a TopicPartition,
    id: TopicId,
    meta: PartitionMeta,
    delete_retention_ms: i64,
}

/// The result of a pass over the log.
#[derive(Default)]
struct Found {
    /// How many superseded records were removed.
    removed: u64,
    /// Offsets of tombstones that are the last record of their key, below the mark of the last compaction.
    old_tombstones: Vec<i64>,
}

impl Broker {
    /// Compacts what the buffer's records have made due. The records are committed in any case;
    /// a failed write breaks the cluster, like any other.
    pub fn compact_due(&self, buffer: &Buffer) {
        for (partition, id) in buffer.partitions() {
            let min = self.options.compact_records_min;
            let due = |meta: &PartitionMeta| meta.records >= min.max(meta.kept.saturating_mul(GROWTH));
            if let Err(e) = self.compact(partition, id, due) {
                tracing::warn!(event = "compaction_failed", %partition, error = %e);
            }
        }
    }

    /// Compacts a partition if its topic is compacted, no compaction of it is running, and it is `due`.
    pub fn compact(
        &self,
        partition: &TopicPartition,
        id: TopicId,
        due: impl FnOnce(&PartitionMeta) -> bool,
    ) -> Result<(), Error> {
        let Some(job) = self.state()?.begin_compaction(partition, id, due) else { return Ok(()) };
        let done = self.remove_superseded(&job).and_then(|found| self.finish(&job, &found));
        if let Some(known) =
            self.state()?.topics.get_mut(&partition.topic).and_then(|t| t.partition_mut(partition.partition))
        {
            known.compacting = false;
        }
        done
    }

    fn remove_superseded(&self, job: &Job<'_>) -> Result<Found, Error> {
        let mut found = Found::default();
        let mut seen: HashSet<Vec<u8>> = HashSet::new();
        let mut batch = WriteBatch::default();
        let mut scan = self.disk.scan(job.id, job.partition.partition, job.meta.start, job.meta.end);
        scan.backward(|offset, bytes| {
            let parts = layout::decode_record(bytes)?;
            // A compacted topic accepts no record without a key.
            let key = parts.key.unwrap_or_default();
            if seen.contains(key) {
                batch.delete(layout::record_key(job.id, job.partition.partition, offset));
                found.removed += 1;
                if batch.len() >= CHUNK {
                    self.write(&self.writing(), std::mem::take(&mut batch))?;
                }
                return Ok(());
            }
            seen.insert(key.to_vec());
            if parts.value.is_none() && offset < job.meta.tombstones_end {
                found.old_tombstones.push(offset);
            }
            Ok(())
        })?;
        if !batch.is_empty() {
            self.write(&self.writing(), batch)?;
        }
        Ok(found)
    }

    /// Removes the tombstones whose time is up, and updates the metadata. Only now, when every record
    /// that they hid is gone from the disk.
    fn finish(&self, job: &Job<'_>, found: &Found) -> Result<(), Error> {
        let writing = self.writing();
        let now_ms = (self.options.now_ms)();
        // The topic may have been deleted meanwhile, with its log.
        let Some((mut meta, lowest)) = self.state()?.as_compacted(job) else { return Ok(()) };
        let mut batch = WriteBatch::default();
        let mut removed = found.removed;
        let waited = now_ms.saturating_sub(meta.tombstones_since_ms) >= job.delete_retention_ms;
        if waited {
            for &offset in found.old_tombstones.iter().filter(|offset| **offset < lowest) {
                batch.delete(layout::record_key(job.id, job.partition.partition, offset));
                removed += 1;
            }
        }
        if meta.tombstones_end == 0 || (waited && lowest >= meta.tombstones_end) {
            meta.tombstones_end = job.meta.end;
            meta.tombstones_since_ms = now_ms;
        }
        meta.records = meta.records.saturating_sub(removed);
        meta.kept = meta.records;
        batch.put(layout::partition_key(job.id, job.partition.partition), layout::encode(&meta));
        self.write(&writing, batch)?;
        self.state()?.publish(job.partition, job.id, &meta);
        Ok(())
    }
}

impl State {
    fn begin_compaction<'a>(
        &mut self,
        partition: &'a TopicPartition,
        id: TopicId,
        due: impl FnOnce(&PartitionMeta) -> bool,
    ) -> Option<Job<'a>> {
        let topic = self.topics.get_mut(&partition.topic).filter(|topic| topic.id == id)?;
        let delete_retention_ms = topic.settings.delete_retention_ms;
        if !topic.settings.is_compacted() {
            return None;
        }
        let known = topic.partition_mut(partition.partition)?;
        if known.compacting || !due(&known.meta) {
            return None;
        }
        known.compacting = true;
        Some(Job { partition, id, meta: known.meta, delete_retention_ms })
    }

    /// The partition's present metadata, and the lowest position of its readers.
    fn as_compacted(&self, job: &Job<'_>) -> Option<(PartitionMeta, i64)> {
        let topic = self.topics.get(&job.partition.topic).filter(|topic| topic.id == job.id)?;
        let known = topic.partition(job.partition.partition)?;
        Some((known.meta, lowest_position(&known.readers)))
    }
}
