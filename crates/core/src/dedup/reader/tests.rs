//! Goal: every kind of place is read, every fault is refused with its reason, and a refused record leaves nothing
//! behind.

use proptest::prelude::*;

use super::*;
use crate::dedup::tests::{record, rules};
use crate::dedup::{Format, Identity, Number, Path, Scalar, Source, Version, describe_identity};
use crate::record::HeaderBuf;

mod forms;

fn read(rules: Rules, record: &Record<'_>) -> Result<(String, Option<String>), Rejection> {
    let mut arena = b"what was there before".to_vec();
    let before = arena.clone();
    let mut reader = Reader::new(Arc::new(rules));
    match reader.read(record, &mut arena) {
        Reading::Row(row) => {
            assert!(arena.starts_with(&before) && row.key.start == before.len());
            let version = row.version.map(|range| reader.describe_version(&arena[range]));
            Ok((describe_identity(&arena[row.key]), version))
        }
        Reading::Rows(_) | Reading::Pending(_) => panic!("neither of several rows nor by a schema"),
        Reading::Rejected(rejection) => {
            assert_eq!(arena, before);
            Err(rejection)
        }
    }
}

fn identity(rules: Rules, record: &Record<'_>) -> String {
    read(rules, record).unwrap().0
}

fn reason(rules: Rules, record: &Record<'_>) -> Reason {
    read(rules, record).unwrap_err().reason
}

