//! Goal: a topic that a broker does not know yet is queried again, whatever its role in the topology.

use std::sync::atomic::AtomicU32;

use super::faulty::{Faults, Faulty};
use super::*;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";
const CHANGELOG: &str = "ratchet.shop.orders.changelog";

/// Continues while a topic is unknown for this many queries.
fn process_with(topic: &'static str, times: u32) -> (Result<(), Error>, u32, usize) {
    let site = Site::new();
    let topology = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    site.send(INPUT, "a", &[1, 2]);
    site.drain(&topology).unwrap();
    site.send(INPUT, "a", &[3]);
    let faults = Arc::new(Faults { unknown_topic: Some((topic, AtomicU32::new(times))), ..Faults::default() });
    let mut config = site.config();
    config.topics.create = config::Create::Internal;
    let options = Options {
        config,
        topologies: vec![topology],
        handlers: Default::default(),
        until_drained: true,
        stop: Arc::new(AtomicBool::new(false)),
        metrics: Metrics::new(),
        health: Health::new(),
    };
    let ended = run_on(&Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) }, options);
    let remaining = faults.unknown_topic.as_ref().map_or(0, |(_, remaining)| remaining.load(Ordering::SeqCst));
    (ended, remaining, site.values(OUTPUT).len())
}

#[test]
fn changelog_just_created_by_another_instance_is_found() {
    let site = Site::new();
    let topology = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    site.send(INPUT, "a", &[1, 2]);
    site.drain(&topology).unwrap();
    // The first query misses it, before the group is queried: even a single check, as in `check --online`, finds it.
    let faults = Arc::new(Faults { unknown_topic: Some((CHANGELOG, AtomicU32::new(1))), ..Faults::default() });
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let (config, digest) = (site.config(), topology.rules.digest());
    let survey = Survey::of_folder(&config.state_dir);
    let admitted = Preflight::new(&faulty, &topology, &digest, &config.topics, survey).begin();
    assert_eq!(admitted.map(|admitted| admitted.topics.len()).map_err(|error| error.message), Ok(1));
    let remaining = faults.unknown_topic.as_ref().map(|(_, remaining)| remaining.load(Ordering::SeqCst));
    assert_eq!(remaining, Some(0), "the changelog was not queried");
}

#[test]
fn topic_that_a_broker_does_not_know_yet_is_queried_again() {
    for topic in [INPUT, OUTPUT, CHANGELOG] {
        let (ended, remaining, forwarded) = process_with(topic, 3);
        assert!(ended.is_ok(), "{topic}: {ended:?}");
        assert_eq!((remaining, forwarded), (0, 3), "{topic}");
    }
}

#[test]
fn topic_that_stays_unknown_is_refused() {
    let (ended, _, forwarded) = process_with(INPUT, u32::MAX);
    let Err(Error::Topology { reason, .. }) = ended else { panic!("{ended:?}") };
    assert!(reason.contains("input topic \"orders\" does not exist"), "{reason}");
    assert_eq!(forwarded, 2);
}
