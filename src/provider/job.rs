//! A request on its way from a lane (a thread that processes records) to the driver's thread that sends it; and the
//! lock by which exactly one of the two gets it: the driver's thread takes the request, or the lane withdraws it.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::time::Instant;

use crate::effect::call::AttemptOutcome;
use crate::effect::provider::{AttemptEnd, Body, CallNumber, Request};

/// The requests that neither the driver's thread has taken nor the lane has withdrawn. Each is either taken by the
/// thread, which then sends it, or withdrawn by the lane; never both.
#[derive(Default)]
pub(in crate::provider) struct WithdrawableRequests {
    /// The ticket of each call's current request. Each request of a lane has a ticket of its own: a withdrawn request
    /// may still be queued when the next attempt of its call arrives, and both have the same call number.
    tickets: Mutex<HashMap<CallNumber, u64>>,
    /// How many requests were taken and have not ended.
    taken: AtomicUsize,
}

impl WithdrawableRequests {
    fn tickets(&self) -> MutexGuard<'_, HashMap<CallNumber, u64>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn take(&self, number: CallNumber, ticket: u64) -> bool {
        let mut tickets = self.tickets();
        let is_current = tickets.get(&number) == Some(&ticket);
        if is_current {
            tickets.remove(&number);
            self.taken.fetch_add(1, Ordering::Relaxed);
        }
        is_current
    }

    /// Counts a taken request as ended.
    fn end_taken(&self) {
        self.taken.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many requests were taken and have not ended.
    pub fn in_flight(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }

    /// Withdraws a request. Returns whether the thread had not taken it yet: if so, the thread cannot take it any more.
    pub fn withdraw(&self, number: CallNumber) -> bool {
        self.tickets().remove(&number).is_some()
    }
}

/// The stage of a request.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// The thread has not taken it: the lane may still withdraw it.
    Withdrawable,
    /// Taken by the thread: nothing of the request was sent.
    Taken,
    /// Handed to a connection or to a handler at this time: it may have acted since.
    Sent(Instant),
    /// Its outcome was reported or silenced, or it was withdrawn.
    Ended,
}

/// A request within the driver. Unless it is withdrawn or silenced, its outcome is reported exactly once, even if it is
/// dropped.
pub(in crate::provider) struct Job {
    request: Request,
    ticket: u64,
    withdrawable: Arc<WithdrawableRequests>,
    attempt_ends: Sender<AttemptEnd>,
    stage: Stage,
}

impl Job {
    /// A new job, whose request may be withdrawn from now on.
    pub fn new(
        request: Request,
        ticket: u64,
        withdrawable: &Arc<WithdrawableRequests>,
        attempt_ends: &Sender<AttemptEnd>,
    ) -> Self {
        let former = withdrawable.tickets().insert(request.number, ticket);
        assert!(former.is_none(), "a call has one attempt at a time");
        Self {
            request,
            ticket,
            withdrawable: Arc::clone(withdrawable),
            attempt_ends: attempt_ends.clone(),
            stage: Stage::Withdrawable,
        }
    }

    /// The request to be sent.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Whether it was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        matches!(self.stage, Stage::Withdrawable)
            && self.withdrawable.tickets().get(&self.request.number) != Some(&self.ticket)
    }

    /// Takes the request for the thread, unless the lane has withdrawn it. Returns whether the thread has it: then it
    /// cannot be withdrawn any more.
    pub fn take_from_lane(&mut self) -> bool {
        if matches!(self.stage, Stage::Withdrawable) {
            let is_taken = self.withdrawable.take(self.request.number, self.ticket);
            self.stage = if is_taken { Stage::Taken } else { Stage::Ended };
        }
        !matches!(self.stage, Stage::Ended)
    }

    /// Records that the request may act from now on, for example because a connection gets it. Returns the current
    /// time.
    pub fn mark_may_act(&mut self) -> Instant {
        debug_assert!(matches!(self.stage, Stage::Taken), "a request is taken before it is sent");
        let now = Instant::now();
        self.stage = Stage::Sent(now);
        now
    }

    /// Records that the connection has given the request back without writing a byte of it.
    pub fn mark_given_back(&mut self) {
        self.stage = Stage::Taken;
    }

    /// Reports that nothing of the request was sent.
    pub fn report_not_sent(mut self, message: String) {
        self.report(AttemptOutcome::NotSent, Body::None, Some(message));
    }

    /// Ends the attempt without a report, because its lane learns of the end in another way
    /// (`HandlerReport::MustStopTask`).
    pub fn silence(mut self) {
        if self.take_from_lane() {
            self.stage = Stage::Ended;
            self.withdrawable.end_taken();
        }
    }

    /// Reports the attempt's outcome, unless the attempt was withdrawn.
    pub fn report(&mut self, outcome: AttemptOutcome, body: Body, message: Option<String>) {
        if !self.take_from_lane() {
            return;
        }
        let duration = match self.stage {
            Stage::Sent(since) => since.elapsed(),
            _ => Duration::ZERO,
        };
        self.stage = Stage::Ended;
        self.withdrawable.end_taken();
        let Request { number, attempt, .. } = self.request;
        // If the lane is gone, nobody receives this.
        let _ = self.attempt_ends.send(AttemptEnd { number, attempt, outcome, body, message, duration });
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let outcome = match self.stage {
            Stage::Ended => return,
            Stage::Sent(_) => AttemptOutcome::Lost,
            Stage::Withdrawable | Stage::Taken => AttemptOutcome::NotSent,
        };
        self.report(outcome, Body::None, Some("the thread that makes the calls has ended".to_owned()));
    }
}
