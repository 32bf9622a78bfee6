//! Goal: each type has the right JSON, and absent, repeated, merged and oneof fields are read by Protobuf's rules.

use super::*;

fn steps(paths: &[&str]) -> Vec<Vec<String>> {
    let split = |path: &&str| path.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect();
    paths.iter().map(split).collect()
}

/// The record with these hexadecimal digits.
pub(super) fn record(hex: &str) -> Vec<u8> {
    let digits: Vec<_> = hex.chars().filter_map(|c| c.to_digit(16)).collect();
    digits.chunks(2).map(|pair| (pair[0] << 4 | pair[1]) as u8).collect()
}

/// The JSON at each path; `-` if nothing is there.
fn texts(schema: &str, paths: &[&str], hex: &str) -> Vec<String> {
    let schema = Schema::parse(schema, &[]).unwrap();
    let (steps, places) = Steps::new(&steps(paths));
    let plan = Plan::new(&schema, schema.message(&[0]).unwrap(), &steps, 100);
    let mut to = Extracted::default();
    plan.read(&record(hex), &mut to).unwrap();
    let text = |place: usize| {
        let json = to.json();
        match to.found(place) {
            Found::Missing => "-".to_owned(),
            Found::Null => "null".to_owned(),
            Found::Bool(value) => value.to_string(),
            Found::Number { from, to } | Found::Composite { from, to } => {
                String::from_utf8_lossy(&json[from..to]).into_owned()
            }
            Found::Text { from, to, .. } => String::from_utf8_lossy(&json[from - 1..to + 1]).into_owned(),
        }
    };
    places.into_iter().map(text).collect()
}

fn text(schema: &str, path: &str, hex: &str) -> String {
    texts(schema, &[path], hex).remove(0)
}

fn error(schema: &str, path: &str, hex: &str) -> String {
    let schema = Schema::parse(schema, &[]).unwrap();
    let (steps, _) = Steps::new(&steps(&[path]));
    Plan::new(&schema, schema.message(&[0]).unwrap(), &steps, 100)
        .read(&record(hex), &mut Extracted::default())
        .unwrap_err()
        .to_string()
}

