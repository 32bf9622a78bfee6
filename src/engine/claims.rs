//! Who has written: what stands beside a committed offset, and what this process makes of it.
//!
//! The rule: **whenever a transaction of an id can have written for a partition, the text beside the partition's
//! committed offset names that id.** So a lane *claims* a task before it takes it into a transaction under an id
//! that is not named yet, and *releases* it when it hands it over with nothing open. Both are a
//! transaction of the lane's own producer that carries offsets only: offset and token as they were read, with another
//! name beside them. Never a commit outside of transactions: a client repeats such a one by itself when its connection
//! breaks, and a copy that comes late would take back what was committed since.
//!
//! While a claim is under way, the id that is not named yet has nothing open but the claim: an owner that dies in it
//! leaves its heir to the transaction's time-out, as one that dies in a release does.
//!
//! Where ratchet has committed nothing yet, or the group was reset, there is nothing to claim without changing what
//! the next owner makes of it: a first transaction whose owner dies in it ends by its time-out.
//!
//! **Failure**: what makes a takeover right does not depend on the rule, only how fast it is. A claim that fails is
//! any failed transaction: the lane's way back. A release that fails is aborted likewise, and leaves the next owner to
//! fence an id.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{self, Cluster, CommittedOffset, OffsetCommit, Producer};
use crate::format::OffsetMetadata;
use crate::observe::LaneMetrics;
use crate::record::TopicPartition;

use super::context::Context;
use super::share::TaskId;
use super::task::{Task, Tasks};
use super::transact::Transactor;

/// What the group has committed for a partition, where ratchet has.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Commitment {
    /// The next offset to read.
    pub offset: i64,
    /// What stands beside it.
    pub metadata: OffsetMetadata,
}

impl Commitment {
    /// What was read, unless the text is blank or another program's.
    pub fn read(committed: &CommittedOffset) -> Option<Self> {
        let metadata = OffsetMetadata::parse(&committed.metadata).ok().flatten()?;
        Some(Self { offset: committed.offset, metadata })
    }

    /// What is to be committed to make it so.
    pub fn to_commit(&self, partition: &TopicPartition) -> OffsetCommit {
        let committed = CommittedOffset { offset: self.offset, metadata: self.metadata.to_string() };
        OffsetCommit { partition: partition.clone(), committed }
    }

    /// The owner as logs name it.
    pub fn owner(&self) -> &str {
        self.metadata.owner.as_deref().unwrap_or("released")
    }

    fn is_of(&self, id: &str) -> bool {
        self.metadata.owner.as_deref() == Some(id)
    }

    fn named(&self, owner: Option<&str>) -> Self {
        let metadata = OffsetMetadata { owner: owner.map(str::to_owned), ..self.metadata.clone() };
        Self { offset: self.offset, metadata }
    }
}

/// What a name is put beside committed offsets with: see this room's rule.
pub struct Ownership<'a, C: Cluster> {
    /// What all lanes share.
    pub context: &'a Context,
    /// The lane's tasks.
    pub tasks: &'a mut Tasks<C>,
    /// The lane's membership.
    pub member: &'a C::Member,
    /// Whose id is put there; prepared, and nothing is open on it.
    pub transactor: &'a mut Transactor<C>,
    /// Where counts go.
    pub metrics: &'a LaneMetrics,
}

/// Whether `task` has to be claimed before it is written for under `id`.
pub fn is_unclaimed<C: Cluster>(task: &Task<C>, id: &str) -> bool {
    task.commitment.as_ref().is_some_and(|known| !known.is_of(id))
}

impl<C: Cluster> Ownership<'_, C> {
    /// Claims a task unless it is claimed, and with it, in the same transaction, the others that `too` picks. After
    /// an error the transactor's transaction must be aborted.
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
        self.name(wanted, Some(&id))
    }

    /// Says of tasks that nothing of theirs is open any more; only of those whose owner's id begins with `own`.
    /// After an error the transactor's transaction must be aborted.
    pub fn release(self, mut wanted: Vec<TaskId>, own: &str) -> Result<(), cluster::Error> {
        let owner = |task: &Task<C>| task.commitment.as_ref().and_then(|known| known.metadata.owner.clone());
        wanted.retain(|id| self.tasks.get(id).and_then(owner).is_some_and(|owner| owner.starts_with(own)));
        self.name(wanted, None)
    }

    /// Puts a name beside these tasks' committed offsets.
    fn name(self, wanted: Vec<TaskId>, owner: Option<&str>) -> Result<(), cluster::Error> {
        let mut named: Vec<(TaskId, Commitment)> = Vec::new();
        for id in wanted {
            let known = self.tasks.get(&id).and_then(|task| task.commitment.as_ref());
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
                task.commitment = Some(commitment);
            }
        }
        Ok(())
    }
}

/// The transactional ids that this process writes under at present: it never fences itself.
#[derive(Clone, Debug, Default)]
pub struct Ids(Arc<Mutex<BTreeSet<String>>>);

impl Ids {
    /// Counts `id` among those in use until what is returned is dropped.
    pub fn take(&self, id: &str) -> InUse {
        self.with(|ids| ids.insert(id.to_owned()));
        InUse { ids: self.clone(), id: id.to_owned() }
    }

    /// Those in use.
    pub fn in_use(&self) -> Vec<String> {
        self.with(|ids| ids.iter().cloned().collect())
    }

    fn with<T>(&self, look: impl FnOnce(&mut BTreeSet<String>) -> T) -> T {
        look(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }
}

/// An id in use.
#[derive(Debug)]
pub struct InUse {
    ids: Ids,
    id: String,
}

impl Drop for InUse {
    fn drop(&mut self) {
        self.ids.with(|ids| ids.remove(&self.id));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::format::Token;

    fn commitment(owner: Option<&str>) -> Commitment {
        let token = Token { lane: 1, transaction: 2, changelog_id: [3; 16], partition: 4 };
        let metadata = OffsetMetadata { token, digest: "0123456789abcdef".to_owned(), owner: owner.map(str::to_owned) };
        Commitment { offset: 7, metadata }
    }

    #[test]
    fn a_name_changes_nothing_else() {
        let before = commitment(Some("ratchet.t.1.0"));
        let partition = TopicPartition::new("t", 4);
        for owner in [Some("ratchet.t.2.0"), None] {
            let committed = before.named(owner).to_commit(&partition).committed;
            let after = Commitment::read(&committed).unwrap();
            assert_eq!((after.offset, after.metadata.token), (before.offset, before.metadata.token));
            assert_eq!(after.metadata.digest, before.metadata.digest);
            assert_eq!(after.metadata.owner.as_deref(), owner);
        }
        assert!(before.named(Some("x")).is_of("x") && !before.named(None).is_of("x"));
    }

    #[test]
    fn blank_and_foreign_texts_are_nothing_to_claim() {
        for text in ["", "mine", "ratchet/2 x y z"] {
            assert_eq!(Commitment::read(&CommittedOffset { offset: 1, metadata: text.to_owned() }), None, "{text}");
        }
    }

    #[test]
    fn an_id_is_in_use_until_it_is_dropped() {
        let ids = Ids::default();
        let (a, b) = (ids.take("a"), ids.take("b"));
        assert_eq!(ids.in_use(), ["a", "b"]);
        drop(a);
        assert_eq!(ids.in_use(), ["b"]);
        drop(b);
        assert!(ids.in_use().is_empty());
    }
}
