//! What all lanes of a topology share: read-only settings, and handles that are safe to
//! share.

use std::collections::HashSet;
use std::sync::atomic::{AtomicBool, AtomicU64};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::cluster::Fencing;
use crate::config::{self, Commit};
use crate::dedup::Rules;
use crate::observe::{Health, Metrics};
use crate::state::{Memory, Registry, StateDir};
use crate::topology::Topology;

use super::catalog::Catalog;
use super::claims::Ids;
use super::clock::Clock;
use super::held_up::HeldUp;
use super::limits::Limits;
use super::process::Room;

/// What all lanes of a topology share.
pub struct Context {
    /// The topology.
    pub topology: Topology,
    /// Its rules.
    pub rules: Arc<Rules>,
    /// The rules' digest.
    pub rules_digest: [u8; 32],
    /// The input topics that are read at present.
    pub topics: Catalog,
    /// How topics are created.
    pub topic_settings: config::Topics,
    /// When a transaction ends at the latest.
    pub commit: Commit,
    /// What a transaction of an isolated task has room for.
    pub isolated_room: Room,
    /// Where the stores are.
    pub state_dir: Arc<StateDir>,
    /// The stores' shared memory.
    pub memory: Memory,
    /// The stores that are open in this process.
    pub registry: Registry,
    /// Where counts go.
    pub metrics: Metrics,
    /// Where it is said whether this instance can be counted on.
    pub health: Health,
    /// How many topics were seen to have been recreated.
    pub recreated: AtomicU64,
    /// Whether the watch is to look at the topics at once.
    pub look_now: AtomicBool,
    /// The input topics whose tasks were at work in this process: all that they need was allowed.
    pub proven: Proven,
    /// The tasks that wait for what is there and does not come.
    pub held_up: HeldUp,
    /// The transactional ids that its lanes write under.
    pub ids: Ids,
    /// Bounds of the lanes' work.
    pub limits: Limits,
    /// What time it is.
    pub clock: Arc<dyn Clock>,
}

impl Context {
    /// Whose transactions a takeover may end: this topology's owners that are not of this process.
    pub fn fencing(&self) -> Fencing {
        Fencing { prefix: self.topology.transactional_ids(), in_use: self.ids.in_use() }
    }
}

/// Topics whose tasks were at work. A right that is missing later was there once: it was taken away, for good or for the
/// moment that it takes to grant it anew, and is asked for again as any other trouble is.
#[derive(Debug, Default)]
pub struct Proven(Mutex<HashSet<Arc<str>>>);

impl Proven {
    /// A task of this topic is at work.
    pub fn add(&self, topic: &Arc<str>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).insert(Arc::clone(topic));
    }

    /// Whether one ever was.
    pub fn has(&self, topic: &str) -> bool {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).contains(topic)
    }
}

/// How long to wait before trying again for the `attempt`-th time (from 0): doubling from 100 ms to 10 s.
pub fn backoff(attempt: u32) -> Duration {
    Duration::from_millis(100u64 << attempt.min(7)).min(Duration::from_secs(10))
}
