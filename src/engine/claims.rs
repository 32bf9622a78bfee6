//! Claims: how this process changes the owner that a committed offset's metadata names.
//!
//! The rule: **whenever a transaction of an id can have written for a partition, the metadata of the partition's
//! committed offset names that id.** So a lane *claims* a partition before a transaction writes for it under an id
//! that is not named yet, and *releases* it when it hands it over without an open transaction. Both are transactions of
//! the lane's own producer that contain offsets only: offset and token as they were read, with another owner. Offsets
//! are never committed outside of transactions: a client repeats such a request automatically when its connection
//! breaks, and a late copy would undo later commits.
//!
//! During a claim, the new id has no open transaction but the claim itself. If its owner dies then, the next owner
//! waits for that transaction to time out, as it does after a death during a release.
//!
//! If ratchet has committed nothing yet, or the group was reset, a claim would change how the next owner interprets the
//! offset, so nothing is claimed: if an owner dies in its first transaction, that transaction has to time out.
//!
//! **Failure**: the rule affects only how fast a takeover is, not whether it is correct. A failed claim is handled like
//! any other failed transaction. A failed release is aborted as well, and the next owner has to fence an id.

use crate::cluster::{self, Cluster, OffsetCommit, Producer};
use crate::observe::LaneMetrics;

use super::commitment::Commitment;
use super::context::Context;
use super::share::TaskId;
use super::task::{Task, Tasks};
use super::transact::Transactor;

/// Changes the owner in the metadata of committed offsets: see this module's rule.
pub struct Ownership<'a, C: Cluster> {
    /// The state that all lanes share.
    pub context: &'a Context,
    /// The lane's tasks.
    pub tasks: &'a mut Tasks<C>,
    /// The lane's membership.
    pub member: &'a C::Member,
    /// The transactor whose id becomes the owner; it is prepared and has no open transaction.
    pub transactor: &'a mut Transactor<C>,
    /// The lane's metrics.
    pub metrics: &'a LaneMetrics,
}

/// Whether the task's partition has to be claimed before `id` may write for it.
pub fn is_unclaimed<C: Cluster>(task: &Task<C>, id: &str) -> bool {
    task.last.commitment.as_ref().is_some_and(|known| !known.is_of(id))
}

impl<C: Cluster> Ownership<'_, C> {
    /// Claims a task's partition unless it is claimed already, and in the same transaction the partitions of the tasks
    /// for which `is_included` returns true. After an error the transactor's transaction must be aborted.
    pub fn claim(self, task: TaskId, is_included: impl Fn(&Task<C>) -> bool) -> Result<(), cluster::Error> {
        let id = self.transactor.producer().id().to_owned();
        if !self.tasks.get(&task).is_some_and(|task| is_unclaimed(task, &id)) {
            return Ok(());
        }
        let mut ids: Vec<TaskId> = Vec::new();
        for (other, state) in self.tasks.iter() {
            if (*other == task || is_included(state)) && is_unclaimed(state, &id) {
                ids.push(*other);
            }
        }
        self.commit_owner(ids, Some(&id))
    }

    /// Releases the partitions of these tasks, as far as the owner's id starts with `own`: they have no open
    /// transaction. After an error the transactor's transaction must be aborted.
    pub fn release(self, mut ids: Vec<TaskId>, own: &str) -> Result<(), cluster::Error> {
        let owner = |task: &Task<C>| task.last.commitment.as_ref().and_then(|known| known.metadata.owner.clone());
        ids.retain(|id| self.tasks.get(id).and_then(owner).is_some_and(|owner| owner.starts_with(own)));
        self.commit_owner(ids, None)
    }

    /// Commits the offsets of these tasks with another owner.
    fn commit_owner(self, ids: Vec<TaskId>, owner: Option<&str>) -> Result<(), cluster::Error> {
        let mut new_commitments: Vec<(TaskId, Commitment)> = Vec::new();
        for id in ids {
            let known = self.tasks.get(&id).and_then(|task| task.last.commitment.as_ref());
            new_commitments.extend(known.map(|known| (id, known.with_owner(owner))));
        }
        if new_commitments.is_empty() {
            return Ok(());
        }
        let tasks = new_commitments.iter().map(|(id, _)| *id).collect();
        let offsets: Vec<OffsetCommit> =
            new_commitments.iter().map(|(id, known)| known.to_commit(&self.tasks[id].input)).collect();
        self.transactor.commit_offsets(self.context, tasks, &offsets, self.member, self.metrics)?;
        for (id, commitment) in new_commitments {
            if let Some(task) = self.tasks.get_mut(&id) {
                tracing::debug!(task = %task.input, owner = commitment.owner(), "owner changed");
                task.last.commitment = Some(commitment);
            }
        }
        Ok(())
    }
}
