//! Reads one partition, read_committed, outside any group: see `src/cluster/kafka/reader.rs`.

use std::time::Duration;

use ratchet::cluster::{self, Error, RecordBatch};
use ratchet::record::TopicPartition;

use crate::kafka::{Code, Isolation, Time};
use crate::world::Process;

use super::{Batch, errors, theirs};

/// A partition's reader.
pub struct Reader {
    process: Process,
    partition: TopicPartition,
    position: i64,
}

impl Reader {
    pub fn open(process: Process, partition: TopicPartition, position: i64) -> Self {
        let reader = Self { process, partition, position };
        if reader.is_of_changelog() {
            reader.process.lock().memory.starts_reading(reader.process.number);
        }
        reader
    }

    fn is_of_changelog(&self) -> bool {
        self.partition.topic.ends_with(".changelog")
    }

    fn fetch(&mut self, batch: &mut Batch, records_max: usize) -> Result<(), Error> {
        let mut state = self.process.lock();
        let bound = if state.random.permille(300) { state.random.between(1, 20) as usize } else { records_max };
        batch.open(&self.partition);
        let (partition, max) = (theirs(&self.partition), records_max.min(bound));
        let fetched = state
            .broker
            .fetch(&partition, self.position, Isolation::Committed, max, |offset, record| batch.push(offset, record));
        match fetched {
            Ok((next, _)) => {
                self.position = next;
                Ok(())
            }
            Err(Code::NotLeaderOrFollower) => Ok(()),
            Err(code) => {
                let message = format!("{} cannot be read at offset {}: {code:?}", self.partition, self.position);
                Err(errors::plain(code, message).of(&self.partition))
            }
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.is_of_changelog() {
            self.process.lock().memory.stops_reading(self.process.number);
        }
    }
}

impl cluster::Reader for Reader {
    type Batch = Batch;

    fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        batch.clear();
        self.process.maybe_panic();
        self.process.pause();
        self.fetch(batch, records_max)?;
        if batch.is_empty() && !wait.is_zero() {
            self.process.sleep(wait.as_micros() as Time);
            batch.clear();
            self.fetch(batch, records_max)?;
        }
        Ok(())
    }

    fn position(&self) -> i64 {
        self.position
    }
}
