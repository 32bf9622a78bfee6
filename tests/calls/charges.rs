//! Goal: a record is reserved, acted upon and settled; a duplicate gets what the first one got, whatever that was.

use crate::cluster::Fresh;
use crate::load::now_ms;
use crate::operator::Operator;
use crate::payments::{End, KEYED, Payments, charge, charges};
use crate::provider::{Move, Plan};
use crate::until::{DEADLINE, within};

#[test]
fn reserve_then_complete() {
    for lines in [&[KEYED][..], &[KEYED, "reserve: always"], &["on_in_doubt: dead_letter"]] {
        let payments = Payments::new("complete", 2, lines);
        // Each twice, side by side and far apart.
        for partition in 0..2 {
            let twice = charges(partition, 0..100).flat_map(|charge| [charge.clone(), charge]);
            payments.job.send(twice.chain(charges(partition, 0..50)));
        }
        let mut operator = Operator::start(&payments.job, "a");
        let found = payments.found(DEADLINE);
        found.assert_each_acted_once(false);
        assert_eq!((found.acts.len(), found.results(), payments.provider.requests()), (200, 200, 200));
        operator.stop();
        let keys: Vec<_> = payments.provider.seen().into_iter().filter_map(|seen| seen.key).collect();
        let is_key = |key: &String| key.len() == 64 && key.bytes().all(|byte| byte.is_ascii_hexdigit());
        assert!(keys.iter().all(is_key), "{keys:?}");
        assert_eq!(keys.len(), if lines[0] == KEYED { 200 } else { 0 });
    }
}

#[test]
fn duplicate_gets_the_result_of_the_first() {
    let payments = Payments::new("answered", 1, &[KEYED]).answering_duplicates();
    let thrice = (0..20).flat_map(|id| std::iter::repeat_n(charge(0, &format!("order-0-{id}")), 3));
    payments.job.send(thrice);
    let mut operator = Operator::start(&payments.job, "a");
    payments.found(DEADLINE).assert_each_acted_once(true);
    payments.provider.script("/charges/failed", [Move::answer(422)]);
    payments.job.send([charge(0, "failed"), charge(0, "failed")]);
    payments.found(DEADLINE);
    // Another owner, from the changelog alone.
    operator.kill_and_wipe();
    let mut operator = Operator::start(&payments.job, "b");
    payments.job.send(charges(0, 0..20).chain([charge(0, "failed")]));
    let mut found = payments.found(DEADLINE);
    let places = found.records.remove("failed").expect("it was sent");
    let ends: Vec<&[End]> = places.iter().map(|place| found.ends[place].as_slice()).collect();
    assert!(matches!(ends[0], [End::Letter { reason, .. }] if reason == "rejected"), "{ends:?}");
    for end in &ends[1..] {
        let [End::Result { status: None, verdict, is_repeated: true, .. }] = end else { panic!("{ends:?}") };
        assert_eq!(verdict, "rejected");
    }
    assert_eq!(ends.len(), 3);
    found.assert_each_acted_once(true);
    assert_eq!(payments.provider.requests(), 21);
    operator.stop();
}

#[test]
fn reserve_then_failed() {
    let payments = Payments::new("failed", 1, &[KEYED]);
    let refusal = || Move::answer(422).body(Plan::Bytes(b"{\"error\":\"no such card\"}".to_vec()));
    payments.provider.script("/charges/order-0-3", [refusal(), Move::receipt()]);
    payments.job.send(charges(0, 0..6));
    let mut operator = Operator::start(&payments.job, "a");
    payments.found(DEADLINE);
    payments.job.send([charge(0, "order-0-3")]);
    payments.found(DEADLINE);
    // It is remembered beyond the instance.
    operator.kill_and_wipe();
    let mut operator = Operator::start(&payments.job, "b");
    payments.job.send([charge(0, "order-0-3"), charge(0, "order-0-4")]);
    let found = payments.found(DEADLINE);
    let [End::Letter { reason, status, attempts, key }] = found.first("order-0-3") else { panic!("{found:?}") };
    assert_eq!((reason.as_str(), *status, *attempts), ("rejected", Some(422), Some(1)));
    let sent: Vec<_> =
        payments.provider.seen().into_iter().filter(|seen| seen.target == "/charges/order-0-3").collect();
    assert_eq!(sent.len(), 1, "its duplicate has called");
    assert_eq!(*key, sent[0].key);
    assert_eq!((found.results(), found.letters("rejected"), found.acts.len()), (5, 1, 5));
    operator.stop();
}

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
