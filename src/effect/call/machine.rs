//! The state machine of one call.
//!
//! ```text
//!            begin, resume
//!                  │
//!    ┌─────────────┼───────────────┐
//!    ▼             ▼               ▼
//!  waits ──────► ready ◄───────► sent ────────► decided
//!    ▲  committed  │  not sent,    │  answered
//!    │             │  go again     │
//!    └─────────────┴───────────────┘
//!      the key's window has passed, and nothing can have acted
//! ```
//!
//! A call waits until a transaction permits it: by a reservation of its own, or by a grant in the position record,
//! which covers whole ranges of records. It is ready until its turn comes, sent until there is an answer, and decided
//! for good.
//!
//! Three rules keep the promise:
//!
//! - **Where nothing can have acted, everything starts again**, with a new reservation and a new window.
//! - **Where an attempt may have acted, only the key makes another one safe.** Beyond its window, or without a key, the
//!   call is in doubt; and a later rejection says nothing about the earlier attempt.
//! - **A call that is given up is forgotten only if no attempt may have acted**; otherwise the time of the first one is
//!   kept, so that a duplicate goes on under the same window ([`Call::kept`]).

use std::time::Duration;

use super::backoff::Draw;
use super::{Answer, Now, OnInDoubt, Policy, Reserve};

mod attempt;

use attempt::Attempt;
pub use attempt::IN_PROGRESS_MAX;

/// A call, as its owner knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    stage: Stage,
    /// When the first attempt may have been written, by the wall clock; `None` if no attempt can have been written yet.
    first_at_ms: Option<i64>,
    /// Whether an attempt that is over may have acted.
    may_have_acted: bool,
    /// The number of the attempt that was sent last, from 1.
    attempt: u32,
    /// How many attempts count: those that did not fail because the provider was down.
    counted: u32,
    /// How many have failed, whether they count or not.
    failed: u32,
    /// How often an attempt found another one under way.
    in_progress: u32,
    /// Not to be sent before this, on the monotonic clock.
    not_before: Duration,
    /// Whether its own reservation is committed.
    is_reserved: bool,
}

/// The stage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// A transaction has to permit it first.
    Waits(Permit),
    /// The transaction that permits it is under way.
    Writing(Permit),
    /// It may be sent.
    Ready,
    /// An attempt is under way.
    Sent,
    /// Nothing more is sent; to be settled.
    Decided(Outcome),
}

/// What permits a call to be sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// A reservation in its entry.
    Reservation,
    /// The position record, for all records up to an offset.
    Grant,
}

/// A call's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider has done it.
    Done,
    /// The provider will not do it, and no attempt has done it.
    Rejected,
    /// Its key was used for another request.
    Conflict,
    /// It may have happened, and nothing more can be found out.
    InDoubt,
    /// Its attempts are exhausted.
    Unavailable,
}

/// What is remembered of an identity once its call has an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// It is done.
    Done,
    /// It has failed: a duplicate counts as a duplicate of that failure.
    Failed,
    /// It was given up, and may have happened: a duplicate resumes it, under the key window of this first attempt.
    GivenUp {
        /// When the first attempt may have been written, by the wall clock, in milliseconds since the epoch.
        first_at_ms: i64,
    },
    /// What was remembered before the call: nothing has happened.
    AsBefore,
}

/// What the position record says about calls without reservations of their own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Grant {
    /// Since when they may have been sent, by the writer's wall clock, in milliseconds since the epoch.
    pub since_ms: i64,
    /// Whether it covered the record before this owner took over: then a former owner may have sent the call.
    pub is_of_former: bool,
}

/// What is found of a call that a former owner or an earlier record has left behind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Found {
    /// When the first attempt may have been written, by the wall clock, in milliseconds since the epoch.
    pub first_at_ms: i64,
    /// How many attempts count already; 0 for a call that was given up.
    pub attempts: u32,
    /// Whether one of them may have acted; `false` only if it is certain that none has.
    pub may_have_acted: bool,
}

