//! Goal: no schema and no bytes cause a panic, or more work than the module says.

use super::*;

/// Records of which each contains the next one in both of its fields; the last one contains `last`. Their definitions
/// stand side by side.
fn laughs(levels: usize, last: &str) -> String {
    let level = |i: usize| {
        let inner = if i + 1 == levels { last.to_owned() } else { format!("\"L{}\"", i + 1) };
        format!(
            r#"{{"name":"f{i}","type":["null",{{"type":"record","name":"L{i}","fields":[
                {{"name":"x","type":{inner}}},{{"name":"y","type":{inner}}}]}}]}}"#
        )
    };
    record(&(0..levels).map(level).collect::<Vec<_>>().join(","))
}

#[test]
fn large_schemas_are_parsed_and_compiled() {
    let mut fields = String::new();
    let mut names = Vec::new();
    for i in 0..10_000 {
        let comma = if i == 0 { "" } else { "," };
        fields.push_str(&format!(
            r#"{comma}{{"name":"field{i}","aliases":["old{i}"],"type":["null",{{"type":"int","logicalType":"date"}}]}}"#
        ));
        names.push(format!("field{i}"));
    }
    assert!(fields.len() > 800_000);
    let text = record(&fields);
    let mut reader = Reader::new(&text, &["field0", "old9999", "", "field5000"]);
    let mut bytes = vec![0; 10_000];
    assert_eq!(reader.read(&bytes).unwrap()[3].as_deref(), Some("null"));
    bytes.splice(5_000..5_001, [2, 14]);
    assert_eq!(reader.read(&bytes).unwrap()[3].as_deref(), Some("7"));
    assert!(schema(&text).has(&names[9_999..]));
}

