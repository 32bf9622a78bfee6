//! Goal: nothing goes wrong in any of these worlds, and what may fail has failed in them.

use super::state::{Entry, Reservation, Version};
use super::{
    Calls, Command, Faults, InDoubt, Record, Reserve, control, judging, outside, owner, provider, record, writing,
};
use crate::report;
use crate::search::search;

const NONE: Faults = Faults::NONE;
/// A kill and a failing answer.
const USUAL: Faults = Faults { kills: 1, answers: 1, ..NONE };
const KILL: Faults = Faults { kills: 1, ..NONE };

/// Two identities, of which the first comes again.
pub const AGAIN: &[Record] = &[record(0, 1, 0), record(1, 1, 1), record(0, 1, 0)];
/// One identity, which comes again.
pub const SAME: &[Record] = &[record(0, 1, 0), record(0, 1, 0)];
/// Two identities, each of which comes again.
pub const BOTH_AGAIN: &[Record] = &[record(0, 1, 0), record(1, 1, 1), record(0, 1, 0), record(1, 1, 1)];
/// A newer version, and the older one again.
pub const VERSIONS: &[Record] = &[record(1, 1, 1), record(1, 2, 2), record(1, 1, 1)];
/// A record without a time between old and new ones.
pub const TIMES: &[Record] =
    &[record(0, 1, 0), Record { time: None, ..record(1, 1, 1) }, Record { time: Some(5), ..record(2, 1, 2) }];
/// A second and a third scope start, the third one with an identity of the second.
pub const SCOPES: &[Record] =
    &[record(0, 1, 0), Record { scope: 1, ..record(1, 1, 1) }, Record { scope: 2, ..record(1, 1, 2) }];
/// Two scopes start, the first one with two identities.
pub const ALONGSIDE: &[Record] = &[
    Record { scope: 1, ..record(0, 1, 0) },
    Record { scope: 1, ..record(1, 1, 1) },
    Record { scope: 2, ..record(1, 1, 2) },
];
/// Two scopes start, each with a record of one identity, the second one with a lower version.
pub const LOWER: &[Record] = &[
    Record { scope: 1, ..record(0, 2, 0) },
    Record { scope: 2, ..record(0, 1, 1) },
    Record { scope: 1, ..record(1, 1, 2) },
];
const INVALID: &[Record] = &[record(0, 1, 0), Record { is_invalid: true, ..record(2, 0, 2) }, record(1, 1, 1)];
const EARLY: &[Record] = &[record(0, 1, 0), Record { early: true, ..record(1, 1, 1) }, record(0, 1, 0)];

/// What may be ordered.
pub const COMMANDS: [(&str, Command); 3] =
    [("done", Command::Done), ("drop", Command::Drop), ("retry", Command::Retry)];

/// A reservation by a record of a topic that was recreated.
pub const OF_OLD_TOPIC: Entry =
    Entry { settled: None, reserved: Some(Reservation { version: FIRST, record: 1, is_of_old_topic: true, first: 0 }) };
/// The first version of the first scope.
pub const FIRST: Version = Version { scope: 0, number: 1 };

/// A world of these records and faults.
pub const fn world(records: &'static [Record], faults: Faults) -> Calls {
    Calls {
        records,
        has_key: true,
        reserve: Reserve::Always,
        in_doubt: InDoubt::DeadLetter,
        holds: false,
        apart: false,
        command: None,
        before: None,
        faults,
        mistakes: &[],
    }
}

