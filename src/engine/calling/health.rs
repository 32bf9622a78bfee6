//! Tracks whether a provider is up, by the answers that a lane gets.
//!
//! **An outage is no record's fault.** A provider that is down, or refuses the lane's credentials, is tried with one
//! call at a time, and nothing else is sent before that call is answered. The waits between tries grow, whichever call
//! is tried: calls also have waits of their own, but a window of calls that have hardly waited yet would hammer the
//! provider. A record whose attempts fail while others succeed is itself at fault.
//!
//! A refusal like 401 ([`Class::Hold`]) may be about its record alone. So the next call is tried at once, later ones
//! after short waits, and only after a few refusals in a row does the lane wait as long as the refused call.

use std::time::Duration;

use crate::effect::call::{Answer, Class, Policy};
use crate::effect::provider::CallNumber;

/// After this many refused tries in a row, the lane waits as long as the refused call.
const REFUSED_MAX: u32 = 3;

/// What is known about the provider.
#[derive(Debug, Default)]
pub struct Health {
    /// When an answer last showed that it is up, on the monotonic clock.
    alive_at: Option<Duration>,
    /// When a call last succeeded, on the monotonic clock.
    done_at: Option<Duration>,
    held: Option<Held>,
}

/// The provider is down or refuses calls.
#[derive(Debug)]
struct Held {
    /// When the next call may be tried, on the monotonic clock.
    until: Duration,
    /// The call that is being tried.
    probe: Option<CallNumber>,
    /// How many tries have failed.
    failures: u32,
}

impl Health {
    /// Whether calls are held.
    pub fn is_held(&self) -> bool {
        self.held.is_some()
    }

    /// Whether another call may be sent now.
    pub fn may_send(&self, now: Duration) -> bool {
        self.held.as_ref().is_none_or(|held| held.probe.is_none() && now >= held.until)
    }

    /// When the next call may be tried, on the monotonic clock; `None` if calls are not held, or one is being tried.
    pub fn next_try(&self) -> Option<Duration> {
        self.held.as_ref().filter(|held| held.probe.is_none()).map(|held| held.until)
    }

    /// Whether this is the call that is being tried.
    pub fn is_probe(&self, number: CallNumber) -> bool {
        self.held.as_ref().is_some_and(|held| held.probe == Some(number))
    }

    /// How many tries have failed since the hold began; 0 if calls are not held.
    pub fn failures(&self) -> u32 {
        self.held.as_ref().map_or(0, |held| held.failures)
    }

    /// A call is sent.
    pub fn on_sent(&mut self, number: CallNumber) {
        if let Some(held) = &mut self.held {
            held.probe = Some(number);
        }
    }

    /// A call is withdrawn, or its record no longer waits for it.
    pub fn on_dropped(&mut self, number: CallNumber) {
        if let Some(held) = &mut self.held {
            held.probe = held.probe.filter(|probe| *probe != number);
        }
    }

    /// A call is answered. Returns whether that ends a hold.
    pub fn on_answer(&mut self, policy: &Policy, number: CallNumber, answer: &Answer, now: Duration) -> bool {
        let was_probe = self.is_probe(number);
        self.on_dropped(number);
        let class = policy.answers.read(answer, policy.key.is_some()).class;
        let shows_alive = match answer {
            // Only a provider that is up replays an earlier answer, or refuses a handler's step.
            Answer::HalfDone => true,
            Answer::Status(status) if status.is_replayed => true,
            Answer::Status(_) | Answer::Refused => {
                matches!(class, Class::Done | Class::Rejected | Class::Conflict | Class::InProgress)
            }
            Answer::NotSent | Answer::Lost | Answer::TooLate => false,
        };
        if !shows_alive {
            self.held.iter_mut().for_each(|held| held.failures += u32::from(was_probe));
            return false;
        }
        self.alive_at = Some(now);
        if class == Class::Done {
            self.done_at = Some(now);
        }
        self.held.take().is_some()
    }

    /// Whether no answer since `since` shows that the provider is alive or, for a refusal, that other calls succeed: a
    /// provider may reject an invalid request before it checks the secret.
    pub fn is_down_since(&self, since: Duration, class: Class) -> bool {
        let seen_at = if class == Class::Hold { self.done_at } else { self.alive_at };
        seen_at.is_none_or(|seen_at| seen_at < since)
    }

    /// Until when the other calls wait for a refused call, which itself waits until `until`. `wait` gives the wait
    /// after this many failures.
    pub fn refused_until(&self, until: Duration, now: Duration, wait: impl FnOnce(u32) -> Duration) -> Duration {
        match self.failures() {
            0 => now,
            failed if failed < REFUSED_MAX => now + wait(failed),
            _ => until,
        }
    }

