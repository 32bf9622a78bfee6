//! The progress and the outcome of a function's run.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::StepError;
use super::record::Reply;

/// The outcome of a function's run.
pub(super) enum RunOutcome {
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
    /// Whether the run may have acted beyond its committed steps.
    acting: Cell<bool>,
    /// When the run is overdue; `None` while it waits for a commit.
    deadline: Cell<Option<Instant>>,
    restarted: Notify,
}

impl Progress {
    /// The progress of a run that begins now.
    pub fn new(timeout: Duration) -> Self {
        let deadline = Cell::new(Some(Instant::now() + timeout));
        Self { timeout, acting: Cell::new(false), deadline, restarted: Notify::new() }
    }

    /// Sets whether the run may act from now on; `false` if it has certainly not acted.
    pub fn set_acting(&self, acting: bool) {
        self.acting.set(acting);
    }

    /// Whether the run may have acted beyond its committed steps.
    pub fn may_have_acted(&self) -> bool {
        self.acting.get()
    }

    /// Suspends the timeout: the run waits for a commit, however long that takes.
    pub fn pause_timeout(&self) {
        self.deadline.set(None);
    }

    /// Restarts the timeout: all steps of the run are committed.
    pub fn restart_timeout(&self) {
        self.acting.set(false);
        self.deadline.set(Some(Instant::now() + self.timeout));
        self.restarted.notify_one();
    }

    /// Waits until the run is overdue.
    pub async fn wait_until_overdue(&self) {
        loop {
            match self.deadline.get() {
                None => self.restarted.notified().await,
                Some(deadline) if Instant::now() >= deadline => return,
                Some(deadline) => tokio::time::sleep_until(deadline).await,
            }
        }
    }
}
