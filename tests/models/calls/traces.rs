//! Goal: each mistake is found, by what it does wrong; and so is each limit that the design names.

use super::mistake::Mistake::{self, *};
use super::state::{Entry, Settled, Settlement};
use super::worlds::{AGAIN, FIRST, LOWER, OF_OLD_TOPIC, SCOPES, TIMES, VERSIONS, variants, world};
use super::{Calls, Command, Faults, Record};
use crate::report;
use crate::search::{DEAD_END, search};

const NONE: Faults = Faults::NONE;
const KILL: Faults = Faults { kills: 1, ..NONE };
const FREEZE: Faults = Faults { freezes: 1, ..NONE };
const ANSWER: Faults = Faults { answers: 1, ..NONE };
const COMMIT: Faults = Faults { commits: 1, ..NONE };
const REVOKE: Faults = Faults { revocations: 1, ..NONE };
const REJECT: Faults = Faults { freezes: 2, answers: 1, rejects: true, ..NONE };
const VANISH: Faults = Faults { kills: 1, vanish: 1, excuses_limits: true, ..NONE };
const DOWN: Faults = Faults { downs: 1, exhausts: true, ..NONE };
const EXHAUST: Faults = Faults { answers: 2, exhausts: true, ..NONE };

const EFFECT_TWICE: &str = "TWICE: an effect";
const RECORD_TWICE: &str = "TWICE: a record";
const PASSED_OVER: &str = "SKIPPED: a record is passed over";

/// A variant of a world, with mistakes.
fn erring(variant: usize, records: &'static [Record], faults: Faults, mistakes: &'static [Mistake]) -> Calls {
    let base = Calls { mistakes, ..world(records, faults) };
    variants(base)[variant].1
}

const ALWAYS: usize = 0;
const AUTO: usize = 1;
const NO_KEY: usize = 2;
const RETRY: usize = 4;
const AUTO_RETRY: usize = 5;

/// Searches a world and expects this to go wrong.
fn finds(name: &str, world: &Calls, wrong: &str) {
    let found = search(world);
    let name = format!("calls: {name}");
    report(&name, &found);
    let Some(example) = found.wrong else { panic!("{name}: nothing is wrong in {} states", found.states) };
    println!("{example}");
    assert!(example.wrong.starts_with(wrong), "{name}: {}", example.wrong);
}

/// Declares a test for each mistake.
macro_rules! mistakes {
    ($($name:ident: $mistakes:expr, $variant:expr, $records:expr, $faults:expr => $wrong:expr;)*) => {$(
        #[test]
        fn $name() {
            const MISTAKES: &[Mistake] = &$mistakes;
            let world = erring($variant, $records, $faults, MISTAKES);
            finds(&format!("mistake {MISTAKES:?}"), &world, $wrong);
        }
    )*};
}

