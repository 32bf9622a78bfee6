//! The input topics that a topology currently reads, shared by its lanes: the facts about each topic, the refused
//! topics, and the topics that were given more partitions. Lanes check the counts once per step, and read a topic's
//! entry when they take over a partition. A lane that is assigned a partition beyond the known count reports that here.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::TopicId;

use super::resume::Refusal;

/// The facts about an input topic and the topics that belong to it, gathered before it is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InputTopic {
    /// The input's id.
    pub input_id: TopicId,
    /// The changelog's id.
    pub changelog_id: TopicId,
    /// The partition count of the input, and so of the changelog.
    pub task_count: u32,
    /// The changelog's `delete.retention.ms`.
    pub delete_retention_ms: i64,
    /// Partitions of the dead letter topic.
    pub dead_letter_partitions: i32,
    /// Partitions of the audit topic.
    pub audit_partitions: i32,
    /// Partitions of the topic for a sink's results.
    pub result_partitions: i32,
}

/// The topic that was given more partitions, with its current partition count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The input itself.
    Input(u32),
    /// Its changelog.
    Changelog(u32),
}

impl Growth {
    /// The refusal of all tasks of the topic, which had `known` partitions when they started.
    pub fn refusal(self, known: u32) -> Refusal {
        match self {
            Self::Input(found) => Refusal::Rescaled { known, found },
            Self::Changelog(found) => Refusal::ChangelogGrown { known, found },
        }
    }
}

/// The input topics, by name.
#[derive(Debug, Default)]
pub struct Catalog {
    edition: AtomicU64,
    growth_count: AtomicU64,
    contents: Mutex<Contents>,
}

/// The contents of the catalog.
#[derive(Debug, Default)]
struct Contents {
    topics: HashMap<Arc<str>, InputTopic>,
    /// The refused topics, with the reasons.
    refused: BTreeMap<String, String>,
    /// The topics that were given more partitions while being read, or whose changelogs were.
    grown: HashMap<Arc<str>, Growth>,
}

impl Catalog {
    /// The catalog at the start.
    pub fn new(topics: HashMap<Arc<str>, InputTopic>, refused: BTreeMap<String, String>) -> Self {
        let contents = Contents { topics, refused, grown: HashMap::new() };
        Self { edition: AtomicU64::new(0), growth_count: AtomicU64::new(0), contents: Mutex::new(contents) }
    }

    /// Changes whenever a topic is added or removed.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The entry of a topic; `None` if it is not read.
    pub fn get(&self, topic: &str) -> Option<InputTopic> {
        self.contents().topics.get(topic).copied()
    }

    /// The names of the topics that are read, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.contents().topics.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// The number of tasks of all topics.
    pub fn task_count(&self) -> usize {
        self.contents().topics.values().map(|topic| topic.task_count as usize).sum()
    }

    /// The number of refused topics.
    pub fn refused_count(&self) -> usize {
        self.contents().refused.len()
    }

    /// Adds a topic to those that are read.
    pub fn add(&self, topic: &str, entry: InputTopic) {
        let mut contents = self.contents();
        contents.refused.remove(topic);
        contents.topics.insert(Arc::from(topic), entry);
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// Removes a topic from those that are read.
    pub fn remove(&self, topic: &str) {
        let mut contents = self.contents();
        contents.grown.remove(topic);
        if contents.topics.remove(topic).is_some() {
            self.edition.fetch_add(1, Ordering::Release);
        }
    }

    /// Records that a topic that is read, or its changelog, now has this many partitions, if that is more than at the
    /// start. Returns whether this is the first growth of the topic.
    pub fn grow(&self, topic: &str, growth: Growth) -> bool {
        let mut contents = self.contents();
        let (Growth::Input(found) | Growth::Changelog(found)) = growth;
        if contents.topics.get(topic).is_none_or(|topic| found <= topic.task_count) {
            return false;
        }
        let former = contents.grown.get(topic).copied();
        // The input's growth takes precedence over the changelog's.
        if matches!((former, growth), (Some(Growth::Input(_)), Growth::Changelog(_))) {
            return false;
        }
        contents.grown.insert(Arc::from(topic), growth);
        if former != Some(growth) {
            self.growth_count.fetch_add(1, Ordering::Release);
        }
        former.is_none()
    }

    /// The growth of a topic, if it or its changelog was given more partitions.
    pub fn growth_of(&self, topic: &str) -> Option<Growth> {
        self.contents().grown.get(topic).copied()
    }

    /// Changes whenever a topic is given more partitions.
    pub fn growth_count(&self) -> u64 {
        self.growth_count.load(Ordering::Acquire)
    }

    /// Records that a topic cannot be read, and why. Returns whether the reason is new.
    pub fn refuse(&self, topic: &str, reason: &str) -> bool {
        self.contents().refused.insert(topic.to_owned(), reason.to_owned()).as_deref() != Some(reason)
    }

    /// Forgets the refused topics for which `is_there` is false. Returns their names.
    pub fn forget_refused(&self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        let mut contents = self.contents();
        let gone: Vec<String> = contents.refused.keys().filter(|topic| !is_there(topic)).cloned().collect();
        gone.iter().for_each(|topic| drop(contents.refused.remove(topic)));
        gone
    }

    /// Locks the contents. Every change is a single call on a map, so a panic cannot leave a change incomplete.
    fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
