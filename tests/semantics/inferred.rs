//! What `infer` proposes for records of many kinds. Goal: it finds what repeats although times and attempts differ, loses
//! nothing that is new, says what it doubts, and gives no reason that is not true of the records.

use ratchet::capture::{Captured, Form};
use ratchet::dedup::Verdict;
use ratchet::infer::{Proposal, Sample, Tally, Wanted, infer};

/// A record: key, headers, value, and its timestamp.
#[derive(Clone, Default)]
struct Record {
    key: Option<String>,
    headers: Vec<(String, String)>,
    value: Option<String>,
    timestamp: Option<i64>,
}

fn value(value: &str) -> Record {
    Record { value: Some(value.to_owned()), ..Record::default() }
}

impl Record {
    fn key(self, key: &str) -> Self {
        Self { key: Some(key.to_owned()), ..self }
    }

    fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    fn at(self, ms: i64) -> Self {
        Self { timestamp: Some(ms), ..self }
    }
}

/// What is proposed for these records of one partition, as `kcat` captures them.
#[track_caller]
fn proposed(records: &[Record]) -> (Proposal, Tally) {
    let mut sample = Sample { form: Form::Kcat, ..Sample::default() };
    for (offset, record) in records.iter().enumerate() {
        let mut captured = Captured { topic: "in".to_owned(), offset: offset as i64, ..Captured::default() };
        captured.key = record.key.as_ref().map(|key| key.clone().into_bytes());
        captured.value = record.value.as_ref().map(|value| value.clone().into_bytes());
        captured.timestamp = record.timestamp;
        for (name, value) in &record.headers {
            captured.headers.push(name.as_bytes(), Some(value.as_bytes()));
        }
        sample.add(captured);
    }
    infer(&sample, &Wanted::default()).unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false)))
}

/// The same for values alone.
#[track_caller]
fn of_values(values: &[&str]) -> (Proposal, Tally) {
    proposed(&values.iter().map(|text| value(text)).collect::<Vec<_>>())
}

/// The text, with each comment on a line of its own, however it was wrapped.
fn unwrapped(proposal: &Proposal) -> String {
    let mut text = String::new();
    let mut was_comment = false;
    for line in proposal.text.lines() {
        let rest = line.strip_prefix("# ").filter(|_| was_comment);
        text.push_str(if rest.is_some() { " " } else { "\n" });
        text.push_str(rest.unwrap_or(line));
        was_comment = line.starts_with('#');
    }
    text.push('\n');
    text
}

#[track_caller]
fn has(proposal: &Proposal, words: &[&str]) {
    let text = unwrapped(proposal);
    for words in words {
        assert!(text.contains(words), "no {words:?} in\n{}\n{:#?}", proposal.text, proposal.unsure);
    }
}

#[track_caller]
fn doubts(proposal: &Proposal, words: &str) {
    let said = proposal.unsure.iter().any(|unsure| unsure.contains(words));
    assert!(said, "no doubt {words:?} in\n{}\n{:#?}", proposal.text, proposal.unsure);
}

fn verdicts(tally: &Tally) -> [usize; 4] {
    [Verdict::Forwarded, Verdict::Duplicate, Verdict::Stale, Verdict::Invalid].map(|of| tally.of_verdict(of))
}

