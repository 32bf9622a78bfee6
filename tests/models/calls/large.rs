//! Goal: nothing goes wrong in worlds of millions of states either. They are searched only where it is asked for.

use super::worlds::{AGAIN, ALONGSIDE, BOTH_AGAIN, COMMANDS, LOWER, SAME, SCOPES, TIMES, VERSIONS, holds, world};
use super::{Calls, Faults, control, judging, outside, owner, provider, writing};

const NONE: Faults = Faults::NONE;
const KILL: Faults = Faults { kills: 1, ..NONE };
const USUAL: Faults = Faults { answers: 1, ..KILL };
const ZOMBIES: Faults = Faults { freezes: 1, ..NONE };
const VANISH: Faults = Faults { vanish: 1, excuses_limits: true, exhausts: true, ..KILL };

/// Declares a test for worlds that are searched only where it is asked for: their names, and the situations that have
/// to be reached in them.
macro_rules! large {
    ($($test:ident { $($name:literal: $world:expr => $situations:expr;)* })*) => {$(
        #[test]
        fn $test() {
            if std::env::var("RATCHET_MODELS").as_deref() != Ok("large") {
                return println!("calls: {}: left out; RATCHET_MODELS=large searches it", stringify!($test));
            }
            $(holds(concat!("large: ", $name), $world, &$situations);)*
        }
    )*};
}

large! {
    large_moves {
        "frozen, revoked": world(AGAIN, Faults { revocations: 1, ..ZOMBIES }) => [owner::GIVES_UP, owner::REVOKED];
        "frozen, revoked, lost commits":
            world(SAME, Faults { revocations: 1, commits: 1, ..ZOMBIES }) => [owner::REVOKED, writing::COMMIT_LOST];
        "frozen, lost commits, failing answers":
            world(AGAIN, Faults { commits: 1, answers: 1, ..ZOMBIES }) => [owner::GIVES_UP, writing::COMMIT_LOST];
    }
    large_apart {
        "apart, frozen, lost commits":
            Calls { apart: true, ..world(SAME, Faults { commits: 1, ..ZOMBIES }) } => [writing::TAKEN_BACK];
        "apart, revoked":
            Calls { apart: true, ..world(AGAIN, Faults { revocations: 1, ..KILL }) } => [writing::TAKEN_BACK];
    }
    large_vanishing {
        "versions that vanish": world(VERSIONS, Faults { revocations: 1, answers: 2, ..VANISH }) => [owner::REVOKED];
        "vanished twice": world(AGAIN, Faults { vanish: 2, answers: 1, ..VANISH }) => [outside::VANISHES];
    }
    large_scopes {
        "scopes": world(SCOPES, Faults { resets: 1, commits: 1, ..ZOMBIES }) => [writing::COMMIT_LOST];
        "alongside": world(ALONGSIDE, Faults { resets: 1, commits: 1, ..KILL }) => [judging::PASSES];
        "alongside, frozen": world(ALONGSIDE, Faults { answers: 1, ..ZOMBIES }) => [owner::GIVES_UP];
        "lower": world(LOWER, Faults { resets: 1, commits: 1, ..ZOMBIES }) => [judging::PASSES];
        "scopes that vanish": world(SCOPES, Faults { kills: 2, answers: 1, ..VANISH }) => [outside::VANISHES];
        "lower that vanish": world(LOWER, Faults { kills: 2, answers: 1, ..VANISH }) => [outside::VANISHES];
    }
    large_provider {
        "down, frozen": Calls {
            holds: true,
            ..world(AGAIN, Faults { downs: 1, exhausts: true, ..ZOMBIES })
        } => [provider::COMES_UP];
        "down, revoked, rejections": Calls {
            holds: true,
            ..world(AGAIN, Faults { downs: 1, answers: 1, exhausts: true, rejects: true, revocations: 1, ..NONE })
        } => [provider::COMES_UP];
        "rejections, frozen": world(SAME, Faults {
            rejects: true, exhausts: true, stops: 1, answers: 2, ..ZOMBIES
        }) => [owner::STOPS];
        "rejections, versions": world(VERSIONS, Faults {
            rejects: true, exhausts: true, stops: 1, answers: 2, kills: 1, ..ZOMBIES
        }) => [owner::STOPS];
    }
    large_times {
        "stream time, failing answers": world(TIMES, Faults { sweeps: true, ..USUAL }) => [outside::SWEPT];
        "reset, frozen": world(AGAIN, Faults { resets: 1, kills: 1, ..ZOMBIES }) => [judging::PASSES];
        "four records, frozen": world(BOTH_AGAIN, ZOMBIES) => [owner::GIVES_UP];
        "four records, failing answers": world(BOTH_AGAIN, USUAL) => [provider::ANSWER_LOST];
    }
}

/// Commands are given at any time.
#[test]
fn large_commands() {
    if std::env::var("RATCHET_MODELS").as_deref() != Ok("large") {
        return println!("calls: large_commands: left out; RATCHET_MODELS=large searches it");
    }
    for (name, command) in COMMANDS {
        let faults = Faults { exhausts: true, answers: 2, ..KILL };
        let base = Calls { command: Some(command), ..world(VERSIONS, faults) };
        holds(&format!("large: command {name}, versions"), base, &[control::OBEYS]);
        let base = Calls { faults: Faults { commits: 1, kills: 1, answers: 1, ..ZOMBIES }, records: SAME, ..base };
        holds(&format!("large: command {name}, two owners"), base, &[control::OBEYS]);
        let base = Calls { faults: Faults { revocations: 1, answers: 1, ..ZOMBIES }, ..base };
        holds(&format!("large: command {name}, revoked"), base, &[control::OBEYS, owner::REVOKED]);
    }
}
