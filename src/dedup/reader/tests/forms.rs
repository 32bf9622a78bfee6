//! Goal: every form of identity, version, scope and kind is read as the contract says, and no bytes make any of
//! them panic.

use serde_json::Value;

use super::*;
use crate::dedup::tests::paths;
use crate::dedup::{
    Action, Epoch, EpochPart, Kinds, Limits, MissingPart, Names, OnNull, Part, TimeUnit, VersionKind, VersionPart,
    describe_scope,
};

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn json(parts: Vec<Part>) -> Rules {
    Rules { key_format: Format::Json, ..Rules::new(Identity { parts }, None) }
}

fn keyed<'a>(key: &'a str, value: &'a str) -> Record<'a> {
    Record { key: Some(key.as_bytes()), ..record(0, value.as_bytes()) }
}

/// What a record is read as: identities, version, scope, kind, table.
#[derive(Debug, PartialEq)]
struct Told {
    rows: Vec<String>,
    version: Option<String>,
    scope: Option<String>,
    kind: Kind,
    table: Option<String>,
}

fn told(rules: &Rules, record: &Record<'_>) -> Result<Told, Refusal> {
    let mut reader = Reader::new(Arc::new(rules.clone()));
    let mut arena = b"before".to_vec();
    let reading = reader.read(record, &mut arena);
    if let Reading::Refused(refusal) = reading {
        assert_eq!(arena, b"before");
        return Err(refusal);
    }
    let first = reading.rows()[0].clone();
    Ok(Told {
        rows: reading.rows().iter().map(|row| describe_identity(&arena[row.key.clone()])).collect(),
        version: first.version.map(|range| reader.describe_version(&arena[range])),
        scope: first.scope.map(|range| describe_scope(&arena[range])),
        kind: first.kind,
        table: first.table.map(|range| describe_identity(&arena[range])),
    })
}

fn row(rules: &Rules, record: &Record<'_>) -> String {
    told(rules, record).unwrap().rows.remove(0)
}

fn because(rules: &Rules, record: &Record<'_>) -> Reason {
    told(rules, record).unwrap_err().reason
}

