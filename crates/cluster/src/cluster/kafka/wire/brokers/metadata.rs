//! What is known of topics, and when metadata is requested again.
//!
//! An answer may come from a broker that does not know the latest leader yet. So a partition's leader is not replaced
//! by one of an earlier epoch (KIP-320), unless the topic was recreated, which its id shows (KIP-516). A leader that
//! proved wrong is in doubt: it is not returned until the answer to a later request names it, or any answer names
//! another leader.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;

use super::answer::{Answer, Topic};
use super::backoff::backoff;
use super::types::{Leader, RequestId, Settings};

/// After this many requests in short succession, another broker is asked.
const ROTATES_AFTER: u32 = 2;

/// Partitions beyond these are not remembered, since a broker may send any number.
const PARTITIONS: std::ops::Range<i32> = 0..1 << 20;

/// What is known of the watched topics.
#[derive(Debug, Default)]
pub struct Metadata {
    topics: BTreeMap<Arc<str>, Known>,
    cluster: Option<String>,
    /// The request that is not answered yet.
    asked: Option<Asked>,
    /// When to send the next request, if there is a reason for it.
    due: Option<Instant>,
    asked_at: Option<Instant>,
    heard_at: Option<Instant>,
    /// The broker that was asked last.
    asked_node: Option<i32>,
    /// How many requests were sent in short succession.
    attempts: u32,
    /// How many doubts there have been.
    doubts: u64,
    /// Whether an unknown leader was looked up.
    missed: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    id: RequestId,
    /// How many doubts there had been when it was sent.
    doubts: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether any request has included it.
    is_asked: bool,
    /// Whether any answer has included it, even with an error.
    is_heard: bool,
    /// Whether any answer has included it without an error.
    is_found: bool,
    /// Zeros for none.
    id: [u8; 16],
    error: Option<i16>,
    partitions: BTreeMap<i32, Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    leader: Option<Leader>,
    /// The latest known epoch.
    epoch: Option<i32>,
    /// The number of the doubt about its leader.
    doubted: Option<u64>,
}

