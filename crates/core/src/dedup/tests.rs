//! Goal: the verdicts are those that other systems' tests expect for the same sequences, and no record can cause a
//! panic. Also helpers for the tests of this room.

use std::sync::Arc;

use proptest::prelude::*;

use super::*;
use crate::record::{HeaderBuf, Headers, Record};

/// A record with this value, JSON or not, at an offset.
pub(super) fn record(offset: i64, value: &[u8]) -> Record<'_> {
    Record {
        topic: "input",
        partition: 3,
        offset,
        timestamp: None,
        key: None,
        value: Some(value),
        headers: Headers::default(),
    }
}

pub(super) fn paths(texts: &[&str]) -> Vec<Path> {
    texts.iter().map(|text| Path::parse(text).unwrap()).collect()
}

/// Rules with these identity parts and this version, and defaults for everything else.
pub(super) fn rules(identity: &[&str], version: Option<&str>) -> Rules {
    let version = version.map(|of| Version::integer(Path::parse(of).unwrap()));
    Rules::new(Identity::of_paths(paths(identity)), version)
}

/// The reasons for JSON values at offsets 0, 1, ….
fn reasons(rules: Rules, values: &[&str]) -> Vec<Reason> {
    let mut model = Model::new(Arc::new(rules));
    let judge = |(offset, value): (usize, &&str)| model.judge(&record(offset as i64, value.as_bytes()), 0).reason;
    values.iter().enumerate().map(judge).collect()
}

/// Which of these JSON values are forwarded.
fn survivors<'a>(rules: Rules, values: &[&'a str]) -> Vec<&'a str> {
    let mut model = Model::new(Arc::new(rules));
    let forwarded = |(offset, value): &(usize, &'a str)| {
        model.judge(&record(*offset as i64, value.as_bytes()), 0).action == Action::Forward
    };
    values.iter().copied().enumerate().filter(forwarded).map(|(_, value)| value).collect()
}

fn words<'a>(rules: Rules, text: &'a str) -> String {
    let words: Vec<&'a str> = text.split(' ').collect();
    survivors(rules, &words).join(" ")
}

