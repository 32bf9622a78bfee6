//! Goal: two records have one digest if and only if the rule for contents says that they are the same.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::dedup::tests::{record, rules};
use crate::dedup::{
    Contents, ContentsPart, Format, Identity, IdentityPart, Kinds, Names, Path, Reader, Reading, Reads, Rules, Scalar,
};
use crate::format::Digest;
use crate::record::Record;

fn path(text: &str) -> Path {
    Path::parse(text).unwrap()
}

fn by(parts: Vec<ContentsPart>) -> Rules {
    let mut rules = rules(&["key"], None);
    rules.contents = Some(Contents { parts });
    rules.value_format = Format::ConnectJson;
    rules
}

fn written(text: &str) -> ContentsPart {
    ContentsPart::Written(path(text))
}

/// The digests of a record's rows.
fn digests(rules: &Rules, value: &str) -> Vec<Digest> {
    let mut reader = Reader::new(Arc::new(rules.clone()));
    let record = Record { key: Some(b"k"), ..record(0, value.as_bytes()) };
    match reader.read(&record, &mut Vec::new()) {
        Reading::Row(row) => vec![row.contents.expect("contents are compared")],
        Reading::Rows(rows) => rows.into_iter().map(|row| row.contents.expect("contents are compared")).collect(),
        reading => panic!("{value}: {reading:?}"),
    }
}

fn is_same(rules: &Rules, a: &str, b: &str) -> bool {
    digests(rules, a) == digests(rules, b)
}

fn kinds() -> Kinds {
    let words = |words: &[&str]| words.iter().map(|word| Scalar::Text((*word).to_owned())).collect();
    Kinds {
        of: vec![path("value.op")],
        delete: words(&["d"]),
        read: words(&["r"]),
        reads: Reads::ByVersion,
        truncate: words(&["t"]),
        message: words(&["m"]),
        none: Vec::new(),
        table: Vec::new(),
    }
}

