//! Goal: the engine as it ships, on a simulated cluster, under schedules that come from a seed alone.
//!
//! - `kafka`: a Kafka cluster as a state machine, knowing nothing of ratchet; `client`: what librdkafka makes of it
//! - `world`: time, processes and the wire; `coroutine`: code that waits; `random`
//! - `instance`: the engine; `stores`: what its stores are on; `input`: what it reads; `judge`: whether what came out
//!   is right, and which situations were reached
//! - `schedule`: one seed from beginning to end, of one `profile`
//!
//! - `cut`: a part of a seed; `shrink`: finds the smallest that fails
//! - `mistakes`: the judge is judged, where the engine was built to make some
//!
//! docs/simulation.md says what is simulated, what is not, and how seeds are run.
#![allow(dead_code, reason = "the cluster can more than the first scheduler asks of it")]

mod client;
mod coroutine;
mod cut;
mod input;
mod instance;
mod judge;
mod kafka;
mod mistakes;
mod profile;
mod random;
mod schedule;
mod shrink;
mod stores;
mod world;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, LazyLock, Mutex, PoisonError};
use std::time::Instant;

use ratchet::config::Commit;
use ratchet::topology::Topology;

use cut::Cut;
use instance::Plan;
use judge::coverage;
use profile::{Draw, PROFILES, Profile};
use random::Random;
use schedule::{Outcome, run};
use shrink::Shrunk;

/// By the kind of input.
static TOPOLOGIES: LazyLock<[Topology; 3]> = LazyLock::new(|| {
    input::Kind::ALL.map(|kind| {
        let loaded = ratchet::topology::load(Path::new("shop.yaml"), &OneFile(kind));
        loaded.map_err(|mistakes| mistakes.render(false)).expect("the topology is right").topology
    })
});

fn plan(profile: &Profile) -> Plan {
    Plan {
        topology: TOPOLOGIES[profile.input as usize].clone(),
        lanes: profile.lanes,
        commit: Commit { interval_ms: 100, records_max: 100, bytes_max: 1 << 20 },
    }
}

/// An environment of one file.
struct OneFile(input::Kind);

impl ratchet::yaml::Environment for OneFile {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn read_file(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.topology().as_bytes().to_vec())
    }

    fn cores(&self) -> usize {
        1
    }
}

/// A seed's profile and its way.
fn play(seed: u64, draw: Draw, tell: bool) -> Outcome {
    play_cut(seed, draw, &Cut::default(), tell)
}

/// A part of a seed.
fn play_cut(seed: u64, draw: Draw, cut: &Cut, tell: bool) -> Outcome {
    judge::heard::listen(number("SIM_SEED").is_some());
    let profile = draw(&mut Random::new(seed ^ 0x5eed));
    if tell {
        println!("{profile:?}");
    }
    run(seed, &Arc::new(plan(&profile)), profile, cut, tell)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs many seeds of a profile and says which are wrong; the first of those is told in full, as short as it gets.
#[expect(clippy::disallowed_methods, reason = "how long seeds take is told to people")]
fn play_all(profile: &str, count: u64) {
    let draw = Profile::named(profile).expect("tests name profiles that are there");
    let (first, count) = (number("SIM_FIRST").unwrap_or(1), number("SIM_SEEDS").unwrap_or(count));
    let (next, began) = (AtomicU64::new(first), Instant::now());
    let (reached, failed): (Mutex<BTreeMap<&'static str, u64>>, Mutex<BTreeMap<u64, Outcome>>) = Default::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let mut outcome = play(seed, draw, false);
                    let here = std::mem::take(&mut outcome.reached);
                    let mut all = reached.lock().unwrap_or_else(PoisonError::into_inner);
                    here.into_iter().for_each(|(situation, times)| *all.entry(situation).or_default() += times);
                    drop(all);
                    if !outcome.wrong.is_empty() {
                        println!("SIM_PROFILE={profile} SIM_SEED={seed}: {}", outcome.wrong.join("; "));
                        failed.lock().unwrap_or_else(PoisonError::into_inner).insert(seed, outcome);
                    }
                }
            });
        }
    });
    let took = began.elapsed();
    let reached = reached.into_inner().unwrap_or_else(PoisonError::into_inner);
    coverage::report(&reached).iter().for_each(|line| println!("{line}"));
    println!("{count} {profile} seeds in {took:.1?}: {:.1} ms a seed", took.as_secs_f64() * 1000.0 / count as f64);
    let failed = failed.into_inner().unwrap_or_else(PoisonError::into_inner);
    if let Some((seed, outcome)) = failed.first_key_value() {
        tell_short(profile, *seed, outcome);
    }
    assert_eq!(failed.len(), 0, "seeds went wrong");
    if count >= coverage::BIG {
        assert_eq!(coverage::missing(profile, &reached), Vec::<&str>::new(), "never reached");
    }
}

