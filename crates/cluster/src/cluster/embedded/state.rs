//! The state in memory of one embedded cluster: its topics, groups and producers. The broker has the lock on it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Weak};

use super::disk::ByName;
use super::error::refused;
use super::group::Group;
use super::layout::{FolderMeta, PartitionMeta};
use super::membership::Membership;
use super::topics::Topic;
use crate::cluster::{Error, ErrorKind, TopicId};
use crate::record::TopicPartition;
use crate::words::counted;

/// The state in memory.
pub(super) struct State {
    pub folder: FolderMeta,
    pub topics: ByName<Topic>,
    pub groups: HashMap<String, Group>,
    /// The epoch of each transactional id with a live producer.
    pub producers: HashMap<String, u64>,
    /// The last number given to a member or to a producer.
    last_number: u64,
    /// Why the cluster is broken, if it is.
    pub broken: Option<String>,
}

impl State {
    /// The state of a folder that was just opened: no groups, no producers.
    pub fn new(folder: FolderMeta, topics: ByName<Topic>) -> Self {
        Self { folder, topics, groups: HashMap::new(), producers: HashMap::new(), last_number: 0, broken: None }
    }

    /// A number that no member or producer of this process has had.
    pub fn next_number(&mut self) -> u64 {
        self.last_number += 1;
        self.last_number
    }

    /// The topic, or an error that names it.
    pub fn topic(&self, name: &str) -> Result<&Topic, Error> {
        self.topics.get(name).ok_or_else(|| refused(format!("topic {name} does not exist: create it first")))
    }

    /// The topic, if it has this partition.
    pub fn topic_of(&self, partition: &TopicPartition) -> Result<&Topic, Error> {
        let topic = self.topic(&partition.topic)?;
        if topic.partition(partition.partition).is_none() {
            let (name, count) = (&partition.topic, topic.partition_count());
            return Err(refused(format!(
                "topic {name} has {}, there is no partition {}",
                counted(count, "partition"),
                partition.partition
            )));
        }
        Ok(topic)
    }

    /// A partition's metadata, as long as the topic still has this id.
    pub fn meta(&self, partition: &TopicPartition, id: TopicId) -> Result<PartitionMeta, Error> {
        match self.topics.get(&partition.topic) {
            Some(topic) if topic.id == id => match topic.partition(partition.partition) {
                Some(known) => Ok(known.meta),
                None => Err(refused(format!("{partition} does not exist"))),
            },
            Some(_) => Err(refused(format!("topic {} was deleted and created again", partition.topic))),
            None => Err(refused(format!("topic {} was deleted", partition.topic))),
        }
    }

    /// Makes written records visible.
    pub fn publish(&mut self, partition: &TopicPartition, id: TopicId, meta: &PartitionMeta) {
        if let Some(topic) = self.topics.get_mut(&partition.topic)
            && topic.id == id
            && let Some(known) = topic.partition_mut(partition.partition)
        {
            known.meta = *meta;
        }
    }

    /// Registers a reader, because of the tombstones that it has not seen yet.
    pub fn watch(&mut self, partition: &TopicPartition, position: &Arc<AtomicI64>) {
        if let Some(known) = self.topics.get_mut(&partition.topic).and_then(|t| t.partition_mut(partition.partition)) {
            known.readers.retain(|reader| reader.strong_count() > 0);
            known.readers.push(Arc::downgrade(position));
        }
    }

    /// Rejects a commit that its group would reject.
    pub fn check_membership(&self, membership: &Membership) -> Result<(), Error> {
        let group = self.groups.get(&membership.group);
        let unknown = || Err("the group has no members (unknown member)".to_owned());
        group
            .map_or_else(unknown, |group| group.check_commit(membership.member, membership.generation))
            .map_err(|why| Error::new(ErrorKind::Abort, format!("group {}: {why}", membership.group)))
    }
}

/// The lowest position of the live readers; `i64::MAX` without any.
pub(super) fn lowest_position(readers: &[Weak<AtomicI64>]) -> i64 {
    readers.iter().filter_map(Weak::upgrade).map(|at| at.load(Ordering::Acquire)).min().unwrap_or(i64::MAX)
}
