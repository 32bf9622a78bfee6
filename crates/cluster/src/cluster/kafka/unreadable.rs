//! The errors of both data paths if a partition cannot be read any further: why, and what to do about it.

use std::fmt::Display;

use super::unpack::allowed_bytes;
use crate::cluster::{Detail, Error, ErrorKind};
use crate::record::TopicPartition;
use crate::yaml::units;

/// The operation, as error messages name it.
pub(super) fn reading(partition: &TopicPartition, offset: i64) -> String {
    format!("reading {partition} at offset {offset}")
}

/// The error for a partition that does not have this offset.
pub(super) fn out_of_range(partition: &TopicPartition, offset: i64, why: impl Display) -> Error {
    let message =
        format!("{partition} no longer has offset {offset}: it is outside of what the broker retains ({why})");
    Error::new(ErrorKind::Refused, message).of(partition)
}

/// The error for a partition that has lost records that were read from it before `offset`.
pub(super) fn truncated(partition: &TopicPartition, offset: i64) -> Error {
    let message = format!(
        "{partition} does not hold any more what was read of it up to offset {offset}: it has lost its newest records, \
         by an unclean leader election, say, and what was written since below that offset was not read; give the \
         topology a new name and a new output topic to begin anew, or, to accept that loss, stop all instances and \
         reset the group to offset {offset}"
    );
    Error::new(ErrorKind::Refused, message).of(partition)
}

/// The error for a partition with a batch that unpacks to more than is allowed.
pub(super) fn too_large_unpacked(partition: &TopicPartition, offset: i64) -> Error {
    let message = format!(
        "{partition} cannot be read at offset {offset}: the batch there unpacks to more than the {} that `unpacked` \
         allows; raise it, or, if nothing in the batch is wanted, give it up (docs/operations.md says how)",
        units::show_size_bytes(allowed_bytes())
    );
    Error::new(ErrorKind::Refused, message).of(partition)
}

/// The error for a partition whose next batch, of `bytes`, exceeds the maximum size of a fetch. A restart does not
/// help.
pub(super) fn too_large_fetched(partition: &TopicPartition, offset: i64, bytes: u64) -> Error {
    let message = format!(
        "{partition} cannot be read at offset {offset}: the batch there has {bytes} bytes, more than \
         receive.message.max.bytes allows; raise that below kafka:, or, if nothing in the batch is wanted, give it up \
         (docs/operations.md says how)"
    );
    Error::new(ErrorKind::Refused, message).of(partition)
}

/// The error for a partition with a batch that is damaged on its leader.
pub(super) fn damaged(partition: &TopicPartition, offset: i64, why: impl Display) -> Error {
    let message = format!(
        "{partition} cannot be read at offset {offset}: {why}; if the batch there unpacks to more than \
         receive.message.max.bytes, raise that below kafka:; else the batch, or a record's headers, are damaged on \
         the brokers: bring them back from another replica, or give up what is in it (docs/operations.md says how)"
    );
    Error::new(ErrorKind::Refused, message).with(Some(Detail::Damaged)).of(partition)
}

/// The error for a partition that this client may not read.
pub(super) fn denied(partition: &TopicPartition, offset: i64, why: impl Display) -> Error {
    let (what, topic) = (reading(partition, offset), &partition.topic);
    let message = format!("{what}: {why}; grant Read on topic {topic}");
    Error::new(ErrorKind::Refused, message).with(Some(Detail::Denied(None))).of(partition)
}
