//! The known metadata of topics, and the time at which metadata is requested again.
//!
//! A response may come from a broker that does not know the latest leader yet. So a partition's leader is not replaced
//! by a leader of an earlier epoch (KIP-320), unless the topic was recreated, which its id shows (KIP-516). A leader
//! that proved wrong is in doubt: it is not returned until the response to a later request names it again, or any
//! response names another leader.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;

use super::backoff::backoff;
use super::metadata_messages::{MetadataResponse, Topic};
use super::types::{Leader, RequestId, Settings};

/// After this many requests in short succession, the next request goes to another broker.
const ATTEMPTS_PER_NODE: u32 = 2;

/// The partition numbers that are remembered, since a broker may send any number.
const PARTITION_NUMBERS: std::ops::Range<i32> = 0..1 << 20;

/// The known metadata of the watched topics.
#[derive(Debug, Default)]
pub struct Metadata {
    topics: BTreeMap<Arc<str>, TopicState>,
    /// The cluster's id.
    cluster: Option<String>,
    /// The request that has no response yet.
    pending: Option<PendingRequest>,
    /// When to send the next request, if there is a reason for one.
    next_request_at: Option<Instant>,
    /// When the last request was sent.
    requested_at: Option<Instant>,
    /// When a response was last applied.
    updated_at: Option<Instant>,
    /// The broker to which the last request was sent.
    requested_node: Option<i32>,
    /// How many requests were sent in short succession.
    attempts: u32,
    /// How often a leader was doubted; also the number of the latest doubt.
    doubts: u64,
    /// Whether an unknown leader was looked up since the last tick.
    has_missed_lookup: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
struct PendingRequest {
    id: RequestId,
    /// [`Metadata::doubts`] when it was sent.
    doubts: u64,
}

#[derive(Debug, Default)]
struct TopicState {
    /// Whether any request has included the topic.
    is_requested: bool,
    /// Whether any response has included the topic, even with an error.
    is_reported: bool,
    /// Whether any response has included the topic without an error.
    is_found: bool,
    /// The topic's id; zeros if the brokers report no id.
    id: [u8; 16],
    /// The error in the latest response.
    error: Option<i16>,
    partitions: BTreeMap<i32, PartitionState>,
}

#[derive(Debug, Default)]
struct PartitionState {
    leader: Option<Leader>,
    /// The latest known epoch.
    epoch: Option<i32>,
    /// The number of the doubt about the leader, if it is in doubt.
    doubt: Option<u64>,
}

impl Metadata {
    /// Watches a topic. Returns whether it is new.
    pub fn watch(&mut self, topic: &Arc<str>) -> bool {
        let is_new = !self.topics.contains_key(topic);
        if is_new {
            self.topics.insert(topic.clone(), TopicState::default());
        }
        is_new
    }

    /// Forgets a topic.
    pub fn unwatch(&mut self, topic: &str) {
        self.topics.remove(topic);
    }

    /// The topics to request.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    /// The leader of a partition; if it is unknown, notes that it was looked up.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        let state = self.topics.get(topic)?.partitions.get(&partition);
        let leader = state.filter(|state| state.doubt.is_none()).and_then(|state| state.leader);
        if leader.is_none() {
            self.has_missed_lookup.set(true);
        }
        leader
    }

    /// The topic's error in the latest response.
    pub fn error(&self, topic: &str) -> Option<i16> {
        self.topics.get(topic)?.error
    }

    /// The topic's id.
    pub fn id(&self, topic: &str) -> Option<[u8; 16]> {
        self.topics.get(topic).filter(|state| state.is_found).map(|state| state.id)
    }

    /// How many partitions the topic has.
    pub fn partition_count(&self, topic: &str) -> Option<usize> {
        self.topics.get(topic).filter(|state| state.is_found).map(|state| state.partitions.len())
    }

    /// Doubts that `leader` still leads a partition. Returns whether metadata has to be requested: not if it already
    /// names another leader.
    pub fn doubt(&mut self, topic: &str, partition: i32, leader: Option<Leader>) -> bool {
        let state = self.topics.get_mut(topic).and_then(|state| state.partitions.get_mut(&partition));
        let Some(state) = state else { return true };
        if state.leader != leader {
            return state.leader.is_none();
        }
        if state.doubt.is_none() {
            self.doubts += 1;
            state.doubt = Some(self.doubts);
        }
        true
    }

    /// Schedules a request: at once, or after a backoff since the last request.
    pub fn schedule(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        if self.next_request_at.is_some() {
            return;
        }
        // After a while without requests, the next one is no longer in short succession.
        if self.requested_at.is_none_or(|at| at + settings.reconnect_backoff_max * 2 <= now) {
            self.attempts = 0;
        }
        let backoff = backoff(self.attempts, settings, random);
        self.next_request_at = Some(self.requested_at.map_or(now, |at| (at + backoff).max(now)));
    }

