//! Goal: each mistake is found, by what it does wrong; and what is harmless is known to be.

use super::Mistake::{self, *};
use crate::lane::Lanes;
use crate::postgres::{Faults, Postgres};
use crate::report;
use crate::search::{DEAD_END, Outcome, World, search};

const NONE: Faults = Faults::NONE;
const FORWARDS: Faults = Faults { resets: 1, forwards: true, ..NONE };

/// A world of one task with a mistake.
const fn task(records: u8, owners: u8, faults: Faults, mistakes: &'static [Mistake]) -> Postgres {
    Postgres { records, owners, batch_max: 2, claims: false, apart: false, wary: false, faults, mistakes }
}

/// A world of two lanes with a mistake.
const fn lanes(moves: u8, mistakes: &'static [Mistake]) -> Lanes {
    Lanes { records: 1, moves, kills: 0, mistakes }
}

/// Searches a world and expects this to go wrong.
fn finds<W: World>(mistakes: &[Mistake], world: &W, wrong: &str) {
    let found = search(world);
    let name = format!("mistake {mistakes:?}");
    report(&name, &found);
    let Some(example) = found.wrong else { panic!("{name}: nothing is wrong in {} states", found.states) };
    println!("{example}");
    assert!(example.wrong.starts_with(wrong), "{name}: {}", example.wrong);
}

/// Searches the same world without a mistake, with it, and expects nothing to go wrong in either.
fn forgives<W: World>(mistakes: &[Mistake], world: &W) -> Outcome {
    let found = search(world);
    report(&format!("harmless {mistakes:?}"), &found);
    assert!(found.wrong.is_none(), "{}", found.wrong.map(|wrong| wrong.to_string()).unwrap_or_default());
    found
}

/// Declares a test for each mistake in a world of one task.
macro_rules! mistakes_of_a_task {
    ($($name:ident: $mistakes:expr, $records:expr, $owners:expr, $faults:expr => $wrong:expr;)*) => {$(
        #[test]
        fn $name() {
            const MISTAKES: &[Mistake] = &$mistakes;
            finds(MISTAKES, &task($records, $owners, $faults, MISTAKES), $wrong);
        }
    )*};
}

mistakes_of_a_task! {
    kafka_first: [KafkaFirst], 1, 1, NONE => "EFFECT LOST";
    no_redo: [NoRedo], 2, 1, NONE => "SILENT";
    redo_without_dead_letters: [RedoWithoutLetters], 1, 1, NONE => "STEP 4 LOST";
    row_compared_with_text: [GroupText], 2, 1, Faults { copies: 1, ..NONE } => "STEP 4 TWICE";
    kafka_read_unsettled: [Unsettled], 2, 1, NONE => "STEP 4 TWICE";
    redo_decided_anew: [RedoAnew], 2, 1, NONE => "EFFECT LOST";
    redo_of_another_state: [RedoUncompared], 2, 1, Faults { database_back: 1, ..NONE } => "RECORD LOST";
    redo_over_reset: [RedoOverReset], 2, 1, FORWARDS => "RESET UNDONE";
    redo_not_stored: [RedoNotStored], 2, 1, NONE => "SILENT";
    neither_token_nor_epoch: [TokenNotCompared, EpochNotCompared], 2, 2, NONE => "SILENT";
    token_where_database_goes_back: [TokenNotCompared], 2, 2, Faults { database_back: 1, ..NONE } => "SILENT";
    sweep_without_row: [SweepWithoutRow], 1, 1, Faults { sweeps: 2, ..NONE } => "APART";
    later_generation: [LaterGeneration], 2, 2, NONE => "STEP 4 TWICE";
    tag_ignored: [TagIgnored], 1, 1, Faults { failures: true, ..NONE } => "EFFECT LOST";
    held_batch_skipped: [HeldSkipped], 2, 1, NONE => "RECORD LOST";
    counts_ignored: [CountsIgnored], 2, 2, NONE => "SILENT";
    no_second_look: [NoSecondLook], 2, 2, NONE => "FALSE REFUSAL";
    same_token_again: [SameToken], 2, 1, NONE => "SILENT";
    store_trusted: [StoreTrusted], 2, 2, Faults { copies: 1, ..NONE } => "STEP 4 TWICE";
    no_idle_look: [NoIdleLook], 1, 1, Faults { database_back: 1, ..NONE } => DEAD_END;
    changelog_adopted: [ChangelogAdopted], 1, 1, Faults { changelog_back: 1, ..NONE } => "STEP 4 TWICE";
}

#[test]
fn second_look_unsettled() {
    let world = Postgres { apart: true, ..task(2, 2, NONE, &[SecondLookUnsettled]) };
    finds(world.mistakes, &world, "FALSE REFUSAL");
}

#[test]
fn restore_without_claim() {
    let world = Postgres { batch_max: 1, ..task(2, 2, Faults { sweeps: 2, ..NONE }, &[NoClaim]) };
    finds(world.mistakes, &world, "FALSE REFUSAL");
}

/// The text is no longer blank where a redo was played over a reset, and the next redo may be of a zombie's batch.
#[test]
fn redo_over_old_reset() {
    let world = Postgres { batch_max: 1, ..task(3, 2, FORWARDS, &[RedoOverOldReset]) };
    finds(world.mistakes, &world, "RESET UNDONE");
}

#[test]
fn lane_wide_redo() {
    finds(&[LaneWideRedo], &lanes(1, &[LaneWideRedo]), "STEP 4 TWICE");
}

#[test]
fn no_rollback_where_one_row_is_missing() {
    finds(&[NoRollback], &lanes(1, &[NoRollback]), "SILENT");
}

#[test]
fn rows_in_any_order() {
    finds(&[AnyOrder], &lanes(2, &[AnyOrder]), "DEADLOCK");
}

#[test]
fn claim_inside_open_transaction() {
    finds(&[ClaimInside], &lanes(2, &[ClaimInside]), "DEADLOCK");
}

/// A second look that goes by the epoch needs step 2 to go by it, too: the row may change under it otherwise.
#[test]
fn epoch_not_compared() {
    finds(&[EpochNotCompared], &task(3, 2, NONE, &[EpochNotCompared]), "FALSE REFUSAL");
}

/// Where the second look also goes by the token, the epoch in step 2 stops zombies early and does no more.
#[test]
fn epoch_alone_is_harmless() {
    let found = forgives(&[EpochNotCompared], &Postgres { wary: true, ..task(3, 2, NONE, &[EpochNotCompared]) });
    assert!(found.states > 100_000, "{}", found.states);
    let back = Faults { database_back: 1, ..NONE };
    forgives(&[EpochNotCompared], &Postgres { wary: true, ..task(2, 2, back, &[EpochNotCompared]) });
}

/// As long as the epoch is compared and nothing goes back in time, the token in step 2 does no more either: only a
/// database that goes back brings an old epoch again.
#[test]
fn token_alone_is_harmless() {
    let found = forgives(&[TokenNotCompared], &task(3, 2, NONE, &[TokenNotCompared]));
    assert!(found.states > 100_000, "{}", found.states);
}

/// A task of the lane's transaction that goes on with what it had finds no row in step 2, and restores then.
#[test]
fn tasks_that_go_on_after_unknown_outcome_are_harmless() {
    for mistakes in [&[OneRestores], &[OneRestoresFromKafka]] {
        forgives(mistakes, &Lanes { records: 2, ..lanes(1, mistakes) });
    }
}
