//! Goal: no transaction exceeds its configured bounds, and records that do not fit are not read again and again.

use super::counted::Trickle;
use super::faulty::{Faults, Faulty};
use super::*;
use crate::config::Commit;
use crate::record::TopicPartition;

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

/// Starts one lane with transactions of at most this long and commits at least so far apart, whose records may come one
/// by one.
fn start(
    site: &Site,
    topology: Topology,
    (interval_ms, spacing_ms): (u64, u64),
    trickle: Option<Trickle>,
) -> (Running, Arc<Faults>) {
    let faults = Arc::new(Faults { counted_output: Some(OUTPUT), trickle, ..Faults::default() });
    let faulty = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let mut config = site.config();
    (config.commit.interval_ms, config.commit.spacing_ms, config.lanes) = (interval_ms, spacing_ms, 1);
    let (stop, metrics, health) = (Arc::new(AtomicBool::new(false)), Metrics::new(), Health::new());
    let options = Options {
        config,
        topologies: vec![topology],
        handlers: Default::default(),
        until_drained: false,
        stop: Arc::clone(&stop),
        metrics: metrics.clone(),
        health: health.clone(),
    };
    let thread = std::thread::spawn(move || run_on(&faulty, options));
    (Running { stop, health, metrics, thread }, faults)
}

/// Runs on an input of 100 records that come so, until `count` of them are in the output. Returns how many one of the
/// transactions had at most, and how long it took.
fn trickled(trickle: Trickle, interval_ms: u64, count: usize) -> (u32, Duration) {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    site.create(OUTPUT, 1, &[]);
    fill(&site, 1, 0..100, 0);
    let since = Instant::now();
    let forward = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    let (running, faults) = start(&site, forward, (interval_ms, 0), Some(trickle));
    site.await_values(OUTPUT, count);
    let took = since.elapsed();
    running.end().unwrap();
    (faults.sent_at_once_max.load(Ordering::SeqCst), took)
}

#[test]
fn transaction_goes_on_while_records_are_on_their_way() {
    let (most, took) = trickled(Trickle { every: 4, until: i64::MAX }, 60_000, 100);
    assert_eq!(most, 100);
    assert!(took < Duration::from_secs(60), "{took:?}");
}

#[test]
fn transaction_ends_in_time_while_records_are_on_their_way() {
    let (most, took) = trickled(Trickle { every: 4, until: 7 }, 2_000, 7);
    assert_eq!(most, 7);
    assert!(took >= Duration::from_secs(2), "{took:?}");
}

/// A commit costs brokers the same, however little is in it.
#[test]
fn trickle_is_not_committed_record_by_record() {
    const RECORDS: u32 = 200;
    const SPACING_MS: u64 = 20;
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    site.create(OUTPUT, 1, &[]);
    let forward = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    let (running, _) = start(&site, forward, (5_000, SPACING_MS), None);
    fill(&site, 1, 0..1, 0);
    site.await_values(OUTPUT, 1);
    let (before, since) = (running.metric("ratchet_transactions_total"), Instant::now());
    for id in 1..RECORDS {
        fill(&site, 1, id..id + 1, 0);
        std::thread::sleep(Duration::from_millis(1));
    }
    site.await_values(OUTPUT, RECORDS as usize);
    let (transactions, took) = (running.metric("ratchet_transactions_total") - before, since.elapsed());
    running.end().unwrap();
    let most = took.div_duration_f64(Duration::from_millis(SPACING_MS)) + 2.0;
    assert!(transactions <= most, "{transactions} transactions in {took:?}");
}

/// Starts one lane whose commits are so far apart and whose transactions last so long at most, waits for its first
/// record, which comes alone, and sends two more. Also returns when it sent them.
fn spaced(site: &Site, spacing_ms: u64, interval_ms: u64) -> (Running, Arc<Faults>, Instant) {
    site.create(INPUT, 1, &[]);
    site.create(OUTPUT, 1, &[]);
    let forward = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    let (running, faults) = start(site, forward, (interval_ms, spacing_ms), None);
    fill(site, 1, 0..1, 0);
    site.await_values(OUTPUT, 1);
    let sent_at = Instant::now();
    fill(site, 1, 1..3, 0);
    (running, faults, sent_at)
}

