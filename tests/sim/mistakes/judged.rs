//! Goal: each act of sabotage and each lie is seen within a stated number of new seeds.
//!
//! `SIM_MISTAKE=NAME` tries one alone, `SIM_PROFILE=NAME` with it on another profile than its own; `SIM_FIRST=n` starts
//! with that seed. When all have been seen, docs/dev/simulation/mistakes.md is written.

use std::cell::Cell;
use std::fmt::{self, Debug as _, Write as _};
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::thread;

use ratchet::cluster::kafka::wire::mistakes::{self as wire, Mistake};
use ratchet::sabotage::{self, Sabotage};

use crate::lies::{self, Lie};
use crate::profile::{Draw, PROFILES, Profile};
use crate::schedule::panic_message;
use crate::{number, pages, play, stores};

/// What is done wrongly: by the engine itself, by the client that its lanes run on, or to it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Wrong {
    Done(Sabotage),
    Wire(Mistake),
    Told(Lie),
}

use Wrong::{Done, Told, Wire};

impl Wrong {
    fn meaning(self) -> &'static str {
        match self {
            Done(act) => act.meaning(),
            Wire(mistake) => mistake.meaning(),
            Told(lie) => lie.meaning(),
        }
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Done(act) => act.fmt(f),
            Wire(mistake) => mistake.fmt(f),
            Told(lie) => lie.fmt(f),
        }
    }
}

thread_local! {
    /// What is done wrongly in this thread's seeds.
    static WANTED: Cell<Option<Wrong>> = const { Cell::new(None) };
}

/// Makes the wanted mistake on this thread until [`end`].
pub fn begin() {
    match WANTED.get() {
        Some(Done(act)) => sabotage::switch_on(Some(act)),
        Some(Wire(mistake)) => wire::switch_on(Some(mistake)),
        Some(Told(lie)) => lies::tell(Some(lie)),
        None => {}
    }
}

/// Makes no mistake any more.
pub fn end() {
    sabotage::switch_on(None);
    wire::switch_on(None);
    lies::tell(None);
}

