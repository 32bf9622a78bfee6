//! Many seeds, on all cores: what they reach, and which fail. The first failure is shrunk and printed in full, with
//! the command that replays it.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime};

use crate::judge::coverage::faults::FAULTS;
use crate::judge::coverage::{self, Situation};
use crate::kafka::{MS, SECOND, Time};
use crate::profile::{Draw, PROFILES, Profile};
use crate::schedule::panic_message;
use crate::shrink::{self, Shrunk};
use crate::{number, pages, play, play_cut};

type Named = (&'static str, Draw);

/// The least percentage of its profile's seeds in which each fault has to happen.
const FAULT_PERCENT_MIN: f64 = 1.0;
const RARE: &str = "faults in less than a hundredth of their profile's seeds";

/// The result of many seeds.
#[derive(Default)]
struct Found {
    reached: BTreeMap<&'static str, u64>,
    /// What is wrong, by profile and seed.
    failed: BTreeMap<(&'static str, u64), Vec<String>>,
    /// How many seeds were played, and of each profile.
    seeds: u64,
    seeds_of: BTreeMap<&'static str, u64>,
    /// In how many seeds of a profile each situation was reached.
    within: BTreeMap<(&'static str, &'static str), u64>,
    /// The slowest recovery, its profile and seed.
    slowest: (Time, &'static str, u64),
}

fn lock(found: &Mutex<Found>) -> MutexGuard<'_, Found> {
    found.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Plays this many seeds of a profile. If they are enough, they must reach every situation of the profile, and its
/// faults often enough.
pub fn of_profile(profile: &'static str, count: u64) {
    let draw = Profile::named(profile).expect("tests name existing profiles");
    let (first, count) = (number("SIM_FIRST").unwrap_or(1), number("SIM_SEEDS").unwrap_or(count));
    let found = hunt(&[(profile, draw)], first, |played| played < count);
    let own = |fault: &&Situation| fault.by == profile;
    FAULTS
        .iter()
        .filter(own)
        .for_each(|fault| println!("{:>6.1} % of its seeds: {}", found.percent(fault), fault.name));
    if count >= coverage::BIG {
        assert_eq!(coverage::missing(profile, &found.reached), Vec::<&str>::new(), "never reached");
        assert_eq!(found.rare(own), Vec::<&str>::new(), "{RARE}");
    }
}

const INTRODUCTION: &str = "\
# What the simulation reaches

<!-- Written by `make sim-hunt`; edit tests/sim/hunt.rs instead. -->

How often seeds of all [profiles](../simulation.md#profiles) together reached each situation that the simulation is
meant to reach, in one run of `make sim-hunt`, and what share of the seeds of the profile that is meant for it did. No
seed failed, and each fault (the first table) happened in at least one of a hundred seeds of its profile: otherwise no
page is written.
";

/// Plays new seeds of all profiles in turn, for `length` and until there are enough to reach every situation; returns
/// a page of the counts.
#[expect(clippy::disallowed_methods, reason = "new seeds come from the time of day")]
pub fn of_all(length: Duration) -> String {
    let since = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    let first = number("SIM_FIRST").unwrap_or(since.as_secs() * 1_000);
    let began = Instant::now();
    let found = hunt(&PROFILES, first, |played| played < coverage::BIG_OF_ALL || began.elapsed() < length);
    assert_eq!(coverage::missing_of_all(found.seeds, &found.reached), Vec::<&str>::new(), "never reached");
    assert_eq!(found.rare(|_| true), Vec::<&str>::new(), "{RARE}");
    let played = format!("{} seeds, from {first} on, in {} minutes.", found.seeds, began.elapsed().as_secs() / 60);
    let slowest = format!("After the last fault and the last record, {}.", found.recovery());
    format!(
        "{INTRODUCTION}\n{played}\n{slowest}\n\n{}\n{}",
        coverage::table(&found.reached, |of| found.percent(of)),
        pages::colophon()
    )
}

impl Found {
    /// The percentage of its profile's seeds that reached a situation.
    fn percent(&self, Situation { by, name, .. }: &Situation) -> f64 {
        let reached = self.within.get(&(*by, *name)).copied().unwrap_or_default();
        reached as f64 * 100.0 / self.seeds_of.get(by).copied().unwrap_or_default().max(1) as f64
    }

    /// The faults that were too rare, of those that `is_included` accepts.
    fn rare(&self, is_included: impl Fn(&&Situation) -> bool) -> Vec<&'static str> {
        let rare = FAULTS.iter().filter(is_included).filter(|fault| self.percent(fault) < FAULT_PERCENT_MIN);
        rare.map(|fault| fault.name).collect()
    }

    /// How long the slowest recovery took.
    fn recovery(&self) -> String {
        let (took, profile, seed) = self.slowest;
        let (seconds, tenths) = (took / SECOND, took % SECOND / (100 * MS));
        format!("reading everything took at most {seconds}.{tenths} s of simulated time ({profile}, seed {seed})")
    }
}

/// Plays seeds from `first` on, each with all `profiles`, while `should_continue` accepts their number.
#[expect(clippy::disallowed_methods, reason = "how long seeds take is printed")]
fn hunt(profiles: &[Named], first: u64, should_continue: impl Fn(u64) -> bool + Sync) -> Found {
    println!("seeds from {first} on");
    let (next, began) = (AtomicU64::new(0), Instant::now());
    let found: Mutex<Found> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    if !should_continue(at) {
                        return;
                    }
                    let (turn, count) = (at as usize % profiles.len(), profiles.len() as u64);
                    play_one(profiles[turn], first + at / count, &found);
                }
            });
        }
    });
    let (took, found) = (began.elapsed(), found.into_inner().unwrap_or_else(PoisonError::into_inner));
    coverage::report(&found.reached).iter().for_each(|line| println!("{line}"));
    let names: Vec<&str> = profiles.iter().map(|(name, _)| *name).collect();
    let each_ms = took.as_secs_f64() * 1000.0 / found.seeds.max(1) as f64;
    println!("{} seeds of {} in {took:.1?}: {each_ms:.1} ms a seed", found.seeds, names.join(", "));
    println!("{}", found.recovery());
    if let Some((profile, seed)) = found.failed.keys().next() {
        print_shortest(profile, *seed);
    }
    assert_eq!(found.failed.len(), 0, "seeds failed");
    found
}

