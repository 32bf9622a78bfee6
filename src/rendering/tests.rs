//! Goal: a record's effects are those that its topology says, text for text; one that cannot be rendered leaves nothing.

use std::path::Path as FilePath;
use std::sync::Arc;

use super::*;
use crate::dedup::Reader;
use crate::record::{HeaderBuf, Headers};
use crate::yaml_testing::Fake;

const BEGIN: &str = "name: t\ninput: {topics: [in]}\nidentity: value.id\npartitioned_by_identity: true\n";
const CDC: &str = "name: t\ninput: {topics: [in]}\npreset: debezium-postgres@2\n";

fn load(text: &str) -> Topology {
    let environment = Fake::default().with_file("t.yaml", text);
    let loaded = crate::topology::load(FilePath::new("t.yaml"), &environment);
    loaded.unwrap_or_else(|diagnostics| panic!("{text}\n{}", diagnostics.render(false))).topology
}

fn sink(begin: &str, lines: &str) -> Topology {
    load(&format!("{begin}sink: {{postgres: {{url: 'postgres://db/shop', {lines}}}}}\n"))
}

fn record<'a>(key: Option<&'a str>, value: Option<&'a str>) -> Record<'a> {
    Record {
        topic: "in",
        partition: 0,
        offset: 7,
        timestamp: Some(1),
        key: key.map(str::as_bytes),
        value: value.map(str::as_bytes),
        headers: Headers::default(),
    }
}

type Calls = Vec<(u32, Vec<Option<String>>)>;

/// What a record causes.
fn rendered(topology: &Topology, record: &Record<'_>) -> Result<Calls, String> {
    let (mut arena, mut effects) = (Vec::new(), Effects::default());
    let reading = Reader::new(Arc::clone(&topology.rules)).read(record, &mut arena);
    let mut renderer = Renderer::new(topology).expect("it has a sink");
    let done = renderer.render(record, reading.rows(), &arena, &mut effects);
    assert!(done.is_ok() || effects.is_empty() && effects.byte_len() == 0, "nothing is left");
    done?;
    let text = |text: Option<&str>| text.map(str::to_owned);
    let calls = |effect: crate::effect::Effect<'_>| -> Calls {
        effect.calls().map(|call| (call.statement(), call.parameters().map(text).collect())).collect()
    };
    assert_eq!(effects.len(), 1);
    Ok(calls(effects.get(0)))
}

fn texts(all: &[Option<&str>]) -> Vec<Option<String>> {
    all.iter().map(|text| text.map(str::to_owned)).collect()
}

