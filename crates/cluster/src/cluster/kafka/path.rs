//! The data path: whether records are read and written by librdkafka or on the wire. Both implement the same traits;
//! one of them is chosen for a whole cluster.
//!
//! librdkafka handles membership, administration and takeovers on either data path.

use std::time::Duration;

use super::client::Membership;
use super::epochs::Epochs;
use super::metadata::Metadata;
use super::wire::writer::GroupMembership;
use super::{client, native, producer, reader};
use crate::cluster::{self, DeliveryFailure, Error, Expected, Message, OffsetCommit, RecordBatch, Ticket};
use crate::record::{Record, TopicPartition};

/// The client that reads and writes records.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataPath {
    /// The wire, unless a property needs librdkafka.
    Auto,
    /// The wire: ratchet's own client. A property that needs librdkafka is refused.
    Wire,
    /// librdkafka.
    Librdkafka,
}

/// Records that were read. See [`RecordBatch`].
pub enum Batch {
    /// By librdkafka.
    Librdkafka(native::Batch),
    /// On the wire.
    Wire(client::Batch),
}

impl Default for Batch {
    fn default() -> Self {
        Self::Librdkafka(native::Batch::default())
    }
}

impl Batch {
    /// Drops all records.
    pub(super) fn clear(&mut self) {
        match self {
            Self::Librdkafka(batch) => batch.clear(),
            Self::Wire(batch) => batch.clear(),
        }
    }

    /// librdkafka's batch; a batch of the wire is replaced.
    pub(super) fn as_librdkafka(&mut self) -> &mut native::Batch {
        if matches!(self, Self::Wire(_)) {
            *self = Self::default();
        }
        match self {
            Self::Librdkafka(batch) => batch,
            Self::Wire(_) => unreachable!("replaced above"),
        }
    }

    /// The wire's batch; a batch of librdkafka is replaced.
    pub(super) fn as_wire(&mut self) -> &mut client::Batch {
        if matches!(self, Self::Librdkafka(_)) {
            *self = Self::Wire(client::Batch::default());
        }
        match self {
            Self::Wire(batch) => batch,
            Self::Librdkafka(_) => unreachable!("replaced above"),
        }
    }
}

/// Calls the same method of either variant.
macro_rules! either {
    ($self:expr, $inner:ident => $call:expr) => {
        match $self {
            Self::Librdkafka($inner) => $call,
            Self::Wire($inner) => $call,
        }
    };
}

impl RecordBatch for Batch {
    fn partitions(&self) -> &[TopicPartition] {
        either!(self, batch => batch.partitions())
    }

    fn partition_index(&self, index: usize) -> usize {
        either!(self, batch => batch.partition_index(index))
    }

    fn len(&self) -> usize {
        either!(self, batch => batch.len())
    }

    fn record(&self, index: usize) -> Record<'_> {
        either!(self, batch => batch.record(index))
    }
}

/// A partition's reader. See [`cluster::Reader`].
pub enum Reader {
    /// By librdkafka.
    Librdkafka(Box<reader::Reader>),
    /// On the wire.
    Wire(Box<client::Reader>),
}

impl cluster::Reader for Reader {
    type Batch = Batch;

    fn read(&mut self, batch: &mut Batch, records_max: usize, wait: Duration) -> Result<(), Error> {
        match self {
            Self::Librdkafka(reader) => reader.read(batch.as_librdkafka(), records_max, wait),
            Self::Wire(reader) => reader.read(batch.as_wire(), records_max, wait),
        }
    }

    fn position(&self) -> i64 {
        either!(self, reader => reader.position())
    }
}

impl Membership for Metadata {
    fn group(&self) -> GroupMembership {
        let proof = self.proof();
        GroupMembership {
            id: proof.group_id(),
            generation: proof.generation(),
            member: proof.member_id(),
            instance: proof.group_instance_id(),
        }
    }

    fn epochs(&self) -> &Epochs {
        self.epochs()
    }
}

/// A transactional producer. See [`cluster::Producer`].
pub enum Producer {
    /// By librdkafka.
    Librdkafka(Box<producer::Producer>),
    /// On the wire.
    Wire(Box<client::Producer<Metadata>>),
}

impl cluster::Producer for Producer {
    type Metadata = Metadata;

    fn id(&self) -> &str {
        either!(self, producer => producer.id())
    }

    fn begin(&mut self) -> Result<(), Error> {
        either!(self, producer => producer.begin())
    }

    fn send(&mut self, ticket: Ticket, message: &Message<'_>) -> Result<(), Error> {
        either!(self, producer => producer.send(ticket, message))
    }

    fn send_all<'a>(
        &mut self,
        number: u64,
        to: &TopicPartition,
        records: impl Iterator<Item = (&'a [u8], Option<&'a [u8]>)>,
    ) -> Result<(), Error> {
        either!(self, producer => producer.send_all(number, to, records))
    }

    fn expect(&mut self, number: u64, expected: Expected) {
        either!(self, producer => producer.expect(number, expected));
    }

    fn serve(&mut self) {
        either!(self, producer => producer.serve());
    }

    fn in_flight(&self) -> usize {
        either!(self, producer => producer.in_flight())
    }

    fn has_failed(&self) -> bool {
        either!(self, producer => producer.has_failed())
    }

    fn take_failures(&mut self) -> Vec<DeliveryFailure> {
        either!(self, producer => producer.take_failures())
    }

    fn take_delivered(&mut self) -> Vec<(u64, i64)> {
        either!(self, producer => producer.take_delivered())
    }

    fn commit(&mut self, offsets: &[OffsetCommit], group: Metadata) -> Result<(), Error> {
        either!(self, producer => producer.commit(offsets, group))
    }

    fn commit_while(
        &mut self,
        offsets: &[OffsetCommit],
        group: Metadata,
        meanwhile: &mut dyn FnMut(Duration),
    ) -> Result<(), Error> {
        either!(self, producer => producer.commit_while(offsets, group, meanwhile))
    }

    fn begins_in(&self) -> Duration {
        either!(self, producer => producer.begins_in())
    }

    fn abort(&mut self) -> Result<(), Error> {
        either!(self, producer => producer.abort())
    }

    fn is_usable(&self) -> bool {
        either!(self, producer => producer.is_usable())
    }
}
