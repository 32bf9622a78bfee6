//! Rehearsals: records judged without a cluster, by the same code that judges them in a run.
//!
//! - [`Partitions`]: a [`Model`] for each partition that occurs, as a run has a task for each
//! - [`Told`]: what was read of a record and what it was compared with, as JSON for people
//! - [`run_case`]: one of a topology's own tests, and how its [`Outcome`] differs from what is expected
//!
//! No clock is read here: the wall clock is an argument, or follows from the records.
//!
//! **Failure**: only a capture that cannot be read is an error; everything else is an outcome.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dedup::{Model, Rules};

mod case;
mod told;

pub use case::{Difference, Judged, Outcome, run_case};
pub use told::Told;

/// A model for each partition that has occurred.
#[derive(Debug)]
pub struct Partitions {
    rules: Arc<Rules>,
    models: HashMap<String, HashMap<i32, Model>>,
}

impl Partitions {
    /// No partition has occurred yet.
    pub fn new(rules: &Arc<Rules>) -> Self {
        Self { rules: Arc::clone(rules), models: HashMap::new() }
    }

    /// The partition's model, which has seen nothing yet if the partition occurs for the first time.
    pub fn model(&mut self, topic: &str, partition: i32) -> &mut Model {
        // not by `entry`, which would take a copy of the topic's name for every record
        if !self.models.contains_key(topic) {
            self.models.insert(topic.to_owned(), HashMap::new());
        }
        let partitions = self.models.get_mut(topic).expect("it was inserted if it was missing");
        partitions.entry(partition).or_insert_with(|| Model::new(Arc::clone(&self.rules)))
    }

    /// The rules that all are judged by.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Every model, in no order.
    pub fn models(&self) -> impl Iterator<Item = &Model> {
        self.models.values().flat_map(HashMap::values)
    }
}

#[cfg(test)]
mod tests;
