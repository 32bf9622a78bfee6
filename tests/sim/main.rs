//! Goal: run the shipped engine on a simulated cluster, under schedules that come from a seed alone.
//!
//! - `kafka`: a Kafka cluster as a state machine that knows nothing of ratchet; `speech`: what it says, as bytes; `net`:
//!   its connections; `client`: the engine's cluster: the client that lanes run on, and librdkafka's part
//! - `world`: time and processes; `coroutine`: code that can wait; `random`
//! - `gate`: who is asked before records are passed on
//! - `database`, `provider`: what sinks commit to and call; the driver's handlers run there, in simulated time
//! - `instance`: the engine; `stores`: its storage; `input`: what it reads; `judge`: whether its output is right, and
//!   which situations were reached
//! - `schedule`: one seed of one `profile`, from beginning to end
//!
//! - `hunt`: many seeds, and the page of situations they reach; `cut`: part of a seed; `shrink`: finds the smallest
//!   part that fails
//! - `regressions`: engine bugs that seeds have found, each by name; `driver`: a process on its own
//! - `mistakes`: tests the judge with engines that do something wrong on purpose
//!
//! docs/dev/simulation.md says what is simulated, what is not, and how seeds are run.

use ratchet_testkit::{pages, random};

mod client;
mod coroutine;
mod cut;
mod database;
#[cfg(test)]
mod differential;
mod disk;
#[cfg(test)]
mod driver;
mod gate;
mod hunt;
mod input;
mod instance;
mod judge;
#[allow(dead_code, unused_imports, reason = "shared with the wire's own simulation")]
mod kafka;
mod lies;
mod mistakes;
mod net;
mod profile;
mod provider;
#[cfg(test)]
mod regressions;
mod schedule;
mod shrink;
#[allow(dead_code, reason = "shared with the wire's own simulation")]
mod speech;
mod stores;
mod world;

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use ratchet::config::Commit;
use ratchet::dedup::Retention;
use ratchet::topology::{Start, Topology};

use cut::Cut;
use input::InputKind;
use instance::Plan;
use profile::{Draw, PROFILES, Profile, Release};
use random::Random;
use schedule::{Outcome, run};

/// Topologies by kind of input.
static TOPOLOGIES: LazyLock<BTreeMap<InputKind, Topology>> = LazyLock::new(|| {
    let load = |kind| {
        let loaded = ratchet::topology::load(Path::new("shop.yaml"), &OneFile(kind));
        loaded.map_err(|mistakes| mistakes.render(false)).expect("the topology is right").topology
    };
    InputKind::all().map(|kind| (kind, load(kind))).collect()
});

/// The topology that reads this kind of input.
fn topology(kind: InputKind) -> Topology {
    TOPOLOGIES[&kind].clone()
}

/// The topology's releases in order.
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
    let mut topology = topology(profile.input);
    if profile.latest {
        topology.start = Start::Latest;
    }
    // Some transactions hold more than this, some less, so each bound is hit sometimes.
    let bytes_max = profile.commit_records * 64;
    let commit = Commit {
        interval_ms: 100,
        spacing_ms: profile.commit_spacing_ms,
        records_max: profile.commit_records,
        bytes_max,
    };
    Plan {
        topology,
        lanes: profile.lanes,
        commit,
        limits: profile.limits,
        sink: profile.input.sink(),
        provider: profile.input.calls(),
    }
}

/// An environment with a single file.
struct OneFile(InputKind);

impl ratchet::yaml::Environment for OneFile {
    fn variable(&self, _name: &str) -> Option<String> {
        None
    }

    fn variables(&self) -> Vec<(String, String)> {
        Vec::new()
    }

    fn read_file(&self, _path: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.topology().into_owned().into_bytes())
    }

    fn cores(&self) -> usize {
        1
    }
}

/// Plays a seed of the profile that `draw` returns.
fn play(seed: u64, draw: Draw, verbose: bool) -> Outcome {
    play_cut(seed, draw, &Cut::default(), verbose)
}

