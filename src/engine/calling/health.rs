//! Tracks whether a provider is up, judging by the outcomes of a lane's attempts. A lane is a thread that processes
//! some of the input partitions.
//!
//! **An outage is no record's fault.** While a provider is down, or refuses the lane's credentials, calls are held: the
//! provider is probed with one call at a time, and nothing else is sent before that probe has ended. The waits between
//! probes grow from probe to probe, even if each probe is a different call: if only the calls' own backoffs counted,
//! many calls would soon be due and overload the provider. A record whose attempts fail while others succeed is itself
//! at fault.
//!
//! A refusal like 401 ([`Class::Hold`]) may concern its record alone. While the refused call waits for its own next
//! attempt, another call is sent immediately as a probe, and later probes follow after short waits. Only after a few
//! refusals in a row do all calls wait until the refused call's next attempt.

use std::time::Duration;

use crate::effect::call::{AttemptOutcome, Class, Policy};
use crate::effect::provider::CallNumber;

/// After this many failed probes in a row, a refusal makes all calls wait until the refused call's next attempt.
const REFUSED_MAX: u32 = 3;

/// What is known about the provider.
#[derive(Debug, Default)]
pub struct Health {
    /// When an attempt last showed that the provider is up, on the monotonic clock.
    last_alive_at: Option<Duration>,
    /// When a call last succeeded, on the monotonic clock.
    last_success_at: Option<Duration>,
    /// Present while calls are held.
    hold: Option<Hold>,
}

/// The provider is down or refuses calls.
#[derive(Debug)]
struct Hold {
    /// When the next probe may be sent, on the monotonic clock.
    until: Duration,
    /// The call that is the current probe.
    probe: Option<CallNumber>,
    /// How many probes have failed.
    failures: u32,
}

impl Health {
    /// Whether calls are held.
    pub fn is_held(&self) -> bool {
        self.hold.is_some()
    }

    /// Whether another call may be sent now.
    pub fn may_send(&self, now: Duration) -> bool {
        self.hold.as_ref().is_none_or(|hold| hold.probe.is_none() && now >= hold.until)
    }

    /// When the next probe may be sent, on the monotonic clock; `None` if calls are not held, or a probe is under way.
    pub fn next_probe_at(&self) -> Option<Duration> {
        self.hold.as_ref().filter(|hold| hold.probe.is_none()).map(|hold| hold.until)
    }

    /// Whether this call is the current probe.
    pub fn is_probe(&self, number: CallNumber) -> bool {
        self.hold.as_ref().is_some_and(|hold| hold.probe == Some(number))
    }

    /// How many probes have failed since the hold began; 0 if calls are not held.
    pub fn failures(&self) -> u32 {
        self.hold.as_ref().map_or(0, |hold| hold.failures)
    }

    /// Records that a call was sent. While calls are held, it is the probe.
    pub fn on_sent(&mut self, number: CallNumber) {
        if let Some(hold) = &mut self.hold {
            hold.probe = Some(number);
        }
    }

    /// Records that a call is no longer the probe, if it was: its attempt has ended, or the call was withdrawn, or its
    /// record no longer waits for it.
    pub fn on_dropped(&mut self, number: CallNumber) {
        if let Some(hold) = &mut self.hold {
            hold.probe = hold.probe.filter(|probe| *probe != number);
        }
    }

    /// Records the outcome of a call's attempt. Returns whether it ends a hold.
    pub fn on_attempt_end(
        &mut self,
        policy: &Policy,
        number: CallNumber,
        outcome: &AttemptOutcome,
        now: Duration,
    ) -> bool {
        let was_probe = self.is_probe(number);
        self.on_dropped(number);
        let class = policy.answers.read(outcome, policy.key.is_some()).class;
        let shows_alive = match outcome {
            // A compensation, which should have undone a step of a handler, was rejected: only a provider that is up
            // rejects anything.
            AttemptOutcome::HalfDone => true,
            // Only a provider that is up replays an earlier response.
            AttemptOutcome::Status(status) if status.is_replayed => true,
            AttemptOutcome::Status(_) | AttemptOutcome::Refused => {
                matches!(class, Class::Done | Class::Rejected | Class::Conflict | Class::InProgress)
            }
            AttemptOutcome::NotSent | AttemptOutcome::Lost | AttemptOutcome::TooLate => false,
        };
        if !shows_alive {
            self.hold.iter_mut().for_each(|hold| hold.failures += u32::from(was_probe));
            return false;
        }
        self.last_alive_at = Some(now);
        if class == Class::Done {
            self.last_success_at = Some(now);
        }
        self.hold.take().is_some()
    }

    /// Whether the provider counts as down since `since`, for a call whose attempt ended in this class: if the call was
    /// refused ([`Class::Hold`]), no call has succeeded since then; otherwise, no attempt has shown since then that the
    /// provider is alive. After a refusal a sign of life is not enough: a provider may reject an invalid request before
    /// it checks the secret.
    pub fn is_down_since(&self, since: Duration, class: Class) -> bool {
        let last_at = if class == Class::Hold { self.last_success_at } else { self.last_alive_at };
        last_at.is_none_or(|last_at| last_at < since)
    }

    /// Until when the other calls wait after a refusal; the refused call itself waits until `until`. `wait` returns how
    /// long to wait after this many failures.
    pub fn others_wait_until(&self, until: Duration, now: Duration, wait: impl FnOnce(u32) -> Duration) -> Duration {
        match self.failures() {
            0 => now,
            failures if failures < REFUSED_MAX => now + wait(failures),
            _ => until,
        }
    }

