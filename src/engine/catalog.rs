//! The input topics that a topology currently reads, shared by its lanes: what was found out about each, which were
//! refused, and which were given more partitions. Lanes check its counts once per step, and read a topic's entry when
//! they take over a partition; a lane that is assigned a partition beyond the known ones reports it here.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::cluster::TopicId;

use super::resume::Refusal;

/// What was found out about an input topic and the topics that belong to it, before it was read.
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

/// What was given more partitions, and its current count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Growth {
    /// The input itself.
    Input(u32),
    /// Its changelog.
    Changelog(u32),
}

impl Growth {
    /// Why none of the tasks continues, which started with `known` partitions.
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
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    topics: HashMap<Arc<str>, InputTopic>,
    refused: BTreeMap<String, String>,
    /// The topics that were given more partitions while being read, or whose changelogs were.
    grown: HashMap<Arc<str>, Growth>,
}

impl Catalog {
    /// The catalog at the start.
    pub fn new(topics: HashMap<Arc<str>, InputTopic>, refused: BTreeMap<String, String>) -> Self {
        let known = Known { topics, refused, grown: HashMap::new() };
        Self { edition: AtomicU64::new(0), growth_count: AtomicU64::new(0), known: Mutex::new(known) }
    }

    /// Changes whenever a topic is added or removed.
    pub fn edition(&self) -> u64 {
        self.edition.load(Ordering::Acquire)
    }

    /// The entry of a topic; `None` if it is not read.
    pub fn get(&self, topic: &str) -> Option<InputTopic> {
        self.known().topics.get(topic).copied()
    }

    /// The names of the topics that are read, sorted.
    pub fn names(&self) -> Vec<Arc<str>> {
        let mut names: Vec<_> = self.known().topics.keys().cloned().collect();
        names.sort_unstable();
        names
    }

    /// How many tasks there are in all.
    pub fn task_count(&self) -> usize {
        self.known().topics.values().map(|topic| topic.task_count as usize).sum()
    }

    /// How many topics were refused.
    pub fn refused_count(&self) -> usize {
        self.known().refused.len()
    }

    /// Adds a topic to those that are read.
    pub fn add(&self, topic: &str, entry: InputTopic) {
        let mut known = self.known();
        known.refused.remove(topic);
        known.topics.insert(Arc::from(topic), entry);
        self.edition.fetch_add(1, Ordering::Release);
    }

    /// Removes a topic from those that are read.
    pub fn remove(&self, topic: &str) {
        let mut known = self.known();
        known.grown.remove(topic);
        if known.topics.remove(topic).is_some() {
            self.edition.fetch_add(1, Ordering::Release);
        }
    }

    /// Notes that a topic that is read, or its changelog, now has this many partitions, if that is more than at the
    /// start. Returns whether that is news.
    pub fn grow(&self, topic: &str, growth: Growth) -> bool {
        let mut known = self.known();
        let (Growth::Input(found) | Growth::Changelog(found)) = growth;
        if known.topics.get(topic).is_none_or(|known| found <= known.task_count) {
            return false;
        }
        let seen = known.grown.get(topic).copied();
        // The input's growth takes precedence over the changelog's.
        if matches!((seen, growth), (Some(Growth::Input(_)), Growth::Changelog(_))) {
            return false;
        }
        known.grown.insert(Arc::from(topic), growth);
        if seen != Some(growth) {
            self.growth_count.fetch_add(1, Ordering::Release);
        }
        seen.is_none()
    }

    /// What was given more partitions; `None` if nothing was.
    pub fn growth_of(&self, topic: &str) -> Option<Growth> {
        self.known().grown.get(topic).copied()
    }

    /// Changes whenever a topic is given more partitions.
    pub fn growth_count(&self) -> u64 {
        self.growth_count.load(Ordering::Acquire)
    }

    /// Notes that a topic cannot be read, and why. Returns whether that is news.
    pub fn refuse(&self, topic: &str, reason: &str) -> bool {
        self.known().refused.insert(topic.to_owned(), reason.to_owned()).as_deref() != Some(reason)
    }

    /// Forgets the refused topics for which `is_there` is false. Returns their names.
    pub fn forget_refused(&self, is_there: impl Fn(&str) -> bool) -> Vec<String> {
        let mut known = self.known();
        let gone: Vec<String> = known.refused.keys().filter(|topic| !is_there(topic)).cloned().collect();
        gone.iter().for_each(|topic| drop(known.refused.remove(topic)));
        gone
    }

    /// Every change is a single call on a map: a panic cannot leave it half done.
    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