#[test]
fn every_source_is_read() {
    let mut headers = HeaderBuf::default();
    headers.push(b"id", Some(b"first"));
    headers.push(b"id", Some(b"last"));
    let record = Record {
        timestamp: Some(77),
        key: Some(br#"{"id":{"n":1.0}}"#),
        headers: headers.as_headers(),
        ..record(9, br#"{"a":[true,"x"]}"#)
    };
    let all = ["key", "value", "header.id", "key.id.n", "value.a.1", "value.a.0"];
    let mut rules_ = rules(&all, Some("meta.offset"));
    rules_.key_format = Format::Json;
    let raw = r#"["{\"id\":{\"n\":1.0}}","{\"a\":[true,\"x\"]}","last",1,"x",true]"#;
    assert_eq!(read(rules_, &record), Ok((raw.to_owned(), Some("9".to_owned()))));
    let meta = rules(&["meta.topic", "meta.partition", "meta.offset", "meta.timestamp"], None);
    assert_eq!(identity(meta, &record), r#"["input",3,9,77]"#);
}

#[test]
fn constants_are_part_of_the_identity() {
    let constant = |scalar| Path { source: Source::Const(scalar), steps: Vec::new() };
    let number = Number::parse("1.50").unwrap();
    let parts =
        vec![constant(Scalar::Text("x".into())), constant(Scalar::Number(number)), constant(Scalar::Bool(true))];
    assert_eq!(identity(Rules::new(Identity::of_paths(parts), None), &record(0, b"{}")), r#"["x",1.5,true]"#);
}

#[test]
fn version_and_identity_are_read_from_the_same_document() {
    let rules = || rules(&["value.b", "key.a", "value.a"], Some("key.b"));
    let record = Record { key: Some(br#"{"b":4,"a":3}"#), ..record(0, br#"{"a":1,"b":2}"#) };
    assert_eq!(read(rules(), &record), Ok(("[2,3,1]".to_owned(), Some("4".to_owned()))));
}

#[test]
fn bad_record_is_refused_with_its_reason() {
    let id = || rules(&["value.id"], None);
    for (value, expected) in [
        (&b"{}"[..], Reason::IdentityMissing),
        (br#"{"id":null}"#, Reason::IdentityMissing),
        (br#"[1]"#, Reason::IdentityMissing),
        (b"null", Reason::IdentityMissing),
        (br#"{"id":{}}"#, Reason::IdentityNotScalar),
        (br#"{"id":[]}"#, Reason::IdentityNotScalar),
        (br#"{"id":1e9999999999999999999}"#, Reason::IdentityTooLong),
        (b"", Reason::ValueMalformed),
        (br#"{"id":1"#, Reason::ValueMalformed),
        (b"{\"id\":1,\"x\":\"\xff\"}", Reason::ValueMalformed),
    ] {
        assert_eq!(reason(id(), &record(0, value)), expected, "{}", String::from_utf8_lossy(value));
    }
    assert_eq!(reason(id(), &Record { value: None, ..record(0, b"") }), Reason::NullValue);
    assert_eq!(reason(rules(&["key"], None), &record(0, b"")), Reason::IdentityMissing);
    assert_eq!(reason(rules(&["key.id"], None), &record(0, b"")), Reason::IdentityMissing);
    assert_eq!(reason(rules(&["header.id"], None), &record(0, b"")), Reason::IdentityMissing);
    assert_eq!(reason(rules(&["meta.timestamp"], None), &record(0, b"")), Reason::IdentityMissing);
    assert_eq!(reason(rules(&["key.id"], None), &Record { key: Some(b"{"), ..record(0, b"") }), Reason::KeyMalformed);
    // A null value is reported even where nothing in it is wanted.
    let null = Record { key: Some(b"k"), value: None, ..record(0, b"") };
    assert_eq!(reason(rules(&["key"], None), &null), Reason::NullValue);
}

#[test]
fn null_header_is_missing_even_after_one_with_a_value() {
    let mut headers = HeaderBuf::default();
    headers.push(b"id", Some(b"1"));
    headers.push(b"id", None);
    let record = Record { headers: headers.as_headers(), ..record(0, b"") };
    assert_eq!(reason(rules(&["header.id"], None), &record), Reason::IdentityMissing);
}

#[test]
fn limits_are_enforced() {
    let nested = format!("{{\"id\":1,\"x\":{}{}}}", "[".repeat(500), "]".repeat(500));
    let rejection = read(rules(&["value.id"], None), &record(0, nested.as_bytes())).unwrap_err();
    assert_eq!(rejection.reason, Reason::ValueMalformed);
    assert!(rejection.message.contains("nested too deep"), "{}", rejection.message);

    let mut small = rules(&["value"], None);
    small.limits.record_bytes_max = 10;
    let large = Record { key: Some(b"12345"), ..record(0, b"123456") };
    assert_eq!(reason(small.clone(), &large), Reason::RecordTooLarge);
    assert_eq!(
        reason(small.clone(), &Record { value: None, key: Some(b"12345678901"), ..large }),
        Reason::RecordTooLarge
    );
    assert!(read(small, &Record { key: Some(b"1234"), ..large }).is_ok());

    let mut short = rules(&["value"], None);
    (short.limits.key_bytes_max, short.limits.header_bytes_max) = (3, 20);
    let keyed = |key| Record { key: Some(key), ..record(0, b"123456") };
    assert!(read(short.clone(), &keyed(b"123")).is_ok());
    assert_eq!(reason(short.clone(), &keyed(b"1234")), Reason::RecordTooLarge);
    let headed = |value: &[u8]| {
        let mut headers = HeaderBuf::default();
        headers.push(b"name", Some(value));
        read(short.clone(), &Record { headers: headers.as_headers(), ..record(0, b"123456") })
    };
    assert!(headed(b"12345678").is_ok());
    let rejection = headed(b"123456789").unwrap_err();
    assert_eq!(rejection.message, "the headers take 21 bytes, more than the limit of 20");

    let mut short = rules(&["value"], None);
    short.limits.identity_bytes_max = 12;
    assert!(read(short.clone(), &record(0, &[b'x'; 10])).is_ok());
    assert_eq!(reason(short, &record(0, &[b'x'; 11])), Reason::IdentityTooLong);
}

#[test]
fn versions_are_integers_in_json_or_text() {
    let versioned = || rules(&["value.k"], Some("value.v"));
    let version = |v: &str| read(versioned(), &record(0, format!(r#"{{"k":1,"v":{v}}}"#).as_bytes()));
    for (written, expected) in [
        ("9223372036854775808", "9223372036854775808"),
        ("-0", "0"),
        (r#""007""#, "7"),
        (r#""\u0031\u0032""#, "12"),
        ("340282366920938463463374607431768211456", "340282366920938463463374607431768211456"),
    ] {
        assert_eq!(version(written).unwrap().1.as_deref(), Some(expected), "{written}");
    }
    assert_eq!(version("null").unwrap().1, None);
    for written in ["1.0", "1e3", "true", "{}", "[]", r#""""#, r#""1.5""#, r#"" 1""#, r#""abc""#] {
        assert_eq!(version(written).unwrap_err().reason, Reason::VersionMalformed, "{written}");
    }
    let digits = version(&"9".repeat(301)).unwrap_err();
    assert_eq!(digits.reason, Reason::VersionMalformed);
    assert!(digits.message.contains("301 digits"), "{}", digits.message);
    assert_eq!(read(rules(&["value.k"], None), &record(0, br#"{"k":1}"#)).unwrap().1, None);
}

#[test]
fn version_in_a_header_is_decimal_text() {
    let mut headers = HeaderBuf::default();
    headers.push(b"v", Some(b"42"));
    let record = Record { headers: headers.as_headers(), ..record(0, b"x") };
    assert_eq!(read(rules(&["value"], Some("header.v")), &record).unwrap().1.as_deref(), Some("42"));
    assert_eq!(read(rules(&["value"], Some("header.w")), &record).unwrap().1, None);
}

#[test]
fn documents_not_named_in_rules_are_not_parsed() {
    let record = Record { key: Some(b"k"), ..record(0, b"not JSON at all \xff") };
    assert_eq!(identity(rules(&["key"], None), &record), r#"["k"]"#);
}

#[test]
fn messages_contain_nothing_of_the_record() {
    for value in [&br#"{"k":{"secret":1}}"#[..], br#"{"k":1,"v":"secret"}"#, br#"{"k":"secret"#, br#"{"secret":1}"#] {
        let rejection = read(rules(&["value.k"], Some("value.v")), &record(0, value)).unwrap_err();
        assert!(!rejection.message.contains("secret"), "{}", rejection.message);
    }
}

#[test]
fn reader_keeps_nothing_of_the_previous_record() {
    let mut rules = rules(&["key.id"], Some("value.v"));
    rules.key_format = Format::Json;
    let mut reader = Reader::new(Arc::new(rules));
    let mut arena = Vec::new();
    let first = Record { key: Some(br#"{"id":1}"#), ..record(0, br#"{"v":1}"#) };
    assert!(matches!(reader.read(&first, &mut arena), Reading::Row(_)));
    let Reading::Rejected(rejection) = reader.read(&Record { key: None, ..first }, &mut arena) else { panic!() };
    assert_eq!(rejection.reason, Reason::IdentityMissing);
    let Reading::Row(row) = reader.read(&Record { value: Some(b"{}"), ..first }, &mut arena) else { panic!() };
    assert_eq!(row.version, None);
}

proptest! {
    /// Identities of several JSON scalars are equal if and only if serde_json's values are.
    #[test]
    fn identities_are_equal_if_the_values_are(
        a in prop::collection::vec(any_scalar(), 2), b in prop::collection::vec(any_scalar(), 2),
    ) {
        let parts = ["value.0", "value.1"];
        let bytes = |values: &[serde_json::Value]| {
            let mut arena = Vec::new();
            let text = serde_json::to_string(values).unwrap();
            Reader::new(Arc::new(rules(&parts, None))).read(&record(0, text.as_bytes()), &mut arena);
            arena
        };
        prop_assert_eq!(bytes(&a) == bytes(&b), a == b);
        prop_assert_eq!(describe_identity(&bytes(&a)), serde_json::to_string(&a).unwrap());
    }
}

fn any_scalar() -> impl Strategy<Value = serde_json::Value> {
    prop_oneof![
        any::<bool>().prop_map(serde_json::Value::from),
        (-3_i64..3).prop_map(serde_json::Value::from),
        any::<u64>().prop_map(serde_json::Value::from),
        "[a-b1\u{1}\u{2}\"\\\\]{0,3}".prop_map(serde_json::Value::from),
    ]
}

#[test]
fn contradicting_rules_do_not_panic() {
    let odd = Path { source: Source::Topic, steps: vec!["x".to_owned()] };
    let rules = Rules::new(Identity::of_paths([odd.clone()]), Some(Version::integer(odd)));
    assert_eq!(reason(rules, &record(0, b"")), Reason::VersionMalformed);
    assert_eq!(identity(Rules::new(Identity { parts: Vec::new() }, None), &record(0, b"")), "[]");
}
