//! Goal: every form of identity is read as documented.

use super::*;

#[test]
fn content_is_whatever_the_path_leads_to() {
    let key = json(vec![IdentityPart::Content(path("key"))]);
    assert_eq!(row(&key, &keyed(r#"{ "b":[1,null,true], "a":"x", "a":1.0 }"#, "")), r#"[{"a":1,"b":[1,null,true]}]"#);
    assert_eq!(row(&key, &keyed("7", "")), "[7]");
    assert_eq!(because(&key, &keyed("null", "")), Reason::IdentityMissing);
    assert_eq!(because(&key, &keyed("{", "")), Reason::KeyMalformed);
    let inner = json(vec![IdentityPart::Content(path("value.a"))]);
    assert_eq!(row(&inner, &keyed("", r#"{"a":{}}"#).with_null_key()), "[{}]");
    assert_eq!(because(&inner, &keyed("", r#"{"b":{}}"#).with_null_key()), Reason::IdentityMissing);
    let long = because(&inner, &keyed("", r#"{"a":[1e9999999999999999999]}"#).with_null_key());
    assert_eq!(long, Reason::IdentityTooLong);
}

#[test]
fn fingerprint_leaves_out_excepted_places() {
    let rules = json(vec![IdentityPart::Fingerprint { of: path("value.doc"), except: paths(&["value.doc.sent_at"]) }]);
    let of = |value: &str| row(&rules, &record(0, value.as_bytes()));
    let first = of(r#"{"doc":{"a":1,"sent_at":5}}"#);
    // SHA-256 of {"a":1}.
    assert_eq!(first, r#"[{"sha256":"015abd7f5cc57a2dd94b7590f04ad8084273905ee33ec5cebeae62276a97f862"}]"#);
    assert_eq!(of(r#"{"doc":{"sent_at":6, "a":1.0},"sent_at":1}"#), first);
    assert_ne!(of(r#"{"doc":{"a":"1"}}"#), first);
    assert_eq!(because(&rules, &record(0, b"{}")), Reason::IdentityMissing);
}

#[test]
fn buckets_tumble_with_the_timestamp() {
    let rules = json(vec![IdentityPart::Bucket { ms: 3_600_000 }]);
    let at = |timestamp| row(&rules, &Record { timestamp, ..record(0, b"") });
    assert_eq!(at(Some(3_599_999)), "[0]");
    assert_eq!(at(Some(3_600_000)), "[3600000]");
    assert_eq!(at(Some(-1)), "[-3600000]");
    assert_eq!(because(&rules, &record(0, b"")), Reason::IdentityMissing);
}

#[test]
fn first_alternative_without_a_missing_part_counts() {
    let scalar = |text| IdentityPart::Scalar(path(text));
    let rules = json(vec![IdentityPart::FirstOf(vec![
        vec![scalar("value.id")],
        vec![scalar("value.a"), scalar("value.b")],
        vec![IdentityPart::Content(path("value.c"))],
    ])]);
    let of = |value: &str| row(&rules, &record(0, value.as_bytes()));
    assert_eq!(of(r#"{"id":1,"a":2,"b":3}"#), "[1]");
    assert_eq!(of(r#"{"id":null,"a":2,"b":3}"#), "[[2,3]]");
    assert_eq!(of(r#"{"a":2,"c":[2,3]}"#), "[[2,3]]");
    let bytes = |value: &str| {
        let mut arena = Vec::new();
        Reader::new(Arc::new(rules.clone())).read(&record(0, value.as_bytes()), &mut arena);
        arena
    };
    assert_ne!(bytes(r#"{"a":2,"b":3}"#), bytes(r#"{"c":[2,3]}"#), "two parts are no array of two");
    assert_eq!(because(&rules, &record(0, br#"{"a":2}"#)), Reason::IdentityMissing);
    assert_eq!(because(&rules, &record(0, br#"{"id":{}}"#)), Reason::IdentityNotScalar);
}

#[test]
fn rows_are_read_from_an_object_or_an_array() {
    let rows = |named| {
        json(vec![
            IdentityPart::Scalar(path("value.table")),
            IdentityPart::Rows { of: paths(&["value.data", "value.old"]), named },
            IdentityPart::Scalar(path("meta.topic")),
        ])
    };
    let given = rows(Names::Given(vec!["b".into(), "a".into()]));
    let read = |rules: &Rules, value: &str| try_read(rules, &record(0, value.as_bytes())).map(|contents| contents.rows);
    assert_eq!(
        read(&given, r#"{"table":"t","data":{"a":1,"b":"x","c":2}}"#).unwrap(),
        [r#"["t",{"a":1,"b":"x"},"input"]"#]
    );
    assert_eq!(
        read(&given, r#"{"table":"t","data":[{"a":1,"b":2},{"b":4,"a":3},{"a":0,"a":5,"b":6}]}"#).unwrap(),
        [r#"["t",{"a":1,"b":2},"input"]"#, r#"["t",{"a":3,"b":4},"input"]"#, r#"["t",{"a":5,"b":6},"input"]"#]
    );
    let at = rows(Names::At(path("value.pkNames")));
    assert_eq!(
        read(&at, r#"{"table":"t","pkNames":["id"],"data":[{"id":"1"},{"id":"2"}]}"#).unwrap(),
        [r#"["t",{"id":"1"},"input"]"#, r#"["t",{"id":"2"},"input"]"#]
    );
    let reason = |rules: &Rules, value: &str| read(rules, value).unwrap_err().reason;
    for value in [
        r#"{"table":"t","data":[]}"#,
        r#"{"table":"t","data":null}"#,
        r#"{"table":"t","data":[{"a":1,"b":null}]}"#,
        r#"{"table":"t","data":[{"a":1}]}"#,
        r#"{"table":"t","data":[1]}"#,
        r#"{"table":"t","data":7}"#,
    ] {
        assert_eq!(reason(&given, value), Reason::IdentityMissing, "{value}");
    }
    assert_eq!(reason(&given, r#"{"table":"t","data":{"a":1,"b":[]}}"#), Reason::IdentityNotScalar);
    for names in ["[]", "null", "[1]", "\"id\""] {
        let value = format!(r#"{{"table":"t","pkNames":{names},"data":{{"id":1}}}}"#);
        assert_eq!(reason(&at, &value), Reason::IdentityMissing, "{value}");
    }
    // Short rows of a record whose other parts are long take more bytes than the record itself.
    let limits = Limits { record_bytes_max: 250, ..Limits::default() };
    let many = |rows: usize| {
        let row = r#"{"a":1,"b":2}"#;
        format!(r#"{{"table":"{}","data":[{}]}}"#, "t".repeat(40), vec![row; rows].join(","))
    };
    let bounded = Rules { limits, ..given };
    assert_eq!(read(&bounded, &many(2)).unwrap().len(), 2);
    assert_eq!(reason(&bounded, &many(8)), Reason::IdentityTooLong);
}

#[test]
fn long_rows_are_identified_by_their_digests() {
    let rules = json(vec![IdentityPart::Rows { of: paths(&["value"]), named: Names::Given(vec!["a".into()]) }]);
    let (x, y) = ("x".repeat(200), "y".repeat(200));
    let rows =
        try_read(&rules, &record(0, format!(r#"[{{"a":"{x}"}},{{"a":1}},{{"a":"{y}"}}]"#).as_bytes())).unwrap().rows;
    assert_eq!(rows[1], r#"[{"a":1}]"#);
    assert_eq!(rows[0], row(&rules, &record(0, format!(r#"{{"a":"{x}"}}"#).as_bytes())));
    assert!(rows[0].contains("sha256") && rows[0] != rows[2]);
}
