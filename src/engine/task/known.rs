//! A task's topics, its store and its last transaction.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cluster::TopicId;
use crate::engine::catalog::InputTopic;
use crate::engine::commitment::Commitment;
use crate::engine::context::Context;
use crate::engine::hold::LockedStore;
use crate::format::Token;
use crate::record::TopicPartition;

/// A task's topics.
pub struct TaskTopics {
    /// The changelog partition.
    pub changelog: TopicPartition,
    /// The output topic; the partition is the input's.
    pub output: Arc<str>,
    /// The facts about the topics that were looked up before the task started.
    pub facts: InputTopic,
    /// The input topic's id, as settled.
    pub input_id: TopicId,
    /// The input partition's end, as settled.
    pub input_end: i64,
    /// The changelog topic's id, as settled.
    pub changelog_id: TopicId,
}

impl TaskTopics {
    /// The topics of the task that reads `input`; it has not settled yet.
    pub fn of(context: &Context, input: &TopicPartition, facts: InputTopic) -> Self {
        Self {
            changelog: TopicPartition::new(context.topology.changelog(&input.topic), input.partition),
            output: context.topology.output_topic(&input.topic).unwrap_or_default().into(),
            facts,
            input_id: TopicId::default(),
            input_end: 0,
            changelog_id: TopicId::default(),
        }
    }
}

/// A task's store.
pub struct TaskState {
    /// Its folder.
    pub dir: PathBuf,
    /// The store, once it is locked.
    pub store: Option<LockedStore>,
    /// The damage that was found while its files were read: the next time it is opened, another store is built.
    pub damage: Option<String>,
    /// Whether it has been restored from the changelog since the task settled.
    pub is_restored: bool,
}

impl TaskState {
    /// The store in this folder, which is not open yet.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir, store: None, damage: None, is_restored: false }
    }
}

/// A task's last transaction, and what the group has committed.
#[derive(Default)]
pub struct LastTransaction {
    /// The offset that the group has committed and the owner that it names; `None` if ratchet has committed no offset.
    pub commitment: Option<Commitment>,
    /// The group's offset, as settled; `None` if there was none.
    pub group_offset: Option<i64>,
    /// The last transaction in the changelog: its position record's token.
    pub recorded_token: Option<Token>,
    /// Whether the task was in a transaction that may not have ended.
    pub unsettled: bool,
    /// Whether to commit the position even though no record was read.
    pub commit_start: bool,
}