    /// Holds calls until `until`. Returns whether they were not held before.
    pub fn hold(&mut self, until: Duration) -> bool {
        match &mut self.hold {
            Some(hold) => {
                hold.until = hold.until.max(until);
                false
            }
            None => {
                self.hold = Some(Hold { until, probe: None, failures: 0 });
                true
            }
        }
    }

    /// Delays the next probe until `until`, if calls are held.
    pub fn delay_probe(&mut self, until: Duration) {
        if let Some(hold) = &mut self.hold {
            hold.until = hold.until.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a provider that is down is probed with one call at a time, and recognised as alive by the first response.

    use super::*;
    use crate::effect::call::{Answers, Jitter, OnInDoubt, OnUnavailable, Reserve, Retry, Status};

    const SECOND: Duration = Duration::from_secs(1);

    fn policy() -> Policy {
        Policy {
            key: None,
            reserve: Reserve::Always,
            on_in_doubt: OnInDoubt::DeadLetter,
            on_unavailable: OnUnavailable::Hold,
            retry: Retry { first: SECOND, factor: 2, max: SECOND * 30, jitter: Jitter::None, attempts: 3 },
            answers: Answers::default(),
        }
    }

    #[test]
    fn provider_that_is_down_is_probed_with_one_call_at_a_time() {
        let mut health = Health::default();
        assert!(health.may_send(SECOND) && health.hold(SECOND * 5) && !health.hold(SECOND * 4));
        assert!(!health.may_send(SECOND * 4) && health.may_send(SECOND * 5));
        assert_eq!(health.next_probe_at(), Some(SECOND * 5));
        health.on_sent(7);
        assert!(!health.may_send(SECOND * 9) && health.next_probe_at().is_none());
        // The probe gets no response.
        assert!(health.is_probe(7) && health.failures() == 0);
        assert!(!health.on_attempt_end(&policy(), 7, &AttemptOutcome::Lost, SECOND * 9));
        // A call sent before the hold is not a probe.
        assert!(!health.on_attempt_end(&policy(), 6, &AttemptOutcome::Lost, SECOND * 9));
        assert!(!health.is_probe(7) && health.failures() == 1);
        health.delay_probe(SECOND * 12);
        assert!(!health.may_send(SECOND * 11) && health.may_send(SECOND * 12));
        health.on_sent(8);
        assert!(health.on_attempt_end(&policy(), 8, &AttemptOutcome::Status(Status::of(422)), SECOND * 13));
        assert!(!health.is_held() && health.may_send(SECOND * 13) && health.failures() == 0);
    }

    #[test]
    fn only_definite_or_replayed_responses_show_that_the_provider_is_alive() {
        let mut health = Health::default();
        assert!(health.is_down_since(SECOND, Class::Again));
        let responses = [(201, true), (404, true), (422, true), (500, false), (503, false), (401, false)];
        for (at, (code, is_alive)) in (2_u32..).zip(responses) {
            health.on_attempt_end(&policy(), 1, &AttemptOutcome::Status(Status::of(code)), SECOND * at);
            assert_eq!(!health.is_down_since(SECOND * at, Class::Again), is_alive, "{code}");
        }
        // A replayed response shows it, too: otherwise the only call of a lane would be held for ever.
        let replayed = Status { is_replayed: true, ..Status::of(500) };
        health.on_attempt_end(&policy(), 1, &AttemptOutcome::Status(replayed), SECOND * 100);
        assert!(!health.is_down_since(SECOND * 100, Class::Again));
        health.on_attempt_end(&policy(), 1, &AttemptOutcome::NotSent, SECOND * 900);
        assert!(health.is_down_since(SECOND * 900, Class::Again));
    }

    /// A provider may reject invalid requests as such although the secret is wrong.
    #[test]
    fn only_a_success_shows_that_other_calls_succeed() {
        let mut health = Health::default();
        for code in [404, 422, 409] {
            health.on_attempt_end(&policy(), 1, &AttemptOutcome::Status(Status::of(code)), SECOND * 2);
            assert!(health.is_down_since(SECOND, Class::Hold) && !health.is_down_since(SECOND, Class::Again), "{code}");
        }
        health.on_attempt_end(&policy(), 1, &AttemptOutcome::Status(Status::of(201)), SECOND * 3);
        assert!(!health.is_down_since(SECOND * 3, Class::Hold) && health.is_down_since(SECOND * 4, Class::Hold));
    }

    #[test]
    fn first_refusal_does_not_delay_other_calls() {
        let (mut health, until) = (Health::default(), SECOND * 90);
        let wait = |failures| SECOND * failures;
        let refused = AttemptOutcome::Status(Status::of(403));
        for (number, expected) in (0_u64..).zip([SECOND, SECOND * 2, SECOND * 3, until, until]) {
            health.on_sent(number);
            assert!(!health.on_attempt_end(&policy(), number, &refused, SECOND));
            let others_wait_until = health.others_wait_until(until, SECOND, wait);
            assert_eq!(others_wait_until, expected, "{number}");
            health.hold(others_wait_until);
        }
    }

    #[test]
    fn dropped_probe_does_not_delay_the_next() {
        let mut health = Health::default();
        health.hold(SECOND);
        health.on_sent(3);
        health.on_dropped(4);
        assert!(!health.may_send(SECOND * 2));
        health.on_dropped(3);
        assert!(health.may_send(SECOND * 2));
    }
}
