//! A request on its way through a driver, and the lock that makes withdrawing it certain.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crossbeam_channel::Sender;
use tokio::time::Instant;

use crate::effect::call::Answer;
use crate::effect::provider::{Body, CallNumber, Heard, Request};

/// The requests that are not being written yet. Each is either claimed by the thread, which then writes it, or
/// withdrawn by the lane; never both.
#[derive(Default)]
pub(in crate::effect) struct Unwritten {
    /// Each call's current ticket: a withdrawn attempt may still be queued when the next attempt of its call arrives.
    tickets: Mutex<HashMap<CallNumber, u64>>,
    /// How many were claimed and have not ended.
    claimed: AtomicUsize,
}

impl Unwritten {
    fn tickets(&self) -> MutexGuard<'_, HashMap<CallNumber, u64>> {
        self.tickets.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn claim(&self, number: CallNumber, ticket: u64) -> bool {
        let mut tickets = self.tickets();
        let is_there = tickets.get(&number) == Some(&ticket);
        if is_there {
            tickets.remove(&number);
            self.claimed.fetch_add(1, Ordering::Relaxed);
        }
        is_there
    }

    /// A claimed request has ended.
    fn over(&self) {
        self.claimed.fetch_sub(1, Ordering::Relaxed);
    }

    /// How many were claimed and have not ended.
    pub fn in_flight(&self) -> usize {
        self.claimed.load(Ordering::Relaxed)
    }

    /// Withdraws a request. Returns whether it was still there: if so, the thread cannot claim it any more.
    pub fn withdraw(&self, number: CallNumber) -> bool {
        self.tickets().remove(&number).is_some()
    }
}

/// The stage of a request.
#[derive(Clone, Copy, Debug)]
enum Stage {
    /// Nobody's: the lane may still withdraw it.
    Free,
    /// Claimed by the thread. Nothing of it was written.
    Claimed,
    /// Handed over at this time: it may have acted since.
    Written(Instant),
    /// Its outcome was reported, or it was withdrawn.
    Over,
}

/// A request within the driver. Unless it is withdrawn or silenced, its outcome is reported exactly once, even if it is
/// dropped.
pub(in crate::effect) struct Job {
    request: Request,
    ticket: u64,
    unwritten: Arc<Unwritten>,
    heard: Sender<Heard>,
    stage: Stage,
}

impl Job {
    /// A request that may be withdrawn from now on.
    pub fn new(request: Request, ticket: u64, unwritten: &Arc<Unwritten>, heard: &Sender<Heard>) -> Self {
        let former = unwritten.tickets().insert(request.number, ticket);
        assert!(former.is_none(), "a call has one attempt at a time");
        Self { request, ticket, unwritten: Arc::clone(unwritten), heard: heard.clone(), stage: Stage::Free }
    }

    /// The request to be sent.
    pub fn request(&self) -> &Request {
        &self.request
    }

    /// Whether it was withdrawn.
    pub fn is_withdrawn(&self) -> bool {
        matches!(self.stage, Stage::Free) && self.unwritten.tickets().get(&self.request.number) != Some(&self.ticket)
    }

    /// Claims it for the thread, unless it was withdrawn; afterwards it cannot be. Returns whether it is claimed.
    pub fn claim(&mut self) -> bool {
        if matches!(self.stage, Stage::Free) {
            let is_claimed = self.unwritten.claim(self.request.number, self.ticket);
            self.stage = if is_claimed { Stage::Claimed } else { Stage::Over };
        }
        !matches!(self.stage, Stage::Over)
    }

    /// Records that it may act from now on, for example because a connection gets it. Returns the current time.
    pub fn written(&mut self) -> Instant {
        debug_assert!(matches!(self.stage, Stage::Claimed), "only what was claimed is written");
        let now = Instant::now();
        self.stage = Stage::Written(now);
        now
    }

    /// Records that the connection has given it back without writing a byte of it.
    pub fn given_back(&mut self) {
        self.stage = Stage::Claimed;
    }

    /// Reports that nothing of it was written.
    pub fn not_sent(mut self, message: String) {
        self.conclude(Answer::NotSent, Body::None, Some(message));
    }

    /// Ends the attempt without an event: its lane learns of the end in another way.
    pub fn silence(mut self) {
        if self.claim() {
            self.stage = Stage::Over;
            self.unwritten.over();
        }
    }

    /// Reports the attempt's outcome, unless the attempt was withdrawn.
    pub fn conclude(&mut self, answer: Answer, body: Body, message: Option<String>) {
        if !self.claim() {
            return;
        }
        let took = match self.stage {
            Stage::Written(since) => since.elapsed(),
            _ => Duration::ZERO,
        };
        self.stage = Stage::Over;
        self.unwritten.over();
        let Request { number, attempt, .. } = self.request;
        // If the lane is gone, nobody receives this.
        let _ = self.heard.send(Heard { number, attempt, answer, body, message, took });
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        let answer = match self.stage {
            Stage::Over => return,
            Stage::Written(_) => Answer::Lost,
            Stage::Free | Stage::Claimed => Answer::NotSent,
        };
        self.conclude(answer, Body::None, Some("the thread that makes the calls has ended".to_owned()));
    }
}
