//! A transactional producer on the wire (ratchet's own client): a writer with its connections, driven by the calling
//! thread.
//!
//! Records are written to the sockets, and responses processed, within some calls of `send` and `send_all`, and within
//! all other calls except `id`, `is_usable` and `expect`. So no record is handed to another thread.
//!
//! - `write_client`: the writer with its connections; `clock`, `slots`: caches that keep the cost of a record low
//! - `errors`: the writer's errors, with librdkafka's words for brokers' error codes
//!
//! Invariants: those of [`wire::writer`](super::super::wire::writer). If a producer is dropped with a transaction open,
//! the transaction ends at its timeout, or when another client fences the id.
//!
//! **Failure**: the writer's errors, with the same kinds. If the client itself refuses a record, the transaction stays
//! open; an error that ends the transaction is never reported as the refusal of a single record.

use std::cell::RefCell;
use std::marker::PhantomData;
use std::sync::Arc;
use std::time::Duration;

use self::write_client::WriteClient;
use super::super::epochs::Epochs;
use super::super::wire::writer::{GroupMembership, Offset, WriteSettings};
use super::client_settings::ClientSettings;
use super::trouble::AcceptedLogins;
use crate::cluster::{self, DeliveryFailure, Error, Expected, Message, OffsetCommit, Ticket};
use crate::record::TopicPartition;

mod clock;
mod errors;
mod slots;
mod write_client;

/// Proof of membership in the group whose offsets are committed.
pub trait Membership: Send {
    /// The proof, in the form in which it is sent to the group's coordinator.
    fn group(&self) -> GroupMembership;

    /// The leader epochs (KIP-320) of the records that the group has read, as far as they are known.
    fn epochs(&self) -> &Epochs;
}

/// A transactional producer. See [`cluster::Producer`].
pub struct Producer<M> {
    id: String,
    member: PhantomData<fn(M)>,
    /// A cell, since getters of the state of deliveries take `&self` and have to process responses first.
    client: RefCell<WriteClient>,
}

impl<M: Membership> Producer<M> {
    /// Opens a producer; a transaction that was open under its id has been aborted. Once a login was accepted, a later
    /// refusal is [`ErrorKind::Retry`](cluster::ErrorKind::Retry).
    pub fn open(
        client: &ClientSettings,
        settings: &Arc<WriteSettings>,
        accepted: &AcceptedLogins,
        id: &str,
    ) -> Result<Self, Error> {
        let write_client = WriteClient::open(client, settings, accepted, id)?;
        Ok(Self { id: id.to_owned(), member: PhantomData, client: RefCell::new(write_client) })
    }

    /// Commits, and waits for the outcome; meanwhile calls `meanwhile`, if given, repeatedly.
    fn commit_with(
        &mut self,
        offsets: &[OffsetCommit],
        group: &M,
        meanwhile: Option<&mut dyn FnMut(Duration)>,
    ) -> Result<(), Error> {
        let with_epoch = |OffsetCommit { partition, committed }: &OffsetCommit| {
            let epoch = group.epochs().before(partition, committed.offset);
            // The epoch stays known: a claim or a release, which changes the owner that is committed beside the offset,
            // commits the same offset again.
            group.epochs().note_committed(partition, committed.offset, epoch);
            Offset {
                partition: partition.clone(),
                offset: committed.offset,
                leader_epoch: epoch.unwrap_or(-1),
                metadata: committed.metadata.clone(),
            }
        };
        let offsets = offsets.iter().map(with_epoch).collect();
        let committed = self.client.get_mut().commit(offsets, group.group(), meanwhile);
        committed.map_err(|error| errors::error_during("committing the transaction", &error))
    }
}

impl<M: Membership> cluster::Producer for Producer<M> {
    type Metadata = M;

    fn id(&self) -> &str {
        &self.id
    }

    fn begin(&mut self) -> Result<(), Error> {
        let begun = self.client.get_mut().begin();
        begun.map_err(|error| errors::error_during("beginning a transaction", &error))
    }

    #[inline]
    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        self.client.get_mut().send(ticket, message)
    }

    fn send_all<'a>(
        &mut self,
        number: u64,
        to: &TopicPartition,
        records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), Error> {
        self.client.get_mut().send_all(number, to, records)
    }

    fn expect(&mut self, number: u64, expected: Expected) {
        self.client.get_mut().writer.expect(number, expected);
    }

    fn serve(&mut self) {
        self.client.get_mut().process_responses();
    }

    fn in_flight(&self) -> usize {
        let mut client = self.client.borrow_mut();
        client.process_responses();
        client.writer.in_flight()
    }

    fn has_failed(&self) -> bool {
        let mut client = self.client.borrow_mut();
        client.process_responses();
        client.writer.has_failed()
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        let client = self.client.get_mut();
        client.process_responses();
        let failures = client.writer.take_failures().into_iter();
        failures
            .map(|failure| DeliveryFailure {
                number: failure.number,
                refused: failure.refused,
                message: errors::error(&failure.error).message,
            })
            .collect()
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        let client = self.client.get_mut();
        client.process_responses();
        client.writer.take_delivered()
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: M) -> Result<(), Error> {
        self.commit_with(offsets, &group, None)
    }

    fn commit_while(
        &mut self,
        offsets: &[OffsetCommit],
        group: M,
        meanwhile: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        self.commit_with(offsets, &group, Some(meanwhile))
    }

    fn abort(&mut self) -> Result<(), Error> {
        let aborted = self.client.get_mut().abort();
        aborted.map_err(|error| errors::error_during("aborting the transaction", &error))
    }

    fn is_usable(&self) -> bool {
        self.client.borrow().writer.is_usable()
    }
}
