//! Systems that drop what they have seen.

use ratchet::dedup::{Reason, Verdict};
use serde_json::{Value, json};

use Verdict::{Duplicate, Forwarded};

use crate::corpus::shapes;
use crate::task::{Given, Task, value};

const HOUR: i64 = 3_600_000;

fn event(id: impl Into<Value>) -> Given {
    value(json!({"id": id.into()}))
}

/// The ids that were forwarded, in order.
fn ids(task: &Task) -> Vec<Value> {
    task.values().iter().map(|value| value["id"].clone()).collect()
}

/// Kafka Streams examples, `EventDeduplicationLambdaIntegrationTest`: A B A A B C C A B gives A B C.
#[test]
fn kafka_streams_event_deduplication_each_once() {
    let mut task = Task::of("identity: value.id\n");
    task.verdicts(["A", "B", "A", "A", "B", "C", "C", "A", "B"].map(event));
    assert_eq!(ids(&task), ["A", "B", "C"]);
}

/// Kafka Streams examples: an event without an id is forwarded every time. Here `on_missing: forward` does that; by
/// default it is dead-lettered, since nothing can be said about it.
#[test]
fn kafka_streams_event_deduplication_without_an_id() {
    let mut task = Task::of("identity: value.id\non_missing: forward\n");
    assert_eq!(task.verdicts([event(Value::Null), event(Value::Null)]), [Forwarded, Forwarded]);
    let decision = Task::of("identity: value.id\n").give(event(Value::Null));
    assert_eq!((decision.verdict, decision.reason), (Verdict::Invalid, Reason::IdentityMissing));
}

/// Kafka Streams examples: a duplicate restarts the time, so that an event that keeps repeating stays dropped.
/// **Decided otherwise** by default (as KIP-655, Flink and Vector do): time counts from the forwarded record, so that
/// such an event passes once an hour; `refresh: on_duplicate` decides as Kafka Streams does.
#[test]
fn kafka_streams_event_deduplication_a_duplicate_refreshes() {
    let given = || (0..5).map(|n| event("A").at(n * 40 * 60_000));
    let mut task = Task::of("identity: value.id\nretention: 1h\nrefresh: on_duplicate\n");
    assert_eq!(task.verdicts(given()), [Forwarded, Duplicate, Duplicate, Duplicate, Duplicate]);
    let mut task = Task::of("identity: value.id\nretention: 1h\n");
    assert_eq!(task.verdicts(given()), [Forwarded, Duplicate, Forwarded, Duplicate, Forwarded]);
}

/// Confluent's tutorial "find distinct events": of clicks sent twice, three are distinct. With its own input.
#[test]
fn confluent_finding_distinct_events() {
    let clicks = shapes::lines(&crate::corpus::file("kafka-tutorials/kstreams-input-events.txt"));
    assert_eq!(clicks.len(), 6);
    let mut task = Task::of("identity: value.ip\nretention: 2m\n");
    task.verdicts(clicks.into_iter().map(|click| Given { value: Some(click), ..Given::default() }));
    let expected = shapes::lines(&crate::corpus::file("kafka-tutorials/kstreams-expected-output-events.txt"));
    let seen: Vec<_> = task.output.iter().map(|given| given.value.clone().expect("a value was given")).collect();
    assert_eq!(seen, expected);
}

/// Flink, `RowTimeDeduplicateFunctionTest` and `ProcTimeDeduplicateKeepFirstRowFunctionTest`: after the TTL a key is
/// new.
#[test]
fn flink_deduplication_after_the_ttl_a_key_is_new() {
    let mut task = Task::of("identity: value.id\nretention: 1h\n");
    let given = [event("k").at(0), event("k").at(HOUR), event("k").at(2 * HOUR), event("k").at(2 * HOUR + 1)];
    let reasons = task.reasons(given);
    assert_eq!(reasons, [Reason::First, Reason::Seen, Reason::Expired, Reason::Seen]);
}

/// Flink, row-time deduplication that keeps the first row: only an earlier time (`<`) makes a row the first. Here a
/// forwarded record cannot be taken back: an earlier row that arrives late is dropped, and so is an equal one.
#[test]
fn flink_deduplication_keep_first() {
    let mut task = Task::of("identity: value.id\n");
    assert_eq!(
        task.verdicts([event("k").at(5), event("k").at(5), event("k").at(6)]),
        [Forwarded, Duplicate, Duplicate]
    );
}

/// Flink, row-time deduplication that keeps the last row: an equal time (`<=`) replaces.
#[test]
fn flink_deduplication_keep_last() {
    let mut task = Task::of("identity: value.id\nversion: {of: meta.timestamp, as: integer}\non_equal: forward\n");
    let given = [event("k").at(5), event("k").at(5), event("k").at(4), event("k").at(6)];
    assert_eq!(task.verdicts(given), [Forwarded, Forwarded, Verdict::Stale, Forwarded]);
}

/// Redpanda Connect, `dedupe` processor: one batch, then another.
#[test]
fn redpanda_connect_dedupe() {
    let mut task = Task::of("identity: value.id\n");
    let batches = [&[1, 2, 3, 4, 3, 3, 3][..], &[4, 1, 1, 3, 4, 4, 2, 1]];
    task.verdicts(batches.concat().into_iter().map(event));
    assert_eq!(ids(&task), [1, 2, 3, 4]);
}

