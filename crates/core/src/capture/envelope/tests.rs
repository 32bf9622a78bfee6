//! Goal: a record in either envelope is read as it was, or an error says what is wrong with the line.

use proptest::prelude::*;

use super::*;
use crate::capture::{Form, read_all};

fn kcat(line: &[u8]) -> Result<Captured, String> {
    let mut captured = Captured::default();
    captured.read_kcat(line).map_err(|error| error.to_string())?;
    Ok(captured)
}

#[test]
fn record_is_read_from_kcats_envelope() {
    let line = br#"{"topic":"in","partition":3,"offset":17,"tstype":"create","ts":1500,"broker":1,"headers":["id","a","none",null,"id","b"],"key":"k","payload":"{\"a\":\"\u00e9\"}"}"#;
    let captured = kcat(line).unwrap();
    let record = captured.record();
    assert_eq!((record.topic, record.partition, record.offset, record.timestamp), ("in", 3, 17, Some(1500)));
    assert_eq!(record.key, Some(&b"k"[..]));
    assert_eq!(record.value, Some("{\"a\":\"é\"}".as_bytes()));
    let headers: Vec<_> = record.headers.iter().map(|header| (header.name, header.value)).collect();
    assert_eq!(headers, [(&b"id"[..], Some(&b"a"[..])), (b"none", None), (b"id", Some(b"b"))]);
}

#[test]
fn headers_may_be_an_object() {
    let captured = kcat(
        br#"{"topic":"in","partition":0,"offset":0,"headers":{"a":["1",null],"b":["2"]},"key":null,"payload":null}"#,
    )
    .unwrap();
    let record = captured.record();
    let headers: Vec<_> = record.headers.iter().map(|header| (header.name, header.value)).collect();
    assert_eq!(headers, [(&b"a"[..], Some(&b"1"[..])), (b"a", None), (b"b", Some(b"2"))]);
}

#[test]
fn bytes_that_are_not_utf8_stay_as_they_are() {
    let captured =
        kcat(b"{\"topic\":\"in\",\"partition\":0,\"offset\":0,\"key\":\"\xff\\u0000\",\"payload\":\"\xfe\"}").unwrap();
    assert_eq!(captured.record().key, Some(&b"\xff\0"[..]));
    assert_eq!(captured.record().value, Some(&b"\xfe"[..]));
}

