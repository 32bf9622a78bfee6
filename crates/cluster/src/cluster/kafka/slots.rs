//! A member's partitions: the state of each, and the mapping from messages to partitions.
//!
//! Invariant: a record is passed on only if its partition is started, and never below the next expected
//! offset. librdkafka drops the records that it had fetched before a seek.
//!
//! **Failure**: an error in place of a record is reported for started partitions only; a paused
//! partition is not being read.

use std::collections::HashMap;
use std::ffi::CString;
use std::sync::Arc;
use std::time::Instant;

use super::epochs::{EpochRanges, Epochs};
use super::errors::{Code, Failure};
use super::native::{Incoming, c_string};
use super::unpack::{Rejection, rejection};
use super::unreadable;
use crate::cluster::{Error, ErrorKind};
use crate::record::TopicPartition;

/// One assigned partition.
pub(super) struct Slot {
    /// The topic's name as a C string.
    pub name: CString,
    /// Whether the partition was started, so that its records are returned.
    pub is_started: bool,
    /// The lowest offset that may still be returned.
    pub next_offset: i64,
    /// Whether a record was returned since the start.
    pub has_returned: bool,
    /// Whether librdkafka's own position is right: an error in a batch moves it too far.
    pub is_position_trusted: bool,
    /// Whether its fetcher has stopped for good, as it does if the position does not exist.
    pub has_stopped: bool,
    /// The offset before which the broker no longer has the records that were read.
    pub truncated_at: Option<i64>,
    /// Whether a broker did not know the epoch of the record before `next_offset`, which is not recorded yet.
    pub is_epoch_unknown: bool,
    /// The returned ranges that are not yet recorded among the group's epochs.
    pub read_ranges: EpochRanges,
}

impl Slot {
    fn new(name: CString) -> Self {
        Self {
            name,
            is_started: false,
            next_offset: 0,
            has_returned: false,
            is_position_trusted: true,
            has_stopped: false,
            truncated_at: None,
            is_epoch_unknown: false,
            read_ranges: EpochRanges::default(),
        }
    }
}

/// The assigned partitions, and the mapping from a message to its partition.
#[derive(Default)]
pub(super) struct Slots {
    /// The assigned partitions, in the order of their index in a batch.
    pub partitions: Arc<[TopicPartition]>,
    slots: Vec<Slot>,
    by_handle: HashMap<(usize, i32), u32>,
    last: Option<((usize, i32), u32)>,
}

impl Slots {
    fn position(&self, partition: &TopicPartition) -> Option<usize> {
        self.partitions.iter().position(|assigned| assigned == partition)
    }

    /// An assigned partition.
    pub fn get(&self, partition: &TopicPartition) -> Option<&Slot> {
        self.position(partition).map(|index| &self.slots[index])
    }

    /// The partitions that are read and whose position in librdkafka can be trusted.
    pub fn positioned(&self) -> Vec<TopicPartition> {
        let assigned = self.partitions.iter().zip(&self.slots);
        assigned
            .filter(|(_, slot)| slot.is_started && slot.is_position_trusted)
            .map(|(partition, _)| partition.clone())
            .collect()
    }

    /// All assigned partitions, mutably.
    pub fn iter_mut(&mut self) -> impl Iterator<Item = (&TopicPartition, &mut Slot)> {
        self.partitions.iter().zip(&mut self.slots)
    }

    /// An assigned partition, mutably.
    pub fn find(&mut self, partition: &TopicPartition) -> Result<&mut Slot, Error> {
        let index = self.position(partition);
        let missing = || Error::new(ErrorKind::Abort, format!("{partition} is not assigned to this member"));
        index.map(|index| &mut self.slots[index]).ok_or_else(missing)
    }

    /// The index of a message's partition. Messages come in runs, so the partition of the last message is compared
    /// first.
    fn index_of(&mut self, message: Incoming<'_>) -> Option<u32> {
        let handle = (message.topic_handle(), message.partition());
        if let Some((last, index)) = self.last
            && last == handle
        {
            return Some(index);
        }
        let index = match self.by_handle.get(&handle) {
            Some(index) => *index,
            None => {
                let is_same =
                    |known: &TopicPartition| known.partition == message.partition() && *known.topic == *message.topic();
                let index = u32::try_from(self.partitions.iter().position(is_same)?).ok()?;
                self.by_handle.insert(handle, index);
                index
            }
        };
        self.last = Some((handle, index));
        Some(index)
    }

