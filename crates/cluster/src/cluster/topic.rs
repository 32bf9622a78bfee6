//! What a cluster knows of topics and groups, and what it needs for new ones.

use std::fmt;

/// The id that a cluster gives a topic when it is created; a topic that is deleted and recreated
/// under the same name gets another one (KIP-516).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub struct TopicId(pub [u8; 16]);

impl TopicId {
    /// Whether the cluster gave one: a broker without topic ids returns zero.
    pub fn is_known(self) -> bool {
        self != Self::default()
    }
}

impl fmt::Display for TopicId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

/// What a cluster knows about a topic.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopicDescription {
    /// The topic's id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partition_count: i32,
    /// `cleanup.policy`, verbatim: `delete`, `compact` or `compact,delete`.
    pub cleanup_policy: String,
    /// `delete.retention.ms`: how long a tombstone stays visible.
    pub delete_retention_ms: i64,
    /// `retention.ms`: how long records are kept where the policy deletes; `i64::MAX` for ever.
    pub retention_ms: i64,
    /// `retention.bytes`: how much of a partition is kept where the policy deletes; `i64::MAX` for all of it.
    pub retention_bytes: i64,
    /// Whether the broker stamps records when they are appended (`message.timestamp.type`).
    pub stamps: bool,
    /// `message.timestamp.before.max.ms`: how far a record's own timestamp may lie in the past.
    pub timestamp_before_max_ms: i64,
    /// `message.timestamp.after.max.ms`: how far it may lie in the future.
    pub timestamp_after_max_ms: i64,
    /// `max.message.bytes`: the largest batch of records allowed.
    pub message_bytes_max: i64,
    /// Replicas of the partition with the fewest; `None` if the cluster has no replicas.
    pub replicas: Option<i32>,
    /// `min.insync.replicas`; `None` if the cluster has no replicas.
    pub min_insync_replicas: Option<i32>,
    /// `unclean.leader.election.enable`: whether a replica that lacks records may become leader; `None` if the cluster
    /// has no replicas or does not say.
    pub elects_uncleanly: Option<bool>,
    /// What this client may do with it; `None` if the cluster does not say.
    pub rights: Option<Rights>,
}

/// The minimum needed to tell a topic from another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TopicOutline {
    /// The topic's id.
    pub id: TopicId,
    /// How many partitions it has.
    pub partition_count: i32,
}

/// What a client may do with a topic or a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// Read records, or be a member.
    pub read: bool,
    /// Write records; nobody writes to a group.
    pub write: bool,
    /// Describe it.
    pub describe: bool,
    /// Alter it: an administrator's right, or everybody's where access is not restricted.
    pub alter: bool,
}

impl Rights {
    /// The rights on a cluster that does not restrict access.
    pub const ALL: Self = Self { read: true, write: true, describe: true, alter: true };
}

/// A topic to be created.
#[derive(Clone, Debug)]
pub struct NewTopic<'a> {
    /// Its name.
    pub name: &'a str,
    /// How many partitions to create.
    pub partition_count: i32,
    /// Replicas of each partition; ignored by the embedded cluster.
    pub replication_factor: i32,
    /// Topic settings, by their Kafka names.
    pub settings: &'a [(&'a str, String)],
}
