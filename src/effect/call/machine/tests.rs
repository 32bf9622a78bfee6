//! Goal: each rule of the protocol has a row, and no order of events breaks a promise.

use std::time::Duration;

use super::super::{Answers, Codes, Jitter, KeyWindow, Named, OnUnavailable, Retry, RetryAfter, Status};
use super::*;

mod every_order;

const SECOND: Duration = Duration::from_secs(1);
/// When calls begin.
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

const fn status(code: u16) -> Answer {
    Answer::Status(Status::of(code))
}

/// A call, driven by hand.
struct Driven {
    policy: Policy,
    call: Call,
    now: Now,
}

impl Driven {
    fn step(&mut self, event: Event) -> Option<Action> {
        let (call, action) = next(&self.policy, self.call, event, self.now, &mut |most| most);
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

    /// Sends the call once it may be sent, and answers it.
    fn answer(&mut self, answer: Answer, is_down: bool) -> Action {
        self.now.monotonic = self.now.monotonic.max(self.call.not_before);
        let Some(Action::Send { attempt }) = self.step(Event::Dispatch) else { panic!("{:?} is not sent", self.call) };
        self.step(Event::Answered { attempt, answer, is_down }).expect("an answer always leads to something")
    }
}

/// The action after these answers, the last of which is the first that does not lead to another attempt.
fn after_answers(policy: Policy, answers: &[Answer]) -> (Action, Call) {
    let mut driven = Driven::reserved(policy);
    let mut last = None;
    for answer in answers {
        last = Some(driven.answer(*answer, false));
    }
    (last.expect("there is an answer"), driven.call)
}

#[test]
fn answers_lead_to_outcomes() {
    use Answer::{Lost, NotSent, Refused};
    use Outcome::*;
    let named = |code, named| {
        let answers = Answers::new(vec![(Codes::One(code), named)]).unwrap();
        move |policy: Policy| Policy { answers, ..policy }
    };
    let naming_key = Answer::Status(Status { names_key: true, ..Status::of(422) });
    let replayed = Answer::Status(Status { is_replayed: true, ..Status::of(500) });
    let first = Some(BEGUN.wall_ms).map(|first_at_ms| Kept::GivenUp { first_at_ms });
    let given_up = first.unwrap_or(Kept::AsBefore);
    let cases: Vec<(&str, Policy, Vec<Answer>, Outcome, Kept)> = vec![
        ("done", keyed(), vec![status(201)], Done, Kept::Done),
        ("done at the second attempt", keyed(), vec![status(500), status(200)], Done, Kept::Done),
        ("done at the last attempt", keyed(), vec![Lost, status(503), status(200)], Done, Kept::Done),
        ("done without a key", keyless(), vec![status(200)], Done, Kept::Done),
        ("rejected", keyed(), vec![status(402)], Rejected, Kept::Failed),
        ("rejected without a key", keyless(), vec![status(402)], Rejected, Kept::Failed),
        ("rejected after what was not sent", keyed(), vec![NotSent, status(402)], Rejected, Kept::Failed),
        ("rejected after 429", keyless(), vec![status(429), status(402)], Rejected, Kept::Failed),
        ("rejected after a wrong secret", keyed(), vec![status(401), status(402)], Rejected, Kept::Failed),
        ("rejected after an attempt that may have acted", keyed(), vec![Lost, status(402)], InDoubt, Kept::Failed),
        ("refused for good after an attempt that may have acted", keyed(), vec![Lost, Refused], Rejected, Kept::Failed),
        ("rejected after two more", keyed(), vec![status(500), NotSent, status(402)], InDoubt, Kept::Failed),
        ("conflict", keyed(), vec![naming_key], Conflict, Kept::Failed),
        ("conflict after an attempt", keyed(), vec![Lost, naming_key], Conflict, Kept::Failed),
        ("no key to conflict with", keyless(), vec![naming_key], Rejected, Kept::Failed),
        ("lost without a key", keyless(), vec![Lost], InDoubt, Kept::Failed),
        ("500 without a key", keyless(), vec![status(500)], InDoubt, Kept::Failed),
        ("408 without a key", keyless(), vec![status(408)], InDoubt, Kept::Failed),
        ("409 without a key", keyless(), vec![status(409)], InDoubt, Kept::Failed),
        ("lost without a key, after 429", keyless(), vec![status(429), Lost], InDoubt, Kept::Failed),
        ("a 5xx that is replayed", keyed(), vec![replayed], InDoubt, Kept::Failed),
        ("409 for too long", keyed(), vec![status(409); 6], InDoubt, Kept::Failed),
        ("409 for long enough", keyed(), [vec![status(409); 5], vec![status(200)]].concat(), Done, Kept::Done),
        ("never sent", keyed(), vec![NotSent; 3], Unavailable, Kept::AsBefore),
        ("never let in", keyless(), vec![status(429); 3], Unavailable, Kept::AsBefore),
        ("exhausted, may have acted", keyed(), vec![Lost; 3], Unavailable, given_up),
        ("exhausted, may have acted once", keyed(), vec![NotSent, status(500), NotSent], Unavailable, given_up),
        ("exhausted without a key", retrying(keyless()), vec![Lost; 3], Unavailable, given_up),
        ("made again without a key", retrying(keyless()), vec![Lost, status(200)], Done, Kept::Done),
        ("a rejection in doubt made again", retrying(keyed()), vec![Lost, status(402), status(200)], Done, Kept::Done),
        ("404 counts as done", named(404, Named::Done)(keyed()), vec![status(404)], Done, Kept::Done),
        ("404 goes again", named(404, Named::Again)(keyless()), vec![status(404), status(200)], Done, Kept::Done),
        ("500 counts as rejected", named(500, Named::Rejected)(keyless()), vec![status(500)], Rejected, Kept::Failed),
        ("503 goes again", named(503, Named::Again)(keyless()), vec![status(503), status(402)], InDoubt, Kept::Failed),
    ];
    for (case, policy, answers, outcome, kept) in cases {
        let (action, call) = after_answers(policy, &answers);
        assert_eq!(action, Action::Settle(outcome), "{case}");
        assert_eq!(call.stage(), Stage::Decided(outcome), "{case}");
        assert_eq!(call.kept(outcome), kept, "{case}");
    }
}

#[test]
fn new_call_waits_for_its_permit() {
    use Action::{SendAt, Settle, Write};
    use Permit::{Grant as Granted, Reservation};
    let grant = |seconds: i64, is_of_former| Some(Grant { since_ms: BEGUN.wall_ms - seconds * 1_000, is_of_former });
    let at_once = SendAt(BEGUN.monotonic);
    let no_key_at_all = Policy { reserve: Reserve::Auto, ..keyless() };
    let since = |seconds: i64| Some(BEGUN.wall_ms - seconds * 1_000);
    let cases = [
        ("always reserved", keyed(), None, Write(Reservation), None),
        ("always, though granted", keyed(), grant(0, false), Write(Reservation), None),
        ("without a key", no_key_at_all, grant(0, false), Write(Reservation), None),
        ("not granted yet", auto(), None, Write(Granted), None),
        ("granted", auto(), grant(0, false), at_once, since(0)),
        ("granted for half of the window", auto(), grant(49, false), at_once, since(49)),
        ("granted for too long", auto(), grant(50, false), Write(Reservation), None),
        ("granted to a former owner", auto(), grant(49, true), at_once, since(49)),
        ("... for too long", auto(), grant(50, true), Write(Reservation), since(50)),
        ("... so that an attempt just fits", auto(), grant(84, true), Write(Reservation), since(84)),
        ("... and the window has passed", auto(), grant(85, true), Settle(Outcome::InDoubt), since(85)),
        ("... and it is made again", retrying(auto()), grant(85, true), Write(Reservation), None),
    ];
    for (case, policy, grant, expected, first_at_ms) in cases {
        let (call, action) = begin(&policy, grant, BEGUN);
        assert_eq!((action, call.first_at_ms()), (expected, first_at_ms), "{case}");
        let may_have_acted = grant.is_some_and(|grant| grant.is_of_former);
        assert_eq!(call.may_have_acted(), may_have_acted, "{case}");
    }
}

#[test]
fn found_calls_go_on_while_their_key_is_honoured() {
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
        let found = Found { first_at_ms: BEGUN.wall_ms - seconds * 1_000, attempts: 0, may_have_acted: true };
        let (call, action) = resume(&policy, found, BEGUN);
        assert_eq!(action, expected, "{case}");
        assert!(call.may_have_acted() && !call.may_be_released(), "{case}");
    }
}

