//! Topologies that call a provider: what becomes of a record, its call and its result, as `ratchet test` shows it. Goal:
//! each row of the pattern (reserve, act, complete) holds, and a test that expects something else fails.
//!
//! Owners that die are the matter of the models and the simulation; what a new one finds is given to the state machine
//! here.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ratchet::dedup::Reader;
use ratchet::effect::call::{self, Action, CoveringGrant, FoundCall, Key, KeyParts, Now, Outcome, Permit};
use ratchet::record::{Headers, Record};
use ratchet::rehearsal::run_case;
use ratchet::rendering::request::Requester;
use ratchet::topology::Topology;

use crate::task::load;

const KEY: &str = "idempotency_key: {header: Idempotency-Key, honoured_for: 24h}";
const DAY_MS: i64 = 86_400_000;

/// A topology with these lines in its sink, and this test.
fn calling(sink: &str, test: &str) -> Topology {
    let text = format!(
        "name: t\nidentity: value.id\npartitioned_by_identity: true\nretention: forever\n\
         sink: {{http: {{url: 'https://api.example.com/charges/{{value.id}}', {sink}}}}}\n\
         tests:\n- name: it\n{test}"
    );
    // `on_duplicate` is a key of the top level.
    let text = if sink.contains("result:") { format!("on_duplicate: result\n{text}") } else { text };
    load(&text).unwrap_or_else(|diagnostics| panic!("{text}\n{}", diagnostics.render(false))).topology
}

/// What is different from what the test expects.
fn differences(sink: &str, test: &str) -> Vec<String> {
    let topology = calling(sink, test);
    let outcome = run_case(&topology, Path::new("."), &topology.tests[0]).expect("the records are given");
    outcome.differences.iter().map(ToString::to_string).collect()
}

#[track_caller]
fn holds(sink: &str, test: &str) {
    assert_eq!(differences(sink, test), Vec::<String>::new(), "{sink}\n{test}");
}

const TWICE: &str = "  given: [{value: {id: 1}}, {value: {id: 1}}]\n";

fn now(wall_ms: i64) -> Now {
    Now { wall_ms, monotonic: Duration::ZERO }
}

#[test]
fn reserve_then_complete() {
    let test = format!(
        "{TWICE}  answers: [201]\n  expect: [{{verdict: forwarded, calls: 1}}, {{verdict: duplicate, calls: 0}}]\n"
    );
    holds(KEY, &test);
    holds("on_in_doubt: dead_letter", &test);
    // Without a key, and where it is asked for, nothing is sent before a reservation is committed.
    for sink in ["on_in_doubt: dead_letter", &format!("{KEY}, reserve: always")] {
        let policy = calling(sink, &test).calls().unwrap().policy.clone();
        let granted = CoveringGrant { since_ms: 0, is_from_former_owner: false };
        assert_eq!(call::begin(&policy, Some(granted), now(0)).1, Action::Write(Permit::Reservation), "{sink}");
    }
    let policy = calling(KEY, &test).calls().unwrap().policy.clone();
    let granted = CoveringGrant { since_ms: 0, is_from_former_owner: false };
    assert_eq!(call::begin(&policy, Some(granted), now(0)).1, Action::SendAt(Duration::ZERO));
    assert_eq!(call::begin(&policy, None, now(0)).1, Action::Write(Permit::Grant));
}

#[test]
fn reserve_then_failed() {
    let expected = "  expect: [{verdict: invalid, reason: rejected, calls: 1}, {verdict: duplicate, calls: 0}]\n";
    for sink in [KEY, "on_in_doubt: dead_letter"] {
        holds(sink, &format!("{TWICE}  answers: [402]\n{expected}"));
    }
    // A rejection says nothing about an attempt before it.
    let doubt = "  expect: [{verdict: invalid, reason: in_doubt, calls: 2}, {verdict: duplicate, calls: 0}]\n";
    holds(KEY, &format!("{TWICE}  answers: [timeout, 402]\n{doubt}"));
    holds(KEY, &format!("{TWICE}  answers: [not_sent, 402]\n{}", expected.replace("calls: 1", "calls: 2")));
    // What the provider was never asked can be sent again.
    let given = "  given: [{value: {id: []}}, {value: {id: 1}}]\n";
    holds(KEY, &format!("{given}  expect: [{{verdict: invalid, calls: 0}}, {{verdict: forwarded, calls: 1}}]\n"));
}

#[test]
fn duplicate_gets_the_result() {
    let sink = format!("{KEY}, result: {{topic: done}}");
    let expect = "  expect: [forwarded, duplicate]\n  answers: [{status: 201, body: '{\"n\":1}'}]\n";
    let results =
        "  results: [{record: 0, status: 201, body: '{\"n\":1}'}, {record: 1, status: 201, body: '{\"n\":1}'}]\n";
    holds(&sink, &format!("{TWICE}{expect}{results}"));
    for wrong in [
        "  results: []\n",
        "  results: [{record: 0}]\n",
        "  results: [{record: 0}, {record: 1, status: 200}]\n",
        "  results: [{record: 1}, {record: 0}]\n",
        "  results: [{}, {body: '{\"n\":2}'}]\n",
    ] {
        let found = differences(&sink, &format!("{TWICE}{expect}{wrong}"));
        assert!(found.len() == 1 && found[0].starts_with("results\n"), "{wrong}: {found:?}");
    }
}

