//! The outcome of a transaction.

use crate::cluster::DeliveryFailure;
use crate::engine::failure::Failure;
use crate::engine::share::{Share, Stop, TaskId};
use crate::format::ChangelogOffset;
use crate::observe::Settled;

/// What a commit means for individual tasks.
#[derive(Debug, Default)]
pub struct Committed {
    /// The failures of tasks' stores; the transaction is committed nevertheless.
    pub failures: Vec<Failure>,
    /// The tasks that have stopped before a record.
    pub stops: Vec<(TaskId, Stop)>,
    /// For a topology that calls a provider: how its records were settled.
    pub settled: Settled,
}

/// The outcome of a transaction that could not be finished.
pub struct Aborted {
    /// What it would have changed.
    pub shares: Vec<Share>,
    /// The tasks for which it would only have committed an owner beside the offset.
    pub named: Vec<TaskId>,
    /// Whether it is certain to have ended without effect.
    pub ended: bool,
    /// Whether it is certain never to be committed; something that was sent for it may still arrive all the same, until
    /// its producer is fenced.
    pub never_commits: bool,
    /// One failure for each task that has undelivered records; if any was refused for good, one of those.
    pub undelivered: Vec<DeliveryFailure>,
    /// The offsets of those changelog records whose delivery is reported.
    pub delivered: Vec<(TaskId, ChangelogOffset)>,
}

impl Aborted {
    /// The tasks that were in it.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.shares.iter().map(|share| share.task).chain(self.named.iter().copied())
    }
}