#[test]
fn deep_chains_of_types_are_parsed_and_compiled() {
    let text = laughs(10_000, r#""int""#);
    let parsed = schema(&text);
    let deep: Vec<String> = std::iter::once("f0").chain(std::iter::repeat_n("x", 63)).map(str::to_owned).collect();
    assert!(parsed.has(&deep));
    for paths in [&[deep.clone()][..], &[vec![]], &[deep, vec![]]] {
        let mut reader = Reader::of(&parsed, paths, usize::MAX);
        assert_eq!(reader.read(&[0; 10_000]).unwrap().len(), paths.len());
        // The limit keeps the recursion within the stack.
        let error = reader.read(&[2; 10_000]).unwrap_err();
        assert_eq!(error.what, "nested too deep");
    }
}

#[test]
fn texts_of_schemas_that_are_nested_deep_are_refused() {
    for (open, close) in [("[", "]"), (r#"{"type":"array","items":"#, "}"), (r#"{"type":"#, "}")] {
        let text = format!("{}\"int\"{}", open.repeat(100_000), close.repeat(100_000));
        assert!(Schema::parse(&text, &[]).is_err());
    }
}

#[test]
fn names_and_aliases_take_no_more_than_the_text() {
    let long = "n".repeat(500_000);
    let text = format!(r#"{{"type":"record","name":"R","namespace":"{long}","fields":[]}}"#);
    let error = Schema::parse(&text, &[]).unwrap_err();
    assert_eq!(error.what, "a name, with its namespace, has more than 1024 bytes");
    let aliases: Vec<_> = (0..20_000).map(|i| format!("\"a{i}\"")).collect();
    let text = format!(r#"{{"type":"record","name":"R","aliases":[{}],"fields":[]}}"#, aliases.join(","));
    assert_eq!(Schema::parse(&text, &[]).unwrap_err().what, "the types have more than 10000 aliases");
}

#[test]
fn records_are_read_to_a_depth() {
    let text = record(r#"{"name":"next","type":["null","R"]}"#);
    let nested = |levels: usize| [vec![2; levels - 1], vec![0]].concat();
    for path in ["", "next", "no"] {
        let mut reader = Reader::of(&schema(&text), &[steps(path)], 5);
        assert!(reader.read(&nested(5)).is_ok());
        assert_eq!(reader.read(&nested(6)).unwrap_err().what, "nested too deep");
        let mut reader = Reader::of(&schema(&text), &[steps(path)], usize::MAX);
        // Not by way of serde_json, which reads fewer levels.
        assert!(reader.plan.read(&nested(DEPTH_MAX), &mut reader.to).is_ok());
        assert_eq!(reader.read(&nested(DEPTH_MAX + 1)).unwrap_err().what, "nested too deep");
    }
    for nest in [r#"{"type":"array","items":["null","R"]}"#, r#"{"type":"map","values":["null","R"]}"#] {
        let text = record(&format!(r#"{{"name":"next","type":{nest}}}"#));
        let item = if nest.contains("map") { vec![2, 2, b'k', 2] } else { vec![2, 2] };
        for path in ["", "next", "next.0.next.k.next", "no"] {
            let mut reader = Reader::of(&schema(&text), &[steps(path)], usize::MAX);
            let bytes = item.repeat(100_000);
            assert_eq!(reader.read(&bytes).unwrap_err().what, "nested too deep", "{path}");
        }
    }
}

#[test]
fn records_that_contain_themselves_without_end_are_refused() {
    let text = record(r#"{"name":"b","type":{"type":"record","name":"B","fields":[{"name":"r","type":"R"}]}}"#);
    for path in ["", "b", "b.r.b", "no"] {
        assert_eq!(read(&text, &[], &[path]).unwrap_err().what, "nested too deep", "{path}");
    }
}

#[test]
fn items_that_take_no_bytes_are_not_counted_through() {
    let empty = record(r#"{"name":"n","type":"null"},{"name":"f","type":{"type":"fixed","name":"F","size":0}}"#);
    let all = record("").replace("\"R\"", "\"E\"");
    for item in [r#""null""#, r#"{"type":"fixed","name":"F","size":0}"#, &all, &empty] {
        let text = format!(
            r#"{{"type":"record","name":"Outer","fields":[{{"name":"a","type":{{"type":"array","items":{item}}}}},
            {{"name":"end","type":"int"}}]}}"#
        );
        let huge = [long(1 << 62), long(i64::MAX), long(i64::MIN), long(0), long(0), long(7)].concat();
        let mut reader = Reader::new(&text, &["end", "a.3", "a.4611686018427387905"]);
        let found = reader.read(&huge).unwrap();
        assert_eq!(found[0].as_deref(), Some("7"));
        assert!(found[1].is_some() && found[2] == found[1], "wanted items are found");
        for path in ["a", ""] {
            let error = read(&text, &huge, &[path]).unwrap_err();
            assert_eq!((error.what, error.at), ("as JSON, the record would be many times as large", 10));
        }
    }
}

#[test]
fn records_that_contain_each_other_twice_do_not_multiply() {
    let empty = r#"{"type":"record","name":"E","fields":[]}"#;
    let schema = Schema::parse(&laughs(60, "\"E\""), &[empty]).unwrap();
    let bytes = vec![2; 60];
    let mut reader = Reader::of(&schema, &[steps("f59"), steps("f57.x.y")], 100);
    assert!(reader.read(&bytes).is_ok());
    let error = Reader::of(&schema, &[steps("f0")], 100).read(&bytes).unwrap_err();
    assert_eq!(error.what, "as JSON, the record would be many times as large");
}

#[test]
fn long_symbols_of_many_fields_are_not_written_without_end() {
    let symbol = "S".repeat(200_000);
    let rest: String = (1..10_000).map(|i| format!(r#",{{"name":"f{i}","type":"E"}}"#)).collect();
    let text = record(&format!(r#"{{"name":"f0","type":{{"type":"enum","name":"E","symbols":["{symbol}"]}}}}{rest}"#));
    let mut reader = Reader::new(&text, &[""]);
    let bytes = vec![0; 10_000];
    assert_eq!(reader.read(&bytes).unwrap_err().what, "as JSON, the record would be many times as large");
    let bound = WRITTEN_BYTES_MIN + WRITTEN_BYTES_PER_BYTE * bytes.len();
    assert!(reader.to.end() < bound + 2 * symbol.len(), "{}", reader.to.end());
}

#[test]
fn wrong_lengths_and_counts_are_refused() {
    let text = record(
        r#"{"name":"s","type":"string"},{"name":"a","type":{"type":"array","items":"int"}},
           {"name":"m","type":{"type":"map","values":"int"}}"#,
    );
    let (s, a) = (prefixed("s"), [long(1), long(1), long(0)].concat());
    for lie in [1, 2, 1 << 31, 1 << 32, 1 << 62, i64::MAX, i64::MIN, i64::MIN + 1, -1] {
        for bytes in [
            long(lie),
            [s.clone(), long(lie)].concat(),
            [s.clone(), long(-1), long(lie)].concat(),
            [s.clone(), a.clone(), long(lie)].concat(),
            [s.clone(), a.clone(), long(-1), long(lie)].concat(),
            [s.clone(), a.clone(), long(1), long(lie)].concat(),
        ] {
            for path in ["", "s", "a", "a.1", "a.9223372036854775807", "m", "m.k", "no"] {
                assert!(read(&text, &bytes, &[path]).is_err(), "{path} of {bytes:?}");
            }
        }
    }
}

#[test]
fn huge_fixed_types_and_empty_unions_are_harmless() {
    let text = record(r#"{"name":"f","type":{"type":"fixed","name":"F","size":2147483647}}"#);
    for path in ["", "f", "no"] {
        assert_eq!(read(&text, &[0; 100], &[path]).unwrap_err().what, "the record ends too early");
    }
    let unions = record(r#"{"name":"f","type":[]}"#);
    assert!(read(&unions, &[0], &["f"]).is_err());
    assert!(read(r#"{"type":"enum","name":"E","symbols":[]}"#, &[0], &[""]).is_err());
}
