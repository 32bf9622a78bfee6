//! Goal: every type and logical type is written as the module says, and found inside every other type.

use super::*;

#[test]
fn scalars_are_written_as_json() {
    for (text, bytes, expected) in [
        (r#""null""#, vec![], "null"),
        (r#""boolean""#, vec![1], "true"),
        (r#""boolean""#, vec![0], "false"),
        (r#""int""#, long(i32::MIN.into()), "-2147483648"),
        (r#""int""#, long(i32::MAX.into()), "2147483647"),
        (r#""long""#, long(i64::MIN), "-9223372036854775808"),
        (r#""long""#, long(i64::MAX), "9223372036854775807"),
        (r#""long""#, vec![0x80, 0x80, 0], "0"),
        (r#""string""#, prefixed("naïve \"a\\\n\0"), r#""naïve \"a\\\n\u0000""#),
        (r#""string""#, prefixed(""), r#""""#),
        (r#""bytes""#, prefixed([0, 255, 254, 1]), r#""AP/+AQ==""#),
        (r#""bytes""#, prefixed(""), r#""""#),
        (r#"{"type":"fixed","name":"F","size":3}"#, vec![1, 2, 3], r#""AQID""#),
        (r#"{"type":"fixed","name":"F","size":0}"#, vec![], r#""""#),
        (r#"{"type":"enum","name":"E","symbols":["A","B\"C"]}"#, long(1), r#""B\"C""#),
        (r#"{"type":"int","logicalType":"date"}"#, long(-1), "-1"),
        (r#"{"type":"long","logicalType":"timestamp-micros"}"#, long(1_700_000_000_000_000), "1700000000000000"),
    ] {
        assert_eq!(whole(text, &bytes).as_deref(), Ok(expected), "{text}");
    }
}

#[test]
fn floats_are_the_shortest_numbers_that_give_them_back() {
    for (float, expected) in [
        (0.1_f32, "0.1"),
        (1.0, "1"),
        (-2.5, "-2.5"),
        (f32::MAX, "3.4028235e+38"),
        (f32::MIN_POSITIVE, "1.1754944e-38"),
        (0.0, "0"),
        (-0.0, "-0.0"),
        (f32::NAN, r#""NaN""#),
        (f32::INFINITY, r#""Infinity""#),
    ] {
        let json = whole(r#""float""#, &float.to_le_bytes()).unwrap();
        assert_eq!(json, expected);
        assert!(json.starts_with('"') || json.parse::<f32>().unwrap().to_bits() == float.to_bits());
    }
    for (float, expected) in [
        (0.1_f64, "0.1"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e21, "1e+21"),
        (f64::MAX, "1.7976931348623157e+308"),
        (f64::from_bits(1), "5e-324"),
        (-0.0, "-0.0"),
        (-f64::NAN, r#""NaN""#),
        (f64::NEG_INFINITY, r#""-Infinity""#),
    ] {
        let json = whole(r#""double""#, &float.to_le_bytes()).unwrap();
        assert_eq!(json, expected);
        assert!(json.starts_with('"') || json.parse::<f64>().unwrap().to_bits() == float.to_bits());
    }
}

#[test]
fn decimals_are_exact_with_all_digits_of_their_scale() {
    let text = r#"{"type":"bytes","logicalType":"decimal","precision":64,"scale":2}"#;
    for (bytes, expected) in [
        (&[0][..], "0.00"),
        (&[0xff], "-0.01"),
        (&[0x04, 0xd2], "12.34"),
        (&[0, 0, 0, 0, 0x04, 0xce], "12.30"),
        (&[0x80, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "-1701411834604692317316873037158841057.28"),
        (&[0x7f, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff], "23611832414348226068.47"),
        (&[1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0], "3402823669209384634633746074317682114.56"),
    ] {
        assert_eq!(whole(text, &prefixed(bytes)).as_deref(), Ok(expected));
    }
    let fixed = r#"{"type":"fixed","name":"F","size":4,"logicalType":"decimal","precision":9,"scale":9}"#;
    assert_eq!(whole(fixed, &[0, 0, 0, 7]).as_deref(), Ok("0.000000007"));
    let connect = r#"{"type":"bytes","logicalType":"decimal","precision":64,"scale":-2,
        "connect.name":"org.apache.kafka.connect.data.Decimal","connect.parameters":{"scale":"-2"}}"#;
    assert_eq!(whole(connect, &prefixed([7])).as_deref(), Ok("700"));
    let error = whole(text, &prefixed([])).unwrap_err();
    assert_eq!(error.to_string(), "a decimal without bytes, or with more digits than any database has (byte 0)");

    let big = r#"{"type":"bytes","logicalType":"big-decimal"}"#;
    let inner = |unscaled: &[u8], scale| prefixed([prefixed(unscaled), long(scale)].concat());
    assert_eq!(whole(big, &inner(&[0x04, 0xd2], 3)).as_deref(), Ok("1.234"));
    assert_eq!(whole(big, &inner(&[0x04, 0xd2], -1)).as_deref(), Ok("12340"));
    assert!(whole(big, &prefixed([2, 1])).is_err(), "no scale");
    assert!(whole(big, &prefixed([2, 1, 0, 0])).is_err(), "bytes after the scale");
}

#[test]
fn uuids_are_in_lower_case_with_hyphens() {
    const UUID: &str = r#""00112233-4455-6677-8899-aabbccddeeff""#;
    let text = r#"{"type":"string","logicalType":"uuid"}"#;
    for written in [
        "00112233-4455-6677-8899-AABBCCDDEEFF",
        "00112233-4455-6677-8899-aabbccddeeff",
        "00112233445566778899aabbccddeeff",
    ] {
        assert_eq!(whole(text, &prefixed(written)).as_deref(), Ok(UUID));
    }
    for other in ["", "X0112233-4455-6677-8899-aabbccddeeff", "00112233-44556677--8899-aabbccddeeff", "FF", "é"] {
        assert_eq!(whole(text, &prefixed(other)), Ok(format!("\"{other}\"")));
    }
    let fixed = r#"{"type":"fixed","name":"F","size":16,"logicalType":"uuid"}"#;
    let bytes: Vec<u8> = (0..16).map(|i| i * 0x11).collect();
    assert_eq!(whole(fixed, &bytes).as_deref(), Ok(UUID));
}

#[test]
fn durations_are_objects_with_three_numbers() {
    let text = record(r#"{"name":"d","type":{"type":"fixed","name":"F","size":12,"logicalType":"duration"}}"#);
    let bytes = [1_u32.to_le_bytes(), 2_u32.to_le_bytes(), u32::MAX.to_le_bytes()].concat();
    let found = read(&text, &bytes, &["d", "d.days", "d.millis", "d.weeks"]).unwrap();
    let duration = r#"{"months":1,"days":2,"millis":4294967295}"#;
    assert_eq!(found, [Some(duration), Some("2"), Some("4294967295"), None].map(|json| json.map(str::to_owned)));
    assert_eq!(read(&text, &bytes, &["d.months"]).unwrap(), [Some("1".to_owned())]);
}

/// A shop's order, and one of its records.
fn order() -> (String, Vec<u8>) {
    let text = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
        {"name":"id","type":"long","aliases":["order_id"]},
        {"name":"note","type":["null","string"]},
        {"name":"void","type":"null"},
        {"name":"lines","type":{"type":"array","items":{"type":"record","name":"Line","fields":[
            {"name":"sku","type":"string"},{"name":"count","type":"int"}]}}},
        {"name":"tags","type":{"type":"map","values":["null","string","Line"]}},
        {"name":"any","type":["long","Line",{"type":"array","items":"double"}]},
        {"name":"end","type":"boolean"}]}"#;
    let bytes = [
        long(7),
        long(0),
        long(2),
        [prefixed("a"), long(1), prefixed("b"), long(2)].concat(),
        long(0),
        long(3),
        [prefixed("x"), long(0), prefixed("y"), long(1), prefixed("why"), prefixed("z"), long(2)].concat(),
        [prefixed("c"), long(3)].concat(),
        long(0),
        long(1),
        [prefixed("d"), long(4)].concat(),
        vec![1],
    ];
    (text.to_owned(), bytes.concat())
}

#[test]
fn paths_lead_through_records_unions_arrays_and_maps() {
    let (text, bytes) = order();
    let expected = [
        ("id", Some("7")),
        ("order_id", Some("7")),
        ("note", Some("null")),
        ("note.x", None),
        ("void", Some("null")),
        ("lines", Some(r#"[{"sku":"a","count":1},{"sku":"b","count":2}]"#)),
        ("lines.0", Some(r#"{"sku":"a","count":1}"#)),
        ("lines.1.count", Some("2")),
        ("lines.2.count", None),
        ("lines.sku", None),
        ("tags.x", Some("null")),
        ("tags.y", Some(r#""why""#)),
        ("tags.z.count", Some("3")),
        ("tags.no", None),
        ("any.sku", Some(r#""d""#)),
        ("any.0", None),
        ("end", Some("true")),
        ("end.x", None),
        ("no", None),
        (
            "",
            Some(concat!(
                r#"{"id":7,"note":null,"void":null,"lines":[{"sku":"a","count":1},{"sku":"b","count":2}],"#,
                r#""tags":{"x":null,"y":"why","z":{"sku":"c","count":3}},"any":{"sku":"d","count":4},"end":true}"#
            )),
        ),
    ];
    for (path, expected) in expected {
        assert_eq!(read(&text, &bytes, &[path]).unwrap()[0].as_deref(), expected, "{path} alone");
    }
    for number in 1..expected.len() {
        // Without the whole record, and with it.
        for paths in [&expected[..number], &expected[number..]] {
            let names: Vec<_> = paths.iter().map(|(path, _)| *path).collect();
            let found = read(&text, &bytes, &names).unwrap();
            for ((path, expected), found) in paths.iter().zip(found) {
                assert_eq!(found.as_deref(), *expected, "{path} among {names:?}");
            }
        }
    }
}

#[test]
fn fields_are_found_by_name_and_alias_at_once_however_deep() {
    let text = record(
        r#"{"name":"new","aliases":["old","older"],"type":{"type":"record","name":"S","fields":[
            {"name":"a","aliases":["b"],"type":"int"},{"name":"c","aliases":["a"],"type":"int"}]}},
           {"name":"last","type":"int"}"#,
    );
    let bytes = [long(1), long(2), long(3)].concat();
    let expected = [
        ("new.a", "1"),
        ("new.b", "1"),
        ("new.c", "2"),
        ("old.a", "1"),
        ("old.b", "1"),
        ("older.c", "2"),
        ("last", "3"),
        ("old", r#"{"a":1,"c":2}"#),
        ("new", r#"{"a":1,"c":2}"#),
        ("", r#"{"new":{"a":1,"c":2},"last":3}"#),
    ];
    for number in 1..=expected.len() {
        let names: Vec<_> = expected[..number].iter().map(|(path, _)| *path).collect();
        let found = read(&text, &bytes, &names).unwrap();
        for ((path, expected), found) in expected.iter().zip(found) {
            assert_eq!(found.as_deref(), Some(*expected), "{path} among {names:?}");
        }
    }
}

#[test]
fn records_may_contain_themselves() {
    let text = record(
        r#"{"name":"id","type":"int"},{"name":"next","type":["null","R"]},
           {"name":"all","type":{"type":"array","items":"R"}}"#,
    );
    let leaf = |id| [long(id), long(0), long(0)].concat();
    let bytes = [long(1), long(1), leaf(2), long(2), leaf(3), long(4), long(1), leaf(5), long(0), long(0)].concat();
    let found = read(&text, &bytes, &["next.id", "all.1.next.id", "all.0.next.id", "all.1", "all.0.id"]).unwrap();
    let expected =
        [Some("2"), Some("5"), None, Some(r#"{"id":4,"next":{"id":5,"next":null,"all":[]},"all":[]}"#), Some("3")];
    assert_eq!(found, expected.map(|json| json.map(str::to_owned)));
}

#[test]
fn blocks_with_sizes_are_read_and_skipped() {
    let text = record(
        r#"{"name":"a","type":{"type":"array","items":"int"}},{"name":"m","type":{"type":"map","values":"int"}},
           {"name":"end","type":"int"}"#,
    );
    let bytes = [
        [long(-2), long(2), long(1), long(2), long(1), long(3), long(-1), long(1), long(4), long(0)].concat(),
        [long(-1), long(3), prefixed("k"), long(5), long(1), prefixed("l"), long(6), long(0)].concat(),
        long(7),
    ]
    .concat();
    for (path, expected) in [
        ("a", Some("[1,2,3,4]")),
        ("a.0", Some("1")),
        ("a.1", Some("2")),
        ("a.2", Some("3")),
        ("a.3", Some("4")),
        ("a.4", None),
        ("m", Some(r#"{"k":5,"l":6}"#)),
        ("m.k", Some("5")),
        ("m.l", Some("6")),
        ("end", Some("7")),
    ] {
        assert_eq!(read(&text, &bytes, &[path, "end"]).unwrap()[0].as_deref(), expected, "{path}");
        assert_eq!(read(&text, &bytes, &[path, "end"]).unwrap()[1].as_deref(), Some("7"));
    }
    // A skipped block may contain anything.
    let odd = [long(-1), long(2), vec![0xff, 0xff], long(0), long(0), long(7)].concat();
    assert_eq!(read(&text, &odd, &["end"]).unwrap()[0].as_deref(), Some("7"));
    for path in ["a", "a.0"] {
        assert!(read(&text, &odd, &[path]).is_err());
        for size in [1, 3] {
            let lies = [long(-2), long(size), long(1), long(2), long(0), long(0), long(7)].concat();
            assert!(read(&text, &lies, &["a"]).is_err(), "its size is wrong");
        }
    }
}

#[test]
fn last_entry_of_a_repeated_key_counts() {
    let text = r#"{"type":"map","values":["int",{"type":"map","values":"int"}]}"#;
    let inner = [long(1), long(1), prefixed("x"), long(1), long(0)].concat();
    let bytes = [long(2), prefixed("k"), inner, prefixed("k"), long(0), long(5), long(0)].concat();
    for paths in [&["k", "k.x"][..], &["k", "k.x", ""]] {
        let found = read(text, &bytes, paths).unwrap();
        assert_eq!(found[..2], [Some("5".to_owned()), None]);
    }
}

#[test]
fn plans_are_shared_between_threads() {
    fn is_shared<T: Send + Sync>(_: &T) -> bool {
        true
    }
    let schema = schema(r#""int""#);
    assert!(is_shared(&schema) && is_shared(&Reader::new(r#""int""#, &[""]).plan));
}

#[test]
fn nothing_is_left_of_the_previous_record() {
    let text = r#"["null","int"]"#;
    let mut reader = Reader::new(text, &["", "x"]);
    assert_eq!(reader.read(&[2, 8]).unwrap(), [Some("4".to_owned()), None]);
    assert!(reader.read(&[4]).is_err());
    assert_eq!(reader.read(&[0]).unwrap(), [Some("null".to_owned()), None]);
}

#[test]
fn errors_name_the_field_and_the_byte() {
    let (text, bytes) = order();
    let error = |bytes: &[u8], path: &str| read(&text, bytes, &[path]).unwrap_err().to_string();
    for path in ["id", "end", ""] {
        let whole = bytes.len();
        assert_eq!(error(&bytes[..2], path), "the record ends too early (byte 2, in `lines`)");
        assert_eq!(error(&bytes[..8], path), "the record ends too early (byte 8, in `lines.1.count`)");
        assert_eq!(
            error(&bytes[..whole - 1], path),
            format!("the record ends too early (byte {}, in `end`)", whole - 1)
        );
        assert_eq!(error(&[&bytes[..], b"x"].concat(), path), format!("bytes follow the record (byte {whole})"));
        let odd = [&bytes[..whole - 1], &[2]].concat();
        let expected = format!("a boolean that is neither 0 nor 1 (byte {}, in `end`)", whole - 1);
        assert_eq!(error(&odd, path), expected);
        let no_branch = [&bytes[..1], &[4]].concat();
        assert_eq!(error(&no_branch, path), "a union has no branch of this number (byte 1, in `note`)");
        let negative = [&bytes[..1], &[2, 1]].concat();
        assert_eq!(error(&negative, path), "a negative length (byte 2, in `note`)");
        let long = [&[0xff; 10][..], &bytes].concat();
        assert_eq!(error(&long, path), "a number of more than 64 bits (byte 0, in `id`)");
    }
    let invalid = [&bytes[..1], &[2, 4, b'a', 0xff]].concat();
    assert_eq!(error(&invalid, "note"), "invalid UTF-8 (byte 4, in `note`)");
    let int = whole(r#""int""#, &long(1 << 31)).unwrap_err();
    assert_eq!(int.to_string(), "an int of more than 32 bits (byte 0)");
    let symbol = whole(r#"{"type":"enum","name":"E","symbols":["A"]}"#, &long(-1)).unwrap_err();
    assert_eq!(symbol.to_string(), "an enum has no symbol of this number (byte 0)");
}
