//! A task's share in the open transaction: all that it would change for the task.
//!
//! What is committed stands in the task and in its store, and is not touched before Kafka has said that the transaction
//! is in. Then the share becomes what is ([`super::task::Task::settle`]). An abort drops it, and there is nothing to undo.

use crate::dedup::Progress;
use crate::format::Token;
use crate::state::Overlay;

use super::letters::SetAside;
use super::present::Doubt;

mod tally;

use tally::Tally;

/// A lane's own number for a task, never used twice; what delivery reports are told apart by.
pub type TaskId = u64;

/// How far a task has come.
#[derive(Debug, Default, PartialEq)]
pub struct Position {
    /// The next source offset to read.
    pub next: i64,
    /// What decides besides the entries.
    pub progress: Progress,
}

impl Clone for Position {
    fn clone(&self) -> Self {
        Self { next: self.next, progress: self.progress.clone() }
    }

    /// Keeps the memory that is there: this happens with each transaction.
    fn clone_from(&mut self, source: &Self) {
        self.next = source.next;
        self.progress.clone_from(&source.progress);
    }
}

/// What the open transaction would change for a task.
#[derive(Default)]
pub struct Share {
    /// The task.
    pub task: TaskId,
    /// What is written to the changelog and to the store.
    pub overlay: Overlay,
    /// How far the task comes.
    pub position: Position,
    /// What was decided.
    pub tally: Tally,
    /// The records that go to the dead letter topic.
    pub set_aside: SetAside,
    /// How many entries the sweeper removes.
    pub removed: u64,
    /// The timestamp of the last record that has one.
    pub last_timestamp: Option<i64>,
    /// The transaction's token, once it is sealed.
    pub token: Option<Token>,
    /// Why the transaction stops before a record: no more is to be read into it.
    pub stop: Option<Stop>,
}

/// Why a transaction stops before a record of a task.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Stop {
    /// The task stops there for good: by an action `fail`, say.
    Refused(String),
    /// The record looks like one of the future, and Kafka's time decides about that.
    Doubted(Doubt),
}

impl Share {
    /// Begins a share of `task`, which has come as far as `committed`, in the memory of one that has ended.
    pub fn begin(&mut self, task: TaskId, committed: &Position) {
        let Self { overlay, position, tally, set_aside, .. } = self;
        self.task = task;
        overlay.clear();
        position.clone_from(committed);
        tally.clear();
        set_aside.clear();
        (self.removed, self.last_timestamp, self.token, self.stop) = (0, None, None, None);
    }
}