#[test]
fn transaction_ends_in_time_although_commits_are_further_apart() {
    let site = Site::new();
    let (running, _, sent_at) = spaced(&site, 600_000, 2_000);
    site.await_values(OUTPUT, 3);
    // The interval began when the lane last found nothing, which may have been before the first commit.
    let waited = sent_at.elapsed();
    assert!(waited >= Duration::from_secs(1), "committed after {waited:?}");
    running.end().unwrap();
}

#[test]
fn stop_does_not_wait_for_a_commit_to_be_due() {
    let site = Site::new();
    let (running, faults, _) = spaced(&site, 600_000, 600_000);
    await_that("two records in a transaction", || faults.sent_at_once_max.load(Ordering::SeqCst) == 2);
    assert_eq!(site.values(OUTPUT).len(), 1);
    running.end().unwrap();
    assert_eq!(site.values(OUTPUT).len(), 3);
}

/// Else what arrives there before its first record was committed would be lost with the instance.
#[test]
fn start_at_the_end_is_committed_while_another_topic_catches_up() {
    // More than a lane takes one by one between two looks.
    const BACKLOG: u32 = 50_000;
    let site = Site::new();
    site.create(OUTPUT, 1, &[]);
    site.create("shop.busy", 1, &[]);
    let latest = Topology { start: Start::Latest, ..topology(pattern(r"^shop\.", &[]), OUTPUT) };
    let group = latest.group();
    let (running, _) = start(&site, latest, (200, 0), Some(Trickle { every: 1, until: i64::MAX }));
    let committed = |topic: &str| {
        let found = site.cluster.committed(&group, &[TopicPartition::new(topic, 0)], Duration::ZERO).unwrap();
        found.into_iter().next().flatten().map(|committed| committed.offset)
    };
    await_that("the first topic to be at work", || committed("shop.busy") == Some(0));
    let mut written = 0;
    let mut keep_busy = || {
        let taken = committed("shop.busy").and_then(|offset| u32::try_from(offset).ok()).unwrap();
        assert!(taken < written || written == 0, "there was nothing more");
        if written - taken < BACKLOG {
            fill_topic(&site, "shop.busy", 1, written..written + BACKLOG, 0);
            written += BACKLOG;
        }
        taken
    };
    await_that("the first records", || keep_busy() > 0);
    site.create("shop.quiet", 1, &[]);
    await_that("the other start to be committed", || keep_busy() > 0 && committed("shop.quiet") == Some(0));
    running.end().unwrap();
}

fn fill(site: &Site, partition_count: i32, ids: std::ops::Range<u32>, filler: usize) {
    fill_topic(site, INPUT, partition_count, ids, filler);
}

fn fill_topic(site: &Site, topic: &str, partition_count: i32, ids: std::ops::Range<u32>, filler: usize) {
    let value = |id: u32| format!(r#"{{"id":"{id}","version":1,"x":"{}"}}"#, "x".repeat(filler));
    let values: Vec<String> = ids.map(value).collect();
    for partition in 0..partition_count {
        let mut messages = Vec::new();
        for value in &values {
            let (value, headers) = (Some(value.as_bytes()), Headers::default());
            messages.push(Message { topic, partition, key: None, value, headers, timestamp: Some(1_000) });
        }
        site.cluster.append(topic, partition, &messages).unwrap();
    }
}

#[test]
fn transaction_takes_no_more_records_than_configured() {
    let site = Site::new();
    site.create(INPUT, 3, &[]);
    site.create(OUTPUT, 3, &[]);
    fill(&site, 3, 0..350, 0);
    let faults = drained(&site, Commit { interval_ms: 5_000, spacing_ms: 0, records_max: 100, bytes_max: 64 << 20 });
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
    let faults = drained(&site, Commit { interval_ms: 5_000, spacing_ms: 0, records_max: 100_000, bytes_max });
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
    let commit = Commit { interval_ms: 5_000, spacing_ms: 0, records_max: 100_000, bytes_max: 64 << 10 };
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
