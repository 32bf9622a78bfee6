//! What keeps a partition from being read any further.

use thiserror::Error;

use super::super::records;

/// Why a partition is not read any further.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum Trouble {
    /// The partition does not have the offset: retention has removed it, or it was never there.
    #[error("the partition does not have offset {offset}")]
    OffsetOutOfRange {
        /// The offset that was wanted.
        offset: i64,
    },
    /// The partition does not hold any more what was read of it (KIP-320): it has lost its newest records.
    #[error("the partition does not hold any more what was read of it up to offset {offset}, but only up to {end}")]
    Truncated {
        /// The offset that was wanted.
        offset: i64,
        /// Up to where the partition still holds what the same leaders wrote.
        end: i64,
    },
    /// The leader does not know the epoch of the record before the offset, for as long as
    /// [`super::FetchSettings::unknown_epoch_wait`].
    #[error(
        "the partition's leader does not know the epoch {epoch}, in which the record before offset {offset} was written"
    )]
    UnknownEpoch {
        /// The offset that was wanted.
        offset: i64,
        /// The epoch of the record before it.
        epoch: i32,
    },
    /// A batch cannot be read, also when it is fetched again.
    #[error("the partition cannot be read at offset {offset}: {what}")]
    Damaged {
        /// The offset that was wanted: that of the batch, or one in it.
        offset: i64,
        /// What is wrong with it.
        what: records::Error,
    },
    /// The leader returns nothing at the offset, and a record at a later one that cannot be behind a gap, also when it is
    /// asked again.
    #[error("the partition cannot be read at offset {offset}: its leader returns nothing there, but a later record")]
    Inconsistent {
        /// The offset that was wanted.
        offset: i64,
    },
    /// A batch is larger than what may be fetched.
    #[error("the partition cannot be read at offset {offset}: the batch there has {bytes} bytes, more than is fetched")]
    TooLarge {
        /// The offset that was wanted.
        offset: i64,
        /// The batch's size.
        bytes: u64,
    },
    /// A batch unpacks to more than is allowed.
    #[error("the partition cannot be read at offset {offset}: the batch there unpacks to more than is allowed")]
    UnpacksTooLarge {
        /// The offset that was wanted.
        offset: i64,
    },
    /// Reading the topic is not allowed.
    #[error("reading the topic is not allowed")]
    Denied,
    /// There is no such topic or partition, for as long as [`super::FetchSettings::missing_wait`].
    #[error("there is no such topic or partition")]
    Missing,
    /// The leader speaks no version of a request that this client speaks.
    #[error("the partition's leader does not offer the version of {request} that is needed")]
    Unsupported {
        /// Which request.
        request: &'static str,
    },
}
