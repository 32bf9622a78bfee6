//! Goal: an instance that leaves waits for its calls, and gives back what it has not sent: nothing is in doubt, even
//! where there is no key.

use std::time::Duration;

use crate::calls::payments::{KEYED, KEYLESS, Payments, charges};
use crate::operator::Operator;
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

/// Without reservations the position record says where calls may have gone. After a stop, and after a partition has
/// moved, none have gone where nobody has read: a new charge that is refused is rejected, and not in doubt.
#[test]
fn what_is_new_to_an_heir_is_rejected_and_not_in_doubt() {
    let payments = Payments::new("news", 2, &[KEYED]);
    let send = |ids: std::ops::Range<usize>| {
        (0..2).for_each(|partition| payments.job.send(charges(partition, ids.clone())));
    };
    send(0..300);
    let mut first = Operator::start(&payments.job, "a");
    payments.found(DEADLINE).assert_each_acted_once(false);
    first.stop();
    payments.provider.always(Move::answer(422));
    send(300..310);
    let mut heir = Operator::start(&payments.job, "b");
    let letters = |many: usize| {
        let found = payments.found(DEADLINE);
        assert_eq!((found.letters("rejected"), found.letters("in_doubt")), (many, 0), "{found:?}");
    };
    letters(20);
    let mut second = Operator::start(&payments.job, "c");
    within(DEADLINE, "each to have a partition", || {
        (heir.partitions().len() == 1 && second.partitions().len() == 1).then_some(())
    });
    send(310..320);
    letters(40);
    heir.stop();
    second.stop();
}

/// An heir of a dead instance doubts what may have been called, and that is no more than a few batches.
#[test]
fn little_is_in_doubt_after_a_kill() {
    let payments = Payments::new("little", 1, &[KEYED, "timeout: 60s"]);
    payments.job.send(charges(0, 0..50));
    let mut first = Operator::start(&payments.job, "a");
    payments.found(DEADLINE).assert_each_acted_once(false);
    for id in 50..60 {
        payments.job.send(charges(0, id..id + 1));
        within(DEADLINE, "its result", || (payments.results() == id + 1).then_some(()));
    }
    first.kill();
    payments.provider.always(Move::answer(422));
    payments.job.send(charges(0, 60..200));
    let mut heir = Operator::start(&payments.job, "b");
    let found = payments.found(DEADLINE);
    let (rejected, doubted) = (found.letters("rejected"), found.letters("in_doubt"));
    assert_eq!((rejected + doubted, found.results()), (140, 60), "{found:?}");
    // A grant reaches twice as far ahead as was read within two transactions: here up to the 150th at most.
    assert!(doubted <= 90, "{doubted} of 140 new ones are in doubt");
    heir.stop();
}
