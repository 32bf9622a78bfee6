//! Reads one partition on the wire, read_committed, outside of any group.
//!
//! Invariant: the position never passes a record that was not returned.
//!
//! **Failure**: as for [`Reading`].

use std::sync::Arc;
use std::time::Duration;

use super::super::epochs::Epochs;
use super::super::wire::fetcher::FetchSettings;
use super::batch::Batch;
use super::connecting::ClientSettings;
use super::reading::Reading;
use super::trouble::Accepted;
use crate::cluster::Error;
use crate::record::TopicPartition;

/// A partition's reader. See [`crate::cluster::Reader`].
pub struct Reader {
    partition: TopicPartition,
    reading: Reading,
    epochs: Option<Arc<Epochs>>,
    begin: i64,
}

impl Reader {
    /// Reads `partition` from `offset` on. Records that are read for a group are checked against the `epochs` known for
    /// it, and noted there.
    pub fn open(
        client: &ClientSettings,
        settings: &Arc<FetchSettings>,
        accepted: &Accepted,
        (partition, offset): (&TopicPartition, i64),
        epochs: Option<Arc<Epochs>>,
    ) -> Result<Self, Error> {
        let mut reading = Reading::new(client, settings, accepted);
        let known = epochs.as_ref().and_then(|epochs| epochs.begin(partition, offset));
        reading.start(partition, offset, known)?;
        Ok(Self { partition: partition.clone(), reading, epochs, begin: offset })
    }

    /// See [`crate::cluster::Reader::read`].
    pub fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        self.reading.poll(batch, records_max, wait, self.epochs.as_deref())
    }

    /// See [`crate::cluster::Reader::position`].
    pub fn position(&self) -> i64 {
        self.reading.position(&self.partition).unwrap_or(self.begin)
    }
}
