//! Goal: broker faults are sat out, and a fault of one output partition stays there.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::checker::check;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::Broker;
use crate::load::{Feed, Load, Random, things};
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

/// A restarted broker recovers its logs, and every client has to find it again.
const RECOVERY: Duration = Duration::from_secs(90);
/// How long a clean end may take; the same signal twice does not shorten it, since one may be delivered twice.
const CLEAN_END_MAX: Duration = Duration::from_secs(25);
/// How long an operator works without its only broker.
const OUTAGE: Duration = Duration::from_secs(5);
const ONE_REQUEST: Duration = Duration::from_secs(1);
/// For a busy machine.
const SLACK: Duration = Duration::from_secs(5);
/// A broker that is silent for three seconds is fenced.
const FAST_FAILOVER: &[(&str, &str)] =
    &[("broker.session.timeout.ms", "3000"), ("broker.heartbeat.interval.ms", "500")];

/// The operator that worked all the time reaches the end of the input, with nothing lost and nothing repeated.
fn ends_right(job: &Job, feed: Feed, mut operator: Operator) {
    operator.assert_running();
    feed.stop();
    job.await_drained(RECOVERY);
    operator.stop();
    check(job, &[operator.state_dir()]).assert_each_fate();
}

#[test]
fn broker_restarts_under_load_are_sat_out() {
    let mut broker = Broker::start();
    let job = Job::on(Kafka::at(&broker.bootstrap()), "restarts");
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[]);
    let feed = Feed::start(&job, Load::new(Random::seeded("restarts"), 2, 1000), 500);
    let operator = Operator::start(&job, "a");
    job.await_progress(&[0; 2], DEADLINE);
    let before = job.committed();
    // Kafka's coordinator skips the marker of a partition without a leader ("these partitions are likely deleted already and
    // hence can be skipped"), and the transaction stays open for good. A lone broker leads nothing while it stops, and
    // nothing yet when it has just started. So no transaction may be open when the broker is killed or stops, and none may
    // begin before the broker leads all its partitions again.
    operator.freeze_between_transactions(&job);
    broker.kill();
    operator.thaw();
    sleep(OUTAGE);
    operator.freeze();
    broker.restart();
    within(RECOVERY, "the broker to lead all its partitions again", || {
        (!job.kafka.leaders(&job.output).is_empty() && job.kafka.is_in_sync()).then_some(())
    });
    operator.thaw();
    job.await_progress(&before, RECOVERY);
    feed.stop();
    job.await_drained(RECOVERY);
    broker.stop();
    broker.restart();
    let feed = Feed::start(&job, Load::new(Random::seeded("restarted"), 2, 1000), 500);
    job.await_progress(&job.committed(), RECOVERY);
    ends_right(&job, feed, operator);
}

#[test]
fn unwritable_output_partition_holds_up_only_its_own_input() {
    let first = Broker::start();
    let job = Job::on(Kafka::at(&first.bootstrap()), "leaderless");
    // All of the output but one partition is on the first broker.
    job.kafka.create_placed(&job.input, &[1, 1], &[]);
    job.kafka.warm_up(&job.input);
    let mut second = first.join();
    job.kafka.create_placed(&job.output, &[1, 2], &[]);
    job.kafka.create_placed(&job.changelog(), &[1, 1], &[("cleanup.policy", "compact")]);
    job.kafka.create_placed(&job.dead_letter(), &[1, 1], &[]);
    let mut operator = Operator::start(&job, "a");
    job.send(things(0, 0..100, 1).chain(things(1, 0..100, 1)));
    job.await_drained(DEADLINE);

    second.stop();
    job.send(things(1, 100..200, 1));
    let held = job.committed()[1];
    for round in 1..=5 {
        job.send(things(0, round * 100..(round + 1) * 100, 1));
        let end = job.kafka.bounds(&job.input, 0).end;
        within(DEADLINE, "the partition with a writable output to continue", || {
            (job.committed()[0] >= end).then_some(())
        });
    }
    assert_eq!(job.committed()[1], held, "what cannot be written cannot be committed");
    operator.assert_running();

    second.restart();
    job.await_drained(RECOVERY);
    operator.stop();
    let found = check(&job, &[operator.state_dir()]);
    assert_eq!(found.count(crate::checker::Fate::Forwarded), 800, "{found:?}");
}

#[test]
fn restore_does_not_wait_for_a_dead_broker() {
    let first = Broker::start_with(FAST_FAILOVER);
    let job = Job::on(Kafka::at(&first.bootstrap()), "gone-leader");
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.warm_up(&job.input);
    let mut second = first.join();
    // Led by the second broker, until it is gone.
    job.kafka.create_led(&job.output, &[2, 1], &[]);
    job.kafka.create_led(&job.changelog(), &[2, 1], &[("cleanup.policy", "compact")]);
    job.kafka.create_placed(&job.dead_letter(), &[1], &[]);
    let feed = Feed::start(&job, Load::new(Random::seeded("gone-leader"), 1, 1000), 200);
    let operator = Operator::start(&job, "a");
    job.await_progress(&[0], DEADLINE);
    second.kill();
    within(DEADLINE, "the changelog to be led by the first broker", || {
        (job.kafka.leaders(&job.changelog()) == [1]).then_some(())
    });
    let before = job.committed();
    // The open transaction is aborted, and the restore first asks the dead leader.
    job.await_progress(&before, Duration::from_secs(30));
    ends_right(&job, feed, operator);
}

#[test]
fn end_held_up_by_a_frozen_broker_is_forced_by_signal_or_time() {
    let broker = Broker::start();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), "held-end");
    // With a shorter timeout, an unreleased claim would be given up in time, and the end would be clean.
    job.properties.insert("producer.transaction.timeout.ms".to_owned(), "60000".to_owned());
    // A busy machine must not cost a member its partition before the broker freezes: it would have nothing to finish.
    job.properties.insert("consumer.session.timeout.ms".to_owned(), "15000".to_owned());
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[]);
    let feed = Feed::start(&job, Load::new(Random::seeded("held-end"), 2, 1000), 500);
    let (mut signalled_twice, mut signalled_once) =
        (Operator::start(&job, "signalled-twice"), Operator::start(&job, "signalled-once"));
    within(DEADLINE, "two owners", || {
        let owners = job.owners();
        (owners[0].is_some() && owners[1].is_some() && owners[0] != owners[1]).then_some(())
    });
    broker.freeze();
    let signalled = Instant::now();
    signalled_once.terminate();
    signalled_twice.terminate();
    // It counts these two as one.
    signalled_twice.terminate();
    signalled_twice.await_line(&["stopping: finishing"], DEADLINE);
    sleep(2 * ONE_REQUEST);
    signalled_twice.assert_running();
    signalled_twice.terminate();
    assert_eq!(signalled_twice.await_exit(SLACK).code(), Some(1), "the end was not clean");
    signalled_twice.await_line(&["\"WARN\"", "ending at once", "SIGTERM"], DEADLINE);
    assert_eq!(signalled_once.await_exit(CLEAN_END_MAX + SLACK).code(), Some(1), "the end was not clean");
    assert!(signalled.elapsed() >= CLEAN_END_MAX, "{:?}", signalled.elapsed());
    signalled_once.await_error(&["not stopped in time"]);

    broker.thaw();
    let mut successor = Operator::start(&job, "successor");
    feed.stop();
    job.await_drained(RECOVERY);
    successor.stop();
    let dirs = [&signalled_twice, &signalled_once, &successor].map(|operator| operator.state_dir());
    check(&job, &dirs).assert_each_fate();
}
