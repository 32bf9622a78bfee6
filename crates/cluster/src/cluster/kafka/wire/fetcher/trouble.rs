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
    /// The partition no longer holds what was read from it (KIP-320): it has lost its newest records.
    #[error(
        "the partition no longer holds what was read from it up to offset {offset}, only what was read up to offset \
         {end}"
    )]
    Truncated {
        /// The offset that was wanted.
        offset: i64,
        /// The end of what the partition still holds from the same leaders.
        end: i64,
    },
    /// The leader has not known the epoch of the record before the offset for
    /// [`super::FetchSettings::unknown_epoch_wait`].
    #[error(
        "the partition's leader does not know epoch {epoch}, in which the record before offset {offset} was written"
    )]
    UnknownEpoch {
        /// The offset that was wanted.
        offset: i64,
        /// The epoch of the record before it.
        epoch: i32,
    },
    /// A batch cannot be read, even when it is fetched again.
    #[error("the partition cannot be read at offset {offset}: {what}")]
    Damaged {
        /// The offset that was wanted: that of the batch, or one in it.
        offset: i64,
        /// What is wrong with it.
        what: records::Error,
    },
    /// The leader contradicts itself, even when it is asked again: it returns nothing at the offset, as if there were
    /// only a gap (offsets without records), but does return a record when the gap's last offset is requested.
    #[error(
        "the partition cannot be read at offset {offset}: its leader returns nothing there but does return a later \
         record"
    )]
    Inconsistent {
        /// The offset that was wanted.
        offset: i64,
    },
    /// A batch is larger than may be fetched.
    #[error(
        "the partition cannot be read at offset {offset}: the batch there has {bytes} bytes, more than may be fetched"
    )]
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
    /// The topic or partition has been unknown for [`super::FetchSettings::missing_wait`].
    #[error("there is no such topic or partition")]
    Missing,
    /// The leader supports no version of a request that this client supports.
    #[error("the partition's leader does not support the required version of {request}")]
    Unsupported {
        /// Which request.
        request: &'static str,
    },
}
