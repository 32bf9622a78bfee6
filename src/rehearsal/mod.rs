//! Rehearsals: records judged without a cluster, by the same code as in a run.
//!
//! - [`Partitions`]: a [`Model`] for each partition, as a run has a task for each
//! - [`Explanation`]: what was read of a record and what it was compared with, as JSON for people
//! - [`Contrast`]: in what a conflict differs from an earlier record
//! - [`Rehearser`]: judges, and renders what a record would cause in a sink, or makes its call to a provider whose
//!   answers are given
//! - [`run_case`]: one of a topology's own tests, and how its [`Outcome`] differs from the expected one. A test's
//!   records are JSON, whatever the format of the topic is, so a test needs no schemas
//!
//! No clock is read here: the wall clock is an argument, or derived from the records.
//!
//! **Failure**: only a capture that cannot be read is an error; everything else is an outcome.

use std::collections::HashMap;
use std::sync::Arc;

use crate::dedup::{Model, Rules};
use crate::schemas::Sources;

mod calls;
mod case;
mod contrast;
mod effects;
mod explanation;

pub use calls::{Answered, Made};
pub use case::{Carried, Difference, Judged, Outcome, run_case};
pub use contrast::{Contrast, has_part};
pub use effects::{Answer, Called, Rehearser, as_json};
pub use explanation::Explanation;

/// A model for each partition seen so far.
#[derive(Debug)]
pub struct Partitions {
    rules: Arc<Rules>,
    schemas: Sources,
    models: HashMap<String, HashMap<i32, Model>>,
}

impl Partitions {
    /// No partition seen yet. Records may name schemas of these sources, which should wait for schemas: see
    /// [`Model::with_schemas`].
    pub fn new(rules: &Arc<Rules>, schemas: &Sources) -> Self {
        Self { rules: Arc::clone(rules), schemas: schemas.clone(), models: HashMap::new() }
    }

    /// The partition's model; an empty one if the partition is new.
    pub fn model(&mut self, topic: &str, partition: i32) -> &mut Model {
        // without `entry`, which would copy the topic's name for every record
        if !self.models.contains_key(topic) {
            self.models.insert(topic.to_owned(), HashMap::new());
        }
        let Self { rules, schemas, models } = self;
        let partitions = models.get_mut(topic).expect("inserted above if missing");
        partitions.entry(partition).or_insert_with(|| Model::with_schemas(Arc::clone(rules), schemas))
    }

    /// The rules for all partitions.
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
