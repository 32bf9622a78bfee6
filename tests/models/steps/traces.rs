//! Goal: each mistake is found, by what it does wrong; what is harmless is known to be; and so is the limit that stays.

use super::mistake::Mistake::{self, *};
use super::worlds::{CALLS, MIXED, MIXED_SAGA, OPTIONAL, SAGA, SHORT_SAGA, TRANSACTIONS, VERSIONS, variants, world};
use super::{Faults, Step, Steps};
use crate::report;
use crate::search::{DEAD_END, search};

const NONE: Faults = Faults { ticks: 3, ..Faults::NONE };
const KILL: Faults = Faults { kills: 1, ..NONE };
const FREEZE: Faults = Faults { freezes: 1, ..NONE };
const ANSWER: Faults = Faults { answers: 1, ..NONE };
const COMMIT: Faults = Faults { commits: 1, ..NONE };
const REVOKE: Faults = Faults { revocations: 1, ..NONE };
/// A transaction that is aborted, and a run that fails then.
const ABORT: Faults = Faults { aborts: 1, fails: 1, ..NONE };
const EXHAUST: Faults = Faults { answers: 2, exhausts: true, ..NONE };
const REMOVE: Faults = Faults { freezes: 1, removals: true, ..NONE };

const CALL_TWICE: &str = "TWICE: a call";
const TRANSACTION_TWICE: &str = "TWICE: a transaction";

/// A variant of a world, with mistakes.
fn erring(variant: usize, steps: &'static [Step], faults: Faults, mistakes: &'static [Mistake]) -> Steps {
    variants(Steps { mistakes, ..world(steps, faults) })[variant].1
}

const KEY: usize = 0;
const KEY_RETRY: usize = 1;
const NO_KEY: usize = 2;

/// Searches a world and expects this to go wrong.
fn finds(name: &str, world: &Steps, wrong: &str) {
    let found = search(world);
    let name = format!("steps: {name}");
    report(&name, &found);
    let Some(example) = found.wrong else { panic!("{name}: nothing is wrong in {} states", found.states) };
    println!("{example}");
    assert!(example.wrong.starts_with(wrong), "{name}: {}", example.wrong);
}

/// Declares a test for each mistake.
macro_rules! mistakes {
    ($($name:ident: $mistakes:expr, $variant:expr, $steps:expr, $faults:expr => $wrong:expr;)*) => {$(
        #[test]
        fn $name() {
            const MISTAKES: &[Mistake] = &$mistakes;
            let world = erring($variant, $steps, $faults, MISTAKES);
            finds(&format!("mistake {MISTAKES:?}"), &world, $wrong);
        }
    )*};
}

