//! The state machine of one call.
//!
//! ```text
//!            begin, resume
//!                  │
//!    ┌─────────────┼───────────────┐
//!    ▼             ▼               ▼
//!  waits ──────► ready ◄───────► sent ────────► decided
//!    ▲  committed  │  not sent,    │  attempt ended
//!    │             │  sent again   │
//!    └─────────────┴───────────────┘
//!      the key's window has passed, and no attempt can have acted
//! ```
//!
//! A call waits until a transaction permits it: by its own reservation, or by a grant in the position record, which
//! covers whole ranges of records. It is ready until it is dispatched, and sent until its attempt has ended. Decided is
//! the last stage.
//!
//! Three rules keep the promise:
//!
//! - **If no attempt can have acted, the call starts again**, with a new reservation and a new window.
//! - **If an attempt may have acted, only the key makes another attempt safe.** Beyond its window, or without a key,
//!   the call is in doubt; and a later rejection says nothing about the earlier attempt.
//! - **A call that is given up is forgotten only if no attempt may have acted**; otherwise the time of the first
//!   attempt is remembered, so that a duplicate continues under the same window ([`Call::remembered_outcome`]).

use std::time::Duration;

use super::backoff::Draw;
use super::{AttemptOutcome, Now, OnInDoubt, Policy, Reserve};

mod attempt;

use attempt::Attempt;
pub use attempt::IN_PROGRESS_MAX;

/// The state of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Call {
    stage: Stage,
    /// When the first attempt may have been written, by the wall clock; `None` if no attempt can have been written yet.
    first_attempt_at_ms: Option<i64>,
    /// Whether an attempt that has ended may have acted.
    may_have_acted: bool,
    /// The number of the attempt that was sent last, from 1.
    attempt: u32,
    /// How many attempts count: all but those that failed because the provider was down.
    counted_attempts: u32,
    /// How many attempts have failed, whether they count or not.
    failed_attempts: u32,
    /// How many attempts found another one under way.
    in_progress_count: u32,
    /// The call is not sent before this time, on the monotonic clock.
    not_before: Duration,
    /// Whether the call's own reservation is committed.
    is_reserved: bool,
}

/// The stage of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stage {
    /// Waits for a transaction that permits the call.
    Waits(Permit),
    /// The transaction that permits the call is under way.
    Writing(Permit),
    /// The call may be sent.
    Ready,
    /// An attempt is under way.
    Sent,
    /// The call has an outcome, which must be settled: nothing more is sent.
    Decided(Outcome),
}

/// The permission to send a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Permit {
    /// A reservation in the call's entry.
    Reservation,
    /// A grant in the position record, for all records up to an offset.
    Grant,
}

/// A call's outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The provider has carried out the request.
    Done,
    /// The provider refuses the request, and no attempt has carried it out.
    Rejected,
    /// The key was used for another request.
    Conflict,
    /// The request may have been carried out, and no attempt can determine whether it was.
    InDoubt,
    /// The attempts are exhausted.
    Unavailable,
}

/// The memory of an identity, once its call has an outcome.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RememberedOutcome {
    /// The call is done.
    Done,
    /// The call has failed: a duplicate counts as a duplicate of the failure.
    Failed,
    /// The call was given up, and may have acted: a duplicate resumes it, under the key window of its first attempt.
    GivenUp {
        /// When the first attempt may have been written, by the wall clock, in milliseconds since the epoch.
        first_attempt_at_ms: i64,
    },
    /// The memory from before the call: no attempt has acted.
    AsBefore,
}

/// The grant in the position record that covers a call's record: the call needs no reservation of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CoveringGrant {
    /// Since when calls under the grant may have been sent, by the writer's wall clock, in milliseconds since the
    /// epoch.
    pub since_ms: i64,
    /// Whether the grant covered the record before this owner took over: then a former owner may have sent the call.
    pub is_from_former_owner: bool,
}

/// The remembered state of a call that a former owner or an earlier record has left unfinished.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundCall {
    /// When the first attempt may have been written, by the wall clock, in milliseconds since the epoch.
    pub first_attempt_at_ms: i64,
    /// How many attempts count already; 0 for a call that was given up.
    pub attempts: u32,
    /// Whether an attempt may have acted; `false` only if certainly no attempt has.
    pub may_have_acted: bool,
}

/// An event in the course of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Event {
    /// The permit that the call waits for is written in a transaction.
    Written {
        /// From when on the first attempt may be written, as the transaction records it: the present wall clock for a
        /// reservation, the grant's time for a grant.
        since_ms: i64,
    },
    /// The permit's transaction is committed.
    Committed,
    /// The permit's transaction has certainly not been committed.
    Aborted,
    /// There is room for the call among those that are under way.
    Dispatch,
    /// An attempt has ended.
    AttemptEnded {
        /// Its number. The event is ignored unless this attempt is under way.
        attempt: u32,
        /// Its outcome.
        outcome: AttemptOutcome,
        /// Whether the provider seems to be down: no response since the end of this call's previous attempt shows that
        /// the provider is alive, or, for a refusal, that other calls succeed. False for the first attempt.
        is_down: bool,
    },
    /// The transaction with the outcomes of the attempt's steps is committed. From now on another step acts.
    Journaled {
        /// From when on the next step may have acted, by the wall clock: it could not act before the commit.
        since_ms: i64,
    },
    /// An attempt was withdrawn before any byte of it was written.
    Withdrawn {
        /// Its number. The event is ignored unless this attempt is under way.
        attempt: u32,
    },
}

