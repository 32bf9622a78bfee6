//! Numbers that Kafka Connect writes as base64. Goal: if a record has its schema, they are decoded exactly; if not, no text
//! is read as a different number, and a refusal says what to set.

use ratchet::dedup::{Model, Reason, Verdict};
use ratchet::record::Record;
use ratchet::rehearsal::{Answer, Rehearser};
use serde_json::{Value, json};

use crate::task::{Given, Task, keyed, load};

/// The revisions of a row of Oracle's, as `decimal.handling.mode=precise` writes them, with what they are.
const REVISIONS: [(&str, i64); 8] = [
    ("AQ==", 1),
    ("Pw==", 63),
    ("QA==", 64),
    ("fw==", 127),
    ("AIA=", 128),
    ("AMg=", 200),
    ("ASw=", 300),
    // Three bytes whose base64 consists of digits.
    ("1234", -2_658_824),
];

/// The schema of a row with a decimal of this name and scale.
fn schema(name: &str, scale: u32) -> Value {
    json!({"type": "struct", "optional": false, "fields": [
        {"type": "int32", "optional": false, "field": "ID"},
        {"type": "bytes", "optional": true, "name": "org.apache.kafka.connect.data.Decimal", "version": 1,
            "parameters": {"scale": scale.to_string()}, "field": name}]})
}

fn row(revision: &str, with_schema: bool) -> Given {
    let row = json!({"ID": 1, "REVISION": revision});
    let value = if with_schema { json!({"schema": schema("REVISION", 0), "payload": row}) } else { row };
    keyed(json!({"ID": 1}), value)
}

fn topology(kind: &str) -> String {
    format!(
        "input: {{topics: [in], key_format: connect_json, value_format: connect_json}}\nidentity: {{content: key}}\n\
         version: {{of: value.REVISION, as: {kind}}}\n"
    )
}

#[test]
fn decimal_with_its_schema_is_a_version() {
    for kind in ["integer", "decimal"] {
        let mut task = Task::of(&topology(kind));
        let mut known = None;
        for (text, number) in REVISIONS {
            let reason = task.give(row(text, true)).reason;
            let expected = match known {
                None => Reason::First,
                Some(known) if number > known => Reason::Newer,
                Some(_) => Reason::VersionOlder,
            };
            assert_eq!(reason, expected, "{text} as {kind}");
            known = known.max(Some(number));
            assert_eq!(task.partition(0).0.version(), Some(number.to_string()), "{text} as {kind}");
        }
        assert_eq!(task.give(row("ASw=", true)).reason, Reason::VersionEqual);
    }
}

