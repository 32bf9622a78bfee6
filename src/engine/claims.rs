//! Who has written: what stands beside a committed offset, and what this process makes of it.
//!
//! The rule: **whenever a transaction of an id can have written for a partition, the text beside the partition's
//! committed offset names that id.** So a lane *claims* a task before it takes it into a transaction under an id
//! that is not named yet, and *releases* it when it hands it over with nothing open. Both commit the offset and the
//! token that were read, unchanged, outside of any transaction, and as of the group's present generation only.
//!
//! Where ratchet has committed nothing yet, or the group was reset, there is nothing to claim without changing what
//! the next owner makes of it: a first transaction whose owner dies in it ends by its time-out.
//!
//! **Failure**: what makes a takeover right does not depend on the rule, only how fast it is. A claim that fails is
//! the lane's way back; a release that fails leaves the next owner to fence an id under which nothing is open.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use crate::cluster::{self, Cluster, CommittedOffset, Member, OffsetCommit};
use crate::format::OffsetMetadata;
use crate::record::TopicPartition;

use super::task::{Task, TaskId, Tasks};

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

/// Claims a task for `id` unless it is claimed, and with it, in the same commit, the others that `too` picks.
pub fn claim<C: Cluster>(
    tasks: &mut Tasks<C>,
    member: &mut C::Member,
    id: &str,
    task: TaskId,
    too: impl Fn(&Task<C>) -> bool,
) -> Result<(), cluster::Error> {
    let unclaimed = |commitment: &Option<Commitment>| commitment.as_ref().is_some_and(|known| !known.is_of(id));
    if !tasks.get(&task).is_some_and(|task| unclaimed(&task.commitment)) {
        return Ok(());
    }
    let wanted = tasks.iter().filter(|(other, state)| **other == task || too(state)).map(|(id, _)| *id).collect();
    name(tasks, member, wanted, unclaimed, Some(id))
}

/// Says of tasks that nothing of theirs is open any more; only of those whose owner's id begins with `own`.
pub fn release<C: Cluster>(
    tasks: &mut Tasks<C>,
    member: &mut C::Member,
    wanted: Vec<TaskId>,
    own: &str,
) -> Result<(), cluster::Error> {
    let ours = |commitment: &Option<Commitment>| {
        let owner = commitment.as_ref().and_then(|known| known.metadata.owner.as_deref());
        owner.is_some_and(|owner| owner.starts_with(own))
    };
    name(tasks, member, wanted, ours, None)
}

/// Puts a name beside the committed offsets of those of the `wanted` tasks that `fits` picks.
fn name<C: Cluster>(
    tasks: &mut Tasks<C>,
    member: &mut C::Member,
    wanted: Vec<TaskId>,
    fits: impl Fn(&Option<Commitment>) -> bool,
    owner: Option<&str>,
) -> Result<(), cluster::Error> {
    let mut named: Vec<(TaskId, Commitment)> = Vec::new();
    for id in wanted {
        let Some(task) = tasks.get(&id).filter(|task| fits(&task.commitment)) else { continue };
        named.extend(task.commitment.as_ref().map(|known| (id, known.named(owner))));
    }
    let offsets: Vec<OffsetCommit> = named.iter().map(|(id, known)| known.to_commit(&tasks[id].input)).collect();
    if offsets.is_empty() {
        return Ok(());
    }
    member.commit_plain(&offsets)?;
    for (id, commitment) in named {
        if let Some(task) = tasks.get_mut(&id) {
            tracing::debug!(task = %task.input, owner = commitment.owner(), "owner named");
            task.commitment = Some(commitment);
        }
    }
    Ok(())
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
