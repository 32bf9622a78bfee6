//! Goal: an instance that dies between a call and its completion does not charge twice.

use std::time::Duration;

use crate::calls::payments::{End, Found, KEYED, KEYLESS, KEYLESS_RETRY, Payments, charge, charges};
use crate::operator::{Operator, Options};
use crate::provider::Move;
use crate::until::within;

/// A kill is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(90);

/// Where it dies: everything is decided by then, or nothing, or some of it.
const POINTS: [&str; 6] =
    ["after_reservation:1", "before_submit:11", "after_answer:15", "after_answer:1", "after_commit:3", "after_sends:4"];

/// All of them, or the first few.
fn points() -> &'static [&'static str] {
    if crate::calls::is_long() { &POINTS } else { &POINTS[..3] }
}

/// An instance dies at a point, with its folder, and another one goes on.
fn at(point: &str, lines: &[&str]) -> Found {
    let payments = Payments::new("crash", 2, lines);
    payments.provider.always(Move::receipt().late(Duration::from_millis(20)));
    for partition in 0..2 {
        payments.job.send(charges(partition, 0..40).chain(charges(partition, 0..10)));
    }
    let options = Options { crash_at: Some(point), ..Options::default() };
    let mut first = Operator::start_with(&payments.job, "a", &options);
    first.await_crash();
    first.kill_and_wipe();
    let mut heir = Operator::start(&payments.job, "b");
    // Duplicates from elsewhere.
    (0..2).for_each(|partition| payments.job.send(charges(partition, 0..45)));
    let found = payments.found(RECOVERY);
    heir.stop();
    println!("{point}: {} results, {} in doubt", found.results(), found.letters("in_doubt"));
    found
}

/// Each identity has one end.
fn assert_ended(found: &Found) {
    for (id, places) in &found.records {
        let ends: Vec<&End> = places.iter().flat_map(|place| found.ends.get(place).into_iter().flatten()).collect();
        assert_eq!(ends.len(), 1, "{id} at {places:?}: {ends:?}");
    }
}

#[test]
fn crash_between_call_and_completion_charges_once() {
    for point in points() {
        at(point, &[KEYED]).assert_each_acted_once(false);
    }
}

#[test]
fn crash_between_call_and_completion_charges_once_if_all_is_reserved() {
    for point in points() {
        at(point, &[KEYED, "reserve: always"]).assert_each_acted_once(false);
    }
}

#[test]
fn crash_without_a_key_charges_at_most_once() {
    for point in points() {
        let found = at(point, &[KEYLESS]);
        assert_ended(&found);
        for id in found.records.keys() {
            let acts = found.acts.get(id).copied().unwrap_or_default();
            match found.first(id) {
                [End::Result { .. }] => assert_eq!(acts, 1, "{id}"),
                [End::Letter { reason, .. }] => assert!(acts <= 1 && reason == "in_doubt", "{id}: {acts}, {reason}"),
                ends => panic!("{id}: {ends:?}"),
            }
        }
        let doubted = found.letters("in_doubt");
        // What was reserved may have been sent, for all that its heir knows.
        assert!(doubted > 0 || point.starts_with("after_commit") || point.starts_with("after_sends"), "{point}");
        assert!(found.results() > 0, "{point}: all is in doubt");
    }
}

#[test]
fn crash_without_a_key_charges_at_least_once_where_that_is_wanted() {
    for point in points() {
        let found = at(point, &[KEYLESS_RETRY]);
        assert_ended(&found);
        assert_eq!(found.results(), found.records.len(), "{found:?}");
        assert!(found.records.keys().all(|id| found.acts[id] >= 1));
        let repeated = found.acts.values().filter(|acts| **acts > 1).count();
        assert!(repeated > 0 || !point.starts_with("after_answer"), "{point}: nothing was made again");
    }
}

/// Dies with one call on the wire, and then has only a duplicate of its record to go by.
pub fn stuck(lines: &[&str], is_deleted: bool) -> (Payments, Found) {
    let payments = Payments::new("stuck", 1, lines);
    payments.provider.next([Move::receipt().late(Duration::from_secs(30))]);
    payments.job.send([charge(0, "stuck")]);
    let mut first = Operator::start(&payments.job, "a");
    within(RECOVERY, "the call to be on the wire", || (payments.provider.now() == 1).then_some(()));
    first.kill_and_wipe();
    if is_deleted {
        // What is lost unread has to be accepted by somebody.
        payments.job.kafka.delete_records(&payments.job.input, 0, 1);
        payments.job.kafka.group(&payments.job.group()).set(&payments.job.input, 0, 1, "");
    }
    payments.job.send([charge(0, "stuck"), charge(0, "other")]);
    let mut heir = Operator::start(&payments.job, "b");
    let found = payments.found(RECOVERY);
    heir.stop();
    (payments, found)
}

#[test]
fn stuck_reservation_without_a_key_is_in_doubt() {
    for is_deleted in [false, true] {
        let (payments, found) = stuck(&[KEYLESS], is_deleted);
        assert_eq!((found.letters("in_doubt"), found.results()), (1, 1), "{found:?}");
        assert!(matches!(found.first("stuck"), [End::Letter { .. }]), "{found:?}");
        assert_eq!(payments.provider.requests(), 2);
    }
}
