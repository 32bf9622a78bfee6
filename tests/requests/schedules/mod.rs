//! Goal: in any schedule, with processes that die and freeze, a line that loses calls and answers, clients that give up
//! and repeat, and services that fail: what was answered is not carried out again, all answers are equal, two are at work
//! at once only where one was silent for longer than its lease, a service that was given up is not run beside itself, and
//! nothing runs twice where it must not, but what the service says it has not done. That holds for
//! as long as an answer is remembered, by the store's own clock, which is set forth and back; after that nothing of it is
//! left. A store that crashes with its machine loses what it has not synced, and no answer. Where requests are passed on
//! while the store is down, they are while it is, and at no other time.
//!
//! `RATCHET_REQUESTS_SEEDS=n` runs so many seeds, `RATCHET_REQUESTS_SEED=n` one of them.

mod client;
mod clock;
mod judge;
mod ledger;
mod memory;
mod mistake;
mod run;
mod shop;
mod store;
mod terms;
mod world;

use mistake::{MISTAKES, Mistake};

/// So many that each of what is to happen is all but certain to: the rarest of it does in one of some hundred.
const SEEDS: u64 = 4_000;
/// How many seeds a mistake is looked for in.
const MISTAKE_SEEDS: u64 = 3_000;
/// How many seeds are run twice: one would hardly ever meet what differs in one of some thirty.
const REPEATED_SEEDS: u64 = 300;

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().map(|text| text.parse().unwrap_or_else(|_| panic!("{name} is a number")))
}

/// Where seeds begin that were not run before.
fn new_seed() -> u64 {
    rand::random::<u64>() >> 16
}

#[test]
fn all_schedules_are_right() {
    let (first, count) = match number("RATCHET_REQUESTS_SEED") {
        Some(seed) => (seed, 1),
        None => (new_seed(), number("RATCHET_REQUESTS_SEEDS").unwrap_or(SEEDS)),
    };
    let mut reached = ledger::Reached::default();
    for seed in first..first + count {
        let outcome = run::run(seed, None);
        assert!(outcome.wrong.is_empty(), "RATCHET_REQUESTS_SEED={seed}: {:#?}", outcome.wrong);
        reached.add(&outcome.reached);
    }
    println!("{count} seeds from {first} on: {reached:?}");
    if count >= SEEDS {
        reached.check();
    }
}

#[test]
fn schedules_repeat() {
    let first = new_seed();
    for seed in first..first + REPEATED_SEEDS {
        assert_eq!(run::run(seed, None).trace, run::run(seed, None).trace, "seed {seed}");
    }
}

#[test]
fn mistakes_are_seen() {
    let first = new_seed();
    for mistake in MISTAKES {
        let seen = (0..MISTAKE_SEEDS).find_map(|at| {
            let mut wrong = run::run(first + at, Some(mistake)).wrong.into_iter();
            Some((at + 1, wrong.find(|wrong| mistake.is_seen_by(wrong))?))
        });
        let (after, wrong) =
            seen.unwrap_or_else(|| panic!("{mistake:?} was not seen in {MISTAKE_SEEDS} seeds from {first} on"));
        println!("{mistake:?}: seen after {after} seeds: {wrong}");
    }
    assert_eq!(MISTAKES.len(), Mistake::DoubtNotSynced as usize + 1, "all of them");
}
