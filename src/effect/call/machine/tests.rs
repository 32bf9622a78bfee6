//! Goal: the state machine follows each rule of the protocol, and no order of events breaks a promise.

use std::time::Duration;

use super::super::{Answers, Jitter, KeyWindow, OnUnavailable, OverrideClass, Retry, RetryAfter, Status, StatusCodes};
use super::*;

mod every_order;

const SECOND: Duration = Duration::from_secs(1);
/// The time at which calls begin.
const BEGUN: Now = Now { wall_ms: 1_000_000, monotonic: Duration::from_secs(50) };
/// The provider honours a key for this long; an attempt may take a tenth of it.
const HONOURED_MS: i64 = 100_000;

fn retry() -> Retry {
    Retry { first: SECOND, factor: 2, max: SECOND * 30, jitter: Jitter::None, attempts: 3 }
}

/// A provider that honours a key, and reservations that are always written.
fn keyed() -> Policy {
    Policy {
        key: KeyWindow::new(Duration::from_millis(HONOURED_MS as u64), SECOND * 10, SECOND * 5),
        reserve: Reserve::Always,
        on_in_doubt: OnInDoubt::DeadLetter,
        on_unavailable: OnUnavailable::Hold,
        retry: retry(),
        answers: Answers::default(),
    }
}

fn keyless() -> Policy {
    Policy { key: None, ..keyed() }
}

fn auto() -> Policy {
    Policy { reserve: Reserve::Auto, ..keyed() }
}

fn retrying(policy: Policy) -> Policy {
    Policy { on_in_doubt: OnInDoubt::Retry, ..policy }
}

fn after(seconds: u64) -> Now {
    Now { wall_ms: BEGUN.wall_ms + seconds as i64 * 1_000, monotonic: BEGUN.monotonic + SECOND * seconds as u32 }
}

const fn status(code: u16) -> AttemptOutcome {
    AttemptOutcome::Status(Status::of(code))
}

/// A call, and the time by its clock.
struct Driven {
    policy: Policy,
    call: Call,
    now: Now,
}

impl Driven {
    fn step(&mut self, event: Event) -> Option<Action> {
        let (call, action) = next(&self.policy, self.call, event, self.now, &mut |max| max);
        self.call = call;
        action
    }

    /// A new call that was reserved and is ready.
    fn reserved(policy: Policy) -> Self {
        let (call, action) = begin(&policy, None, BEGUN);
        assert_eq!(action, Action::Write(Permit::Reservation));
        let mut driven = Self { policy, call, now: BEGUN };
        assert_eq!(driven.step(Event::Written { since_ms: BEGUN.wall_ms }), None);
        assert_eq!(driven.step(Event::Committed), Some(Action::SendAt(BEGUN.monotonic)));
        driven
    }

    /// Sends the call once it may be sent, and ends the attempt with this outcome.
    fn attempt(&mut self, outcome: AttemptOutcome, is_down: bool) -> Action {
        self.now.monotonic = self.now.monotonic.max(self.call.not_before);
        let Some(Action::Send { attempt }) = self.step(Event::Dispatch) else { panic!("{:?} is not sent", self.call) };
        self.step(Event::AttemptEnded { attempt, outcome, is_down }).expect("the end of an attempt leads to an action")
    }
}

