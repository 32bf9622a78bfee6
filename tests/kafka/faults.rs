//! Goal: what happens to the brokers is sat out, and what happens to one output partition stays there.

use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::checker::check;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::Broker;
use crate::load::{Feed, Load, Random, things};
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

/// A broker that comes back replays its logs, and every client finds it again.
const RECOVERY: Duration = Duration::from_secs(90);
/// What a clean end may take, and what no second signal shortens: the same one may arrive twice.
const CLEAN_END_MAX: Duration = Duration::from_secs(25);
const ONE_REQUEST: Duration = Duration::from_secs(1);
/// A busy machine gets to it later.
const SLACK: Duration = Duration::from_secs(5);
/// A broker that is silent for three seconds is given up.
const FAST_FAILOVER: &[(&str, &str)] =
    &[("broker.session.timeout.ms", "3000"), ("broker.heartbeat.interval.ms", "500")];

/// Whoever was at work all the time comes to the end of what was sent, and nothing was lost and nothing came twice.
fn ends_right(job: &Job, feed: Feed, mut operator: Operator) {
    operator.assert_running();
    feed.stop();
    job.await_drained(RECOVERY);
    operator.stop();
    check(job, &[operator.state_dir()]).assert_lively();
}

#[test]
fn a_broker_that_restarts_under_load_is_sat_out() {
    let mut broker = Broker::start();
    let job = Job::on(Kafka::at(&broker.bootstrap()), "restarts");
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[]);
    let feed = Feed::start(&job, Load::new(Random::seeded("restarts"), 2, 1000), 500);
    let operator = Operator::start(&job, "a");
    job.await_progress(&[0; 2], DEADLINE);
    let before = job.committed();
    broker.kill();
    broker.restart();
    // What was in flight may have been committed by now: only what comes behind that shows that its transaction is over.
    // A lone broker that is stopped before drops the markers that it owes, since no partition has a leader then, and leaves
    // the transaction open for good.
    job.await_progress(&before, RECOVERY);
    job.await_progress(&job.committed(), RECOVERY);
    let before = job.committed();
    broker.stop();
    broker.restart();
    job.await_progress(&before, RECOVERY);
    ends_right(&job, feed, operator);
}

#[test]
fn an_output_partition_that_cannot_be_written_holds_up_its_own_input_only() {
    let first = Broker::start();
    let job = Job::on(Kafka::at(&first.bootstrap()), "leaderless");
    // All but one partition of the output lie on the first broker.
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
        within(DEADLINE, "the partition with a writable output to go on", || (job.committed()[0] >= end).then_some(()));
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
fn a_restore_does_not_wait_for_a_broker_that_is_gone() {
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
    // The transaction that was open is aborted, and whom the restore asks is the one who is gone.
    job.await_progress(&before, Duration::from_secs(30));
    ends_right(&job, feed, operator);
}

#[test]
fn an_end_that_a_frozen_broker_holds_up_is_forced_by_a_second_signal_or_in_time() {
    let broker = Broker::start();
    let mut job = Job::on(Kafka::at(&broker.bootstrap()), "held-end");
    // What cannot be released is given up after as long, and the end would be clean.
    job.properties.insert("producer.transaction.timeout.ms".to_owned(), "60000".to_owned());
    job.kafka.create(&job.input, 2, &[]);
    job.kafka.create(&job.output, 2, &[]);
    let feed = Feed::start(&job, Load::new(Random::seeded("held-end"), 2, 1000), 500);
    let (mut told_twice, mut told_once) = (Operator::start(&job, "told-twice"), Operator::start(&job, "told-once"));
    within(DEADLINE, "two owners", || {
        let owners = job.owners();
        (owners[0].is_some() && owners[1].is_some() && owners[0] != owners[1]).then_some(())
    });
    broker.freeze();
    let told = Instant::now();
    told_once.terminate();
    told_twice.terminate();
    // It takes these for one.
    told_twice.terminate();
    told_twice.await_line(&["stopping: finishing"], DEADLINE);
    sleep(2 * ONE_REQUEST);
    told_twice.assert_running();
    told_twice.terminate();
    assert_eq!(told_twice.await_exit(SLACK).code(), Some(1), "the end was not clean");
    told_twice.await_line(&["\"WARN\"", "ending at once", "SIGTERM"], DEADLINE);
    assert_eq!(told_once.await_exit(CLEAN_END_MAX + SLACK).code(), Some(1), "the end was not clean");
    assert!(told.elapsed() >= CLEAN_END_MAX, "{:?}", told.elapsed());
    told_once.await_error(&["not stopped in time"]);

    broker.thaw();
    let mut heir = Operator::start(&job, "heir");
    feed.stop();
    job.await_drained(RECOVERY);
    heir.stop();
    let dirs = [&told_twice, &told_once, &heir].map(|operator| operator.state_dir());
    check(&job, &dirs).assert_lively();
}