    /// Adds partitions; assigned ones are not changed.
    pub fn add(&mut self, partitions: &[TopicPartition]) -> Result<(), Error> {
        let new: Vec<&TopicPartition> = partitions.iter().filter(|p| self.position(p).is_none()).collect();
        for partition in &new {
            let name = c_string(&partition.topic)?;
            self.slots.push(Slot::new(name));
        }
        self.partitions = self.partitions.iter().chain(new).cloned().collect();
        self.forget_handles();
        Ok(())
    }

    /// Removes partitions.
    pub fn remove(&mut self, partitions: &[TopicPartition]) {
        let mut is_removed = self.partitions.iter().map(|partition| partitions.contains(partition));
        self.slots.retain(|_| !is_removed.next().unwrap_or(false));
        self.partitions = self.partitions.iter().filter(|p| !partitions.contains(p)).cloned().collect();
        self.forget_handles();
    }

    fn forget_handles(&mut self) {
        self.by_handle.clear();
        self.last = None;
    }

    /// Returns the index of a record's partition, or `None` if the message must not be returned. Errors are added to
    /// `errors`.
    pub fn accept(&mut self, message: Incoming<'_>, errors: &mut Vec<Error>) -> Option<u32> {
        if !message.is_record() {
            self.note_error(message, errors);
            return None;
        }
        let index = self.index_of(message)?;
        let slot = &mut self.slots[index as usize];
        if !slot.is_started || message.offset() < slot.next_offset {
            return None;
        }
        slot.next_offset = message.offset() + 1;
        slot.has_returned = true;
        slot.read_ranges.read(message.offset(), message.epoch());
        // librdkafka's position again follows the last record that it returned.
        slot.is_position_trusted = true;
        Some(index)
    }

    fn note_error(&mut self, message: Incoming<'_>, errors: &mut Vec<Error>) {
        let Some(failure) = message.failure() else { return };
        let Some(index) = self.index_of(message) else {
            errors.push(failure.plain("reading"));
            return;
        };
        let slot = &mut self.slots[index as usize];
        slot.is_position_trusted = false;
        if is_fetched_again(&failure) {
            return;
        }
        slot.has_stopped |= failure.code == Code::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET;
        slot.truncated_at = slot.truncated_at.or(failure.is_truncation().then_some(slot.next_offset));
        if !slot.is_started {
            return;
        }
        if failure.is_unknown_epoch() {
            slot.is_epoch_unknown = true;
            return;
        }
        if message.is_passed_over() {
            // The record after the unreadable one must not be taken for the next one.
            slot.is_started = false;
        }
        errors.push(unreadable(&self.partitions[index as usize], slot.next_offset, &failure));
    }
}

/// Whether librdkafka fetches the batch again because there was no memory to unpack it.
pub(super) fn is_fetched_again(failure: &Failure) -> bool {
    let again = failure.code == Code::RD_KAFKA_RESP_ERR__BAD_COMPRESSION
        && rejection(&failure.message) == Some(Rejection::NoRoom);
    if again {
        tracing::debug!(target: "librdkafka", "fetched again when there is room for what it unpacks to: {failure}");
    }
    again
}

/// The error if a broker does not know the epoch of the record before `offset`: of this kind at first; that of a
/// truncated partition if the epoch has been unknown for too long.
pub(super) fn unknown_epoch(epochs: &Epochs, partition: &TopicPartition, offset: i64, kind: ErrorKind) -> Error {
    if epochs.note_unknown(partition, offset, Instant::now()) {
        return unreadable::truncated(partition, offset);
    }
    let message = format!(
        "the broker asked as the leader of {partition} does not know the leader that wrote the record before offset \
         {offset}: it may have been replaced without knowing it yet; asking again"
    );
    Error::new(kind, message)
}

/// The error for a partition that cannot be read any further.
pub(super) fn unreadable(partition: &TopicPartition, offset: i64, failure: &Failure) -> Error {
    match failure.code {
        Code::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET | Code::RD_KAFKA_RESP_ERR_OFFSET_OUT_OF_RANGE => {
            unreadable::out_of_range(partition, offset, failure)
        }
        Code::RD_KAFKA_RESP_ERR__BAD_COMPRESSION if rejection(&failure.message) == Some(Rejection::TooLarge) => {
            unreadable::too_large_unpacked(partition, offset)
        }
        Code::RD_KAFKA_RESP_ERR__BAD_MSG | Code::RD_KAFKA_RESP_ERR__BAD_COMPRESSION => {
            unreadable::damaged(partition, offset, failure)
        }
        Code::RD_KAFKA_RESP_ERR_TOPIC_AUTHORIZATION_FAILED => unreadable::denied(partition, offset, failure),
        _ => failure.plain(unreadable::reading(partition, offset)).of(partition),
    }
}