/// What happens to a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The permit that it waits for is written in a transaction.
    Written {
        /// From when on its first attempt may be written, as the transaction records it: the present wall clock for a
        /// reservation, the grant's time for a grant.
        since_ms: i64,
    },
    /// That transaction is committed.
    Committed,
    /// That transaction has certainly not been committed.
    Aborted,
    /// There is room for it among the calls that are under way.
    Dispatch,
    /// An attempt is over.
    Answered {
        /// Its number. The event is ignored unless this attempt is under way.
        attempt: u32,
        /// Its outcome.
        answer: Answer,
        /// Whether no answer since the end of this call's previous attempt shows that the provider is alive, or, for a
        /// refusal, that other calls succeed; false for its first attempt.
        is_down: bool,
    },
    /// The transaction that remembers the outcomes of the attempt's steps is committed. From now on another step acts.
    Journaled {
        /// From when on that step may have acted, by the wall clock: it could not before the transaction was committed.
        since_ms: i64,
    },
    /// An attempt was withdrawn before anything of it was written.
    Withdrawn {
        /// Its number. The event is ignored unless this attempt is under way.
        attempt: u32,
    },
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this in the next transaction.
    Write(Permit),
    /// Dispatch it at this time, on the monotonic clock.
    SendAt(Duration),
    /// Send this attempt, unless the key's window has passed when it is written to the socket.
    Send {
        /// Its number, from 1.
        attempt: u32,
    },
    /// Nothing can be sent for now: dispatch it at this time, on the monotonic clock, and no other call before that.
    Hold(Duration),
    /// Settle it, in the next transaction.
    Settle(Outcome),
}

/// A new call, with the grant that covers its record, if there is one.
pub fn begin(policy: &Policy, grant: Option<Grant>, now: Now) -> (Call, Action) {
    let call = Call {
        stage: Stage::Ready,
        first_at_ms: None,
        may_have_acted: false,
        attempt: 0,
        counted: 0,
        failed: 0,
        in_progress: 0,
        not_before: now.monotonic,
        is_reserved: false,
    };
    let Some(window) = policy.key.filter(|_| policy.reserve == Reserve::Auto) else {
        return call.wait_for(Permit::Reservation);
    };
    let Some(Grant { since_ms, is_of_former }) = grant else { return call.wait_for(Permit::Grant) };
    let call = Call { first_at_ms: Some(since_ms), may_have_acted: is_of_former, ..call };
    match window.grants(since_ms, now.wall_ms) {
        true => call.ready(),
        false if is_of_former && !window.allows(since_ms, now.wall_ms) => call.found_too_late(policy),
        false => call.wait_for(Permit::Reservation),
    }
}

/// A call that was found reserved or given up: an attempt may have been made, or may still be under way.
pub fn resume(policy: &Policy, found: Found, now: Now) -> (Call, Action) {
    let Found { first_at_ms, attempts, may_have_acted } = found;
    let call = Call {
        stage: Stage::Ready,
        first_at_ms: Some(first_at_ms),
        may_have_acted,
        attempt: 0,
        counted: attempts,
        failed: 0,
        in_progress: 0,
        not_before: now.monotonic,
        is_reserved: true,
    };
    match policy.key {
        // The entry that says so has to be replaced before anything can act.
        _ if !may_have_acted => call.wait_for(Permit::Reservation),
        Some(window) if window.allows(first_at_ms, now.wall_ms) => call.ready(),
        _ => call.found_too_late(policy),
    }
}

/// Applies an event to a call. Returns the new call, and what is to be done, if anything.
///
/// # Panics
/// The event is impossible in this stage.
pub fn next(policy: &Policy, call: Call, event: Event, now: Now, draw: Draw<'_>) -> (Call, Option<Action>) {
    let (call, action) = match (event, call.stage) {
        (Event::Written { since_ms }, Stage::Waits(permit)) => return (call.written(permit, since_ms), None),
        (Event::Committed, Stage::Writing(permit)) => call.committed(policy, permit, now),
        (Event::Aborted, Stage::Writing(permit)) => call.wait_for(permit),
        (Event::Dispatch, Stage::Ready) => call.dispatch(policy, now),
        (Event::Answered { attempt, answer, is_down }, Stage::Sent) if attempt == call.attempt => {
            Attempt { policy, now, is_down, draw }.over(call, &answer)
        }
        (Event::Withdrawn { attempt }, Stage::Sent) if attempt == call.attempt => {
            Call { not_before: now.monotonic, ..call }.ready()
        }
        (Event::Journaled { since_ms }, Stage::Sent) => return (call.journaled(since_ms), None),
        // These are about an attempt that is over.
        (Event::Answered { .. } | Event::Withdrawn { .. }, _) => return (call, None),
        (event, stage) => unreachable!("{event:?} comes to a call that is {stage:?}"),
    };
    (call, Some(action))
}

