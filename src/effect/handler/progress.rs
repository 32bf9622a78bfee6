//! The progress and the outcome of a function's run.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::StepError;
use super::record::Reply;

/// The outcome of an attempt.
pub(super) enum End {
    Done(Reply),
    Rejected { reason: String, is_certain: bool },
    InDoubt(String),
    HalfDone(String),
    Failed(StepError),
    TooLate,
    Stops(String),
}

/// The progress of a run, for its watchers.
pub(super) struct Progress {
    timeout: Duration,
    /// Whether it may have acted beyond what is committed.
    acting: Cell<bool>,
    /// When it is overdue; `None` while it waits for a commit.
    deadline: Cell<Option<Instant>>,
    changed: Notify,
}

impl Progress {
    /// The progress of a run that begins now.
    pub fn new(timeout: Duration) -> Self {
        let deadline = Cell::new(Some(Instant::now() + timeout));
        Self { timeout, acting: Cell::new(false), deadline, changed: Notify::new() }
    }

    /// Sets whether it may act from now on; `false` if it has certainly not acted.
    pub fn is_acting(&self, is_acting: bool) {
        self.acting.set(is_acting);
    }

    /// Whether it may have acted beyond what is committed.
    pub fn may_have_acted(&self) -> bool {
        self.acting.get()
    }

    /// It waits for a commit, however long that takes.
    pub fn waits(&self) {
        self.deadline.set(None);
    }

    /// Everything that it has done is committed: its timeout starts anew.
    pub fn goes_on(&self) {
        self.acting.set(false);
        self.deadline.set(Some(Instant::now() + self.timeout));
        self.changed.notify_one();
    }

    /// Waits until it is overdue.
    pub async fn overdue(&self) {
        loop {
            match self.deadline.get() {
                None => self.changed.notified().await,
                Some(deadline) if Instant::now() >= deadline => return,
                Some(deadline) => tokio::time::sleep_until(deadline).await,
            }
        }
    }
}