#[test]
fn older_versions_and_late_changes_after_a_delete_are_stale() {
    // Hazelcast Jet CdcSinksTest.
    let keyed = || rules(&["value.k"], Some("value.v"));
    let update_sync = [r#"{"k":1,"op":"update","v":2}"#, r#"{"k":1,"op":"sync","v":0}"#];
    assert_eq!(reasons(keyed(), &update_sync), [Reason::First, Reason::VersionOlder]);
    let delete_insert = [r#"{"k":1,"op":"delete","v":3}"#, r#"{"k":1,"op":"insert","v":1}"#];
    assert_eq!(reasons(keyed(), &delete_insert), [Reason::First, Reason::VersionOlder]);
    let reversed =
        [r#"{"k":2,"op":"delete","v":3}"#, r#"{"k":1,"v":2}"#, r#"{"k":2,"op":"insert","v":1}"#, r#"{"k":1,"v":0}"#];
    assert_eq!(survivors(keyed(), &reversed), reversed[..2]);
}

#[test]
fn stored_version_is_replaced_only_by_greater_ones() {
    // Hudi merge, Postgres: stored 99.
    let values = ["99", "100", "98", "100", "98"].map(|v| format!(r#"{{"k":1,"v":{v}}}"#));
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let expected = [Reason::First, Reason::Newer, Reason::VersionOlder, Reason::VersionEqual, Reason::VersionOlder];
    assert_eq!(reasons(rules(&["value.k"], Some("value.v")), &values), expected);
}

#[test]
fn reinsert_after_a_delete_is_forwarded_repeated_update_is_not() {
    // Materialize upsert.
    let values = [r#"{"k":1,"v":1}"#, r#"{"k":1,"v":1}"#, r#"{"k":1,"v":2,"d":true}"#, r#"{"k":1,"v":3}"#];
    let expected = [Reason::First, Reason::VersionEqual, Reason::Newer, Reason::Newer];
    assert_eq!(reasons(rules(&["value.k"], Some("value.v")), &values), expected);
}

#[test]
fn equal_version_is_forwarded_if_the_rules_say_so() {
    // RisingWave version column.
    let mut overwriting = rules(&["value.k"], Some("value.v"));
    overwriting.actions.equal_version = Action::Forward;
    let values = [r#"{"k":1,"v":1}"#, r#"{"k":2,"v":1}"#, r#"{"k":2,"v":2}"#, r#"{"k":2,"v":2}"#, r#"{"k":2,"v":1}"#];
    let expected = [Reason::First, Reason::First, Reason::Newer, Reason::VersionEqual, Reason::VersionOlder];
    assert_eq!(reasons(overwriting.clone(), &values), expected);
    assert_eq!(survivors(overwriting, &values), values[..4]);
    let bool_version = [r#"{"k":1,"v":true}"#, r#"{"k":1,"v":{}}"#, r#"{"k":1}"#];
    let expected = [Reason::VersionMalformed, Reason::VersionMalformed, Reason::VersionMissing];
    assert_eq!(reasons(rules(&["value.k"], Some("value.v")), &bool_version), expected);
}

#[test]
fn only_the_first_of_each_id_is_forwarded() {
    let whole = || rules(&["value"], None);
    // Kafka Streams event deduplication; Redpanda Connect.
    assert_eq!(words(whole(), "A B A A B C C A B"), "A B C");
    assert_eq!(words(whole(), "1 2 3 4 3 3 3 4 1 1 3 4 4 2 1"), "1 2 3 4");
    // Confluent's distinct events.
    let clicks = [r#"{"ip":"10.0.0.1"}"#, r#"{"ip":"10.0.0.2"}"#, r#"{"ip":"10.0.0.3"}"#].repeat(2);
    assert_eq!(survivors(rules(&["value.ip"], None), &clicks), clicks[..3]);
    // Camel: ids 0-4 twice.
    assert_eq!(words(whole(), "0 1 2 3 4 0 1 2 3 4"), "0 1 2 3 4");
}

#[test]
fn string_is_not_a_number_and_null_or_missing_is_no_identity() {
    // Vector's dedupe; null is refused here, like missing.
    let values = [r#"{"a":"123"}"#, r#"{"a":123}"#, r#"{"a":null}"#, r#"{}"#, r#"{"A":123}"#, r#"{"a":1.23e2}"#];
    let missing = Reason::IdentityMissing;
    assert_eq!(
        reasons(rules(&["value.a"], None), &values),
        // The number is the same; the value is written differently.
        [Reason::First, Reason::First, missing, missing, missing, Reason::SeenOtherwise]
    );
    let nested = [r#"{"a":{"b":"123"}}"#, r#"{"a":{"b":123}}"#];
    assert_eq!(survivors(rules(&["value.a.b"], None), &nested), nested);
    let order = [r#"{"a":1,"b":2}"#, r#"{"b":2,"a":1}"#, r#"{"a":2,"b":1}"#];
    let expected = [Reason::First, Reason::SeenOtherwise, Reason::First];
    assert_eq!(reasons(rules(&["value.a", "value.b"], None), &order), expected);
}

#[test]
fn id_is_new_again_after_the_retention_despite_duplicates() {
    // Flink's state time-to-live; Vector's age limit.
    let mut hourly = rules(&["value"], None);
    hourly.retention = Retention::For { ms: 1000 };
    let mut model = Model::new(Arc::new(hourly));
    let mut judge =
        |offset, time| model.judge(&Record { timestamp: Some(time), ..record(offset, b"A") }, 10_000).reason;
    assert_eq!(judge(0, 5000), Reason::First);
    assert_eq!(judge(1, 5900), Reason::Seen);
    assert_eq!(judge(2, 6000), Reason::Seen);
    assert_eq!(judge(3, 6001), Reason::Expired);
    assert_eq!(judge(4, 7001), Reason::Seen);
    assert_eq!(judge(5, 6000), Reason::Late);
    assert_eq!(judge(6, 6001), Reason::Seen);
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let path = prop::sample::select(vec![
        "key",
        "value",
        "key.a",
        "value.a",
        "value.a.0",
        "value.b.a",
        "header.a",
        "meta.topic",
        "meta.partition",
        "meta.offset",
        "meta.timestamp",
    ]);
    let path = path.prop_map(|text| Path::parse(text).unwrap());
    let parts = prop::collection::vec(path.clone(), 0..4);
    (parts, prop::option::of(path), any::<bool>(), 0..40_usize).prop_map(|(parts, version, json_key, small)| {
        let mut rules = Rules::new(Identity::of_paths(parts), version.map(Version::integer));
        rules.key_format = if json_key { Format::Json } else { Format::Bytes };
        rules.retention = Retention::For { ms: small as i64 };
        rules.limits.json_depth_max = small;
        rules.limits.version_digits_max = small;
        rules
    })
}

/// Documents that are nearly JSON, and bytes that are nothing like JSON.
fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"a\"",
        "\"b\"",
        "\"\\u0061\"",
        "1",
        "-0",
        "1e5",
        "1e-99999999999999999999",
        "null",
        "true",
        "\"",
        "\\",
        "\u{e9}",
        "{\"a\":",
        "{\"b\":",
        "{\"a\":7}",
    ]);
    let soup = prop::collection::vec(token, 0..12).prop_map(|tokens| tokens.concat().into_bytes());
    prop_oneof![soup, prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #[test]
    fn no_record_causes_a_panic(
        rules in any_rules(),
        records in prop::collection::vec(
            (any::<i64>(), prop::option::of(any::<i64>()), prop::option::of(any_bytes()), prop::option::of(any_bytes())), 0..8
        ),
        wall in any::<i64>(),
    ) {
        let mut model = Model::new(Arc::new(rules));
        for (offset, timestamp, key, value) in &records {
            let mut headers = HeaderBuf::default();
            headers.push(b"a", key.as_deref());
            let record = Record {
                timestamp: *timestamp,
                key: key.as_deref(),
                value: value.as_deref(),
                headers: headers.as_headers(),
                ..record(*offset, b"")
            };
            let decision = model.judge(&record, wall);
            prop_assert_eq!(decision.verdict == Verdict::Forwarded, decision.action == Action::Forward);
            model.identity();
            model.version();
        }
    }

    #[test]
    fn describing_any_bytes_does_not_panic(bytes in any_bytes(), kind in 0_u8..0x14) {
        let keyed = [&[kind], &bytes[..]].concat();
        describe_identity(&keyed);
        let part = |&kind: &VersionKind| VersionPart::new(Path::parse("value").unwrap(), kind);
        for of in [&VersionKind::ALL[..1], &VersionKind::ALL[1..2], &VersionKind::ALL[2..3], &VersionKind::ALL[3..4], &VersionKind::ALL[4..5], &VersionKind::ALL[6..], VersionKind::ALL] {
            describe_version(&bytes, &Version { parts: of.iter().map(part).collect() });
        }
        describe_scope(&bytes);
    }
}

#[test]
fn every_word_is_read_back_and_used_once() {
    for &reason in Reason::ALL {
        assert_eq!(Reason::parse(reason.as_str()), Some(reason));
        assert!(!reason.meaning().is_empty());
    }
    assert_eq!(Action::parse("dead_letter"), Some(Action::DeadLetter));
    assert_eq!(Action::parse("Drop"), None);
    assert_eq!(Format::Json.to_string(), "json");
    assert_eq!(Verdict::ALL.len(), 4);
}
