//! Goal: nothing goes wrong in any of these worlds, and what may fail has failed in them.

use super::{Faults, InDoubt, Step, Steps, outside, owner, provider, writing};
use crate::report;
use crate::search::search;

const NONE: Faults = Faults::NONE;
/// A kill and a failing step, and time for two windows.
const USUAL: Faults = Faults { kills: 1, answers: 1, ticks: 3, ..NONE };

const CALL: Step = Step { is_transaction: false, may_be_rejected: false, is_optional: false, has_undo: false };
const TRANSACTION: Step = Step { is_transaction: true, ..CALL };

/// Two calls.
pub const CALLS: &[Step] = &[CALL, CALL];
/// A call between transactions.
pub const MIXED: &[Step] = &[TRANSACTION, CALL, TRANSACTION];
/// Two transactions, of which the second may be rejected.
pub const TRANSACTIONS: &[Step] = &[TRANSACTION, Step { may_be_rejected: true, ..TRANSACTION }];
/// A call that may be rejected, without which the handler goes on.
pub const OPTIONAL: &[Step] = &[CALL, Step { may_be_rejected: true, is_optional: true, ..CALL }, CALL];
/// A call that can be undone, and one that may be rejected.
pub const SHORT_SAGA: &[Step] = &[Step { has_undo: true, ..CALL }, Step { may_be_rejected: true, ..CALL }];
/// Two calls that can be undone, and one that may be rejected.
pub const SAGA: &[Step] =
    &[Step { has_undo: true, ..CALL }, Step { has_undo: true, ..CALL }, Step { may_be_rejected: true, ..CALL }];
/// The same of a call and transactions.
pub const MIXED_SAGA: &[Step] = &[
    Step { has_undo: true, ..CALL },
    Step { has_undo: true, ..TRANSACTION },
    Step { may_be_rejected: true, ..TRANSACTION },
];

/// One record; its duplicate comes after it.
pub const AGAIN: &[u8] = &[0, 0];
/// A newer version comes between a record and its duplicate.
pub const VERSIONS: &[u8] = &[0, 1, 0];

/// A world of these steps and faults.
pub const fn world(steps: &'static [Step], faults: Faults) -> Steps {
    Steps {
        steps,
        records: AGAIN,
        has_key: true,
        in_doubt: InDoubt::DeadLetter,
        decides: false,
        wavers: false,
        faults,
        mistakes: &[],
    }
}

