//! Goal: lanes are on the wire unless a property needs librdkafka, and either data path continues what the other has left.

use std::thread::sleep;
use std::time::Duration;

use crate::checker::check;
use crate::cluster::Kafka;
use crate::job::Job;
use crate::kafka::{each_transaction_has_an_epoch, shared_broker};
use crate::load::{Feed, Load, Random, things};
use crate::operator::{Operator, Options};
use crate::segment::{batches_with, producers_of};
use crate::until::DEADLINE;

/// A kill is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(60);
/// The paths, and whether lanes are on the wire with them.
const WIRE: (&str, bool) = ("wire", true);
const LIBRDKAFKA: (&str, bool) = ("librdkafka", false);

fn on(data_path: (&'static str, bool)) -> Options<'static> {
    Options { data_path: Some(data_path), ..Options::default() }
}

/// Which it is, is logged; with `wire` such a property is refused.
#[test]
fn property_that_needs_librdkafka_gets_it() {
    let mut job = Job::new("fallback", 1);
    job.properties.insert("client.rack".to_owned(), "here".to_owned());
    job.send(things(0, 0..20, 1).chain(things(0, 0..20, 1)));
    let mut refused = Operator::start_with(&job, "wire", &on(WIRE));
    assert!(!refused.await_exit(DEADLINE).success());
    assert!(refused.printed().contains("client.rack needs librdkafka"), "{}", refused.tail());
    let mut operator = Operator::start_with(&job, "auto", &on(("auto", false)));
    operator.await_line(&["by librdkafka, since", "client.rack"], DEADLINE);
    job.await_drained(DEADLINE);
    operator.stop();
    assert_eq!(job.output().len(), 20);
    // Without the property it is not needed.
    job.properties.remove("client.rack");
    job.send(things(0, 10..30, 1));
    let mut operator = Operator::start_with(&job, "auto", &on(("auto", true)));
    job.await_drained(DEADLINE);
    operator.stop();
    assert_eq!(job.output().len(), 30);
}

/// Two instances, as while the setting is changed in one after the other: each continues what the other has left, with
/// its store and without it.
#[test]
fn instances_of_both_data_paths_continue_each_others_work() {
    let mut random = Random::seeded("both paths");
    let job = Job::new("both-paths", 4);
    let feed = Feed::start(&job, Load::new(random.clone(), 4, 3000), 3000);
    let start = |place: usize, path| Operator::start_with(&job, ["a", "b"][place], &on(path));
    let mut paths = [WIRE, WIRE];
    let mut operators = [start(0, paths[0]), start(1, paths[1])];
    job.await_progress(&[0; 4], DEADLINE);
    // After every other round they differ.
    for round in 0..6 {
        sleep(random.duration(Duration::ZERO, Duration::from_millis(600)));
        let place = round % 2;
        match round {
            0 | 1 => {
                operators[place].freeze_in_transaction(&job);
                operators[place].kill();
            }
            2 | 3 => operators[place].kill_and_wipe(),
            _ => operators[place].stop(),
        }
        let before = job.committed();
        paths[place] = if paths[place] == WIRE { LIBRDKAFKA } else { WIRE };
        operators[place] = start(place, paths[place]);
        operators[place].await_ready(DEADLINE);
        job.await_progress(&before, RECOVERY);
    }
    println!("{} records", feed.stop());
    job.await_drained(RECOVERY);
    let stopped = operators.map(|mut operator| {
        operator.stop();
        operator
    });
    let found = check(&job, &[stopped[0].state_dir(), stopped[1].state_dir()]);
    found.assert_each_fate();
    assert!(found.stores_current >= 4, "each partition should have a store at its end: {found:?}");
}

/// Each transaction has an epoch of its own where the brokers begin with version 2 (KIP-890) and lanes are on the wire:
/// by that brokers know what comes late from an earlier one.
#[test]
fn transactions_of_version_2_are_used_where_the_cluster_has_them() {
    let broker = shared_broker();
    let job = Job::on(Kafka::at(&broker.bootstrap()), "epochs");
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    let mut operator = Operator::start(&job, "a");
    const TRANSACTIONS: usize = 5;
    for number in 0..TRANSACTIONS {
        job.send(things(0, number..number + 1, 1));
        job.await_drained(DEADLINE);
    }
    operator.stop();
    let mut producers = producers_of(&broker.data(), &job.output, 0);
    assert_eq!(producers.len(), TRANSACTIONS, "a batch for each");
    producers.dedup();
    let expected = if each_transaction_has_an_epoch() { TRANSACTIONS } else { 1 };
    assert_eq!(producers.len(), expected, "{producers:?}");
}

/// A coordinator writes down each addition and both steps of an end. Output and changelog are added together.
#[test]
fn partitions_of_a_small_transaction_are_added_by_one_request() {
    const TRANSACTIONS: usize = 6;
    let broker = shared_broker();
    let job = Job::on(Kafka::at(&broker.bootstrap()), "added-at-once");
    job.kafka.create(&job.input, 1, &[]);
    job.kafka.create(&job.output, 1, &[]);
    let mut operator = Operator::start_with(&job, "a", &on(WIRE));
    let written = || batches_with(&broker.data(), "__transaction_state", &job.group());
    // The first one comes after a claim.
    job.send(things(0, 0..1, 1));
    job.await_drained(DEADLINE);
    let before = written();
    for number in 1..=TRANSACTIONS {
        job.send(things(0, number..number + 1, 1));
        job.await_drained(DEADLINE);
    }
    let each = 4;
    let found = written() - before;
    operator.stop();
    // The second step of an end may be written after it is seen: of the first one, and of the last.
    assert!(found.abs_diff(each * TRANSACTIONS) <= 1, "{found}");
}