/// The action that follows an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Write this permit in the next transaction.
    Write(Permit),
    /// Dispatch the call at this time, on the monotonic clock.
    SendAt(Duration),
    /// Send this attempt, unless the key's window has passed when it is written to the socket.
    Send {
        /// Its number, from 1.
        attempt: u32,
    },
    /// Hold the lane: dispatch the call at this time, on the monotonic clock, and no other call before.
    Hold(Duration),
    /// Settle the call with this outcome, in the next transaction.
    Settle(Outcome),
}

/// Begins a new call, with the grant that covers its record, if there is one.
pub fn begin(policy: &Policy, grant: Option<CoveringGrant>, now: Now) -> (Call, Action) {
    let call = Call {
        stage: Stage::Ready,
        first_attempt_at_ms: None,
        may_have_acted: false,
        attempt: 0,
        counted_attempts: 0,
        failed_attempts: 0,
        in_progress_count: 0,
        not_before: now.monotonic,
        is_reserved: false,
    };
    let Some(window) = policy.key.filter(|_| policy.reserve == Reserve::Auto) else {
        return call.to_waiting(Permit::Reservation);
    };
    let Some(CoveringGrant { since_ms, is_from_former_owner }) = grant else { return call.to_waiting(Permit::Grant) };
    let call = Call { first_attempt_at_ms: Some(since_ms), may_have_acted: is_from_former_owner, ..call };
    match window.grants(since_ms, now.wall_ms) {
        true => call.to_ready(),
        false if is_from_former_owner && !window.allows(since_ms, now.wall_ms) => call.doubt_or_restart(policy),
        false => call.to_waiting(Permit::Reservation),
    }
}

/// Resumes a call that was found reserved or given up: an attempt may have been made, or may still be under way.
pub fn resume(policy: &Policy, found: FoundCall, now: Now) -> (Call, Action) {
    let FoundCall { first_attempt_at_ms, attempts, may_have_acted } = found;
    let call = Call {
        stage: Stage::Ready,
        first_attempt_at_ms: Some(first_attempt_at_ms),
        may_have_acted,
        attempt: 0,
        counted_attempts: attempts,
        failed_attempts: 0,
        in_progress_count: 0,
        not_before: now.monotonic,
        is_reserved: true,
    };
    match policy.key {
        // The entry says that no attempt has acted: it has to be replaced before one can act.
        _ if !may_have_acted => call.to_waiting(Permit::Reservation),
        Some(window) if window.allows(first_attempt_at_ms, now.wall_ms) => call.to_ready(),
        _ => call.doubt_or_restart(policy),
    }
}

/// Applies an event to a call. Returns the new state, and the next action, if there is one.
///
/// # Panics
/// The event is impossible in this stage.
pub fn next(policy: &Policy, call: Call, event: Event, now: Now, draw: Draw<'_>) -> (Call, Option<Action>) {
    let (call, action) = match (event, call.stage) {
        (Event::Written { since_ms }, Stage::Waits(permit)) => return (call.to_writing(permit, since_ms), None),
        (Event::Committed, Stage::Writing(permit)) => call.after_commit(policy, permit, now),
        (Event::Aborted, Stage::Writing(permit)) => call.to_waiting(permit),
        (Event::Dispatch, Stage::Ready) => call.dispatch(policy, now),
        (Event::AttemptEnded { attempt, outcome, is_down }, Stage::Sent) if attempt == call.attempt => {
            Attempt { policy, now, is_down, draw }.end(call, &outcome)
        }
        (Event::Withdrawn { attempt }, Stage::Sent) if attempt == call.attempt => {
            Call { not_before: now.monotonic, ..call }.to_ready()
        }
        (Event::Journaled { since_ms }, Stage::Sent) => return (call.after_journal(since_ms), None),
        // These events are about an attempt that has already ended.
        (Event::AttemptEnded { .. } | Event::Withdrawn { .. }, _) => return (call, None),
        (event, stage) => unreachable!("the event {event:?} is impossible for a call in the stage {stage:?}"),
    };
    (call, Some(action))
}

impl Call {
    /// The call's stage.
    pub fn stage(&self) -> Stage {
        self.stage
    }

    /// When the first attempt may have been written, by the wall clock, in milliseconds since the epoch; `None` if no
    /// attempt can have been written yet.
    pub fn first_attempt_at_ms(&self) -> Option<i64> {
        self.first_attempt_at_ms
    }

