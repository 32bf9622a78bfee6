//! Goal: scalars keep their text, places point at what they name, and no text breaks the reader.

use proptest::prelude::*;

use super::read::{clipped, did_you_mean};
use super::testing::{Fake, yamlish};
use super::text::{Error, substitute};
use super::tree::{DEPTH_MAX, NODES_MAX, TEXT_BYTES_MAX, parse};
use super::{File, Node, Place, Report, Text, Value, units};

fn entry<'n>(node: &'n Node, key: &str) -> &'n Node {
    let Value::Mapping(entries) = &node.value else { panic!("no mapping: {node:?}") };
    &entries.iter().find(|entry| entry.key == key).unwrap().node
}

fn text_of(node: &Node) -> &str {
    let Value::Scalar { text, .. } = &node.value else { panic!("no scalar: {node:?}") };
    text
}

#[test]
fn scalars_keep_their_text_and_their_quotes() {
    let tree = parse("a: 9223372036854775808\nb: \"007\"\nc: off\nd:\n").unwrap();
    assert_eq!(text_of(entry(&tree, "a")), "9223372036854775808");
    assert!(matches!(&entry(&tree, "b").value, Value::Scalar { text, plain: false } if text == "007"));
    assert!(matches!(&entry(&tree, "c").value, Value::Scalar { text, plain: true } if text == "off"));
    assert!(entry(&tree, "d").is_null());
}

#[test]
fn places_are_byte_offsets_in_any_text() {
    let text = "ö: 'ü😀'\nlist: [é, 'x y' ]\nmap:\n  k: v\n  l: w\n";
    let tree = parse(text).unwrap();
    let at = |node: &Node| &text[node.place.start..node.place.end()];
    assert_eq!(at(entry(&tree, "ö")), "'ü😀'");
    let list = entry(&tree, "list");
    assert_eq!(at(list), "[é, 'x y' ]");
    let Value::List(items) = &list.value else { panic!("{list:?}") };
    assert_eq!(items.iter().map(at).collect::<Vec<_>>(), ["é", "'x y'"]);
    assert_eq!(at(entry(&tree, "map")), "k: v");
}

#[test]
fn lines_and_columns_are_counted_from_one_in_characters() {
    let file = File::new("x", "a\nöö: b\n");
    assert_eq!(file.line_column(0), (1, 1));
    assert_eq!(file.line_column("a\nöö: ".len()), (2, 5));
    assert_eq!(file.line_column(1_000), (3, 1));
}

#[test]
fn rendered_columns_match_editors() {
    let file = File::new("x", "öö: b\n").into();
    let mut report = Report::default();
    report.mistake((&file, Place::new(6, 7)), "wrong".to_owned(), "here", "write a");
    let rendered = report.finish(Some(())).unwrap_err().render(false);
    assert!(rendered.contains("[x:1:5]"), "{rendered}");
}

#[test]
fn syntax_error_at_the_end_has_a_place() {
    for text in ["a: [1", "a: [1\n\n", "a: \"x", "é: [é"] {
        let error = parse(text).unwrap_err();
        assert!(error.place.length > 0 && error.place.end() <= text.trim_end().len(), "{text:?}: {error:?}");
    }
}

#[test]
fn aliases_are_copies_within_a_bound() {
    let tree = parse("a: &x [1, 2]\nb: *x\n").unwrap();
    assert_eq!(entry(&tree, "a").value, entry(&tree, "b").value);
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..12 {
        let item = format!("*a{}", level - 1);
        bomb += &format!("a{level}: &a{level} [{}]\n", vec![item; 10].join(", "));
    }
    assert!(parse(&bomb).unwrap_err().message.contains(&NODES_MAX.to_string()));
    assert!(parse("a: &x [*x]\n").is_err());
}

