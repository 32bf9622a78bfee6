//! The outcome of a commit or an abort.

use crate::cluster::DeliveryFailure;
use crate::engine::failure::Failure;
use crate::engine::share::{Share, Stop, TaskId};
use crate::format::ChangelogOffset;
use crate::observe::Settled;

/// The outcome of a commit for individual tasks.
#[derive(Debug, Default)]
pub struct CommitOutcome {
    /// The failures of tasks' stores; the transaction is committed nevertheless.
    pub failures: Vec<Failure>,
    /// The tasks that have to stop before their next record, now that everything before it is committed.
    pub stops: Vec<(TaskId, Stop)>,
    /// For a topology that calls a provider: how its records were settled.
    pub settled: Settled,
}

/// The outcome of an abort.
pub struct AbortOutcome {
    /// What the transaction would have changed, by task.
    pub shares: Vec<Share>,
    /// The other tasks of the transaction: it would only have committed their offsets, to change the owner in the
    /// metadata, or have played a redo (written to Kafka what only the sink has committed).
    pub without_share: Vec<TaskId>,
    /// Whether the transaction is certain to have ended already, without effect.
    pub ended: bool,
    /// Whether the transaction will certainly never be committed. Even so, requests that belong to it may still arrive,
    /// until its producer is fenced.
    pub never_commits: bool,
    /// One failure for each task that has undelivered records: of a record refused for good, if there is one.
    pub undelivered: Vec<DeliveryFailure>,
    /// The offsets of the changelog records whose delivery was reported.
    pub delivered: Vec<(TaskId, ChangelogOffset)>,
}

impl AbortOutcome {
    /// The tasks that were in the transaction.
    pub fn tasks(&self) -> impl Iterator<Item = TaskId> {
        self.shares.iter().map(|share| share.task).chain(self.without_share.iter().copied())
    }
}
