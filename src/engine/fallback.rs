//! A changelog whose end falls back under a task at work: a replica that lacked records has become the leader.
//!
//! A transaction's records stand behind all that the task's store has applied. Where the first of them comes to stand
//! elsewhere, others were lost, however many are written now: so its delivery is reported, and compared before anything
//! is committed. The group then goes on naming a transaction that the changelog does not hold any more, which is refused
//! on every instance. The store holds that transaction, and would be called current, or built upon, by the next start:
//! so it says of itself what was seen.
//!
//! **Failure**: a store that cannot be told so looks as if it were only behind. The task is refused all the same, until
//! the process ends.

use std::collections::BTreeMap;

use crate::cluster::{self, Cluster, Message, Producer, Ticket};
use crate::format::{CHANGELOG_LOST, StoreMeta};
use crate::record::{Headers, TopicPartition};
use crate::state::{self, Overlay};

use super::failure::Failure;
use super::hold::Held;
use super::resume::Refusal;
use super::share::TaskId;
use super::task::Tasks;

/// Sends a task's changelog records; where the first one comes to stand is reported.
pub fn send<P: Producer>(
    producer: &mut P,
    id: TaskId,
    changelog: &TopicPartition,
    overlay: &Overlay,
) -> Result<(), cluster::Error> {
    let mut entries = overlay.iter();
    let Some((key, value)) = entries.next() else { return Ok(()) };
    let first = Message {
        topic: &changelog.topic,
        partition: changelog.partition,
        key: Some(key),
        value,
        headers: Headers::default(),
        timestamp: None,
    };
    producer.send(Ticket { number: id, report: true }, &first)?;
    producer.send_all(id, changelog, entries)
}

/// The troubles of the tasks of whose transaction, which was aborted, something was delivered to where their changelogs
/// held what their stores have applied. One broker that has lost its last records may have led several of them.
pub fn told<C: Cluster>(tasks: &mut Tasks<C>, delivered: &[(TaskId, i64)]) -> Vec<Failure> {
    let mut ends: BTreeMap<TaskId, i64> = BTreeMap::new();
    for (id, offset) in delivered {
        ends.entry(*id).and_modify(|end| *end = *offset.min(end)).or_insert(*offset);
    }
    let fallen_back = |(id, end): (TaskId, i64)| {
        let task = tasks.get_mut(&id).filter(|task| end < task.changelog_offset)?;
        if let Some(Err(error)) = task.held.as_mut().map(note) {
            tracing::error!(task = %task.input, reason = %error, "the store was not told that its changelog has lost records");
        }
        Some(Failure::refused(id, Refusal::ChangelogShrunk { stands: task.changelog_offset, end }.to_string()))
    };
    ends.into_iter().filter_map(fallen_back).collect()
}

/// Has the store say, on the disk too, that it stands beyond whatever the changelog holds.
fn note(held: &mut Held) -> Result<(), state::Error> {
    let Some(meta) = held.store.meta()? else { return Ok(()) };
    held.store.set_meta(&StoreMeta { changelog_offset: CHANGELOG_LOST, ..meta })?;
    held.store.flush()
}
