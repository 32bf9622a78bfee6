//! Goal: a result or a dead letter that Kafka refuses costs neither calls nor the records beside it.

use crate::calls::payments::{End, KEYED, KEYLESS, Payments, charge, charges};
use crate::cluster::Stored;
use crate::operator::Operator;
use crate::provider::{Move, Plan};
use crate::random::Random;
use crate::until::{DEADLINE, within};

/// A text that does not become much shorter when it is compressed.
fn noise(bytes: usize) -> String {
    let mut random = Random::seeded("noise");
    (0..bytes).map(|_| char::from(b'a' + random.below(26) as u8)).collect()
}

/// A body that its topic refuses, though it is compressed.
fn large() -> Move {
    Move::act().body(Plan::Bytes(noise(20_000).into_bytes()))
}

fn result_of<'a>(results: &'a [Stored], id: &str) -> &'a Stored {
    results.iter().find(|result| result.key.as_deref() == Some(id.as_bytes())).expect("a result")
}

/// Without a key, so that a call that was lost would be in doubt.
#[test]
fn result_that_its_topic_refuses_is_written_without_its_body() {
    let payments = Payments::taking("refused", &[KEYLESS], ("max.message.bytes", "8000"));
    for id in [7, 23, 24] {
        payments.provider.script(&format!("/charges/order-0-{id}"), [large()]);
    }
    payments.job.send(charges(0, 0..40));
    let mut operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert_eq!((found.results(), payments.provider.requests()), (40, 40), "{found:?}");
    let results = payments.job.output();
    for id in 0..40 {
        let result = result_of(&results, &format!("order-0-{id}"));
        let header = |name: &str| result.header(&format!("__ratchet.result.{name}"));
        let is_refused = [7, 23, 24].contains(&id);
        assert_eq!((result.value.is_none(), header("unsent").is_some()), (is_refused, is_refused), "{id}: {result:?}");
        assert_eq!(header("status").as_deref(), Some("201"));
        assert_eq!(header("bytes").as_deref(), is_refused.then_some("20000"), "{id}");
    }
    operator.assert_running();
    operator.stop();
}

/// What a duplicate is answered with is refused as well.
#[test]
fn result_that_is_refused_to_a_duplicate_is_written_without_its_body() {
    let payments = Payments::taking("again", &[KEYED], ("max.message.bytes", "8000")).answering_duplicates();
    payments.provider.script("/charges/order-0-3", [large()]);
    payments.job.send(charges(0, 0..6).chain(charges(0, 0..6)));
    let mut operator = Operator::start(&payments.job, "a");
    let found = payments.found(DEADLINE);
    assert_eq!((found.results(), payments.provider.requests()), (12, 6), "{found:?}");
    let refused =
        payments.job.output().iter().filter(|result| result.header("__ratchet.result.unsent").is_some()).count();
    assert_eq!(refused, 2);
    operator.stop();
}

/// There is no other place for a dead letter: the task stops before the record, and everything else is settled. It goes
/// on once the topic takes it, and asks again: nothing says that the provider has refused it already.
#[test]
fn letter_that_its_topic_refuses_stops_the_task() {
    let payments = Payments::new("letter", 1, &[KEYED]);
    payments.job.kafka.create(&payments.job.dead_letter(), 1, &[("max.message.bytes", "2000")]);
    payments.job.send(charges(0, 0..10));
    let refused = charge(0, "refused");
    let value = format!("{{\"id\":\"refused\",\"amount\":1,\"noise\":\"{}\"}}", noise(8_000));
    payments.job.send([crate::cluster::Fresh { value: Some(value.into_bytes()), ..refused }]);
    payments.job.send(charges(0, 10..20));
    // It is asked again after the kill, and refuses again.
    payments.provider.script("/charges/refused", std::iter::repeat_n(Move::answer(422), 20));
    let mut operator = Operator::start(&payments.job, "a");
    operator.await_error(&["in:0:10", "refuses the message", "too large"]);
    within(DEADLINE, "those before to be settled", || (payments.results() >= 10).then_some(()));
    operator.kill();
    payments.job.kafka.set_setting(&payments.job.dead_letter(), "max.message.bytes", "1000000");
    let mut operator = Operator::start(&payments.job, "b");
    let found = payments.found(DEADLINE);
    assert_eq!((found.results(), payments.letters().len()), (20, 1), "{found:?}");
    assert!(matches!(found.first("refused"), [End::Letter { .. }]), "{found:?}");
    operator.stop();
}
