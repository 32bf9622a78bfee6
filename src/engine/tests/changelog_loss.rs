//! Goal: if a changelog's end falls back under a task at work, the first transaction notices, however large it is;
//! nothing of it is committed, and the store, which stays as it is, is refused from then on.

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
    store.read().unwrap().unwrap().meta().unwrap().unwrap()
}

/// Loses this many offsets of the changelog while the task is at work, then sends this many things in one transaction.
fn lose(fallen_back: i64, things: u64) {
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
        (0..things).map(|n| (format!("k{n}"), format!(r#"{{"id":"k{n}","version":1}}"#))).collect();
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
    await_that("the loss to be noted", || {
        let found = Survey::of_folder(&site.config().state_dir).stores("shop", INPUT).unwrap();
        let store = found[0].read().ok().flatten();
        store.and_then(|store| store.meta().ok().flatten()).is_some_and(|meta| meta.changelog_offset == CHANGELOG_LOST)
    });
    stop.store(true, Ordering::Relaxed);
    let ended = running.join().unwrap();
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, .. })), "{ended:?}");
    assert_eq!(site.values(OUTPUT).len() as u64, ENTRIES, "something of the transaction was committed");
    let before = meta(&site);
    assert!(before.token.is_some(), "it is not the copy any more that a changelog can be written from");
    // A process that has not seen the loss, and a changelog that may have grown since, for all it knows.
    let ended = run_on(&site.cluster, options(&site, true, &Arc::new(AtomicBool::new(false))));
    assert!(matches!(ended, Err(Error::Tasks { tasks: 1, .. })), "{ended:?}");
    assert_eq!(site.values(OUTPUT).len() as u64, ENTRIES);
    assert_eq!(meta(&site), before, "the store was touched");
}

#[test]
fn loss_is_noticed_by_a_transaction_ending_before_the_store() {
    lose(ENTRIES as i64, 1);
}

#[test]
fn loss_is_noticed_by_a_transaction_ending_beyond_the_store() {
    lose(3, 100);
}
