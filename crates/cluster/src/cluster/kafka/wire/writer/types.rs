//! A writer's inputs and outputs. A record is *in the log* once the leader of its partition has acknowledged it.

use std::time::Duration;

use super::super::records::Codec;
use super::delivery::WriteError;
use crate::record::{Headers, TopicPartition};

/// The version of the transaction protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transactions {
    /// All transactions share one epoch (KIP-98).
    V1,
    /// Each transaction has its own epoch (KIP-890, `transaction.version` 2), if the cluster supports that; otherwise
    /// like [`Transactions::V1`].
    V2,
}

/// How a writer behaves.
#[derive(Clone, Debug)]
pub struct WriteSettings {
    /// How long a transaction may last before its coordinator aborts it, and how long a commit or an abort may take.
    pub transaction_timeout: Duration,
    /// How long a record may take from being handed over to being in the log.
    pub delivery_timeout: Duration,
    /// How long a broker may take for one request.
    pub request_timeout: Duration,
    /// How long a batch that is not full waits for further records.
    pub linger: Duration,
    /// The bytes of records, before compression, that make a batch full.
    pub batch_bytes: usize,
    /// The most bytes of batches in one Produce request; a single batch may be larger.
    pub request_bytes: usize,
    /// The most pending Produce requests to one broker; for one partition never more than 5.
    pub in_flight_max: usize,
    /// How batches are compressed.
    pub codec: Codec,
    /// The compression level, `None` for the codec's default.
    pub level: Option<i32>,
    /// The largest record that is accepted, measured as an uncompressed batch of its own.
    pub message_bytes_max: usize,
    /// The most bytes of records held; a single record may be larger.
    pub buffered_bytes_max: usize,
    /// The shortest wait before a request is repeated.
    pub retry_backoff: Duration,
    /// The longest wait before a request is repeated.
    pub retry_backoff_max: Duration,
    /// The version of the transaction protocol to use.
    pub transactions: Transactions,
}

impl Default for WriteSettings {
    fn default() -> Self {
        Self {
            transaction_timeout: Duration::from_secs(60),
            delivery_timeout: Duration::from_secs(120),
            request_timeout: Duration::from_secs(30),
            linger: Duration::from_millis(5),
            batch_bytes: 900_000,
            request_bytes: 2 << 20,
            in_flight_max: 5,
            codec: Codec::None,
            level: None,
            message_bytes_max: 1_000_000,
            buffered_bytes_max: 64 << 20,
            retry_backoff: Duration::from_millis(1),
            retry_backoff_max: Duration::from_millis(100),
            transactions: Transactions::V2,
        }
    }
}

/// Stands for a partition that is written to: see [`super::Writer::slot`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Slot(pub(super) usize);

/// The sender of a record, and whether the record's offset is reported to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket {
    /// The sender's own number.
    pub number: u64,
    /// Whether the record's offset is reported ([`super::Writer::take_delivered`]). A failure is always reported
    /// ([`super::Writer::take_failures`]).
    pub report: bool,
}

/// A record to be written.
#[derive(Clone, Copy, Debug)]
pub struct NewRecord<'a> {
    /// Milliseconds since the epoch.
    pub timestamp: i64,
    /// The key, `None` for null.
    pub key: Option<&'a [u8]>,
    /// The value, `None` for null.
    pub value: Option<&'a [u8]>,
    /// The headers, in order.
    pub headers: Headers<'a>,
}

/// Records that could not be written; their transaction can only be aborted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// The [`Ticket::number`] of the records.
    pub number: u64,
    /// Whether the broker will never accept the records.
    pub refused: bool,
    /// Why.
    pub error: WriteError,
}

/// An offset to be committed with a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Offset {
    /// The input partition.
    pub partition: TopicPartition,
    /// The next offset to read.
    pub offset: i64,
    /// The epoch of the leader that wrote the last record before it (KIP-320), -1 if it is not known.
    pub leader_epoch: i32,
    /// The text stored with it.
    pub metadata: String,
}

/// Proof of membership in the group whose offsets are committed (KIP-447).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct GroupMembership {
    /// The group.
    pub id: String,
    /// The group's generation, as far as the member knows.
    pub generation: i32,
    /// The member's id.
    pub member: String,
    /// The member's own name, if it is static (KIP-345).
    pub instance: Option<String>,
}
