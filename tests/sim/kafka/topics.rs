//! Topics by name: a topic that is deleted and created again has another id and starts empty (KIP-516).

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Code, Log, Partition, Time};

/// The topic settings that matter here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// `cleanup.policy=compact` in place of `delete`.
    pub compacted: bool,
    /// `delete.retention.ms`, as a [`Time`].
    pub delete_retention: Time,
    /// `max.message.bytes`.
    pub message_bytes_max: usize,
    /// `message.timestamp.type=LogAppendTime`.
    pub stamps: bool,
}

/// A topic.
#[derive(Debug)]
pub struct Topic {
    pub id: u128,
    pub settings: Settings,
    /// Whether nobody may read or write it.
    pub is_denied: bool,
    pub logs: Vec<Log>,
}

/// All topics.
#[derive(Debug, Default)]
pub struct Topics {
    topics: BTreeMap<Arc<str>, Topic>,
    created: u128,
    /// Whether a log may have changed since this was last set to `false`.
    pub is_touched: bool,
}

impl Topics {
    /// Creates a topic: TOPIC_ALREADY_EXISTS if it exists.
    pub fn create(&mut self, name: &str, partitions: i32, settings: Settings) -> Result<(), Code> {
        if self.topics.contains_key(name) {
            return Err(Code::TopicAlreadyExists);
        }
        self.created += 1;
        let logs = (0..partitions).map(|_| Log::default()).collect();
        self.topics.insert(name.into(), Topic { id: self.created, settings, is_denied: false, logs });
        Ok(())
    }

    /// Deletes a topic and its records.
    pub fn delete(&mut self, name: &str) -> Result<(), Code> {
        self.is_touched = true;
        self.topics.remove(name).map(drop).ok_or(Code::UnknownTopicOrPartition)
    }

    /// Adds partitions to a topic, which start empty (`CreatePartitions`).
    pub fn add_partitions(&mut self, name: &str, partitions: i32) -> Result<(), Code> {
        let topic = self.topics.get_mut(name).ok_or(Code::UnknownTopicOrPartition)?;
        topic.logs.extend((topic.logs.len()..partitions.max(0) as usize).map(|_| Log::default()));
        Ok(())
    }

    pub fn get(&self, name: &str) -> Option<&Topic> {
        self.topics.get(name)
    }

    pub fn get_mut(&mut self, name: &str) -> Option<&mut Topic> {
        self.topics.get_mut(name)
    }

    pub fn names(&self) -> impl Iterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    pub fn log(&self, partition: &Partition) -> Option<&Log> {
        self.topics.get(&partition.topic)?.logs.get(usize::try_from(partition.number).ok()?)
    }

    pub fn log_mut(&mut self, partition: &Partition) -> Option<&mut Log> {
        self.is_touched = true;
        self.topics.get_mut(&partition.topic)?.logs.get_mut(usize::try_from(partition.number).ok()?)
    }
}
