//! Goal: the engine as it ships, on a simulated cluster, under schedules that come from a seed alone.
//!
//! - `kafka`: a Kafka cluster as a state machine, knowing nothing of ratchet; `client`: what librdkafka makes of it
//! - `world`: time, processes and the wire; `coroutine`: code that waits; `random`
//! - `instance`: the engine; `stores`: what its stores are on; `input`: what it reads; `check`: whether what came out
//!   is right
//! - `schedule`: one seed from beginning to end, of one `profile`
//! - `mistakes`: the judge is judged, where the engine was built to make some
//!
//! `SIM_SEED=n` runs one seed and prints what happens; `SIM_SEEDS=n` runs so many, `SIM_FIRST=n` from this one on.
#![allow(dead_code, reason = "the cluster can more than the first scheduler asks of it")]

mod check;
mod client;
mod coroutine;
mod input;
mod instance;
mod kafka;
mod mistakes;
mod profile;
mod random;
mod schedule;
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

use instance::Plan;
use profile::{Draw, Profile};
use random::Random;
use schedule::{Outcome, run};

/// By the kind of input.
static TOPOLOGIES: LazyLock<[Topology; 3]> = LazyLock::new(|| {
    input::Kind::ALL.map(|kind| {
        let loaded = ratchet::topology::load(Path::new("shop.yaml"), &OneFile(kind));
        loaded.map_err(|mistakes| mistakes.render(false)).expect("the topology is right").topology
    })
});

#[cfg(test)]
fn rules() -> Arc<ratchet::dedup::Rules> {
    TOPOLOGIES[0].rules.clone()
}

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
    let profile = draw(&mut Random::new(seed ^ 0x5eed));
    if tell {
        println!("{profile:?}");
    }
    run(seed, &Arc::new(plan(&profile)), profile, tell)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs many seeds and says which are wrong.
#[expect(clippy::disallowed_methods, reason = "how long seeds take is told to people")]
fn play_all(draw: Draw, count: u64) {
    let (first, count) = (number("SIM_FIRST").unwrap_or(1), number("SIM_SEEDS").unwrap_or(count));
    let (next, failed, began) = (AtomicU64::new(first), AtomicU64::new(0), Instant::now());
    let reached: Mutex<BTreeMap<&str, u64>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                loop {
                    let seed = next.fetch_add(1, Ordering::Relaxed);
                    if seed >= first + count {
                        return;
                    }
                    let Outcome { wrong, reached: here, .. } = play(seed, draw, false);
                    let mut all = reached.lock().unwrap_or_else(PoisonError::into_inner);
                    here.into_iter().for_each(|(situation, times)| *all.entry(situation).or_default() += times);
                    drop(all);
                    if !wrong.is_empty() {
                        failed.fetch_add(1, Ordering::Relaxed);
                        println!("SIM_SEED={seed}: {}", wrong.join("; "));
                    }
                }
            });
        }
    });
    let took = began.elapsed();
    let reached = reached.into_inner().unwrap_or_else(PoisonError::into_inner);
    reached.iter().for_each(|(situation, times)| println!("{times:>8} times {situation}"));
    println!("{count} seeds in {took:.1?}: {:.1} ms a seed", took.as_secs_f64() * 1000.0 / count as f64);
    assert_eq!(failed.into_inner(), 0, "seeds went wrong");
}

/// Nothing goes wrong, and everything is read.
#[test]
fn calm_seeds() {
    play_all(Profile::calm, 20);
}

/// Crashes, freezes and rebalances.
#[test]
fn falling_seeds() {
    play_all(Profile::falling, 40);
}

/// All that, and a wire that loses, delays and repeats.
#[test]
fn wild_seeds() {
    play_all(Profile::wild, 40);
}

/// The same, with the wire down often.
#[test]
fn stormy_seeds() {
    play_all(Profile::stormy, 40);
}

/// All that, with the cleaner at work, clocks that jump, and transactions in the input.
#[test]
fn odd_seeds() {
    play_all(Profile::odd, 40);
}

/// What `wild` has, on disks that fail.
#[test]
fn sick_seeds() {
    play_all(Profile::sick, 40);
}

/// Groups reset and deleted, changelogs truncated and recreated.
#[test]
fn upset_seeds() {
    play_all(Profile::upset, 40);
}

/// Messages that are forgotten and swept, with what `odd` has.
#[test]
fn forgetful_seeds() {
    play_all(Profile::forgetful, 40);
}

/// Epochs, with all that of `wild`.
#[test]
fn epochal_seeds() {
    play_all(Profile::epochal, 40);
}

/// The seed that is named, told in full.
#[test]
fn one_seed() {
    let Some(seed) = number("SIM_SEED") else { return };
    let draw = std::env::var("SIM_PROFILE").ok().and_then(|name| Profile::named(&name)).unwrap_or(Profile::wild);
    let _ = tracing_subscriber::fmt().with_max_level(tracing::Level::INFO).without_time().with_ansi(false).try_init();
    let outcome = play(seed, draw, true);
    println!("{outcome:?}");
    assert_eq!(outcome.wrong, Vec::<String>::new());
}

/// The same seed, the same trace; but for those with real stores, whose threads take the time they take.
#[test]
fn a_seed_goes_the_same_way_twice() {
    for seed in (1..=60).filter(|seed| !stores::are_real(*seed)) {
        for draw in [Profile::wild, Profile::stormy, Profile::odd, Profile::upset] {
            assert_eq!(play(seed, draw, false), play(seed, draw, false), "seed {seed}");
        }
    }
}