/// Tells the shortest part of a seed that still fails, and how to play it again.
fn tell_short(profile: &str, seed: u64, failed: &Outcome) {
    let draw = Profile::named(profile).expect("it was played");
    let Shrunk { cut, tries, .. } = shrink::shrink(failed, |cut| play_cut(seed, draw, cut, false));
    println!("the shortest that fails, after {tries} tries:");
    let outcome = play_cut(seed, draw, &cut, true);
    println!("{}", outcome.wrong.join("; "));
    println!("replay: SIM_PROFILE={profile} SIM_SEED={seed} SIM_KEEP='{cut}' make sim ARGS=one_seed");
}

/// Nothing goes wrong, and everything is read.
#[test]
fn calm_seeds() {
    play_all("calm", 20);
}

/// Crashes, freezes and rebalances.
#[test]
fn falling_seeds() {
    play_all("falling", 40);
}

/// All that, and a wire that loses, delays and repeats.
#[test]
fn wild_seeds() {
    play_all("wild", 40);
}

/// The same, with the wire down often.
#[test]
fn stormy_seeds() {
    play_all("stormy", 40);
}

/// All that, with the cleaner at work, clocks that jump, and transactions in the input.
#[test]
fn odd_seeds() {
    play_all("odd", 40);
}

/// What `wild` has, on disks that fail.
#[test]
fn sick_seeds() {
    play_all("sick", 40);
}

/// Groups reset and deleted, changelogs truncated and recreated.
#[test]
fn upset_seeds() {
    play_all("upset", 40);
}

/// Messages that are forgotten and swept, with what `odd` has.
#[test]
fn forgetful_seeds() {
    play_all("forgetful", 40);
}

/// Epochs, with all that of `wild`.
#[test]
fn epochal_seeds() {
    play_all("epochal", 40);
}

/// Inputs trimmed, lost, grown and recreated, and groups that are told to read on at the end.
#[test]
fn uprooted_seeds() {
    play_all("uprooted", 40);
}

/// What is forgotten is swept, and compacted away for good.
#[test]
fn swept_seeds() {
    play_all("swept", 40);
}

/// The seed that is named, or a part of it, told in full.
#[test]
fn one_seed() {
    let Some(seed) = number("SIM_SEED") else { return };
    let name = std::env::var("SIM_PROFILE").unwrap_or_else(|_| "wild".to_owned());
    let draw = Profile::named(&name).unwrap_or_else(|| panic!("there is no profile {name:?}"));
    let cut = std::env::var("SIM_KEEP").unwrap_or_default().parse::<Cut>().expect("SIM_KEEP as it was printed");
    let outcome = play_cut(seed, draw, &cut, true);
    println!("{outcome:?}");
    assert_eq!(outcome.wrong, Vec::<String>::new());
}

/// The same seed, the same trace; but for those with real stores, whose threads take the time they take.
#[test]
fn a_seed_goes_the_same_way_twice() {
    for seed in (1..=30).filter(|seed| !stores::are_real(*seed)) {
        for (name, draw) in PROFILES.into_iter().filter(|(name, _)| *name != "calm") {
            assert_eq!(play(seed, draw, false), play(seed, draw, false), "{name} {seed}");
        }
    }
}
