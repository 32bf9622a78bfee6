//! Goal: the engine as it ships, on a simulated cluster, under schedules that come from a seed alone.
//!
//! - `kafka`: a Kafka cluster as a state machine, knowing nothing of ratchet; `client`: what librdkafka makes of it
//! - `world`: time, processes and the wire; `coroutine`: code that waits; `random`
//! - `instance`: the engine; `stores`: what its stores are on; `input`: what it reads; `judge`: whether what came out
//!   is right, and which situations were reached
//! - `schedule`: one seed from beginning to end, of one `profile`
//!
//! `SIM_SEED=n` runs one seed and prints what happens; `SIM_SEEDS=n` runs so many, `SIM_FIRST=n` from this one on.
#![allow(dead_code, reason = "the cluster can more than the first scheduler asks of it")]

mod client;
mod coroutine;
mod input;
mod instance;
mod judge;
mod kafka;
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
use judge::coverage;
use profile::Profile;
use random::Random;
use schedule::{Outcome, run};

static TOPOLOGY: LazyLock<Topology> = LazyLock::new(|| {
    let loaded = ratchet::topology::load(Path::new("shop.yaml"), &OneFile).map_err(|mistakes| mistakes.render(false));
    loaded.expect("the topology is right").topology
});

fn plan(lanes: usize) -> Plan {
    Plan {
        topology: TOPOLOGY.clone(),
        lanes,
        commit: Commit { interval_ms: 100, records_max: 100, bytes_max: 1 << 20 },
    }
}

/// An environment of one file.
struct OneFile;

impl ratchet::yaml::Environment for OneFile {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn read_file(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(input::TOPOLOGY.as_bytes().to_vec())
    }

    fn cores(&self) -> usize {
        1
    }
}

/// A seed's profile and its way.
fn play(seed: u64, draw: fn(&mut Random) -> Profile, tell: bool) -> Outcome {
    judge::heard::listen(number("SIM_SEED").is_some());
    let profile = draw(&mut Random::new(seed ^ 0x5eed));
    if tell {
        println!("{profile:?}");
    }
    run(seed, &Arc::new(plan(profile.lanes)), profile, tell)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Runs many seeds of a kind and says which are wrong; many enough have to reach what the kind is meant to.
#[expect(clippy::disallowed_methods, reason = "how long seeds take is told to people")]
fn play_all(kind: &str, draw: fn(&mut Random) -> Profile, count: u64) {
    let (first, count) = (number("SIM_FIRST").unwrap_or(1), number("SIM_SEEDS").unwrap_or(count));
    let (next, failed, began) = (AtomicU64::new(first), AtomicU64::new(0), Instant::now());
    let reached: Mutex<BTreeMap<&'static str, u64>> = Mutex::default();
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
                        println!("SIM_PROFILE={kind} SIM_SEED={seed}: {}", wrong.join("; "));
                    }
                }
            });
        }
    });
    let took = began.elapsed();
    let reached = reached.into_inner().unwrap_or_else(PoisonError::into_inner);
    coverage::report(&reached).iter().for_each(|line| println!("{line}"));
    println!("{count} {kind} seeds in {took:.1?}: {:.1} ms a seed", took.as_secs_f64() * 1000.0 / count as f64);
    assert_eq!(failed.into_inner(), 0, "seeds went wrong");
    if count >= coverage::BIG {
        assert_eq!(coverage::missing(kind, &reached), Vec::<&str>::new(), "never reached");
    }
}

/// Nothing goes wrong, and everything is read.
#[test]
fn calm_seeds() {
    play_all("calm", Profile::calm, 20);
}

/// Crashes, freezes and rebalances.
#[test]
fn falling_seeds() {
    play_all("falling", Profile::falling, 40);
}

/// All that, and a wire that loses, delays and repeats.
#[test]
fn wild_seeds() {
    play_all("wild", Profile::wild, 40);
}

/// The same, with the wire down often.
#[test]
fn stormy_seeds() {
    play_all("stormy", Profile::stormy, 40);
}

/// All that, with the cleaner at work, clocks that jump, and transactions in the input.
#[test]
fn odd_seeds() {
    play_all("odd", Profile::odd, 40);
}

/// What `wild` has, on disks that fail.
#[test]
fn sick_seeds() {
    play_all("sick", Profile::sick, 40);
}

/// Groups reset and deleted, changelogs truncated and recreated.
#[test]
fn upset_seeds() {
    play_all("upset", Profile::upset, 40);
}

/// The seed that is named, told in full.
#[test]
fn one_seed() {
    let Some(seed) = number("SIM_SEED") else { return };
    let draw = match std::env::var("SIM_PROFILE").as_deref() {
        Ok("calm") => Profile::calm,
        Ok("falling") => Profile::falling,
        Ok("stormy") => Profile::stormy,
        Ok("odd") => Profile::odd,
        Ok("sick") => Profile::sick,
        Ok("upset") => Profile::upset,
        _ => Profile::wild,
    };
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