#[test]
fn parameters_are_the_texts_that_stand_in_the_record() {
    let with = "[value.id, value.n, value.none, value.o, {first_of: [value.none, value.b]}, {const: 1.50}, {const: 'a '}, \
                meta.topic, meta.partition, meta.offset, meta.timestamp, key, header.h]";
    let text =
        "statements: [{sql: 'select $1,$2,$3,$4,$5,$6,$7,$8,$9,$10,$11,$12,$13', with: WITH}, {sql: 'select 1'}]";
    let topology = sink(BEGIN, &text.replace("WITH", with));
    let mut headers = HeaderBuf::default();
    headers.push(b"h", Some("ä".as_bytes()));
    let value = r#"{"id": "a\"\n\u00e4", "n": 1e400, "none": null, "o": [1, {"a":  2}], "b": true}"#;
    let record = Record { headers: headers.as_headers(), ..record(Some("k"), Some(value)) };
    let expected = [
        Some("a\"\nä"),
        Some("1e400"),
        None,
        Some(r#"[1, {"a":  2}]"#),
        Some("true"),
        Some("1.50"),
        Some("a "),
        Some("in"),
        Some("0"),
        Some("7"),
        Some("1"),
        Some("k"),
        Some("ä"),
    ];
    assert_eq!(rendered(&topology, &record), Ok(vec![(0, texts(&expected)), (1, vec![])]));
}

#[test]
fn texts_that_postgres_cannot_take_are_named_without_their_content() {
    let topology = sink(BEGIN, "statements: [{sql: 'select $1, $2', with: [value.id, key]}]");
    for (key, value, words) in [
        (&b"\xff"[..], &br#"{"id": 1}"#[..], "parameter $2 (`key`): it is not UTF-8"),
        (b"a\0b", br#"{"id": 1}"#, "parameter $2 (`key`): there is a NUL"),
        (b"k", br#"{"id": "hunter\u0000"}"#, "parameter $1 (`value.id`): there is a NUL"),
    ] {
        let record = Record { key: Some(key), value: Some(value), ..record(None, None) };
        let problem = rendered(&topology, &record).unwrap_err();
        assert!(problem.contains(words) && !problem.contains("hunter"), "{problem}");
    }
    // Within JSON, PostgreSQL decides: `json` takes it, `jsonb` does not.
    let topology = sink(BEGIN, "statements: [{sql: 'select $1', with: [value.o]}]");
    let inside = rendered(&topology, &record(None, Some(r#"{"id": 1, "o": ["\u0000"]}"#))).unwrap();
    assert_eq!(inside, [(0, texts(&[Some(r#"["\u0000"]"#)]))]);
}

#[test]
fn value_that_is_not_read_for_the_identity_is_checked_all_the_same() {
    let begin = "name: t\ninput: {topics: [in]}\nidentity: key\n";
    let topology = sink(begin, "statements: [{sql: 'select $1', with: [value.id]}]");
    let problem = rendered(&topology, &record(Some("k"), Some("{"))).unwrap_err();
    assert!(problem.contains("the value cannot be read as JSON"), "{problem}");
}

/// The statements of a kept table: upsert, delete, truncate.
fn table(begin: &str, more: &str) -> Topology {
    sink(begin, &format!("table: {{name: accounts, key: [id]{more}}}"))
}

const ENVELOPE: &str = r#"{"before": BEFORE, "after": AFTER, "op": "OP", "source": {"lsn": 5, "name": "s", "db": "d", "schema": "p", "table": "accounts"}}"#;

fn envelope(op: &str, before: &str, after: &str) -> String {
    ENVELOPE.replace("BEFORE", before).replace("AFTER", after).replace("OP", op)
}

#[test]
fn table_follows_a_captured_one_by_kind() {
    let topology = table(CDC, "");
    let key = Some(r#"{"id": 1}"#);
    let row = r#"{"id": 1, "name": "a"}"#;
    let call = |value: String| rendered(&topology, &record(key, Some(&value)));
    let one = |statement, row: &str| Ok(vec![(statement, texts(&[Some(row)]))]);
    assert_eq!(call(envelope("c", "null", row)), one(0, row));
    assert_eq!(call(envelope("r", "null", row)), one(0, row));
    assert_eq!(call(envelope("u", row, row)), one(0, row));
    assert_eq!(call(envelope("d", row, "null")), one(1, row));
    // Where the row before is not known, the key is.
    assert_eq!(call(envelope("d", "null", "null")), one(1, r#"{"id": 1}"#));
    assert_eq!(call(envelope("d", r#"{"id": null, "name": "a"}"#, "null")), one(1, r#"{"id": 1}"#));
    assert_eq!(call(envelope("t", "null", "null")), Ok(vec![(2, vec![])]));
    assert_eq!(call(envelope("m", "null", "null")), Ok(vec![]), "a message has no row");
    assert_eq!(rendered(&topology, &record(key, None)), Ok(vec![]), "a tombstone has no effect");
}

#[test]
fn table_takes_flattened_rows_and_wrapped_ones() {
    let topology = table(CDC, "");
    let flat = r#"{"id": 1, "name": "a", "__op": "u", "__lsn": 5}"#;
    let one = |statement, row: &str| Ok(vec![(statement, texts(&[Some(row)]))]);
    let key = Some(r#"{"schema": null, "payload": {"id": 1}}"#);
    assert_eq!(rendered(&topology, &record(key, Some(flat))), one(0, flat));
    let gone = r#"{"id": 1, "__deleted": "true", "__op": "d", "__lsn": 6}"#;
    assert_eq!(rendered(&topology, &record(key, Some(gone))), one(1, r#"{"id": 1}"#));
    let wrapped = format!(r#"{{"schema": {{}}, "payload": {}}}"#, envelope("c", "null", r#"{"id": 1}"#));
    assert_eq!(rendered(&topology, &record(key, Some(&wrapped))), one(0, r#"{"id": 1}"#));
}

/// A text that the record's schema says is one cannot be a number in base64: that is said beside the row.
#[test]
fn schema_that_says_which_fields_are_texts_is_passed_on() {
    let topology = table(CDC, "");
    let texts = |key: &str, value: &str| {
        let (mut arena, mut effects, record) = (Vec::new(), Effects::default(), record(Some(key), Some(value)));
        let reading = Reader::new(Arc::clone(&topology.rules)).read(&record, &mut arena);
        Renderer::new(&topology).unwrap().render(&record, reading.rows(), &arena, &mut effects).unwrap();
        let call = effects.get(0).calls().next().expect("it calls");
        let row = call.parameters().next().flatten().map(str::to_owned);
        (row, call.texts().map(str::to_owned))
    };
    let row = r#"{"id": "1234", "price": "1234", "data": "1234"}"#;
    let fields = r#"{"type": "string", "field": "id"}, {"type": "string", "field": "price"}, {"type": "bytes", "field": "data"}"#;
    let of = |fields: &str| format!(r#"{{"type": "struct", "fields": [{fields}]}}"#);
    let after = format!(r#"{{"type": "struct", "field": "after", "fields": [{fields}]}}"#);
    let wrap = |schema: &str, payload: &str| format!(r#"{{"schema": {schema}, "payload": {payload}}}"#);
    let (key, change) = (r#"{"id": "1234"}"#, envelope("c", "null", row));
    let there = |names: &str| Some(names.to_owned());
    assert_eq!(texts(key, &change), (there(row), None), "nothing says what the texts are");
    assert_eq!(texts(key, &wrap("null", &change)), (there(row), None));
    assert_eq!(texts(key, &wrap(&of(&after), &change)), (there(row), there(r#"["id","price"]"#)));
    // A delete's row is the key here, which has a schema of its own.
    let (delete, key_schema) = (envelope("d", "null", "null"), of(r#"{"type": "string", "field": "id"}"#));
    assert_eq!(texts(key, &wrap(&of(&after), &delete)), (there(key), None));
    assert_eq!(texts(&wrap(&key_schema, key), &delete), (there(key), there(r#"["id"]"#)));
}

/// A null value that is a delete names its row by its key.
#[test]
fn null_that_is_a_delete_deletes_the_row_of_its_key() {
    let begin = "name: t\ninput: {topics: [in], key_format: json}\nidentity: key.id\n\
                 version: {of: meta.offset, as: integer}\non_null_value: delete\n";
    let topology = table(begin, "");
    let (key, row) = (r#"{"id": 1}"#, r#"{"id": 1, "name": "a"}"#);
    assert_eq!(rendered(&topology, &record(Some(key), Some(row))), Ok(vec![(0, texts(&[Some(row)]))]));
    assert_eq!(rendered(&topology, &record(Some(key), None)), Ok(vec![(1, texts(&[Some(key)]))]));
}

#[test]
fn plain_values_are_rows() {
    let begin = format!("{BEGIN}version: {{of: value.v, as: integer}}\n");
    let row = r#"{"id": 1, "v": 2, "name": "a"}"#;
    let expected = |row: &str| Ok(vec![(0, texts(&[Some(row)]))]);
    assert_eq!(rendered(&table(&begin, ""), &record(None, Some(row))), expected(row));
    let inside = format!(r#"{{"id": 1, "v": 2, "row": {row}}}"#);
    assert_eq!(rendered(&table(&begin, ", of: value.row"), &record(None, Some(&inside))), expected(row));
}

#[test]
fn row_without_its_key_is_refused() {
    let begin = "name: t\ninput: {topics: [in]}\nidentity: key\nversion: {of: value.v, as: integer}\n";
    let topology = table(begin, "");
    for value in [r#"{"v": 1}"#, r#"{"v": 1, "id": null}"#] {
        let problem = rendered(&topology, &record(Some("k"), Some(value))).unwrap_err();
        assert!(problem.contains("the row (`value`)") && problem.contains("key"), "{problem}");
    }
}

#[test]
fn outbox_id_is_the_same_for_a_repetition_and_for_nothing_else() {
    let outbox = "outbox: {aggregate_type: {const: order}, aggregate_id: value.id, type: {const: Placed}}";
    let topology = sink(&format!("{BEGIN}version: {{of: value.v, as: integer}}\n"), outbox);
    let row = |topology: &Topology, record: &Record<'_>| {
        let calls = rendered(topology, record).unwrap();
        let [(0, parameters)] = &calls[..] else { panic!("{calls:?}") };
        parameters.clone().into_iter().map(Option::unwrap).collect::<Vec<_>>()
    };
    let value = r#"{"id": 1, "v": 2}"#;
    let first = row(&topology, &record(None, Some(value)));
    assert_eq!(first[1..], ["order", "1", "Placed", value]);
    let id = &first[0];
    assert_eq!((id.len(), &id[14..15]), (36, "8"), "{id}");
    assert!("89ab".contains(&id[19..20]), "{id}");
    // Another implementation would have to give the same one for ever.
    assert_eq!(id, ID);
    let again = Record { offset: 8, partition: 3, ..record(None, Some(value)) };
    assert_eq!(&row(&topology, &again)[0], id);
    let others = [r#"{"id": 2, "v": 2}"#, r#"{"id": 1, "v": 3}"#, r#"{"id": 1}"#];
    for other in others {
        assert_ne!(&row(&topology, &record(None, Some(other)))[0], id);
    }
    let renamed = Topology { name: "u".to_owned(), ..topology.clone() };
    assert_ne!(&row(&renamed, &record(None, Some(value)))[0], id);
    // Without a version each record passes, so each has an id of its own.
    let unversioned = record(None, Some(r#"{"id": 1}"#));
    let elsewhere = Record { offset: 9, ..unversioned };
    assert_ne!(row(&topology, &unversioned)[0], row(&topology, &elsewhere)[0]);
}

const ID: &str = "5debf9d8-0adb-8a45-8e32-797609607af8";

#[test]
fn inbox_knows_what_has_no_effect_and_tells_scopes_apart() {
    let lines = "dedup: inbox, on: {change: [{sql: 'select 1'}]}";
    let begin =
        format!("{BEGIN}version: {{of: value.v, as: integer}}\nepoch: value.e\nkinds: {{of: value.op, delete: [d]}}\n");
    let topology = sink(&begin, lines);
    let identity = |value: &str| {
        let (mut arena, mut effects, record) = (Vec::new(), Effects::default(), record(None, Some(value)));
        let reading = Reader::new(Arc::clone(&topology.rules)).read(&record, &mut arena);
        let row = only_row(reading.rows()).unwrap();
        Renderer::new(&topology).unwrap().render(&record, reading.rows(), &arena, &mut effects).unwrap();
        let effect = effects.get(0);
        assert!(effect.identity().starts_with(&arena[row.key.clone()]));
        (effect.identity().to_vec(), effect.version().map(<[u8]>::to_vec), effect.calls().len())
    };
    let (one, version, calls) = identity(r#"{"id": 1, "v": 2, "e": "a"}"#);
    assert!(version.is_some() && calls == 1);
    assert_eq!(identity(r#"{"id": 1, "v": 3, "e": "a", "op": "d"}"#).2, 0, "known, without an effect");
    assert_eq!(identity(r#"{"id": 1, "v": 3, "e": "a"}"#).0, one);
    assert_ne!(identity(r#"{"id": 1, "v": 2, "e": "b"}"#).0, one);
}

#[test]
fn record_of_several_rows_is_refused_in_words() {
    let topology = load("name: t\ninput: {topics: [in]}\npreset: canal@1\noutput: {topic: out}\n");
    let value = r#"{"data": [{"id": "1"}, {"id": "2"}], "pkNames": ["id"], "database": "d", "table": "t", "es": 1, "id": 1, "type": "INSERT"}"#;
    let reading = Reader::new(topology.rules).read(&record(None, Some(value)), &mut Vec::new());
    assert_eq!(only_row(reading.rows()), Err("the record has 2 rows, and a sink takes records of one row".to_owned()));
}

#[test]
fn constants_are_known_without_a_record() {
    let with = "[value.id, {const: 1.50}, {const: 'a '}]";
    let topology = sink(BEGIN, &format!("statements: [{{sql: 'select $1,$2,$3', with: {with}}}, {{sql: 'select 1'}}]"));
    assert_eq!(constants(&topology), [texts(&[None, Some("1.50"), Some("a ")]), vec![]]);
}