/// A mistake, the profile whose seeds show it, and within how many of them it must be seen.
type Case = (Wrong, &'static str, u64);

const CASES: [Case; 119] = [
    (Told(Lie::OwnMarkUnknown), "gated", 50),
    (Told(Lie::MarksNotAtOnce), "gated", 50),
    (Done(Sabotage::StoreBeforeCommit), "falling", 100),
    (Told(Lie::MetaBeforeEntries), "falling", 200),
    (Told(Lie::StoreErrorIgnored), "sick", 500),
    (Told(Lie::EpochsNotWritten), "epochal", 100),
    (Done(Sabotage::LookUpsKept), "calm", 20),
    (Done(Sabotage::InBatchDuplicatesUnseen), "calm", 20),
    (Told(Lie::StoreNotAsked), "calm", 20),
    (Done(Sabotage::EqualVersionForwarded), "calm", 20),
    (Done(Sabotage::ContentsIgnored), "calm", 50),
    (Done(Sabotage::EpochIgnored), "epochal", 20),
    (Told(Lie::TimestampReplaced), "calm", 20),
    (Told(Lie::OffsetWithoutPlusOne), "calm", 20),
    (Told(Lie::OffsetsOfOneTask), "calm", 50),
    (Told(Lie::SweepWithoutOffsets), "forgetful", 100),
    (Done(Sabotage::SweepByWallClock), "forgetful", 500),
    (Told(Lie::TombstoneDropped), "forgetful", 500),
    (Told(Lie::PositionNotLast), "calm", 20),
    (Told(Lie::ChangelogPartitionWrong), "falling", 100),
    (Told(Lie::StaleGeneration), "calm", 50),
    (Told(Lie::UnjoinedMembership), "restless", 1_000),
    (Told(Lie::LostKept), "falling", 1_000),
    (Done(Sabotage::ReleasedInTransaction), "falling", 1_000),
    (Done(Sabotage::UnknownTakenForAbort), "stormy", 1_000),
    (Told(Lie::UnknownTakenForCommit), "stormy", 1_000),
    (Done(Sabotage::ProducerUsedOn), "falling", 500),
    (Told(Lie::AbortSkipped), "falling", 500),
    (Done(Sabotage::TasksNotRestarted), "falling", 300),
    (Told(Lie::ReadPositionKept), "falling", 500),
    (Done(Sabotage::CommitmentNotNoted), "falling", 500),
    (Told(Lie::ClaimUnsettled), "falling", 1_000),
    (Told(Lie::OpenTransactionPassed), "wild", 1_000),
    (Told(Lie::RestoreToStableOffset), "falling", 1_000),
    (Told(Lie::RestoreToLastRecord), "falling", 50),
    (Done(Sabotage::LoadPositionAhead), "sick", 1_000),
    (Done(Sabotage::LoadOldestWins), "falling", 100),
    (Done(Sabotage::FrozenNotAsked), "calm", 500),
    (Told(Lie::RestoreFromOtherPartition), "falling", 50),
    (Done(Sabotage::TokenInRestore), "sick", 1_000),
    (Done(Sabotage::SourceOffsetAlone), "upset", 500),
    (Told(Lie::PartitionNotCompared), "sick", 1_000),
    (Done(Sabotage::ChangelogAdopted), "upset", 500),
    (Told(Lie::TruncatedRebuilt), "upset", 500),
    (Told(Lie::StoreNotSetAside), "sick", 1_000),
    (Done(Sabotage::WholeStoreLoadedInto), "falling", 500),
    (Done(Sabotage::ChangelogCreatedAnew), "upset", 200),
    (Told(Lie::PositionNotRecorded), "late", 500),
    (Done(Sabotage::ChangelogEndNotCompared), "upset", 1_000),
    (Told(Lie::DeliveryNotCompared), "upset", 500),
    (Done(Sabotage::HorizonMovedBack), "forgetful", 500),
    (Told(Lie::RangesUnbounded), "uprooted", 500),
    (Told(Lie::ScopesUnbounded), "epochal", 100),
    (Told(Lie::KafkaTimeNotAsked), "forgetful", 500),
    (Told(Lie::KafkaBeforeSink), "sunk", 100),
    (Done(Sabotage::RedoWithoutLetters), "sunk", 1_000),
    (Done(Sabotage::RowComparedWithText), "sunk", 500),
    (Told(Lie::RowBeforeSettled), "sunk", 1_000),
    (Done(Sabotage::RedoDecidedAnew), "sunk", 100),
    (Told(Lie::RowNotCompared), "sunk", 1_000),
    (Told(Lie::SweepWithoutRow), "sunk", 100),
    (Told(Lie::TagIgnored), "sunk", 100),
    (Done(Sabotage::HeldSkipped), "sunk", 100),
    (Done(Sabotage::ReservationNotWritten), "called", 200),
    (Done(Sabotage::KeyOfAttempt), "called", 200),
    (Done(Sabotage::OffsetBeyondUnsettled), "called", 100),
    (Done(Sabotage::BeyondNotListed), "called", 500),
    (Done(Sabotage::StreamTimeBeyond), "called", 100),
    (Done(Sabotage::GrantNotWritten), "called", 1_000),
    (Done(Sabotage::RejectedAfterAll), "called_unsure", 1_000),
    (Done(Sabotage::LetterWhileDown), "called", 500),
    (Done(Sabotage::ReplayTakenForResult), "called", 500),
    (Done(Sabotage::TwoOfIdentity), "called", 200),
    (Done(Sabotage::ReservedAfterCall), "called", 500),
    (Done(Sabotage::KeyOfPlace), "called_unsure", 1_000),
    (Done(Sabotage::WindowNotLookedAt), "called", 1_000),
    (Done(Sabotage::ReservationOverSettlement), "called_unsure", 1_000),
    (Done(Sabotage::SettledNotDoubted), "called_unsure", 1_000),
    (Told(Lie::SettledUnconditionally), "called", 1_000),
    (Told(Lie::SettledByZombie), "called", 1_000),
    (Done(Sabotage::StepBeforeJournal), "handled", 50),
    (Done(Sabotage::JournalDropped), "handled", 200),
    (Done(Sabotage::StepsKeptAfterAbort), "handled", 200),
    (Done(Sabotage::RunAgainInCommit), "handled_unsure", 1_000),
    (Done(Sabotage::StepKeyOfAttempt), "handled", 200),
    (Done(Sabotage::ResultOfOtherStep), "handled", 100),
    (Done(Sabotage::StepRefusedAfterAll), "handled", 1_000),
    (Done(Sabotage::MarkNotWritten), "handled", 500),
    (Done(Sabotage::MarkUnread), "handled", 500),
    (Done(Sabotage::MarkLeft), "handled_unsure", 1_000),
    (Done(Sabotage::GivenUpLosesJournal), "handled", 1_000),
    (Done(Sabotage::LeftAlthoughActed), "handled", 1_000),
    (Done(Sabotage::RefusalNotMarked), "handled", 50),
    (Done(Sabotage::UndoneInOrder), "handled", 50),
    (Told(Lie::StepRowNotKept), "handled", 200),
    (Told(Lie::AbandonedGoesOn), "handled", 200),
    (Told(Lie::JournaledByZombie), "handled", 500),
    (Done(Sabotage::CommandOverCall), "called", 300),
    (Done(Sabotage::CommandNotNoted), "called", 100),
    (Done(Sabotage::JudgedOverCommand), "called", 300),
    (Wire(Mistake::AbortedPassedOn), "odd", 1_000),
    (Wire(Mistake::StartedBatchTaken), "wild", 1_000),
    (Wire(Mistake::MarkerAsRecord), "odd", 1_000),
    (Wire(Mistake::ResponseMatchedWrongly), "falling", 1_000),
    (Wire(Mistake::StartedBatchPassed), "wild", 1_000),
    (Wire(Mistake::BufferedUsedAfterRestart), "sunk", 100),
    (Wire(Mistake::EmptinessBelieved), "odd", 500),
    (Wire(Mistake::SequenceNotRaised), "stormy", 1_000),
    (Wire(Mistake::FormerEpoch), "wild", 1_000),
    (Wire(Mistake::TwoSequences), "stormy", 1_000),
    (Wire(Mistake::NoGeneration), "restless", 1_000),
    (Wire(Mistake::AddedBefore), "calm", 1_000),
    (Wire(Mistake::WrongAnswer), "calm", 100),
    (Wire(Mistake::LastFirst), "stormy", 1_000),
    (Wire(Mistake::UnknownIsSuccess), "stormy", 1_000),
    (Wire(Mistake::RefusedIsSkipped), "wild", 1_000),
    (Wire(Mistake::DoubtIgnored), "doubtful", 1_000),
    (Wire(Mistake::EndBeforeFlush), "wild", 1_000),
    (Wire(Mistake::UnknownIsAbort), "stormy", 1_000),
];

/// Mistakes of the wire that only its own simulation shows: docs/dev/simulation.md says why.
const SEEN_BY_WIRE: [Wrong; 2] = [Wire(Mistake::LeaderEpochIgnored), Wire(Mistake::EpochNotRaised)];

const INTRODUCTION: &str = "\
# The judge is judged

<!-- Written by `make sim-mistakes`; edit tests/sim/mistakes/judged.rs instead. -->

Sabotage of the engine and of the client that its lanes run on, and lies that cluster and disk tell them, one after
another; the judge has to see each within a stated number of new seeds of one [profile](../simulation.md#profiles),
which are right without the mistake. A run in which one is not seen writes no page.

Keeping something of an aborted transaction (its writes, stream time, epochs or processed offsets) cannot be written
as a mistake any more: a transaction owns what it would change, and an abort drops it.

A database that compares a row's token but not its epoch is no mistake either: nothing goes wrong. The epoch only
stops a former owner earlier. Nor is it one to commit in Kafka under a membership taken after the database's commit: a
member that has lost partitions joins again only once its lane has accepted that, which it does between transactions.
";

const HEAD: &str = "\
| mistake | name | profile | to be seen within | seen after | first seen as |
|---|---|---|---:|---:|---|
";

/// How a mistake was seen: in which of the seeds, counted from 0, and as what.
type Seen = (u64, String);

/// What is wrong with a seed, including a panic.
fn wrong(seed: u64, draw: Draw, wanted: Option<Wrong>) -> Option<String> {
    WANTED.set(wanted);
    let played = panic::catch_unwind(AssertUnwindSafe(|| play(seed, draw, false).wrong));
    WANTED.set(None);
    end();
    match played {
        Ok(wrong) => (!wrong.is_empty()).then(|| wrong.join("; ")),
        Err(panicked) => Some(panic_message(&*panicked)),
    }
}

/// Makes a mistake over seeds from `first` on, on all cores, until it is seen.
fn look_for((mistake, name, seeds): Case, draw: Draw, first: u64) -> Option<Seen> {
    let (next, seen_at) = (AtomicU64::new(0), AtomicU64::new(u64::MAX));
    let seen: Mutex<Option<Seen>> = Mutex::default();
    let try_seeds = || {
        loop {
            let at = next.fetch_add(1, Ordering::Relaxed);
            // Seeds before the first one found are finished, so that the lowest counts.
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
                println!("SIM_PROFILE={name} SIM_SEED={seed} fails without any mistake: {without}");
                panic!("seeds fail without any mistake");
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

/// A table cell: short, and on one line.
fn cell(text: &str) -> String {
    let line: String = text.chars().filter(|c| !c.is_control()).map(|c| if c == '|' { ' ' } else { c }).collect();
    if line.chars().count() <= 100 { line } else { line.chars().take(99).chain(['…']).collect() }
}

/// All mistakes.
fn all() -> impl Iterator<Item = Wrong> {
    let of_wire = Mistake::FETCHER.iter().chain(Mistake::WRITER).copied().map(Wire);
    Sabotage::ALL.iter().copied().map(Done).chain(Lie::ALL.iter().copied().map(Told)).chain(of_wire)
}

/// The mistakes to try: all that have to be seen, or only the mistake that the environment names.
fn cases() -> Vec<Case> {
    let Ok(only) = std::env::var("SIM_MISTAKE") else { return CASES.to_vec() };
    let Ok(profile) = std::env::var("SIM_PROFILE") else {
        return CASES.into_iter().filter(|(mistake, ..)| only == mistake.to_string()).collect();
    };
    let (name, _) = PROFILES.into_iter().find(|(name, _)| *name == profile).expect("SIM_PROFILE names a profile");
    all().filter(|mistake| only == mistake.to_string()).map(|mistake| (mistake, name, 1_000)).collect()
}

#[test]
fn every_mistake_is_listed_once() {
    let mut listed: Vec<Wrong> = CASES.iter().map(|(wrong, ..)| *wrong).chain(SEEN_BY_WIRE).collect();
    listed.sort();
    let mut all: Vec<Wrong> = all().collect();
    all.sort();
    assert_eq!(listed, all, "each mistake must be listed exactly once");
}

#[test]
fn mistakes_are_seen() {
    let first = number("SIM_FIRST").unwrap_or_else(|| rand::random::<u64>() >> 20);
    println!("seeds from {first} on");
    let cases = cases();
    assert!(!cases.is_empty(), "SIM_MISTAKE names none");
    let hook = panic::take_hook();
    // Panics count as seen; their backtraces would hide the rest.
    panic::set_hook(Box::new(|_| {}));
    let (mut table, mut missed) = (String::new(), Vec::new());
    for case in &cases {
        let (mistake, name, seeds) = *case;
        let draw = Profile::named(name).expect("the table names profiles");
        let (took, what) = match look_for(*case, draw, first) {
            Some((at, what)) => ((at + 1).to_string(), cell(&what)),
            None => {
                missed.push(mistake);
                ("not seen".to_owned(), String::new())
            }
        };
        println!("{mistake}: {took} of {seeds} seeds of {name}: {what}");
        let meaning = mistake.meaning();
        writeln!(table, "| {meaning} | `{mistake}` | {name} | {seeds} | {took} | {what} |").expect("text takes text");
    }
    panic::set_hook(hook);
    assert!(missed.is_empty(), "not seen: {missed:?}");
    if cases == CASES {
        let page = format!("{INTRODUCTION}\n{HEAD}{table}\nSeeds from {first} on. {}", pages::colophon());
        println!("{}", pages::write("dev/simulation/mistakes.md", &page));
    }
}
