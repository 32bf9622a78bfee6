//! Goal: the metrics of calls say exactly what has happened, each settlement once, also after a kill and an abort.

use std::time::Duration;

use crate::calls::payments::{KEYED, KEYLESS, Payments, charge, charges};
use crate::cluster::Fresh;
use crate::job::{SESSION_TIMEOUT, TRANSACTION_TIMEOUT};
use crate::load::now_ms;
use crate::operator::{Operator, Options};
use crate::provider::{Move, Plan};
use crate::until::{DEADLINE, within};

/// A restart is followed by the session timeout, the transaction timeout and a restore.
const RECOVERY: Duration = Duration::from_secs(90);
const OUTCOMES: [&str; 6] = ["done", "rejected", "conflict", "in_doubt", "unavailable", "duplicate_result"];
const CLASSES: [&str; 7] = ["done", "again", "in_progress", "hold", "conflict", "rejected", "in_doubt"];

fn outcomes(operator: &Operator) -> [usize; 6] {
    OUTCOMES.map(|outcome| {
        let labels = ["sink=\"http\"", &format!("outcome=\"{outcome}\"")];
        operator.metric("ratchet_effects_total", &labels) as usize
    })
}

fn attempts(operator: &Operator) -> [usize; 7] {
    CLASSES.map(|class| {
        let labels = ["sink=\"http\"", &format!("class=\"{class}\"")];
        operator.metric("ratchet_effect_attempts_total", &labels) as usize
    })
}

fn gauge(operator: &Operator, name: &str) -> usize {
    operator.metric(name, &[]) as usize
}