impl Metadata {
    /// Watches a topic. Returns whether it is new.
    pub fn watch(&mut self, topic: &Arc<str>) -> bool {
        let is_new = !self.topics.contains_key(topic);
        if is_new {
            self.topics.insert(topic.clone(), Known::default());
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

    /// The leader; if it is unknown, notes that it was looked up.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        let known = self.topics.get(topic)?.partitions.get(&partition);
        let leader = known.filter(|known| known.doubted.is_none()).and_then(|known| known.leader);
        if leader.is_none() {
            self.missed.set(true);
        }
        leader
    }

    /// The topic's error in the latest answer.
    pub fn error(&self, topic: &str) -> Option<i16> {
        self.topics.get(topic)?.error
    }

    /// The topic's id.
    pub fn id(&self, topic: &str) -> Option<[u8; 16]> {
        self.topics.get(topic).filter(|known| known.is_found).map(|known| known.id)
    }

    /// How many partitions the topic has.
    pub fn partition_count(&self, topic: &str) -> Option<usize> {
        self.topics.get(topic).filter(|known| known.is_found).map(|known| known.partitions.len())
    }

    /// Doubts that `seen` leads a partition. Returns whether metadata has to be requested.
    pub fn doubt(&mut self, topic: &str, partition: i32, seen: Option<Leader>) -> bool {
        let known = self.topics.get_mut(topic).and_then(|known| known.partitions.get_mut(&partition));
        let Some(known) = known else { return true };
        if known.leader != seen {
            return known.leader.is_none();
        }
        if known.doubted.is_none() {
            self.doubts += 1;
            known.doubted = Some(self.doubts);
        }
        true
    }

    /// Schedules a request: at once, or some time after the last one.
    pub fn want(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        if self.due.is_some() {
            return;
        }
        if self.asked_at.is_none_or(|at| at + settings.reconnect_backoff_max * 2 <= now) {
            self.attempts = 0;
        }
        let pause = backoff(self.attempts, settings, random);
        self.due = Some(self.asked_at.map_or(now, |at| (at + pause).max(now)));
    }

    /// Schedules a request at once.
    pub fn want_at_once(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Schedules a request if an unknown leader was looked up, or by age.
    pub fn look(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        let is_old = self.heard_at.is_some_and(|at| at + settings.metadata_max_age <= now);
        if (self.missed.take() || is_old) && self.asked.is_none() {
            self.want(now, settings, random);
        }
    }

    /// Whether a request is due now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.asked.is_none() && self.due.is_some_and(|due| due <= now)
    }

    /// When the next request is due; `None` while one is under way, or if there is no reason for one.
    pub fn due(&self, settings: &Settings) -> Option<Instant> {
        let aged = || self.heard_at.map(|at| at + settings.metadata_max_age);
        self.due.or_else(aged).filter(|_| self.asked.is_none())
    }

    /// Whether an unknown leader was looked up and no request is under way or scheduled.
    pub fn is_missed(&self) -> bool {
        self.missed.get() && self.asked.is_none() && self.due.is_none()
    }

    /// The broker to avoid if another can be asked: its answers did not help.
    pub fn avoided(&self) -> Option<i32> {
        self.asked_node.filter(|_| self.attempts >= ROTATES_AFTER)
    }

    /// Notes that a request was sent.
    pub fn asked(&mut self, id: RequestId, node: i32, now: Instant) {
        self.asked = Some(Asked { id, doubts: self.doubts });
        (self.asked_at, self.asked_node, self.due) = (Some(now), Some(node), None);
        self.attempts = self.attempts.saturating_add(1);
        self.topics.values_mut().for_each(|known| known.is_asked = true);
    }

    /// Whether there was no answer so far.
    pub fn is_new(&self) -> bool {
        self.heard_at.is_none()
    }

    /// The request that is not answered yet.
    pub fn question(&self) -> Option<RequestId> {
        self.asked.map(|asked| asked.id)
    }

    /// Notes that the request will not be answered.
    pub fn failed(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        self.asked = None;
        self.want(now, settings, random);
    }

    /// The known cluster's id and the answer's, if they differ.
    pub fn other_cluster(&mut self, answer: &Answer<'_>) -> Option<(String, String)> {
        let theirs = answer.cluster?;
        let ours = self.cluster.get_or_insert_with(|| theirs.to_owned());
        (ours != theirs).then(|| (ours.clone(), theirs.to_owned()))
    }

    /// Takes the answer to the request that is under way.
    pub fn heard(&mut self, answer: &Answer<'_>, now: Instant, settings: &Settings, random: &mut StdRng) {
        let Some(asked) = self.asked.take() else { return };
        for topic in &answer.topics {
            if let Some(known) = self.topics.get_mut(topic.name) {
                known.hear(topic, asked.doubts);
            }
        }
        self.heard_at = Some(now);
        self.due = None;
        if self.topics.values().any(|known| !known.is_asked) {
            // It was watched after the request was sent.
            self.want_at_once(now);
        } else if self.topics.values().any(|known| !known.is_heard || known.is_doubted()) {
            self.want(now, settings, random);
        }
    }
}

impl Known {
    fn is_doubted(&self) -> bool {
        self.partitions.values().any(|known| known.doubted.is_some())
    }

    /// Takes a topic of an answer; `doubts` is how many there had been when its request was sent.
    fn hear(&mut self, topic: &Topic<'_>, doubts: u64) {
        self.is_heard = true;
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
        for (partition, leader) in topic.leaders.iter().filter(|(partition, _)| PARTITIONS.contains(partition)) {
            self.partitions.entry(*partition).or_default().hear(*leader, doubts);
        }
    }
}

impl Partition {
    fn hear(&mut self, heard: Leader, doubts: u64) {
        let epoch = (heard.epoch >= 0).then_some(heard.epoch);
        if epoch.is_some() && epoch < self.epoch {
            return;
        }
        let leader = (heard.node >= 0).then_some(heard);
        let is_younger = self.doubted.is_some_and(|number| number > doubts);
        if is_younger && leader == self.leader {
            return;
        }
        (self.leader, self.doubted) = (leader, None);
        self.epoch = epoch.or(self.epoch);
    }
}
