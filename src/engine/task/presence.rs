//! A task's place among the health checks.

use crate::engine::context::Context;
use crate::observe::Health;
use crate::record::TopicPartition;

/// A task's place among the health checks, for as long as a lane has it.
pub struct Presence {
    /// Where it is told.
    pub health: Health,
    /// The topology's name.
    pub topology: String,
    input: TopicPartition,
}

impl Presence {
    /// The task is assigned.
    pub fn new(context: &Context, input: &TopicPartition) -> Self {
        let (health, topology) = (context.health.clone(), context.topology.name.clone());
        health.task_assigned(&topology, input);
        Self { health, topology, input: input.clone() }
    }
}

impl Drop for Presence {
    fn drop(&mut self) {
        self.health.task_released(&self.topology, &self.input);
    }
}
