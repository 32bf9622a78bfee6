//! Goal: nothing goes wrong in worlds of millions of states either. They are searched only where it is asked for.

use super::worlds::{CALLS, MIXED, MIXED_SAGA, OPTIONAL, SAGA, TRANSACTIONS, VERSIONS, holds, world};
use super::{Faults, Steps, outside, owner, provider, writing};

const NONE: Faults = Faults::NONE;
const KILLS: Faults = Faults { kills: 2, answers: 2, ticks: 4, ..NONE };
const ZOMBIES: Faults = Faults { freezes: 1, kills: 1, answers: 1, ticks: 4, ..NONE };
const REVOKED: Faults = Faults { freezes: 1, revocations: 1, answers: 2, exhausts: true, ticks: 3, ..NONE };
const EXHAUSTED: Faults = Faults { kills: 1, answers: 3, exhausts: true, ticks: 4, ..NONE };
const UNKNOWN: Faults = Faults { freezes: 1, commits: 1, aborts: 1, fails: 1, answers: 1, ticks: 3, ..NONE };

/// Declares a test for worlds that are searched only where it is asked for: their names, and the situations that have
/// to be reached in them.
macro_rules! large {
    ($($test:ident { $($name:literal: $world:expr => $situations:expr;)* })*) => {$(
        #[test]
        fn $test() {
            if std::env::var("RATCHET_MODELS").as_deref() != Ok("large") {
                return println!("steps: {}: left out; RATCHET_MODELS=large searches it", stringify!($test));
            }
            $(holds(concat!("large: ", $name), $world, &$situations);)*
        }
    )*};
}

large! {
    large_sagas {
        "saga, kills": Steps { decides: true, ..world(SAGA, KILLS) } => [owner::REJECTS, provider::REJECTED];
        "saga, frozen": Steps { decides: true, ..world(SAGA, ZOMBIES) } => [owner::BEGINS_LATE, owner::REJECTS];
        "mixed saga, frozen": Steps { decides: true, ..world(MIXED_SAGA, ZOMBIES) } => [owner::BEGINS_LATE];
        "saga, exhausted": Steps { decides: true, ..world(SAGA, EXHAUSTED) } => [owner::RESUMES, provider::PUT_OFF];
    }
    large_unknown {
        "calls, unknown outcome, frozen": world(CALLS, UNKNOWN) => [writing::COMMIT_LOST, owner::BEGINS_LATE];
        "saga, unknown outcome, frozen": world(SAGA, UNKNOWN) => [writing::COMMIT_LOST, owner::BEGINS_LATE];
        "mixed, unknown outcome, frozen": world(MIXED, UNKNOWN) => [writing::COMMIT_LOST, owner::RUN_FAILS];
    }
    large_revocations {
        "mixed, revoked": world(MIXED, REVOKED) => [owner::REVOKED, owner::BEGINS_LATE];
        "mixed saga, revoked": world(MIXED_SAGA, REVOKED) => [owner::REVOKED, owner::BEGINS_LATE];
        "transactions, revoked": Steps {
            records: VERSIONS,
            ..world(TRANSACTIONS, Faults { removals: true, ..REVOKED })
        } => [owner::REVOKED, outside::REMOVED];
    }
    large_versions {
        "versions, kills": Steps { records: VERSIONS, ..world(OPTIONAL, KILLS) } => [provider::ARRIVES];
        "versions, frozen": Steps { records: VERSIONS, ..world(CALLS, ZOMBIES) } => [owner::BEGINS_LATE];
        "versions, revoked": Steps { records: VERSIONS, ..world(CALLS, REVOKED) } => [owner::REVOKED];
        "versions, exhausted": Steps {
            records: VERSIONS,
            ..world(CALLS, Faults { answers: 4, ..EXHAUSTED })
        } => [owner::HALF_WAY];
    }
}
