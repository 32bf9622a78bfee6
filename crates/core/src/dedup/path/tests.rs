//! Goal: paths parse as documented and are written back as they were; errors have the position.

use proptest::prelude::*;

use super::*;

fn path(source: Source, steps: &[&str]) -> Path {
    Path { source, steps: steps.iter().map(|step| (*step).to_owned()).collect() }
}

#[test]
fn paths_parse_as_documented() {
    let cases = [
        ("key", path(Source::Key, &[])),
        ("value", path(Source::Value, &[])),
        ("key.id", path(Source::Key, &["id"])),
        ("value.items.0.sku", path(Source::Value, &["items", "0", "sku"])),
        (r#"value."a.b".c"#, path(Source::Value, &["a.b", "c"])),
        (r#"value."say \"hi\"""#, path(Source::Value, &["say \"hi\""])),
        (r#"value."""#, path(Source::Value, &[""])),
        ("value.@type.$ref.größe", path(Source::Value, &["@type", "$ref", "größe"])),
        ("header.Id", path(Source::Header("Id".to_owned()), &[])),
        ("header.ce.id", path(Source::Header("ce.id".to_owned()), &[])),
        (r#"header."a b""#, path(Source::Header("a b".to_owned()), &[])),
        ("meta.topic", path(Source::Topic, &[])),
        ("meta.partition", path(Source::Partition, &[])),
        ("meta.offset", path(Source::Offset, &[])),
        ("meta.timestamp", path(Source::Timestamp, &[])),
    ];
    for (text, expected) in cases {
        let read = Path::parse(text).unwrap();
        assert_eq!(read, expected, "{text}");
        assert_eq!(read.to_string(), text);
    }
}

#[test]
fn error_has_the_byte_position() {
    let cases = [
        ("", 0, Problem::UnknownSource(String::new())),
        ("order_id", 0, Problem::UnknownSource("order_id".to_owned())),
        ("Value.x", 0, Problem::UnknownSource("Value".to_owned())),
        ("value.", 6, Problem::EmptyStep),
        ("value.a..b", 8, Problem::EmptyStep),
        ("value.a.", 8, Problem::EmptyStep),
        ("value.items[0]", 11, Problem::Bracket),
        ("value.a b", 7, Problem::NeedsQuotes(' ')),
        ("value.*", 6, Problem::NeedsQuotes('*')),
        ("value.\"a", 6, Problem::BadQuotes),
        ("value.\"\\x\"", 6, Problem::BadQuotes),
        ("value.\"a\"b", 9, Problem::AfterQuotes),
        ("header", 6, Problem::HeaderName),
        ("header.", 7, Problem::HeaderName),
        ("header.a b", 8, Problem::NeedsQuotes(' ')),
        ("header.\"a\".b", 10, Problem::AfterQuotes),
        ("meta", 4, Problem::UnknownMeta(String::new())),
        ("meta.offfset", 5, Problem::UnknownMeta("offfset".to_owned())),
    ];
    for (text, at, problem) in cases {
        assert_eq!(Path::parse(text), Err(Error { at, problem }), "{text}");
    }
    assert_eq!(Path::parse(&format!("value{}", ".a".repeat(STEPS_MAX))).unwrap().steps.len(), STEPS_MAX);
    let long = format!("value{}", ".a".repeat(STEPS_MAX + 1));
    assert_eq!(Path::parse(&long).unwrap_err().problem, Problem::TooManySteps);
}

#[test]
fn constants_are_shown_as_yaml_and_numbers_are_checked() {
    let constant = |scalar| path(Source::Const(scalar), &[]).to_string();
    assert_eq!(constant(Scalar::Text("a\nb".to_owned())), r#"{const: "a\nb"}"#);
    assert_eq!(constant(Scalar::Number(Number::parse("-1.50").unwrap())), "{const: -1.50}");
    assert_eq!(constant(Scalar::Bool(true)), "{const: true}");
    for text in ["", "01", "1.", ".5", "+1", "1e", "x", "0x1", "NaN", " 1", "1e9999999999999999999"] {
        assert_eq!(Number::parse(text), None, "{text}");
    }
}

fn any_path() -> impl Strategy<Value = Path> {
    let steps = prop::collection::vec(prop_oneof![any::<String>(), "[a-z0-9]{1,5}"], 0..5);
    let source = prop_oneof![Just(Source::Key), Just(Source::Value)];
    prop_oneof![
        (source, steps).prop_map(|(source, steps)| Path { source, steps }),
        any::<String>().prop_map(|name| path(Source::Header(name), &[])),
        prop::sample::select(vec![Source::Topic, Source::Partition, Source::Offset, Source::Timestamp])
            .prop_map(|source| path(source, &[])),
    ]
}

proptest! {
    #[test]
    fn displayed_path_parses_back(path in any_path()) {
        let text = path.to_string();
        prop_assert_eq!(Path::parse(&text), Ok(path));
        prop_assert!(!text.contains('\n'));
    }

    #[test]
    fn no_text_causes_a_panic(text in prop_oneof![any::<String>(), "(value|header|meta)[.\"\\\\a\\[é]{0,12}"]) {
        if let Err(error) = Path::parse(&text) {
            prop_assert!(text.is_char_boundary(error.at));
        }
    }
}
