//! Goal: nothing goes wrong in any of these worlds, and what may fail has failed in them.

use super::state::{Entry, Reservation};
use super::{Calls, Faults, InDoubt, Record, Reserve, outside, owner, record};
use crate::report;
use crate::search::search;

const NONE: Faults = Faults::NONE;
/// A kill and a failing answer.
const USUAL: Faults = Faults { kills: 1, answers: 1, ..NONE };

/// Two identities, of which the first comes again.
pub const AGAIN: &[Record] = &[record(0, 1, 0), record(1, 1, 1), record(0, 1, 0)];
/// Two identities, each of which comes again.
pub const BOTH_AGAIN: &[Record] = &[record(0, 1, 0), record(1, 1, 1), record(0, 1, 0), record(1, 1, 1)];
/// A newer version, and the older one again.
pub const VERSIONS: &[Record] = &[record(1, 1, 1), record(1, 2, 2), record(1, 1, 1)];
/// A record without a time between old and new ones.
pub const TIMES: &[Record] =
    &[record(0, 1, 0), Record { time: None, ..record(1, 1, 1) }, Record { time: Some(5), ..record(2, 1, 2) }];
const INVALID: &[Record] = &[record(0, 1, 0), Record { is_invalid: true, ..record(2, 0, 2) }, record(1, 1, 1)];
const EARLY: &[Record] = &[record(0, 1, 0), Record { early: true, ..record(1, 1, 1) }, record(0, 1, 0)];

/// A reservation by a record of a topic that was recreated.
pub const OF_OLD_TOPIC: Entry =
    Entry { settled: None, reserved: Some(Reservation { version: 1, record: 1, is_of_old_topic: true, first: 0 }) };

const fn world(records: &'static [Record], faults: Faults) -> Calls {
    Calls {
        records,
        has_key: true,
        reserve: Reserve::Always,
        in_doubt: InDoubt::DeadLetter,
        before: None,
        faults,
        mistakes: &[],
    }
}

/// The four ways in which a topology can be written.
pub fn variants(base: Calls) -> [(&'static str, Calls); 4] {
    [
        ("key, always reserved", base),
        ("key, auto", Calls { reserve: Reserve::Auto, ..base }),
        ("no key, dead letter", Calls { has_key: false, ..base }),
        ("no key, retry", Calls { has_key: false, in_doubt: InDoubt::Retry, ..base }),
    ]
}

/// Searches each variant of a world, and expects that nothing goes wrong and that these situations are reached.
fn holds(name: &str, base: Calls, situations: &[&str]) {
    for (variant, world) in variants(base) {
        let name = format!("calls: {name}, {variant}");
        let found = search(&world);
        report(&name, &found);
        if let Some(wrong) = found.wrong {
            panic!("{name}: {wrong}");
        }
        for situation in situations {
            assert!(found.situations.contains_key(situation), "{name}: never reached: {situation}");
        }
    }
}

#[test]
fn kills() {
    holds("kills", world(AGAIN, USUAL), &[outside::ARRIVES, outside::ANSWER_LOST]);
}

#[test]
fn zombies() {
    holds("zombies", world(AGAIN, Faults { freezes: 1, ..NONE }), &[owner::GIVES_UP, outside::ARRIVES]);
}

#[test]
fn rejections_and_exhausted_attempts() {
    let faults = Faults { rejects: true, exhausts: true, stops: 1, answers: 2, ..NONE };
    holds("rejections", world(AGAIN, faults), &[outside::REJECTED, outside::NOT_SENT, owner::STOPS]);
}

#[test]
fn transactions_of_unknown_outcome() {
    let faults = Faults { commits: 1, answers: 1, ..NONE };
    holds("lost commits", world(AGAIN, faults), &[owner::COMMIT_LOST, owner::ABORTED, owner::COMMITS_ALL]);
}

#[test]
fn group_that_is_reset() {
    holds("reset", world(AGAIN, Faults { kills: 1, resets: 1, ..NONE }), &[outside::RESET, owner::PASSES]);
}

#[test]
fn versions() {
    holds("versions", world(VERSIONS, Faults { exhausts: true, answers: 2, ..USUAL }), &[outside::NOT_SENT]);
}

#[test]
fn records_that_cannot_be_judged() {
    holds("invalid", world(INVALID, USUAL), &[owner::PASSES]);
    holds("early", world(EARLY, USUAL), &[owner::PASSES]);
}

#[test]
fn stream_time_and_the_sweeper() {
    holds("stream time", world(TIMES, Faults { sweeps: true, ..USUAL }), &[outside::SWEPT]);
}

#[test]
fn records_that_vanish() {
    holds("vanished", world(AGAIN, Faults { vanish: 1, excuses_limits: true, ..USUAL }), &[outside::VANISHES]);
}

#[test]
fn topic_that_was_recreated() {
    let before = Some(OF_OLD_TOPIC);
    holds("recreated topic", Calls { before, ..world(AGAIN, USUAL) }, &[owner::TAKES_OVER]);
}

/// Millions of states: only where it is asked for.
#[test]
fn large_worlds() {
    if std::env::var("RATCHET_MODELS").as_deref() != Ok("large") {
        return println!("calls: large worlds: left out; RATCHET_MODELS=large searches them");
    }
    let zombies = Faults { freezes: 1, ..USUAL };
    holds("large: four records", world(BOTH_AGAIN, zombies), &[owner::GIVES_UP]);
    holds("large: reset", world(AGAIN, Faults { resets: 1, ..zombies }), &[owner::PASSES]);
    holds("large: lost commits", world(AGAIN, Faults { commits: 1, ..zombies }), &[owner::COMMIT_LOST]);
    let faults = Faults { rejects: true, exhausts: true, stops: 1, answers: 2, ..zombies };
    holds("large: rejections", world(AGAIN, faults), &[owner::STOPS]);
    holds("large: versions", world(VERSIONS, faults), &[owner::STOPS]);
    holds("large: stream time", world(TIMES, Faults { sweeps: true, resets: 1, ..zombies }), &[outside::SWEPT]);
    holds("large: vanished", world(AGAIN, Faults { vanish: 2, excuses_limits: true, ..zombies }), &[outside::VANISHES]);
}