impl Call {
    /// Its stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// When the first attempt may have been written, by the wall clock, in milliseconds since the epoch; `None` if no
    /// attempt can have been written yet.
    pub fn first_at_ms(&self) -> Option<i64> {
        self.first_at_ms
    }

    /// The number of the attempt that was sent last, from 1; 0 if none was.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many attempts count.
    pub fn attempts(&self) -> u32 {
        self.counted
    }

    /// Whether an attempt may have acted, the one that is under way included.
    pub fn may_have_acted(&self) -> bool {
        self.may_have_acted || self.stage == Stage::Sent
    }

    /// Whether its own reservation is committed and nothing of it can have acted: when its task stops or is lost, the
    /// reservation is removed, so that the next owner need not treat the call as in doubt.
    pub fn may_be_released(&self) -> bool {
        let is_still = matches!(self.stage, Stage::Waits(_) | Stage::Ready);
        is_still && self.is_reserved && !self.may_have_acted
    }

    /// What is remembered of it with this outcome.
    pub fn kept(&self, outcome: Outcome) -> Kept {
        match (outcome, self.first_at_ms) {
            (Outcome::Done, _) => Kept::Done,
            (Outcome::Rejected | Outcome::Conflict | Outcome::InDoubt, _) => Kept::Failed,
            (Outcome::Unavailable, Some(first_at_ms)) if self.may_have_acted => Kept::GivenUp { first_at_ms },
            (Outcome::Unavailable, _) => Kept::AsBefore,
        }
    }

    fn wait_for(self, permit: Permit) -> (Self, Action) {
        // A call that cannot have acted has had no first attempt: the next transaction records when that may be.
        let first_at_ms = self.first_at_ms.filter(|_| self.may_have_acted);
        (Self { stage: Stage::Waits(permit), first_at_ms, ..self }, Action::Write(permit))
    }

    fn ready(self) -> (Self, Action) {
        (Self { stage: Stage::Ready, ..self }, Action::SendAt(self.not_before))
    }

    fn decided(self, outcome: Outcome) -> (Self, Action) {
        (Self { stage: Stage::Decided(outcome), ..self }, Action::Settle(outcome))
    }

    fn written(self, permit: Permit, since_ms: i64) -> Self {
        Self { stage: Stage::Writing(permit), first_at_ms: self.first_at_ms.or(Some(since_ms)), ..self }
    }

    fn committed(self, policy: &Policy, permit: Permit, now: Now) -> (Self, Action) {
        let since_ms = self.first_at_ms.expect("what was written says since when");
        let still_grants = || policy.key.is_some_and(|window| window.grants(since_ms, now.wall_ms));
        match permit {
            Permit::Grant if !still_grants() => self.wait_for(Permit::Reservation),
            Permit::Grant => self.ready(),
            Permit::Reservation => Self { is_reserved: true, ..self }.ready(),
        }
    }

    fn dispatch(self, policy: &Policy, now: Now) -> (Self, Action) {
        if now.monotonic < self.not_before {
            return self.ready();
        }
        let first_at_ms = self.first_at_ms.expect("a call is ready only after it was permitted");
        if policy.key.is_some_and(|window| !window.allows(first_at_ms, now.wall_ms)) {
            return self.too_late(policy);
        }
        let attempt = self.attempt + 1;
        (Self { stage: Stage::Sent, attempt, ..self }, Action::Send { attempt })
    }

    /// The committed steps cannot be done again: from here on, attempts and the key's window are those of the next
    /// step.
    fn journaled(self, since_ms: i64) -> Self {
        let (first_at_ms, may_have_acted, is_reserved) = (Some(since_ms), false, true);
        Self { first_at_ms, may_have_acted, is_reserved, counted: 0, failed: 0, in_progress: 0, ..self }
    }

    /// The key's window has passed before an attempt was written.
    fn too_late(self, policy: &Policy) -> (Self, Action) {
        if self.may_have_acted { self.found_too_late(policy) } else { self.wait_for(Permit::Reservation) }
    }

    /// An attempt may have acted, and no key makes another one safe.
    fn found_too_late(self, policy: &Policy) -> (Self, Action) {
        match (policy.on_in_doubt, policy.key) {
            (OnInDoubt::DeadLetter | OnInDoubt::Fail, _) => self.decided(Outcome::InDoubt),
            // Without a key there is no window to restart.
            (OnInDoubt::Retry, None) => self.ready(),
            (OnInDoubt::Retry, Some(_)) => Self { first_at_ms: None, ..self }.wait_for(Permit::Reservation),
        }
    }
}

#[cfg(test)]
mod tests;
