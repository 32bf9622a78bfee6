//! Goal: outdated reports from one broker that does not know it was replaced lead to no refusal: it is asked again, as
//! are others.

use std::sync::atomic::AtomicU32;

use super::faulty::{Faults, Faulty, Outdated};
use super::*;
use crate::cluster::TopicId;
use crate::format::ChangelogOffset;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";

/// Processes two records, then two more with outdated reports at first, with the store or without.
fn process_with(outdated: Outdated, times: u32, is_stored: bool) -> (Result<(), Error>, Arc<Faults>, usize) {
    let site = Site::new();
    let topology = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    site.send(INPUT, "a", &[1, 2]);
    site.drain(&topology).unwrap();
    site.send(INPUT, "a", &[2, 3, 4]);
    if !is_stored {
        std::fs::remove_dir_all(site.config().state_dir).unwrap();
    }
    let faults = Arc::new(Faults { outdated: Some((outdated, AtomicU32::new(times))), ..Faults::default() });
    let options = Options {
        config: site.config(),
        topologies: vec![topology],
        handlers: Default::default(),
        until_drained: true,
        stop: Arc::new(AtomicBool::new(false)),
        metrics: Metrics::new(),
        health: Health::new(),
    };
    let ended = run_on(&Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) }, options);
    (ended, faults, site.values(OUTPUT).len())
}

/// What such a broker may report; whether the store is there.
const OUTDATED: [(Outdated, bool); 6] = [
    (|settled| settled.input_end = 1, true),
    (|settled| settled.input_id = TopicId([9; 16]), true),
    (|settled| settled.changelog_id = TopicId([9; 16]), true),
    (|settled| settled.changelog_end = ChangelogOffset(1), true),
    (|settled| settled.changelog_end = ChangelogOffset(0), false),
    // A deleted changelog of that name, and a group that has committed nothing yet: the store is set aside for it, and
    // put back.
    (
        |settled| {
            (settled.changelog_id, settled.changelog_end, settled.committed) =
                (TopicId([9; 16]), ChangelogOffset(0), None);
        },
        true,
    ),
];

#[test]
fn outdated_report_of_a_broker_is_asked_again() {
    for (nth, (outdated, is_stored)) in OUTDATED.into_iter().enumerate() {
        let (ended, faults, forwarded) = process_with(outdated, 2, is_stored);
        assert!(ended.is_ok(), "{nth}: {ended:?}");
        assert_eq!(forwarded, 4, "{nth}");
        assert_eq!(faults.doubted.load(Ordering::SeqCst), 2, "{nth}");
    }
}

#[test]
fn repeated_report_is_believed() {
    for (nth, (outdated, is_stored)) in OUTDATED.into_iter().enumerate() {
        let (ended, _, forwarded) = process_with(outdated, u32::MAX, is_stored);
        assert!(matches!(ended, Err(Error::Tasks { tasks: 1, refused: true, .. })), "{nth}: {ended:?}");
        assert_eq!(forwarded, 2, "{nth}");
    }
}
