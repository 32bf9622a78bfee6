//! Detects that a changelog's end has fallen back under a task at work: a replica that lacked records has become
//! leader.
//!
//! A transaction's changelog records belong after everything that the task's store has applied. If the first of them
//! lands at a lower offset, records were lost, however many are written now. So its delivery is reported, and checked
//! before anything is committed. The group then still names a transaction that the changelog no longer holds, which
//! every instance refuses. The store does hold that transaction, and the next start would call it current or build upon
//! it, so the store records what was seen.
//!
//! **Failure**: if that cannot be recorded in the store, it looks as if it were only behind. The task is still refused,
//! until the process ends.

use std::collections::BTreeMap;

use crate::cluster::Cluster;
use crate::format::{CHANGELOG_LOST, ChangelogOffset, StoreMeta};
use crate::state;

use super::failure::Failure;
use super::hold::Held;
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
    let fallen_back = |(id, end): (TaskId, ChangelogOffset)| {
        let task = tasks.get_mut(&id)?;
        let held = task.state.held.as_mut().filter(|held| end < held.applied.next)?;
        let applied = held.applied.next;
        if let Err(error) = note(held) {
            tracing::error!(task = %task.input, reason = %error, "the loss of changelog records could not be noted in the store");
        }
        Some(Failure::refused(id, Refusal::ChangelogShrunk { applied, end }))
    };
    ends.into_iter().filter_map(fallen_back).collect()
}

/// Records in the store, and on disk, that it is beyond anything the changelog holds.
fn note(held: &mut Held) -> Result<(), state::Error> {
    let Some(meta) = held.store.meta()? else { return Ok(()) };
    held.store.set_meta(&StoreMeta { changelog_offset: CHANGELOG_LOST, ..meta })?;
    held.store.flush()
}
