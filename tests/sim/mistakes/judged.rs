//! Goal: each deliberate mistake is seen within a stated number of new seeds.
//!
//! `SIM_MISTAKE=NAME` tries one alone, `SIM_FIRST=n` begins with that seed. When all have been seen,
//! docs/simulation/mistakes.md is written.

use std::cell::Cell;
use std::fmt::Write;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ratchet::mistakes::Mistake::{self, *};

use crate::profile::{Draw, Profile};
use crate::schedule::told;
use crate::{number, pages, play, stores};

thread_local! {
    static WANTED: Cell<Option<Mistake>> = const { Cell::new(None) };
}

/// The mistake that this thread's seeds are to make.
pub fn wanted() -> Option<Mistake> {
    WANTED.get()
}

/// A mistake, the profile whose seeds show it, and within how many of them it has to be seen.
type Case = (Mistake, &'static str, u64);

const CASES: [Case; 50] = [
    (StoreBeforeCommit, "falling", 100),
    (MetaBeforeEntries, "falling", 200),
    (StoreErrorIgnored, "sick", 500),
    (EpochsNotWritten, "epochal", 100),
    (LookUpsKept, "calm", 20),
    (InBatchDuplicatesUnseen, "calm", 20),
    (StoreNotAsked, "calm", 20),
    (EqualVersionForwarded, "calm", 20),
    (EpochIgnored, "epochal", 20),
    (TimestampReplaced, "calm", 20),
    (OffsetWithoutPlusOne, "calm", 20),
    (OffsetsOfOneTask, "calm", 50),
    (SweepWithoutOffsets, "forgetful", 100),
    (SweepByWallClock, "forgetful", 500),
    (TombstoneDropped, "forgetful", 500),
    (PositionNotLast, "calm", 20),
    (ChangelogPartitionWrong, "falling", 100),
    (StaleGeneration, "calm", 50),
    (UnjoinedMembership, "falling", 5_000),
    (LostKept, "falling", 2_000),
    (ReleasedInTransaction, "falling", 1_000),
    (UnknownTakenForAbort, "stormy", 2_000),
    (UnknownTakenForCommit, "stormy", 2_000),
    (ProducerUsedOn, "falling", 500),
    (AbortSkipped, "falling", 500),
    (TasksNotRestarted, "falling", 300),
    (ReadPositionKept, "falling", 500),
    (CommitmentNotNoted, "falling", 500),
    (ClaimUnsettled, "falling", 1_000),
    (OpenTransactionPassed, "wild", 10_000),
    (RestoreToStableOffset, "falling", 2_000),
    (RestoreToLastRecord, "falling", 50),
    (LoadPositionAhead, "sick", 1_000),
    (LoadOldestWins, "falling", 100),
    (RestoreFromOtherPartition, "falling", 50),
    (TokenInRestore, "sick", 2_000),
    (SourceOffsetAlone, "upset", 500),
    (PartitionNotCompared, "sick", 1_000),
    (ChangelogAdopted, "upset", 500),
    (TruncatedRebuilt, "upset", 500),
    (StoreNotSetAside, "sick", 2_000),
    (WholeStoreLoadedInto, "falling", 500),
    (ChangelogCreatedAnew, "upset", 200),
    (PositionNotRecorded, "late", 500),
    (ChangelogEndNotCompared, "upset", 2_000),
    (DeliveryNotCompared, "upset", 500),
    (HorizonMovedBack, "forgetful", 500),
    (RangesUnbounded, "uprooted", 500),
    (ScopesUnbounded, "epochal", 100),
    (KafkaTimeNotAsked, "forgetful", 500),
];

const INTRODUCTION: &str = "\
# The judge is judged

<!-- Written by `make sim-mistakes`; edit tests/sim/mistakes/judged.rs instead. -->

Deliberate mistakes in the engine, and four in the simulated client, made one after the other; each has to be seen by
the judge within a stated number of new seeds of one [profile](../simulation.md#profiles), which without the mistake are
right. A run in which one is not seen writes no page.

That something of an aborted transaction is kept, its writes, stream time, epochs or what it had processed, cannot be
written as a mistake any more: a transaction owns what it would change, and an abort drops it.
";

const HEAD: &str = "\
| mistake | name | profile | to be seen within | seen after | first seen as |
|---|---|---|---:|---:|---|
";

/// How a mistake was seen: in which of the seeds, from 0, and as what.
type Seen = (u64, String);

/// What is wrong with a seed; a panic is, too.
fn wrong(seed: u64, draw: Draw, mistake: Option<Mistake>) -> Option<String> {
    WANTED.set(mistake);
    let played = panic::catch_unwind(AssertUnwindSafe(|| play(seed, draw, false).wrong));
    WANTED.set(None);
    ratchet::mistakes::make(None);
    match played {
        Ok(wrong) => (!wrong.is_empty()).then(|| wrong.join("; ")),
        Err(panicked) => Some(told(&*panicked)),
    }
}

/// Makes a mistake over seeds from `first` on, on all cores, until it is seen.
fn look_for((mistake, name, seeds): Case, draw: Draw, first: u64) -> Option<Seen> {
    let (next, seen_at) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let seen: Mutex<Option<Seen>> = Mutex::default();
    let try_seeds = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            // Those before the one that has shown it are run to their end: so the first one counts.
            if at >= seeds || at > seen_at.load(Ordering::Relaxed) {
                return;
            }
            let seed = first + at;
            // Real stores have threads of their own, on which no mistakes are made.
            if stores::are_real(seed) {
                continue;
            }
            let Some(what) = wrong(seed, draw, Some(mistake)) else { continue };
            if let Some(without) = wrong(seed, draw, None) {
                println!("SIM_PROFILE={name} SIM_SEED={seed} is wrong without any mistake: {without}");
                panic!("seeds are wrong without any mistake");
            }
            seen_at.fetch_min(at, Ordering::Relaxed);
            let mut seen = seen.lock().unwrap_or_else(PoisonError::into_inner);
            if seen.as_ref().is_none_or(|(before, _)| at < *before) {
                *seen = Some((at, what));
            }
        }
    };
    thread::scope(|scope| {
        (0..thread::available_parallelism().map_or(1, usize::from)).for_each(|_| drop(scope.spawn(try_seeds)));
    });
    seen.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// A cell of a table: short, and on one line.
fn cell(text: &str) -> String {
    let line: String = text.chars().filter(|c| !c.is_control()).map(|c| if c == '|' { ' ' } else { c }).collect();
    if line.chars().count() <= 100 { line } else { line.chars().take(99).chain(['…']).collect() }
}

#[test]
fn every_mistake_is_listed_once() {
    let mut listed: Vec<Mistake> = CASES.iter().map(|(mistake, ..)| *mistake).collect();
    listed.sort();
    assert_eq!(listed, Mistake::ALL, "in the order in which they are declared");
}

#[test]
fn mistakes_are_seen() {
    let first = number("SIM_FIRST").unwrap_or_else(|| rand::random::<u64>() >> 20);
    println!("seeds from {first} on");
    let only = std::env::var("SIM_MISTAKE").ok();
    let hook = panic::take_hook();
    // Panics are counted as seen; their stories would hide the rest.
    panic::set_hook(Box::new(|_| {}));
    let (mut table, mut missed, mut tried) = (String::new(), Vec::new(), 0);
    for case in CASES {
        let (mistake, name, seeds) = case;
        if only.as_ref().is_some_and(|only| *only != format!("{mistake:?}")) {
            continue;
        }
        tried += 1;
        let draw = Profile::named(name).expect("the table names profiles");
        let (took, what) = match look_for(case, draw, first) {
            Some((at, what)) => ((at + 1).to_string(), cell(&what)),
            None => {
                missed.push(mistake);
                ("not seen".to_owned(), String::new())
            }
        };
        println!("{mistake:?}: {took} of {seeds} seeds of {name}: {what}");
        let meaning = mistake.meaning();
        writeln!(table, "| {meaning} | `{mistake:?}` | {name} | {seeds} | {took} | {what} |").expect("text takes text");
    }
    panic::set_hook(hook);
    assert!(tried > 0, "SIM_MISTAKE names none");
    assert!(missed.is_empty(), "not seen: {missed:?}");
    if tried == CASES.len() {
        let page = format!("{INTRODUCTION}\n{HEAD}{table}\nSeeds from {first} on. {}", pages::colophon());
        println!("{}", pages::write("simulation/mistakes.md", &page));
    }
}
