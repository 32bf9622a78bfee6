//! Goal: no transaction exceeds its configured bounds, and records that do not fit are not read repeatedly.

use super::counted::Trickle;
use super::faulty::{Faults, Faulty};
use super::*;
use crate::config::Commit;
use crate::record::TopicPartition;

const INPUT: &str = "orders";
const OUTPUT: &str = "clean";

/// Forwards the input with these bounds. Returns the observations.
fn drain_observed(site: &Site, commit: Commit) -> Arc<Faults> {
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

/// Starts one lane whose transactions last at most `interval_ms`, and whose commits are at least `spacing_ms` apart.
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

/// Runs on an input of 100 records that arrive like this, until `count` of them are in the output. Returns the most
/// records in one transaction, and the duration.
fn run_with_trickle(trickle: Trickle, interval_ms: u64, count: usize) -> (u32, Duration) {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    site.create(OUTPUT, 1, &[]);
    fill(&site, 1, 0..100, 0);
    let since = Instant::now();
    let forward = topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT);
    let (running, faults) = start(&site, forward, (interval_ms, 0), Some(trickle));
    site.await_values(OUTPUT, count);
    let duration = since.elapsed();
    running.end().unwrap();
    (faults.sent_per_transaction_max.load(Ordering::SeqCst), duration)
}

#[test]
fn transaction_continues_while_records_are_on_their_way() {
    let (max, duration) = run_with_trickle(Trickle { polls_per_record: 4, end_offset: i64::MAX }, 60_000, 100);
    assert_eq!(max, 100);
    assert!(duration < Duration::from_secs(60), "{duration:?}");
}

#[test]
fn transaction_ends_in_time_while_records_are_on_their_way() {
    let (max, duration) = run_with_trickle(Trickle { polls_per_record: 4, end_offset: 7 }, 2_000, 7);
    assert_eq!(max, 7);
    assert!(duration >= Duration::from_secs(2), "{duration:?}");
}

/// The cost of a commit for brokers does not depend on its size.
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
    let (transactions, duration) = (running.metric("ratchet_transactions_total") - before, since.elapsed());
    running.end().unwrap();
    let max = duration.div_duration_f64(Duration::from_millis(SPACING_MS)) + 2.0;
    assert!(transactions <= max, "{transactions} transactions in {duration:?}");
}

/// Starts one lane with these bounds, waits until a single first record is forwarded, and sends two more records. Also
/// returns the time at which they were sent.
fn start_with_spacing(site: &Site, spacing_ms: u64, interval_ms: u64) -> (Running, Arc<Faults>, Instant) {
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
    let (running, _, sent_at) = start_with_spacing(&site, 600_000, 2_000);
    site.await_values(OUTPUT, 3);
    // The interval began when the lane last found no records, which may have been before the first commit.
    let waited = sent_at.elapsed();
    assert!(waited >= Duration::from_secs(1), "committed after {waited:?}");
    running.end().unwrap();
}

#[test]
fn stop_does_not_wait_for_a_commit_to_be_due() {
    let site = Site::new();
    let (running, faults, _) = start_with_spacing(&site, 600_000, 600_000);
    await_condition("two records in a transaction", || faults.sent_per_transaction_max.load(Ordering::SeqCst) == 2);
    assert_eq!(site.values(OUTPUT).len(), 1);
    running.end().unwrap();
    assert_eq!(site.values(OUTPUT).len(), 3);
}

/// Otherwise, records that arrive before the topic's first commit would be lost with the instance.
#[test]
fn start_at_the_end_is_committed_while_another_topic_catches_up() {
    // More records than a lane processes one by one between two checks of this test.
    const BACKLOG: u32 = 50_000;
    let site = Site::new();
    site.create(OUTPUT, 1, &[]);
    site.create("shop.busy", 1, &[]);
    let latest = Topology { start: Start::Latest, ..topology(pattern(r"^shop\.", &[]), OUTPUT) };
    let group = latest.group();
    let (running, _) = start(&site, latest, (200, 0), Some(Trickle { polls_per_record: 1, end_offset: i64::MAX }));
    let committed = |topic: &str| {
        let found = site.cluster.committed(&group, &[TopicPartition::new(topic, 0)], Duration::ZERO).unwrap();
        found.into_iter().next().flatten().map(|committed| committed.offset)
    };
    await_condition("the first topic to be active", || committed("shop.busy") == Some(0));
    let mut written = 0;
    let mut keep_busy = || {
        let taken = committed("shop.busy").and_then(|offset| u32::try_from(offset).ok()).unwrap();
        assert!(taken < written || written == 0, "there were no more records");
        if written - taken < BACKLOG {
            fill_topic(&site, "shop.busy", 1, written..written + BACKLOG, 0);
            written += BACKLOG;
        }
        taken
    };
    await_condition("the first records", || keep_busy() > 0);
    site.create("shop.quiet", 1, &[]);
    await_condition("the other start to be committed", || keep_busy() > 0 && committed("shop.quiet") == Some(0));
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
    let faults =
        drain_observed(&site, Commit { interval_ms: 5_000, spacing_ms: 0, records_max: 100, bytes_max: 64 << 20 });
    assert_eq!(faults.sent_per_transaction_max.load(Ordering::SeqCst), 100);
    let forwarded = (0..3).map(|partition| site.cluster.read_all(OUTPUT, partition).unwrap().len());
    assert_eq!(forwarded.collect::<Vec<_>>(), [350, 350, 350]);
}

/// How often each of these records, all read in one batch, is accessed if a transaction has room for only some of them.
fn accesses_per_record(records: u32) -> u64 {
    const ROOM: u32 = 8;
    const VALUE_BYTES: usize = 16 << 10;
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    fill(&site, 1, 0..records, VALUE_BYTES);
    let bytes_max = ROOM as usize * VALUE_BYTES;
    let faults = drain_observed(&site, Commit { interval_ms: 5_000, spacing_ms: 0, records_max: 100_000, bytes_max });
    assert_eq!(site.cluster.read_all(OUTPUT, 0).unwrap().len(), records as usize);
    let max = faults.sent_per_transaction_max.load(Ordering::SeqCst);
    assert!(max <= ROOM, "{max} in one transaction");
    faults.accesses.load(Ordering::SeqCst) / u64::from(records)
}

#[test]
fn batch_split_over_transactions_is_not_read_more_often() {
    let (few, many) = (accesses_per_record(8), accesses_per_record(512));
    assert!(many <= 2 * few, "each record was accessed {many} times, but {few} times if all fit into one transaction");
}

#[test]
fn duplicates_are_processed_even_in_a_full_transaction() {
    let site = Site::new();
    site.create(INPUT, 1, &[]);
    fill(&site, 1, 0..100, 16 << 10);
    let commit = Commit { interval_ms: 5_000, spacing_ms: 0, records_max: 100_000, bytes_max: 64 << 10 };
    drain_observed(&site, commit);
    let changelog_len = |site: &Site| {
        site.cluster
            .read_all(&topology(Input::Topics(vec![INPUT.to_owned()]), OUTPUT).changelog(INPUT), 0)
            .unwrap()
            .len()
    };
    let before = changelog_len(&site);
    // All of these records except one are duplicates.
    fill(&site, 1, 0..101, 16 << 10);
    drain_observed(&site, commit);
    assert_eq!(site.cluster.read_all(OUTPUT, 0).unwrap().len(), 101);
    let new = changelog_len(&site) - before;
    assert!(new <= 4, "{new} changelog records for one entry");
}