mistakes! {
    journal_after_the_next_step_began: [JournalLate], KEY, CALLS, NONE => "AHEAD";
    result_left_out_in_mid_way: [ResultLeftOut], KEY, CALLS, NONE => "AHEAD";
    journal_not_fenced: [NotFenced], KEY, CALLS, FREEZE => "RECORD";
    journal_not_fenced_without_a_key: [NotFenced], NO_KEY, CALLS, FREEZE => "RECORD";
    run_kept_after_unknown_outcome: [KeptAfterUnknown], KEY, CALLS, COMMIT => "AHEAD";
    run_sees_what_is_not_committed: [RunSeesUncommitted], KEY, CALLS, ABORT => "AHEAD";
    cleared_without_a_commit: [ClearedUncommitted], NO_KEY, CALLS, ABORT => CALL_TWICE;
    cleared_without_a_commit_with_a_key: [ClearedUncommitted], KEY, CALLS, ABORT => CALL_TWICE;
    renewed_without_a_commit: [RenewedUncommitted], KEY, CALLS, ABORT => CALL_TWICE;
    renewed_by_giving_up: [RenewedByGivingUp], KEY, CALLS, EXHAUST => CALL_TWICE;
    kept_by_giving_up: [KeptByGivingUp], KEY, CALLS, EXHAUST => "NEVER BEGUN";
    window_is_not_looked_at: [NoLookAtWindow], KEY, CALLS, KILL => CALL_TWICE;
    retry_ends_in_doubt: [RetryInDoubt], KEY_RETRY, CALLS, KILL => "IN DOUBT";
    retry_keeps_its_window: [RetryKeepsFirst], KEY_RETRY, CALLS, KILL => DEAD_END;
    doubt_when_the_record_is_judged: [DoubtWhenJudged], KEY, MIXED, KILL => "IN DOUBT";
    failed_run_is_fresh: [FailedIsFresh], KEY, CALLS, Faults { revocations: 1, ..ABORT } => CALL_TWICE;
    failed_run_is_fresh_without_a_key: [FailedIsFresh], NO_KEY, CALLS, ABORT => CALL_TWICE;
    given_up_loses_its_journal: [GivenUpLosesJournal], KEY, CALLS, EXHAUST => CALL_TWICE;
    given_up_counts_as_failed: [GivenUpIsFailed], KEY, CALLS, EXHAUST => "FORGOTTEN";
    no_mark: [NoMark], NO_KEY, CALLS, KILL => CALL_TWICE;
    mark_is_not_looked_at: [MarkUnread], NO_KEY, CALLS, KILL => CALL_TWICE;
    mark_is_left_by_giving_up: [MarkLeft], NO_KEY, CALLS, EXHAUST => "NEVER BEGUN";
    mark_is_left_by_a_revocation: [MarkLeft], NO_KEY, CALLS, REVOKE => "NEVER BEGUN";
    unjudged_is_released: [UnjudgedReleased], KEY, CALLS, Faults { freezes: 1, ..REVOKE } => CALL_TWICE;
    begun_is_released: [BegunReleased], NO_KEY, CALLS, REVOKE => CALL_TWICE;
    begun_is_released_with_a_key: [BegunReleased], KEY, CALLS, REVOKE => CALL_TWICE;
    rejected_after_all: [RejectedAfterAll], KEY, OPTIONAL, Faults { answers: 2, ..NONE } => "REJECTED AFTER ALL";
    undone_before_it_is_written: [UndoneUnwritten], KEY, SAGA, Faults { answers: 1, ..KILL } => "AHEAD";
    undone_in_order: [UndoneInOrder], KEY, SAGA, ANSWER => "ORDER";
    undone_in_doubt: [UndoneInDoubt], KEY, SAGA, Faults { answers: 2, ..NONE } => "REJECTED AFTER ALL";
    rejected_undo_counts_as_done: [UndoRejectedIsDone], KEY, SHORT_SAGA, Faults { answers: 2, ..NONE } => "NOT UNDONE";
    undone_unrecorded: [UndoneUnrecorded], KEY, SAGA, Faults { answers: 1, ..KILL } => "AHEAD";
    no_row: [NoRow], KEY, TRANSACTIONS, KILL => TRANSACTION_TWICE;
    rejected_without_a_row: [RejectedWithoutRow], KEY, MIXED_SAGA, Faults { answers: 1, ..FREEZE } => "REJECTED AFTER ALL";
    row_is_removed_early: [RowRemovedEarly], KEY, TRANSACTIONS, REMOVE => TRANSACTION_TWICE;
}

#[test]
fn no_marker_of_a_final_rejection() {
    let world = Steps { decides: true, ..erring(KEY, SAGA, KILL, &[NoMarker]) };
    finds("mistake [NoMarker]", &world, "UNDONE");
}

#[test]
fn overtaken_half_way() {
    let faults = Faults { answers: 4, ..EXHAUST };
    let world = Steps { records: VERSIONS, ..erring(KEY, CALLS, faults, &[OvertakenAtFirstStep]) };
    finds("mistake [OvertakenAtFirstStep]", &world, "RECORD");
}

/// A window that goes on from the first step brings a call into doubt earlier than needed, and does no more: what is
/// promised of a step is kept.
#[test]
fn window_that_never_begins_anew_is_harmless() {
    let found = search(&erring(KEY, CALLS, Faults { answers: 2, ..KILL }, &[NotRenewed]));
    report("steps: harmless [NotRenewed]", &found);
    assert!(found.wrong.is_none(), "{}", found.wrong.map(|wrong| wrong.to_string()).unwrap_or_default());
}

/// A limit that stays: nothing shows that a former run has begun a step, if this one does not.
#[test]
fn handler_that_wavers() {
    let world = Steps { wavers: true, ..world(SAGA, KILL) };
    finds("limit: the handler wavers", &world, "REJECTED AFTER ALL");
}

/// A limit that stays: what is run again after it was undone has the keys of before, and their results.
#[test]
fn run_again_after_it_was_undone() {
    let world = Steps { decides: true, ..world(SAGA, Faults { orders: true, ..NONE }) };
    finds("limit: run again after it was undone", &world, "UNDONE");
}
