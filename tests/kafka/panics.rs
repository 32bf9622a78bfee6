//! Goal: a panic affects one task, or one lane: it is logged, counted and retried; a record at which its task panics
//! every time stops that task, on any instance, and no other.

use std::time::Duration;

use crate::checker::{Fate, check};
use crate::job::Job;
use crate::load::{Feed, Load, Random, things};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};

/// How often a task may panic at one record, and a lane in a row.
const TASK_PANICS: f64 = 3.0;
const LANE_PANICS: f64 = 5.0;

#[test]
fn poison_record_stops_only_its_task_on_every_instance() {
    const POISONOUS: i64 = 50;
    let job = Job::new("poisonous", 2);
    job.send(things(0, 0..100, 1).chain(things(1, 0..100, 1)));
    let place = format!("{}:0:{POISONOUS}", job.input);
    let drill = || Options { env: vec![("RATCHET_CRASH_ON", place.clone())], ..Options::default() };
    let mut first = Operator::start_with(&job, "first", &drill());
    let stops = |operator: &Operator| {
        operator.await_error(&[
            "task stopped",
            &place,
            "panicked 3 times in a row",
            "panic drill",
            "src/engine/crash.rs:",
        ]);
        within(DEADLINE, "the other partition to be drained", || (job.committed() == [POISONOUS, 100]).then_some(()));
    };
    stops(&first);
    let line = first.await_error(&["panicked: this is a bug in ratchet", "src/engine/crash.rs:"]);
    assert!(line["thread"].is_string(), "{line}");
    assert_eq!(first.metric("ratchet_panics_total", &[]), TASK_PANICS);
    let (status, checks) = first.get("/readyz?verbose");
    assert!(status == 503 && checks.contains("has stopped; the log says why"), "{status} {checks}");

    // The next owner retries as often, and no more.
    first.kill();
    let mut second = Operator::start_with(&job, "second", &drill());
    stops(&second);
    assert_eq!(second.metric("ratchet_panics_total", &[]), TASK_PANICS);
    job.send(things(1, 100..200, 1));
    within(DEADLINE, "the other partition to continue", || (job.committed() == [POISONOUS, 200]).then_some(()));
    second.terminate();
    assert_eq!(second.await_exit(DEADLINE).code(), Some(1), "a stopped task should fail the run");

    let mut mended = Operator::start(&job, "second");
    job.await_drained(DEADLINE);
    mended.stop();
    let found = check(&job, &[mended.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 300, "{found:?}");
}

/// A single lane panics once at `point` under load, and recovers.
fn panics_once_at(point: &str, words: &[&str]) {
    let theme = format!("panic-{}", point.trim_end_matches(":panic").replace(['_', ':'], "-"));
    let mut job = Job::new(&theme, 2);
    job.worker.push("lanes: 1".to_owned());
    // Waiting for an open transaction to time out fails the test.
    job.properties.insert("producer.transaction.timeout.ms".to_owned(), "600000".to_owned());
    let mut load = Load::new(Random::seeded(point), 2, 500);
    job.send(load.records(2000));
    let feed = Feed::start(&job, load, 500);
    let drill = Options { crash_at: Some(point), ..Options::default() };
    let mut operator = Operator::start_with(&job, "a", &drill);
    operator.await_error(words);
    let before = job.committed();
    job.await_progress(&before, DEADLINE);
    operator.await_ready(DEADLINE);
    assert_eq!(operator.metric("ratchet_panics_total", &[]), 1.0);
    feed.stop();
    job.await_drained(DEADLINE);
    operator.stop();
    check(&job, &[operator.state_dir()]).assert_each_fate();
}

#[test]
fn lane_that_panics_before_its_commit_is_restarted() {
    panics_once_at("after_sends:3:panic", &["lane restarts", "panic drill at after_sends"]);
}

/// No committed offset names that transaction's id: the lane has to end it itself.
#[test]
fn lane_that_panics_in_its_first_transaction_leaves_nothing_open() {
    panics_once_at("after_sends:1:panic", &["lane restarts", "panic drill at after_sends"]);
}

#[test]
fn lane_that_panics_between_commit_and_store_write_is_restarted() {
    panics_once_at("after_commit:3:panic", &["lane restarts", "panic drill at after_commit"]);
}

#[test]
fn task_that_panics_in_its_restore_is_rebuilt() {
    let job = Job::new("panic-in-restore", 2);
    job.send(things(0, 0..1000, 1).chain(things(1, 0..1000, 1)));
    let mut former = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    former.kill_and_wipe();
    let drill = Options { crash_at: Some("during_restore:1:panic"), ..Options::default() };
    let mut operator = Operator::start_with(&job, "a", &drill);
    operator.await_error(&["the task panicked; restarting it", "panic drill at during_restore"]);
    operator.await_ready(DEADLINE);
    job.send(things(0, 0..1000, 1).chain(things(1, 0..1000, 1)));
    job.await_drained(DEADLINE);
    assert_eq!(operator.metric("ratchet_panics_total", &[]), 1.0);
    operator.stop();
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (2000, 2000), "{found:?}");
}

#[test]
fn lane_that_keeps_panicking_is_given_up_and_the_run_exits_with_1() {
    let mut job = Job::new("panics", 1);
    job.worker.push("lanes: 1".to_owned());
    job.send(things(0, 0..100, 1));
    let drill = Options { crash_at: Some("after_sends:1:panics"), ..Options::default() };
    let mut operator = Operator::start_with(&job, "a", &drill);
    let status = operator.await_exit(DEADLINE + Duration::from_secs(60));
    assert_eq!(status.code(), Some(1), "{}", operator.tail());
    let given_up = operator.await_error(&["lane given up", "panic drill at after_sends"]);
    assert_eq!(given_up["panics"].as_f64(), Some(LANE_PANICS), "{given_up}");
    operator.await_error(&["has panicked and was given up"]);
    assert!(job.output().is_empty(), "something was committed");

    let mut mended = Operator::start(&job, "a");
    job.await_drained(DEADLINE);
    mended.stop();
    assert_eq!(check(&job, &[mended.state_dir()]).count(Fate::Forwarded), 100);
}