mistakes! {
    zombie_settles: [ZombieSettles], ALWAYS, AGAIN, FREEZE => RECORD_TWICE;
    reservation_after_the_call: [ReservedAfter], NO_KEY, AGAIN, KILL => EFFECT_TWICE;
    key_of_the_attempt: [KeyOfAttempt], ALWAYS, AGAIN, ANSWER => EFFECT_TWICE;
    key_of_the_coordinates: [KeyOfCoordinates], ALWAYS, AGAIN, EXHAUST => EFFECT_TWICE;
    offset_beyond_what_is_settled: [OffsetBeyond], ALWAYS, AGAIN, NONE => "SKIPPED: the offset";
    two_calls_of_an_identity: [TwoAtOnce], ALWAYS, AGAIN, NONE => "TWO AT ONCE";
    exhausted_is_remembered: [ExhaustedIsDone], ALWAYS, AGAIN, EXHAUST => "FORGOTTEN";
    itself_is_a_duplicate: [ItselfIsDuplicate, NoList], ALWAYS, AGAIN, KILL => "FIRST";
    itself_is_new: [ItselfIsNew, NoList], NO_KEY, AGAIN, KILL => EFFECT_TWICE;
    ambiguous_is_tried_again: [AmbiguousAgain], NO_KEY, AGAIN, ANSWER => EFFECT_TWICE;
    retried_after_the_window: [RetryAfterWindow, NoLookAtWindow], ALWAYS, AGAIN, KILL => EFFECT_TWICE;
    no_list: [NoList], ALWAYS, AGAIN, KILL => RECORD_TWICE;
    no_grant: [NoGrant], AUTO, AGAIN, KILL => EFFECT_TWICE;
    stream_time_beyond: [StreamTimeBeyond], ALWAYS, TIMES, KILL => "LATE";
    reservation_over_settlement: [ReservationOverSettlement], ALWAYS, VERSIONS, EXHAUST => EFFECT_TWICE;
    no_release: [NoRelease], NO_KEY, AGAIN, Faults { stops: 1, ..NONE } => "NEVER SENT";
    decided_is_left: [DecidedLeft], ALWAYS, AGAIN, Faults { stops: 1, ..EXHAUST } => "NEVER SENT";
    exhausted_is_forgotten: [ExhaustedForgotten], ALWAYS, AGAIN, EXHAUST => EFFECT_TWICE;
    rejected_after_all: [RejectedAfterAll], ALWAYS, AGAIN, Faults { rejects: true, ..EXHAUST } => "REJECTED AFTER ALL";
    retry_ends_in_doubt: [RetryInDoubt], RETRY, AGAIN, KILL => "IN DOUBT";
    retry_keeps_its_first_time: [RetryKeepsFirst], RETRY, AGAIN, KILL => DEAD_END;
    retry_is_not_reserved_anew: [RetryUnreserved], RETRY, AGAIN, KILL => EFFECT_TWICE;
    retry_of_a_grant_is_not_reserved: [RetryUnreserved], AUTO_RETRY, AGAIN, KILL => EFFECT_TWICE;
    rejection_outlives: [RejectionOutlives], ALWAYS, AGAIN, REJECT => "REJECTED AFTER ALL";
    grants_renewed_for_a_former_owner: [RenewedForFormer], AUTO, AGAIN, KILL => EFFECT_TWICE;
    grants_renewed_while_a_call_is_open: [RenewedForSent], AUTO, AGAIN, KILL => EFFECT_TWICE;
    grant_is_left: [GrantLeft], AUTO, AGAIN, Faults { stops: 1, rejects: true, ..NONE } => "NEVER SENT";
    grant_is_left_by_a_revocation: [GrantLeft], AUTO, AGAIN, Faults { rejects: true, ..REVOKE } => "NEVER SENT";
    grant_of_a_call_under_way_is_taken_back: [ShrunkToNothing], AUTO, AGAIN, REVOKE => EFFECT_TWICE;
    grant_of_a_former_owner_is_taken_back: [ShrunkBelowFormer], AUTO, AGAIN, Faults { stops: 1, ..KILL } => EFFECT_TWICE;
    called_ahead: [CalledAhead], AUTO, VERSIONS, NONE => "TWO AT ONCE";
    window_kept_after_unknown_outcome: [KeptAfterUnknown], ALWAYS, AGAIN, COMMIT => RECORD_TWICE;
    no_barrier: [NoBarrier], ALWAYS, SCOPES, KILL => "FIRST";
    sent_is_released: [SentReleased], NO_KEY, AGAIN, REVOKE => EFFECT_TWICE;
    sent_is_released_with_a_key: [SentReleased], ALWAYS, AGAIN, REVOKE => EFFECT_TWICE;
    revocation_without_release: [RevokedUnreleased], NO_KEY, AGAIN, REVOKE => "NEVER SENT";
    result_is_not_kept: [ResultNotKept], ALWAYS, AGAIN, NONE => "RESULT";
    result_ahead: [ResultAhead], ALWAYS, AGAIN, KILL => "TWICE: a result";
    window_is_not_looked_at: [NoLookAtWindow], ALWAYS, AGAIN, FREEZE => EFFECT_TWICE;
}

