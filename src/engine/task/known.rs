//! What a task knows of its topics, its store and its last transaction.

use std::path::PathBuf;
use std::sync::Arc;

use crate::cluster::TopicId;
use crate::engine::catalog::InputTopic;
use crate::engine::commitment::Commitment;
use crate::engine::context::Context;
use crate::engine::hold::Held;
use crate::format::Token;
use crate::record::TopicPartition;

/// A task's topics.
pub struct TaskTopics {
    /// The changelog partition.
    pub changelog: TopicPartition,
    /// The output topic; the partition is the input's.
    pub output: Arc<str>,
    /// What was found out about them before the task started.
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
    /// Where it is kept.
    pub dir: PathBuf,
    /// The store, once it is locked.
    pub held: Option<Held>,
    /// What was found wrong with its files while reading it: the next time it is opened, another is built.
    pub damaged: Option<String>,
    /// Whether it has been restored from the changelog since the task settled.
    pub restored: bool,
}

impl TaskState {
    /// The store in this folder, which is not open yet.
    pub fn at(dir: PathBuf) -> Self {
        Self { dir, held: None, damaged: None, restored: false }
    }
}

/// What is known of a task's transactions: the last one, one that may be open, and what the group has.
#[derive(Default)]
pub struct LastTransaction {
    /// What the group has committed and the owner it names; `None` where ratchet has committed nothing.
    pub commitment: Option<Commitment>,
    /// The group's offset, as settled; `None` if there was none.
    pub group_offset: Option<i64>,
    /// The last transaction in the changelog: its position record's token.
    pub recorded: Option<Token>,
    /// Whether the task was in a transaction that is not known to have ended.
    pub unsettled: bool,
    /// Whether to commit the position even though nothing was read.
    pub commit_start: bool,
}