#[test]
fn depth_and_size_are_bounded() {
    assert!(parse(&format!("{}{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX))).is_ok());
    assert!(parse(&format!("{}{}", "[".repeat(DEPTH_MAX + 1), "]".repeat(DEPTH_MAX + 1))).is_err());
    assert!(parse(&"- ".repeat(100_000)).is_err());
    assert!(parse(&"#".repeat(TEXT_BYTES_MAX)).is_ok());
    assert!(parse(&"#".repeat(TEXT_BYTES_MAX + 1)).is_err());
    // The list is a value, too.
    assert!(parse(&"- x\n".repeat(NODES_MAX - 1)).is_ok());
    assert!(parse(&"- x\n".repeat(NODES_MAX)).is_err());
    let deep = format!("a: &x {}{}\nb: {}*x{}", "[".repeat(20), "]".repeat(20), "[".repeat(20), "]".repeat(20));
    assert!(parse(&deep).unwrap_err().message.contains("deep"));
}

#[test]
fn unsupported_yaml_is_reported() {
    for (text, words) in [
        ("a: 1\n---\nb: 2\n", "second document"),
        ("a: !secret x\n", "tags"),
        ("? [a]\n: b\n", "plain text"),
        ("a: [1\n", "not YAML"),
        ("a:\n\t- b\n", "not YAML"),
    ] {
        let error = parse(text).unwrap_err();
        assert!(error.message.contains(words), "{text:?}: {error}");
    }
    assert_eq!(text_of(entry(&parse("a: !!str 1").unwrap(), "a")), "1");
}

#[test]
fn syntax_error_near_braces_suggests_quotes() {
    for text in ["output: {topic: {topic}.unique}\n", "topics: [${env:TOPIC}]\n"] {
        assert!(parse(text).unwrap_err().help.contains("quotes"), "{text}");
    }
}

#[test]
fn substituted_text_is_secret() {
    let env = Fake::default().with_variable("A", "x").with_variable("EMPTY", "").with_file("f", "line\n");
    let reveal = |text: &str| substitute(text, &env).map(|text| (text.reveal().to_owned(), text.is_secret()));
    assert_eq!(reveal("plain $ {x}").unwrap(), ("plain $ {x}".to_owned(), false));
    assert_eq!(reveal("<${env:A}>").unwrap(), ("<x>".to_owned(), true));
    assert_eq!(reveal("${env:B:-d:-e}").unwrap(), ("d:-e".to_owned(), true));
    assert_eq!(reveal("${env:EMPTY:-d}${env:EMPTY}").unwrap(), ("d".to_owned(), true));
    assert_eq!(reveal("${file:f}").unwrap(), ("line".to_owned(), true));
    assert_eq!(reveal("$${env:A} ${env:A}").unwrap(), ("${env:A} x".to_owned(), true));
    assert_eq!(reveal("$${env:A}").unwrap(), ("${env:A}".to_owned(), false));
}

#[test]
fn failed_substitutions_are_errors() {
    let env = Fake::default().with_file("bytes", [0xff]).with_file("long", vec![b'x'; 100_000]);
    let error = |text: &str| substitute(text, &env).unwrap_err();
    assert_eq!(error("${env:A}"), Error::NotSet("A".to_owned()));
    assert_eq!(error("${env:A"), Error::Unclosed);
    assert_eq!(error("${A}"), Error::Unknown("A".to_owned()));
    for text in ["${file:none}", "${file:bytes}", "${file:long}"] {
        assert!(matches!(error(text), Error::File { .. }), "{text}");
    }
}

#[test]
fn substituted_file_is_bounded() {
    let file = |bytes: usize| substitute("${file:f}", &Fake::default().with_file("f", vec![b'x'; bytes]));
    assert_eq!(file(65_536).unwrap().reveal().len(), 65_536);
    assert!(matches!(file(65_537), Err(Error::File { .. })));
}

#[test]
fn secret_is_never_shown() {
    let secret = Text::secret("hunter2");
    assert_eq!(format!("{secret} {secret:?}"), "*** ***");
    let file = File::new("x", "password: hünter2\nuser: me\n");
    let masked = file.masked(&[Place { start: 10, length: 8 }, Place { start: 9_999, length: 5 }]);
    assert_eq!(masked.text(), "password: ********\nuser: me\n");
    assert!(!format!("{file:?}").contains("nter2"));
}

#[test]
fn durations_and_sizes_are_exact() {
    for (text, ms) in
        [("200ms", 200), ("1h30m", 5_400_000), ("30d", 2_592_000_000), ("2w", 1_209_600_000), ("1 h 1 s", 3_601_000)]
    {
        assert_eq!(units::duration_ms(text), Some(ms), "{text}");
    }
    for text in ["", "5", "h", "1.5h", "-1h", "1y", "1H", "999999999999999999w", "1h5"] {
        assert_eq!(units::duration_ms(text), None, "{text}");
    }
    for (text, bytes) in [("1", 1), ("64MiB", 64 << 20), ("2 GB", 2_000_000_000), ("1k", 1024), ("10gib", 10 << 30)] {
        assert_eq!(units::size_bytes(text), Some(bytes), "{text}");
    }
    for text in ["", "GiB", "1.5GiB", "-1", "50%", "99999999TiB"] {
        assert_eq!(units::size_bytes(text), None, "{text}");
    }
}

#[test]
fn near_miss_of_a_word_is_recognised() {
    let words = ["identity", "version", "on_equal", "forward"];
    for (word, meant) in
        [("identiy", "identity"), ("on-equal", "on_equal"), ("Version", "version"), ("foward", "forward")]
    {
        assert_eq!(did_you_mean(word, &words), Some(meant));
    }
    assert_eq!(did_you_mean("retention", &words), None);
    assert_eq!(did_you_mean(&"x".repeat(100_000), &words), None);
}

#[test]
fn long_texts_are_clipped() {
    assert_eq!(clipped("short"), "short");
    assert_eq!(clipped("two\nlines"), "two…");
    assert_eq!(clipped(&"é".repeat(100)).chars().count(), 61);
}

#[test]
fn mistakes_are_sorted_by_file_and_place() {
    let (a, b) = (File::new("a", "x\ny\n").into(), File::new("b", "z\n").into());
    let mut report = Report::default();
    report.mistake((&a, Place::new(2, 3)), "second".to_owned(), "", "");
    report.placeless("last".to_owned(), "");
    report.mistake((&b, Place::new(0, 1)), "third".to_owned(), "", "");
    report.warning((&a, Place::new(0, 1)), "first".to_owned(), "", "");
    let diagnostics = report.finish(Some(())).unwrap_err();
    let messages: Vec<_> = diagnostics.mistakes().iter().map(|mistake| mistake.message()).collect();
    assert_eq!(messages, ["first", "second", "third", "last"]);
    assert_eq!(diagnostics.to_string(), "3 mistakes, 1 warning");
    assert_eq!(diagnostics.mistakes()[1].position(), Some(("a", 2, 1)));
}

proptest! {
    #[test]
    fn no_text_breaks_the_parser(text in yamlish()) {
        if let Err(error) = parse(&text) {
            prop_assert!(text.get(error.place.start..error.place.end()).is_some(), "{error:?}");
        }
    }

    #[test]
    fn every_place_is_inside_the_text(text in yamlish()) {
        fn check(node: &Node, text: &str) -> bool {
            text.get(node.place.start..node.place.end()).is_some() && match &node.value {
                Value::Scalar { .. } => true,
                Value::List(items) => items.iter().all(|item| check(item, text)),
                Value::Mapping(entries) => entries.iter().all(|entry| check(&entry.node, text)),
            }
        }
        if let Ok(tree) = parse(&text) {
            prop_assert!(check(&tree, &text));
        }
    }

    #[test]
    fn quoted_texts_read_back(text in "\\PC{0,40}") {
        let json = serde_json::to_string(&text).unwrap();
        let tree = parse(&format!("a: {json}")).unwrap();
        prop_assert_eq!(text_of(entry(&tree, "a")), text);
    }

    #[test]
    fn displayed_units_parse_back(ms in 0..i64::MAX, bytes: u64) {
        prop_assert_eq!(units::duration_ms(&units::show_duration_ms(ms)), Some(ms));
        prop_assert_eq!(units::size_bytes(&units::show_size_bytes(bytes)), Some(bytes));
    }
}
