//! Goal: each mistake is found, by what it does wrong; and so is each limit that the design names.

use super::Mistake::{self, *};
use super::state::{Entry, Settled, Settlement};
use super::worlds::{AGAIN, OF_OLD_TOPIC, TIMES, VERSIONS, variants};
use super::{Calls, Faults, InDoubt, Record, Reserve};
use crate::report;
use crate::search::{DEAD_END, search};

const NONE: Faults = Faults::NONE;
const KILL: Faults = Faults { kills: 1, ..NONE };
const FREEZE: Faults = Faults { freezes: 1, ..NONE };
const ANSWER: Faults = Faults { answers: 1, ..NONE };
const EXHAUST: Faults = Faults { answers: 2, exhausts: true, ..NONE };

const EFFECT_TWICE: &str = "TWICE: an effect";
const RECORD_TWICE: &str = "TWICE: a record";
const PASSED_OVER: &str = "SKIPPED: a record is passed over";

/// A variant of a world, with mistakes.
fn erring(variant: usize, records: &'static [Record], faults: Faults, mistakes: &'static [Mistake]) -> Calls {
    let base = Calls {
        records,
        has_key: true,
        reserve: Reserve::Always,
        in_doubt: InDoubt::DeadLetter,
        before: None,
        faults,
        mistakes,
    };
    variants(base)[variant].1
}

const ALWAYS: usize = 0;
const AUTO: usize = 1;
const NO_KEY: usize = 2;

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
    exhausted_is_forgotten: [ExhaustedForgotten], ALWAYS, AGAIN, EXHAUST => EFFECT_TWICE;
    rejected_after_all: [RejectedAfterAll], ALWAYS, AGAIN, Faults { rejects: true, ..EXHAUST } => "REJECTED AFTER ALL";
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
    let settled = Settlement { what: Settled::Done, version: 1, record: None, seen: 0 };
    let before = Some(Entry { settled: Some(settled), reserved: None });
    let world = Calls { before, ..erring(ALWAYS, AGAIN, NONE, &[NoTopicId]) };
    finds("mistake [NoTopicId]", &world, PASSED_OVER);
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
