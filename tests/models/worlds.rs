//! Goal: nothing goes wrong in any of these worlds, and what may fail has failed in them.

use crate::lane::Lanes;
use crate::postgres::{Faults, Postgres};
use crate::report;
use crate::search::{World, search};

const NONE: Faults = Faults::NONE;
/// Everything that may fail with a task, once.
const ALL: Faults = Faults {
    disks: true,
    failures: true,
    resets: 1,
    copies: 1,
    releases: 1,
    database_back: 1,
    changelog_back: 1,
    ..NONE
};

const fn task(records: u8, owners: u8, faults: Faults) -> Postgres {
    Postgres { records, owners, batch_max: 2, claims: false, apart: false, wary: false, faults, mistakes: &[] }
}

const fn lanes(records: u8, moves: u8, kills: u8) -> Lanes {
    Lanes { records, moves, kills, mistakes: &[] }
}

/// Searches a world, and expects that nothing goes wrong and that these situations are reached.
fn holds<W: World>(name: &str, world: &W, situations: &[&str]) {
    let found = search(world);
    report(name, &found);
    if let Some(wrong) = found.wrong {
        panic!("{name}: {wrong}");
    }
    for situation in situations {
        assert!(found.situations.contains_key(situation), "{name}: never reached: {situation}");
    }
}

/// Declares a test for each world of one task.
macro_rules! tasks {
    ($($name:ident: $world:expr;)*) => {$(
        #[test]
        fn $name() {
            let world: Postgres = $world;
            holds(stringify!($name), &world, &world.expected());
        }
    )*};
}

tasks! {
    kills_zombies_and_lost_answers: task(3, 2, NONE);
    markers_apart: Postgres { apart: true, ..task(2, 2, NONE) };
    claims_and_releases: Postgres { claims: true, batch_max: 1, ..task(2, 2, Faults { releases: 1, ..NONE }) };
    sweeps: Postgres { apart: true, ..task(1, 2, Faults { sweeps: 1, ..NONE }) };
    failures_and_lost_disks: task(2, 2, Faults { failures: true, disks: true, ..NONE });
    reset_and_late_copy: Postgres { batch_max: 1, ..task(1, 2, Faults { resets: 1, copies: 1, ..NONE }) };
    reset_forwards: Postgres { batch_max: 1, ..task(2, 2, Faults { resets: 1, forwards: true, ..NONE }) };
    database_fails_over: task(2, 2, Faults { database_back: 1, ..NONE });
    database_is_restored: task(1, 2, Faults { database_back: 1, backups: 1, ..NONE });
    changelog_loses_its_tail: task(2, 2, Faults { changelog_back: 1, ..NONE });
    everything_with_one_owner: Postgres { claims: true, apart: true, ..task(1, 1, ALL) };
    everything_but_markers_with_one_owner: Postgres { claims: true, ..task(2, 1, ALL) };
}

#[test]
fn two_tasks_in_a_lane() {
    let fenced = "step 2: no row; rolls back, this task restores";
    for (name, world) in
        [("lanes, kill", lanes(1, 1, 1)), ("lanes, records", lanes(2, 1, 0)), ("lanes, moves", lanes(1, 2, 0))]
    {
        holds(name, &world, &["plays the redo", fenced, "Kafka: another generation; restores"]);
    }
}

/// Millions of states: only where it is asked for.
#[test]
fn large_worlds() {
    match std::env::var("RATCHET_MODELS") {
        Ok(value) => assert_eq!(value, "large", "RATCHET_MODELS is \"large\" or not set"),
        Err(_) => return println!("large worlds: left out; RATCHET_MODELS=large searches them"),
    }
    for (name, world) in [("moves and a kill", lanes(1, 2, 1)), ("2 records, moves", lanes(2, 2, 0))] {
        holds(&format!("large: lanes, {name}"), &world, &["plays the redo"]);
    }
    let whole = Postgres { claims: true, apart: true, ..task(2, 2, Faults { releases: 1, ..NONE }) };
    let reset = Faults { resets: 1, ..NONE };
    let tasks = [
        ("3 owners", task(1, 3, NONE)),
        ("4 records", task(4, 2, NONE)),
        ("lost tail and late copy", task(2, 2, Faults { changelog_back: 1, copies: 1, ..NONE })),
        ("reset and fail-over", task(1, 2, Faults { database_back: 1, ..reset })),
        ("reset", task(2, 2, reset)),
        ("claims, releases and markers", whole),
        ("sweeps", task(2, 2, Faults { sweeps: 2, ..NONE })),
        ("backup", task(2, 2, Faults { database_back: 1, backups: 1, ..NONE })),
        ("lost tail, fail-over and late copy", task(1, 2, Faults { resets: 0, releases: 0, ..ALL })),
    ];
    for (name, world) in tasks {
        holds(&format!("large: {name}"), &world, &world.expected());
    }
}
