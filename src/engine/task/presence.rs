//! A task's entry in the health checks.

use crate::engine::context::Context;
use crate::observe::Health;
use crate::record::TopicPartition;

/// A task's entry in the health checks, for as long as a lane has it.
pub struct Presence {
    /// The health checks.
    pub health: Health,
    /// The topology's name.
    pub topology: String,
    input: TopicPartition,
}

impl Presence {
    /// The entry of a newly assigned task.
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