fn play_one((profile, draw): Named, seed: u64, found: &Mutex<Found>) {
    let played = catch_unwind(AssertUnwindSafe(|| play(seed, draw, false)));
    let (reached, recovery, wrong) = match played {
        Ok(outcome) => (outcome.reached, outcome.recovery, outcome.wrong),
        Err(panicked) => (BTreeMap::new(), None, vec![panic_message(&*panicked)]),
    };
    let mut found = lock(found);
    found.seeds += 1;
    *found.seeds_of.entry(profile).or_default() += 1;
    found.slowest = found.slowest.max((recovery.unwrap_or(0), profile, seed));
    for (situation, times) in reached {
        *found.reached.entry(situation).or_default() += times;
        *found.within.entry((profile, situation)).or_default() += 1;
    }
    if !wrong.is_empty() {
        println!("SIM_PROFILE={profile} SIM_SEED={seed}: {}", wrong.join("; "));
        found.failed.insert((profile, seed), wrong);
    }
}

/// Prints the shortest part of a seed that still fails, and how to replay it.
fn print_shortest(profile: &str, seed: u64) {
    let draw = Profile::named(profile).expect("it was played");
    let replay = format!("replay: SIM_PROFILE={profile} SIM_SEED={seed}");
    // First, in case shrinking itself fails.
    println!("{replay} make sim ARGS=one_seed");
    let Shrunk { cut, tries, .. } = shrink::shrink(&play(seed, draw, false), |cut| play_cut(seed, draw, cut, false));
    println!("the shortest that fails, after {tries} tries:");
    let outcome = play_cut(seed, draw, &cut, true);
    println!("{}", outcome.wrong.join("; "));
    println!("{replay} SIM_KEEP='{cut}' make sim ARGS=one_seed");
}