#[test]
fn null_payload_is_a_null_value_and_a_missing_one_an_error() {
    assert_eq!(
        kcat(br#"{"topic":"t","partition":0,"offset":0,"key":"","payload":null}"#).unwrap().record().value,
        None
    );
    let error = kcat(br#"{"topic":"t","partition":0,"offset":0,"key":"k"}"#).unwrap_err();
    assert!(error.contains("missing field `payload`"), "{error}");
    assert!(kcat(br#"{"order_id":7}"#).unwrap_err().contains("missing field `topic`"));
}

#[test]
fn unknown_timestamp_is_none() {
    let of = |fields: &str| {
        let line = format!(r#"{{"topic":"t","partition":0,"offset":0,{fields}"key":null,"payload":"1"}}"#);
        kcat(line.as_bytes()).unwrap().record().timestamp
    };
    assert_eq!(of(""), None);
    assert_eq!(of(r#""tstype":"create","ts":-1,"#), None);
    assert_eq!(of(r#""tstype":"unknown","ts":0,"#), None);
    assert_eq!(of(r#""tstype":"logappend","ts":5,"#), Some(5));
}

#[test]
fn decoded_payload_is_rejected() {
    let error = kcat(br#"{"topic":"t","partition":0,"offset":0,"key":null,"payload":{"a":1}}"#).unwrap_err();
    assert!(error.contains("kcat without `-s`"), "{error}");
    let error =
        kcat(br#"{"topic":"t","partition":0,"offset":0,"key":null,"payload":null,"payload_error":"no schema"}"#)
            .unwrap_err();
    assert!(error.contains("no schema"), "{error}");
}

#[test]
fn any_line_is_taken_as_a_value() {
    let mut captured = Captured::default();
    for line in [&br#"{"a":1"#[..], b"\xff", b"null"] {
        captured.read_value(line);
        assert_eq!(captured.record().value, Some(line));
    }
}

#[test]
fn topic_is_read_from_a_line_with_other_malformed_fields() {
    let line = b"{\"topic\":\"a\\u002eb\",\"partition\":0,\"key\":\"\xff\",\"payload\":{\"x\":1}}";
    assert_eq!(topic_of_envelope(line).as_deref(), Some("a.b"));
    assert_eq!([&b"{\"id\":1}"[..], b"{\"topic\":\"a\"", b"7"].map(topic_of_envelope), [None, None, None]);
}

#[test]
fn envelope_is_distinguished_from_a_value() {
    assert!(looks_like_kcat(br#"{"topic":"t","partition":0,"offset":0,"payload":null}"#));
    assert!(!looks_like_kcat(br#"{"topic":"t","partition":0,"offset":0}"#));
    assert!(!looks_like_kcat(br#"{"order_id":7}"#));
}

/// A line of `ratchet capture`, without its line feed.
fn line(record: &Record<'_>, is_stamped: bool) -> Vec<u8> {
    let mut line = Vec::new();
    write_capture(record, is_stamped, &mut line);
    assert_eq!(line.pop(), Some(b'\n'));
    line
}

fn captured(line: &[u8]) -> Result<Captured, String> {
    let mut captured = Captured::default();
    captured.read(Form::Capture, line).map_err(|error| error.to_string())?;
    Ok(captured)
}

#[test]
fn captured_line_is_readable_and_keeps_null_apart_from_empty() {
    let mut headers = HeaderBuf::default();
    headers.push(b"trace", Some(b"1"));
    headers.push(b"trace", None);
    headers.push(b"bin", Some(b"\xff\0"));
    let record = Record {
        topic: "payments",
        partition: 3,
        offset: 7,
        timestamp: Some(1_764_300_001_000),
        key: Some(b""),
        value: Some(b"{\"id\":\"\xc3\xa9\"}\n"),
        headers: headers.as_headers(),
    };
    let expected = concat!(
        r#"{"capture":1,"topic":"payments","partition":3,"offset":7,"tstype":"create","ts":1764300001000,"#,
        r#""headers":["trace","1","trace",null,"bin",{"base64":"/wA="}],"key":"","payload":"{\"id\":\"é\"}\n"}"#,
    );
    assert_eq!(String::from_utf8(line(&record, false)).unwrap(), expected);
    let null = Record { key: None, value: None, timestamp: None, headers: Default::default(), ..record };
    let expected = concat!(
        r#"{"capture":1,"topic":"payments","partition":3,"offset":7,"tstype":"unknown","ts":null,"#,
        r#""headers":[],"key":null,"payload":null}"#,
    );
    assert_eq!(String::from_utf8(line(&null, true)).unwrap(), expected);
}

fn bytes() -> impl Strategy<Value = Vec<u8>> {
    let text = any::<String>().prop_map(String::into_bytes);
    prop_oneof![text, proptest::collection::vec(any::<u8>(), 0..40), Just(Vec::new()), Just(b"null".to_vec())]
}

proptest! {
    #[test]
    fn any_record_survives(
        topic in "[a-zA-Z0-9._-]{1,30}",
        (partition, offset) in (any::<i32>(), any::<i64>()),
        (timestamp, is_stamped) in (any::<Option<i64>>(), any::<bool>()),
        (key, value) in (proptest::option::of(bytes()), proptest::option::of(bytes())),
        names in proptest::collection::vec((bytes(), proptest::option::of(bytes())), 0..5),
    ) {
        let mut headers = HeaderBuf::default();
        names.iter().for_each(|(name, value)| headers.push(name, value.as_deref()));
        let (key, value) = (key.as_deref(), value.as_deref());
        let record =
            Record { topic: &topic, partition, offset, timestamp, key, value, headers: headers.as_headers() };
        let line = line(&record, is_stamped);
        prop_assert!(!line.contains(&b'\n') && std::str::from_utf8(&line).is_ok());
        prop_assert_eq!(Form::of(&line), Form::Capture);
        prop_assert!(!looks_like_kcat(&line));
        let found = topic_of_envelope(&line);
        prop_assert_eq!(found.as_deref(), Some(&*topic));
        let read = captured(&line).unwrap();
        prop_assert_eq!(read.is_stamped, is_stamped && timestamp.is_some());
        let read = read.record();
        prop_assert_eq!((read.topic, read.partition, read.offset), (record.topic, partition, offset));
        prop_assert_eq!((read.timestamp, read.key, read.value), (timestamp, key, value));
        prop_assert_eq!(read.headers, record.headers);
    }

    #[test]
    fn any_line_is_read_or_refused(line in bytes()) {
        let _ = captured(&line);
        let with = |payload: &str| format!(r#"{{"capture":1,"topic":"t","partition":0,"offset":0,"payload":{payload}}}"#);
        let _ = captured(with(&String::from_utf8_lossy(&line)).as_bytes());
    }
}

#[test]
fn line_that_is_no_capture_says_why() {
    let of = |fields: &str| {
        captured(format!(r#"{{"topic":"t","partition":0,"offset":0,{fields}}}"#).as_bytes()).unwrap_err()
    };
    assert!(of(r#""payload":"x""#).contains("missing field `capture`"));
    assert!(of(r#""capture":2,"payload":"x""#).contains("number 2, which only a later release reads"));
    assert!(of(r#""capture":1"#).contains("missing field `payload`"));
    for payload in
        [r#"{"base64":"?"}"#, r#"{"base64":"AA"}"#, r#"{"base64":"AAA=","more":1}"#, r#"{"hex":"00"}"#, "{}", "7"]
    {
        let error = of(&format!(r#""capture":1,"payload":{payload}"#));
        assert!(error.contains("base64"), "{payload}: {error}");
    }
}

#[test]
fn capture_is_recognised_in_any_layout_and_a_value_is_not() {
    for line in [
        &br#"{"capture":1,"topic":"t","partition":0,"offset":0,"payload":null}"#[..],
        br#" { "offset": 0, "partition": 0, "topic": "t", "payload": 7, "capture": 9 }"#,
    ] {
        assert_eq!(Form::of(line), Form::Capture);
    }
    for line in
        [&br#"{"capture":1}"#[..], br#"{"topic":"t","partition":0,"offset":0,"payload":null}"#, b"", b"[1]", b"\xff"]
    {
        assert_eq!(Form::of(line), Form::Values);
    }
}

#[test]
fn file_is_read_in_the_form_that_its_first_line_shows() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("records.jsonl");
    let own = r#"{"capture":1,"topic":"t","partition":2,"offset":5,"payload":{"base64":"AA=="}}"#;
    let read = |text: &str, form| {
        std::fs::write(&path, text).unwrap();
        read_all(path.clone(), form, "in").map_err(|error| error.text)
    };
    let (form, records) = read(&format!("{own}\n{own}\n"), None).unwrap();
    assert_eq!((form, records.len(), records[1].value.as_deref()), (Form::Capture, 2, Some(&b"\0"[..])));
    let (form, records) = read(&format!("7\n{own}\n"), None).unwrap();
    assert_eq!((form, records[1].record().topic, records[1].offset), (Form::Values, "in", 1));
    let (form, records) = read(own, Some(Form::Values)).unwrap();
    assert_eq!((form, records[0].value.as_deref()), (Form::Values, Some(own.as_bytes())));
    let error = read(&format!("{own}\n7\n"), None).unwrap_err();
    assert!(error.contains("records.jsonl:2: the line is not a record of `ratchet capture`"), "{error}");
    assert_eq!(read("", None).unwrap().0, Form::Values);
}
