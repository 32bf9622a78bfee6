//! Goal: a task misses no record that was read meanwhile if the transaction that would have stopped it is aborted.

use std::sync::atomic::{AtomicI64, AtomicU32};

use super::counted::Trickle;
use super::faulty::{Faults, Faulty};
use super::watched::context;
use super::*;
use crate::cluster::embedded::StoredRecord;
use crate::engine::lane::Lane;
use crate::provider::handler::{Function, Record, StepError, Steps};
use crate::topology;
use crate::yaml::Process;

const INPUT: &str = "orders";
const RESULTS: &str = "results";
/// Longer than records may be in the future.
const TWO_DAYS_MS: i64 = 2 * 86_400_000;
const TOPOLOGY: &str = "\
name: shop
input: {topics: [orders]}
identity: value.id
retention: 30d
partitioned_by_identity: true
on_duplicate: result
sink: {handler: {in_flight: 8, result: {topic: results}, on_in_doubt: dead_letter, retry: {first: 10ms, max: 20ms}}}
";

/// The machine's clock, with a shifted wall clock.
struct ShiftedClock(SystemClock, AtomicI64);

impl Clock for ShiftedClock {
    fn monotonic(&self) -> Duration {
        self.0.monotonic()
    }

    fn wall_ms(&self) -> i64 {
        self.0.wall_ms() + self.1.load(Ordering::SeqCst)
    }

    fn wait(&self, length: Duration, stop: &AtomicBool) {
        self.0.wait(length, stop);
    }
}

/// Does the work of all records, except the second unless `is_ready`.
fn handler(is_ready: bool) -> Handlers {
    let function = Function::new(async move |record: &Record, _: &mut Steps| match record.offset() {
        1 if !is_ready => Err(StepError::again("not yet")),
        _ => Ok(()),
    });
    Handlers { functions: [("shop".to_owned(), function)].into(), database: None }
}

/// Appends a record with a later timestamp than the record before it: a timestamp that is not later would be believed.
fn send(site: &Site, (offset, id): (i64, &str)) {
    let (value, timestamp) = (format!(r#"{{"id":"{id}"}}"#), Some(SystemClock::default().wall_ms() + 1000 * offset));
    let (topic, partition, headers) = (INPUT, 0, Headers::default());
    let message =
        Message { topic, partition, key: Some(id.as_bytes()), value: Some(value.as_bytes()), headers, timestamp };
    site.cluster.append(topic, 0, &[message]).unwrap();
}

/// The offsets of the records that have results.
fn results(site: &Site) -> Vec<String> {
    let offset_of = |record: StoredRecord| {
        let header = record.headers.as_headers().last(b"__ratchet.result.offset").unwrap();
        String::from_utf8(header.value.unwrap().to_vec()).unwrap()
    };
    site.cluster.read_all(RESULTS, 0).unwrap_or_default().into_iter().map(offset_of).collect()
}

#[test]
fn task_that_continues_instead_of_stopping_misses_no_record() {
    let site = Site::new();
    let file = site.folder.path().join("shop.yaml");
    std::fs::write(&file, TOPOLOGY).unwrap();
    let topology = topology::load(&file, &Process).map_err(|mistakes| mistakes.render(false)).unwrap().topology;
    site.create(INPUT, 1, &[]);
    // The former owner has settled the third record, a duplicate of the first, but not the second.
    [(0, "a"), (1, "b"), (2, "a")].into_iter().for_each(|record| send(&site, record));
    let former = site.start_with(&topology, handler(false), false);
    await_condition("the duplicate's result", || results(&site) == ["0", "2"]);
    former.end().unwrap();
    send(&site, (3, "c"));
    // By this host's clock all records are from the future: a transaction is to stop the task before the second record,
    // so that it asks for Kafka's time. That transaction is aborted after the third record was read.
    let clock = Arc::new(ShiftedClock(SystemClock::default(), AtomicI64::new(-TWO_DAYS_MS)));
    let provider = handler(true).provider(&topology).unwrap();
    let context = Context { provider, ..context(&site, &topology, clock.clone()) };
    let health = context.health.clone();
    let trickle = Some(Trickle { polls_per_record: 1, end_offset: i64::MAX });
    let faults = Arc::new(Faults { trickle, refused_commits: AtomicU32::new(1), ..Faults::default() });
    let cluster = Faulty { inner: site.cluster.clone(), faults: Arc::clone(&faults) };
    let mut lane = Lane::join(Arc::new(context), cluster, 0, 7, Arc::default()).unwrap();
    while faults.refused_commits.load(Ordering::SeqCst) > 0 {
        lane.step().unwrap();
    }
    // Now the next transaction stops the task, and Kafka's time becomes known.
    let deadline = clock.monotonic() + WAIT_MAX;
    let is_doubted = || health.ready().iter().any(|check| check.detail.contains("clock"));
    while !is_doubted() {
        assert!(clock.monotonic() < deadline, "{:?}", health.ready());
        lane.step().unwrap();
    }
    assert_eq!(results(&site), ["0", "2"], "the task waits until the clocks agree");
    clock.1.store(0, Ordering::SeqCst);
    let deadline = clock.monotonic() + WAIT_MAX;
    while results(&site).len() < 4 && clock.monotonic() < deadline {
        lane.step().unwrap();
    }
    lane.leave().unwrap();
    let mut found = results(&site);
    found.sort();
    assert_eq!(found, ["0", "1", "2", "3"], "one result of each record");
}
