//! Goal: no transaction exceeds its configured bounds, and records that do not fit are not read again and again.

use super::counted::Trickle;
use super::faulty::{Faults, Faulty};
use super::*;
use crate::config::Commit;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";

/// Forwards the input within these bounds; returns what was observed.
fn drained(site: &Site, commit: Commit) -> Arc<Faults> {
    let faults = Arc::new(Faults { counted_output: Some(OUTPUT), ..Faults::default() });
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let mut config = site.config();
    (config.commit, config.lanes) = (commit, 1);
    let options = Options {
        config,
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
        handlers: Default::default(),
        until_drained: true,
        stop: Arc::default(),
        metrics: Metrics::new(),
        health: Health::new(),
    };
    run_on(&faulty, options).unwrap();
    faults
}

/// Runs on an input of 100 records that come so, in transactions of at most `interval_ms`, until `count` are there. Returns
/// how many one of the transactions had at most.
fn trickled(trickle: Trickle, interval_ms: u64, count: usize) -> u32 {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    site.create(OUTPUT, 1, &[]);
    fill(&site, 1, 0..100, 0);
    let faults = Arc::new(Faults { counted_output: Some(OUTPUT), trickle: Some(trickle), ..Faults::default() });
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let mut config = site.config();
    config.commit.interval_ms = interval_ms;
    config.lanes = 1;
    let (stop, metrics, health) = (Arc::new(AtomicBool::new(false)), Metrics::new(), Health::new());
    let options = Options {
        config,
        topologies: vec![topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT)],
        handlers: Default::default(),
        until_drained: false,
        stop: Arc::clone(&stop),
        metrics: metrics.clone(),
        health: health.clone(),
    };
    let thread = std::thread::spawn(move || run_on(&faulty, options));
    site.await_values(OUTPUT, count);
    Running { stop, health, metrics, thread }.end().unwrap();
    faults.sent_at_once_max.load(Ordering::SeqCst)
}

#[test]
fn transaction_goes_on_while_records_are_on_their_way() {
    let most = trickled(Trickle { until: i64::MAX }, 60_000, 100);
    assert_eq!(most, 100);
}

#[test]
fn transaction_ends_in_time_while_records_are_on_their_way() {
    let most = trickled(Trickle { until: 7 }, 2_000, 7);
    assert!(most <= 7, "{most}");
}

fn fill(site: &Site, partition_count: i32, ids: std::ops::Range<u32>, filler: usize) {
    let value = |id: u32| format!(r#"{{"id":"{id}","version":1,"x":"{}"}}"#, "x".repeat(filler));
    let values: Vec<String> = ids.map(value).collect();
    for partition in 0..partition_count {
        let mut messages = Vec::new();
        for value in &values {
            let (value, headers) = (Some(value.as_bytes()), Headers::default());
            messages.push(Message { topic: INPUT, partition, key: None, value, headers, timestamp: Some(1_000) });
        }
        site.cluster.append(INPUT, partition, &messages).unwrap();
    }
}

#[test]
fn transaction_takes_no_more_records_than_configured() {
    let site = Site::new();
    site.create(INPUT, 3, &[]);
    site.create(OUTPUT, 3, &[]);
    fill(&site, 3, 0..350, 0);
    let faults = drained(&site, Commit { interval_ms: 5_000, records_max: 100, bytes_max: 64 << 20 });
    assert_eq!(faults.sent_at_once_max.load(Ordering::SeqCst), 100);
    let forwarded = (0..3).map(|partition| site.cluster.read_all(OUTPUT, partition).unwrap().len());
    assert_eq!(forwarded.collect::<Vec<_>>(), [350, 350, 350]);
}

/// How often each of these records, all read at once, is accessed if a transaction has room for only some of them.
fn looks_at_each(records: u32) -> u64 {
    const ROOM: u32 = 8;
    const VALUE_BYTES: usize = 16 << 10;
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    fill(&site, 1, 0..records, VALUE_BYTES);
    let bytes_max = ROOM as usize * VALUE_BYTES;
    let faults = drained(&site, Commit { interval_ms: 5_000, records_max: 100_000, bytes_max });
    assert_eq!(site.cluster.read_all(OUTPUT, 0).unwrap().len(), records as usize);
    let most = faults.sent_at_once_max.load(Ordering::SeqCst);
    assert!(most <= ROOM, "{most} in one transaction");
    faults.looks.load(Ordering::SeqCst) / u64::from(records)
}

#[test]
fn batch_split_over_transactions_is_not_read_more_often() {
    let (few, many) = (looks_at_each(8), looks_at_each(512));
    assert!(many <= 2 * few, "each record was looked at {many} times, {few} where all fit into one transaction");
}

#[test]
fn duplicates_are_processed_even_in_a_full_transaction() {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    fill(&site, 1, 0..100, 16 << 10);
    let commit = Commit { interval_ms: 5_000, records_max: 100_000, bytes_max: 64 << 10 };
    drained(&site, commit);
    let changelog_len = |site: &Site| {
        site.cluster
            .read_all(&topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT).changelog(INPUT), 0)
            .unwrap()
            .len()
    };
    let before = changelog_len(&site);
    // All of them duplicates except one.
    fill(&site, 1, 0..101, 16 << 10);
    drained(&site, commit);
    assert_eq!(site.cluster.read_all(OUTPUT, 0).unwrap().len(), 101);
    let new = changelog_len(&site) - before;
    assert!(new <= 4, "{new} changelog records for one entry");
}