#[test]
fn reserved_is_taken_for_done() {
    let world = Calls { before: Some(OF_OLD_TOPIC), ..erring(ALWAYS, AGAIN, NONE, &[ReservedIsDone]) };
    finds("mistake [ReservedIsDone]", &world, "FIRST");
}

#[test]
fn reservation_is_waited_for_in_vain() {
    let world = Calls { before: Some(OF_OLD_TOPIC), ..erring(ALWAYS, AGAIN, NONE, &[NoAdoption]) };
    finds("mistake [NoAdoption]", &world, DEAD_END);
}

#[test]
fn coordinates_without_the_topics_id() {
    let settled = Settlement { what: Settled::Done, version: FIRST, record: None, seen: 0, result: 0 };
    let before = Some(Entry { settled: Some(settled), reserved: None });
    let world = Calls { before, ..erring(ALWAYS, AGAIN, NONE, &[NoTopicId]) };
    finds("mistake [NoTopicId]", &world, PASSED_OVER);
}

#[test]
fn reservation_that_an_older_one_is_lost_with() {
    let faults = Faults { answers: 2, exhausts: true, ..VANISH };
    for variant in [ALWAYS, NO_KEY] {
        finds("mistake [ReservationDropped]", &erring(variant, VERSIONS, faults, &[ReservationDropped]), EFFECT_TWICE);
    }
}

#[test]
fn scope_that_is_written_late() {
    finds("mistake [ScopeWithSettlement]", &erring(ALWAYS, LOWER, VANISH, &[ScopeWithSettlement]), "NOT ACTED");
}

#[test]
fn aborted_reservation() {
    let world = Calls { apart: true, ..erring(NO_KEY, AGAIN, KILL, &[AbortedIsReserved]) };
    finds("mistake [AbortedIsReserved]", &world, EFFECT_TWICE);
}

#[test]
fn provider_that_is_down() {
    for (mistakes, wrong) in [
        (&[LetterWhileDown], "DOWN"),
        (&[AliveSinceSent], "DOWN"),
        (&[HeldTimeCounts], "NEVER SENT"),
        (&[NoProbe], DEAD_END),
    ] {
        let world = Calls { holds: true, ..erring(ALWAYS, AGAIN, DOWN, mistakes) };
        finds(&format!("mistake {mistakes:?}"), &world, wrong);
    }
}

#[test]
fn commands() {
    for (mistakes, wrong) in [
        (&[AcknowledgedApart], "UNACKNOWLEDGED"),
        (&[CommandNotNoted], "OBEYED TWICE"),
        (&[CommandOverCall], EFFECT_TWICE),
        (&[CommandOverReservation], EFFECT_TWICE),
    ] {
        let world = Calls { command: Some(Command::Retry), ..erring(NO_KEY, AGAIN, KILL, mistakes) };
        finds(&format!("mistake {mistakes:?}"), &world, wrong);
    }
}

/// A limit that stays, and is said: a call without a reservation whose record vanishes before it is settled, and the
/// same effect again when the provider has forgotten its key.
#[test]
fn record_that_vanishes_without_a_reservation() {
    let world = erring(AUTO, AGAIN, Faults { vanish: 1, ..KILL }, &[]);
    finds("limit: a record vanishes", &world, EFFECT_TWICE);
}

/// A limit that stays, and is said: the provider cannot know a key any more.
#[test]
fn request_that_lingers_beyond_the_window() {
    let world = erring(ALWAYS, AGAIN, Faults { lingers: true, ..KILL }, &[]);
    finds("limit: a request lingers", &world, EFFECT_TWICE);
}

/// A limit that stays: a provider that goes down at each attempt of a call, and is up between them, is not taken to be
/// down.
#[test]
fn provider_that_is_down_at_each_attempt() {
    let world = Calls { holds: true, ..erring(ALWAYS, AGAIN, Faults { downs: 2, ..DOWN }, &[]) };
    finds("limit: the provider goes down again and again", &world, "DOWN");
}
