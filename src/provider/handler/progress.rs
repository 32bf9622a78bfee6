//! The progress and the outcome of a function's run. A function is the user's code that works on a record in steps; a
//! step's outcome is committed before the next step begins.

use std::cell::Cell;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::Instant;

use super::error::StepError;
use super::record::Reply;

/// The outcome of a function's run.
pub(super) enum RunOutcome {
    /// The work is done.
    Done(Reply),
    /// The function rejects the record, for this reason. `certainly_not_done`: only recorded steps have acted, and the
    /// registered compensations, which undo steps, have run. If `false`, an earlier attempt may have acted beyond the
    /// recorded steps, and no compensation has run.
    Rejected { reason: String, certainly_not_done: bool },
    /// A step was rejected, but an earlier attempt may have done it. Holds a message.
    InDoubt(String),
    /// The record is rejected, but a compensation, which should have undone a step, was rejected too. Holds a message.
    HalfDone(String),
    /// The attempt has failed; another one may follow.
    Failed(StepError),
    /// A step could not begin: its idempotency key may expire at the provider before a request under it would end.
    TooLate,
    /// Only another version of the user's code could continue, for this reason: the task stops before the record.
    MustStopTask(String),
}

/// The progress of a run, for its watchers.
pub(super) struct Progress {
    timeout: Duration,
    /// Whether the run may have acted in a step whose outcome is not committed.
    may_have_acted: Cell<bool>,
    /// When the run is overdue; `None` while it waits for a commit.
    deadline: Cell<Option<Instant>>,
    restarted: Notify,
}

impl Progress {
    /// The progress of a run that begins now.
    pub fn new(timeout: Duration) -> Self {
        let deadline = Cell::new(Some(Instant::now() + timeout));
        Self { timeout, may_have_acted: Cell::new(false), deadline, restarted: Notify::new() }
    }

    /// Records whether the run may have acted in the current step: `true` before the step acts; `false` once the step
    /// has certainly not acted.
    pub fn set_may_have_acted(&self, may_have_acted: bool) {
        self.may_have_acted.set(may_have_acted);
    }

    /// Whether the run may have acted in a step whose outcome is not committed.
    pub fn may_have_acted(&self) -> bool {
        self.may_have_acted.get()
    }

    /// Suspends the timeout: the run waits for a commit, however long that takes.
    pub fn pause_timeout(&self) {
        self.deadline.set(None);
    }

    /// Restarts the timeout: all steps of the run are committed.
    pub fn restart_timeout(&self) {
        self.may_have_acted.set(false);
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