#[test]
fn another_request_of_the_same_is_a_conflict() {
    let given = "  given: [{value: {id: 1, amount: 1}}, {value: {id: 1, amount: 2}}, {value: {id: 1, amount: 1}}]\n";
    let expect = "  expect: [forwarded, {verdict: invalid, reason: conflict, calls: 0}, duplicate]\n";
    holds(KEY, &format!("{given}{expect}"));
    // What is no part of the request makes none.
    holds(
        &format!("{KEY}, body: {{json: {{id: value.id}}}}"),
        &format!("{given}  expect: [forwarded, duplicate, duplicate]\n"),
    );
    // The provider may know better.
    let expect = "  answers: [{status: 422, body: '{\"type\":\"idempotency_error\"}'}]\n  \
                  expect: [{verdict: invalid, reason: conflict, calls: 1}, duplicate]\n";
    holds(KEY, &format!("{TWICE}{expect}"));
}

#[test]
fn stuck_reservation_is_resolved() {
    let test = format!("{TWICE}  expect: [forwarded, duplicate]\n");
    let resumed = |sink: &str, after_ms: i64| {
        let policy = calling(sink, &test).calls().unwrap().policy.clone();
        call::resume(&policy, FoundCall { first_attempt_at_ms: 0, attempts: 1, may_have_acted: true }, now(after_ms)).1
    };
    let (again, doubt) = (Action::SendAt(Duration::ZERO), Action::Settle(Outcome::InDoubt));
    // Within the key's window it goes on, beyond it nobody knows.
    assert_eq!(resumed(KEY, DAY_MS - 40_001), again);
    assert_eq!(resumed(KEY, DAY_MS - 40_000), doubt);
    assert_eq!(resumed(&format!("{KEY}, on_in_doubt: retry"), DAY_MS), Action::Write(Permit::Reservation));
    // Without one, the topology says at once.
    assert_eq!(resumed("on_in_doubt: dead_letter", 0), doubt);
    assert_eq!(resumed("on_in_doubt: retry", 0), again);

    // A call that was given up goes on with its duplicate, if it may have happened; otherwise it begins anew.
    let sink = format!("{KEY}, on_unavailable: dead_letter, retry: {{attempts: 2}}");
    let expect = |second: &str| {
        format!("  expect: [{{verdict: invalid, reason: unavailable, calls: 2}}, {{{second}, calls: 1, key: same}}]\n")
    };
    let [given_up, forgotten] =
        ["reason: seen", "reason: first"].map(|reason| expect(&format!("verdict: forwarded, {reason}")));
    holds(&sink, &format!("{TWICE}  answers: [timeout, 503, 201]\n{given_up}"));
    holds(&sink, &format!("{TWICE}  answers: [not_sent, 429, 201]\n{forgotten}"));
}

#[test]
fn call_in_doubt_is_what_the_topology_says() {
    let without = "  answers: [timeout]\n";
    let doubt = "{verdict: invalid, reason: in_doubt, calls: 1}";
    holds(
        "on_in_doubt: dead_letter",
        &format!("{TWICE}{without}  expect: [{doubt}, {{verdict: duplicate, calls: 0}}]\n"),
    );
    holds(
        "on_in_doubt: retry",
        &format!("{TWICE}{without}  expect: [{{verdict: forwarded, calls: 2, key: none}}, duplicate]\n"),
    );
    // The task stops before the record.
    let found = differences("on_in_doubt: fail", &format!("{TWICE}{without}  expect: [{doubt}, duplicate]\n"));
    assert!(
        found.len() == 1 && found[0].contains("record 1: expected duplicate, but the task had stopped"),
        "{found:?}"
    );
    // Once the window of the key has passed, the provider would take it for another one.
    let short = "idempotency_key: {header: K, honoured_for: 2m, margin: 1s}, timeout: 30s, retry: {attempts: 100}";
    let timeouts = "  answers: [timeout, timeout, timeout, timeout, timeout]\n";
    holds(
        short,
        &format!(
            "{TWICE}{timeouts}  expect: [{{verdict: invalid, reason: in_doubt, calls: 3, key: same}}, duplicate]\n"
        ),
    );
}

