//! Goal: the scanner accepts exactly what serde_json accepts and finds the same values, however the document is
//! written.

use proptest::prelude::*;
use serde_json::Value;

use super::*;
use crate::dedup::number;
use crate::dedup::steps::array_index;

/// serde_json's own recursion limit allows 127 levels.
const DEPTH_MAX: usize = 127;

mod wrapped;

fn steps(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn scan(document: &[u8], names: &[&str]) -> Result<Found, Malformed> {
    let path = steps(names);
    let mut scanner = Scanner::new(&[&path], DEPTH_MAX, false);
    scanner.scan(document)?;
    Ok(scanner.found(PathIndex(0)))
}

fn text_at(document: &str, names: &[&str]) -> Option<String> {
    match scan(document.as_bytes(), names).unwrap() {
        Found::Text { from, to, .. } => {
            let mut out = Vec::new();
            unescape(&document.as_bytes()[from..to], &mut out);
            Some(String::from_utf8(out).unwrap())
        }
        Found::Number { from, to } => Some(document[from..to].to_owned()),
        Found::Missing => None,
        Found::Composite { from, to } => Some(document[from..to].to_owned()),
        other => Some(format!("{other:?}")),
    }
}

#[test]
fn fields_and_elements_are_found() {
    let document =
        r#" { "a" : [ {"b": 1}, {"b": -2.5e3, "c": "x\n\u00e9\ud83d\ude00"} ], "": "empty", "a.b": "dot" } "#;
    assert_eq!(text_at(document, &["a", "0", "b"]).unwrap(), "1");
    assert_eq!(text_at(document, &["a", "1", "b"]).unwrap(), "-2.5e3");
    assert_eq!(text_at(document, &["a", "1", "c"]).unwrap(), "x\né😀");
    assert_eq!(text_at(document, &["a", "2"]), None);
    assert_eq!(text_at(document, &["a", "01", "b"]), None);
    assert_eq!(text_at(document, &[""]).unwrap(), "empty");
    assert_eq!(text_at(document, &["a.b"]).unwrap(), "dot");
    assert_eq!(text_at(document, &["a", "0"]).unwrap(), r#"{"b": 1}"#);
    assert_eq!(text_at(document, &["a", "0", "b", "x"]), None);
}

#[test]
fn last_of_two_equal_fields_counts() {
    assert_eq!(text_at(r#"{"a":1,"a":2}"#, &["a"]).unwrap(), "2");
    assert_eq!(text_at(r#"{"a":1,"\u0061":2}"#, &["a"]).unwrap(), "2");
    assert_eq!(text_at(r#"{"a":{"b":1},"a":{"c":2}}"#, &["a", "b"]), None);
    assert_eq!(text_at(r#"{"a":{"b":1},"a":3}"#, &["a", "b"]), None);
    assert_eq!(text_at(r#"{"a":{"b":1},"c":3}"#, &["a", "b"]).unwrap(), "1");
}

#[test]
fn scanner_keeps_nothing_of_the_previous_document() {
    let path = steps(&["a"]);
    let mut scanner = Scanner::new(&[&path], DEPTH_MAX, false);
    scanner.scan(br#"{"a":1}"#).unwrap();
    scanner.scan(b"[[[").unwrap_err();
    scanner.scan(br#"{"b":1}"#).unwrap();
    assert_eq!(scanner.found(PathIndex(0)), Found::Missing);
}

#[test]
fn path_and_its_prefix_are_both_found() {
    let (short, long) = (steps(&["a"]), steps(&["a", "b"]));
    let mut scanner = Scanner::new(&[&long, &short, &long], DEPTH_MAX, false);
    scanner.scan(br#"{"a":{"b":true}}"#).unwrap();
    let found = [0, 1, 2].map(|i| scanner.found(PathIndex(i)));
    assert_eq!(found, [Found::Bool(true), Found::Composite { from: 5, to: 15 }, Found::Bool(true)]);
}

#[test]
fn nesting_is_bounded_and_takes_no_stack() {
    for depth in [1, 126, 127, 128, 129] {
        let document = "[".repeat(depth) + &"]".repeat(depth);
        let ours = scan(document.as_bytes(), &["a"]).is_ok();
        assert_eq!(ours, serde_json::from_str::<Value>(&document).is_ok(), "{depth}");
    }
    let path = steps(&["a"]);
    let mut scanner = Scanner::new(&[&path], usize::MAX, false);
    let depth = 1_000_000;
    let document = "{\"a\":".repeat(depth) + "1" + &"}".repeat(depth);
    assert_eq!(scanner.scan(document.as_bytes()), Ok(()));
    assert!(scan(document.as_bytes(), &["a"]).unwrap_err().what.contains("deep"));
}

#[test]
fn error_has_the_byte_position() {
    let at = |document: &[u8]| scan(document, &["a"]).unwrap_err();
    assert_eq!(at(b"{\"a\":1,}").to_string(), "expected a field's name in double quotes (byte 7)");
    assert_eq!(at(b"").to_string(), "expected a value (byte 0)");
    assert_eq!(at(b"\"ab\xff\"").to_string(), "invalid UTF-8 (byte 3)");
    assert_eq!(at(b"{\"a\":1}x").to_string(), "expected nothing more (byte 7)");
}

/// Whether serde_json accepts it, or rejects it only for numbers beyond a double's range.
fn is_json(document: &[u8]) -> bool {
    match serde_json::from_slice::<Value>(document) {
        Ok(_) => true,
        Err(e) => e.to_string().starts_with("number out of range") && in_range(document),
    }
}

/// Whether serde_json accepts the document with all its exponents made small.
fn in_range(document: &[u8]) -> bool {
    let text = String::from_utf8_lossy(document).into_owned();
    let mut out = String::new();
    let mut characters = text.chars().peekable();
    while let Some(c) = characters.next() {
        out.push(c);
        if matches!(c, 'e' | 'E') {
            while let Some(digit) = characters.next_if(|d| d.is_ascii_digit() || matches!(d, '+' | '-')) {
                out.push(if digit.is_ascii_digit() { '0' } else { digit });
            }
        }
    }
    serde_json::from_slice::<Value>(out.as_bytes()).is_ok()
}

/// A document that may have duplicate fields, which a `Value` cannot hold.
#[derive(Clone, Debug)]
enum Tree {
    Leaf(&'static str),
    Number(String),
    Text(String),
    Array(Vec<Tree>),
    Object(Vec<(String, Tree)>),
}

fn any_number() -> impl Strategy<Value = String> {
    prop_oneof![
        any::<i64>().prop_map(|n| n.to_string()),
        (any::<i32>(), 0_u32..99999, -9_i32..9).prop_map(|(whole, fraction, e)| format!("{whole}.{fraction}e{e}")),
        "-?(0|[1-9][0-9]{0,40})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,2})?",
    ]
}

fn any_name() -> impl Strategy<Value = String> {
    prop_oneof![
        4 => prop::sample::select(vec!["a", "b", "0", "1", "long enough for a word", "é", "\"\\/\n", ""])
            .prop_map(str::to_owned),
        1 => any::<String>(),
    ]
}

fn any_tree() -> impl Strategy<Value = Tree> {
    let leaf = prop_oneof![
        prop::sample::select(vec!["null", "true", "false"]).prop_map(Tree::Leaf),
        any_number().prop_map(Tree::Number),
        any_name().prop_map(Tree::Text),
    ];
    leaf.prop_recursive(5, 40, 6, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Tree::Array),
            prop::collection::vec((any_name(), inner), 0..6).prop_map(Tree::Object),
        ]
    })
}

/// Writes trees, with whitespace and escapes where the noise says so.
struct Writer<'n> {
    noise: std::iter::Cycle<std::slice::Iter<'n, u8>>,
    out: String,
}

impl Writer<'_> {
    fn space(&mut self) {
        let spaces = ["", "", "", " ", "\n", "\t \r\n"];
        let choice = *self.noise.next().unwrap() as usize;
        self.out.push_str(spaces[choice % spaces.len()]);
    }

    fn text(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            let choice = self.noise.next().unwrap() % 4;
            match c {
                '"' | '\\' | '/' if choice > 0 => self.out.extend(['\\', c]),
                '\n' if choice > 0 => self.out.push_str("\\n"),
                '"' | '\\' | '\0'..='\u{1f}' => self.out.push_str(&format!("\\u{:04x}", u32::from(c))),
                _ if choice == 0 => {
                    c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| self.out.push_str(&format!("\\u{unit:04X}")));
                }
                _ => self.out.push(c),
            }
        }
        self.out.push('"');
    }

    fn tree(&mut self, tree: &Tree) {
        self.space();
        match tree {
            Tree::Leaf(text) => self.out.push_str(text),
            Tree::Number(text) => self.out.push_str(text),
            Tree::Text(text) => self.text(text),
            Tree::Array(elements) => {
                self.out.push('[');
                for (i, element) in elements.iter().enumerate() {
                    self.out.push_str(if i > 0 { "," } else { "" });
                    self.tree(element);
                }
                self.space();
                self.out.push(']');
            }
            Tree::Object(fields) => {
                self.out.push('{');
                for (i, (name, value)) in fields.iter().enumerate() {
                    self.out.push_str(if i > 0 { "," } else { "" });
                    self.space();
                    self.text(name);
                    self.space();
                    self.out.push(':');
                    self.tree(value);
                }
                self.space();
                self.out.push('}');
            }
        }
        self.space();
    }
}

fn any_document() -> impl Strategy<Value = String> {
    (any_tree(), prop::collection::vec(any::<u8>(), 1..40)).prop_map(|(tree, noise)| {
        let mut writer = Writer { noise: noise.iter().cycle(), out: String::new() };
        writer.tree(&tree);
        writer.out
    })
}

/// What serde_json has at `path`.
fn look_up<'v>(mut value: &'v Value, path: &[String]) -> Option<&'v Value> {
    for step in path {
        value = match value {
            Value::Object(fields) => fields.get(step)?,
            Value::Array(elements) => elements.get(array_index(step)?)?,
            _ => return None,
        };
    }
    Some(value)
}

fn is_same(document: &str, found: Found, expected: Option<&Value>) -> bool {
    match (found, expected) {
        (Found::Missing, None) | (Found::Null, Some(Value::Null)) => true,
        (Found::Bool(ours), Some(Value::Bool(theirs))) => ours == *theirs,
        (Found::Composite { from, to }, Some(theirs @ (Value::Array(_) | Value::Object(_)))) => {
            serde_json::from_str::<Value>(&document[from..to]).unwrap() == *theirs
        }
        (Found::Text { from, to, escaped }, Some(Value::String(theirs))) => {
            let raw = &document.as_bytes()[from..to];
            let mut ours = Vec::new();
            unescape(raw, &mut ours);
            ours == theirs.as_bytes() && (escaped || ours == raw)
        }
        (Found::Number { from, to }, Some(Value::Number(theirs))) => {
            let text = &document[from..to];
            if !theirs.is_f64() {
                let canonical = |text: &str| {
                    let mut out = Vec::new();
                    number::write_canonical(text.as_bytes(), &mut out).unwrap();
                    out
                };
                return canonical(text) == canonical(&theirs.to_string());
            }
            let (ours, theirs) = (text.parse::<f64>().unwrap(), theirs.as_f64().unwrap());
            (ours - theirs).abs() <= 1e-14 * theirs.abs()
        }
        _ => false,
    }
}

fn any_soup() -> impl Strategy<Value = Vec<u8>> {
    let tokens: Vec<&'static [u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b"\"a\"",
        b"\"a\":",
        b"1",
        b"0",
        b"-",
        b".",
        b"e",
        b"+",
        b"01",
        b"1e400",
        b"true",
        b"nul",
        b"null",
        b" ",
        b"\t",
        b"\x0c",
        b"\"\\ud800\"",
        b"\"\\ud83d\\ude00\"",
        b"\"\\udc00\\ud800\"",
        b"\"\\ud800\\u0061\"",
        b"\"\\x\"",
        b"\"\\u12g4\"",
        b"\"\x1f\"",
        b"\"\x7f\"",
        b"\"",
        b"\\",
        b"\xff",
        b"\"\xc3\xa9\"",
        b"\"\xc3\"",
        b"\xef\xbb\xbf",
        b"\0",
        b"NaN",
        b"'a'",
        b"/*",
        b"\"plain and long enough\"",
    ];
    prop::collection::vec(prop::sample::select(tokens), 0..8).prop_map(|tokens| tokens.concat())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]

    #[test]
    fn finds_what_serde_json_finds(document in any_document(), paths in prop::collection::vec(prop::collection::vec(any_name(), 0..4), 1..5)) {
        let value: Value = serde_json::from_str(&document).unwrap();
        let borrowed: Vec<&[String]> = paths.iter().map(Vec::as_slice).collect();
        let mut scanner = Scanner::new(&borrowed, DEPTH_MAX, false);
        prop_assert_eq!(scanner.scan(document.as_bytes()), Ok(()));
        for (i, path) in paths.iter().enumerate() {
            let (found, expected) = (scanner.found(PathIndex(i)), look_up(&value, path));
            prop_assert!(is_same(&document, found, expected), "{:?}: {:?} instead of {:?}", path, found, expected);
        }
    }

    #[test]
    fn accepts_what_serde_json_accepts_of_damaged_documents(
        document in any_document(),
        damages in prop::collection::vec((any::<prop::sample::Index>(), 0..3, any_soup()), 1..3),
    ) {
        let mut document = document.into_bytes();
        for (place, deleted, inserted) in damages {
            let from = place.index(document.len() + 1);
            let to = (from + deleted as usize).min(document.len());
            document.splice(from..to, inserted);
        }
        prop_assert_eq!(scan(&document, &["a"]).is_ok(), is_json(&document), "{}", String::from_utf8_lossy(&document));
    }

    #[test]
    fn accepts_what_serde_json_accepts_of_soup(document in any_soup()) {
        prop_assert_eq!(scan(&document, &["a"]).is_ok(), is_json(&document), "{}", String::from_utf8_lossy(&document));
    }

    #[test]
    fn accepts_the_numbers_that_serde_json_accepts(text in "[-+0-9.eE]{1,8}") {
        prop_assert_eq!(scan(text.as_bytes(), &["a"]).is_ok(), is_json(text.as_bytes()));
        prop_assert_eq!(number::is_number(text.as_bytes()), is_json(text.as_bytes()));
    }
}
