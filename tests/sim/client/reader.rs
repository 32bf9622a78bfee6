//! Reads one partition outside of any group.

use std::time::Duration;

use ratchet::cluster::kafka::client;
use ratchet::cluster::{self, Error};
use ratchet::record::TopicPartition;

use crate::world::Process;

use super::{Batch, Clients};

/// A partition's reader.
pub struct Reader {
    process: Process,
    reader: client::Reader,
    is_of_changelog: bool,
}

impl Reader {
    pub fn open(process: Process, clients: &Clients, partition: &TopicPartition, position: i64) -> Result<Self, Error> {
        let is_of_changelog = partition.topic.ends_with(".changelog");
        let Clients { brokers, fetch, accepted, .. } = clients;
        let reader = client::Reader::open(brokers, fetch, accepted, (partition, position), None)?;
        if is_of_changelog {
            process.lock().memory.starts_reading(process.number);
        }
        Ok(Self { process, reader, is_of_changelog })
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        if self.is_of_changelog {
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
        self.reader.read(&mut batch.records, records_max, wait)
    }

    fn position(&self) -> i64 {
        self.reader.position()
    }
}