/// Plays part of a seed.
fn play_cut(seed: u64, draw: Draw, cut: &Cut, verbose: bool) -> Outcome {
    judge::heard::listen(number("SIM_SEED").is_some());
    let profile = draw(&mut Random::new(seed ^ 0x5eed));
    if verbose {
        println!("{profile:?}");
    }
    run(seed, &plans(&profile), profile, cut, verbose)
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

/// As `falling`, plus a wire that loses, delays and repeats requests.
#[test]
fn wild_seeds() {
    hunt::of_profile("wild", 40);
}

/// As `wild`, but the wire is often down.
#[test]
fn stormy_seeds() {
    hunt::of_profile("stormy", 40);
}

/// As `wild`, plus the log cleaner, clocks that jump, and transactions in the input.
#[test]
fn odd_seeds() {
    hunt::of_profile("odd", 40);
}

/// As `wild`, on disks that fail.
#[test]
fn sick_seeds() {
    hunt::of_profile("sick", 40);
}

/// Groups reset and deleted, changelogs truncated and recreated.
#[test]
fn upset_seeds() {
    hunt::of_profile("upset", 40);
}

/// As `odd`, with messages that expire and are swept.
#[test]
fn forgetful_seeds() {
    hunt::of_profile("forgetful", 40);
}

/// As `wild`, with epochs.
#[test]
fn epochal_seeds() {
    hunt::of_profile("epochal", 40);
}

/// As `odd`, with deletes, tombstones, snapshot reads and truncates; drops are explained.
#[test]
fn changing_seeds() {
    hunt::of_profile("changing", 40);
}

/// Inputs trimmed, lost, grown and recreated, and groups set to the end of the input.
#[test]
fn uprooted_seeds() {
    hunt::of_profile("uprooted", 40);
}

/// `start: latest`, and groups deleted before any record arrives.
#[test]
fn late_seeds() {
    hunt::of_profile("late", 40);
}

/// Expired entries are swept, and their tombstones compacted away.
#[test]
fn swept_seeds() {
    hunt::of_profile("swept", 40);
}

/// As `wild`, into a database: connections lost, answers to COMMIT lost, databases down or back in time.
#[test]
fn sunk_seeds() {
    hunt::of_profile("sunk", 40);
}

/// Into a database with an inbox that all partitions share.
#[test]
fn shared_seeds() {
    hunt::of_profile("shared", 40);
}

/// Into a database whose answers go to a topic.
#[test]
fn returned_seeds() {
    hunt::of_profile("returned", 40);
}

/// Behind a gate whose answers get lost, that is down, or that forgets everything.
#[test]
fn gated_seeds() {
    hunt::of_profile("gated", 40);
}

/// Into a provider that answers late, wrongly, twice or not at all: with keys and without.
#[test]
fn called_seeds() {
    hunt::of_profile("called", 40);
}

/// The same with epochs, changes of a table's rows and messages, duplicates that ask for something else, clocks that
/// jump, and records that vanish before they are read again.
#[test]
fn called_odd_seeds() {
    hunt::of_profile("called_odd", 40);
}

/// For a handler, whose steps call the same provider or are transactions of a database: with keys and without, undone in
/// the end or not, and run again wherever it was when its instance died, froze or lost its partition.
#[test]
fn handled_seeds() {
    hunt::of_profile("handled", 40);
}

/// Former owners whose requests arrive when others own their tasks.
#[test]
fn restless_seeds() {
    hunt::of_profile("restless", 40);
}

/// Requests that arrive when the next transaction is open.
#[test]
fn doubtful_seeds() {
    hunt::of_profile("doubtful", 40);
}

/// Calls in doubt, calls that were reserved and are not sent, and messages that are forgotten, while tasks change hands.
#[test]
fn called_unsure_seeds() {
    hunt::of_profile("called_unsure", 40);
}

/// The same for a handler: many of its calls are in doubt, and soon given up.
#[test]
fn handled_unsure_seeds() {
    hunt::of_profile("handled_unsure", 40);
}

/// Where brokers do not name the latest timestamp, their time is read from a marker: a record from the far future is
/// set aside, and holds up nothing.
#[test]
fn records_from_the_future_hold_up_nothing_where_brokers_do_not_tell_the_time() {
    let draw: Draw = |random| Profile { names_latest_time: false, ..Profile::odd(random) };
    let mut reached = BTreeMap::<&str, u64>::new();
    for seed in 1..=20 {
        let outcome = play(seed, draw, false);
        assert_eq!(outcome.wrong, Vec::<String>::new(), "seed {seed}");
        outcome.reached.into_iter().for_each(|(what, times)| *reached.entry(what).or_default() += times);
    }
    for what in [judge::coverage::MARKER_READ, "a record from the far future was set aside"] {
        assert!(reached.contains_key(what), "{what}: never");
    }
}

/// New seeds of all profiles, for `SIM_SECONDS` and until there are enough; `make sim` sets it. The
/// page of what they reach is written by `make sim-hunt`.
#[test]
fn new_seeds_of_all_profiles() {
    let Some(seconds) = number("SIM_SECONDS") else { return };
    let page = hunt::of_all(Duration::from_secs(seconds));
    if std::env::var_os("SIM_PAGE").is_some() {
        println!("{}", pages::write("dev/simulation/situations.md", &page));
    }
}

/// Plays the seed named by `SIM_SEED`, or part of it, and prints all of it.
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

/// The same seed gives the same trace, except with real stores, whose threads have their own timing.
#[test]
fn seed_gives_the_same_trace_twice() {
    for seed in (1..=30).filter(|seed| !stores::are_real(*seed)) {
        for (name, draw) in PROFILES.into_iter().filter(|(name, _)| *name != "calm") {
            assert_eq!(play(seed, draw, false), play(seed, draw, false), "{name} {seed}");
        }
    }
}
