//! Plays a script on a cluster. Anything that may take a while is retried until it is as expected, or for long
//! enough: the last observation counts.
//!
//! Verbs, besides those of `producers`, `members` and `topics`: `sleep MS`.

use std::collections::BTreeMap;
use std::time::Duration;

use ratchet::cluster::{Cluster, Error, TopicId};
use ratchet::record::TopicPartition;

use crate::differential::ground::Ground;
use crate::differential::script::{self, Line, Script};

mod members;
mod producers;
mod topics;

use members::Reading;
use producers::Writing;

/// How long to wait for what is expected.
const PATIENCE_MS: u64 = 20_000;
/// Pause between two looks.
const LOOK_MS: u64 = 5;
/// How long to watch that nothing happens.
const QUIET_MS: u64 = 500;
/// How long one reading call waits.
const STEP: Duration = Duration::from_millis(20);

/// A script's state on a cluster.
pub struct Play<C: Cluster, G: Ground> {
    cluster: C,
    /// The same cluster; its producers' transactions time out soon.
    brief: C,
    ground: G,
    producers: BTreeMap<String, Writing<C>>,
    members: BTreeMap<String, Reading<C>>,
    proofs: BTreeMap<String, C::Metadata>,
    settlings: BTreeMap<String, C::Settling>,
    ids: BTreeMap<String, TopicId>,
}

/// The observation of a call's success or failure.
fn seen<T>(result: Result<T, Error>) -> String {
    match result {
        Ok(_) => "ok".to_owned(),
        Err(error) => kind(&error),
    }
}

fn kind(error: &Error) -> String {
    format!("{:?}", error.kind).to_lowercase()
}

/// A record as text.
fn shown(offset: i64, value: Option<&str>) -> String {
    format!("{offset}:{}", value.unwrap_or("-"))
}

impl<C: Cluster, G: Ground> Play<C, G> {
    pub fn new(cluster: C, brief: C, ground: G) -> Self {
        Self {
            cluster,
            brief,
            ground,
            producers: BTreeMap::new(),
            members: BTreeMap::new(),
            proofs: BTreeMap::new(),
            settlings: BTreeMap::new(),
            ids: BTreeMap::new(),
        }
    }

    /// Plays the whole script; returns the observation for each line.
    pub fn run(&mut self, script: &Script) -> Vec<String> {
        script.lines.iter().map(|line| self.step(line)).collect()
    }

    fn step(&mut self, line: &Line) -> String {
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        let expected = line.expected.as_str();
        if let ["sleep", ms] = words[..] {
            self.ground.pause(ms.parse().expect("milliseconds"));
            return "ok".to_owned();
        }
        self.produce(&words, expected)
            .or_else(|| self.consume(&words, expected))
            .or_else(|| self.manage(&words, expected))
            .unwrap_or_else(|| panic!("{:?} is not a call", line.text))
    }

    fn at(&self, word: &str) -> TopicPartition {
        let (topic, number) = script::partition(word);
        TopicPartition::new(self.ground.name(topic), number)
    }

    /// Looks until the observation is as expected, or for long enough.
    fn look(&mut self, expected: &str, mut look: impl FnMut(&mut Self) -> String) -> String {
        let deadline = self.ground.now_ms() + PATIENCE_MS;
        loop {
            let seen = look(self);
            if seen == expected || self.ground.now_ms() >= deadline {
                return seen;
            }
            self.ground.pause(LOOK_MS);
        }
    }
}