/// A slash may be written with an escape in JSON: `\/w==` is `/w==`.
#[test]
fn decimal_whose_base64_is_escaped_is_a_version() {
    let raw = |base64: &str| {
        let schema = schema("REVISION", 0);
        let value = format!(r#"{{"schema": {schema}, "payload": {{"ID": 1, "REVISION": "{base64}"}}}}"#);
        Given { value: Some(value.into_bytes()), ..row("AQ==", true) }
    };
    for kind in ["integer", "decimal"] {
        let mut task = Task::of(&topology(kind));
        assert_eq!(task.reasons([raw(r"\/w=="), raw(r"\u0041Q==")]), [Reason::First, Reason::Newer], "{kind}");
        assert_eq!(task.partition(0).0.version(), Some("1".to_owned()));
        assert_eq!(task.reasons([raw("/w==")]), [Reason::VersionOlder], "{kind}");
    }
}

/// A scale's zeros are no fraction; another fraction is no integer.
#[test]
fn decimal_with_places_is_an_integer_only_if_it_is_one() {
    let row = |text: &str| {
        let payload = json!({"ID": 1, "REVISION": text});
        keyed(json!({"ID": 1}), json!({"schema": schema("REVISION", 2), "payload": payload}))
    };
    let mut task = Task::of(&topology("integer"));
    assert_eq!(task.reasons([row("ASw="), row("ASs=")]), [Reason::First, Reason::VersionMalformed]);
    assert_eq!(task.partition(0).0.rejection().map(|why| why.message.contains("base64")), Some(false));
    let mut task = Task::of(&topology("decimal"));
    assert_eq!(
        task.reasons([row("ASs="), row("ASw="), row("ASs=")]),
        [Reason::First, Reason::Newer, Reason::VersionOlder]
    );
}

#[test]
fn base64_without_a_schema_is_refused_as_a_version_and_says_what_to_set() {
    for kind in ["integer", "decimal", "timestamp"] {
        let mut task = Task::of(&topology(kind));
        assert_eq!(task.give(row("Pw==", false)).reason, Reason::VersionMalformed);
        let why = task.partition(0).0.rejection().expect("it is refused").message.clone();
        assert!(why.contains("decimal.handling.mode=string") && why.contains("schemas.enable=true"), "{why}");
        // What is no base64 gets no advice about it.
        task.give(row("12:30", false));
        let why = task.partition(0).0.rejection().expect("it is refused").message.clone();
        assert!(!why.contains("decimal.handling"), "{why}");
    }
    let mut task = Task::of(&topology("integer"));
    assert_eq!(task.give(row("Pw==x", true)).reason, Reason::VersionMalformed);
    let why = task.partition(0).0.rejection().expect("it is refused").message.clone();
    assert!(why.contains("is not the decimal that the record's schema says"), "{why}");
}

const TABLE: &str = "preset: debezium-postgres@2\n\
                     sink: {postgres: {url: 'postgres://db/shop', table: {name: t, key: [id]}}}\n";

/// What a record causes: the parameters of its only call.
fn caused(topology: &str, value: Value) -> Result<Vec<Option<String>>, String> {
    let topology = load(topology).unwrap_or_else(|diagnostics| panic!("{}", diagnostics.render(false))).topology;
    let (mut model, mut rehearser) = (Model::new(topology.rules.clone()), Rehearser::new(&topology));
    let (given, headers) = (keyed(json!({"id": 1}), value), Given::default().headers);
    let record = Record {
        topic: "in",
        partition: 0,
        offset: 0,
        timestamp: Some(0),
        key: given.key.as_deref(),
        value: given.value.as_deref(),
        headers: headers.as_headers(),
    };
    let decision = rehearser.judge(&mut model, &record, 7_000_000_000_000, Answer::Done);
    if decision.verdict != Verdict::Forwarded {
        return Err(model.rejection().map(|why| why.message.clone()).unwrap_or_default());
    }
    Ok(rehearser.called().remove(0).with)
}

fn envelope(row: Value, fields: Value) -> Value {
    let row_schema = json!({"type": "struct", "optional": true, "field": "after", "fields": fields});
    let source = json!({"name": "shop", "db": "d", "schema": "s", "table": "t", "lsn": 10});
    json!({
        "schema": {"type": "struct", "fields": [row_schema, {"type": "string", "field": "op"}]},
        "payload": {"before": null, "after": row, "op": "c", "source": source},
    })
}

#[test]
fn row_of_a_table_has_what_its_schema_says() {
    let fields = json!([
        {"type": "int32", "field": "id"},
        {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        {"type": "int32", "field": "day", "name": "io.debezium.time.Date"},
        {"type": "int64", "field": "at", "name": "io.debezium.time.MicroTimestamp"},
        {"type": "string", "field": "zoned", "name": "io.debezium.time.ZonedTimestamp"}]);
    let row = json!({"id": 1, "price": "1234", "day": 19_000, "at": 1_500_000, "zoned": "2026-01-31T10:00:00Z"});
    let with = caused(TABLE, envelope(row.clone(), fields.clone())).expect("it is forwarded");
    let [Some(written)] = &with[..] else { panic!("{with:?}") };
    assert!(written.contains("\"price\":-26588.24"), "{written}");
    for words in [r#""day":"2022-01-08""#, r#""at":"1970-01-01T00:00:01.5""#, r#""zoned":"2026-01-31T10:00:00Z""#] {
        assert!(written.contains(words), "{written}");
    }
    // Without its schema the row stays as it is: the database is told what may not be taken for a number.
    let plain = caused(TABLE, envelope(row, fields)["payload"].clone()).expect("it is forwarded");
    assert!(plain[0].as_ref().is_some_and(|row| row.contains("\"price\":\"1234\"")), "{plain:?}");
}

#[test]
fn parameter_of_a_statement_is_what_its_schema_says() {
    let statements = "preset: debezium-postgres@2\nsink: {postgres: {url: 'postgres://db/shop', statements: [{sql: 'select $1, \
                      $2, $3', with: [value.after.price, value.after.any, {first_of: [value.after.no, value.after.at]}]}]}}\n";
    let fields = json!([
        {"type": "bytes", "field": "price", "name": "org.apache.kafka.connect.data.Decimal", "parameters": {"scale": "2"}},
        {"type": "struct", "field": "any", "name": "io.debezium.data.VariableScaleDecimal"},
        {"type": "int64", "field": "at", "name": "org.apache.kafka.connect.data.Timestamp"}]);
    let row = json!({"id": 1, "price": "1234", "any": {"scale": 1, "value": "BQ=="}, "at": 0});
    let with = caused(statements, envelope(row, fields.clone())).expect("it is forwarded");
    let texts = ["-26588.24", "0.5", "1970-01-01T00:00:00Z"].map(|text| Some(text.to_owned()));
    assert_eq!(with, texts);
    let why = caused(statements, envelope(json!({"id": 1, "price": "12.50"}), fields)).expect_err("it is refused");
    assert!(why.contains("parameter $1 (`value.after.price`)") && why.contains("schema says"), "{why}");
    assert!(!why.contains("12.50"), "{why}");
}
