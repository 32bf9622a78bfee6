//! Goal: what holds up a task for long, a stalled disk or another producer's hanging transaction, is logged by name,
//! costs no other task its partition, and is over without help once its cause is.

use std::time::Duration;

use crate::checker::{Fate, check};
use crate::disk::Disk;
use crate::job::Job;
use crate::load::{thing, things};
use crate::operator::{Operator, Options};
use crate::until::{DEADLINE, within};

/// Stores are flushed once a minute.
const FLUSH_MAX: Duration = Duration::from_secs(90);
/// A task that made no progress for a minute is looked into.
const REPORTED_MAX: Duration = Duration::from_secs(120);
const PARTITIONS: i32 = 24;

/// Each of many stores takes seconds to flush: all of them in a row take longer than a member may be silent.
#[test]
fn stalled_disk_is_named_and_costs_no_partition() {
    let mut job = Job::new("slow-disk", PARTITIONS);
    job.properties.insert("consumer.max.poll.interval.ms".to_owned(), "30000".to_owned());
    let state = job.path("state-a");
    let disk = Disk::of(&job.path(""), &state);
    let all =
        |ids: std::ops::Range<usize>| (0..PARTITIONS).flat_map(move |partition| things(partition, ids.clone(), 1));
    let mut operator = Operator::start_with(&job, "a", &Options { env: disk.variables(), ..Options::default() });
    job.send(all(0..20));
    job.await_drained(DEADLINE);
    operator.await_ready(DEADLINE);

    // One flush of a store takes about four of these.
    disk.pause(Duration::from_millis(1_500));
    let line = operator.await_line(&["a disk does not answer", "state-a"], FLUSH_MAX);
    assert!(line["waited_s"].as_u64().is_some_and(|waited| waited >= 5), "{line}");
    let unready = || operator.get("/readyz?verbose").1.contains("[-] disk: does not answer");
    within(DEADLINE, "readiness to report the disk", || unready().then_some(()));
    // Work continues between two stores, for longer than a member may be silent.
    for round in 1..=3 {
        job.send(all(20 * round..20 * round + 20));
        job.await_drained(DEADLINE);
    }
    disk.pause(Duration::ZERO);
    operator.await_line(&["the disk answers again"], FLUSH_MAX);
    operator.await_ready(DEADLINE);
    let rebalances = operator.metric("ratchet_rebalances_total", &[]);
    operator.stop();
    assert_eq!(rebalances, 1.0, "it was expelled from its group");
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 80 * PARTITIONS as usize, "{found:?}");
}

/// A transaction that its producer keeps open looks the same as one that hangs on the brokers for good.
#[test]
fn transaction_that_holds_up_an_input_is_named() {
    let job = Job::new("held-up", 2);
    let mut operator = Operator::start(&job, "a");
    let hanging = job.kafka.transaction(&format!("{}-hanging", job.name), Duration::from_secs(800));
    hanging.send(&job.input, [thing(0, "open", 1)]);
    // More records arrive behind it, which nobody gets to read.
    job.send(things(0, 0..100, 1).chain(things(1, 0..100, 1)));
    let held = format!("{}:0", job.input);
    let tool = format!("kafka-transactions.sh find-hanging --topic {} --partition 0", job.input);
    let line = operator.await_line(&["has been open there for a long time", &held, &tool], REPORTED_MAX);
    assert_eq!(line["offset"].as_i64(), Some(0), "{line}");
    assert!(line["stood_s"].as_u64().is_some_and(|stood| stood >= 60), "{line}");
    assert_eq!(job.committed()[1], 100, "the other partition was held up too");
    let lines =
        operator.log().iter().filter(|line| line.to_string().contains("has been open there for a long time")).count();
    assert_eq!(lines, 1, "it should be logged now and then, for that task alone");

    hanging.abort();
    job.await_drained(DEADLINE);
    operator.stop();
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!(found.count(Fate::Forwarded), 200, "{found:?}");
}
