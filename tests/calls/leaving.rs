//! Goal: an instance that leaves waits for its calls, and gives back what it has not sent: nothing is in doubt, even
//! where there is no key.

use std::time::Duration;

use crate::operator::Operator;
use crate::payments::{KEYLESS, Payments, charges};
use crate::provider::Move;
use crate::until::{DEADLINE, within};

/// A job that has eight calls on the wire and many more reserved.
fn under_way(theme: &str) -> (Payments, Operator) {
    let payments = Payments::new(theme, 2, &[KEYLESS, "in_flight: 8"]);
    payments.provider.always(Move::receipt().late(Duration::from_millis(900)));
    (0..2).for_each(|partition| payments.job.send(charges(partition, 0..60)));
    let operator = Operator::start(&payments.job, "a");
    within(DEADLINE, "calls on the wire", || (payments.provider.now() == 8).then_some(()));
    (payments, operator)
}

#[test]
fn instance_that_stops_waits_for_its_calls_and_gives_back_the_others() {
    let (payments, mut first) = under_way("stops");
    first.stop();
    let sent = payments.provider.requests();
    assert_eq!(payments.provider.now(), 0);
    assert!(sent < 120, "all were sent: {sent}");
    assert_eq!((payments.results(), payments.letters().len()), (sent, 0), "what was answered is settled");
    payments.provider.always(Move::receipt());
    let mut heir = Operator::start(&payments.job, "b");
    let found = payments.found(DEADLINE);
    found.assert_each_acted_once(false);
    assert_eq!(payments.provider.requests(), 120);
    heir.stop();
}

#[test]
fn instance_that_loses_a_partition_waits_for_its_calls_and_gives_back_the_others() {
    let (payments, mut first) = under_way("rebalanced");
    let mut second = Operator::start(&payments.job, "b");
    within(DEADLINE, "each to have a partition", || {
        (first.partitions().len() == 1 && second.partitions().len() == 1).then_some(())
    });
    payments.provider.always(Move::receipt().late(Duration::from_millis(50)));
    let found = payments.found(DEADLINE);
    found.assert_each_acted_once(false);
    assert_eq!(payments.provider.requests(), 120);
    first.stop();
    second.stop();
}

#[test]
fn partitions_move_to_and_fro_and_nothing_is_in_doubt() {
    let payments = Payments::new("moves", 4, &[KEYLESS, "in_flight: 16"]);
    payments.provider.always(Move::receipt().late(Duration::from_millis(100)));
    (0..4).for_each(|partition| payments.job.send(charges(partition, 0..400)));
    let mut stays = Operator::start(&payments.job, "a");
    for _ in 0..3 {
        let mut comes = Operator::start(&payments.job, "b");
        within(DEADLINE, "both to have some", || {
            (comes.partitions().len() == 2 && stays.partitions().len() == 2).then_some(())
        });
        comes.stop();
    }
    payments.found(DEADLINE).assert_each_acted_once(false);
    stays.stop();
}