#[test]
fn retry_with_exponential_backoff() {
    let sink = format!("{KEY}, retry: {{first: 1s, factor: 3, max: 10s, jitter: none, attempts: 5}}");
    let test =
        |answers: &str, expect: &str| format!("{TWICE}  answers: [{answers}]\n  expect: [{expect}, duplicate]\n");
    holds(&sink, &test("500, timeout, lost, 429, 201", "{verdict: forwarded, calls: 5, key: same}"));
    let retry = calling(&sink, &test("200", "forwarded")).calls().unwrap().policy.retry;
    let waits: Vec<u64> = (1..=4).map(|attempt| retry.ceiling(attempt).as_secs()).collect();
    assert_eq!(waits, [1, 3, 9, 10]);
    // A provider that is down is waited for, whatever the number of attempts; one that is not is no reason to wait.
    holds(&sink, &test("500, 500, 500, 500, 500, 500, 500, 201", "{verdict: forwarded, calls: 8, key: same}"));
    holds(&sink, &test("401, 401, 201", "{verdict: forwarded, calls: 3}"));
    let given_up = "{verdict: invalid, reason: unavailable, calls: 5}";
    let found = differences(
        &format!("{sink}, on_unavailable: dead_letter"),
        &test("500, 500, 500, 500, 500, 500, 201", given_up).replace("duplicate]", "{verdict: forwarded, calls: 2}]"),
    );
    assert_eq!(found, Vec::<String>::new());
    // The provider says when: the key's window passes meanwhile.
    let short = "idempotency_key: {header: K, honoured_for: 2m, margin: 1s}, timeout: 1s";
    holds(
        short,
        &test("{status: 503, headers: {Retry-After: 119}}, 201", "{verdict: invalid, reason: in_doubt, calls: 1}"),
    );
    holds(short, &test("{status: 503, headers: {Retry-After: 110}}, 201", "{verdict: forwarded, calls: 2}"));
}

#[test]
fn effect_carries_the_providers_key() {
    let expect = "  answers: [500, 201]\n  expect: [{verdict: forwarded, calls: 2, key: same}, duplicate]\n";
    holds(KEY, &format!("{TWICE}{expect}"));
    for (sink, wrong) in [(KEY, "none"), ("on_in_doubt: retry", "same")] {
        let found = differences(sink, &format!("{TWICE}{}", expect.replace("same", wrong)));
        assert!(found.len() == 1 && found[0].contains("expected 2 calls, key"), "{found:?}");
    }
    let found = differences(KEY, &format!("{TWICE}{}", expect.replace("calls: 2", "calls: 3")));
    assert!(found[0].contains("POST https://api.example.com/charges/1"), "{found:?}");

    let topology = calling(KEY, &format!("{TWICE}{expect}"));
    let (mut arena, value) = (Vec::new(), br#"{"id": 1}"#);
    let record = |offset| Record {
        topic: "in",
        partition: 0,
        offset,
        timestamp: Some(offset),
        key: None,
        value: Some(value),
        headers: Headers::default(),
    };
    let reading = Reader::new(Arc::clone(&topology.rules)).read(&record(0), &mut arena);
    let row = &reading.rows()[0];
    let identity = &arena[row.key.clone()];
    let expected = Key::of(KeyParts { topology: "t", identity, epoch: None, version: None, step: None });
    let mut requester = Requester::new(&topology).unwrap();
    for offset in [0, 9] {
        let request = requester.render(&record(offset), reading.rows(), &arena).unwrap();
        assert_eq!(request.key, Some(expected), "not of its place");
    }
}

#[test]
fn names_of_answers_change_what_becomes_of_a_call() {
    let sink = format!("{KEY}, answers: {{404: done, 5xx: rejected, 418: again}}");
    let test =
        |answers: &str, expect: &str| format!("{TWICE}  answers: [{answers}]\n  expect: [{expect}, duplicate]\n");
    holds(&sink, &test("404", "{verdict: forwarded, calls: 1}"));
    holds(&sink, &test("418, 201", "{verdict: forwarded, calls: 2}"));
    // A 500 may have acted, whatever it is named.
    holds(&sink, &test("500", "{verdict: invalid, reason: rejected, calls: 1}"));
    // Replayed, it is the first attempt's, and nobody knows what that has done.
    let replayed = "{status: 500, headers: {Idempotent-Replayed: true}}";
    holds(KEY, &test(replayed, "{verdict: invalid, reason: in_doubt, calls: 1}"));
}

#[test]
fn tombstones_and_records_without_a_version_make_no_call() {
    let text = format!(
        "name: t\nidentity: key\nversion: {{of: value.v, as: integer}}\nkinds: {{of: value.op, delete: [d]}}\n\
         on_null_value: follow_delete\nsink: {{http: {{url: 'https://api.example.com/charges', {KEY}}}}}\n\
         tests:\n- name: it\n  given: [{{key: k, value: {{v: 1}}}}, {{key: k, value: {{v: 2, op: d}}}}, {{key: k}}, {{key: k, value: {{}}}}]\n  \
         expect: [{{verdict: forwarded, calls: 1}}, {{verdict: forwarded, calls: 1}}, {{verdict: forwarded, calls: 0}}, \
         {{verdict: invalid, reason: version_missing, calls: 0}}]\n"
    );
    let topology = load(&text).unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false))).topology;
    let outcome = run_case(&topology, Path::new("."), &topology.tests[0]).unwrap();
    let found: Vec<_> = outcome.differences.iter().map(ToString::to_string).collect();
    assert_eq!(found, Vec::<String>::new());
}
