//! Goal: a record has the same identity and version in each format, and errors say what is wrong.

use std::sync::Arc;

use crate::dedup::vocabulary::VersionKind;
use crate::dedup::{
    Contents, ContentsPart, Field, Fields, Format, Identity, Path, Reader, Reading, Rules, Version, VersionPart,
    Wanted, describe_identity,
};
use crate::record::{HeaderBuf, Record};
use crate::schemas::{Id, Language, LookUp, Schemas, Sources, Written};

const AVRO: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"},
    {"name": "note", "type": ["null", "string"], "default": null},
    {"name": "price", "type": {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2}},
    {"name": "at", "type": {"type": "long", "logicalType": "timestamp-micros"}}]}"#;
const PROTOBUF: &str = r#"
    syntax = "proto3";
    package shop;
    message Order { int64 id = 1; optional string note = 2; message Line { string sku = 1; } }
    message Refund { int64 id = 1; }"#;
const FLATTENED: &str = r#"{"type": "record", "name": "Order", "fields": [
    {"name": "id", "type": "long"}, {"name": "__op", "type": "string"}]}"#;

/// Has the schemas below; any other is pending, except [`ABSENT`].
#[derive(Debug)]
struct Registry;

const ABSENT: Id = Id::Number(404);

impl Schemas for Registry {
    fn look_up(&self, id: &Id) -> LookUp {
        let (language, text) = match *id {
            Id::Number(1) => (Language::Avro, AVRO),
            Id::Number(2) => (Language::Protobuf, PROTOBUF),
            Id::Number(3) => (Language::JsonSchema, "{}"),
            Id::Number(4) => (Language::Avro, r#"{"type": "record"}"#),
            Id::Number(5) => (Language::Avro, FLATTENED),
            Id::Number(6) => (Language::Protobuf, "message Order { optional int64 id = 1; optional string __op = 2; }"),
            ABSENT => return LookUp::Absent(format!("{id} does not exist")),
            _ => return LookUp::Pending,
        };
        LookUp::Known(Arc::new(Written::alone(language, text)))
    }
}

fn sources() -> Sources {
    Sources { list: vec![Arc::new(Registry)], ..Sources::default() }
}

fn rules(format: Format) -> Rules {
    let path = |text: &str| Path::parse(text).unwrap();
    let mut rules = Rules::new(Identity::of_paths([path("value.id"), path("value.note")]), None);
    rules.value_format = format;
    rules.contents = None;
    rules
}

fn record(value: &[u8]) -> Record<'_> {
    Record {
        topic: "in",
        partition: 0,
        offset: 0,
        timestamp: None,
        key: None,
        value: Some(value),
        headers: Default::default(),
    }
}

/// The identity of a record, or why it has none.
fn identity(format: Format, value: &[u8]) -> Result<String, String> {
    let mut arena = Vec::new();
    match Reader::with_schemas(Arc::new(rules(format)), &sources()).read(&record(value), &mut arena) {
        Reading::Row(row) => Ok(describe_identity(&arena[row.key])),
        Reading::Rows(_) => unreachable!("there are no rows"),
        Reading::Rejected(rejection) => Err(rejection.message),
        Reading::Pending(id) => Err(format!("pending: {id}")),
    }
}

fn framed(id: u8, payload: &[u8]) -> Vec<u8> {
    [&[0, 0, 0, 0, id][..], payload].concat()
}

/// The order 7 with a note, a price of 12.50 and the time 1 s after 1970.
fn avro() -> Vec<u8> {
    framed(1, &[&[14, 2, 4][..], b"hi", &[4, 0x04, 0xE2], &[0x80, 0x89, 0x7A]].concat())
}

