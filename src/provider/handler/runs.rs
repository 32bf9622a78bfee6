//! A lane's running functions (the user's code), shared by the lane, which is a thread that processes records, and the
//! separate thread that runs the functions.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use crossbeam_channel::Sender;
use tokio::sync::{mpsc, oneshot};
use tokio::time::Instant;

use crate::effect::provider::{CallNumber, HandlerReport};

/// The functions of a lane that are running.
pub(super) struct Runs {
    /// By the number of the call for which they run.
    pub running: Mutex<HashMap<CallNumber, RunningFunction>>,
    /// The call whose function is being polled, and since when: the function occupies the thread until its next
    /// `await`.
    pub polled: Mutex<Option<(CallNumber, Instant)>>,
    /// Sends the functions' reports to the lane.
    pub reports: Sender<HandlerReport>,
}

/// A running function. Dropping it ends the function at its current `await`.
pub(super) struct RunningFunction {
    /// Reports each commit of its steps to the function: the time from which the next step may act.
    pub commits: mpsc::UnboundedSender<i64>,
    /// Never used, only dropped: its receiver then ends the function.
    pub _alive: oneshot::Sender<()>,
}

impl Runs {
    /// The running functions.
    pub fn running(&self) -> MutexGuard<'_, HashMap<CallNumber, RunningFunction>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The call whose function occupies the thread, and since when.
    pub fn polled(&self) -> MutexGuard<'_, Option<(CallNumber, Instant)>> {
        self.polled.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
