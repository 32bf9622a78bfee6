//! Goal: the engine as it ships, on a simulated cluster, under schedules that come from a seed alone.
//!
//! - `kafka`: a Kafka cluster as a state machine, knowing nothing of ratchet; `client`: what librdkafka makes of it
//! - `world`: time, processes and the wire; `coroutine`: code that waits; `random`
//! - `instance`: the engine; `stores`: what its stores are on; `input`: what it reads; `judge`: whether what came out
//!   is right, and which situations were reached
//! - `schedule`: one seed from beginning to end, of one `profile`
//!
//! - `hunt`: many seeds, and the page of what they reach; `cut`: a part of a seed; `shrink`: finds the smallest that fails
//! - `regressions`: mistakes of the engine that seeds have shown, each by name; `driver`: a process alone
//! - `mistakes`: the judge is judged, where the engine was built to make some
//!
//! docs/simulation.md says what is simulated, what is not, and how seeds are run.

#[path = "../support/commit.rs"]
mod commit;
#[path = "../support/pages.rs"]
mod pages;

mod client;
mod coroutine;
mod cut;
mod disk;
#[cfg(test)]
mod driver;
mod hunt;
mod input;
mod instance;
mod judge;
mod kafka;
mod lies;
mod mistakes;
mod profile;
#[path = "../support/random.rs"]
mod random;
#[cfg(test)]
mod regressions;
mod schedule;
mod shrink;
mod stores;
mod world;

use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ratchet::config::Commit;
use ratchet::dedup::Retention;
use ratchet::topology::{Start, Topology};

use cut::Cut;
use instance::Plan;
use profile::{Draw, PROFILES, Profile, Release};
use random::Random;
use schedule::{Outcome, run};

/// By the kind of input.
static TOPOLOGIES: LazyLock<[Topology; 4]> = LazyLock::new(|| {
    input::Kind::ALL.map(|kind| {
        let loaded = ratchet::topology::load(Path::new("shop.yaml"), &OneFile(kind));
        loaded.map_err(|mistakes| mistakes.render(false)).expect("the topology is right").topology
    })
});

/// What the topology's releases are, one after the other.
fn plans(profile: &Profile) -> Vec<Arc<Plan>> {
    let first = plan(profile);
    let other = profile.release.map(|release| {
        let mut topology = first.topology.clone();
        let rules = Arc::make_mut(&mut topology.rules);
        if release == Release::Rules {
            rules.version = None;
        }
        rules.retention = match release {
            Release::Retention(ms) => Retention::For { ms },
            Release::Rules => Retention::default_for(None),
        };
        rules.future_max_ms = rules.retention.default_future_max_ms();
        Plan { topology, ..first.clone() }
    });
    [first].into_iter().chain(other).map(Arc::new).collect()
}

fn plan(profile: &Profile) -> Plan {
    let mut topology = TOPOLOGIES[profile.input as usize].clone();
    if profile.latest {
        topology.start = Start::Latest;
    }
    // Some records take more than this, some less: now the one bound is met first, now the other.
    let bytes_max = profile.commit_records * 64;
    let commit = Commit { interval_ms: 100, records_max: profile.commit_records, bytes_max };
    Plan { topology, lanes: profile.lanes, commit, limits: profile.limits }
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
    run(seed, &plans(&profile), profile, cut, tell)
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok().and_then(|text| text.parse().ok())
}

/// Nothing goes wrong, and everything is read.
#[test]
fn calm_seeds() {
    hunt::of_profile("calm", 20);
}

/// Crashes, freezes and rebalances.
#[test]
fn falling_seeds() {
    hunt::of_profile("falling", 40);
}

/// All that, and a wire that loses, delays and repeats.
#[test]
fn wild_seeds() {
    hunt::of_profile("wild", 40);
}

/// The same, with the wire down often.
#[test]
fn stormy_seeds() {
    hunt::of_profile("stormy", 40);
}

/// All that, with the cleaner at work, clocks that jump, and transactions in the input.
#[test]
fn odd_seeds() {
    hunt::of_profile("odd", 40);
}

/// What `wild` has, on disks that fail.
#[test]
fn sick_seeds() {
    hunt::of_profile("sick", 40);
}

/// Groups reset and deleted, changelogs truncated and recreated.
#[test]
fn upset_seeds() {
    hunt::of_profile("upset", 40);
}

/// Messages that are forgotten and swept, with what `odd` has.
#[test]
fn forgetful_seeds() {
    hunt::of_profile("forgetful", 40);
}

/// Epochs, with all that of `wild`.
#[test]
fn epochal_seeds() {
    hunt::of_profile("epochal", 40);
}

/// Deletes, tombstones, a snapshot's reads and truncates, with what `odd` has; drops are explained.
#[test]
fn changing_seeds() {
    hunt::of_profile("changing", 40);
}

/// Inputs trimmed, lost, grown and recreated, and groups that are told to read on at the end.
#[test]
fn uprooted_seeds() {
    hunt::of_profile("uprooted", 40);
}

/// `start: latest`, and groups that are lost before anything has come.
#[test]
fn late_seeds() {
    hunt::of_profile("late", 40);
}

/// What is forgotten is swept, and compacted away for good.
#[test]
fn swept_seeds() {
    hunt::of_profile("swept", 40);
}

/// Seeds of all profiles that were not run before, for as long as is said and until they are many; `make test` and
/// `make sim` say so. `make sim-hunt` keeps what they reach.
#[test]
fn what_was_not_run_before() {
    let Some(seconds) = number("SIM_SECONDS") else { return };
    let page = hunt::of_all(Duration::from_secs(seconds));
    if std::env::var_os("SIM_PAGE").is_some() {
        println!("{}", pages::write("simulation/situations.md", &page));
    }
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
