//! Goal: what was settled is not asked for again: not in other words, and not because a group is reset.

use crate::calls::payments::{KEYED, Payments, charge, charges};
use crate::cluster::Fresh;
use crate::load::now_ms;
use crate::operator::Operator;
use crate::until::{DEADLINE, within};

#[test]
fn other_request_under_a_key_is_a_conflict() {
    let payments = Payments::new("conflict", 1, &[KEYED]);
    let other = Fresh::new(0, "order-0-1", r#"{"id":"order-0-1","amount":43}"#).at(now_ms());
    payments.job.send([charge(0, "order-0-1"), other, charge(0, "order-0-1")]);
    let mut operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert_eq!((found.results(), found.letters("conflict"), payments.provider.requests()), (1, 1, 1), "{found:?}");
    operator.stop();
}

#[test]
fn group_that_is_reset_calls_for_nothing_twice() {
    let payments = Payments::new("reset", 2, &[KEYED]);
    (0..2).for_each(|partition| payments.job.send(charges(partition, 0..150).chain(charges(partition, 0..20))));
    let mut operator = Operator::start(&payments.job, "a");
    payments.found(DEADLINE).assert_each_acted_once(false);
    operator.stop();
    for is_wiped in [false, true] {
        if is_wiped {
            operator.kill_and_wipe();
        }
        // The provider has forgotten all of them: whatever is sent again acts again.
        payments.provider.forget_keys();
        for (partition, offset) in [(0, 0), (1, 70)] {
            payments.job.kafka.group(&payments.job.group()).set(&payments.job.input, partition, offset, "");
        }
        operator = Operator::start(&payments.job, "a");
        payments.job.send([charge(0, "order-0-3"), charge(1, &format!("new-{is_wiped}"))]);
        within(DEADLINE, "the new one", || {
            (payments.provider.acts_by_target().contains_key(&format!("/charges/new-{is_wiped}"))).then_some(())
        });
        payments.found(DEADLINE).assert_each_acted_once(false);
        operator.stop();
    }
    assert_eq!(payments.provider.requests(), 302);
}
