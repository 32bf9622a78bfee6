//! Detects that a changelog's end has fallen back under an active task: a replica that lacked records has become
//! leader.
//!
//! A transaction's changelog records belong after all records that the task's store has applied. If the first of them
//! is delivered at a lower offset, records were lost, however many are written now. So its delivery is reported, and
//! checked before the commit. The group then still names a transaction that the changelog no longer holds, which every
//! instance refuses. The store does hold that transaction, and the next start would consider the store current or build
//! upon it, so the loss is recorded in the store.
//!
//! If only records of the open transaction are lost, the offsets of its first and last changelog records are too close
//! together for the number of its records ([`crate::cluster::Expected`]). The transaction is aborted like any failed
//! transaction: no committed record is lost.
//!
//! **Failure**: if the loss cannot be recorded, the store later seems to be merely behind. The task is still refused
//! until the process ends.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::format::{CHANGELOG_LOST, ChangelogOffset, StoreMeta};
use crate::state;

use super::failure::Failure;
use super::hold::LockedStore;
use super::resume::Refusal;
use super::share::TaskId;
use super::task::Tasks;

/// The failures of the tasks in an aborted transaction whose records were delivered to offsets that their stores have
/// already applied. One broker that has lost its last records may have led several of their changelogs.
pub fn detect<C: Cluster>(tasks: &mut Tasks<C>, delivered: &[(TaskId, ChangelogOffset)]) -> Vec<Failure> {
    let mut ends: BTreeMap<TaskId, ChangelogOffset> = BTreeMap::new();
    for (id, offset) in delivered {
        ends.entry(*id).and_modify(|end| *end = *offset.min(end)).or_insert(*offset);
    }
    let failure_of = |(id, end): (TaskId, ChangelogOffset)| {
        let task = tasks.get_mut(&id)?;
        let locked_store = task.state.store.as_mut().filter(|locked_store| end < locked_store.applied.next)?;
        let applied = locked_store.applied.next;
        if let Err(error) = mark_lost(locked_store) {
            tracing::error!(
                task = %task.input, reason = %error,
                "the loss of changelog records could not be recorded in the store"
            );
        }
        Some(Failure::refused(id, Refusal::ChangelogShrunk { applied, end }))
    };
    ends.into_iter().filter_map(failure_of).collect()
}

/// Records in the store, and on disk, that it is beyond the end of the changelog.
fn mark_lost(locked_store: &mut LockedStore) -> Result<(), state::Error> {
    let Some(meta) = locked_store.store.meta()? else { return Ok(()) };
    locked_store.store.set_meta(&StoreMeta { changelog_offset: CHANGELOG_LOST, ..meta })?;
    locked_store.store.flush()
}
