//! Goal: each row of the idempotent receiver's pattern, with a real Kafka and a real provider, by its name. What more there
//! is to each of them, in the other modules.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ratchet::format::hex;
use sha2::{Digest as _, Sha256};

use crate::calls::crashes::stuck;
use crate::calls::payments::{End, KEYED, Payments, charge, charges};
use crate::calls::waits::{LATE, ms, waits};
use crate::operator::Operator;
use crate::provider::{Move, Options, Plan, Provider};
use crate::until::{DEADLINE, within};

/// Reserve, act, complete: each record is called for once, and its duplicates for nothing.
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

/// Reserve, act, failed: what the provider will not do is set aside, remembered as failed, and not asked for again.
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

/// A cached result for a duplicate: it gets what the first one got, from another owner too, that it has failed as well.
#[test]
fn duplicate_gets_the_cached_result() {
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

/// Stuck processing is resolved: what an owner had reserved, or sent, when it died is taken up by its heir, by the record
/// itself or a duplicate of it, and acts once.
#[test]
fn stuck_processing_is_resolved() {
    for lines in [&[KEYED][..], &[KEYED, "reserve: always"]] {
        for is_deleted in [false, true] {
            let (_, found) = stuck(lines, is_deleted);
            found.assert_each_acted_once(false);
        }
    }
}

/// Retry with exponential back-off: the provider sees attempts after waits that double up to the longest, whole or drawn
/// at random below that.
#[test]
fn retry_with_exponential_backoff() {
    let failures = |count| std::iter::repeat_with(|| Move::answer(503)).take(count).collect::<Vec<_>>();
    let ceilings = [200, 400, 800, 1000, 1000].map(ms);
    let exact = waits("retry: {first: 200ms, factor: 2, max: 1s, jitter: none}", failures(5));
    println!("without jitter: {exact:?}");
    assert_eq!(exact.len(), 5);
    for (wait, ceiling) in exact.iter().zip(ceilings) {
        assert!(*wait >= ceiling && *wait < ceiling + LATE, "{exact:?}");
    }
    let drawn = waits("retry: {first: 200ms, factor: 2, max: 1s, jitter: full}", failures(5));
    println!("with jitter: {drawn:?}");
    assert_eq!(drawn.len(), 5);
    for (wait, ceiling) in drawn.iter().zip(ceilings) {
        assert!(*wait < ceiling + LATE, "{drawn:?}");
    }
    assert!(drawn.iter().sum::<Duration>() < exact.iter().sum::<Duration>() + LATE, "nothing is drawn: {drawn:?}");
}

/// An external effect with the provider's key: under the header that the topology names, made of topology and identity
/// alone, the same for each attempt, each owner and each duplicate. So the provider does it once.
#[test]
fn effect_carries_the_providers_key() {
    let header = "X-Request-Key";
    let provider = Provider::with(Options { key_header: header.to_ascii_lowercase(), ..Options::default() });
    let key = format!("idempotency_key: {{header: {header}, honoured_for: 24h}}");
    let payments = Payments::at(provider, "keyed", 2, &[&key]);
    // Acted upon and not answered, lost, and failed: each order is asked for thrice and more.
    for (partition, id) in (0..2).flat_map(|partition| (0..20).map(move |id| (partition, id))) {
        let moves = [Move::receipt().unheard(), Move::reset(), Move::answer(503)];
        payments.provider.script(&format!("/charges/order-{partition}-{id}"), moves);
    }
    (0..2).for_each(|partition| payments.job.send(charges(partition, 0..20)));
    let mut first = Operator::start(&payments.job, "a");
    within(DEADLINE, "some answers", || (payments.provider.requests() > 60).then_some(()));
    first.kill_and_wipe();
    let mut heir = Operator::start(&payments.job, "b");
    (0..2).for_each(|partition| payments.job.send(charges(partition, 0..20)));
    payments.found(DEADLINE).assert_each_acted_once(false);
    heir.stop();
    let mut keys: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for seen in payments.provider.seen() {
        assert_eq!(seen.header(&header.to_ascii_lowercase()).len(), 1, "{seen:?}");
        keys.entry(seen.target.clone()).or_default().extend(seen.key);
    }
    assert_eq!(keys.len(), 40);
    assert!(keys.values().all(|of_order| of_order.len() == 1), "an order was asked for under two keys: {keys:?}");
    // As docs/sinks/http.md says, from the name and what the changelog knows the identity by.
    let of_changelog: BTreeSet<String> =
        payments.identities().iter().map(|id| key_of(&payments.job.name, id)).collect();
    assert_eq!(keys.into_values().flatten().collect::<BTreeSet<_>>(), of_changelog);
}

/// The key of a call without epoch, version and step.
fn key_of(topology: &str, identity: &[u8]) -> String {
    let mut hashed = b"ratchet idempotency key 1".to_vec();
    for part in [topology.as_bytes(), identity] {
        hashed.extend((part.len() as u64).to_be_bytes());
        hashed.extend(part);
    }
    hashed.extend([0; 3]);
    hex(&Sha256::digest(&hashed))
}