#[test]
fn id_repeats_although_a_time_an_attempt_or_a_request_differs() {
    for (field, first, second) in [
        ("emitted_at", r#""2025-01-01T00:00:00Z""#, r#""2025-01-01T00:00:09Z""#),
        ("timestamp", "1735689600000", "1735689609000"),
        ("timestamp", r#""2025-01-01T00:00:00Z""#, r#""2025-01-01T00:00:09Z""#),
        ("created_at", "1735689600", "1735689609"),
        ("request_id", r#""8c7f""#, r#""91ab""#),
        ("attempt", "1", "2"),
        ("delivery_attempt", "1", "2"),
        ("ingest_ts", "1735689600000", "1735689609000"),
    ] {
        let event =
            |id: &str, at: &str, amount: u32| format!(r#"{{"payment_id":"{id}","amount":{amount},"{field}":{at}}}"#);
        let third = second.replace('9', "7");
        let values = [event("p1", first, 5), event("p2", second, 5), event("p1", &third, 5), event("p3", second, 7)];
        let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
        has(&proposal, &["\nidentity: [value.payment_id]\n", &format!("except for value.{field}")]);
        assert_eq!(verdicts(&tally), [3, 1, 0, 0], "{field}: {}", proposal.text);
    }
}

#[test]
fn pair_repeats_although_the_request_differs() {
    let event = |operation: &str, request: &str| {
        format!(r#"{{"order_id":7,"operation":"{operation}","request_id":"{request}","amount":5}}"#)
    };
    let values = [event("charge", "a"), event("refund", "b"), event("charge", "c")];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    has(&proposal, &["\nidentity: [value.order_id, value.operation]\n"]);
    doubts(&proposal, "a second event with the same value.order_id and value.operation counts as a duplicate");
    assert_eq!(verdicts(&tally), [2, 1, 0, 0]);
    // an id of a request that repeats with its request is its own
    let values = [event("charge", "a"), event("charge", "b"), event("charge", "a")];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    has(&proposal, &["\nidentity: [value.request_id]\n"]);
    assert_eq!(verdicts(&tally), [2, 1, 0, 0]);
}

#[test]
fn reports_of_one_sensor_are_not_repetitions() {
    let report = |second: u32| format!(r#"{{"host_id":"a","ts":{},"up":true}}"#, 1_735_689_600 + second);
    let values: Vec<String> = (0..12).map(report).collect();
    let (_, tally) = of_values(&values.iter().map(String::as_str).collect::<Vec<_>>());
    assert_eq!(verdicts(&tally), [12, 0, 0, 0]);
}

#[test]
fn state_or_kind_of_change_beside_an_id_is_doubted_or_not_taken() {
    let order = |id: u32, status: &str| format!(r#"{{"id":{id},"status":"{status}"}}"#);
    let values = [order(1, "new"), order(1, "paid"), order(2, "new"), order(1, "new")];
    let (proposal, _) = of_values(&values.each_ref().map(String::as_str));
    has(&proposal, &["\nidentity: [value.id, value.status]\n"]);
    doubts(&proposal, "a thing that returns to a value.status that it had before counts as a duplicate");
    // where there is a time, it orders
    let timed = |id: u32, status: &str, ts: u64| format!(r#"{{"id":{id},"status":"{status}","ts":{ts}}}"#);
    let values = [timed(1, "new", 10), timed(1, "paid", 20), timed(2, "new", 30), timed(1, "new", 40)];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    assert_eq!(verdicts(&tally), [4, 0, 0, 0], "{}", proposal.text);
    // a row may be updated twice
    for op in ["op", "operation", "action", "type"] {
        let change = |id: u32, word: &str, name: &str| format!(r#"{{"id":{id},"{op}":"{word}","name":"{name}"}}"#);
        let values =
            [change(1, "insert", "a"), change(1, "update", "b"), change(2, "insert", "c"), change(2, "delete", "c")];
        let (proposal, _) = of_values(&values.each_ref().map(String::as_str));
        assert!(!proposal.text.contains(&format!("\nidentity: [value.id, value.{op}]")), "{}", proposal.text);
    }
}

#[test]
fn version_by_its_name_only_does_not_remember_for_ever() {
    let (proposal, _) = of_values(&[r#"{"id":1,"version":1,"x":"a"}"#, r#"{"id":2,"version":1,"x":"b"}"#]);
    has(&proposal, &["version: {of: value.version, as: integer}", "\nretention: 7d\n", "no two records have the same"]);
    doubts(&proposal, "value.version is a version by its name only");
    assert!(!proposal.text.contains("so a version shows which is newer"), "{}", proposal.text);
    // one that rises needs no limit
    let (proposal, _) = of_values(&[r#"{"id":1,"version":1,"x":"a"}"#, r#"{"id":1,"version":2,"x":"b"}"#]);
    assert!(!proposal.text.contains("retention"), "{}", proposal.text);
}

#[test]
fn time_at_which_somebody_worked_on_a_change_is_no_version() {
    for (field, more) in [("_airbyte_extracted_at", ""), ("_sdc_batched_at", ""), ("__ts_ms", r#","__op":"u""#)] {
        let row = |id: u32, name: &str, at: u32| format!(r#"{{"id":{id},"name":"{name}","{field}":{at}{more}}}"#);
        let values = [row(1, "a", 10), row(1, "b", 11), row(2, "c", 12), row(1, "a", 20), row(1, "b", 21)];
        let (proposal, _) = of_values(&values.each_ref().map(String::as_str));
        assert!(!proposal.text.contains(&format!("version: {{of: value.{field}")), "{}", proposal.text);
    }
    // a name that may be either: what was said comes again with greater times
    let row = |id: u32, name: &str, at: u32| format!(r#"{{"user_id":{id},"name":"{name}","ts":{at}}}"#);
    let names = ["a", "b", "c", "a", "b", "c"];
    let values: Vec<String> = names.iter().enumerate().map(|(at, name)| row(1, name, 10 + at as u32)).collect();
    let (proposal, _) = of_values(&values.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(!proposal.text.contains("version: {of: value.ts"), "{}", proposal.text);
}

/// A CloudEvent in structured mode.
fn cloud_event(id: &str, data: &str) -> String {
    format!(r#"{{"specversion":"1.0","id":"{id}","source":"/shop","type":"paid","data":{data}}}"#)
}

#[test]
fn cloud_events_are_identified_by_source_and_id_where_these_are_unique() {
    let values = [cloud_event("1", "{}"), cloud_event("2", "{}"), cloud_event("1", "{}")];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    has(&proposal, &["\nidentity: [value.source, value.id]\n"]);
    assert_eq!(verdicts(&tally), [2, 1, 0, 0]);
    // against the specification
    let values = [cloud_event("1", r#"{"a":1}"#), cloud_event("1", r#"{"a":2}"#), cloud_event("1", r#"{"a":1}"#)];
    let (proposal, tally) = of_values(&values.each_ref().map(String::as_str));
    doubts(&proposal, "1 CloudEvent has the source and the id of an earlier one, and says something else");
    assert_eq!(verdicts(&tally), [2, 1, 0, 0], "{}", proposal.text);
    // binary mode has them in headers
    let event = |id: &str| {
        let attributes = value(r#"{"a":1}"#).header("ce_specversion", "1.0").header("ce_type", "paid");
        attributes.header("ce_source", "/shop").header("ce_id", id)
    };
    let (proposal, tally) = proposed(&[event("1"), event("2"), event("1")]);
    has(&proposal, &["\nidentity: [header.ce_source, header.ce_id]\n"]);
    assert_eq!(verdicts(&tally), [2, 1, 0, 0]);
}

/// A CloudEvent of Debezium's MySQL connector.
fn debezium_event(row: u32, pos: u32, op: &str) -> Record {
    let attributes = format!(
        r#""id":"name:s;file:bin.000003;pos:{pos}","source":"/debezium/mysql/s","specversion":"1.0","type":"io.debezium.connector.mysql.DataChangeEvent","iodebeziumconnector":"mysql","iodebeziumop":"{op}","iodebeziumfile":"bin.000003","iodebeziumpos":"{pos}","iodebeziumrow":"0""#
    );
    value(&format!(r#"{{{attributes},"data":{{"before":null,"after":{{"id":{row}}}}}}}"#))
        .key(&format!(r#"{{"id":{row}}}"#))
}

#[test]
fn cloud_events_of_debezium_are_ordered_by_position_for_each_row() {
    // two rows of one statement share their id
    let records = [
        debezium_event(1, 10, "c"),
        debezium_event(2, 10, "c"),
        debezium_event(1, 20, "u"),
        debezium_event(1, 10, "c"),
    ];
    let (proposal, tally) = proposed(&records);
    has(
        &proposal,
        &["\nidentity: {content: key}\n", "{of: value.iodebeziumfile, as: binlog", "{of: value.iodebeziumpos"],
    );
    assert_eq!(verdicts(&tally), [3, 0, 1, 0], "{}", proposal.text);
}

/// A change of Debezium's PostgreSQL connector.
fn change(key: &str, lsn: u32, op: &str) -> Record {
    let value_of = format!(
        r#"{{"before":null,"after":{{"id":1}},"source":{{"connector":"postgresql","name":"s","db":"d","schema":"public","table":"t","lsn":{lsn}}},"op":"{op}"}}"#
    );
    value(&value_of).key(key)
}

#[test]
fn keys_that_json_would_confuse_or_refuse_are_taken_as_bytes() {
    let (proposal, tally) = proposed(&[change("1.1", 10, "c"), change("1.10", 10, "c"), change("1.1", 10, "c")]);
    has(
        &proposal,
        &["preset: debezium-postgres", "key_format: bytes", "\nidentity: key\n", "1.1 and 1.10 would be one"],
    );
    assert_eq!(verdicts(&tally), [2, 1, 0, 0]);
    let (proposal, tally) = proposed(&[change("Struct{id=1}", 10, "c"), change("Struct{id=2}", 10, "c")]);
    has(&proposal, &["key_format: bytes", "StringConverter", "\npartitioned_by_identity: true\n"]);
    assert_eq!(verdicts(&tally), [2, 0, 0, 0]);
    let (proposal, _) = proposed(&[change(r#"{"id":1}"#, 10, "c"), change(r#"{"id":2}"#, 10, "c")]);
    assert!(!proposal.text.contains("key_format") && !proposal.text.contains("identity:"), "{}", proposal.text);
}

#[test]
fn null_values_that_follow_no_delete_pass() {
    let null = |key: &str| Record::default().key(key);
    let (one, two) = (r#"{"id":1}"#, r#"{"id":2}"#);
    let (proposal, tally) = proposed(&[change(one, 10, "c"), change(two, 20, "c"), null(one)]);
    has(&proposal, &["\non_null_value: forward\n"]);
    assert_eq!(verdicts(&tally), [3, 0, 0, 0]);
    // as in a stream that has deletes as well, but not of this row
    let (proposal, _) = proposed(&[change(one, 10, "d"), null(one), change(two, 20, "c"), null(two)]);
    has(&proposal, &["\non_null_value: forward\n"]);
    let (proposal, tally) = proposed(&[change(one, 10, "d"), null(one), change(two, 20, "c")]);
    assert!(!proposal.text.contains("on_null_value"), "{}", proposal.text);
    assert_eq!(verdicts(&tally), [3, 0, 0, 0]);
}

#[test]
fn records_with_timestamps_in_seconds_are_not_late() {
    let event = |id: u32, at: i64| value(&format!(r#"{{"event_id":"{id}"}}"#)).at(at);
    let (proposal, tally) = proposed(&[
        event(1, 1_764_300_000_000),
        event(2, 1_764_300_001),
        event(2, 1_764_300_002),
        event(3, 1_764_300_003),
    ]);
    has(&proposal, &["\nretention: forever\n"]);
    doubts(&proposal, "the timestamps of 3 of 4 records look like seconds");
    assert_eq!(verdicts(&tally), [3, 1, 0, 0]);
}

#[test]
fn share_of_records_that_a_preset_finds_invalid_is_told() {
    let odd = value(&change("", 10, "c").value.unwrap().replace("\"lsn\":10", "\"lsn\":\"x\"")).key(r#"{"id":9}"#);
    let good = (1..10).map(|number| change(&format!(r#"{{"id":{number}}}"#), number, "c"));
    let (proposal, _) = proposed(&good.chain([odd]).collect::<Vec<_>>());
    doubts(&proposal, "by what is proposed, 1 of 10 records is invalid: `value.source.lsn`");
}

#[test]
fn decimals_in_base64_are_named_and_no_version() {
    let row = |id: u32, revision: &str| format!(r#"{{"id":{id},"revision":"{revision}","name":"x"}}"#);
    let values = [row(1, "AQ=="), row(1, "Pw=="), row(2, "AIA=")];
    let (proposal, _) = of_values(&values.each_ref().map(String::as_str));
    doubts(&proposal, "value.revision looks like bytes in base64");
    assert!(!proposal.text.contains("version:"), "{}", proposal.text);
}

#[test]
fn id_of_a_schema_is_named() {
    let (proposal, tally) = of_values(&["\0\0\0\0\u{5}{\"id\":1}", "\0\0\0\0\u{5}{\"id\":2}"]);
    doubts(&proposal, "2 values carry the id of a schema");
    assert_eq!(verdicts(&tally), [2, 0, 0, 0]);
}

mod refused;
mod ties;
mod unproven;
