//! Reads one partition on the wire (ratchet's own client), read_committed, without being a member of a group.
//!
//! Invariant: the position never passes a record that was not returned.
//!
//! **Failure**: as for [`FetchClient`].

use std::sync::Arc;
use std::time::Duration;

use super::super::epochs::Epochs;
use super::super::wire::fetcher::FetchSettings;
use super::batch::Batch;
use super::client_settings::ClientSettings;
use super::fetch_client::FetchClient;
use super::trouble::AcceptedLogins;
use crate::cluster::Error;
use crate::record::TopicPartition;

/// A partition's reader. See [`crate::cluster::Reader`].
pub struct Reader {
    partition: TopicPartition,
    client: FetchClient,
    epochs: Option<Arc<Epochs>>,
    start_offset: i64,
}

impl Reader {
    /// Reads `partition` from `offset` on. `epochs`: the leader epochs (KIP-320) known for the group for which the
    /// partition is read, if any. If the epoch of the record before `offset` is among them, the broker checks that the
    /// partition was not truncated below `offset`. The epochs of the records that are read are added.
    pub fn open(
        client: &ClientSettings,
        settings: &Arc<FetchSettings>,
        accepted: &AcceptedLogins,
        (partition, offset): (&TopicPartition, i64),
        epochs: Option<Arc<Epochs>>,
    ) -> Result<Self, Error> {
        let mut client = FetchClient::new(client, settings, accepted);
        let epoch_before = epochs.as_ref().and_then(|epochs| epochs.begin(partition, offset));
        client.start(partition, offset, epoch_before)?;
        Ok(Self { partition: partition.clone(), client, epochs, start_offset: offset })
    }

    /// See [`crate::cluster::Reader::read`].
    pub fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        self.client.poll(batch, records_max, wait, self.epochs.as_deref())
    }

    /// See [`crate::cluster::Reader::position`].
    pub fn position(&self) -> i64 {
        self.client.position(&self.partition).unwrap_or(self.start_offset)
    }
}