/// The six ways in which a topology can be written.
pub fn variants(base: Calls) -> [(&'static str, Calls); 6] {
    [
        ("key, always reserved", base),
        ("key, auto", Calls { reserve: Reserve::Auto, ..base }),
        ("no key, dead letter", Calls { has_key: false, ..base }),
        ("no key, retry", Calls { has_key: false, in_doubt: InDoubt::Retry, ..base }),
        ("key, always reserved, retry", Calls { in_doubt: InDoubt::Retry, ..base }),
        ("key, auto, retry", Calls { reserve: Reserve::Auto, in_doubt: InDoubt::Retry, ..base }),
    ]
}

/// Searches a world, and expects that nothing goes wrong and that these situations are reached.
fn holds_in(name: &str, world: &Calls, situations: &[&str]) {
    let found = search(world);
    let name = format!("calls: {name}");
    report(&name, &found);
    if let Some(wrong) = found.wrong {
        panic!("{name}: {wrong}");
    }
    for situation in situations {
        assert!(found.situations.contains_key(situation), "{name}: never reached: {situation}");
    }
}

/// The same for each variant of a world.
pub fn holds(name: &str, base: Calls, situations: &[&str]) {
    for (variant, world) in variants(base) {
        holds_in(&format!("{name}, {variant}"), &world, situations);
    }
}

#[test]
fn kills() {
    holds("kills", world(AGAIN, USUAL), &[provider::ARRIVES, provider::ANSWER_LOST]);
    holds("kills, four records", world(BOTH_AGAIN, KILL), &[provider::ARRIVES, writing::COMMITS_SEVERAL]);
}

#[test]
fn zombies() {
    holds("zombies", world(AGAIN, Faults { freezes: 1, ..NONE }), &[owner::GIVES_UP, provider::ANSWERED_LATE]);
}

#[test]
fn rejections_and_exhausted_attempts() {
    let faults = Faults { rejects: true, exhausts: true, stops: 1, answers: 2, ..NONE };
    holds("rejections", world(AGAIN, faults), &[provider::REJECTED, provider::NOT_SENT, owner::STOPS]);
}

#[test]
fn transactions_of_unknown_outcome() {
    let faults = Faults { commits: 1, answers: 1, ..NONE };
    holds("lost commits", world(AGAIN, faults), &[writing::COMMIT_LOST, writing::ABORTED, judging::KNOWS]);
}

#[test]
fn group_that_is_reset() {
    holds("reset", world(AGAIN, Faults { kills: 1, resets: 1, ..NONE }), &[outside::RESET, judging::PASSES]);
}

#[test]
fn versions() {
    holds("versions", world(VERSIONS, Faults { exhausts: true, answers: 2, ..USUAL }), &[provider::NOT_SENT]);
}

#[test]
fn records_that_cannot_be_judged() {
    holds("invalid", world(INVALID, USUAL), &[judging::PASSES]);
    holds("early", world(EARLY, USUAL), &[judging::PASSES]);
}

#[test]
fn stream_time_and_the_sweeper() {
    holds("stream time", world(TIMES, Faults { sweeps: true, ..KILL }), &[outside::SWEPT]);
}

#[test]
fn scopes() {
    holds("scopes", world(SCOPES, USUAL), &[provider::ARRIVES]);
    holds("scopes, alongside", world(ALONGSIDE, USUAL), &[provider::ARRIVES]);
    holds("scopes, lower", world(LOWER, Faults { vanish: 1, excuses_limits: true, ..USUAL }), &[outside::VANISHES]);
}

#[test]
fn revocations() {
    let faults = Faults { revocations: 1, answers: 1, ..NONE };
    holds("revocations", world(AGAIN, faults), &[owner::REVOKED, provider::ANSWERED_LATE, judging::KNOWS]);
}

#[test]
fn transactions_of_two_steps() {
    let base = Calls { apart: true, ..world(AGAIN, USUAL) };
    holds("apart", base, &[writing::BEGINS, writing::TAKEN_BACK, owner::GOES_ON]);
    let lost = Faults { commits: 1, ..NONE };
    holds("apart, lost commits", Calls { faults: lost, ..base }, &[writing::TAKEN_BACK, writing::COMMIT_LOST]);
    let zombies = Faults { freezes: 1, ..NONE };
    holds("apart, zombies", Calls { faults: zombies, ..base }, &[writing::TAKEN_BACK, owner::GIVES_UP]);
    for faults in [USUAL, zombies, lost] {
        let world = Calls { reserve: Reserve::Auto, faults, ..base };
        holds_in("apart, grants", &world, &[writing::RENEWS, owner::GOES_ON]);
    }
}

#[test]
fn provider_that_is_down() {
    let faults = Faults { downs: 1, answers: 1, exhausts: true, rejects: true, ..NONE };
    let base = Calls { holds: true, ..world(AGAIN, faults) };
    holds("down", base, &[provider::GOES_DOWN, provider::COMES_UP, provider::REJECTED]);
    holds("down, kills", Calls { faults: Faults { kills: 1, answers: 0, ..faults }, ..base }, &[provider::COMES_UP]);
}

#[test]
fn commands() {
    for (name, command) in COMMANDS {
        let base = Calls { command: Some(command), ..world(AGAIN, USUAL) };
        holds(&format!("command {name}"), base, &[control::OBEYS]);
        let faults = Faults { freezes: 1, commits: 1, ..NONE };
        let base = Calls { records: SAME, faults, ..base };
        holds(&format!("command {name}, two owners"), base, &[control::OBEYS, owner::GIVES_UP]);
    }
}

#[test]
fn records_that_vanish() {
    let faults = Faults { vanish: 1, excuses_limits: true, ..USUAL };
    holds("vanished", world(AGAIN, faults), &[outside::VANISHES]);
    let faults = Faults { exhausts: true, answers: 2, ..faults };
    holds("vanished, versions", world(VERSIONS, faults), &[outside::VANISHES, provider::NOT_SENT]);
}

#[test]
fn topic_that_was_recreated() {
    let before = Some(OF_OLD_TOPIC);
    holds("recreated topic", Calls { before, ..world(AGAIN, USUAL) }, &[owner::TAKES_OVER]);
}

/// Beyond the key's window, and beyond the one that begins then.
#[test]
fn windows_that_pass() {
    for (variant, world) in variants(world(AGAIN, Faults { ticks: 4, ..KILL })) {
        let passes = [owner::TOO_LATE];
        holds_in(&format!("windows, {variant}"), &world, if world.has_key { &passes } else { &[] });
    }
}

/// What a stop and a revocation leave of a grant, with calls that are under way and owners that freeze.
#[test]
fn grants_that_are_taken_back() {
    let left = Faults { stops: 1, revocations: 1, answers: 1, rejects: true, ..NONE };
    let zombies = Faults { freezes: 1, stops: 1, ..NONE };
    let kills = Faults { kills: 1, revocations: 1, ..NONE };
    for faults in [left, zombies, kills] {
        let world = Calls { reserve: Reserve::Auto, ..world(AGAIN, faults) };
        holds_in("grants taken back", &world, &[owner::TAKES_OVER, judging::KNOWS]);
    }
}

#[test]
fn grants_that_are_renewed() {
    let zombies = Faults { freezes: 1, ..NONE };
    for faults in [USUAL, zombies] {
        let world = Calls { reserve: Reserve::Auto, ..world(AGAIN, faults) };
        holds_in("grants", &world, &[writing::RENEWS, writing::COMMITS_SEVERAL]);
    }
}
