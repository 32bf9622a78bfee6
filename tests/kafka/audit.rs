//! Goal: a read_committed reader of the audit topic finds exactly one explanation of each drop, however the instances
//! die.

use std::collections::BTreeMap;

use serde_json::Value;

use crate::checker::{Fate, check};
use crate::cluster::Stored;
use crate::job::Job;
use crate::load::{Feed, Load, Random};
use crate::operator::{Operator, Options};
use crate::until::DEADLINE;

fn audited(theme: &str) -> Job {
    let mut job = Job::new(theme, 2);
    let line = format!("audit: {{topic: {}}}", audit(&job));
    job.topology.push(line);
    job
}

fn audit(job: &Job) -> String {
    format!("{}.audit", job.name)
}

/// The drops that the audit explains, by partition and offset; asserts that each is a drop and is explained once.
fn explained(job: &Job) -> BTreeMap<(i64, i64), Value> {
    let input = job.kafka.read(&job.input);
    let mut all = BTreeMap::new();
    for (partition, records) in job.kafka.read(&audit(job)) {
        for Stored { key, value, timestamp, .. } in records {
            let explanation: Value = serde_json::from_slice(&value.expect("an explanation has a value")).expect("JSON");
            let (from, offset) = (explanation["partition"].as_i64().unwrap(), explanation["offset"].as_i64().unwrap());
            assert_eq!((from, &explanation["topic"]), (i64::from(partition), &Value::from(job.input.as_str())));
            let record =
                input[&partition].iter().find(|record| record.offset == offset).expect("a record of the input");
            assert_eq!((&key, timestamp), (&record.key, record.timestamp), "{explanation}");
            let wrote: Value =
                serde_json::from_slice(record.value.as_deref().unwrap()).expect("a dropped record is JSON");
            assert_eq!(
                (&explanation["identity"][0], &explanation["version"]),
                (&wrote["id"], &wrote["version"]),
                "{explanation}"
            );
            let (version, known) =
                (explanation["version"].as_i64().unwrap(), explanation["against"]["version"].as_i64().unwrap());
            match explanation["verdict"].as_str().unwrap() {
                "stale" => assert!(version < known, "{explanation}"),
                "duplicate" => assert_eq!(version, known, "{explanation}"),
                other => panic!("{other} is not a drop: {explanation}"),
            }
            assert!(all.insert((from, offset), explanation).is_none(), "{from}:{offset} is explained twice");
        }
    }
    all
}

fn check_audit(job: &Job, operator: &Operator) {
    let found = check(job, &[operator.state_dir()]);
    found.assert_each_fate();
    let explained = explained(job);
    let count = |verdict: &str| explained.values().filter(|explanation| explanation["verdict"] == verdict).count();
    assert_eq!(count("duplicate"), found.count(Fate::Duplicate));
    assert_eq!(count("stale"), found.count(Fate::Stale));
}

/// An operator dies at a kill point, under load, and its successor finishes.
fn dies_and_recovers(point: &str) {
    let theme = format!("audit-{}", point.split(':').next().unwrap_or_default().replace('_', "-"));
    let job = audited(&theme);
    let mut load = Load::new(Random::seeded(point), 2, 200);
    job.send(load.records(2000));
    let feed = Feed::start(&job, load, 500);
    let mut dying = Operator::start_with(&job, "a", &Options { crash_at: Some(point), ..Options::default() });
    dying.await_crash();
    let before = job.committed();
    let mut successor = Operator::start(&job, "a");
    job.await_progress(&before, DEADLINE);
    feed.stop();
    job.await_drained(DEADLINE);
    successor.stop();
    check_audit(&job, &successor);
}

#[test]
fn drops_are_explained_once_after_kill_before_commit() {
    dies_and_recovers("after_sends:3");
}

#[test]
fn drops_are_explained_once_after_kill_after_commit() {
    dies_and_recovers("after_commit:3");
}

#[test]
fn drops_are_explained_once_after_kills_in_open_transactions() {
    let mut random = Random::seeded("audit");
    let job = audited("audit-kills");
    let feed = Feed::start(&job, Load::new(random.clone(), 2, 500), 1500);
    let mut operator = Operator::start(&job, "a");
    job.await_progress(&[0; 2], DEADLINE);
    for _ in 0..3 {
        operator.freeze_in_transaction(&job);
        operator.kill();
        let before = job.committed();
        if random.once_in(2) {
            operator.kill_and_wipe();
        }
        operator = Operator::start(&job, "a");
        job.await_progress(&before, DEADLINE);
    }
    feed.stop();
    job.await_drained(DEADLINE);
    operator.stop();
    check_audit(&job, &operator);
}