#[test]
fn content_is_whatever_stands_there() {
    let key = json(vec![Part::Content(path("key"))]);
    assert_eq!(row(&key, &keyed(r#"{ "b":[1,null,true], "a":"x", "a":1.0 }"#, "")), r#"[{"a":1,"b":[1,null,true]}]"#);
    assert_eq!(row(&key, &keyed("7", "")), "[7]");
    assert_eq!(because(&key, &keyed("null", "")), Reason::IdentityMissing);
    assert_eq!(because(&key, &keyed("{", "")), Reason::KeyMalformed);
    let inner = json(vec![Part::Content(path("value.a"))]);
    assert_eq!(row(&inner, &keyed("", r#"{"a":{}}"#).with_null_key()), "[{}]");
    assert_eq!(because(&inner, &keyed("", r#"{"b":{}}"#).with_null_key()), Reason::IdentityMissing);
    let long = because(&inner, &keyed("", r#"{"a":[1e9999999999999999999]}"#).with_null_key());
    assert_eq!(long, Reason::IdentityTooLong);
}

trait NullKey {
    fn with_null_key(self) -> Self;
}

impl NullKey for Record<'_> {
    fn with_null_key(self) -> Self {
        Record { key: None, ..self }
    }
}

#[test]
fn a_fingerprint_leaves_out_what_is_excepted() {
    let rules = json(vec![Part::Fingerprint { of: path("value.doc"), except: paths(&["value.doc.sent_at"]) }]);
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
    let rules = json(vec![Part::Bucket { ms: 3_600_000 }]);
    let at = |timestamp| row(&rules, &Record { timestamp, ..record(0, b"") });
    assert_eq!(at(Some(3_599_999)), "[0]");
    assert_eq!(at(Some(3_600_000)), "[3600000]");
    assert_eq!(at(Some(-1)), "[-3600000]");
    assert_eq!(because(&rules, &record(0, b"")), Reason::IdentityMissing);
}

#[test]
fn the_first_alternative_without_a_missing_part_counts() {
    let scalar = |text| Part::Scalar(path(text));
    let rules = json(vec![Part::FirstOf(vec![
        vec![scalar("value.id")],
        vec![scalar("value.a"), scalar("value.b")],
        vec![Part::Content(path("value.c"))],
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
            Part::Scalar(path("value.table")),
            Part::Rows { of: paths(&["value.data", "value.old"]), named },
            Part::Scalar(path("meta.topic")),
        ])
    };
    let given = rows(Names::Given(vec!["b".into(), "a".into()]));
    let read = |rules: &Rules, value: &str| told(rules, &record(0, value.as_bytes())).map(|told| told.rows);
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
    // Short rows of a record whose other parts are long take more than the record itself.
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
fn long_rows_are_known_by_their_digests() {
    let rules = json(vec![Part::Rows { of: paths(&["value"]), named: Names::Given(vec!["a".into()]) }]);
    let (x, y) = ("x".repeat(200), "y".repeat(200));
    let rows = told(&rules, &record(0, format!(r#"[{{"a":"{x}"}},{{"a":1}},{{"a":"{y}"}}]"#).as_bytes())).unwrap().rows;
    assert_eq!(rows[1], r#"[{"a":1}]"#);
    assert_eq!(rows[0], row(&rules, &record(0, format!(r#"{{"a":"{x}"}}"#).as_bytes())));
    assert!(rows[0].contains("sha256") && rows[0] != rows[2]);
}

fn debezium() -> Rules {
    let text = |word: &str| Scalar::Text(word.to_owned());
    let mut rules = Rules::new(
        Identity { parts: vec![Part::Content(path("key"))] },
        Some(Version {
            parts: vec![VersionPart {
                none: vec![Scalar::Number(Number::parse("0").unwrap())],
                ..VersionPart::new(path("value.source.lsn"), VersionKind::Integer)
            }],
        }),
    );
    (rules.key_format, rules.value_format) = (Format::ConnectJson, Format::ConnectJson);
    rules.epoch =
        Some(Epoch { parts: vec![EpochPart { of: paths(&["value.source.name"]), none: vec![text("unknown")] }] });
    rules.kinds = Some(Kinds {
        of: paths(&["value.__op", "value.op"]),
        delete: vec![text("d"), Scalar::Bool(true)],
        read: vec![text("r"), Scalar::Number(Number::parse("1").unwrap())],
        reads: crate::dedup::Reads::Lose,
        truncate: vec![text("t")],
        message: vec![text("m")],
        table: vec![paths(&["value.source.db"]), paths(&["value.source.table"])],
    });
    rules.actions.null_value = OnNull::FollowDelete;
    rules
}

#[test]
fn a_change_of_connect_is_read_through_every_wrapping() {
    let rules = debezium();
    let expected = Told {
        rows: vec![r#"[{"id":1}]"#.to_owned()],
        version: Some("5".to_owned()),
        scope: Some(r#"["s"]"#.to_owned()),
        kind: Kind::Delete,
        table: Some(r#"[{"table":["d","t"]}]"#.to_owned()),
    };
    let plain = r#"{"op":"d","source":{"lsn":5,"name":"s","db":"d","table":"t"}}"#;
    let union =
        r#"{"op":{"string":"d"},"source":{"a.Source":{"lsn":{"long":5},"name":"s","db":{"string":"d"},"table":"t"}}}"#;
    for value in [plain.to_owned(), union.to_owned(), format!(r#"{{"schema":{{"op":1}},"payload":{plain}}}"#)] {
        for key in [r#"{"id":1}"#, r#"{"payload":{"id":1},"schema":null}"#] {
            assert_eq!(told(&rules, &keyed(key, &value)).as_ref(), Ok(&expected), "{key} {value}");
        }
    }
    let mut plain_rules = rules;
    plain_rules.value_format = Format::Json;
    let unseen = told(&plain_rules, &keyed(r#"{"id":1}"#, union)).unwrap();
    assert_eq!((unseen.version, unseen.scope.as_deref(), unseen.kind), (None, Some("[null]"), Kind::Change));
}

#[test]
fn kinds_are_told_apart_by_type_and_value() {
    let of = |op: &str| told(&debezium(), &keyed("1", &format!(r#"{{"op":{op}}}"#))).unwrap().kind;
    assert_eq!(of(r#""d""#), Kind::Delete);
    assert_eq!(of(r#""\u0064""#), Kind::Delete);
    assert_eq!(of("true"), Kind::Delete);
    assert_eq!(of(r#""true""#), Kind::Change);
    assert_eq!(of("1.0"), Kind::Read);
    assert_eq!(of(r#""1""#), Kind::Change);
    assert_eq!(of("null"), Kind::Change);
    assert_eq!(of("{}"), Kind::Change);
}

#[test]
fn a_truncate_is_its_table_and_a_message_itself() {
    let rules = debezium();
    let source = r#""source":{"lsn":5,"db":"d","table":"t"}"#;
    let truncate = told(&rules, &keyed("", &format!(r#"{{"op":"t",{source}}}"#)).with_null_key()).unwrap();
    assert_eq!((truncate.rows, truncate.table), (vec![r#"[{"table":["d","t"]}]"#.to_owned()], None));
    let bare = told(&rules, &keyed("", r#"{"op":"t"}"#).with_null_key()).unwrap();
    assert_eq!(bare.rows, [r#"[{"table":[null,null]}]"#]);
    let message = |key: Option<&str>, rest: &str| {
        let value = format!(r#"{{"op":"m",{rest}}}"#);
        let record = Record { key: key.map(str::as_bytes), ..record(0, value.as_bytes()) };
        let told = told(&rules, &record).unwrap();
        assert_eq!(told.table, None);
        (told.rows[0].clone(), told.version)
    };
    let version = r#"{"version":"8105"}"#;
    assert_eq!(message(Some("7"), source), (format!(r#"[{{"message":[7,{version}]}}]"#), Some("5".to_owned())));
    assert_eq!(message(None, source).0, format!(r#"[{{"message":["d","t",{version}]}}]"#));
    assert_eq!(message(Some("7"), r#""x":1"#), (r#"[{"message":[7]}]"#.to_owned(), None));
    let long = format!("\"{}\"", "k".repeat(200));
    assert!(message(Some(&long), source).0.contains("sha256"));
}

#[test]
fn a_tombstone_is_identified_by_what_it_still_has() {
    let rules = debezium();
    let null = Record { value: None, ..keyed(r#"{"id":1}"#, "") };
    let tombstone = told(&rules, &null).unwrap();
    assert_eq!((tombstone.rows[0].as_str(), tombstone.kind), (r#"[{"id":1}]"#, Kind::Tombstone));
    assert_eq!((tombstone.version, tombstone.scope, tombstone.table), (None, None, None));
    assert_eq!(because(&rules, &null.with_null_key()), Reason::IdentityMissing);
    let mut by_value = rules.clone();
    by_value.identity = Identity::of_paths(paths(&["value.id"]));
    assert_eq!(because(&by_value, &null), Reason::IdentityMissing);
    let mut dropping = rules;
    dropping.actions.null_value = OnNull::Act(Action::Drop);
    assert_eq!(because(&dropping, &null), Reason::NullValue);
}

#[test]
fn scopes_hold_null_for_what_is_missing_and_nothing_where_there_is_none() {
    let scope =
        |source: &str| told(&debezium(), &keyed("1", &format!(r#"{{"source":{source}}}"#))).map(|told| told.scope);
    assert_eq!(scope("{}").unwrap().as_deref(), Some("[null]"));
    assert_eq!(scope(r#"{"name":"unknown"}"#).unwrap(), None);
    assert_eq!(scope(r#"{"name":[]}"#).unwrap_err().reason, Reason::VersionMalformed);
    let mut rules = debezium();
    let part = |text, kind| VersionPart::new(path(text), kind);
    rules.version =
        Some(Version { parts: vec![part("value.file", VersionKind::Binlog), part("value.pos", VersionKind::Integer)] });
    let of = |value: &str| told(&rules, &keyed("1", value)).map(|told| (told.version, told.scope)).unwrap();
    let (version, scope) = of(r#"{"file":"mysql\u002dbin.7","pos":4,"source":{"name":"s"}}"#);
    assert_eq!((version.as_deref(), scope.as_deref()), (Some("[[7],4]"), Some(r#"["s","mysql-bin"]"#)));
    assert_eq!(of(r#"{"pos":4,"source":{"name":"s"}}"#).1, None, "without a binlog there is no telling");
}

/// The bytes of a version of integers at value.0, value.1.
fn tuple(parts: [VersionPart; 2], value: &str) -> Option<Vec<u8>> {
    let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts: parts.into() }));
    let mut arena = Vec::new();
    match Reader::new(Arc::new(rules)).read(&record(0, value.as_bytes()), &mut arena) {
        Reading::Candidate(candidate) => candidate.version.map(|range| arena[range].to_vec()),
        other => panic!("{other:?}"),
    }
}

fn integers() -> [VersionPart; 2] {
    ["value.0", "value.1"].map(|text| VersionPart::new(path(text), VersionKind::Integer))
}

#[test]
fn tuples_are_compared_element_by_element_with_null_lowest_or_highest() {
    let of = |value| tuple(integers(), value).unwrap();
    // Materialize's (lsn, total_order); RisingWave's and Paimon's pairs; Hudi's composite.
    assert!(of("[0,0]") < of("[1,0]") && of("[1,0]") < of("[2,0]") && of("[2,0]") < of("[2,1]"));
    assert!(of("[1,5]") < of("[2,1]") && of("[null,1]") < of("[1,null]") && of("[1,null]") < of("[1,0]"));
    assert!(of("[98,100]") < of("[99,5]") && of("[99,5]") < of("[99,7]"));
    assert_eq!(of("[1]"), of("[1,null]"));
    assert_eq!(tuple(integers(), "[null]"), None);
    let [first, mut second] = integers();
    second.missing = MissingPart::Highest;
    let highest = |value| tuple([first.clone(), second.clone()], value).unwrap();
    assert!(highest("[1,99999999999999999999]") < highest("[1]") && highest("[1]") < highest("[2,0]"));
    let [mut first, second] = integers();
    first.required = true;
    first.none = vec![Scalar::Number(Number::parse("-1").unwrap())];
    let required = |value| tuple([first.clone(), second.clone()], value);
    assert_eq!((required("[null,1]"), required("[-1.0,1]"), required("[-1,1]")), (None, None, None));
    assert!(required("[1]").is_some());
}

#[test]
fn every_kind_of_version_is_read_from_a_record() {
    let version = |kind, unit, v: &str| {
        let part = VersionPart { unit, ..VersionPart::new(path("value.v"), kind) };
        let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts: vec![part] }));
        told(&rules, &record(0, format!(r#"{{"v":{v}}}"#).as_bytes())).map(|told| told.version.unwrap())
    };
    let read = |kind, v| version(kind, TimeUnit::Milliseconds, v);
    assert_eq!(read(VersionKind::Decimal, r#""12.50""#).unwrap(), "12.5");
    assert_eq!(read(VersionKind::Text, r#""a\u0000b""#).unwrap(), r#""a\u0000b""#);
    assert_eq!(
        read(VersionKind::Timestamp, r#""2020-05-13 15:40:06.000001""#).unwrap(),
        r#""2020-05-13T15:40:06.000001Z""#
    );
    assert_eq!(version(VersionKind::Timestamp, TimeUnit::Seconds, "1.5").unwrap(), r#""1970-01-01T00:00:01.5Z""#);
    assert_eq!(read(VersionKind::Timestamp, r#""1500""#).unwrap(), r#""1970-01-01T00:00:01.5Z""#);
    assert_eq!(read(VersionKind::Hex, r#""0000001b:00000100:0005""#).unwrap(), r#""1b:100:5""#);
    assert_eq!(read(VersionKind::Sequence, r#""[null,\"8\"]""#).unwrap(), "[null,8]");
    assert_eq!(read(VersionKind::Sequence, r#"["3",4]"#).unwrap(), "[3,4]");
    for (kind, v) in [
        (VersionKind::Decimal, "true"),
        (VersionKind::Text, "1"),
        (VersionKind::Timestamp, r#""yesterday""#),
        (VersionKind::Hex, "12"),
        (VersionKind::Binlog, r#""x""#),
        (VersionKind::Sequence, r#"{"a":1}"#),
        (VersionKind::Integer, "[1]"),
    ] {
        let refusal = read(kind, v).unwrap_err();
        assert_eq!(refusal.reason, Reason::VersionMalformed, "{kind} {v}");
        assert!(refusal.message.contains("`value.v`"), "{}", refusal.message);
    }
}

#[test]
fn what_a_lenient_part_cannot_read_is_missing() {
    let lenient = integers().map(|part| VersionPart { lenient: true, ..part });
    let of = |value| tuple(lenient.clone(), value);
    assert_eq!(of("[3,4]"), tuple(integers(), "[3,4]"));
    assert_eq!(of(r#"["00-1",4]"#), tuple(integers(), "[null,4]"));
    assert_eq!(of(r#"["00-1",{}]"#), None);
}

/// What a part says that is at least `value.s`, where `value.v` is 5.
fn at_least_5(s: &str) -> Result<String, Refusal> {
    let at_least = Some(paths(&["value.none", "value.s"]));
    let part = VersionPart { at_least, ..VersionPart::new(path("value.v"), VersionKind::Integer) };
    let rules = Rules::new(Identity::of_paths(paths(&["meta.topic"])), Some(Version { parts: vec![part] }));
    told(&rules, &record(0, format!(r#"{{"v":"5","s":{s}}}"#).as_bytes())).map(|told| told.version.unwrap())
}

#[test]
fn a_part_is_at_least_the_greatest_of_what_stands_there() {
    for s in ["null", "4", "-6", r#""5""#, "[]", "[null]", r#"[null,"4"]"#, r#""[null,\"4\"]""#, r#""[]""#] {
        assert_eq!(at_least_5(s).unwrap(), "5", "{s}");
    }
    for s in ["6", r#""006""#, r#"["6","4"]"#, "[4,6]", r#""[null,\"6\",3]""#, r#""[6]""#] {
        assert_eq!(at_least_5(s).unwrap(), "6", "{s}");
    }
    let long = "1".repeat(200);
    assert_eq!(at_least_5(&format!(r#"["7","{long}"]"#)).unwrap(), long);
    for s in ["true", "{}", r#""x""#, "[[1]]", "1.5", r#""""#, r#"["x"]"#, &format!("[{long},{long}]")] {
        let refusal = at_least_5(s).unwrap_err();
        assert_eq!(refusal.reason, Reason::VersionMalformed, "{s}");
        assert!(refusal.message.contains("`value.s`"), "{}", refusal.message);
    }
    // What is missing is not raised: it stays missing.
    let part = VersionPart { at_least: Some(paths(&["value.1"])), ..integers()[0].clone() };
    assert_eq!(tuple([part.clone(), part.clone()], "[null,7]"), None);
    assert_eq!(tuple([part.clone(), part], "[3,7]"), tuple(integers(), "[7,7]"));
}

/// Documents that differ in few ways, so that some are equal.
fn any_document() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        prop::sample::select(vec!["", "1", "null", "a"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(3, 8, 3, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..3).prop_map(Value::from),
            prop::collection::vec(("[ab1]{0,1}", inner), 0..3).prop_map(|fields| fields.into_iter().collect()),
        ]
    })
}

/// Rules with every form in them, one after the other.
fn any_form() -> impl Strategy<Value = Rules> {
    let part = prop::sample::select(vec![
        "key",
        "value",
        "key.a",
        "value.a",
        "value.a.b",
        "value.b",
        "header.a",
        "meta.offset",
    ])
    .prop_map(path);
    let leaf = prop_oneof![
        part.clone().prop_map(Part::Scalar),
        part.clone().prop_map(Part::Content),
        (part.clone(), prop::collection::vec(part.clone(), 0..3))
            .prop_map(|(of, except)| Part::Fingerprint { of, except }),
        (-1_i64..9).prop_map(|ms| Part::Bucket { ms }),
        (prop::collection::vec(part.clone(), 0..3), prop::collection::vec("[ab]", 0..3))
            .prop_map(|(of, names)| Part::Rows { of, named: Names::Given(names) }),
        (prop::collection::vec(part.clone(), 0..3), part.clone())
            .prop_map(|(of, at)| Part::Rows { of, named: Names::At(at) }),
    ];
    let form = leaf.prop_recursive(2, 6, 3, |inner| {
        prop::collection::vec(prop::collection::vec(inner, 0..3), 0..3).prop_map(Part::FirstOf)
    });
    let places = || prop::collection::vec(part.clone(), 0..3);
    let version = (places(), prop::option::of(places()), prop::sample::select(VersionKind::ALL), any::<bool>());
    let version = version.prop_map(|(of, at_least, kind, required)| VersionPart {
        of,
        at_least,
        required,
        ..VersionPart::new(path("value"), kind)
    });
    let formats = prop::sample::select(Format::ALL);
    let all = (
        prop::collection::vec(form, 0..4),
        prop::collection::vec(version, 0..3),
        part,
        formats.clone(),
        formats,
        1_usize..50,
    );
    all.prop_map(|(parts, versions, of, key_format, value_format, digits)| {
        let mut rules = Rules::new(Identity { parts }, Some(Version { parts: versions }));
        (rules.key_format, rules.value_format) = (key_format, value_format);
        rules.epoch = Some(Epoch { parts: vec![EpochPart { of: vec![of.clone()], none: vec![Scalar::Bool(true)] }] });
        rules.kinds = Some(Kinds { of: vec![of.clone()], table: vec![vec![of]], ..debezium().kinds.unwrap() });
        rules.actions.null_value = OnNull::FollowDelete;
        rules.limits.version_digits_max = digits;
        rules
    })
}

fn any_bytes() -> impl Strategy<Value = Vec<u8>> {
    let token = prop::sample::select(vec![
        "{",
        "}",
        "[",
        "]",
        ":",
        ",",
        "\"a\":",
        "\"b\":",
        "\"a\"",
        "\"a.b\":{",
        "\"payload\":",
        "\"schema\":1,",
        "1",
        "-0",
        "null",
        "true",
        "\"t\"",
        "\"m\"",
        "\"0x1:2\"",
        "\"a.7:8\"",
        "\"[1,null]\"",
        "\"2020-05-13T15:40:06Z\"",
        "{\"string\":\"d\"}",
        "1e-99999999999999999999",
        "1.5e300",
    ]);
    let soup = prop::collection::vec(token, 0..10).prop_map(|tokens| tokens.concat().into_bytes());
    let document = any_document().prop_map(|document| document.to_string().into_bytes());
    prop_oneof![2 => soup, 3 => document, 1 => prop::collection::vec(any::<u8>(), 0..40)]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(3000))]

    #[test]
    fn contents_are_equal_where_serde_json_says_so(a in any_document(), b in any_document(), pretty in any::<bool>()) {
        prop_assume!(!a.is_null() && !b.is_null());
        let rules = json(vec![Part::Content(path("key"))]);
        let bytes = |text: String| {
            let mut arena = Vec::new();
            Reader::new(Arc::new(rules.clone())).read(&keyed(&text, ""), &mut arena);
            arena
        };
        let (x, y) = (bytes(a.to_string()), bytes(if pretty { format!("{b:#}") } else { b.to_string() }));
        prop_assert_eq!(x == y, a == b);
        if x[0] == KIND_IDENTITY {
            prop_assert_eq!(serde_json::from_str::<Value>(&describe_identity(&x)).unwrap(), Value::from(vec![a]));
        }
    }

    #[test]
    fn no_record_makes_any_form_panic(
        rules in any_form(), key in prop::option::of(any_bytes()), value in prop::option::of(any_bytes()), timestamp in prop::option::of(any::<i64>()),
    ) {
        let mut headers = HeaderBuf::default();
        headers.push(b"a", key.as_deref());
        let record = Record {
            timestamp,
            key: key.as_deref(),
            value: value.as_deref(),
            headers: headers.as_headers(),
            ..record(7, b"")
        };
        rules.problems();
        let once = told(&rules, &record);
        prop_assert_eq!(told(&rules, &record), once);
    }

    /// A tuple's order is that of its elements, nothing being lowest.
    #[test]
    fn tuples_are_in_order(a in (prop::option::of(-3_i64..3), prop::option::of(any::<i64>())), b in (prop::option::of(-3_i64..3), prop::option::of(-3_i64..3))) {
        let of = |tuple_: (Option<i64>, Option<i64>)| tuple(integers(), &serde_json::to_string(&tuple_).unwrap());
        prop_assert_eq!(of(a).cmp(&of(b)), a.cmp(&b));
    }
}

#[test]
fn limits_that_nobody_sets_hold_at_their_edges() {
    let rows = json(vec![Part::Rows { of: paths(&["value.data"]), named: Names::At(path("value.names")) }]);
    let fields = |count: usize| {
        let names: Vec<String> = (0..count).map(|n| format!("\"f{n}\"")).collect();
        let fields: Vec<String> = (0..count).map(|n| format!("\"f{n}\":1")).collect();
        format!(r#"{{"names":[{}],"data":{{{}}}}}"#, names.join(","), fields.join(","))
    };
    assert!(told(&rows, &record(0, fields(64).as_bytes())).is_ok());
    assert_eq!(because(&rows, &record(0, fields(65).as_bytes())), Reason::IdentityMissing);

    let number = json(vec![Part::Scalar(path("value.id"))]);
    let exponent = |digits: usize| format!(r#"{{"id":1e{}}}"#, "9".repeat(digits));
    assert!(told(&number, &record(0, exponent(18).as_bytes())).is_ok());
    assert_eq!(because(&number, &record(0, exponent(19).as_bytes())), Reason::IdentityTooLong);

    let text = VersionPart::new(path("value.v"), VersionKind::Text);
    let text = Rules { version: Some(Version { parts: vec![text] }), ..number };
    let version = |bytes: usize| format!(r#"{{"id":1,"v":"{}"}}"#, "v".repeat(bytes));
    assert!(told(&text, &record(0, version(1024).as_bytes())).is_ok());
    let refusal = told(&text, &record(0, version(1025).as_bytes())).unwrap_err();
    assert_eq!(refusal.reason, Reason::VersionMalformed);
    assert!(refusal.message.ends_with("takes 1025 bytes, more than the limit of 1024"), "{}", refusal.message);

    let epoch = Epoch { parts: vec![EpochPart { of: paths(&["value.e"]), none: Vec::new() }] };
    let short = Limits { identity_bytes_max: 100, ..Limits::default() };
    let scoped = Rules { epoch: Some(epoch), limits: short, ..text };
    // A text takes two bytes more than it has, for its tag and its length.
    let scope = |bytes: usize| format!(r#"{{"id":1,"v":"v","e":"{}"}}"#, "e".repeat(bytes));
    assert!(told(&scoped, &record(0, scope(98).as_bytes())).is_ok());
    let refusal = told(&scoped, &record(0, scope(99).as_bytes())).unwrap_err();
    assert_eq!(refusal.reason, Reason::VersionMalformed);
    assert_eq!(refusal.message, "the epoch takes more bytes than the limit of 100");
}

#[test]
fn rows_of_more_bytes_than_a_record_are_refused() {
    let row = Part::Rows { of: paths(&["value.data"]), named: Names::Given(vec!["a".into()]) };
    let rows = json(vec![Part::Scalar(path("value.id")), row]);
    let value = format!(r#"{{"id":"{}","data":[{}]}}"#, "i".repeat(100), [r#"{"a":"v"}"#; 50].join(","));
    let within = |record_bytes_max: usize| {
        let limits = Limits { record_bytes_max, ..Limits::default() };
        told(&Rules { limits, ..rows.clone() }, &record(0, value.as_bytes()))
    };
    // The first identity, of 102 bytes for the id and 8 for the row, once for each further row; and all rows.
    let bytes = (102 + 8) * 49 + 8 * 50;
    assert_eq!(within(bytes).unwrap().rows.len(), 50);
    let refusal = within(bytes - 1).unwrap_err();
    assert_eq!(refusal.reason, Reason::IdentityTooLong);
    assert!(refusal.message.starts_with("the rows' identities take more bytes"), "{}", refusal.message);
}

#[test]
fn keys_are_nested_as_deep_as_values_may_be() {
    let rules = json(vec![Part::Scalar(path("key.id"))]);
    let key = |depth: usize| format!(r#"{{"id":1,"x":{}{}}}"#, "[".repeat(depth - 1), "]".repeat(depth - 1));
    let deepest = rules.limits.json_depth_max;
    assert!(told(&rules, &keyed(&key(deepest), "")).is_ok());
    let refusal = told(&rules, &keyed(&key(deepest + 1), "")).unwrap_err();
    assert_eq!(refusal.reason, Reason::KeyMalformed);
    assert!(refusal.message.contains("nested too deep"), "{}", refusal.message);
}