    /// Holds calls until `until`. Returns whether they were not held before.
    pub fn hold(&mut self, until: Duration) -> bool {
        match &mut self.held {
            Some(held) => {
                held.until = held.until.max(until);
                false
            }
            None => {
                self.held = Some(Held { until, probe: None, failures: 0 });
                true
            }
        }
    }

    /// Puts off the next try until `until`, if calls are held.
    pub fn put_off(&mut self, until: Duration) {
        if let Some(held) = &mut self.held {
            held.until = held.until.max(until);
        }
    }
}

#[cfg(test)]
mod tests {
    //! Goal: a provider that is down is tried with one call at a time, and found alive by the first answer.

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
    fn provider_that_is_down_is_tried_with_one_call_at_a_time() {
        let mut health = Health::default();
        assert!(health.may_send(SECOND) && health.hold(SECOND * 5) && !health.hold(SECOND * 4));
        assert!(!health.may_send(SECOND * 4) && health.may_send(SECOND * 5));
        assert_eq!(health.next_try(), Some(SECOND * 5));
        health.on_sent(7);
        assert!(!health.may_send(SECOND * 9) && health.next_try().is_none());
        // The try gets no answer.
        assert!(health.is_probe(7) && health.failures() == 0);
        assert!(!health.on_answer(&policy(), 7, &Answer::Lost, SECOND * 9));
        // A call sent before the hold is not a try.
        assert!(!health.on_answer(&policy(), 6, &Answer::Lost, SECOND * 9));
        assert!(!health.is_probe(7) && health.failures() == 1);
        health.put_off(SECOND * 12);
        assert!(!health.may_send(SECOND * 11) && health.may_send(SECOND * 12));
        health.on_sent(8);
        assert!(health.on_answer(&policy(), 8, &Answer::Status(Status::of(422)), SECOND * 13));
        assert!(!health.is_held() && health.may_send(SECOND * 13) && health.failures() == 0);
    }

    #[test]
    fn only_definite_or_replayed_answers_show_that_the_provider_is_alive() {
        let mut health = Health::default();
        assert!(health.is_down_since(SECOND, Class::Again));
        let answers = [(201, true), (404, true), (422, true), (500, false), (503, false), (401, false)];
        for (at, (code, is_alive)) in (2_u32..).zip(answers) {
            health.on_answer(&policy(), 1, &Answer::Status(Status::of(code)), SECOND * at);
            assert_eq!(!health.is_down_since(SECOND * at, Class::Again), is_alive, "{code}");
        }
        // A replayed answer shows it, too: otherwise a call that is alone in its lane would be held for ever.
        let repeated = Status { is_replayed: true, ..Status::of(500) };
        health.on_answer(&policy(), 1, &Answer::Status(repeated), SECOND * 100);
        assert!(!health.is_down_since(SECOND * 100, Class::Again));
        health.on_answer(&policy(), 1, &Answer::NotSent, SECOND * 900);
        assert!(health.is_down_since(SECOND * 900, Class::Again));
    }

    /// With a wrong secret, invalid requests may still be answered as invalid.
    #[test]
    fn only_a_success_shows_that_other_calls_succeed() {
        let mut health = Health::default();
        for code in [404, 422, 409] {
            health.on_answer(&policy(), 1, &Answer::Status(Status::of(code)), SECOND * 2);
            assert!(health.is_down_since(SECOND, Class::Hold) && !health.is_down_since(SECOND, Class::Again), "{code}");
        }
        health.on_answer(&policy(), 1, &Answer::Status(Status::of(201)), SECOND * 3);
        assert!(!health.is_down_since(SECOND * 3, Class::Hold) && health.is_down_since(SECOND * 4, Class::Hold));
    }

    #[test]
    fn first_refusal_does_not_delay_other_calls() {
        let (mut health, until) = (Health::default(), SECOND * 90);
        let wait = |failed| SECOND * failed;
        let refused = Answer::Status(Status::of(403));
        for (number, expected) in (0_u64..).zip([SECOND, SECOND * 2, SECOND * 3, until, until]) {
            health.on_sent(number);
            assert!(!health.on_answer(&policy(), number, &refused, SECOND));
            let refused_until = health.refused_until(until, SECOND, wait);
            assert_eq!(refused_until, expected, "{number}");
            health.hold(refused_until);
        }
    }

    #[test]
    fn dropped_call_does_not_hold_up_the_next() {
        let mut health = Health::default();
        health.hold(SECOND);
        health.on_sent(3);
        health.on_dropped(4);
        assert!(!health.may_send(SECOND * 2));
        health.on_dropped(3);
        assert!(health.may_send(SECOND * 2));
    }
}
