//! Goal: reading anything as a schema ends soon, and never with a panic.

use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::*;

/// Much longer than any schema takes, even on a machine that is busy.
const SOON: Duration = Duration::from_secs(30);

fn ends_soon(text: &str) -> bool {
    let from = Instant::now();
    let is_schema = Schema::parse(text, &[]).is_ok();
    assert!(from.elapsed() < SOON, "{:.40}… took {:?}", text, from.elapsed());
    is_schema
}

#[test]
fn schemas_of_a_megabyte_are_read_in_time() {
    let many = |part: fn(usize) -> String, count: usize| (0..count).map(part).collect::<String>();
    let message = |fields: String| format!("syntax = \"proto3\"; message A {{ {fields} }}");
    for (text, is_schema) in [
        (message(many(|i| format!("int32 field_{i} = {};", i + 1), 35_000)), true),
        (message(many(|i| format!("A f{i} = {};", i + 1), 50_000)), true),
        (many(|i| format!("message M{i} {{}} "), 50_000), true),
        (message(many(|i| format!("message M{i} {{}} "), 50_000)), true),
        (message(format!("enum E {{ {} }}", many(|i| format!("V{i} = {i};"), 60_000))), true),
        (message(format!("oneof o {{ {} }}", many(|i| format!("A f{i} = {};", i + 1), 50_000))), true),
        (format!("package {}; message A {{}}", "a.".repeat(50) + &"b".repeat(900_000)), true),
        (
            format!("edition = \"2023\"; {}", many(|_| "message A {".to_owned(), 60) + &"option x = 1;".repeat(70_000)),
            false,
        ),
        (format!("/*{}*/", "*".repeat(1_000_000)), true),
        (format!("option x = {}", "{".repeat(1_000_000)), false),
        (format!("option x = \"{}\";", "\\001".repeat(250_000)), true),
        (message(format!("{} x = 1;", "a.".repeat(400_000))), false),
        (message(format!("optional {}a x = 1;", "a.".repeat(400_000))), false),
        ("message A {".repeat(90_000), false),
        ("optional group A = 1 {".repeat(50_000), false),
        (message("map<".repeat(250_000)), false),
        (message("oneof a {".repeat(100_000)), false),
        (format!("package {}a;", "a.".repeat(400_000)), false),
        ("A".repeat(1_000_000), false),
        ("CgA=\n".repeat(200_000), false),
        (";".repeat(1_000_000), true),
    ] {
        assert_eq!(ends_soon(&text), is_schema, "{:.60}", text);
    }
}

#[test]
fn descriptors_that_are_nested_too_deep_are_refused() {
    let mut nested = DescriptorProto::default();
    let mut bytes = nested.encode_to_vec();
    for depth in 0..5_000 {
        nested = DescriptorProto { name: Some(format!("M{depth}")), ..DescriptorProto::default() };
        let mut outer = nested.encode_to_vec();
        outer.push(0x1a);
        prost_reflect::prost::encoding::encode_varint(bytes.len() as u64, &mut outer);
        outer.extend_from_slice(&bytes);
        bytes = outer;
    }
    let mut file = vec![0x22];
    prost_reflect::prost::encoding::encode_varint(bytes.len() as u64, &mut file);
    file.extend_from_slice(&bytes);
    let text = STANDARD.encode(file);
    assert!(error(&text).starts_with("messages are nested more than 64 deep"), "{}", error(&text));
}

#[test]
fn descriptors_that_end_early_or_are_changed_never_panic() {
    let text: String = include_str!("edition.base64").split_whitespace().collect();
    let bytes = STANDARD.decode(text).unwrap();
    for end in 0..bytes.len() {
        ends_soon(&STANDARD.encode(&bytes[..end]));
    }
    for at in 0..bytes.len() * 8 {
        let mut changed = bytes.clone();
        changed[at / 8] ^= 1 << (at % 8);
        ends_soon(&STANDARD.encode(&changed));
    }
}

#[test]
fn texts_that_end_early_or_are_changed_never_panic() {
    let text = include_str!("edition.proto");
    for end in 0..text.len() {
        ends_soon(&text[..end]);
    }
    for (at, other) in
        (0..text.len()).flat_map(|at| ["{", "}", "\"", "é", ".", "0", "\\", ";"].map(|other| (at, other)))
    {
        ends_soon(&format!("{}{other}{}", &text[..at], &text[at + 1..]));
    }
}

proptest! {
    #[test]
    fn words_in_any_order_never_panic(words in proptest::collection::vec(0..WORDS.len(), 0..60)) {
        let text: Vec<_> = words.into_iter().map(|word| WORDS[word]).collect();
        ends_soon(&text.join(" "));
    }

    #[test]
    fn bytes_in_base64_never_panic(bytes in proptest::collection::vec(any::<u8>(), 0..60)) {
        ends_soon(&STANDARD.encode(bytes));
    }
}

const WORDS: [&str; 40] = [
    "message",
    "enum",
    "A",
    "B",
    "{",
    "}",
    "=",
    "1",
    "2",
    ";",
    "optional",
    "repeated",
    "required",
    "group",
    "map",
    "<",
    ">",
    ",",
    "int32",
    "string",
    "oneof",
    "extend",
    "option",
    "[",
    "]",
    "default",
    "\"a\"",
    "-",
    "1.5e3",
    ".",
    "(",
    ")",
    "reserved",
    "extensions",
    "to",
    "package",
    "import",
    "syntax",
    "edition",
    "features",
];
