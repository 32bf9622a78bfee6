//! A task's share in the open transaction: all changes that the transaction would make for the task.
//!
//! The committed state is in the task and its store, and remains unchanged until Kafka has confirmed the transaction.
//! Then the share becomes the new state ([`super::task::Task::take_committed`]). An abort drops the share; nothing has
//! to be undone.

use crate::dedup::{Progress, Reason};
use crate::effect::Effects;
use crate::format::{Calls, RedoWriter, Token};
use crate::schemas::Id;
use crate::state::Overlay;

use super::keyless::Keyless;
use super::present::FutureSuspicion;
use super::record_log::NotedRecords;

mod tally;

use tally::Tally;

/// A lane's own number for a task, never reused; delivery reports carry it.
pub type TaskId = u64;

/// A position in the input.
#[derive(Debug, Default, PartialEq)]
pub struct Position {
    /// The next source offset to read.
    pub next: i64,
    /// The state that decisions depend on, besides the entries.
    pub progress: Progress,
    /// The state of calls, if the topology makes any.
    pub calls: Calls,
}

impl Clone for Position {
    fn clone(&self) -> Self {
        Self { next: self.next, progress: self.progress.clone(), calls: self.calls.clone() }
    }

    /// Reuses memory, since this happens in each transaction.
    fn clone_from(&mut self, source: &Self) {
        self.next = source.next;
        self.progress.clone_from(&source.progress);
        self.calls.clone_from(&source.calls);
    }
}

/// The changes that the open transaction would make for a task.
#[derive(Default)]
pub struct Share {
    /// The task.
    pub task: TaskId,
    /// The entries to write to the changelog and to the store.
    pub overlay: Overlay,
    /// The task's position after the transaction.
    pub position: Position,
    /// The numbers of decisions.
    pub tally: Tally,
    /// The records that the log will mention.
    pub noted: NotedRecords,
    /// The keyless records that should have a key.
    pub keyless: Keyless,
    /// The number of entries that the sweeper removes.
    pub removed: u64,
    /// The timestamp of the last record that has one.
    pub last_timestamp: Option<i64>,
    /// The transaction's token, once it is sealed.
    pub token: Option<Token>,
    /// Why the transaction stops before a record. It then reads no more records of the task.
    pub stop: Option<Stop>,
    /// For a topology with a sink: the effects of its records there.
    pub effects: Effects,
    /// The records that wait for the sink's response.
    pub awaited: Vec<AwaitedRecord>,
    /// For a topology with a sink: the records that the transaction has to write to Kafka.
    pub redo: RedoWriter,
    /// The task's next source offset before the transaction.
    pub start_offset: i64,
    /// For a topology with a sink: the position record, once it is encoded for the sink's commit.
    pub position_record: Vec<u8>,
}

/// A record that waits for the sink's response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AwaitedRecord {
    /// The partitions for it in the topic for results and in the audit topic.
    pub partitions: [i32; 2],
    /// Its timestamp.
    pub timestamp: Option<i64>,
    /// Its key.
    pub key: Option<Vec<u8>>,
    /// Why the record is forwarded.
    pub reason: Reason,
    /// The audit record to write if the inbox contains the record already.
    pub explanation: Vec<u8>,
}

/// Why a transaction stops before a record of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The task stops there for good, because of an action `fail`, for example.
    Refused(String),
    /// The record seems to be from the future; Kafka's time decides.
    SeemsFuture(FutureSuspicion),
    /// The topology's gate has to decide about the record, but does not respond.
    Gated,
    /// The record names a schema that is not known yet.
    AwaitsSchema(Id),
}

impl Share {
    /// Starts a share of `task`, which is at `committed`, reusing the memory of an ended share.
    pub fn begin(&mut self, task: TaskId, committed: &Position) {
        let Self { overlay, position, tally, noted, keyless, effects, awaited, redo, .. } = self;
        self.task = task;
        overlay.clear();
        position.clone_from(committed);
        tally.clear();
        noted.clear();
        keyless.clear();
        effects.clear();
        awaited.clear();
        redo.begin();
        self.start_offset = committed.next;
        (self.removed, self.last_timestamp, self.token, self.stop) = (0, None, None, None);
    }

    /// The memory that the share retains for its next use, in bytes.
    fn kept_bytes(&self) -> usize {
        self.overlay.kept_bytes() + self.effects.kept_bytes() + self.redo.kept_bytes()
    }

    /// Keeps the last of these ended shares, as many as together hold at most this many bytes, and frees the others. A
    /// share that has once filled a transaction would otherwise retain its memory for ever.
    pub fn trim_spares(ended: &mut Vec<Self>, bytes: usize) {
        let mut remaining = bytes;
        let fits = |share: &&Self| {
            let rest = remaining.checked_sub(share.kept_bytes());
            remaining = rest.unwrap_or_default();
            rest.is_some()
        };
        let kept = ended.iter().rev().take_while(fits).count();
        ended.drain(..ended.len() - kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_of_ended_shares_is_bounded_and_the_last_shares_are_kept() {
        let ended = || {
            let of = |task| {
                let mut share = Share { task, ..Share::default() };
                (0..1000_u32).for_each(|key| share.overlay.put(&key.to_be_bytes(), Some(&[0; 100])));
                share
            };
            (0..10).map(of).collect::<Vec<Share>>()
        };
        let each = ended()[0].kept_bytes();
        assert!(each >= 1000 * 104, "{each}");
        for (room, kept) in [(each * 10, 10), (each * 10 - 1, 9), (each * 3, 3), (each - 1, 0), (0, 0)] {
            let mut ended = ended();
            Share::trim_spares(&mut ended, room);
            let tasks: Vec<TaskId> = ended.iter().map(|share| share.task).collect();
            assert_eq!(tasks, (10 - kept..10).collect::<Vec<_>>(), "{room}");
        }
    }
}