/// The action and the call after attempts with these outcomes, all but the last of which lead to another attempt.
fn after_attempts(policy: Policy, outcomes: &[AttemptOutcome]) -> (Action, Call) {
    let mut driven = Driven::reserved(policy);
    let mut last = None;
    for outcome in outcomes {
        last = Some(driven.attempt(*outcome, false));
    }
    (last.expect("there is an outcome"), driven.call)
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn outcomes_of_attempts_decide_the_outcome_of_the_call() {
    use AttemptOutcome::{Lost, NotSent, Refused};
    use Outcome::*;
    let named = |code, named| {
        let answers = Answers::new(vec![(StatusCodes::One(code), named)]).unwrap();
        move |policy: Policy| Policy { answers, ..policy }
    };
    let naming_key = AttemptOutcome::Status(Status { names_key: true, ..Status::of(422) });
    let replayed = AttemptOutcome::Status(Status { is_replayed: true, ..Status::of(500) });
    let given_up = RememberedOutcome::GivenUp { first_attempt_at_ms: BEGUN.wall_ms };
    let cases: Vec<(&str, Policy, Vec<AttemptOutcome>, Outcome, RememberedOutcome)> = vec![
        ("done", keyed(), vec![status(201)], Done, RememberedOutcome::Done),
        ("done at the second attempt", keyed(), vec![status(500), status(200)], Done, RememberedOutcome::Done),
        ("done at the last attempt", keyed(), vec![Lost, status(503), status(200)], Done, RememberedOutcome::Done),
        ("done without a key", keyless(), vec![status(200)], Done, RememberedOutcome::Done),
        ("rejected", keyed(), vec![status(402)], Rejected, RememberedOutcome::Failed),
        ("rejected without a key", keyless(), vec![status(402)], Rejected, RememberedOutcome::Failed),
        (
            "rejected after an attempt that was not sent",
            keyed(),
            vec![NotSent, status(402)],
            Rejected,
            RememberedOutcome::Failed,
        ),
        ("rejected after 429", keyless(), vec![status(429), status(402)], Rejected, RememberedOutcome::Failed),
        ("rejected after a wrong secret", keyed(), vec![status(401), status(402)], Rejected, RememberedOutcome::Failed),
        (
            "rejected after an attempt that may have acted",
            keyed(),
            vec![Lost, status(402)],
            InDoubt,
            RememberedOutcome::Failed,
        ),
        (
            "refused for good after an attempt that may have acted",
            keyed(),
            vec![Lost, Refused],
            Rejected,
            RememberedOutcome::Failed,
        ),
        (
            "rejected after two more attempts",
            keyed(),
            vec![status(500), NotSent, status(402)],
            InDoubt,
            RememberedOutcome::Failed,
        ),
        ("conflict", keyed(), vec![naming_key], Conflict, RememberedOutcome::Failed),
        ("conflict after an attempt", keyed(), vec![Lost, naming_key], Conflict, RememberedOutcome::Failed),
        ("no key to conflict with", keyless(), vec![naming_key], Rejected, RememberedOutcome::Failed),
        ("lost without a key", keyless(), vec![Lost], InDoubt, RememberedOutcome::Failed),
        ("500 without a key", keyless(), vec![status(500)], InDoubt, RememberedOutcome::Failed),
        ("408 without a key", keyless(), vec![status(408)], InDoubt, RememberedOutcome::Failed),
        ("409 without a key", keyless(), vec![status(409)], InDoubt, RememberedOutcome::Failed),
        ("lost without a key, after 429", keyless(), vec![status(429), Lost], InDoubt, RememberedOutcome::Failed),
        ("a 5xx that is replayed", keyed(), vec![replayed], InDoubt, RememberedOutcome::Failed),
        ("409 too often", keyed(), vec![status(409); 6], InDoubt, RememberedOutcome::Failed),
        (
            "409 as often as permitted",
            keyed(),
            [vec![status(409); 5], vec![status(200)]].concat(),
            Done,
            RememberedOutcome::Done,
        ),
        ("never sent", keyed(), vec![NotSent; 3], Unavailable, RememberedOutcome::AsBefore),
        ("never accepted", keyless(), vec![status(429); 3], Unavailable, RememberedOutcome::AsBefore),
        ("exhausted, may have acted", keyed(), vec![Lost; 3], Unavailable, given_up),
        ("exhausted, may have acted once", keyed(), vec![NotSent, status(500), NotSent], Unavailable, given_up),
        ("exhausted without a key", retrying(keyless()), vec![Lost; 3], Unavailable, given_up),
        ("made again without a key", retrying(keyless()), vec![Lost, status(200)], Done, RememberedOutcome::Done),
        (
            "a rejection in doubt made again",
            retrying(keyed()),
            vec![Lost, status(402), status(200)],
            Done,
            RememberedOutcome::Done,
        ),
        (
            "404 counts as done",
            named(404, OverrideClass::Done)(keyed()),
            vec![status(404)],
            Done,
            RememberedOutcome::Done,
        ),
        (
            "404 is sent again",
            named(404, OverrideClass::Again)(keyless()),
            vec![status(404), status(200)],
            Done,
            RememberedOutcome::Done,
        ),
        (
            "500 counts as rejected",
            named(500, OverrideClass::Rejected)(keyless()),
            vec![status(500)],
            Rejected,
            RememberedOutcome::Failed,
        ),
        (
            "503 is sent again",
            named(503, OverrideClass::Again)(keyless()),
            vec![status(503), status(402)],
            InDoubt,
            RememberedOutcome::Failed,
        ),
    ];
    for (case, policy, attempts, outcome, remembered) in cases {
        let (action, call) = after_attempts(policy, &attempts);
        assert_eq!(action, Action::Settle(outcome), "{case}");
        assert_eq!(call.stage(), Stage::Decided(outcome), "{case}");
        assert_eq!(call.remembered_outcome(outcome), remembered, "{case}");
    }
}

#[test]
fn new_call_waits_for_its_permit() {
    use Action::{SendAt, Settle, Write};
    use Permit::{Grant, Reservation};
    let grant = |seconds: i64, is_from_former_owner| {
        Some(CoveringGrant { since_ms: BEGUN.wall_ms - seconds * 1_000, is_from_former_owner })
    };
    let at_once = SendAt(BEGUN.monotonic);
    let keyless_auto = Policy { reserve: Reserve::Auto, ..keyless() };
    let since = |seconds: i64| Some(BEGUN.wall_ms - seconds * 1_000);
    let cases = [
        ("always reserved", keyed(), None, Write(Reservation), None),
        ("always, though granted", keyed(), grant(0, false), Write(Reservation), None),
        ("without a key", keyless_auto, grant(0, false), Write(Reservation), None),
        ("not granted yet", auto(), None, Write(Grant), None),
        ("granted", auto(), grant(0, false), at_once, since(0)),
        ("granted for half of the window", auto(), grant(49, false), at_once, since(49)),
        ("granted for too long", auto(), grant(50, false), Write(Reservation), None),
        ("granted to a former owner", auto(), grant(49, true), at_once, since(49)),
        ("... for too long", auto(), grant(50, true), Write(Reservation), since(50)),
        ("... so that an attempt just fits", auto(), grant(84, true), Write(Reservation), since(84)),
        ("... and the window has passed", auto(), grant(85, true), Settle(Outcome::InDoubt), since(85)),
        ("... and it is made again", retrying(auto()), grant(85, true), Write(Reservation), None),
    ];
    for (case, policy, grant, expected, first_attempt_at_ms) in cases {
        let (call, action) = begin(&policy, grant, BEGUN);
        assert_eq!((action, call.first_attempt_at_ms()), (expected, first_attempt_at_ms), "{case}");
        let may_have_acted = grant.is_some_and(|grant| grant.is_from_former_owner);
        assert_eq!(call.may_have_acted(), may_have_acted, "{case}");
    }
}

#[test]
fn found_call_continues_while_its_key_is_honoured() {
    use Action::{SendAt, Settle, Write};
    let at_once = SendAt(BEGUN.monotonic);
    let cases = [
        ("within the window", keyed(), 84, at_once),
        ("beyond it", keyed(), 85, Settle(Outcome::InDoubt)),
        (
            "beyond it, and the task stops",
            Policy { on_in_doubt: OnInDoubt::Fail, ..keyed() },
            85,
            Settle(Outcome::InDoubt),
        ),
        ("beyond it, made again", retrying(keyed()), 85, Write(Permit::Reservation)),
        ("without a key", keyless(), 0, Settle(Outcome::InDoubt)),
        ("without a key, made again", retrying(keyless()), 1_000, at_once),
        ("by a clock that has gone back", keyed(), -6, Settle(Outcome::InDoubt)),
    ];
    for (case, policy, seconds, expected) in cases {
        let found =
            FoundCall { first_attempt_at_ms: BEGUN.wall_ms - seconds * 1_000, attempts: 0, may_have_acted: true };
        let (call, action) = resume(&policy, found, BEGUN);
        assert_eq!(action, expected, "{case}");
        assert!(call.may_have_acted() && !call.can_release_reservation(), "{case}");
    }
}

#[test]
fn found_call_keeps_its_count_of_attempts() {
    let found = FoundCall { first_attempt_at_ms: BEGUN.wall_ms, attempts: 2, may_have_acted: true };
    let (call, _) = resume(&keyed(), found, BEGUN);
    let mut driven = Driven { policy: keyed(), call, now: BEGUN };
    assert_eq!(driven.attempt(AttemptOutcome::Lost, false), Action::Settle(Outcome::Unavailable));
    assert_eq!(
        driven.call.remembered_outcome(Outcome::Unavailable),
        RememberedOutcome::GivenUp { first_attempt_at_ms: BEGUN.wall_ms }
    );
}

/// A call that is under way again after attempts with these outcomes.
fn under_way(policy: Policy, outcomes: &[AttemptOutcome]) -> Driven {
    let mut driven = Driven::reserved(policy);
    for outcome in outcomes {
        driven.attempt(*outcome, false);
    }
    driven.now.monotonic = driven.now.monotonic.max(driven.call.not_before);
    assert!(matches!(driven.step(Event::Dispatch), Some(Action::Send { .. })));
    driven
}

#[test]
fn commit_of_steps_restarts_the_count_and_the_window() {
    let mut driven = under_way(keyed(), &[AttemptOutcome::Lost, AttemptOutcome::Lost]);
    let attempt = driven.call.attempt();
    let since_ms = BEGUN.wall_ms + 60_000;
    assert_eq!(driven.step(Event::Journaled { since_ms }), None);
    assert_eq!((driven.call.stage(), driven.call.attempts()), (Stage::Sent, 0));
    assert_eq!(driven.call.first_attempt_at_ms(), Some(since_ms));
    // The attempt is the same, and no earlier attempt can have carried out the step that is refused now.
    let refused = Event::AttemptEnded { attempt, outcome: status(422), is_down: false };
    assert_eq!(driven.step(refused), Some(Action::Settle(Outcome::Rejected)));
    // Without the commit, the call would be in doubt.
    let mut driven = under_way(keyed(), &[AttemptOutcome::Lost, AttemptOutcome::Lost]);
    assert_eq!(driven.step(refused), Some(Action::Settle(Outcome::InDoubt)));
}

#[test]
fn step_that_may_have_acted_after_a_commit_is_in_doubt() {
    let mut driven = under_way(keyless(), &[]);
    driven.step(Event::Journaled { since_ms: BEGUN.wall_ms });
    let lost = Event::AttemptEnded { attempt: 1, outcome: AttemptOutcome::Lost, is_down: false };
    assert_eq!(driven.step(lost), Some(Action::Settle(Outcome::InDoubt)));
    let mut driven = under_way(keyless(), &[]);
    driven.step(Event::Journaled { since_ms: BEGUN.wall_ms });
    let not_sent = Event::AttemptEnded { attempt: 1, outcome: AttemptOutcome::NotSent, is_down: false };
    assert!(matches!(driven.step(not_sent), Some(Action::SendAt(_))));
    assert!(driven.call.can_release_reservation(), "its step has not acted");
}

#[test]
fn call_that_has_certainly_not_acted_is_reserved_again() {
    for (policy, seconds) in [(keyed(), 0), (keyed(), 85), (keyless(), 0), (keyless(), 9_000)] {
        let first_attempt_at_ms = BEGUN.wall_ms - seconds * 1_000;
        let found = FoundCall { first_attempt_at_ms, attempts: 0, may_have_acted: false };
        let (call, action) = resume(&policy, found, BEGUN);
        assert_eq!(action, Action::Write(Permit::Reservation), "{seconds}");
        assert!(!call.may_have_acted() && call.first_attempt_at_ms().is_none(), "{seconds}");
    }
}

#[test]
fn attempt_of_steps_is_made_even_after_the_window() {
    let policy = Policy { key: keyed().key.map(KeyWindow::per_step), ..keyed() };
    let found = FoundCall { first_attempt_at_ms: 0, attempts: 0, may_have_acted: true };
    let (call, action) = resume(&policy, found, BEGUN);
    assert_eq!(action, Action::SendAt(BEGUN.monotonic));
    let mut driven = Driven { policy, call, now: BEGUN };
    // Its next step reports that it is too late.
    assert_eq!(driven.attempt(AttemptOutcome::TooLate, false), Action::Settle(Outcome::InDoubt));
}

/// Another attempt, as with `on_in_doubt: retry`, would end in the same way.
#[test]
fn half_done_call_is_in_doubt_whatever_on_in_doubt_says() {
    for on_in_doubt in [OnInDoubt::DeadLetter, OnInDoubt::Fail, OnInDoubt::Retry] {
        for policy in [keyed(), keyless()] {
            let mut driven = Driven::reserved(Policy { on_in_doubt, ..policy });
            let action = driven.attempt(AttemptOutcome::HalfDone, false);
            assert_eq!(action, Action::Settle(Outcome::InDoubt), "{on_in_doubt:?}");
        }
    }
}

#[test]
fn waits_grow_and_are_at_least_as_long_as_the_provider_asks() {
    let asking =
        |seconds| AttemptOutcome::Status(Status { retry_after: Some(RetryAfter::Seconds(seconds)), ..Status::of(503) });
    let cases = [
        ("first", vec![status(500)], 1),
        ("second", vec![status(500), status(500)], 2),
        ("not sent", vec![AttemptOutcome::NotSent], 1),
        ("as the provider asks", vec![asking(20)], 20),
        ("not sooner than by itself", vec![asking(0)], 1),
        ("capped", vec![asking(86_400)], 300),
        ("in progress", vec![status(409), status(409), status(409)], 4),
    ];
    for (case, outcomes, seconds) in cases {
        let mut driven = Driven::reserved(keyed());
        let mut last = None;
        for outcome in outcomes {
            last = Some((driven.attempt(outcome, false), driven.now.monotonic));
        }
        let (action, from) = last.unwrap();
        assert_eq!(action, Action::SendAt(from + SECOND * seconds), "{case}");
        assert_eq!(driven.step(Event::Dispatch), Some(action), "{case}: not sent before its time");
    }
}

#[test]
fn provider_that_is_down_costs_no_attempts() {
    let mut driven = Driven::reserved(keyed());
    assert!(matches!(driven.attempt(AttemptOutcome::NotSent, false), Action::SendAt(_)));
    for failed in 2..20_u32 {
        let action = driven.attempt(AttemptOutcome::NotSent, true);
        let wait = SECOND * 2_u32.saturating_pow(failed - 1).min(30);
        assert_eq!(action, Action::Hold(driven.now.monotonic + wait), "after {failed}");
        assert_eq!((driven.call.attempts(), driven.call.may_have_acted()), (1, false));
    }
    // The provider has responded to other calls in between: this record is at fault.
    assert!(matches!(driven.attempt(AttemptOutcome::NotSent, false), Action::SendAt(_)));
    assert_eq!(driven.attempt(AttemptOutcome::NotSent, false), Action::Settle(Outcome::Unavailable));
    for on_unavailable in [OnUnavailable::DeadLetter, OnUnavailable::Fail] {
        let mut driven = Driven::reserved(Policy { on_unavailable, ..keyed() });
        let actions = [(); 3].map(|()| driven.attempt(AttemptOutcome::NotSent, true));
        assert_eq!(actions[2], Action::Settle(Outcome::Unavailable), "{on_unavailable:?}");
    }
}

#[test]
fn wrong_secret_holds_the_lane_and_costs_no_attempts() {
    for policy in [keyed(), keyless()] {
        let mut driven = Driven::reserved(policy);
        for number in 0..10 {
            // At the first refusal it is unknown whether other calls succeed.
            let action = driven.attempt(status(401), number > 0);
            assert_eq!(action, Action::Hold(driven.now.monotonic + SECOND * 30));
        }
        assert_eq!((driven.call.attempts(), driven.call.may_have_acted()), (0, false));
        assert_eq!(driven.attempt(status(200), false), Action::Settle(Outcome::Done));
    }
}

#[test]
fn record_that_is_refused_while_other_calls_succeed_is_rejected() {
    for policy in [keyed(), keyless()] {
        for code in [401, 403, 407, 301, 307, 308] {
            let mut driven = Driven::reserved(policy.clone());
            assert!(matches!(driven.attempt(status(code), false), Action::Hold(_)), "{code}");
            // While no other call succeeds, an attempt does not count.
            assert!(matches!(driven.attempt(status(code), true), Action::Hold(_)), "{code}");
            let wait = SECOND * 4;
            assert_eq!(driven.attempt(status(code), false), Action::SendAt(driven.now.monotonic + wait), "{code}");
            assert!(matches!(driven.attempt(status(code), false), Action::SendAt(_)), "{code}");
            assert_eq!(driven.attempt(status(code), false), Action::Settle(Outcome::Rejected), "{code}");
            assert_eq!(driven.call.remembered_outcome(Outcome::Rejected), RememberedOutcome::Failed);
        }
    }
}

/// A secret has become invalid, and the last successes of other calls arrive after the first refusal.
#[test]
fn single_refusal_while_other_calls_succeed_does_not_reject() {
    let mut driven = Driven::reserved(Policy { retry: Retry { attempts: 1, ..retry() }, ..keyed() });
    assert!(matches!(driven.attempt(status(401), false), Action::Hold(_)));
    assert!(matches!(driven.attempt(status(401), false), Action::SendAt(_)));
    assert!(matches!(driven.attempt(status(401), true), Action::Hold(_)));
    assert_eq!(driven.attempt(status(401), false), Action::Settle(Outcome::Rejected));
}

#[test]
fn refusal_after_an_attempt_that_may_have_acted_is_in_doubt() {
    for (policy, outcome) in
        [(keyed(), AttemptOutcome::Lost), (keyed(), status(303)), (retrying(keyless()), AttemptOutcome::Lost)]
    {
        let expected = match policy.on_in_doubt {
            OnInDoubt::Retry => Outcome::Unavailable,
            OnInDoubt::DeadLetter | OnInDoubt::Fail => Outcome::InDoubt,
        };
        let mut driven = Driven::reserved(policy);
        driven.attempt(outcome, false);
        let last = std::iter::repeat_with(|| driven.attempt(status(403), false))
            .find(|action| matches!(action, Action::Settle(_)));
        assert_eq!(last, Some(Action::Settle(expected)), "{outcome:?}");
    }
}

#[test]
fn window_is_checked_before_each_attempt() {
    // No attempt has acted: a new reservation, a new window.
    let mut driven = Driven::reserved(keyed());
    driven.attempt(AttemptOutcome::NotSent, false);
    driven.now = after(85);
    assert_eq!(driven.step(Event::Dispatch), Some(Action::Write(Permit::Reservation)));
    assert_eq!(driven.step(Event::Written { since_ms: driven.now.wall_ms }), None);
    assert_eq!(driven.call.first_attempt_at_ms(), Some(driven.now.wall_ms));
    // The same when the driver finds it too late.
    let mut driven = Driven::reserved(keyed());
    assert_eq!(driven.attempt(AttemptOutcome::TooLate, false), Action::Write(Permit::Reservation));
    assert_eq!(driven.call.attempts(), 0);
    // An attempt may have acted.
    for policy in [keyed(), auto()] {
        let (call, _) =
            begin(&policy, Some(CoveringGrant { since_ms: BEGUN.wall_ms, is_from_former_owner: false }), BEGUN);
        let call = if policy.reserve == Reserve::Auto { call } else { Driven::reserved(policy.clone()).call };
        let mut driven = Driven { policy, call, now: BEGUN };
        driven.attempt(AttemptOutcome::Lost, false);
        assert_eq!(driven.attempt(AttemptOutcome::TooLate, false), Action::Settle(Outcome::InDoubt));
    }
    // The same with `on_in_doubt: retry`: the call is reserved again, and its window begins now.
    let mut driven = Driven::reserved(retrying(keyed()));
    driven.attempt(AttemptOutcome::Lost, false);
    driven.now = after(85);
    assert_eq!(driven.step(Event::Dispatch), Some(Action::Write(Permit::Reservation)));
    driven.step(Event::Written { since_ms: driven.now.wall_ms });
    driven.step(Event::Committed);
    assert_eq!(driven.call.first_attempt_at_ms(), Some(driven.now.wall_ms));
    assert!(driven.call.may_have_acted());
}

#[test]
fn grant_that_is_committed_too_late_permits_nothing() {
    for (seconds, expected) in [(49, None), (50, Some(Action::Write(Permit::Reservation)))] {
        let (call, _) = begin(&auto(), None, BEGUN);
        let mut driven = Driven { policy: auto(), call, now: BEGUN };
        driven.step(Event::Written { since_ms: BEGUN.wall_ms });
        driven.now = after(seconds);
        let expected = expected.unwrap_or(Action::SendAt(BEGUN.monotonic));
        assert_eq!(driven.step(Event::Committed), Some(expected), "{seconds} s");
    }
}

#[test]
fn aborted_transaction_permits_nothing() {
    for (policy, permit) in [(keyed(), Permit::Reservation), (auto(), Permit::Grant)] {
        let (call, _) = begin(&policy, None, BEGUN);
        let mut driven = Driven { policy, call, now: BEGUN };
        driven.step(Event::Written { since_ms: BEGUN.wall_ms });
        driven.now = after(7);
        assert_eq!(driven.step(Event::Aborted), Some(Action::Write(permit)));
        assert_eq!(driven.call.first_attempt_at_ms(), None);
        driven.step(Event::Written { since_ms: driven.now.wall_ms });
        assert_eq!(driven.call.first_attempt_at_ms(), Some(driven.now.wall_ms));
    }
}

#[test]
fn only_calls_that_cannot_have_acted_are_released() {
    let after_attempt = |policy: Policy, outcome| {
        let mut driven = Driven::reserved(policy);
        driven.attempt(outcome, false);
        driven.call
    };
    let sent = {
        let mut driven = Driven::reserved(keyed());
        driven.step(Event::Dispatch);
        driven.call
    };
    let withdrawn = {
        let mut driven = Driven::reserved(keyed());
        driven.step(Event::Dispatch);
        driven.step(Event::Withdrawn { attempt: 1 });
        driven.call
    };
    assert!(sent.may_have_acted() && !withdrawn.may_have_acted());
    let (granted, _) =
        begin(&auto(), Some(CoveringGrant { since_ms: BEGUN.wall_ms, is_from_former_owner: false }), BEGUN);
    let cases = [
        ("reserved", Driven::reserved(keyed()).call, true),
        ("reserved without a key", Driven::reserved(keyless()).call, true),
        ("withdrawn", withdrawn, true),
        ("not sent", after_attempt(keyless(), AttemptOutcome::NotSent), true),
        ("its window has passed, unsent", after_attempt(keyed(), AttemptOutcome::TooLate), true),
        ("sent", sent, false),
        ("may have acted", after_attempt(keyed(), AttemptOutcome::Lost), false),
        ("decided", after_attempt(keyed(), status(200)), false),
        ("granted, not reserved", granted, false),
        ("not reserved yet", begin(&keyed(), None, BEGUN).0, false),
    ];
    for (case, call, expected) in cases {
        assert_eq!(call.can_release_reservation(), expected, "{case}");
        assert!(!(call.can_release_reservation() && call.may_have_acted()), "{case}");
    }
}

#[test]
fn events_of_ended_attempts_change_nothing() {
    let mut driven = Driven::reserved(keyed());
    driven.attempt(status(500), false);
    let late = Event::AttemptEnded { attempt: 1, outcome: status(200), is_down: false };
    for event in [late, Event::Withdrawn { attempt: 1 }] {
        let before = driven.call;
        assert_eq!((driven.step(event), driven.call), (None, before), "while it waits");
    }
    driven.now.monotonic += SECOND;
    assert_eq!(driven.step(Event::Dispatch), Some(Action::Send { attempt: 2 }));
    let before = driven.call;
    assert_eq!((driven.step(late), driven.call), (None, before), "while another is under way");
    let end = Event::AttemptEnded { attempt: 2, outcome: status(402), is_down: false };
    assert_eq!(driven.step(end), Some(Action::Settle(Outcome::InDoubt)));
    let before = driven.call;
    assert_eq!((driven.step(end), driven.call), (None, before), "when it is decided");
}

#[test]
#[should_panic(expected = "the event Dispatch is impossible for a call in the stage Waits(Reservation)")]
fn dispatch_before_the_permit_panics() {
    let (call, _) = begin(&keyed(), None, BEGUN);
    next(&keyed(), call, Event::Dispatch, BEGUN, &mut |max| max);
}
