//! A Kafka cluster as one deterministic state machine with time: no thread, no clock, no randomness of its own.
//!
//! The owner of the [`Broker`] makes requests in any order, sets the time, and decides when brokers do their
//! background work: [`Broker::markers`] and [`Broker::write_marker`] for a transaction's markers, [`Broker::tick`]
//! for everything that times out, [`Log::compact`] for the cleaner.
//!
//! - `log`: a partition: records, markers, fencing by producer epoch, reads, retention, compaction, leaders' epochs
//! - `nodes`: several brokers: who leads what, and who still believes it does
//! - `topics`: names, ids, deletion and creation
//! - `transactions`: the transaction coordinator
//! - `groups`: the classic group protocol; `offsets`: a group's committed offsets
//! - `requests`: clients' requests, checked as the broker checks them
//!
//! Not simulated: replicas (but for what a follower lacks: [`Log::replicate`]), segments, quotas, the consumer protocol of
//! KIP-848.
//! Every rule names its source: a KIP, or a class of Apache Kafka (4.1).

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

mod code;
mod groups;
mod log;
mod nodes;
mod offsets;
mod requests;
mod topics;
mod transactions;

pub use code::Code;
pub use groups::{Groups, Joined, Subscription};
pub use log::{Found, Isolation, Log, Packing, Record, Stored, Writer};
pub use nodes::{Lead, Nodes, Seat};
pub use offsets::{Committed, Repeater};
pub use requests::Identity;
pub use topics::{Settings, Topics};
pub use transactions::{Coordinator, Marker, Protocol, State, Target};

/// Microseconds since the cluster started.
pub type Time = u64;
/// The wall clock at the start: 2023-11-14.
pub const WALL_MS: i64 = 1_700_000_000_000;
/// One millisecond.
pub const MS: Time = 1_000;
/// One second.
pub const SECOND: Time = 1_000 * MS;
/// Shared, immutable bytes.
pub type Bytes = Arc<[u8]>;

/// One partition of one topic, by name.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Partition {
    pub topic: Arc<str>,
    pub number: i32,
}

impl Partition {
    pub fn new(topic: impl Into<Arc<str>>, number: i32) -> Self {
        Self { topic: topic.into(), number }
    }
}

impl fmt::Debug for Partition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.topic, self.number)
    }
}

/// Something that can be unreachable for a while.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Role {
    TransactionCoordinator,
    GroupCoordinator,
    Leader(Partition),
}

/// The cluster.
pub struct Broker {
    pub now: Time,
    pub topics: Topics,
    pub coordinator: Coordinator,
    pub groups: Groups,
    pub nodes: Nodes,
    /// Whether the current request arrived after its connection had broken.
    pub late: bool,
    /// Whether they name the latest timestamp in a partition (`ListOffsets`, version 7).
    pub names_latest_time: bool,
    /// Until when a place is unreachable: a coordinator moves, or a partition has no leader.
    away: BTreeMap<Role, Time>,
}

impl Broker {
    pub fn new(protocol: Protocol) -> Self {
        Self {
            now: 0,
            topics: Topics::default(),
            coordinator: Coordinator::new(protocol),
            groups: Groups::default(),
            nodes: Nodes::default(),
            late: false,
            names_latest_time: true,
            away: BTreeMap::new(),
        }
    }

    /// The wall clock of all brokers, milliseconds since the epoch.
    pub fn wall_ms(&self) -> i64 {
        WALL_MS + (self.now / MS) as i64
    }

    /// Makes a role unreachable until a time.
    pub fn take_away(&mut self, role: Role, until: Time) {
        self.away.insert(role, until);
    }

    fn is_away(&self, role: &Role) -> bool {
        !self.away.is_empty() && self.away.get(role).is_some_and(|until| self.now < *until)
    }

    /// Does what is due: removes members whose session has ended, ends rebalances that have waited long enough,
    /// aborts transactions that have been open for too long.
    pub fn tick(&mut self) {
        self.groups.expire(self.now);
        self.coordinator.abort_timed_out(self.now);
    }

    /// When [`Broker::tick`] has something to do next.
    pub fn next_tick(&self) -> Option<Time> {
        [self.groups.next_deadline(), self.coordinator.next_scan(self.now)].into_iter().flatten().min()
    }

    /// The markers still to be written, in any order.
    pub fn markers(&self) -> Vec<Marker> {
        self.coordinator.markers()
    }

    /// Writes one of [`Broker::markers`]. `false`: its partition has no leader; try later.
    pub fn write_marker(&mut self, marker: &Marker) -> bool {
        let strict = self.coordinator.protocol == Protocol::V2;
        let wall_ms = self.wall_ms();
        match &marker.target {
            transactions::Target::Log(partition) => {
                if self.is_away(&Role::Leader(partition.clone())) || !self.nodes.is_led(partition) {
                    return false;
                }
                // A deleted topic needs no marker (TransactionMarkerChannelManager drops it).
                if let Some(log) = self.topics.log_mut(partition) {
                    // A marker below the partition's epoch was overtaken by a later one and has no effect
                    // (TransactionMarkerRequestCompletionHandler: INVALID_PRODUCER_EPOCH ends the sending).
                    if log.append_marker(marker.producer, marker.epoch, marker.commit, strict).is_ok() {
                        log.stamp(wall_ms);
                    }
                    log.replicate(log.end());
                }
            }
            transactions::Target::Offsets(group) => {
                if self.is_away(&Role::GroupCoordinator) {
                    return false;
                }
                self.groups.end_transaction(group, marker.producer, marker.epoch, marker.commit);
            }
        }
        self.coordinator.marker_written(marker);
        true
    }
}
