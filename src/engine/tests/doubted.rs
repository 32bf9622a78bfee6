//! Goal: outdated reports from one broker that does not know that it was replaced lead to no refusal: brokers are
//! queried again.

use std::sync::atomic::AtomicU32;

use super::faulty::{Faults, Faulty, Outdated};
use super::*;
use crate::cluster::TopicId;
use crate::format::ChangelogOffset;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";

/// Processes two records, then two more while the first `times` reports are outdated; the store exists if `is_stored`.
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

/// Reports of such a broker, and whether the store exists.
const OUTDATED: [(Outdated, bool); 6] = [
    (|settled| settled.input_end = 1, true),
    (|settled| settled.input_id = TopicId([9; 16]), true),
    (|settled| settled.changelog_id = TopicId([9; 16]), true),
    (|settled| settled.changelog_end = ChangelogOffset(1), true),
    (|settled| settled.changelog_end = ChangelogOffset(0), false),
    // The broker reports a deleted changelog of that name, and a group that has not committed yet: the store is set
    // aside for it, and put back.
    (
        |settled| {
            (settled.changelog_id, settled.changelog_end, settled.committed) =
                (TopicId([9; 16]), ChangelogOffset(0), None);
        },
        true,
    ),
];

#[test]
fn outdated_report_leads_to_another_query() {
    for (index, (outdated, is_stored)) in OUTDATED.into_iter().enumerate() {
        let (ended, faults, forwarded) = process_with(outdated, 2, is_stored);
        assert!(ended.is_ok(), "{index}: {ended:?}");
        assert_eq!(forwarded, 4, "{index}");
        assert_eq!(faults.doubted.load(Ordering::SeqCst), 2, "{index}");
    }
}

#[test]
fn repeated_report_is_believed() {
    for (index, (outdated, is_stored)) in OUTDATED.into_iter().enumerate() {
        let (ended, _, forwarded) = process_with(outdated, u32::MAX, is_stored);
        assert!(matches!(ended, Err(Error::Tasks { tasks: 1, refused: true, .. })), "{index}: {ended:?}");
        assert_eq!(forwarded, 2, "{index}");
    }
}
