//! The wanted places of a document, extracted by its schema and written as JSON.
//!
//! Identity, version, contents and sinks read JSON. The readers of Avro and Protobuf write wanted values as JSON and
//! skip all others, so a value is the same in each format.

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

/// An occurrence of a field in a record. Which occurrences count is known only at the end of the message around them.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Mark {
    /// Occurrences of one group exclude each other, unless they are of the same field.
    pub group: usize,
    pub field: usize,
    /// The wire type.
    pub wire: u8,
    /// The range of its bytes in the record.
    pub from: usize,
    pub to: usize,
}

impl Extracted {
    /// Clears everything, for a tree of wanted places with this many nodes.
    pub fn clear(&mut self, nodes: usize) {
        self.json.clear();
        self.found.clear();
        self.found.resize(nodes, Found::Missing);
    }

    /// Takes the empty buffer of marks; [`Self::keep_marks`] gives it back for the next record.
    pub fn take_marks(&mut self) -> Vec<Mark> {
        let mut marks = std::mem::take(&mut self.marks);
        marks.clear();
        marks
    }

    /// Gives the buffer of marks back.
    pub fn keep_marks(&mut self, marks: Vec<Mark>) {
        self.marks = marks;
    }

    /// The JSON that the ranges in [`Found`] are in.
    pub fn json(&self) -> &[u8] {
        &self.json
    }

    /// The value found at a node.
    #[inline]
    pub fn found(&self, node: usize) -> Found {
        self.found.get(node).copied().unwrap_or_default()
    }

    /// Clears the values found at these nodes.
    pub fn forget(&mut self, nodes: Range<usize>) {
        self.found[nodes].fill(Found::Missing);
    }

    /// The length of the JSON: the offset at which the next value begins.
    pub fn end(&self) -> usize {
        self.json.len()
    }

    /// The JSON, to append to.
    pub fn out(&mut self) -> &mut Vec<u8> {
        &mut self.json
    }

    /// Notes the value at a node, which may be [`super::steps::UNWANTED`].
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

    /// Appends a number: `write` appends its text, which must follow JSON's grammar.
    pub fn number(&mut self, node: usize, write: impl FnOnce(&mut Vec<u8>)) {
        let from = self.json.len();
        write(&mut self.json);
        self.note(node, Found::Number { from, to: self.json.len() });
    }

    /// Appends a signed integer.
    pub fn integer(&mut self, node: usize, value: i64) {
        self.number(node, |out| out.extend_from_slice(number::format_i64(value, &mut [0; 20])));
    }

    /// Appends a float as the shortest number that is read back as the same float, or as a string if JSON has no number
    /// for it. A negative zero keeps its sign.
    pub fn float<F: ryu_js::Float + Into<f64> + Copy>(&mut self, node: usize, value: F) {
        let wide: f64 = value.into();
        if wide.is_nan() {
            self.text(node, "NaN");
        } else if wide.is_infinite() {
            self.text(node, if wide > 0.0 { "Infinity" } else { "-Infinity" });
        } else if wide == 0.0 && wide.is_sign_negative() {
            // ryu_js omits the sign, as JavaScript does.
            self.number(node, |out| out.extend_from_slice(b"-0.0"));
        } else {
            self.number(node, |out| out.extend_from_slice(ryu_js::Buffer::new().format_finite(value).as_bytes()));
        }
    }

    /// Appends bytes as a string in padded base64.
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

    /// Appends a string in quotes, with escapes where JSON needs them.
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

    /// Notes that the JSON from offset `from` on is one object or array.
    pub fn composite(&mut self, node: usize, from: usize) {
        self.note(node, Found::Composite { from, to: self.json.len() });
    }
}
