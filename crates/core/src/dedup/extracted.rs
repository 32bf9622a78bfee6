//! The wanted places of a document that a reader by a schema has read, written as JSON.
//!
//! Identity, version, contents and sinks read JSON. A reader of Avro or Protobuf writes what is wanted as the JSON that it
//! would be, and skips over everything else; so a value is the same in each of the formats.

use std::ops::Range;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;

use super::number;
use super::steps::Found;

/// The wanted places of one record, reused for the next.
#[derive(Debug, Default)]
pub(super) struct Extracted {
    json: Vec<u8>,
    /// By node of the tree of wanted places.
    found: Vec<Found>,
    marks: Vec<Mark>,
}

/// Where a reader has come by something that may count: it is known at the end of what it is in.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    /// Things of one group exclude each other.
    pub group: usize,
    pub field: usize,
    /// How it is written.
    pub wire: u8,
    /// Its bytes in the record.
    pub from: usize,
    pub to: usize,
}

impl Extracted {
    /// Forgets the last record. The tree of wanted places has this many nodes.
    pub fn clear(&mut self, nodes: usize) {
        self.json.clear();
        self.found.clear();
        self.found.resize(nodes, Found::Missing);
    }

    /// Room for marks, empty; it is given back by [`Self::keep_marks`], so that it is there for the next record.
    pub fn take_marks(&mut self) -> Vec<Mark> {
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        marks
    }

    /// Takes the room for marks back.
    pub fn keep_marks(&mut self, marks: Vec<Mark>) {
        self.marks = marks;
    }

    /// The JSON that the ranges in [`Found`] are of.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// What was found at a node.
    #[inline]
    pub fn found(&self, node: usize) -> Found {
        self.found.get(node).copied().unwrap_or_default()
    }

    /// Forgets what was found at these nodes.
    pub fn forget(&mut self, nodes: Range<usize>) {
        self.found[nodes].fill(Found::Missing);
    }

    /// The bytes written so far: where the next value begins.
    pub fn end(&self) -> usize {
        self.json.len()
    }

    /// The JSON, to append to.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.json
    }

    /// Notes what was found at a node, which may be [`super::steps::UNWANTED`].
    #[inline]
    pub fn note(&mut self, node: usize, found: Found) {
        if let Some(cell) = self.found.get_mut(node) {
            *cell = found;
        }
    }

    /// Appends `null`.
    pub fn null(&mut self, node: usize) {
        self.json.extend_from_slice(b"null");
        self.note(node, Found::Null);
    }

    /// Appends `true` or `false`.
    pub fn bool(&mut self, node: usize, value: bool) {
        self.json.extend_from_slice(if value { b"true" } else { b"false" });
        self.note(node, Found::Bool(value));
    }

    /// Appends the number that `write` appends, by JSON's grammar.
    pub fn number(&mut self, node: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.json.len();
        write(&mut self.json);
        self.note(node, Found::Number { from, to: self.json.len() });
    }

    /// Appends a signed integer.
    pub fn integer(&mut self, node: usize, value: i64) {
        self.number(node, |out| out.extend_from_slice(number::format_i64(value, &mut [0; 20])));
    }

    /// Appends the shortest number that a float is read back from; a text for one that JSON has no number for. The zero
    /// with a sign keeps it.
    pub fn float<F: ryu_js::Float + Into<f64> + Copy>(&mut self, node: usize, value: F) {
        let wide: f64 = value.into();
        if wide.is_nan() {
            self.text(node, "NaN");
        } else if wide.is_infinite() {
            self.text(node, if wide > 0.0 { "Infinity" } else { "-Infinity" });
        } else if wide == 0.0 && wide.is_sign_negative() {
            // ryu_js writes it as JavaScript does, without its sign.
            self.number(node, |out| out.extend_from_slice(b"-0.0"));
        } else {
            self.number(node, |out| out.extend_from_slice(ryu_js::Buffer::new().format_finite(value).as_bytes()));
        }
    }

    /// Appends bytes as a text in base64, padded.
    pub fn base64(&mut self, node: usize, bytes: &[u8]) {
        self.json.push(b'"');
        let from = self.json.len();
        self.json.resize(from + bytes.len().div_ceil(3) * 4, 0);
        // There is room for all of it.
        let length = BASE64_STANDARD.encode_slice(bytes, &mut self.json[from..]).unwrap_or_default();
        let to = from + length;
        self.json.truncate(to);
        self.json.push(b'"');
        self.note(node, Found::Text { from, to, escaped: false });
    }

    /// Appends a text in quotes, with escapes where JSON needs them.
    pub fn text(&mut self, node: usize, text: &str) {
        let from = self.json.len() + 1;
        let escaped = text.bytes().any(|byte| byte < b' ' || byte == b'"' || byte == b'\\');
        if escaped {
            serde_json::to_writer(&mut self.json, text).expect("a text can be written to memory");
        } else {
            self.json.push(b'"');
            self.json.extend_from_slice(text.as_bytes());
            self.json.push(b'"');
        }
        self.note(node, Found::Text { from, to: self.json.len() - 1, escaped });
    }

    /// Notes that everything that was appended since `from` is one object or array.
    pub fn composite(&mut self, node: usize, from: usize) {
        self.note(node, Found::Composite { from, to: self.json.len() });
    }
}
