//! The state that all lanes of a topology share: read-only settings, and handles that are safe to share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Fencing;
use crate::config::{self, Commit};
use crate::dedup::Rules;
use crate::effect::Sink;
use crate::effect::gate::Gate;
use crate::effect::provider::Provider;
use crate::observe::{Health, Metrics};
use crate::state::{Memory, Registry, StateSlot};
use crate::topology::{self, Topology};

use super::capacity::Capacity;
use super::catalog::Catalog;
use super::clock::Clock;
use super::control::bounds::LatestBounds;
use super::held_up::HeldUp;
use super::ids::Ids;
use super::limits::Limits;
use super::wakers::Wakers;

/// The state that all lanes of a topology share.
pub struct Context {
    /// The topology.
    pub topology: Topology,
    /// Its rules.
    pub rules: Arc<Rules>,
    /// The rules' digest.
    pub rules_digest: [u8; 32],
    /// The input topics that are currently read.
    pub topics: Catalog,
    /// The settings with which topics are created.
    pub topic_settings: config::TopicSettings,
    /// The bounds at which a transaction ends.
    pub commit: Commit,
    /// The room in an isolated task's transaction.
    pub isolated_room: Capacity,
    /// The folder of the stores.
    pub state_slot: Arc<StateSlot>,
    /// The stores' shared memory.
    pub memory: Memory,
    /// The stores that are open in this process.
    pub registry: Registry,
    /// The process's metrics.
    pub metrics: Metrics,
    /// Where this instance's readiness is reported.
    pub health: Health,
    /// How many topics were found to be recreated.
    pub recreated_count: AtomicU64,
    /// Whether the watch should check the topics immediately.
    pub check_topics_now: AtomicBool,
    /// The input topics whose tasks have been active in this process, and therefore had all required rights.
    pub proven: Proven,
    /// The tasks that wait for records that exist but do not arrive.
    pub held_up: HeldUp,
    /// The transactional ids that its lanes write under.
    pub ids: Ids,
    /// Bounds of the lanes' work.
    pub limits: Limits,
    /// The sink, if survivors do not go to a topic.
    pub sink: Option<Arc<dyn Sink>>,
    /// The gate, if the topology has one.
    pub gate: Option<Arc<dyn Gate>>,
    /// The provider, if forwarded records call one.
    pub provider: Option<Arc<dyn Provider>>,
    /// The latest bounds of the control topic, if the topology calls a provider.
    pub control_topic: LatestBounds,
    /// The wakers of its lanes.
    pub wakers: Wakers,
    /// The clock.
    pub clock: Arc<dyn Clock>,
}

impl Context {
    /// The topic for the results of the sink's statements, if there is one.
    pub fn results(&self) -> Option<&str> {
        self.topology.sink().and_then(topology::sink::Sink::result)
    }

    /// The owners whose transactions a takeover may end: this topology's owners outside this process.
    pub fn fencing(&self) -> Fencing {
        Fencing { prefix: self.topology.transactional_ids(), in_use: self.ids.in_use() }
    }
}

/// Topics whose tasks have been active. If such a task lacks a right later, the right was withdrawn, perhaps only for a
/// while, so the task retries as after any other failure.
#[derive(Debug, Default)]
pub struct Proven(Mutex<HashSet<Arc<str>>>);

impl Proven {
    /// Records that a task of this topic is active.
    pub fn add(&self, topic: &Arc<str>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(topic));
    }

    /// Whether a task of this topic has ever been active.
    pub fn has(&self, topic: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(topic)
    }
}

/// How long to wait before retry number `attempt` (from 0): doubling from 100 ms to 10 s.
pub fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(100u64 << attempt.min(7)).min(Duration::from_secs(10))
}