#[test]
fn digests_do_not_change() {
    let hex = |rules: &Rules, value| digests(rules, value)[0].hex();
    let flattened = by(vec![ContentsPart::Flattened(path("value"))]);
    let digests = [
        hex(&rules(&["key"], None), r#"{"id":1}"#),
        hex(&by(vec![written("value.a"), written("value.b")]), r#"{"a":1,"b":"x"}"#),
        hex(&flattened, r#"{"id":1,"t":"\u0041","n":null,"o":{"x": [1]},"__op":"c"}"#),
    ];
    assert_eq!(digests, ["320b9ba6e4d0c68e", "741ae5efeae717bb", "7bc3805e29224665"]);
}

#[test]
fn whole_value_is_compared_as_it_is_written() {
    let rules = rules(&["key"], None);
    assert!(is_same(&rules, r#"{"id":1,"n":2}"#, r#"{"id":1,"n":2}"#));
    assert!(!is_same(&rules, r#"{"id":1,"n":2}"#, r#"{"n":2,"id":1}"#), "another order is a difference");
    assert!(!is_same(&rules, r#"{"id":1,"n":2}"#, r#"{"id":1,"n":2} "#));
    let mut bytes = rules.clone();
    bytes.value_format = Format::Bytes;
    assert!(!is_same(&bytes, "not JSON", "not JSON either"));
}

#[test]
fn parts_do_not_run_into_each_other() {
    let rules = by(vec![written("value.a"), written("value.b")]);
    let all = [
        r#"{"a":"xy","b":"z"}"#,
        r#"{"a":"x","b":"yz"}"#,
        r#"{"a":"xyz"}"#,
        r#"{"b":"xyz"}"#,
        r#"{"a":"xyz","b":""}"#,
        r#"{"a":1,"b":2}"#,
        r#"{"a":"1","b":2}"#,
        r#"{"a":true,"b":2}"#,
        r#"{"a":"true","b":2}"#,
        r#"{"a":[1],"b":2}"#,
        r#"{"a":"[1]","b":2}"#,
        r#"{"a":{},"b":2}"#,
        "{}",
    ];
    for (i, a) in all.iter().enumerate() {
        for (j, b) in all.iter().enumerate() {
            assert_eq!(is_same(&rules, a, b), i == j, "{a} and {b}");
        }
    }
    assert!(is_same(&rules, r#"{"a":null,"c":1}"#, r#"{"c":2}"#), "null is missing, and nothing else counts");
}

#[test]
fn fingerprint_knows_other_ways_to_write_the_same() {
    let part = ContentsPart::Fingerprint { of: path("value"), except: vec![path("value.sent_at")] };
    let rules = by(vec![part]);
    assert!(is_same(&rules, r#"{"id":1,"n":2.0,"sent_at":5}"#, r#"{ "n":2, "id":1, "sent_at":6 }"#));
    assert!(!is_same(&rules, r#"{"id":1,"n":2}"#, r#"{"id":1,"n":3}"#));
    let endless = r#"{"id":1e9999999999999999999}"#;
    assert!(is_same(&rules, endless, endless), "what has no canonical form is compared as written");
    assert!(!is_same(&rules, endless, r#"{"id":1e99999999999999999990}"#));
}

#[test]
fn flattened_row_is_compared_without_the_added_fields() {
    let rules = by(vec![ContentsPart::FirstOf(vec![
        ContentsPart::Flattened(path("value")),
        written("value.after"),
        written("value"),
    ])]);
    let row = |added: &str| format!(r#"{{"id":1,"after":"noon",{added}"name":"x"}}"#);
    let (a, b) = (row(r#""__op":"c","__ts_ms":5,"#), row(r#""__op":"c","__ts_ms":6,"#));
    assert!(is_same(&rules, &a, &b));
    let connect = format!(r#"{{"schema":{{}},"payload":{a}}}"#);
    assert!(is_same(&rules, &connect, &b), "Connect's wrapping does not count");
    assert!(!is_same(&rules, &a, &a.replace("x", "y")), "a column called `after` is no envelope's");
    assert!(!is_same(&rules, &a, &a.replace("\"name\"", "\"nom\"")));
    let envelope = |ts| format!(r#"{{"op":"u","after":{{"id":1,"__tag":"z"}},"ts_ms":{ts}}}"#);
    assert!(is_same(&rules, &envelope(1), &envelope(2)), "a column with such a name makes no flattened row");
    assert!(!is_same(&rules, &envelope(1), &envelope(1).replace('z', "y")));
    assert!(!is_same(&rules, r#"{"op":"u","ts_ms":1}"#, r#"{"op":"u","ts_ms":2}"#), "the last resort is the value");
}

/// A connector may be told to flatten its records, or to write Avro's JSON, in the middle of a topic.
#[test]
fn forms_of_one_change_say_the_same() {
    let rules = by(vec![ContentsPart::FirstOf(vec![ContentsPart::Flattened(path("value")), written("value.after")])]);
    let row = r#""id":1,"o":{"x": [1]},"n":null"#;
    let envelope = format!(r#"{{"op":"u","after":{{{row}}},"ts_ms":5}}"#);
    let forms = [
        format!(r#"{{{row},"__op":"u","__lsn":7}}"#),
        format!(r#"{{"__op":"u",{row},"__lsn":7}}"#),
        format!(r#"{{"schema":{{}},"payload":{envelope}}}"#),
        envelope.replace("{\"id\"", "{\"shop.public.t.Value\":{\"id\"").replace("},\"ts_ms", "}},\"ts_ms"),
    ];
    for form in forms {
        assert!(is_same(&rules, &envelope, &form), "{form}");
    }
}

#[test]
fn kind_belongs_to_the_contents_and_is_all_that_a_delete_says() {
    let mut rules = by(vec![written("value.row")]);
    rules.kinds = Some(kinds());
    let of = |op: &str, row: u8| format!(r#"{{"op":"{op}","row":{row}}}"#);
    assert!(is_same(&rules, &of("c", 1), &of("u", 1)), "both are changes");
    for op in ["d", "t"] {
        assert!(is_same(&rules, &of(op, 1), &of(op, 2)), "{op}");
    }
    for op in ["c", "r", "m"] {
        assert!(!is_same(&rules, &of(op, 1), &of(op, 2)), "{op}");
    }
    let ops = ["c", "r", "d", "t", "m"];
    for (i, a) in ops.iter().enumerate() {
        for b in &ops[..i] {
            assert!(!is_same(&rules, &of(a, 1), &of(b, 1)), "{a} and {b}");
        }
    }
    assert!(digests(&rules, &of("r", 1))[0].is_of_read() && !digests(&rules, &of("c", 1))[0].is_of_read());
}

/// The rows of `value.data`, by their ids.
fn identified_rows() -> IdentityPart {
    IdentityPart::Rows { of: vec![path("value.data")], named: Names::Given(vec!["id".to_owned()]) }
}

#[test]
fn each_row_has_contents_of_its_own() {
    let mut rules = by(vec![written("value.type"), ContentsPart::Rows(vec![path("value.data")])]);
    rules.identity = Identity { parts: vec![identified_rows()] };
    let both = digests(&rules, r#"{"type":"U","data":[{"id":1,"n":5},{"id":2, "n":[6]}]}"#);
    assert_eq!(both.len(), 2);
    assert_ne!(both[0], both[1]);
    let swapped = digests(&rules, r#"{"data":[{"id":2, "n":[6]},{"id":1,"n":5}],"type":"U"}"#);
    assert_eq!(swapped, [both[1], both[0]]);
    assert_eq!(digests(&rules, r#"{"type":"U","data":[{"id":1,"n":5}]}"#), [both[0]], "alone in its record");
    assert_eq!(digests(&rules, r#"{"type":"U","data":{"id":1,"n":5}}"#), [both[0]], "without an array");
    let other = digests(&rules, r#"{"type":"U","data":[{"id":1,"n":7},{"id":2, "n":[6]}]}"#);
    assert!(other[0] != both[0] && other[1] == both[1]);
}

#[test]
fn contents_are_left_alone_where_rules_do_not_compare_them() {
    let mut rules = rules(&["key"], None);
    rules.contents = None;
    let mut reader = Reader::new(Arc::new(rules));
    let record = Record { key: Some(b"k"), ..record(0, b"{}") };
    let Reading::Row(row) = reader.read(&record, &mut Vec::new()) else { panic!("it is read") };
    assert_eq!(row.contents, None);
}

/// Hashing the record, or walking the array, once for each row would go through some 3 TB here.
#[test]
fn many_rows_take_time_that_is_linear_in_their_number() {
    const ROWS: usize = 400_000;
    let rows: Vec<String> = (0..ROWS).map(|id| format!(r#"{{"id":{id},"n":{}}}"#, id % 2)).collect();
    let value = format!(r#"{{"data":[{}]}}"#, rows.join(","));
    for (parts, distinct) in [
        (vec![written("value")], 1),
        (vec![ContentsPart::Rows(vec![path("value.data")])], ROWS),
        (vec![written("value"), ContentsPart::FirstOf(vec![ContentsPart::Rows(vec![path("value.data")])])], ROWS),
        (vec![ContentsPart::Rows(vec![path("value.data")]), written("value")], ROWS),
    ] {
        let mut rules = by(parts.clone());
        rules.identity = Identity { parts: vec![identified_rows()] };
        let started = Instant::now();
        let digests: HashSet<Digest> = digests(&rules, &value).into_iter().collect();
        assert_eq!(digests.len(), distinct, "{parts:?}");
        assert!(started.elapsed() < Duration::from_secs(20), "{parts:?}: {:?}", started.elapsed());
    }
}

#[test]
fn digests_of_different_rules_are_not_comparable() {
    let whole = digests(&rules(&["key"], None), "{}")[0];
    for parts in [vec![written("value.a")], vec![written("value"), written("key")], vec![written("key")]] {
        assert!(!digests(&by(parts.clone()), "{}")[0].is_comparable(whole), "{parts:?}");
    }
}