#[test]
fn found_call_keeps_its_count_of_attempts() {
    let found = Found { first_at_ms: BEGUN.wall_ms, attempts: 2, may_have_acted: true };
    let (call, _) = resume(&keyed(), found, BEGUN);
    let mut driven = Driven { policy: keyed(), call, now: BEGUN };
    assert_eq!(driven.answer(Answer::Lost, false), Action::Settle(Outcome::Unavailable));
    assert_eq!(driven.call.kept(Outcome::Unavailable), Kept::GivenUp { first_at_ms: BEGUN.wall_ms });
}

/// A call that is under way again after these answers.
fn under_way(policy: Policy, answers: &[Answer]) -> Driven {
    let mut driven = Driven::reserved(policy);
    for answer in answers {
        driven.answer(*answer, false);
    }
    driven.now.monotonic = driven.now.monotonic.max(driven.call.not_before);
    assert!(matches!(driven.step(Event::Dispatch), Some(Action::Send { .. })));
    driven
}

#[test]
fn committed_steps_restart_the_call() {
    let mut driven = under_way(keyed(), &[Answer::Lost, Answer::Lost]);
    let attempt = driven.call.attempt();
    let since_ms = BEGUN.wall_ms + 60_000;
    assert_eq!(driven.step(Event::Journaled { since_ms }), None);
    assert_eq!((driven.call.stage(), driven.call.attempts()), (Stage::Sent, 0));
    assert_eq!(driven.call.first_at_ms(), Some(since_ms));
    // The attempt is the same, and no earlier attempt can have done what is refused now.
    let refused = Event::Answered { attempt, answer: status(422), is_down: false };
    assert_eq!(driven.step(refused), Some(Action::Settle(Outcome::Rejected)));
    // Without the commit, it would be in doubt.
    let mut driven = under_way(keyed(), &[Answer::Lost, Answer::Lost]);
    assert_eq!(driven.step(refused), Some(Action::Settle(Outcome::InDoubt)));
}

