//! What `infer` says of records that share an identity, and a version, with another. Goal: where its proposal could drop
//! such a record although it says something else, the proposal passes it on or says why not, by what the records show.

use super::*;

/// A line of the proposal, alone.
#[track_caller]
fn has_line(proposal: &Proposal, line: &str) {
    assert!(proposal.text.lines().any(|found| found == line), "no {line:?} in\n{}", proposal.text);
}

#[track_caller]
fn never_says(proposal: &Proposal, words: &str) {
    let text = format!("{}{}", unwrapped(proposal), proposal.unsure.join("\n"));
    assert!(!text.contains(words), "{words:?} in\n{text}");
}

#[test]
fn version_that_is_a_time_passes_ties_on() {
    let row = |id: u32, name: &str, at: &str| format!(r#"{{"id":{id},"name":"{name}","updated_at":"{at}"}}"#);
    let (one, two) = ("2025-01-01T00:00:01Z", "2025-01-01T00:00:02Z");
    let values = [row(1, "a", one), row(2, "b", one), row(1, "c", two), row(1, "c", two)];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    has_line(&proposal, "version: {of: value.updated_at, as: timestamp}");
    has_line(&proposal, "on_conflict: forward");
    has(
        &proposal,
        &["value.updated_at is a time, which two changes may share. A record that repeats the newest version of its \
             identity with other contents is passed on; none of these records does."],
    );
    doubts(&proposal, "value.updated_at is a time: two changes within its precision are passed on as they come");
    never_says(&proposal, "A record that says something else is dropped");
    assert_eq!(verdicts(&tally), [3, 1, 0, 0], "{}", proposal.text);
}

#[test]
fn version_that_is_a_number_passes_ties_on_as_well() {
    let row = |id: u32, name: &str, version: u32| format!(r#"{{"id":{id},"name":"{name}","version":{version}}}"#);
    let values = [row(1, "a", 1), row(2, "b", 1), row(1, "c", 2), row(1, "c", 2)];
    let (proposal, _) = of_values(&values.each_ref().map(String::as_str));
    has_line(&proposal, "on_conflict: forward");
    has(
        &proposal,
        &[
            "# A record that repeats the newest version of its identity with other contents is passed on; none of these records does.",
        ],
    );
    never_says(&proposal, "is a time");
    assert!(!proposal.text.contains("contents: {"), "{}", proposal.text);
}

/// A flattened event of Debezium without a position.
fn flattened(id: u32, name: &str, source_ms: u64, ms: u64) -> Record {
    let text = format!(
        r#"{{"id":{id},"name":"{name}","__op":"u","__table":"t","__source_ts_ms":{source_ms},"__ts_ms":{ms},"__deleted":"false"}}"#
    );
    value(&text).key(&format!(r#"{{"id":{id}}}"#))
}

#[test]
fn ties_that_the_records_show_are_counted_and_the_first_is_named() {
    let records = [
        flattened(1, "a", 100, 1),
        flattened(1, "b", 100, 2),
        flattened(2, "c", 100, 3),
        flattened(1, "c", 100, 4),
        // sent again, by a connector that has started anew
        flattened(1, "b", 100, 9),
    ];
    let (proposal, tally) = proposed(&records);
    has_line(&proposal, "on_conflict: forward");
    has_line(&proposal, "contents: {first_of: [{flattened: value}, value]}");
    has(
        &proposal,
        &[
            "2 of 5 records have the newest version of their identity and other contents, so such a record is passed on: \
             the first is in:0:1, which differs from in:0:0 in value.name",
        ],
    );
    never_says(&proposal, "count as one");
    assert_eq!(verdicts(&tally), [4, 1, 0, 0], "{}", proposal.text);
}

#[test]
fn fields_that_differ_with_each_delivery_are_no_contents() {
    let event = |id: &str, amount: u32, request: &str| {
        format!(r#"{{"payment_id":"{id}","amount":{amount},"meta":{{"request_id":"{request}"}},"attempt":1}}"#)
    };
    let values = [event("p1", 5, "a"), event("p2", 5, "b"), event("p1", 5, "c"), event("p1", 5, "d")];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    has_line(&proposal, "contents: {fingerprint: value, except: [value.attempt, value.meta.request_id]}");
    has(
        &proposal,
        &[
            "2 records say the same as an earlier one with the same identity, except for value.meta.request_id, which \
             therefore is not compared.",
            "By its name, value.attempt belongs to the delivery, and is not compared either.",
        ],
    );
    has_line(&proposal, "on_conflict: drop");
    has(&proposal, &["2 records have the identity of an earlier record and say the same."]);
    assert_eq!(verdicts(&tally), [2, 2, 0, 0]);
    assert_eq!(tally.of_reason(ratchet::dedup::Reason::Seen), 2, "{}", proposal.text);
}

#[test]
fn same_json_in_other_bytes_is_compared_by_its_meaning() {
    let values = [r#"{"event_id":"a","x":1}"#, r#"{"x": 1, "event_id": "a"}"#, r#"{"event_id":"b","x":1}"#];
    let (proposal, tally) = of_values(&values);
    has_line(&proposal, "contents: {fingerprint: value}");
    has(&proposal, &["1 record holds the same JSON as an earlier one with the same identity, in other bytes."]);
    assert_eq!(tally.of_reason(ratchet::dedup::Reason::Seen), 1, "{}", proposal.text);
}

#[test]
fn id_that_nothing_repeats_loses_nothing() {
    let (proposal, _) = of_values(&[r#"{"customer_id":1,"x":"a"}"#, r#"{"customer_id":2,"x":"b"}"#]);
    has_line(&proposal, "on_conflict: forward");
    has(
        &proposal,
        &[
            "A record that repeats an identity with other contents is passed on: no record here repeats an identity, so nothing \
             shows what that means.",
        ],
    );
    let (proposal, _) =
        of_values(&[r#"{"event_id":1,"x":"a"}"#, r#"{"event_id":2,"x":"b"}"#, r#"{"event_id":1,"x":"a"}"#]);
    has_line(&proposal, "on_conflict: drop");
    assert!(!proposal.text.contains("contents:"), "{}", proposal.text);
}

#[test]
fn identity_that_is_the_whole_of_a_value_has_no_conflicts_to_speak_of() {
    let (proposal, _) = of_values(&[r#"{"temperature":20.5}"#, r#"{"temperature":21.5}"#]);
    has(&proposal, &["identity: {fingerprint: value"]);
    assert!(!proposal.text.contains("on_conflict") && !proposal.text.contains("contents:"), "{}", proposal.text);
    let (proposal, _) = of_values(&["a b", "c d"]);
    assert!(!proposal.text.contains("on_conflict"), "{}", proposal.text);
}

#[test]
fn ties_under_a_preset_are_told() {
    let key = r#"{"id":1}"#;
    let (first, second) = (change(key, 10, "c"), change(key, 10, "u"));
    let second = value(&second.value.unwrap().replace(r#""after":{"id":1}"#, r#""after":{"id":1,"x":2}"#)).key(key);
    let (proposal, tally) = proposed(&[first, second]);
    doubts(
        &proposal,
        "1 of 2 records has the newest version of its identity and other contents: the first is in:0:1, which differs from \
         in:0:0 in value.after.x; by `on_conflict: forward` of the preset such a record is passed on",
    );
    assert!(!proposal.text.contains("on_conflict"), "{}", proposal.text);
    assert_eq!(verdicts(&tally), [2, 0, 0, 0]);
}

#[test]
fn version_that_an_older_record_shares_with_another_is_not_said_to_be_unshared() {
    let row = |id: u32, name: &str, version: u32| format!(r#"{{"id":{id},"name":"{name}","version":{version}}}"#);
    let values = [row(1, "a", 1), row(1, "b", 2), row(1, "c", 1), row(1, "d", 3)];
    let (proposal, _) = of_values(&values.each_ref().map(String::as_str));
    has(&proposal, &["it rises 2 times, falls 1 time, and 1 change has that of another"]);
    never_says(&proposal, "no two changes share one");
}

#[test]
fn fields_of_other_versions_are_no_reason() {
    // a thing that returns to a state says what it said before, at another time
    let row =
        |name: &str, version: u32, at: u32| format!(r#"{{"id":1,"name":"{name}","version":{version},"ts":{at}}}"#);
    let values = [row("a", 1, 10), row("b", 2, 20), row("a", 3, 30), row("a", 3, 30)];
    let (proposal, _) = of_values(&values.each_ref().map(String::as_str));
    has(&proposal, &["1 record says what another with the same has said; others differ"]);
    assert!(!proposal.text.contains("contents:"), "{}", proposal.text);
}

#[test]
fn every_time_that_a_version_may_be_is_recognised() {
    for (first, second) in [
        // twelve digits of a second, of which the last ones differ
        ("2025-01-01T00:00:00.000000000001Z", "2025-01-01T00:00:00.000000000002Z"),
        ("9998-12-31T23:59:59Z", "9999-12-31T23:59:59Z"),
        ("2016-12-31T23:59:59Z", "2017-01-01T00:59:60+00:00"),
        ("2025-01-01 00:00:00.5", "2025-01-01 00:00:01"),
    ] {
        let row = |name: &str, at: &str| format!(r#"{{"id":1,"name":"{name}","updated_at":"{at}"}}"#);
        let values = [row("a", first), row("b", second), row("a", first)];
        let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
        has_line(&proposal, "version: {of: value.updated_at, as: timestamp}");
        assert_eq!(verdicts(&tally), [2, 0, 1, 0], "{first}: {}", proposal.text);
    }
    // what a version of a topology could not read is not proposed as one
    let row = |name: &str, at: &str| format!(r#"{{"id":1,"name":"{name}","updated_at":"{at}"}}"#);
    let values = [row("a", "2025-01-01T00:00"), row("b", "2025-01-01T00:01")];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    assert!(!proposal.text.contains("as: timestamp"), "{}", proposal.text);
    assert_eq!(tally.of_verdict(Verdict::Invalid), 0, "{}", proposal.text);
}

#[test]
fn rows_of_dms_are_compared_without_their_metadata() {
    let change = |id: u32, name: &str, number: u32, at: u32| {
        format!(
            r#"{{"data":{{"id":{id},"name":"{name}"}},"metadata":{{"timestamp":"2025-01-01T00:00:0{at}.000001Z","record-type":"data","operation":"update","partition-key-type":"task-id","schema-name":"s","table-name":"t","transaction-id":7,"transaction-record-id":{number},"commit-timestamp":"2025-01-01T00:00:00.000001Z","stream-position":"x"}}}}"#
        )
    };
    // the second is sent again, with another time
    let values = [change(1, "a", 1, 1), change(1, "b", 2, 2), change(1, "b", 2, 9), change(2, "c", 1, 3)];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    has_line(&proposal, "contents: value.data");
    has_line(&proposal, "on_conflict: forward");
    assert_eq!(verdicts(&tally), [3, 1, 0, 0], "{}", proposal.text);
    assert_eq!(tally.of_reason(ratchet::dedup::Reason::VersionEqual), 1, "{}", proposal.text);
}

#[test]
fn cloud_events_of_debezium_are_compared_by_their_data() {
    let again = |record: Record| {
        // sent again by a connector that has started anew: the attributes of the delivery differ
        let text = record.value.as_deref().unwrap().replace(r#""specversion""#, r#""time":"2025-01-01","specversion""#);
        Record { value: Some(text), ..record }
    };
    let records = [debezium_event(1, 10, "c"), debezium_event(2, 10, "c"), again(debezium_event(1, 10, "c"))];
    let (proposal, tally) = proposed(&records);
    has_line(&proposal, "contents: value.data");
    has_line(&proposal, "on_conflict: forward");
    assert_eq!(tally.of_reason(ratchet::dedup::Reason::VersionEqual), 1, "{}", proposal.text);
}

#[test]
fn repeats_that_are_conflicts_nevertheless_are_counted() {
    // no exception can name a field of every item of a list
    let event = |id: u32, at: u32| format!(r#"{{"event_id":{id},"items":[{{"x":1,"sent_at":{at}}}]}}"#);
    let values = [event(1, 1), event(2, 2), event(1, 3)];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    has_line(&proposal, "on_conflict: drop");
    has(
        &proposal,
        &["By their contents 1 of them is a conflict all the same: the first is in:0:2, which differs from in:0:0 in \
                      value.items."],
    );
    assert_eq!(tally.of_reason(ratchet::dedup::Reason::SeenOtherwise), 1, "{}", proposal.text);
}