/// What the provider does with the charges that are named so.
fn script(payments: &Payments) {
    let fail = |status| Move::answer(status);
    let names_key = Plan::Bytes(br#"{"error":{"type":"idempotency_error"}}"#.to_vec());
    let scripts = [
        ("again", vec![fail(500), fail(503)]),
        ("reset", vec![Move::reset()]),
        ("busy", vec![fail(409)]),
        ("held", vec![fail(401)]),
        ("rejected", vec![fail(422)]),
        ("conflict", vec![fail(400).body(names_key)]),
        ("doubted", vec![fail(500).header("idempotent-replayed", "true")]),
        ("unavailable", vec![fail(503), fail(503), fail(503)]),
    ];
    for (id, moves) in scripts {
        payments.provider.script(&format!("/charges/{id}"), moves);
        payments.job.send([charge(0, id)]);
    }
}

#[test]
fn each_outcome_and_each_attempt_is_counted_once() {
    let retry = "retry: {first: 20ms, max: 100ms, attempts: 3}";
    let payments = Payments::new("counted", 1, &[KEYED, retry, "on_unavailable: dead_letter"]).answering_duplicates();
    let mut operator = Operator::start(&payments.job, "a");
    operator.await_ready(DEADLINE);
    assert_eq!((outcomes(&operator), attempts(&operator)), ([0; 6], [0; 7]));
    script(&payments);
    payments.job.send(charges(0, 0..10));
    let found = payments.found(DEADLINE);
    assert_eq!(outcomes(&operator), [14, 1, 1, 1, 1, 0], "{found:?}");
    assert_eq!(attempts(&operator), [14, 6, 1, 1, 1, 1, 1]);
    assert_eq!(gauge(&operator, "ratchet_effect_duration_seconds_count"), 25);
    assert_eq!((found.results(), payments.letters().len(), payments.provider.requests()), (14, 4, 25));
    // What makes no call of its own.
    let other = Fresh::new(0, "order-0-1", r#"{"id":"order-0-1","amount":43}"#).at(now_ms());
    payments.job.send(charges(0, 0..3).chain([charge(0, "rejected"), other]));
    payments.found(DEADLINE);
    assert_eq!(outcomes(&operator), [14, 1, 2, 1, 1, 4]);
    assert_eq!(attempts(&operator).iter().sum::<usize>(), 25);
    assert_eq!(gauge(&operator, "ratchet_effects_in_doubt"), 1);
    assert_eq!((gauge(&operator, "ratchet_effects_in_flight"), gauge(&operator, "ratchet_sink_held")), (0, 0));
    operator.stop();
}

#[test]
fn calls_on_the_wire_and_lanes_that_wait_are_shown() {
    const LATE: Duration = Duration::from_millis(1500);
    let payments = Payments::new("gauges", 1, &[KEYED, "timeout: 20s", "in_flight: 4"]);
    payments.provider.always(Move::receipt().late(LATE));
    payments.job.send(charges(0, 0..12));
    let mut operator = Operator::start(&payments.job, "a");
    within(DEADLINE, "calls", || (payments.provider.now() == 4).then_some(()));
    within(LATE, "four calls to be shown", || (gauge(&operator, "ratchet_effects_in_flight") == 4).then_some(()));
    payments.found(DEADLINE).assert_each_acted_once(false);
    assert_eq!(gauge(&operator, "ratchet_effects_in_flight"), 0);
    let seconds = operator.metric("ratchet_effect_duration_seconds_sum", &[]);
    assert!(seconds >= 12.0 * LATE.as_secs_f64() && seconds < 13.0 * LATE.as_secs_f64(), "{seconds} s");
    payments.provider.always(Move::answer(401));
    payments.job.send([charge(0, "waits")]);
    within(DEADLINE, "a lane that waits", || (gauge(&operator, "ratchet_sink_held") == 1).then_some(()));
    payments.provider.always(Move::receipt());
    payments.found(DEADLINE).assert_each_acted_once(false);
    assert_eq!(gauge(&operator, "ratchet_sink_held"), 0);
    operator.stop();
}

#[test]
fn heir_of_an_instance_that_was_killed_counts_what_it_settles_itself() {
    let payments = Payments::new("counted-heir", 1, &[KEYED, "in_flight: 4"]);
    payments.provider.always(Move::receipt().late(Duration::from_millis(30)));
    payments.job.send(charges(0, 0..80));
    let options = Options { crash_at: Some("after_commit:4"), ..Options::default() };
    let mut first = Operator::start_with(&payments.job, "a", &options);
    first.await_crash();
    let (settled, before) = (payments.results(), payments.provider.requests());
    assert!(settled > 0 && settled < 80, "{settled} are settled");
    let mut heir = Operator::start(&payments.job, "b");
    payments.found(RECOVERY).assert_each_acted_once(false);
    let more = payments.provider.requests() - before;
    assert_eq!(outcomes(&heir), [80 - settled, 0, 0, 0, 0, 0]);
    assert_eq!(attempts(&heir), [more, 0, 0, 0, 0, 0, 0]);
    assert!(more >= 80 - settled);
    heir.stop();
}

#[test]
fn what_an_aborted_transaction_has_settled_is_not_counted_twice() {
    for lines in [[KEYED, "in_flight: 4"], [KEYLESS, "in_flight: 4"]] {
        let payments = Payments::new("counted-abort", 1, &lines);
        payments.provider.always(Move::receipt().late(Duration::from_millis(30)));
        payments.job.send(charges(0, 0..60));
        let options = Options { crash_at: Some("after_sends:3:freeze"), ..Options::default() };
        let mut operator = Operator::start_with(&payments.job, "a", &options);
        operator.await_frozen();
        // Its transaction is aborted meanwhile.
        std::thread::sleep(SESSION_TIMEOUT.max(TRANSACTION_TIMEOUT) + Duration::from_secs(2));
        operator.thaw();
        let found = payments.found(RECOVERY);
        let undone = operator.metric("ratchet_transactions_total", &["aborted"])
            + operator.metric("ratchet_transactions_total", &["unknown"]);
        assert!(undone > 0.0, "no transaction was undone");
        let [done, .., in_doubt, _, _] = outcomes(&operator);
        assert_eq!((done, in_doubt), (found.results(), found.letters("in_doubt")));
        assert_eq!(done + in_doubt, 60);
        assert_eq!(gauge(&operator, "ratchet_effects_in_doubt"), in_doubt);
        assert_eq!(gauge(&operator, "ratchet_effects_in_flight"), 0);
        operator.stop();
    }
}