#[track_caller]
fn vector_distinguishes(topology: &str, one: Value, other: Value) {
    let mut task = Task::of(topology);
    let given = [value(one.clone()), value(other.clone()), value(one), value(other)];
    assert_eq!(task.verdicts(given), [Forwarded, Forwarded, Duplicate, Duplicate]);
}

/// Vector, `dedupe` transform, `type_matching`: the text `"123"` is not the number 123, nested or not.
#[test]
fn vector_dedupe_type_matching() {
    vector_distinguishes("identity: value.matched\n", json!({"matched": "123"}), json!({"matched": 123}));
    vector_distinguishes("identity: {content: value.m}\n", json!({"m": {"key": "123"}}), json!({"m": {"key": 123}}));
    let fingerprint = "identity: {fingerprint: value}\n";
    vector_distinguishes(fingerprint, json!({"m": {"key": "123"}}), json!({"m": {"key": 123}}));
}

/// Vector, `dedupe` transform, `null_vs_missing`: a null field is not a missing one.
#[test]
fn vector_dedupe_null_vs_missing() {
    vector_distinguishes("identity: {fingerprint: value}\n", json!({"matched": null}), json!({}));
    vector_distinguishes("identity: {content: value}\n", json!({"matched": null}), json!({}));
}

/// Vector, `dedupe` transform, `field_name_matters` and `field_order_irrelevant`: the same values under other names are
/// another event, the same fields in another order are not.
#[test]
fn vector_dedupe_field_names_and_order() {
    for topology in ["identity: {fingerprint: value}\n", "identity: {content: value}\n"] {
        vector_distinguishes(topology, json!({"a": "x"}), json!({"b": "x"}));
        let mut task = Task::of(topology);
        let given = [r#"{"a":1,"b":{"c":2,"d":3}}"#, r#" { "b": {"d": 3, "c": 2}, "a": 1 } "#];
        let given = given.map(|text| Given { value: Some(text.as_bytes().to_vec()), ..Given::default() });
        assert_eq!(task.verdicts(given), [Forwarded, Duplicate]);
    }
}

/// Vector, `dedupe` transform, `ignore`: excluded fields do not matter.
#[test]
fn vector_dedupe_ignored_fields() {
    let mut task = Task::of("identity: {fingerprint: value, except: [value.sent_at]}\n");
    let given = [json!({"a": 1, "sent_at": 1}), json!({"a": 1, "sent_at": 2}), json!({"a": 2, "sent_at": 1})];
    assert_eq!(task.verdicts(given.map(value)), [Forwarded, Duplicate, Forwarded]);
}

/// Vector, `dedupe` transform, time-based cache: after the age limit the event is emitted again; a dropped one does not
/// refresh it (vector#22847).
#[test]
fn vector_dedupe_age_limit() {
    let mut task = Task::of("identity: {content: value}\nretention: 1h\n");
    let given = [event("a").at(0), event("a").at(HOUR / 2), event("a").at(HOUR + 1)];
    assert_eq!(task.reasons(given), [Reason::First, Reason::Seen, Reason::Expired]);
}

/// Camel, `KafkaIdempotentRepository`: ids 0 to 4 sent twice give five forwarded and five duplicates. That an id whose
/// exchange failed is not remembered is a matter of transactions: see [`super::ENGINE`].
#[test]
fn camel_kafka_idempotent_repository() {
    let mut task = Task::of("identity: header.id\n");
    let exchange = |n: i32| Given::default().header("id", &n.to_string()).key(json!(n)).body();
    let verdicts = task.verdicts((0..5).chain(0..5).map(exchange));
    assert_eq!(verdicts[..5], [Forwarded; 5]);
    assert_eq!(verdicts[5..], [Duplicate; 5]);
}

impl Given {
    /// With some value that does not matter.
    fn body(self) -> Self {
        Given { value: Some(b"{}".to_vec()), ..self }
    }
}

/// kafka-flow, `SnapshotFold`: after recovery records at or below the snapshot's offset are skipped, whatever they
/// hold; the next one is not.
#[test]
fn kafka_flow_snapshot_fold_offsets_of_the_snapshot_are_skipped() {
    let mut task = Task::of("identity: value.id\n");
    task.verdicts((0..=5).map(|n| event(n).offset(n)));
    let again = (0..=6).map(|n| event(format!("again {n}")).offset(n));
    let reasons = task.reasons(again);
    assert_eq!(reasons[..6], [Reason::Replayed; 6]);
    assert_eq!(reasons[6], Reason::First);
}

/// KIP-655, distinct: a record at a processed offset is that record, not its own duplicate: offsets decide before ids.
/// With a crash before the commit: see [`super::ENGINE`].
#[test]
fn kip_655_a_record_is_not_its_own_duplicate() {
    let mut task = Task::of("identity: value.id\n");
    let reasons = task.reasons([7, 7, 8].map(|offset| event("a").offset(offset)));
    assert_eq!(reasons, [Reason::First, Reason::Replayed, Reason::Seen]);
}