    /// Schedules a request at once.
    pub fn schedule_at_once(&mut self, now: Instant) {
        self.next_request_at = Some(now);
    }

    /// Schedules a request if an unknown leader was looked up, or if the metadata is too old.
    pub fn schedule_if_needed(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        let is_old = self.updated_at.is_some_and(|at| at + settings.metadata_max_age <= now);
        if (self.has_missed_lookup.take() || is_old) && self.pending.is_none() {
            self.schedule(now, settings, random);
        }
    }

    /// Whether a request is due now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.pending.is_none() && self.next_request_at.is_some_and(|at| at <= now)
    }

    /// When the next request is due; `None` while a request is pending, or if there is no reason for one.
    pub fn next_request_at(&self, settings: &Settings) -> Option<Instant> {
        let expires_at = || self.updated_at.map(|at| at + settings.metadata_max_age);
        self.next_request_at.or_else(expires_at).filter(|_| self.pending.is_none())
    }

    /// Whether an unknown leader was looked up and no request is pending or scheduled.
    pub fn has_unscheduled_lookup(&self) -> bool {
        self.has_missed_lookup.get() && self.pending.is_none() && self.next_request_at.is_none()
    }

    /// The broker to avoid if another one is available: its responses did not help.
    pub fn avoided_node(&self) -> Option<i32> {
        self.requested_node.filter(|_| self.attempts >= ATTEMPTS_PER_NODE)
    }

    /// Notes that a request was sent.
    pub fn request_sent(&mut self, id: RequestId, node: i32, now: Instant) {
        self.pending = Some(PendingRequest { id, doubts: self.doubts });
        (self.requested_at, self.requested_node, self.next_request_at) = (Some(now), Some(node), None);
        self.attempts = self.attempts.saturating_add(1);
        self.topics.values_mut().for_each(|state| state.is_requested = true);
    }

    /// Whether any response was applied.
    pub fn has_response(&self) -> bool {
        self.updated_at.is_some()
    }

    /// The request that has no response yet.
    pub fn pending_request(&self) -> Option<RequestId> {
        self.pending.map(|request| request.id)
    }

    /// Notes that the pending request has failed.
    pub fn request_failed(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        self.pending = None;
        self.schedule(now, settings, random);
    }

    /// The known cluster id and the id in the response, if they differ. The first id that a response contains becomes
    /// the known one.
    pub fn cluster_mismatch(&mut self, response: &MetadataResponse<'_>) -> Option<(String, String)> {
        let reported = response.cluster?;
        let known = self.cluster.get_or_insert_with(|| reported.to_owned());
        (known != reported).then(|| (known.clone(), reported.to_owned()))
    }

    /// Applies the response to the pending request.
    pub fn apply(&mut self, response: &MetadataResponse<'_>, now: Instant, settings: &Settings, random: &mut StdRng) {
        let Some(request) = self.pending.take() else { return };
        for topic in &response.topics {
            if let Some(state) = self.topics.get_mut(topic.name) {
                state.apply(topic, request.doubts);
            }
        }
        self.updated_at = Some(now);
        self.next_request_at = None;
        if self.topics.values().any(|state| !state.is_requested) {
            // The topic was watched after the request was sent.
            self.schedule_at_once(now);
        } else if self.topics.values().any(|state| !state.is_reported || state.is_doubted()) {
            self.schedule(now, settings, random);
        }
    }
}

impl TopicState {
    fn is_doubted(&self) -> bool {
        self.partitions.values().any(|state| state.doubt.is_some())
    }

    /// Applies a topic of a response; `doubts` is [`Metadata::doubts`] when its request was sent.
    fn apply(&mut self, topic: &Topic<'_>, doubts: u64) {
        self.is_reported = true;
        self.error = (topic.error != 0).then_some(topic.error);
        if self.error.is_some() {
            // The known leaders are kept: a broker may learn of a topic later than others.
            return;
        }
        self.is_found = true;
        if topic.id != [0; 16] {
            if self.id != [0; 16] && self.id != topic.id {
                self.partitions.clear();
            }
            self.id = topic.id;
        }
        for (partition, leader) in topic.leaders.iter().filter(|(partition, _)| PARTITION_NUMBERS.contains(partition)) {
            self.partitions.entry(*partition).or_default().apply(*leader, doubts);
        }
    }
}

impl PartitionState {
    /// Applies the leader in a response. A negative node means that the partition has no leader; a negative epoch, that
    /// the broker does not report the epoch.
    fn apply(&mut self, reported: Leader, doubts: u64) {
        let epoch = (reported.epoch >= 0).then_some(reported.epoch);
        if epoch.is_some() && epoch < self.epoch {
            return;
        }
        let leader = (reported.node >= 0).then_some(reported);
        let was_doubted_later = self.doubt.is_some_and(|number| number > doubts);
        if was_doubted_later && leader == self.leader {
            return;
        }
        (self.leader, self.doubt) = (leader, None);
        self.epoch = epoch.or(self.epoch);
    }
}
