//! What is known of topics, and when brokers are asked again.
//!
//! An answer may come from a broker that has not heard of the latest leader. So a partition's leader is not replaced by
//! one of an earlier term (KIP-320), unless the topic was created anew, which its id tells (KIP-516). A leader that
//! proved wrong is in doubt: it is not named again before a broker that was asked afterwards has named it, or any has
//! named another.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use rand::rngs::StdRng;

use super::answer::{Answer, Topic};
use super::backoff::backoff;
use super::types::{Leader, RequestId, Settings};

/// After so many answers in short succession, another broker is asked.
const ROTATES_AFTER: u32 = 2;

/// A broker may say anything: more partitions than a topic can have are not remembered.
const PARTITIONS: std::ops::Range<i32> = 0..1 << 20;

/// What is known of the watched topics.
#[derive(Debug, Default)]
pub struct Metadata {
    topics: BTreeMap<Arc<str>, Known>,
    cluster: Option<String>,
    /// The question that was not answered so far.
    asked: Option<Asked>,
    /// When to ask again, if there is a reason to.
    due: Option<Instant>,
    asked_at: Option<Instant>,
    heard_at: Option<Instant>,
    /// Who was asked last.
    asked_node: Option<i32>,
    /// How often in short succession.
    attempts: u32,
    /// How many doubts there were.
    doubts: u64,
    /// Whether a leader was looked for that is not known.
    missed: Cell<bool>,
}

#[derive(Clone, Copy, Debug)]
struct Asked {
    id: RequestId,
    /// How many doubts there were before.
    doubts: u64,
}

#[derive(Debug, Default)]
struct Known {
    /// Whether it was asked for.
    is_asked: bool,
    /// Whether anything was heard of it, be it an error.
    is_heard: bool,
    /// Whether it was ever heard of without an error.
    is_found: bool,
    /// Zeros for none.
    id: [u8; 16],
    error: Option<i16>,
    partitions: BTreeMap<i32, Partition>,
}

#[derive(Debug, Default)]
struct Partition {
    leader: Option<Leader>,
    /// The latest term that was heard of.
    epoch: Option<i32>,
    /// The number of the doubt.
    doubted: Option<u64>,
}

impl Metadata {
    /// Watches a topic; whether it is new.
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

    /// The topics to ask for.
    pub fn topics(&self) -> impl ExactSizeIterator<Item = &Arc<str>> {
        self.topics.keys()
    }

    /// Who leads; if that is not known, it is noted that it is wanted.
    pub fn leader(&self, topic: &str, partition: i32) -> Option<Leader> {
        let known = self.topics.get(topic)?.partitions.get(&partition);
        let leader = known.filter(|known| known.doubted.is_none()).and_then(|known| known.leader);
        if leader.is_none() {
            self.missed.set(true);
        }
        leader
    }

    /// The topic's error as it was last heard.
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

    /// Doubts that `seen` leads a partition. Whether there is anything to be asked.
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

    /// There is a reason to ask: at once, or a while after the last time.
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

    /// There is a reason to ask at once.
    pub fn want_at_once(&mut self, now: Instant) {
        self.due = Some(now);
    }

    /// Takes note of what became known to be missing, and of age.
    pub fn look(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        let is_old = self.heard_at.is_some_and(|at| at + settings.metadata_max_age <= now);
        if (self.missed.take() || is_old) && self.asked.is_none() {
            self.want(now, settings, random);
        }
    }

    /// Whether a question is to be asked now.
    pub fn is_due(&self, now: Instant) -> bool {
        self.asked.is_none() && self.due.is_some_and(|due| due <= now)
    }

    /// When there will be something to be asked; `None` while it is under way, or has no reason.
    pub fn due(&self, settings: &Settings) -> Option<Instant> {
        let aged = || self.heard_at.map(|at| at + settings.metadata_max_age);
        self.due.or_else(aged).filter(|_| self.asked.is_none())
    }

    /// Whether something is missing that nothing is being done about.
    pub fn is_missed(&self) -> bool {
        self.missed.get() && self.asked.is_none() && self.due.is_none()
    }

    /// Who should not be asked if another can be: its answers did not help.
    pub fn avoided(&self) -> Option<i32> {
        self.asked_node.filter(|_| self.attempts >= ROTATES_AFTER)
    }

    /// The question is asked.
    pub fn asked(&mut self, id: RequestId, node: i32, now: Instant) {
        self.asked = Some(Asked { id, doubts: self.doubts });
        (self.asked_at, self.asked_node, self.due) = (Some(now), Some(node), None);
        self.attempts = self.attempts.saturating_add(1);
        self.topics.values_mut().for_each(|known| known.is_asked = true);
    }

    /// Whether nothing was ever heard.
    pub fn is_new(&self) -> bool {
        self.heard_at.is_none()
    }

    /// The question that is not answered.
    pub fn question(&self) -> Option<RequestId> {
        self.asked.map(|asked| asked.id)
    }

    /// There will be no answer.
    pub fn failed(&mut self, now: Instant, settings: &Settings, random: &mut StdRng) {
        self.asked = None;
        self.want(now, settings, random);
    }

    /// The id that another cluster has, if the answer is not from the one that was heard before.
    pub fn other_cluster(&mut self, answer: &Answer<'_>) -> Option<(String, String)> {
        let theirs = answer.cluster?;
        let ours = self.cluster.get_or_insert_with(|| theirs.to_owned());
        (ours != theirs).then(|| (ours.clone(), theirs.to_owned()))
    }

    /// Takes an answer to the question that was asked.
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
            // Watched since.
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

    /// Hears of a topic in an answer to a question before which there were so many doubts.
    fn hear(&mut self, topic: &Topic<'_>, doubts: u64) {
        self.is_heard = true;
        self.error = (topic.error != 0).then_some(topic.error);
        if self.error.is_some() {
            // What is known of it still counts: the broker may not have heard of it yet.
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