/// The four ways in which a topology can be written.
pub fn variants(base: Steps) -> [(&'static str, Steps); 4] {
    [
        ("key", base),
        ("key, retry", Steps { in_doubt: InDoubt::Retry, ..base }),
        ("no key", Steps { has_key: false, ..base }),
        ("no key, retry", Steps { has_key: false, in_doubt: InDoubt::Retry, ..base }),
    ]
}

/// Searches each variant of a world, and expects that nothing goes wrong and that these situations are reached.
pub fn holds(name: &str, base: Steps, situations: &[&str]) {
    for (variant, world) in variants(base) {
        let found = search(&world);
        let name = format!("steps: {name}, {variant}");
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
    for (name, steps) in [("calls", CALLS), ("mixed", MIXED), ("optional", OPTIONAL)] {
        holds(&format!("kills, {name}"), world(steps, USUAL), &[provider::ARRIVES, owner::RESUMES, owner::BEGINS]);
    }
}

#[test]
fn zombies() {
    let faults = Faults { freezes: 1, answers: 1, ticks: 3, ..NONE };
    for (name, steps) in [("calls", CALLS), ("mixed", MIXED), ("optional", OPTIONAL)] {
        holds(&format!("zombies, {name}"), world(steps, faults), &[owner::BEGINS_LATE, owner::GIVES_UP]);
    }
}

/// Kafka's transactions, and the database's.
#[test]
fn transactions_of_unknown_outcome() {
    let faults = Faults { commits: 2, answers: 1, ticks: 3, ..NONE };
    for (name, steps) in [("calls", CALLS), ("transactions", TRANSACTIONS), ("mixed", MIXED)] {
        let situations = [writing::COMMIT_LOST, writing::ABORT_LOST, provider::TIMED_OUT, owner::RESUMES];
        holds(&format!("lost commits, {name}"), world(steps, faults), &situations);
    }
}

#[test]
fn runs_that_fail() {
    let faults = Faults { fails: 2, aborts: 1, answers: 1, exhausts: true, ticks: 3, ..NONE };
    for (name, steps) in [("calls", CALLS), ("mixed", MIXED), ("saga", SAGA)] {
        holds(&format!("failing runs, {name}"), world(steps, faults), &[owner::RUN_FAILS, writing::ABORTED]);
    }
}

/// A duplicate goes on with the journal.
#[test]
fn attempts_that_are_exhausted() {
    let faults = Faults { answers: 3, exhausts: true, ticks: 3, ..NONE };
    for (name, steps) in [("calls", CALLS), ("mixed", MIXED), ("saga", SAGA)] {
        holds(&format!("exhausted, {name}"), world(steps, faults), &[provider::PUT_OFF, owner::RESUMES]);
    }
}

#[test]
fn versions() {
    let faults = Faults { answers: 4, exhausts: true, ticks: 3, ..NONE };
    holds("versions", Steps { records: VERSIONS, ..world(CALLS, faults) }, &[owner::HALF_WAY, provider::ARRIVES]);
    let base = Steps { records: VERSIONS, ..world(MIXED, Faults { exhausts: true, answers: 2, ..USUAL }) };
    holds("versions, mixed", base, &[provider::ARRIVES]);
}

/// A duplicate, or a newer version, finds what was begun for a record that is gone.
#[test]
fn records_that_vanish() {
    let faults = Faults { vanish: 1, exhausts: true, answers: 2, ..USUAL };
    for (name, steps) in [("calls", CALLS), ("saga", SAGA)] {
        holds(&format!("vanished, {name}"), world(steps, faults), &[outside::VANISHES, owner::RESUMES]);
    }
    let base = Steps { records: VERSIONS, ..world(CALLS, faults) };
    holds("vanished, versions", base, &[outside::VANISHES, owner::GIVEN_UP, owner::HALF_WAY]);
}

#[test]
fn revocations() {
    let faults = Faults { revocations: 2, answers: 2, exhausts: true, ticks: 3, ..NONE };
    for (name, steps) in [("calls", CALLS), ("mixed", MIXED), ("saga", SAGA)] {
        holds(&format!("revocations, {name}"), world(steps, faults), &[owner::REVOKED, owner::RESUMES]);
    }
    let zombies = Faults { freezes: 1, revocations: 1, ticks: 3, ..NONE };
    holds("revocations, zombies", world(CALLS, zombies), &[owner::BEGINS_LATE, owner::REVOKED]);
}

#[test]
fn sagas() {
    let kills = Faults { kills: 1, answers: 2, ticks: 3, ..NONE };
    let zombies = Faults { freezes: 1, answers: 1, ticks: 2, ..NONE };
    let commits = Faults { commits: 1, answers: 2, ticks: 3, ..NONE };
    for (name, steps) in [("saga", SAGA), ("mixed saga", MIXED_SAGA)] {
        holds(&format!("{name}, kills"), world(steps, kills), &[provider::REJECTED, owner::RESUMES]);
        holds(&format!("{name}, zombies"), world(steps, zombies), &[provider::REJECTED, owner::BEGINS_LATE]);
        holds(&format!("{name}, lost commits"), world(steps, commits), &[provider::REJECTED, writing::COMMIT_LOST]);
        let base = Steps { decides: true, ..world(steps, Faults { kills: 2, ticks: 3, ..NONE }) };
        holds(&format!("{name}, decides"), base, &[owner::REJECTS, owner::ENDS_WELL]);
    }
}

/// Nothing but transactions: nothing is ever in doubt.
#[test]
fn transactions_alone() {
    let faults = Faults { freezes: 1, kills: 1, answers: 2, removals: true, ..NONE };
    holds("transactions", world(TRANSACTIONS, faults), &[provider::REJECTED, owner::BEGINS_LATE, outside::REMOVED]);
    let faults = Faults { answers: 3, exhausts: true, ..faults };
    holds("transactions, exhausted", world(TRANSACTIONS, faults), &[provider::PUT_OFF, outside::REMOVED]);
}
