//! What happens to a call at the end of an attempt.

use std::time::Duration;

use super::{Action, Call, Outcome, Stage};
use crate::effect::call::backoff::{Draw, RETRY_AFTER_MAX};
use crate::effect::call::{Answer, Class, Now, OnInDoubt, OnUnavailable, Policy, Reading, RetryAfter};

/// How often a call's attempts may find another one of the same key under way before the call is in doubt.
pub const IN_PROGRESS_MAX: u32 = 5;
/// The least number of refusals, while other calls succeed, that are taken to be the record's fault. A single one may
/// be chance: after a secret has become invalid, the last successes of other calls may arrive after the first refusal.
const REFUSED_MIN: u32 = 2;

/// What decides the outcome of an attempt, besides its answer.
pub(super) struct Attempt<'a> {
    pub(super) policy: &'a Policy,
    pub(super) now: Now,
    /// Whether no answer since the end of the previous attempt shows that the provider is alive, or, for a refusal,
    /// that other calls succeed.
    pub(super) is_down: bool,
    pub(super) draw: Draw<'a>,
}

impl Attempt<'_> {
    /// Ends an attempt of this call.
    pub(super) fn over(self, call: Call, answer: &Answer) -> (Call, Action) {
        let retry_after = match answer {
            Answer::TooLate => return call.too_late(self.policy),
            Answer::Refused => return call.decided(Outcome::Rejected),
            Answer::HalfDone => return Call { may_have_acted: true, ..call }.decided(Outcome::InDoubt),
            Answer::Status(status) => status.retry_after,
            Answer::NotSent | Answer::Lost => None,
        };
        let Reading { class, may_have_acted } = self.policy.answers.read(answer, self.policy.key.is_some());
        let after = Call { may_have_acted: call.may_have_acted || may_have_acted, ..call };
        match class {
            Class::Done => after.decided(Outcome::Done),
            Class::Conflict => after.decided(Outcome::Conflict),
            // A rejection says nothing about an earlier attempt.
            Class::Rejected if call.may_have_acted => self.doubt(after),
            Class::Rejected => after.decided(Outcome::Rejected),
            Class::InDoubt => self.doubt(after),
            Class::Again => self.again(after, retry_after),
            Class::Hold => self.hold(after, retry_after),
            Class::InProgress if after.in_progress >= IN_PROGRESS_MAX => self.doubt(Call { in_progress: 0, ..after }),
            Class::InProgress => {
                let in_progress = after.in_progress + 1;
                self.later_than_half(Call { in_progress, ..after }, in_progress, retry_after)
            }
        }
    }

    fn doubt(self, call: Call) -> (Call, Action) {
        match self.policy.on_in_doubt {
            OnInDoubt::DeadLetter | OnInDoubt::Fail => call.decided(Outcome::InDoubt),
            OnInDoubt::Retry => self.again(call, None),
        }
    }

    /// Counts the attempt, and has the call sent again unless its attempts are exhausted. Failures while the provider
    /// is down do not count: otherwise every call that was under way when it went down would be given up.
    fn again(self, call: Call, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let failed = call.failed.saturating_add(1);
        if self.is_down && self.policy.on_unavailable == OnUnavailable::Hold {
            let not_before = until(self.now, self.policy.retry.wait(failed, self.draw), retry_after);
            return (Call { stage: Stage::Ready, not_before, failed, ..call }, Action::Hold(not_before));
        }
        let call = Call { counted: call.counted.saturating_add(1), failed, ..call };
        match call.counted < self.policy.retry.attempts {
            true => self.later(call, failed, retry_after),
            false => call.decided(Outcome::Unavailable),
        }
    }

    /// Has the call sent again after the wait that follows this many failures.
    fn later(self, call: Call, failures: u32, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let wait = self.policy.retry.wait(failures, self.draw);
        let not_before = until(self.now, wait, retry_after);
        Call { not_before, ..call }.ready()
    }

    /// The same, but after half of the longest wait at least: the attempt that is under way needs time, and with full
    /// jitter several attempts could be sent within milliseconds.
    fn later_than_half(self, call: Call, failures: u32, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let half = self.policy.retry.ceiling(failures) / 2;
        let wait = half + self.policy.retry.wait(failures, self.draw) / 2;
        let not_before = until(self.now, wait, retry_after);
        Call { not_before, ..call }.ready()
    }

    /// Holds the lane while no other call succeeds. If another call has succeeded since this record's previous attempt,
    /// the refusal is about this record, and the attempt counts.
    fn hold(self, call: Call, retry_after: Option<RetryAfter>) -> (Call, Action) {
        let (is_first, failed) = (call.failed == 0, call.failed.saturating_add(1));
        if is_first || self.is_down {
            let not_before = until(self.now, self.policy.retry.max, retry_after);
            return (Call { stage: Stage::Ready, not_before, failed, ..call }, Action::Hold(not_before));
        }
        let call = Call { counted: call.counted.saturating_add(1), failed, ..call };
        match call.counted < self.policy.retry.attempts.max(REFUSED_MIN) {
            true => self.later(call, failed, retry_after),
            false if call.may_have_acted => self.doubt(call),
            false => call.decided(Outcome::Rejected),
        }
    }
}

/// The end of a wait, or when the provider wants to be asked again, whichever is later.
fn until(now: Now, wait: Duration, retry_after: Option<RetryAfter>) -> Duration {
    let asked = retry_after.map_or(Duration::ZERO, |asked| asked.wait(now.wall_ms, RETRY_AFTER_MAX));
    now.monotonic.saturating_add(wait.max(asked))
}
