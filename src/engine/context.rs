//! What all lanes of a topology share: read-only settings, and handles that are safe to share.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::cluster::TopicId;
use crate::config::Commit;
use crate::dedup::Rules;
use crate::observe::{Health, Metrics};
use crate::state::{Memory, Registry, StateDir};
use crate::topology::Topology;

use super::clock::Clock;

/// What all lanes of a topology share.
pub struct Context {
    /// The topology.
    pub topology: Topology,
    /// Its rules.
    pub rules: Arc<Rules>,
    /// The rules' digest.
    pub rules_digest: [u8; 32],
    /// The topics of the topology, by input topic.
    pub topics: HashMap<Arc<str>, Topics>,
    /// Partitions of the dead letter topic.
    pub dead_letter_partitions: i32,
    /// When a transaction ends at the latest.
    pub commit: Commit,
    /// Where the stores are.
    pub state_dir: Arc<StateDir>,
    /// The stores' shared memory.
    pub memory: Memory,
    /// How much of a changelog is gathered before it is written to the store, in bytes.
    pub load_buffer_bytes_max: usize,
    /// The stores that are open in this process.
    pub registry: Registry,
    /// Where counts go.
    pub metrics: Metrics,
    /// Where it is said whether this instance can be counted on.
    pub health: Health,
    /// Set when one of the topics was seen to have been recreated.
    pub recreated: AtomicBool,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

/// What was learnt of one input topic's topics before the lanes began.
#[derive(Clone, Copy, Debug)]
pub struct Topics {
    /// The input's id.
    pub input_id: TopicId,
    /// The changelog's id.
    pub changelog_id: TopicId,
    /// The input's, and so the changelog's, partition count.
    pub task_count: u32,
    /// `delete.retention.ms` of the changelog.
    pub delete_retention_ms: i64,
}

/// How long to wait before trying again for the `attempt`-th time (from 0): doubling from 100 ms to 10 s.
pub fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(100u64 << attempt.min(7)).min(Duration::from_secs(10))
}
