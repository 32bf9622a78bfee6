//! Claims: the owner named beside a committed offset, and how this process changes it.
//!
//! The rule: **whenever a transaction of an id can have written for a partition, the text beside the partition's
//! committed offset names that id.** So a lane *claims* a partition before a transaction writes for it under an id
//! that is not named yet, and *releases* it when it hands it over with nothing open. Both are transactions of the lane's own
//! producer that carry offsets only: offset and token as they were read, with another owner beside them. Offsets are
//! never committed outside of transactions: a client repeats such a request on its own when its connection breaks, and
//! a late copy would take back what was committed since.
//!
//! During a claim, the new id has nothing open but the claim itself: if its owner dies then, the next owner waits for
//! that transaction to time out, as it does after a death during a release.
//!
//! Where ratchet has committed nothing yet, or the group was reset, nothing can be claimed without changing what the
//! next owner makes of it: if an owner dies in its first transaction, that has to time out.
//!
//! **Failure**: whether a takeover is right does not depend on the rule, only how fast it is. A claim that fails is a
//! failed transaction like any other: the lane takes its way back. A release that fails is aborted as well, and the
//! next owner has to fence an id.

use crate::cluster::{self, Cluster, OffsetCommit, Producer};
use crate::observe::LaneMetrics;

use super::commitment::Commitment;
use super::context::Context;
use super::share::TaskId;
use super::task::{Task, Tasks};
use super::transact::Transactor;

/// What it takes to change the owner beside committed offsets: see this module's rule.
pub struct Ownership<'a, C: Cluster> {
    /// What all lanes share.
    pub context: &'a Context,
    /// The lane's tasks.
    pub tasks: &'a mut Tasks<C>,
    /// The lane's membership.
    pub member: &'a C::Member,
    /// The transactor whose id is named; prepared, with nothing open on it.
    pub transactor: &'a mut Transactor<C>,
    /// Where counts go.
    pub metrics: &'a LaneMetrics,
}

/// Whether the task's partition has to be claimed before `id` may write for it.
pub fn is_unclaimed<C: Cluster>(task: &Task<C>, id: &str) -> bool {
    task.last.commitment.as_ref().is_some_and(|known| !known.is_of(id))
}

impl<C: Cluster> Ownership<'_, C> {
    /// Claims a task's partition unless it is claimed already, and in the same transaction the others that `too` picks. After an
    /// error the transactor's transaction must be aborted.
    pub fn claim(self, task: TaskId, too: impl Fn(&Task<C>) -> bool) -> Result<(), cluster::Error> {
        let id = self.transactor.producer().id().to_owned();
        if !self.tasks.get(&task).is_some_and(|task| is_unclaimed(task, &id)) {
            return Ok(());
        }
        let mut wanted: Vec<TaskId> = Vec::new();
        for (other, state) in self.tasks.iter() {
            if (*other == task || too(state)) && is_unclaimed(state, &id) {
                wanted.push(*other);
            }
        }
        self.commit_owner(wanted, Some(&id))
    }

    /// Records that these tasks have nothing open any more; only those whose owner's id starts with `own`. After an
    /// error the transactor's transaction must be aborted.
    pub fn release(self, mut wanted: Vec<TaskId>, own: &str) -> Result<(), cluster::Error> {
        let owner = |task: &Task<C>| task.last.commitment.as_ref().and_then(|known| known.metadata.owner.clone());
        wanted.retain(|id| self.tasks.get(id).and_then(owner).is_some_and(|owner| owner.starts_with(own)));
        self.commit_owner(wanted, None)
    }

    /// Puts an owner beside these tasks' committed offsets.
    fn commit_owner(self, wanted: Vec<TaskId>, owner: Option<&str>) -> Result<(), cluster::Error> {
        let mut named: Vec<(TaskId, Commitment)> = Vec::new();
        for id in wanted {
            let known = self.tasks.get(&id).and_then(|task| task.last.commitment.as_ref());
            named.extend(known.map(|known| (id, known.named(owner))));
        }
        if named.is_empty() {
            return Ok(());
        }
        let tasks = named.iter().map(|(id, _)| *id).collect();
        let offsets: Vec<OffsetCommit> =
            named.iter().map(|(id, known)| known.to_commit(&self.tasks[id].input)).collect();
        self.transactor.commit_offsets(self.context, tasks, &offsets, self.member, self.metrics)?;
        for (id, commitment) in named {
            if let Some(task) = self.tasks.get_mut(&id) {
                tracing::debug!(task = %task.input, owner = commitment.owner(), "owner named");
                task.last.commitment = Some(commitment);
            }
        }
        Ok(())
    }
}
