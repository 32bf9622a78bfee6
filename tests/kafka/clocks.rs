//! Goal: a wrong host clock decides no record's fate. Where records seem to be of the future by it, Kafka's own time is
//! consulted; the task waits until the clock is right, or sets aside what is of the future by both.

use crate::checker::{Fate, check};
use crate::clock::WallClock;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::load::{now_ms, thing, things};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};
use std::time::Duration;

const MINUTE_MS: i64 = 60_000;
const DAY_MS: i64 = 24 * 60 * MINUTE_MS;
/// Timestamps are believed up to a tenth of it beyond the present.
const RETENTION: Duration = Duration::from_secs(600);
/// Kafka itself rejects timestamps more than an hour ahead, unless configured otherwise.
const ANY_TIME: (&str, &str) = ("message.timestamp.after.max.ms", "9223372036854775807");
/// The clocks are compared every 5 s.
const NOTICED_MAX: Duration = Duration::from_secs(60);

fn job(theme: &str) -> Job {
    let job = Job::on(Kafka::shared(), theme).with_retention(RETENTION);
    job.kafka.create(&job.input, 2, &[ANY_TIME]);
    job.kafka.create(&job.output, 2, &[]);
    job
}

/// An operator two minutes slow waits with records of the present, and sets aside what is of the future by Kafka's time
/// too.
fn waits_until_its_clock_is_right(job: &Job) {
    let clock = WallClock::off_by(job, -2 * MINUTE_MS);
    job.send(things(0, 0..100, 1).chain([thing(1, "early", 1).at(now_ms() + DAY_MS)]).chain(things(1, 0..100, 1)));
    let mut operator = Operator::start_with(job, "a", &Options { env: clock.variables(), ..Options::default() });
    operator.await_line(&["by this host's clock but not by kafka's", &format!("{}:0", job.input)], DEADLINE);
    let line = operator.await_line(&["by this host's clock but not by kafka's", &format!("{}:1", job.input)], DEADLINE);
    let ahead_ms = line["kafka_ahead_ms"].as_i64().unwrap_or_else(|| panic!("{line}"));
    assert!((2 * MINUTE_MS - 5_000..2 * MINUTE_MS + 30_000).contains(&ahead_ms), "{line}");
    let (status, checks) = operator.get("/readyz?verbose");
    assert!(status == 503 && checks.contains("clock"), "{status} {checks}");
    let behind_s = operator.metric("ratchet_clock_behind_seconds", &["partition=\"0\""]);
    assert!((115.0..150.0).contains(&behind_s), "{behind_s}");
    assert!(job.output().is_empty(), "something came out");
    assert_eq!(job.committed(), [0, 1], "only the record of the future by Kafka's time was passed");

    clock.set(0);
    within(NOTICED_MAX, "the input to be processed", || (job.committed() == [100, 101]).then_some(()));
    operator.await_ready(DEADLINE);
    operator.await_line(&["clocks agree again"], DEADLINE);
    assert_eq!(operator.metric("ratchet_clock_behind_seconds", &[]), 0.0);
    operator.stop();
    let found = check(job, &[operator.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 200, "{found:?}");
    assert_eq!(found.count(Fate::DeadLettered("timestamp_in_future")), 1, "{found:?}");
    assert_eq!(found.dead_lettered(), 1, "{found:?}");
}

#[test]
fn slow_host_clock_makes_tasks_wait_and_sets_nothing_aside() {
    waits_until_its_clock_is_right(&job("clock-behind"));
}

#[test]
fn markers_give_kafkas_time_on_a_create_time_changelog() {
    let job = job("clock-behind-create-time");
    job.kafka.create(&job.changelog(), 2, &[("cleanup.policy", "compact"), ("message.timestamp.type", "CreateTime")]);
    waits_until_its_clock_is_right(&job);
}

#[test]
fn sender_far_ahead_neither_stops_tasks_nor_expires_entries() {
    let job = job("senders-ahead");
    let mut operator = Operator::start(&job, "a");
    for round in 0..3 {
        let ahead = (0..50).map(|n| thing(0, &format!("ahead-{round}-{n}"), 1).at(now_ms() + (n + 2) * MINUTE_MS));
        job.send(things(0, 0..100, 1).chain(ahead).chain(things(0, 0..100, 1)));
        job.await_drained(DEADLINE);
    }
    operator.await_ready(DEADLINE);
    operator.stop();
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!(found.count(Fate::DeadLettered("timestamp_in_future")), 150, "{found:?}");
    assert_eq!((found.count(Fate::Forwarded), found.count(Fate::Duplicate)), (100, 500), "{found:?}");
}
