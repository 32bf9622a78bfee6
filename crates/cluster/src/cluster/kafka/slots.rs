//! A member's partitions: the state of each, and which message belongs to which.
//!
//! Invariant: a record is passed on only if its partition is started, and never below the next offset
//! expected. What librdkafka had fetched before a seek never gets here: librdkafka drops it.
//!
//! **Failure**: an error in place of a record is reported for started partitions only; one that
//! is paused is not being read.

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
    /// Whether its records are wanted.
    pub started: bool,
    /// The lowest offset that may still come.
    pub next: i64,
    /// Whether anything was returned since the start.
    pub returned: bool,
    /// Whether librdkafka's own position can be trusted: an error in a batch moves it too far.
    pub trusted: bool,
    /// Whether its fetcher has stopped for good, as it does if the position does not exist.
    pub stopped: bool,
    /// Its offset when the broker no longer had what was read up to there.
    pub truncated: Option<i64>,
    /// Whether a broker did not know the epoch of the record before `next`, which is not recorded yet.
    pub unknown: bool,
    /// What was returned and is not yet recorded among the group's epochs.
    pub read: EpochRanges,
}

impl Slot {
    fn new(name: CString) -> Self {
        Self {
            name,
            started: false,
            next: 0,
            returned: false,
            trusted: true,
            stopped: false,
            truncated: None,
            unknown: false,
            read: EpochRanges::default(),
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
        let both = self.partitions.iter().zip(&self.slots);
        both.filter(|(_, slot)| slot.started && slot.trusted).map(|(partition, _)| partition.clone()).collect()
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

    /// Which assigned partition a message is from. Messages come in runs, so the last one's partition is tried first.
    fn of(&mut self, message: Incoming<'_>) -> Option<u32> {
        let handle = (message.topic_handle(), message.partition());
        if let Some((last, index)) = self.last
            && last == handle
        {
            return Some(index);
        }
        let index = match self.by_handle.get(&handle) {
            Some(index) => *index,
            None => {
                let same = |p: &TopicPartition| p.partition == message.partition() && *p.topic == *message.topic();
                let index = u32::try_from(self.partitions.iter().position(same)?).ok()?;
                self.by_handle.insert(handle, index);
                index
            }
        };
        self.last = Some((handle, index));
        Some(index)
    }

    /// Adds partitions; existing ones are not changed.
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
        let mut gone = self.partitions.iter().map(|partition| partitions.contains(partition));
        self.slots.retain(|_| !gone.next().unwrap_or(false));
        self.partitions = self.partitions.iter().filter(|p| !partitions.contains(p)).cloned().collect();
        self.forget_handles();
    }

    fn forget_handles(&mut self) {
        self.by_handle.clear();
        self.last = None;
    }

    /// Returns a message's partition, or `None` if the message is not to be returned. Errors go to `troubles`.
    pub fn sort(&mut self, message: Incoming<'_>, troubles: &mut Vec<Error>) -> Option<u32> {
        if !message.is_record() {
            self.note_trouble(message, troubles);
            return None;
        }
        let index = self.of(message)?;
        let slot = &mut self.slots[index as usize];
        if !slot.started || message.offset() < slot.next {
            return None;
        }
        slot.next = message.offset() + 1;
        slot.returned = true;
        slot.read.read(message.offset(), message.epoch());
        // librdkafka's position is again right after the last record that it returned.
        slot.trusted = true;
        Some(index)
    }

    fn note_trouble(&mut self, message: Incoming<'_>, troubles: &mut Vec<Error>) {
        let Some(failure) = message.failure() else { return };
        let Some(index) = self.of(message) else {
            troubles.push(failure.plain("reading"));
            return;
        };
        let slot = &mut self.slots[index as usize];
        slot.trusted = false;
        if is_fetched_again(&failure) {
            return;
        }
        slot.stopped |= failure.code == Code::RD_KAFKA_RESP_ERR__AUTO_OFFSET_RESET;
        slot.truncated = slot.truncated.or(failure.is_truncation().then_some(slot.next));
        if !slot.started {
            return;
        }
        if failure.is_unknown_epoch() {
            slot.unknown = true;
            return;
        }
        if message.is_passed_over() {
            // What follows must not be taken for the next record.
            slot.started = false;
        }
        troubles.push(unreadable(&self.partitions[index as usize], slot.next, &failure));
    }
}

/// Whether librdkafka fetches it again: a batch for which there was no memory left.
pub(super) fn is_fetched_again(failure: &Failure) -> bool {
    let again = failure.code == Code::RD_KAFKA_RESP_ERR__BAD_COMPRESSION
        && rejection(&failure.message) == Some(Rejection::NoRoom);
    if again {
        tracing::debug!(target: "librdkafka", "fetched again when there is room for what it unpacks to: {failure}");
    }
    again
}

/// The error, of this kind, if a broker does not know the epoch of the record before `offset`; that of a truncated
/// partition if this has lasted too long.
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