#[test]
fn scalars_are_their_json() {
    for (of, hex, expected) in [
        ("int32", "08 ff ff ff ff ff ff ff ff ff 01", "-1"),
        ("int32", "08 ff ff ff ff 0f", "-1"),
        ("int32", "08 ff ff ff ff 1f", "-1"),
        ("int64", "08 80 80 80 80 80 80 80 80 80 01", "-9223372036854775808"),
        ("uint32", "08 ff ff ff ff 1f", "4294967295"),
        ("uint64", "08 ff ff ff ff ff ff ff ff ff 01", "18446744073709551615"),
        ("sint32", "08 01", "-1"),
        ("sint32", "08 ff ff ff ff 0f", "-2147483648"),
        ("sint64", "08 fe ff ff ff ff ff ff ff ff 01", "9223372036854775807"),
        ("sint64", "08 ff ff ff ff ff ff ff ff ff 01", "-9223372036854775808"),
        ("fixed32", "0d ff ff ff ff", "4294967295"),
        ("sfixed32", "0d ff ff ff ff", "-1"),
        ("fixed64", "09 ff ff ff ff ff ff ff ff", "18446744073709551615"),
        ("sfixed64", "09 fe ff ff ff ff ff ff ff", "-2"),
        ("bool", "08 01", "true"),
        ("bool", "08 80 80 01", "true"),
        ("bool", "08 00", "false"),
        ("double", "09 9a 99 99 99 99 99 b9 3f", "0.1"),
        ("double", "09 00 00 00 00 00 00 1c 40", "7"),
        ("double", "09 00 00 00 00 00 00 00 80", "-0.0"),
        ("float", "0d 00 00 00 80", "-0.0"),
        ("double", "09 00 00 00 00 00 00 f0 7f", "\"Infinity\""),
        ("double", "09 00 00 00 00 00 00 f0 ff", "\"-Infinity\""),
        ("double", "09 01 00 00 00 00 00 f8 7f", "\"NaN\""),
        ("double", "09 ff ff ff ff ff ff ef 7f", "1.7976931348623157e+308"),
        ("double", "09 01 00 00 00 00 00 00 00", "5e-324"),
        ("float", "0d cd cc cc 3d", "0.1"),
        ("float", "0d 00 00 80 ff", "\"-Infinity\""),
        ("float", "0d 01 00 00 00", "1e-45"),
        ("string", "0a 00", "\"\""),
        ("string", "0a 03 61 22 0a", r#""a\"\n""#),
        ("bytes", "0a 02 ff fe", "\"//4=\""),
        ("bytes", "0a 00", "\"\""),
        ("E", "08 02", "\"TWO\""),
        ("E", "08 03", "3"),
        ("E", "08 ff ff ff ff ff ff ff ff ff 01", "\"LESS\""),
        ("M", "0a 02 0a 00", r#"{"f":{}}"#),
    ] {
        let schema = format!(
            "syntax = \"proto3\"; message M {{ optional {of} f = 1; }} \
             enum E {{ option allow_alias = true; ZERO = 0; TWO = 2; ZWEI = 2; LESS = -1; }}"
        );
        assert_eq!(text(&schema, "f", hex), expected, "{of} {hex}");
        assert_eq!(text(&schema, "", hex), format!(r#"{{"f":{expected}}}"#), "{of} {hex}");
        let many = schema.replace("optional", "repeated");
        let element = expected.replace(r#"{"f":{}}"#, r#"{"f":[{"f":[]}]}"#);
        assert_eq!(text(&many, "f.0", hex), element, "{of} {hex}");
    }
}

#[test]
fn floats_are_the_shortest_that_give_them_back() {
    let schema = "message M { optional double d = 1; optional float f = 2; }";
    let mut random = random::Random(1);
    for _ in 0..2_000 {
        let bits = (0..4).fold(0_u64, |bits, _| bits << 16 | random.below(1 << 16) as u64);
        let (double, float) = (f64::from_bits(bits), f32::from_bits(bits as u32));
        let hex: String = [&[9][..], &double.to_le_bytes(), &[21], &float.to_le_bytes()]
            .concat()
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        let texts = texts(schema, &["d", "f"], &hex);
        if double.is_finite() {
            assert_eq!(texts[0].parse(), Ok(double));
        }
        if float.is_finite() {
            assert_eq!(texts[1].parse(), Ok(float));
            assert!(texts[1].len() <= format!("{float:e}").len() + 22);
        }
    }
}

#[test]
fn absent_fields_are_their_defaults_or_missing() {
    let enums = "enum E { ZERO = 0; ONE = 1; }";
    let paths = ["a", "b", "c", "d", "e", "f", "g", "h", "g.a", "f.0"];
    let proto3 = format!(
        "syntax = \"proto3\"; message M {{ int32 a = 1; optional int32 b = 2; string c = 3; E d = 4; bytes e = 5; \
         repeated int32 f = 6; M g = 7; map<string, M> h = 8; }} {enums}"
    );
    assert_eq!(texts(&proto3, &paths, ""), ["0", "-", "\"\"", "\"ZERO\"", "\"\"", "[]", "-", "{}", "-", "-"]);
    assert_eq!(text(&proto3, "", ""), r#"{"a":0,"c":"","d":"ZERO","e":"","f":[],"h":{}}"#);
    // A present message has defaults of its own.
    assert_eq!(texts(&proto3, &paths, "3a 00")[6..9], [r#"{"a":0,"c":"","d":"ZERO","e":"","f":[],"h":{}}"#, "{}", "0"]);
    let proto2 = format!(
        "message M {{ optional int32 a = 1 [default = -7]; optional int32 b = 2; \
         optional string c = 3 [default = \"x\\n\"]; \
         optional E d = 4 [default = ONE]; optional bytes e = 5 [default = \"\\377\"]; repeated int32 f = 6; \
         optional M g = 7; map<string, M> h = 8; required float i = 9; optional float j = 10 [default = -inf]; \
         optional double k = 11 [default = 1e3]; optional bool l = 12 [default = true]; }} {enums}"
    );
    assert_eq!(texts(&proto2, &paths, ""), ["-7", "-", r#""x\n""#, "\"ONE\"", "\"/w==\"", "[]", "-", "{}", "-", "-"]);
    assert_eq!(texts(&proto2, &["i", "j", "k", "l"], ""), ["-", "\"-Infinity\"", "1000", "true"]);
    // A present field counts, whatever its value is.
    assert_eq!(texts(&proto2, &paths, "08 00 1a 00 20 00 2a 00")[..5], ["0", "-", "\"\"", "\"ZERO\"", "\"\""]);
    let edition = "edition = \"2023\"; message M { int32 a = 1; int32 b = 2 [features.field_presence = IMPLICIT]; }";
    assert_eq!(texts(edition, &["a", "b"], ""), ["-", "0"]);
}

/// The record was written by the Protobuf library for Python.
#[test]
fn editions_are_read_as_their_features_say() {
    let schema = include_str!("../../../schemas/protobuf/tests/edition.proto");
    let hex = "08071801230801242a02100132070a016b120208043b08063c4001400253081254";
    assert_eq!(
        text(schema, "", hex),
        r#"{"id":7,"note":"none","must":1,"line":{"n":-1,"kind":"NONE"},"whole":{"n":0,"kind":"SOME"},"#.to_owned()
            + r#""lines":{"k":{"n":2,"kind":"NONE"}},"list":[{"n":3,"kind":"NONE"}],"numbers":[1,2],"#
            + r#""b":{"n":9,"kind":"NONE"}}"#
    );
    assert_eq!(texts(schema, &["lines.k.n", "list.0.n", "b.n", "a"], hex), ["2", "3", "9", "-"]);
}

#[test]
fn last_field_of_a_oneof_counts() {
    let schema =
        "message M { oneof o { int32 a = 1; string b = 2 [default = \"d\"]; M c = 3; } optional int32 x = 4; }";
    for (hex, expected) in [
        ("", ["-", "\"d\"", "-", "-"]),
        ("08 01", ["1", "\"d\"", "-", "-"]),
        ("08 01 12 01 62", ["-", "\"b\"", "-", "-"]),
        ("12 01 62 08 01 08 02", ["2", "\"d\"", "-", "-"]),
        // Two occurrences of a message are merged, unless another field of the oneof comes between.
        ("1a 02 20 01 1a 02 08 05", ["-", "\"d\"", r#"{"b":"d","a":5,"x":1}"#, "1"]),
        ("1a 02 20 01 08 01 1a 02 08 05", ["-", "\"d\"", r#"{"b":"d","a":5}"#, "-"]),
        ("1a 02 20 01 08 01", ["1", "\"d\"", "-", "-"]),
    ] {
        let expected = expected.map(str::to_owned);
        assert_eq!(texts(schema, &["a", "b", "c", "c.x"], hex), expected, "{hex}");
    }
    // A field that is not wanted excludes the others as well.
    assert_eq!(text(schema, "a", "08 01 12 01 62"), "-");
}

#[test]
fn the_last_occurrence_counts_and_messages_merge() {
    let schema = "message M { optional int32 a = 1; optional M m = 2; repeated int32 r = 3; optional string s = 4; }";
    let hex = "22 01 61 08 01 12 04 08 05 18 01 08 02 12 06 18 02 18 03 22 00 22 01 62";
    assert_eq!(
        texts(schema, &["a", "s", "m.a", "m.r", "m.r.2", "m.s"], hex),
        ["2", "\"b\"", "5", "[1,2,3]", "3", "\"\""]
    );
    // Fields are written sorted by number.
    assert_eq!(text(schema, "", hex), r#"{"a":2,"m":{"a":5,"r":[1,2,3],"s":""},"r":[],"s":"b"}"#);
}

#[test]
fn elements_may_be_packed_or_not() {
    let schema = "message M { repeated sint32 a = 1; repeated fixed64 b = 2 [packed = true]; repeated float c = 3; }";
    for hex in ["08 02 08 01 08 04", "0a 03 02 01 04", "08 02 0a 02 01 04", "0a 00 0a 01 02 0a 01 01 08 04"] {
        assert_eq!(texts(schema, &["a", "a.0", "a.2", "a.3"], hex), ["[1,-1,2]", "1", "2", "-"], "{hex}");
    }
    let eight = "01 00 00 00 00 00 00 00";
    assert_eq!(text(schema, "b", &format!("12 10 {eight} {eight} 11 {eight}")), "[1,1,1]");
    assert_eq!(text(schema, "c", "1a 04 00 00 80 3f 1d 00 00 00 40"), "[1,2]");
    assert_eq!(
        error(schema, "b", "12 03 01 02 03"),
        "a value that is longer than the rest of the message (byte 2, in `b`)"
    );
    assert_eq!(error(schema, "a.0", "0a 02 01 80"), "the bytes end inside an integer (byte 4, in `a`)");
}

#[test]
fn last_entry_of_a_repeated_key_counts() {
    let schema = "syntax = \"proto3\"; message M { map<string, int32> a = 1; map<sint32, M> b = 2; \
                  map<bool, string> c = 3; \
                  map<uint64, E> d = 4; int32 x = 5; int32 y = 6; } enum E { ZERO = 0; ONE = 1; }";
    let a = "0a 05 0a 01 6b 10 01  0a 05 0a 01 6a 10 02  0a 05 0a 01 6b 10 03";
    assert_eq!(texts(schema, &["a", "a.k", "a.j", "a.z"], a), [r#"{"j":2,"k":3}"#, "3", "2", "-"]);
    // The value before the key; neither of them; both of them twice.
    assert_eq!(text(schema, "a", "0a 05 10 07 0a 01 6b"), r#"{"k":7}"#);
    assert_eq!(texts(schema, &["a", "a.k"], "0a 00 0a 03 0a 01 6b"), [r#"{"":0,"k":0}"#, "0"]);
    assert_eq!(texts(schema, &["a", "a.k"], "0a 0a 0a 01 6a 0a 01 6b 10 01 10 02"), [r#"{"k":2}"#, "2"]);
    // Occurrences of a value merge within an entry, but not across entries.
    let b = "12 08 08 01 12 04 28 01 30 02  12 0a 08 01 12 02 28 03 12 02 30 04  12 02 08 03";
    let empty = r#""a":{},"b":{},"c":{},"d":{},"x""#;
    assert_eq!(texts(schema, &["b.-1.x", "b.-1.y", "b.-2", "b.-2.x"], b)[..2], ["3", "4"]);
    assert_eq!(texts(schema, &["b.-2", "b.-2.x"], b), [&*format!(r#"{{{empty}:0,"y":0}}"#), "0"]);
    let one = "12 06 08 01 12 02 28 03  12 06 08 01 12 02 30 04";
    assert_eq!(texts(schema, &["b.-1.x", "b.-1.y"], one), ["0", "4"]);
    assert_eq!(text(schema, "c", "1a 05 08 01 12 01 61 1a 03 12 01 62"), r#"{"false":"b","true":"a"}"#);
    assert_eq!(
        texts(schema, &["d.18446744073709551615", "d.0"], "22 0d 08 ff ff ff ff ff ff ff ff ff 01 10 01 22 00"),
        ["\"ONE\"", "\"ZERO\""]
    );
    assert_eq!(error(schema, "a.k", "0a 03 0a 01 ff"), "a string that is not UTF-8 (byte 4, in `a`)");
}

#[test]
fn fields_with_another_wire_type_are_unknown() {
    let schema = "message M { optional int32 a = 1; map<int32, int32> m = 2; \
                  optional group G = 3 { optional int32 x = 1; } \
                  repeated int32 r = 4; optional M n = 5; }";
    for (hex, path) in [
        ("08 05 0d 01 00 00 00 0a 01 00 0b 08 01 0c", "a"),
        ("12 04 08 01 10 05 10 01 13 14", "m.1"),
        ("1b 08 05 1c 1a 02 08 06", "g.x"),
        ("20 05 25 01 00 00 00", "r.0"),
        ("2a 02 08 05 2b 08 06 2c", "n.a"),
    ] {
        assert_eq!(text(schema, path, hex), "5", "{path}");
    }
    // Unknown numbers with each wire type, also nested.
    let unknown = "98 06 01 99 06 01 02 03 04 05 06 07 08 9a 06 01 00 9b 06 9b 06 08 01 9c 06 9c 06 9d 06 01 02 03 04";
    assert_eq!(text(schema, "a", &format!("{unknown} 08 05 {unknown}")), "5");
}

#[test]
fn well_known_types_are_their_json() {
    let known = |of: &str, path: &str, hex: &str| {
        let imports = ["any", "timestamp", "duration", "field_mask", "struct", "wrappers", "empty"];
        let imports = imports.map(|name| format!("import \"google/protobuf/{name}.proto\";")).concat();
        let schema = format!(
            "syntax = \"proto3\"; {imports} import \"confluent/type/decimal.proto\"; message M {{ {of} f = 1; }}"
        );
        text(&schema, path, hex)
    };
    for (of, hex, expected) in [
        ("Timestamp", "0a 00", "\"1970-01-01T00:00:00Z\""),
        ("Timestamp", "0a 06 08 80 f2 8b ae 06", "\"2024-02-07T03:29:04Z\""),
        ("Timestamp", "0a 05 10 e8 d5 da 03", "\"1970-01-01T00:00:00.007777Z\""),
        ("Timestamp", "0a 04 10 c0 84 3d", "\"1970-01-01T00:00:00.001Z\""),
        ("Timestamp", "0a 02 10 01", "\"1970-01-01T00:00:00.000000001Z\""),
        ("Timestamp", "0a 0b 08 ff ff ff ff ff ff ff ff ff 01", "\"1969-12-31T23:59:59Z\""),
        ("Timestamp", "0a 07 08 ff 82 d1 ff af 07", "\"9999-12-31T23:59:59Z\""),
        ("Timestamp", "0a 0b 08 80 92 b8 c3 98 fe ff ff ff 01", "\"0001-01-01T00:00:00Z\""),
        ("Duration", "0a 02 08 05", "\"5s\""),
        ("Duration", "0a 0b 10 c0 fb c2 ff ff ff ff ff ff 01", "\"-0.001s\""),
        ("Duration", "0a 05 08 01 10 e8 07", "\"1.000001s\""),
        ("FieldMask", "0a 0e 0a 05 61 5f 62 2e 63 0a 05 64 5f 65 5f 66", "\"aB.c,dEF\""),
        ("FieldMask", "0a 00", "\"\""),
        ("Empty", "0a 00", "{}"),
        ("Int64Value", "0a 00", "0"),
        ("Int64Value", "0a 02 08 07", "7"),
        ("StringValue", "0a 03 0a 01 61", "\"a\""),
        ("BytesValue", "0a 03 0a 01 61", "\"YQ==\""),
        ("BoolValue", "0a 02 08 01", "true"),
        ("FloatValue", "0a 05 0d cd cc cc 3d", "0.1"),
        ("Value", "0a 00", "null"),
        ("Value", "0a 02 08 00", "null"),
        ("Value", "0a 09 11 00 00 00 00 00 00 f8 3f", "1.5"),
        ("Value", "0a 02 20 01", "true"),
        ("Value", "0a 02 2a 00", "{}"),
        ("Value", "0a 06 32 04 0a 02 20 01", "[true]"),
        ("Struct", "0a 09 0a 07 0a 01 61 12 02 1a 00", r#"{"a":""}"#),
        ("ListValue", "0a 08 0a 02 08 00 0a 02 1a 00", r#"[null,""]"#),
        ("Any", "0a 06 0a 01 74 12 01 ff", r#"{"@type":"t","value":"/w=="}"#),
        ("Any", "0a 00", r#"{"@type":"","value":""}"#),
        ("NullValue", "08 00", "null"),
    ] {
        let of = format!("google.protobuf.{of}");
        assert_eq!(known(&of, "f", hex), expected, "{of} {hex}");
        assert_eq!(known(&of, "", hex), format!(r#"{{"f":{expected}}}"#), "{of} {hex}");
        let expected = if of.ends_with("NullValue") { "null" } else { "-" };
        assert_eq!(known(&of, "f", ""), expected, "{of}");
        assert_eq!(known(&of, "f.seconds", hex), "-", "{of}");
    }
    for (hex, expected) in [
        ("0a 00", "0"),
        ("0a 08 0a 02 04 d2 10 04 18 02", "12.34"),
        ("0a 05 0a 01 ff 18 03", "-0.001"),
        ("0a 0e 0a 01 01 18 fd ff ff ff ff ff ff ff ff 01", "1000"),
    ] {
        assert_eq!(known("confluent.type.Decimal", "f", hex), expected, "{hex}");
    }
    for (path, expected) in [("f.a.0", "null"), ("f.a.1.b", "\"x\""), ("f.a.2", "-"), ("f.c", "-"), ("f.a.x", "-")] {
        // {"a": [null, {"b": "x"}]}
        let hex = "0a 1b 0a 19 0a 01 61 12 14 32 12 0a 02 08 00 0a 0c 2a 0a 0a 08 0a 01 62 12 03 1a 01 78";
        assert_eq!(known("google.protobuf.Struct", path, hex), expected, "{path}");
    }
    assert_eq!(known("google.protobuf.Any", "f.@type", "0a 03 0a 01 74"), "\"t\"");
    assert_eq!(known("google.protobuf.Any", "f.value", "0a 03 0a 01 74"), "\"\"");
}

#[test]
fn times_out_of_range_and_huge_decimals_are_errors() {
    let schema = "syntax = \"proto3\"; import 'google/protobuf/timestamp.proto'; \
                  import 'google/protobuf/duration.proto'; \
                  import 'confluent/type/decimal.proto'; message M { google.protobuf.Timestamp t = 1; \
                  google.protobuf.Duration d = 2; confluent.type.Decimal n = 3; string s = 4; }";
    let late = "0a 07 08 80 83 d1 ff af 07";
    assert_eq!(error(schema, "t", late), "a timestamp outside the years 1 to 9999 (byte 2, in `t`)");
    assert_eq!(
        error(schema, "t", "0a 06 10 80 94 eb dc 03"),
        "a timestamp outside the years 1 to 9999 (byte 2, in `t`)"
    );
    let mixed = "12 0d 08 01 10 ff ff ff ff ff ff ff ff ff 01";
    assert_eq!(error(schema, "", mixed), "an invalid duration (byte 2, in `d`)");
    assert_eq!(
        error(schema, "n", "1a 07 0a 01 01 18 ff ff 03"),
        "a decimal with more digits than any database has (byte 2, in `n`)"
    );
    assert_eq!(error(schema, "s", "22 02 61 ff"), "a string that is not UTF-8 (byte 3, in `s`)");
    // Fields that are not wanted may contain anything.
    assert_eq!(text(schema, "s", &format!("{late} {mixed} 22 01 61")), "\"a\"");
}

#[test]
fn both_names_of_a_field_lead_to_it() {
    let schema =
        "syntax = \"proto3\"; message M { int32 order_id = 1; M next_one = 2 [json_name = \"n\"]; string n = 3; }";
    let hex = "08 07 12 02 08 08 1a 01 78";
    let paths = ["order_id", "orderId", "next_one.orderId", "next_one.order_id", "n", "next_one", "nextOne"];
    let next = r#"{"order_id":8,"n":""}"#;
    assert_eq!(texts(schema, &paths, hex), ["7", "7", "8", "8", "\"x\"", next, "-"]);
    assert_eq!(text(schema, "", hex), format!(r#"{{"order_id":7,"next_one":{next},"n":"x"}}"#));
}

#[test]
fn places_may_be_inside_each_other() {
    let schema = "message M { optional int32 a = 1; repeated M m = 2; map<string, M> k = 3; }";
    let hex = "08 01 12 02 08 02 12 06 12 04 08 03 08 04 1a 07 0a 01 78 12 02 08 05";
    let paths = ["", "m", "m.1", "m.1.m.0.a", "k", "k.x", "k.x.a", "a", "m.2"];
    let empty = r#""m":[],"k":{}"#;
    let inner = format!(r#"{{"m":[{{"a":4,{empty}}}],"k":{{}}}}"#);
    let list = format!(r#"[{{"a":2,{empty}}},{inner}]"#);
    let entry = format!(r#"{{"a":5,{empty}}}"#);
    let map = format!(r#"{{"x":{entry}}}"#);
    let all = format!(r#"{{"a":1,"m":{list},"k":{map}}}"#);
    assert_eq!(texts(schema, &paths, hex), [&*all, &list, &inner, "4", &map, &entry, "5", "1", "-"]);
}

#[test]
fn shape_names_the_strings_of_wanted_objects() {
    let schema = "syntax = \"proto3\"; import 'google/protobuf/timestamp.proto'; \
                  import 'google/protobuf/wrappers.proto'; \
                  enum E { ZERO = 0; } message M { string s = 1; bytes b = 2; int32 i = 3; E e = 4; \
                  repeated string r = 5; \
                  google.protobuf.Timestamp t = 6; google.protobuf.StringValue w = 7; \
                  google.protobuf.BytesValue v = 8; \
                  M m = 9; repeated M l = 10; map<string, M> k = 11; map<string, string> x = 12; }";
    let schema = Schema::parse(schema, &[]).unwrap();
    let (tree, _) = Steps::new(&steps(&["m", "l.0.m", "k.a", "s", "m.m.i"]));
    let plan = Plan::new(&schema, schema.message(&[0]).unwrap(), &tree, 100);
    let texts = |path: &str| plan.shape().at(&steps(&[path])[0]).texts().map(str::to_owned);
    let expected = Some(r#"["s","e","r","t","w"]"#.to_owned());
    for path in ["m", "l.0.m", "l.7.m", "k.a"] {
        assert_eq!(texts(path), expected, "{path}");
    }
    for path in ["", "s", "m.m", "l.0", "k"] {
        assert_eq!(texts(path), None, "{path}");
    }
    assert!(!plan.shape().holds_logical());
    let (tree, _) = Steps::new(&steps(&["s", "m.i"]));
    assert_eq!(*Plan::new(&schema, schema.message(&[0]).unwrap(), &tree, 100).shape(), Shape::Plain);
}

#[test]
fn record_may_be_a_message_that_is_declared_in_another() {
    let schema = Schema::parse("message M { message N { optional int32 a = 1; } }", &[]).unwrap();
    let (tree, places) = Steps::new(&steps(&["a"]));
    let mut to = Extracted::default();
    Plan::new(&schema, schema.message(&[0, 0]).unwrap(), &tree, 100).read(&[8, 5], &mut to).unwrap();
    assert_eq!(value(&to, places[0]), Some(5.into()));
}