    /// The number of the attempt that was sent last, from 1; 0 before the first attempt.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// How many attempts count.
    pub fn attempts(&self) -> u32 {
        self.counted_attempts
    }

    /// Whether an attempt may have acted, including the one that is under way.
    pub fn may_have_acted(&self) -> bool {
        self.may_have_acted || self.stage == Stage::Sent
    }

    /// Whether the call's own reservation is committed and no attempt can have acted: when its task stops or is lost,
    /// the reservation is removed, so that the next owner need not treat the call as in doubt.
    pub fn can_release_reservation(&self) -> bool {
        let is_idle = matches!(self.stage, Stage::Waits(_) | Stage::Ready);
        is_idle && self.is_reserved && !self.may_have_acted
    }

    /// The memory of the call's identity after this outcome.
    pub fn remembered_outcome(&self, outcome: Outcome) -> RememberedOutcome {
        match (outcome, self.first_attempt_at_ms) {
            (Outcome::Done, _) => RememberedOutcome::Done,
            (Outcome::Rejected | Outcome::Conflict | Outcome::InDoubt, _) => RememberedOutcome::Failed,
            (Outcome::Unavailable, Some(first_attempt_at_ms)) if self.may_have_acted => {
                RememberedOutcome::GivenUp { first_attempt_at_ms }
            }
            (Outcome::Unavailable, _) => RememberedOutcome::AsBefore,
        }
    }

    fn to_waiting(self, permit: Permit) -> (Self, Action) {
        // A call that cannot have acted has had no first attempt: the next transaction records a new time for it.
        let first_attempt_at_ms = self.first_attempt_at_ms.filter(|_| self.may_have_acted);
        (Self { stage: Stage::Waits(permit), first_attempt_at_ms, ..self }, Action::Write(permit))
    }

    fn to_ready(self) -> (Self, Action) {
        (Self { stage: Stage::Ready, ..self }, Action::SendAt(self.not_before))
    }

    fn to_decided(self, outcome: Outcome) -> (Self, Action) {
        (Self { stage: Stage::Decided(outcome), ..self }, Action::Settle(outcome))
    }

    fn to_writing(self, permit: Permit, since_ms: i64) -> Self {
        Self { stage: Stage::Writing(permit), first_attempt_at_ms: self.first_attempt_at_ms.or(Some(since_ms)), ..self }
    }

    fn after_commit(self, policy: &Policy, permit: Permit, now: Now) -> (Self, Action) {
        let since_ms = self.first_attempt_at_ms.expect("a written permit has a time");
        let is_grant_valid = || policy.key.is_some_and(|window| window.grants(since_ms, now.wall_ms));
        match permit {
            Permit::Grant if !is_grant_valid() => self.to_waiting(Permit::Reservation),
            Permit::Grant => self.to_ready(),
            Permit::Reservation => Self { is_reserved: true, ..self }.to_ready(),
        }
    }

    fn dispatch(self, policy: &Policy, now: Now) -> (Self, Action) {
        if now.monotonic < self.not_before {
            return self.to_ready();
        }
        let first_attempt_at_ms = self.first_attempt_at_ms.expect("a call is ready only after it was permitted");
        if policy.key.is_some_and(|window| !window.allows(first_attempt_at_ms, now.wall_ms)) {
            return self.end_window(policy);
        }
        let attempt = self.attempt + 1;
        (Self { stage: Stage::Sent, attempt, ..self }, Action::Send { attempt })
    }

    /// The committed steps are not done again: from here on, the count of attempts and the key's window are those of
    /// the next step.
    fn after_journal(self, since_ms: i64) -> Self {
        let (first_attempt_at_ms, may_have_acted, is_reserved) = (Some(since_ms), false, true);
        Self {
            first_attempt_at_ms,
            may_have_acted,
            is_reserved,
            counted_attempts: 0,
            failed_attempts: 0,
            in_progress_count: 0,
            ..self
        }
    }

    /// Handles the end of the key's window before an attempt was written.
    fn end_window(self, policy: &Policy) -> (Self, Action) {
        if self.may_have_acted { self.doubt_or_restart(policy) } else { self.to_waiting(Permit::Reservation) }
    }

    /// Handles a call of which an attempt may have acted, while no key makes another attempt safe.
    fn doubt_or_restart(self, policy: &Policy) -> (Self, Action) {
        match (policy.on_in_doubt, policy.key) {
            (OnInDoubt::DeadLetter | OnInDoubt::Fail, _) => self.to_decided(Outcome::InDoubt),
            // Without a key there is no window to restart.
            (OnInDoubt::Retry, None) => self.to_ready(),
            (OnInDoubt::Retry, Some(_)) => Self { first_attempt_at_ms: None, ..self }.to_waiting(Permit::Reservation),
        }
    }
}

#[cfg(test)]
mod tests;