#[test]
fn step_that_may_have_acted_after_a_commit_counts() {
    let mut driven = under_way(keyless(), &[]);
    driven.step(Event::Journaled { since_ms: BEGUN.wall_ms });
    let lost = Event::Answered { attempt: 1, answer: Answer::Lost, is_down: false };
    assert_eq!(driven.step(lost), Some(Action::Settle(Outcome::InDoubt)));
    let mut driven = under_way(keyless(), &[]);
    driven.step(Event::Journaled { since_ms: BEGUN.wall_ms });
    let not_sent = Event::Answered { attempt: 1, answer: Answer::NotSent, is_down: false };
    assert!(matches!(driven.step(not_sent), Some(Action::SendAt(_))));
    assert!(driven.call.may_be_released(), "its step has not acted");
}

#[test]
fn call_that_has_certainly_not_acted_is_reserved_again() {
    for (policy, seconds) in [(keyed(), 0), (keyed(), 85), (keyless(), 0), (keyless(), 9_000)] {
        let first_at_ms = BEGUN.wall_ms - seconds * 1_000;
        let found = Found { first_at_ms, attempts: 0, may_have_acted: false };
        let (call, action) = resume(&policy, found, BEGUN);
        assert_eq!(action, Action::Write(Permit::Reservation), "{seconds}");
        assert!(!call.may_have_acted() && call.first_at_ms().is_none(), "{seconds}");
    }
}

#[test]
fn attempt_of_steps_is_made_even_after_the_window() {
    let policy = Policy { key: keyed().key.map(KeyWindow::per_step), ..keyed() };
    let found = Found { first_at_ms: 0, attempts: 0, may_have_acted: true };
    let (call, action) = resume(&policy, found, BEGUN);
    assert_eq!(action, Action::SendAt(BEGUN.monotonic));
    let mut driven = Driven { policy, call, now: BEGUN };
    // Its next step reports that it is too late.
    assert_eq!(driven.answer(Answer::TooLate, false), Action::Settle(Outcome::InDoubt));
}

/// Asking again, as `on_in_doubt: retry` does, would find out nothing more.
#[test]
fn half_done_call_is_in_doubt_whatever_on_in_doubt_says() {
    for on_in_doubt in [OnInDoubt::DeadLetter, OnInDoubt::Fail, OnInDoubt::Retry] {
        for policy in [keyed(), keyless()] {
            let mut driven = Driven::reserved(Policy { on_in_doubt, ..policy });
            let action = driven.answer(Answer::HalfDone, false);
            assert_eq!(action, Action::Settle(Outcome::InDoubt), "{on_in_doubt:?}");
        }
    }
}

#[test]
fn waits_grow_and_obey_the_provider() {
    let asking =
        |seconds| Answer::Status(Status { retry_after: Some(RetryAfter::Seconds(seconds)), ..Status::of(503) });
    let cases = [
        ("first", vec![status(500)], 1),
        ("second", vec![status(500), status(500)], 2),
        ("not sent", vec![Answer::NotSent], 1),
        ("as the provider asks", vec![asking(20)], 20),
        ("not sooner than by itself", vec![asking(0)], 1),
        ("capped", vec![asking(86_400)], 300),
        ("in progress", vec![status(409), status(409), status(409)], 4),
    ];
    for (case, answers, seconds) in cases {
        let mut driven = Driven::reserved(keyed());
        let mut last = None;
        for answer in answers {
            last = Some((driven.answer(answer, false), driven.now.monotonic));
        }
        let (action, from) = last.unwrap();
        assert_eq!(action, Action::SendAt(from + SECOND * seconds), "{case}");
        assert_eq!(driven.step(Event::Dispatch), Some(action), "{case}: not sent before its time");
    }
}

