//! A lane's running functions, shared by the lane and the thread that runs them.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::effect::provider::{CallNumber, Told};

/// The functions of a lane that are running.
pub(super) struct Runs {
    pub running: Mutex<HashMap<CallNumber, Running>>,
    /// The function that is being polled, and since when: it has the thread until its next `await`.
    pub at_work: Mutex<Option<(CallNumber, Instant)>>,
    pub tell: Sender<Told>,
}

/// A running function. Dropping this ends the function where it is.
pub(super) struct Running {
    /// Tells it that its steps are committed, and from when on the next one may act.
    pub committed: mpsc::UnboundedSender<i64>,
    pub _alive: oneshot::Sender<()>,
}

impl Runs {
    /// The running functions.
    pub fn running(&self) -> MutexGuard<'_, HashMap<CallNumber, Running>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The function that has the thread.
    pub fn at_work(&self) -> MutexGuard<'_, Option<(CallNumber, Instant)>> {
        self.at_work.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
