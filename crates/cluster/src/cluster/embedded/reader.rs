//! Reading one partition outside any group.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use super::batch::Batch;
use super::broker::Broker;
use super::clock::now;
use super::disk::Scan;
use super::error::refused;
use super::layout;
use super::state::State;
use crate::cluster::{self, Error, RecordBatch, TopicId};
use crate::record::TopicPartition;

/// Approximate maximum size of a batch, whatever was requested.
pub(super) const BATCH_BYTES_MAX: usize = 16 << 20;

/// A position in a partition, and how far it can be read from there.
#[derive(Debug)]
pub(super) struct Cursor {
    pub partition: TopicPartition,
    /// The topic's id; another topic of the same name is rejected.
    pub id: TopicId,
    pub position: i64,
    /// The partition's end, as last seen.
    pub end: i64,
}

impl Cursor {
    pub fn new(state: &State, partition: &TopicPartition, position: i64) -> Result<Self, Error> {
        let id = state.topic_of(partition)?.id;
        let end = state.meta(partition, id)?.end;
        Ok(Self { partition: partition.clone(), id, position, end })
    }

    /// Updates the partition's end; returns whether there is anything to read. Refused if nothing
    /// can be read at this position, now or ever.
    pub fn refresh(&mut self, state: &State) -> Result<bool, Error> {
        let meta = state.meta(&self.partition, self.id)?;
        self.end = meta.end;
        let (partition, position) = (&self.partition, self.position);
        if position < meta.start {
            let start = meta.start;
            return Err(refused(format!("{partition} has no offset {position} any more: it begins at {start}")));
        }
        if position > meta.end {
            let end = meta.end;
            return Err(refused(format!("{partition} has no offset {position}: it ends at {end}")));
        }
        Ok(position < meta.end)
    }

    /// A scan of what there is to read as of now: to be called with the state locked, right after
    /// [`Cursor::refresh`], so that nothing is removed in between.
    pub fn scan<'a>(&self, broker: &'a Broker) -> Scan<'a> {
        broker.disk.scan(self.id, self.partition.partition, self.position, self.end)
    }

    /// Reads from `scan` until the batch has `records_max` records or enough bytes, and advances.
    pub fn read(&mut self, scan: &mut Scan<'_>, batch: &mut Batch, records_max: usize) -> Result<(), Error> {
        let source = batch.add_partition(&self.partition);
        let stopped = scan.forward(|offset, encoded| {
            if batch.len() >= records_max || batch.byte_len() >= BATCH_BYTES_MAX {
                return Ok(false);
            }
            batch.push(source, offset, &layout::decode_record(encoded)?);
            Ok(true)
        })?;
        self.position = stopped.unwrap_or(self.end);
        Ok(())
    }
}

/// See [`cluster::Reader`].
pub struct Reader {
    broker: Arc<Broker>,
    cursor: Cursor,
    /// The position, visible to compactions.
    position: Arc<AtomicI64>,
}

impl Reader {
    pub(super) fn open(broker: &Arc<Broker>, partition: &TopicPartition, offset: i64) -> Result<Self, Error> {
        let position = Arc::new(AtomicI64::new(offset));
        let mut state = broker.state()?;
        let mut cursor = Cursor::new(&state, partition, offset)?;
        cursor.refresh(&state)?;
        state.watch(partition, &position);
        Ok(Self { broker: Arc::clone(broker), cursor, position })
    }
}

impl cluster::Reader for Reader {
    type Batch = Batch;

    fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        batch.clear();
        let deadline = now() + wait;
        let mut state = self.broker.state()?;
        loop {
            if self.cursor.refresh(&state)? && records_max > 0 {
                let mut scan = self.cursor.scan(&self.broker);
                drop(state);
                self.cursor.read(&mut scan, batch, records_max)?;
                self.position.store(self.cursor.position, Ordering::Release);
                if !batch.is_empty() {
                    return Ok(());
                }
                // Only compacted gaps.
                state = self.broker.state()?;
                continue;
            }
            let in_time;
            (state, in_time) = self.broker.wait(state, deadline)?;
            if !in_time {
                return Ok(());
            }
        }
    }

    fn position(&self) -> i64 {
        self.cursor.position
    }
}