#[test]
fn provider_that_is_down_costs_no_attempts() {
    let mut driven = Driven::reserved(keyed());
    assert!(matches!(driven.answer(Answer::NotSent, false), Action::SendAt(_)));
    for failed in 2..20_u32 {
        let action = driven.answer(Answer::NotSent, true);
        let wait = SECOND * 2_u32.saturating_pow(failed - 1).min(30);
        assert_eq!(action, Action::Hold(driven.now.monotonic + wait), "after {failed}");
        assert_eq!((driven.call.attempts(), driven.call.may_have_acted()), (1, false));
    }
    // Other calls have been answered in between: the failures are about this record.
    assert!(matches!(driven.answer(Answer::NotSent, false), Action::SendAt(_)));
    assert_eq!(driven.answer(Answer::NotSent, false), Action::Settle(Outcome::Unavailable));
    for on_unavailable in [OnUnavailable::DeadLetter, OnUnavailable::Fail] {
        let mut driven = Driven::reserved(Policy { on_unavailable, ..keyed() });
        let actions = [(); 3].map(|()| driven.answer(Answer::NotSent, true));
        assert_eq!(actions[2], Action::Settle(Outcome::Unavailable), "{on_unavailable:?}");
    }
}

#[test]
fn wrong_secret_holds_the_lane_and_costs_no_attempts() {
    for policy in [keyed(), keyless()] {
        let mut driven = Driven::reserved(policy);
        for number in 0..10 {
            // At the first refusal it is not known whether other calls succeed.
            let action = driven.answer(status(401), number > 0);
            assert_eq!(action, Action::Hold(driven.now.monotonic + SECOND * 30));
        }
        assert_eq!((driven.call.attempts(), driven.call.may_have_acted()), (0, false));
        assert_eq!(driven.answer(status(200), false), Action::Settle(Outcome::Done));
    }
}

#[test]
fn record_that_is_refused_while_other_calls_succeed_is_rejected() {
    for policy in [keyed(), keyless()] {
        for code in [401, 403, 407, 301, 307, 308] {
            let mut driven = Driven::reserved(policy.clone());
            assert!(matches!(driven.answer(status(code), false), Action::Hold(_)), "{code}");
            // While no other call succeeds, an attempt does not count.
            assert!(matches!(driven.answer(status(code), true), Action::Hold(_)), "{code}");
            let wait = SECOND * 4;
            assert_eq!(driven.answer(status(code), false), Action::SendAt(driven.now.monotonic + wait), "{code}");
            assert!(matches!(driven.answer(status(code), false), Action::SendAt(_)), "{code}");
            assert_eq!(driven.answer(status(code), false), Action::Settle(Outcome::Rejected), "{code}");
            assert_eq!(driven.call.kept(Outcome::Rejected), Kept::Failed);
        }
    }
}

/// A secret has become invalid, and the last successes of other calls arrive after the first refusal.
#[test]
fn single_refusal_while_other_calls_succeed_does_not_reject() {
    let mut driven = Driven::reserved(Policy { retry: Retry { attempts: 1, ..retry() }, ..keyed() });
    assert!(matches!(driven.answer(status(401), false), Action::Hold(_)));
    assert!(matches!(driven.answer(status(401), false), Action::SendAt(_)));
    assert!(matches!(driven.answer(status(401), true), Action::Hold(_)));
    assert_eq!(driven.answer(status(401), false), Action::Settle(Outcome::Rejected));
}

#[test]
fn refusal_after_an_attempt_that_may_have_acted_is_in_doubt() {
    for (policy, answer) in [(keyed(), Answer::Lost), (keyed(), status(303)), (retrying(keyless()), Answer::Lost)] {
        let expected = match policy.on_in_doubt {
            OnInDoubt::Retry => Outcome::Unavailable,
            OnInDoubt::DeadLetter | OnInDoubt::Fail => Outcome::InDoubt,
        };
        let mut driven = Driven::reserved(policy);
        driven.answer(answer, false);
        let last = std::iter::repeat_with(|| driven.answer(status(403), false))
            .find(|action| matches!(action, Action::Settle(_)));
        assert_eq!(last, Some(Action::Settle(expected)), "{answer:?}");
    }
}

