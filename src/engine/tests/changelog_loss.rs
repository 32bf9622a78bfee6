//! Goal: if a changelog's end falls back under an active task, the first transaction detects that, however large it is.
//! It is not committed, and the loss is recorded in the store, which is refused from then on, and not changed again.

use super::faulty::{Faults, Faulty};
use super::*;
use crate::format::{CHANGELOG_LOST, StoreMeta};
use crate::state::Survey;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";
const ENTRIES: u64 = 10;

fn options(site: &Site, until_drained: bool, stop: &Arc<AtomicBool>) -> Options {
    Options {
        config: site.config(),
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
        handlers: Default::default(),
        until_drained,
        stop: Arc::clone(stop),
        metrics: Metrics::new(),
        health: Health::new(),
    }
}

/// The meta record of the only store.
fn meta(site: &Site) -> StoreMeta {
    let found = Survey::of_folder(&site.config().state_dir).stores("shop", INPUT).unwrap();
    let [store] = &found[..] else { panic!("{found:?}") };
    store.open().unwrap().unwrap().meta().unwrap().unwrap()
}

/// Loses this many offsets of the changelog while the task is active, then sends this many records in one transaction.
fn check_loss(fallen_back: i64, records: u64) {
    let site = Site::new();
    site.send(INPUT, "before", &(1..=ENTRIES).collect::<Vec<_>>());
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::new(Faults::default()) };
    let stop = Arc::new(AtomicBool::new(false));
    let running = {
        let (faulty, options) = (faulty.clone(), options(&site, false, &stop));
        std::thread::spawn(move || run_on(&faulty, options))
    };
    site.await_values(OUTPUT, ENTRIES as usize);
    faulty.faults.fallen_back.store(fallen_back, Ordering::SeqCst);
    let messages: Vec<(String, String)> =
        (0..records).map(|n| (format!("k{n}"), format!(r#"{{"id":"k{n}","version":1}}"#))).collect();
    let messages: Vec<Message<'_>> = messages
        .iter()
        .map(|(key, value)| Message {
            topic: INPUT,
            partition: 0,
            key: Some(key.as_bytes()),
            value: Some(value.as_bytes()),
            headers: Headers::default(),
            timestamp: Some(2_000),
        })
        .collect();
    site.cluster.append(INPUT, 0, &messages).unwrap();
    await_condition("the loss to be recorded", || {
        let found = Survey::of_folder(&site.config().state_dir).stores("shop", INPUT).unwrap();
        let store = found[0].open().ok().flatten();
        store.and_then(|store| store.meta().ok().flatten()).is_some_and(|meta| meta.changelog_offset == CHANGELOG_LOST)
    });
    stop.store(true, Ordering::Relaxed);
    let ended = running.join().unwrap();
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, .. })), "{ended:?}");
    assert_eq!(site.values(OUTPUT).len() as u64, ENTRIES, "a part of the transaction was committed");
    let before = meta(&site);
    assert!(before.token.is_some(), "the changelog can no longer be rewritten from the store");
    // Another process has not seen the loss, and for it the changelog may have grown since.
    let ended = run_on(&site.cluster, options(&site, true, &Arc::new(AtomicBool::new(false))));
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, .. })), "{ended:?}");
    assert_eq!(site.values(OUTPUT).len() as u64, ENTRIES);
    assert_eq!(meta(&site), before, "the store was changed");
}

#[test]
fn loss_is_detected_by_a_transaction_that_ends_before_the_store() {
    check_loss(ENTRIES as i64, 1);
}

#[test]
fn loss_is_detected_by_a_transaction_that_ends_beyond_the_store() {
    check_loss(3, 100);
}
