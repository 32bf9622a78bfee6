//! Records on their way into a cluster: checked, encoded, in the order in which they were sent.

use std::ops::Range;

use super::error::refused;
use super::layout;
use super::state::State;
use super::topics::Settings;
use crate::cluster::{Error, Message, TopicId};
use crate::record::TopicPartition;

/// Records of an open transaction, with their bytes in one reusable arena.
#[derive(Debug, Default)]
pub(super) struct Buffer {
    slots: Vec<Slot>,
    records: Vec<(usize, Range<usize>)>,
    arena: Vec<u8>,
}

/// A partition that is written to.
#[derive(Debug)]
struct Slot {
    partition: TopicPartition,
    id: TopicId,
    settings: Settings,
}

/// What became of a sent record.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Taken {
    /// It is in the buffer.
    Buffered,
    /// The topic rejects it, with this message; the transaction can only be aborted.
    Failed(String),
}

impl Buffer {
    /// Checks and adds a record; an error leaves the buffer unchanged. `state` is called for a partition
    /// that is new to this buffer.
    pub fn push<'s, S>(
        &mut self,
        message: &Message<'_>,
        now_ms: i64,
        state: impl FnOnce() -> Result<S, Error>,
    ) -> Result<Taken, Error>
    where
        S: std::ops::Deref<Target = State> + 's,
    {
        let known = self
            .slots
            .iter()
            .position(|slot| slot.partition.partition == message.partition && &*slot.partition.topic == message.topic);
        let slot = match known {
            Some(slot) => slot,
            None => self.add_slot(message, &*state()?)?,
        };
        let Slot { partition, settings, .. } = &self.slots[slot];
        let size = message.key.map_or(0, <[u8]>::len)
            + message.value.map_or(0, <[u8]>::len)
            + message.headers.as_bytes().len();
        if i64::try_from(size).is_ok_and(|size| size > settings.message_bytes_max) {
            let max = settings.message_bytes_max;
            return Err(refused(format!(
                "a record of {size} bytes is more than {} accepts ({max} bytes)",
                partition.topic
            )));
        }
        if settings.is_compacted() && message.key.is_none() {
            return Err(refused(format!("topic {} is compacted and takes no record without a key", partition.topic)));
        }
        let timestamp = message.timestamp.unwrap_or(now_ms);
        if !settings.accepts_timestamp(timestamp, now_ms) {
            return Ok(Taken::Failed(format!("{partition}: the timestamp {timestamp} is out of the topic's range")));
        }
        let from = self.arena.len();
        layout::encode_record(message, timestamp, &mut self.arena);
        self.records.push((slot, from..self.arena.len()));
        Ok(Taken::Buffered)
    }

    fn add_slot(&mut self, message: &Message<'_>, state: &State) -> Result<usize, Error> {
        let partition = TopicPartition::new(message.topic, message.partition);
        let topic = state.topic_of(&partition)?;
        self.slots.push(Slot { partition, id: topic.id, settings: topic.settings.clone() });
        Ok(self.slots.len() - 1)
    }

    /// The partitions that are written to, with their topics' ids.
    pub fn partitions(&self) -> impl Iterator<Item = (&TopicPartition, TopicId)> {
        self.slots.iter().map(|slot| (&slot.partition, slot.id))
    }

    /// The records: the index of the partition, and the bytes.
    pub fn records(&self) -> impl Iterator<Item = (usize, &[u8])> {
        self.records.iter().map(|(slot, range)| (*slot, &self.arena[range.clone()]))
    }

    /// How many records there are.
    pub fn len(&self) -> usize {
        self.records.len()
    }

    /// Removes all records and partitions and keeps the memory.
    pub fn clear(&mut self) {
        self.slots.clear();
        self.records.clear();
        self.arena.clear();
    }
}