#[test]
fn identity_is_the_same_in_each_format() {
    let protobuf = framed(2, &[0, 8, 7, 18, 2, b'h', b'i']);
    let json_schema = framed(3, br#"{"note": "hi", "id": 7}"#);
    let expected = Ok(r#"[7,"hi"]"#.to_owned());
    assert_eq!(identity(Format::Json, br#"{"id": 7.0, "note": "h\u0069"}"#), expected);
    for (format, value) in [(Format::Avro, avro()), (Format::Protobuf, protobuf), (Format::JsonSchema, json_schema)] {
        assert_eq!(identity(format, &value), expected, "{format}");
        assert_eq!(identity(Format::Auto, &value), expected, "{format}");
    }
    assert_eq!(identity(Format::Auto, br#"{"id": 7, "note": "hi"}"#), expected, "JSON without a schema");
}

/// As with a preset, whose records are wrapped in JSON.
#[test]
fn json_without_an_id_is_read_as_the_rules_say() {
    let mut rules = rules(Format::Auto);
    rules.json_format = Format::ConnectJson;
    let mut arena = Vec::new();
    let value = br#"{"schema": null, "payload": {"id": 7, "note": {"string": "hi"}}}"#;
    let reading = Reader::with_schemas(Arc::new(rules), &sources()).read(&record(value), &mut arena);
    assert_eq!(describe_identity(&arena[reading.rows()[0].key.clone()]), r#"[7,"hi"]"#);
}

#[test]
fn protobuf_message_is_the_one_that_the_record_names() {
    let note = "`value.note`, a part of the identity, is missing or null";
    assert_eq!(identity(Format::Protobuf, &framed(2, &[2, 2, 8, 7])), Err(note.to_owned()), "the second message");
    let none = "the value cannot be read: schema 2 has no message with the indexes [4], which the record names";
    assert_eq!(identity(Format::Protobuf, &framed(2, &[2, 8, 8, 7])), Err(none.to_owned()));
}

#[test]
fn errors_say_what_is_wrong() {
    for (format, value, expected) in [
        (Format::Avro, framed(9, &[]), "pending: schema 9"),
        (
            Format::Avro,
            b"{}".to_vec(),
            "the value cannot be read by a schema: no schema id: the bytes begin with 7B 7D",
        ),
        (Format::Avro, framed(3, b"{}"), "the value cannot be read: schema 3 is one of JSON Schema, not of Avro"),
        (Format::Avro, framed(4, &[]), "the value cannot be read: schema 4 cannot be used: "),
        (Format::Avro, framed(1, &[14, 2, 4, b'h']), "the value is not a record of schema 1: "),
        (Format::JsonSchema, framed(3, b"{"), "the value cannot be read as JSON: "),
        (Format::Auto, b"[".to_vec(), "the value cannot be read as JSON: "),
        (Format::Auto, vec![0, 0, 0, 1, 0x94], "the value cannot be read: schema 404 does not exist"),
    ] {
        let message = identity(format, &value).unwrap_err();
        assert!(message.starts_with(expected), "{format}: {message}");
    }
}

#[test]
fn decimals_and_timestamps_are_read_by_the_schema() {
    let version = |path: &str, kind| {
        let part = VersionPart::new(Path::parse(path).unwrap(), kind);
        let mut rules = rules(Format::Avro);
        rules.version = Some(Version { parts: vec![part] });
        let mut arena = Vec::new();
        let value = avro();
        let mut reader = Reader::with_schemas(Arc::new(rules.clone()), &sources());
        let reading = reader.read(&record(&value), &mut arena);
        let range = reading.rows()[0].version.clone().expect("it is there");
        reader.describe_version(&arena[range])
    };
    assert_eq!(version("value.price", VersionKind::Decimal), "12.5");
    // The unit of the schema takes precedence over that of the rules, the millisecond.
    assert_eq!(version("value.at", VersionKind::Timestamp), r#""1970-01-01T00:00:01Z""#);
}

#[test]
fn fields_and_whole_values_are_written_as_json() {
    let mut wanted = Wanted::default();
    let [price, whole] = ["value.price", "value"].map(|path| wanted.scalar(Path::parse(path).unwrap()));
    let mut fields = Fields::new(&rules(Format::Avro), &sources(), &wanted);
    let value = avro();
    let record = record(&value);
    fields.scan(&record).unwrap();
    assert_eq!(fields.get(price, &record), Field::Number(b"12.50"));
    let mut out = Vec::new();
    assert_eq!(fields.write(whole, &record, &mut out), Ok(true));
    let at = r#"{"id":7,"note":"hi","price":12.50,"at":"1970-01-01T00:00:01Z"}"#;
    assert_eq!(String::from_utf8(out).unwrap(), at);
}

#[test]
fn id_in_a_header_counts() {
    let mut headers = HeaderBuf::default();
    headers.push(b"__value_schema_id", Some(&[0, 0, 0, 0, 1]));
    let value = avro();
    let record = Record { headers: headers.as_headers(), ..record(&value[5..]) };
    let mut arena = Vec::new();
    let mut reader = Reader::with_schemas(Arc::new(rules(Format::Auto)), &sources());
    let reading = reader.read(&record, &mut arena);
    assert_eq!(describe_identity(&arena[reading.rows()[0].key.clone()]), r#"[7,"hi"]"#);
}

#[test]
fn digest_of_rules_stays_when_a_topic_changes_to_schemas() {
    let json = rules(Format::Json);
    for format in [Format::Avro, Format::Protobuf, Format::JsonSchema, Format::Auto] {
        assert_eq!(rules(format).digest(), json.digest(), "{format}");
    }
    let wrapped = Rules { json_format: Format::ConnectJson, ..rules(Format::Avro) };
    assert_eq!(wrapped.digest(), rules(Format::ConnectJson).digest());
    assert_ne!(wrapped.digest(), json.digest());
}

/// More schemas than are kept: each is compiled again when it comes back.
#[test]
fn many_schemas_take_bounded_memory() {
    #[derive(Debug)]
    struct Many;
    impl Schemas for Many {
        fn look_up(&self, _: &Id) -> LookUp {
            LookUp::Known(Arc::new(Written::alone(Language::Avro, AVRO)))
        }
    }
    let sources = Sources { list: vec![Arc::new(Many)], ..Sources::default() };
    let steps = [vec!["id".to_owned()]];
    let paths: Vec<&[String]> = steps.iter().map(Vec::as_slice).collect();
    let mut document = super::BySchema::new(
        Format::Avro,
        false,
        &paths,
        super::JsonLimits { depth_max: 8, is_wrapped: false },
        sources,
    );
    let payload = avro()[5..].to_vec();
    for round in 0..2 {
        for number in 0..super::PLANS_MAX as u32 + 10 {
            let bytes = [&[0][..], &number.to_be_bytes(), &payload].concat();
            document.read(&bytes, Default::default()).unwrap();
            assert_eq!(document.json(&bytes), b"7", "round {round}, schema {number}");
        }
    }
    assert_eq!((document.plans.known.len(), document.plans.hashes.len()), (super::PLANS_MAX, super::PLANS_MAX));
}

/// By default, the bytes of contents are compared, which include the schema's id.
#[test]
fn fingerprints_are_the_same_whatever_the_format_is() {
    let digest = |format, value: &[u8]| {
        let mut rules = rules(format);
        let of = Path::parse("value").unwrap();
        rules.contents = Some(Contents { parts: vec![ContentsPart::Fingerprint { of, except: Vec::new() }] });
        let mut arena = Vec::new();
        let reading = Reader::with_schemas(Arc::new(rules), &sources()).read(&record(value), &mut arena);
        reading.rows()[0].contents.expect("contents are compared")
    };
    let json = br#"{"note": "hi", "id": 7, "at": 1000000, "price": 12.5}"#;
    assert_eq!(digest(Format::Avro, &avro()), digest(Format::Json, json));
    assert_eq!(digest(Format::JsonSchema, &framed(3, json)), digest(Format::Json, json));
}

/// As in presets for change data capture, whose connectors may flatten records.
#[test]
fn whole_documents_are_written_for_flattened_contents_only_if_they_may_be_flattened() {
    let path = |text: &str| Path::parse(text).unwrap();
    let flattened = ContentsPart::Flattened(path("value"));
    let parts = vec![ContentsPart::FirstOf(vec![flattened.clone(), ContentsPart::Written(path("value.id"))])];
    let rules_of = |format, parts: &[ContentsPart]| {
        let mut rules = Rules::new(Identity::of_paths([path("value.id")]), None);
        (rules.value_format, rules.contents) = (format, Some(Contents { parts: parts.to_vec() }));
        Arc::new(rules)
    };
    let read = |format, parts: &[ContentsPart], value: &[u8]| {
        let (mut reader, mut arena) = (Reader::with_schemas(rules_of(format, parts), &sources()), Vec::new());
        let digest = reader.read(&record(value), &mut arena).rows()[0].contents.expect("contents are compared");
        (digest, reader.value.expect("places of the value are wanted").json(value).to_vec())
    };
    let json = |text: &str| read(Format::Json, &parts, text.as_bytes()).0;
    assert_eq!(read(Format::Avro, &parts, &avro()), (json(r#"{"id": 7, "note": "hi"}"#), b"7".to_vec()));
    let protobuf = framed(2, &[0, 8, 7, 18, 2, b'h', b'i']);
    assert_eq!(read(Format::Protobuf, &parts, &protobuf), (json(r#"{"id": 7, "note": "hi"}"#), b"7".to_vec()));
    let text = r#"{"id":7,"__op":"u"}"#;
    for (format, value) in
        [(Format::Avro, framed(5, &[14, 2, b'u'])), (Format::Protobuf, framed(6, &[0, 8, 7, 18, 1, b'u']))]
    {
        let (digest, written) = read(format, &parts, &value);
        assert!(digest == json(text) && written.starts_with(text.as_bytes()), "{format}");
    }
    // The same document may be wanted for another reason.
    let both = [parts[0].clone(), ContentsPart::Fingerprint { of: path("value"), except: Vec::new() }];
    let (digest, written) = read(Format::Protobuf, &both, &protobuf);
    assert!(written.starts_with(br#"{"id":7,"note":"hi"}"#));
    assert_eq!(digest, read(Format::Json, &both, br#"{"note": "hi", "id": 7}"#).0);
}
