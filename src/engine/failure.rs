//! The failures of a transaction, and the tasks that they concern. The recovery is always the same: the transaction is
//! aborted and its tasks restore. Only the consequences for the task concerned differ.

use crate::{cluster, effect, state};

use super::panics::{InProgress, Panic};
use super::resume::Refusal;
use super::share::TaskId;

/// Why a transaction cannot be finished.
#[derive(Debug)]
pub struct Failure {
    /// The task that the failure concerns; `None` if it concerns the whole transaction.
    pub task: Option<TaskId>,
    /// The cause.
    pub cause: Cause,
}

/// The cause of a failure.
#[derive(Debug)]
pub enum Cause {
    /// A cluster operation failed.
    Cluster(cluster::Error),
    /// A store operation failed.
    State(state::Error),
    /// The sink has not committed, or has not confirmed its commit.
    Sink(Undone),
    /// The task must not continue.
    Refused(Refusal),
    /// The task must not process the record at this offset; the records before it are processed.
    RefusedAt(i64, Unprocessable),
    /// The task has panicked.
    Panicked {
        /// The work in progress.
        at: InProgress,
        /// The panic.
        panic: Panic,
    },
}

/// A transaction that a sink has not committed, or whose commit it has not confirmed.
#[derive(Debug)]
pub struct Undone {
    /// The sink's error.
    pub failed: effect::CommitError,
    /// The tasks that were in it, by the numbers of their steps.
    pub tasks: Vec<TaskId>,
    /// The offsets of the records that the sink refuses, by task.
    pub rejected: Vec<(TaskId, i64, String)>,
}

/// Why a record must not be processed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Unprocessable {
    /// The entry of its identity cannot be read.
    #[error(transparent)]
    Entry(Refusal),
    /// An action says `fail`.
    #[error("{0}")]
    Failed(String),
    /// The dead letter topic refuses it.
    #[error("the dead letter topic refuses the record too: {0}")]
    Letter(String),
    /// The topic for results refuses the result.
    #[error("the topic for results refuses the result: {0}")]
    Result(String),
    /// The audit topic refuses the explanation of its drop.
    #[error("the audit topic refuses its explanation: {0}")]
    Explanation(String),
}

impl Failure {
    /// A cluster operation of the transaction failed.
    pub fn cluster(error: cluster::Error) -> Self {
        Self { task: None, cause: Cause::Cluster(error) }
    }

    /// An operation of a task's store failed.
    pub fn state(task: TaskId, error: state::Error) -> Self {
        Self { task: Some(task), cause: Cause::State(error) }
    }

    /// A task has panicked during this work.
    pub fn panicked(task: TaskId, at: InProgress, panic: Panic) -> Self {
        Self { task: Some(task), cause: Cause::Panicked { at, panic } }
    }

    /// A task must not continue.
    pub fn refused(task: TaskId, refusal: Refusal) -> Self {
        Self { task: Some(task), cause: Cause::Refused(refusal) }
    }

    /// A task must not process the record at this offset.
    pub fn refused_at(task: TaskId, offset: i64, reason: Unprocessable) -> Self {
        Self { task: Some(task), cause: Cause::RefusedAt(offset, reason) }
    }
}

impl std::fmt::Display for Cause {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Cluster(error) => error.fmt(f),
            Self::State(error) => error.fmt(f),
            Self::Sink(undone) => undone.failed.fmt(f),
            Self::Refused(reason) => reason.fmt(f),
            Self::RefusedAt(at, reason) => write!(f, "offset {at}: {reason}"),
            Self::Panicked { panic, .. } => write!(f, "panicked: {panic}"),
        }
    }
}