#[test]
fn window_is_checked_before_each_attempt() {
    // Nothing has acted: a new reservation, a new window.
    let mut driven = Driven::reserved(keyed());
    driven.answer(Answer::NotSent, false);
    driven.now = after(85);
    assert_eq!(driven.step(Event::Dispatch), Some(Action::Write(Permit::Reservation)));
    assert_eq!(driven.step(Event::Written { since_ms: driven.now.wall_ms }), None);
    assert_eq!(driven.call.first_at_ms(), Some(driven.now.wall_ms));
    // The same when the driver finds it too late.
    let mut driven = Driven::reserved(keyed());
    assert_eq!(driven.answer(Answer::TooLate, false), Action::Write(Permit::Reservation));
    assert_eq!(driven.call.attempts(), 0);
    // An attempt may have acted.
    for policy in [keyed(), auto()] {
        let (call, _) = begin(&policy, Some(Grant { since_ms: BEGUN.wall_ms, is_of_former: false }), BEGUN);
        let call = if policy.reserve == Reserve::Auto { call } else { Driven::reserved(policy.clone()).call };
        let mut driven = Driven { policy, call, now: BEGUN };
        driven.answer(Answer::Lost, false);
        assert_eq!(driven.answer(Answer::TooLate, false), Action::Settle(Outcome::InDoubt));
    }
    // The same with `on_in_doubt: retry`: it is reserved again, from now on.
    let mut driven = Driven::reserved(retrying(keyed()));
    driven.answer(Answer::Lost, false);
    driven.now = after(85);
    assert_eq!(driven.step(Event::Dispatch), Some(Action::Write(Permit::Reservation)));
    driven.step(Event::Written { since_ms: driven.now.wall_ms });
    driven.step(Event::Committed);
    assert_eq!(driven.call.first_at_ms(), Some(driven.now.wall_ms));
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
        assert_eq!(driven.call.first_at_ms(), None);
        driven.step(Event::Written { since_ms: driven.now.wall_ms });
        assert_eq!(driven.call.first_at_ms(), Some(driven.now.wall_ms));
    }
}

#[test]
fn only_calls_that_cannot_have_acted_are_released() {
    let after_answer = |policy: Policy, answer| {
        let mut driven = Driven::reserved(policy);
        driven.answer(answer, false);
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
    let (granted, _) = begin(&auto(), Some(Grant { since_ms: BEGUN.wall_ms, is_of_former: false }), BEGUN);
    let cases = [
        ("reserved", Driven::reserved(keyed()).call, true),
        ("reserved without a key", Driven::reserved(keyless()).call, true),
        ("withdrawn", withdrawn, true),
        ("not sent", after_answer(keyless(), Answer::NotSent), true),
        ("its window has passed, unsent", after_answer(keyed(), Answer::TooLate), true),
        ("sent", sent, false),
        ("may have acted", after_answer(keyed(), Answer::Lost), false),
        ("decided", after_answer(keyed(), status(200)), false),
        ("granted, not reserved", granted, false),
        ("not reserved yet", begin(&keyed(), None, BEGUN).0, false),
    ];
    for (case, call, expected) in cases {
        assert_eq!(call.may_be_released(), expected, "{case}");
        assert!(!(call.may_be_released() && call.may_have_acted()), "{case}");
    }
}

#[test]
fn answers_of_attempts_that_are_over_change_nothing() {
    let mut driven = Driven::reserved(keyed());
    driven.answer(status(500), false);
    let late = Event::Answered { attempt: 1, answer: status(200), is_down: false };
    for event in [late, Event::Withdrawn { attempt: 1 }] {
        let before = driven.call;
        assert_eq!((driven.step(event), driven.call), (None, before), "while it waits");
    }
    driven.now.monotonic += SECOND;
    assert_eq!(driven.step(Event::Dispatch), Some(Action::Send { attempt: 2 }));
    let before = driven.call;
    assert_eq!((driven.step(late), driven.call), (None, before), "while another is under way");
    let answer = Event::Answered { attempt: 2, answer: status(402), is_down: false };
    assert_eq!(driven.step(answer), Some(Action::Settle(Outcome::InDoubt)));
    let before = driven.call;
    assert_eq!((driven.step(answer), driven.call), (None, before), "when it is decided");
}

#[test]
#[should_panic(expected = "Dispatch comes to a call that is Waits(Reservation)")]
fn nothing_is_sent_before_it_is_permitted() {
    let (call, _) = begin(&keyed(), None, BEGUN);
    next(&keyed(), call, Event::Dispatch, BEGUN, &mut |most| most);
}
