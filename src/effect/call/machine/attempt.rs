//! The end of an attempt: its effect on the call.

use std::time::Duration;

use super::{Action, Call, Outcome, Stage};
use crate::effect::call::backoff::{Draw, RETRY_AFTER_MAX};
use crate::effect::call::{AttemptOutcome, Class, Classification, Now, OnInDoubt, OnUnavailable, Policy, RetryAfter};

/// How many of a call's attempts may find another one with the same key under way before the call is in doubt.
pub const IN_PROGRESS_MAX: u32 = 5;
/// The least number of refusals, while other calls succeed, that shows that the record is at fault. A single refusal
/// does not: after a secret has become invalid, the last successes of other calls may arrive after the first refusal.
const REFUSALS_MIN: u32 = 2;

/// The circumstances of an attempt's end.
pub(super) struct Attempt<'a> {
    pub(super) policy: &'a Policy,
    pub(super) now: Now,
    /// Whether no response since the end of the previous attempt shows that the provider is alive, or, for a refusal,
    /// that other calls succeed.
    pub(super) is_down: bool,
    pub(super) draw: Draw<'a>,
}

impl Attempt<'_> {
    /// Applies the end of an attempt to its call.
    pub(super) fn end(self, call: Call, outcome: &AttemptOutcome) -> (Call, Action) {
        let retry_after = match outcome {
            AttemptOutcome::TooLate => return call.end_window(self.policy),
            AttemptOutcome::Refused => return call.to_decided(Outcome::Rejected),
            AttemptOutcome::HalfDone => return Call { may_have_acted: true, ..call }.to_decided(Outcome::InDoubt),
            AttemptOutcome::Status(status) => status.retry_after,
            AttemptOutcome::NotSent | AttemptOutcome::Lost => None,
        };
        let Classification { class, may_have_acted } = self.policy.answers.read(outcome, self.policy.key.is_some());
        let call_after = Call { may_have_acted: call.may_have_acted || may_have_acted, ..call };
        match class {
            Class::Done => call_after.to_decided(Outcome::Done),
            Class::Conflict => call_after.to_decided(Outcome::Conflict),
            // A rejection says nothing about an earlier attempt.
            Class::Rejected if call.may_have_acted => self.doubt_or_retry(call_after),
            Class::Rejected => call_after.to_decided(Outcome::Rejected),
            Class::InDoubt => self.doubt_or_retry(call_after),
            Class::Again => self.retry_or_give_up(call_after, retry_after),
            Class::Hold => self.hold(call_after, retry_after),
            Class::InProgress if call_after.in_progress_count >= IN_PROGRESS_MAX => {
                self.doubt_or_retry(Call { in_progress_count: 0, ..call_after })
            }
            Class::InProgress => {
                let in_progress_count = call_after.in_progress_count + 1;
                self.retry_after_half(Call { in_progress_count, ..call_after }, in_progress_count, retry_after)
            }
        }
    }

    /// Decides a call that is in doubt, or has it sent again.
    fn doubt_or_retry(self, call: Call) -> (Call, Action) {
        match self.policy.on_in_doubt {
            OnInDoubt::DeadLetter | OnInDoubt::Fail => call.to_decided(Outcome::InDoubt),
            OnInDoubt::Retry => self.retry_or_give_up(call, None),
        }
    }

    /// Counts the attempt, and has the call sent again unless its attempts are exhausted. Failures while the provider
    /// is down do not count: otherwise every call that was under way when it went down would be given up.
    fn retry_or_give_up(self, call: Call, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let failed_attempts = call.failed_attempts.saturating_add(1);
        if self.is_down && self.policy.on_unavailable == OnUnavailable::Hold {
            let not_before = until(self.now, self.policy.retry.wait(failed_attempts, self.draw), retry_after);
            return (Call { stage: Stage::Ready, not_before, failed_attempts, ..call }, Action::Hold(not_before));
        }
        let call = Call { counted_attempts: call.counted_attempts.saturating_add(1), failed_attempts, ..call };
        match call.counted_attempts < self.policy.retry.attempts {
            true => self.retry_later(call, failed_attempts, retry_after),
            false => call.to_decided(Outcome::Unavailable),
        }
    }

    /// Has the call sent again after the wait that follows this many failures.
    fn retry_later(self, call: Call, failures: u32, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let wait = self.policy.retry.wait(failures, self.draw);
        let not_before = until(self.now, wait, retry_after);
        Call { not_before, ..call }.to_ready()
    }

    /// Like [`Attempt::retry_later`], but after at least half of the longest wait: the attempt that is under way needs
    /// time, and with full jitter several attempts could be sent within milliseconds.
    fn retry_after_half(self, call: Call, failures: u32, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let half = self.policy.retry.ceiling(failures) / 2;
        let wait = half + self.policy.retry.wait(failures, self.draw) / 2;
        let not_before = until(self.now, wait, retry_after);
        Call { not_before, ..call }.to_ready()
    }

    /// Holds the lane while no other call succeeds. If another call has succeeded since this record's previous attempt,
    /// the refusal is about this record, and the attempt counts.
    fn hold(self, call: Call, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let (is_first, failed_attempts) = (call.failed_attempts == 0, call.failed_attempts.saturating_add(1));
        if is_first || self.is_down {
            let not_before = until(self.now, self.policy.retry.max, retry_after);
            return (Call { stage: Stage::Ready, not_before, failed_attempts, ..call }, Action::Hold(not_before));
        }
        let call = Call { counted_attempts: call.counted_attempts.saturating_add(1), failed_attempts, ..call };
        match call.counted_attempts < self.policy.retry.attempts.max(REFUSALS_MIN) {
            true => self.retry_later(call, failed_attempts, retry_after),
            false if call.may_have_acted => self.doubt_or_retry(call),
            false => call.to_decided(Outcome::Rejected),
        }
    }
}

/// The end of a wait, or the time at which the provider wants the next request, whichever is later.
fn until(now: Now, wait: Duration, retry_after: Option<RetryAfter>) -> Duration {
    let requested = retry_after.map_or(Duration::ZERO, |retry_after| retry_after.wait(now.wall_ms, RETRY_AFTER_MAX));
    now.monotonic.saturating_add(wait.max(requested))
}
