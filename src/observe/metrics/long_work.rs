//! The progress of work of a task that may take long, for the log and the metrics.

use crate::record::TopicPartition;

/// A kind of long work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Work {
    /// A restore, counted in changelog offsets.
    Restore,
    /// A sweep, counted in entries.
    Sweep,
}

/// The progress of a task's long work.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LongWork {
    /// The kind of work.
    pub work: Work,
    /// The task's topology.
    pub topology: String,
    /// Its input partition.
    pub partition: TopicPartition,
    /// How much was done since it started.
    pub done: u64,
    /// How much remains.
    pub remaining: u64,
}
