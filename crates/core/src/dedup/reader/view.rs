//! A record whose documents have been scanned, and what a target leads to in it.

use crate::dedup::json::{self, Found, PathIndex, Scanner};
use crate::dedup::number;
use crate::dedup::path::Scalar;
use crate::record::Record;

use super::compile::{Spot, Target, Word};

/// What a path leads to.
#[derive(Clone, Copy, Debug)]
pub(super) enum Value<'a> {
    /// Nothing, or null.
    Missing,
    Bool(bool),
    /// By JSON's grammar.
    Number(&'a [u8]),
    Integer(i64),
    Text(&'a [u8]),
    /// With JSON's escapes in it.
    Escaped(&'a [u8]),
    Bytes(&'a [u8]),
    /// An object or an array.
    Composite(&'a [u8]),
}

impl Value<'_> {
    pub fn is_missing(self) -> bool {
        matches!(self, Value::Missing)
    }

    /// Whether this equals a word, by type and value; raw bytes are compared with texts. `scratch` is scratch space.
    pub fn is(self, word: &Word, scratch: &mut Vec<u8>) -> bool {
        match (self, word) {
            (Value::Bool(value), Word::Bool(word)) => value == *word,
            (Value::Text(text) | Value::Bytes(text), Word::Text(word)) => text == word,
            (Value::Escaped(raw), Word::Text(word)) => {
                scratch.clear();
                json::unescape(raw, scratch);
                scratch == word
            }
            (Value::Number(text), Word::Number(word)) => {
                scratch.clear();
                number::write_canonical(text, scratch).is_ok() && scratch == word
            }
            (Value::Integer(value), Word::Number(word)) => {
                scratch.clear();
                number::write_canonical(number::format_i64(value, &mut [0; 20]), scratch).is_ok() && scratch == word
            }
            _ => false,
        }
    }
}

/// A record whose documents have been scanned.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub record: &'a Record<'a>,
    pub key: Option<&'a Scanner>,
    pub value: Option<&'a Scanner>,
}

impl<'a> View<'a> {
    /// What a target leads to; a scalar in a union is unwrapped if the format says so.
    #[inline]
    pub fn scalar(self, target: &'a Target) -> Value<'a> {
        let value = self.look_up(target);
        if let Value::Composite(bytes) = value
            && self.is_looking_through(target)
            && let Some(found) = json::scalar_in_union(bytes)
        {
            return found_in(found, bytes);
        }
        value
    }

    /// The first of these scalars that is there, not null, and for which `is_none` is false.
    #[inline]
    pub fn first(self, spots: &'a [Spot], mut is_none: impl FnMut(Value<'a>) -> bool) -> Option<(&'a Spot, Value<'a>)> {
        spots.iter().find_map(|spot| {
            let value = self.scalar(&spot.target);
            (!value.is_missing() && !is_none(value)).then_some((spot, value))
        })
    }

    /// What a target leads to.
    #[inline]
    pub fn look_up(self, target: &'a Target) -> Value<'a> {
        let record = self.record;
        let bytes = |bytes: Option<&'a [u8]>| bytes.map_or(Value::Missing, Value::Bytes);
        match target {
            Target::InKey(place) => inside(self.key, *place, record.key),
            Target::InValue(place) => inside(self.value, *place, record.value),
            Target::Key => bytes(record.key),
            Target::Value => bytes(record.value),
            Target::Header(name) => bytes(record.headers.last(name).and_then(|header| header.value)),
            Target::Topic => Value::Text(record.topic.as_bytes()),
            Target::Partition => Value::Integer(record.partition.into()),
            Target::Offset => Value::Integer(record.offset),
            Target::Timestamp => record.timestamp.map_or(Value::Missing, Value::Integer),
            Target::Const(Scalar::Text(text)) => Value::Text(text.as_bytes()),
            Target::Const(Scalar::Number(number)) => Value::Number(number.as_str().as_bytes()),
            Target::Const(Scalar::Bool(value)) => Value::Bool(*value),
        }
    }

    /// The JSON that a target leads to, if it is in a document and not missing.
    pub fn document(self, target: &Target) -> Option<&'a [u8]> {
        let (scanner, place, document) = match target {
            Target::InKey(place) => (self.key?, *place, self.record.key?),
            Target::InValue(place) => (self.value?, *place, self.record.value?),
            _ => return None,
        };
        match scanner.found(place) {
            Found::Missing | Found::Null => None,
            Found::Bool(true) => Some(b"true"),
            Found::Bool(false) => Some(b"false"),
            Found::Text { from, to, .. } => document.get(from - 1..to + 1),
            Found::Number { from, to } | Found::Composite { from, to } => document.get(from..to),
        }
    }

    /// The schema beside the payload that the target is in, if the record carries one.
    #[inline]
    pub fn schema(self, target: &Target) -> Option<&'a [u8]> {
        let (scanner, document) = match target {
            Target::InKey(_) => (self.key?, self.record.key?),
            Target::InValue(_) => (self.value?, self.record.value?),
            _ => return None,
        };
        document.get(scanner.schema()?)
    }

    /// Whether unions are looked through in the target's document.
    pub fn is_looking_through(self, target: &Target) -> bool {
        let scanner = match target {
            Target::InKey(_) => self.key,
            Target::InValue(_) => self.value,
            _ => None,
        };
        scanner.is_some_and(Scanner::is_looking_through)
    }
}

/// What a scanned document has at `place`. A null key has nothing anywhere.
#[inline]
fn inside<'a>(scanner: Option<&Scanner>, place: PathIndex, document: Option<&'a [u8]>) -> Value<'a> {
    let (Some(scanner), Some(document)) = (scanner, document) else { return Value::Missing };
    found_in(scanner.found(place), document)
}

#[inline]
fn found_in(found: Found, document: &[u8]) -> Value<'_> {
    let bytes = |from: usize, to: usize| document.get(from..to).unwrap_or_default();
    match found {
        Found::Missing | Found::Null => Value::Missing,
        Found::Bool(value) => Value::Bool(value),
        Found::Number { from, to } => Value::Number(bytes(from, to)),
        Found::Text { from, to, escaped: false } => Value::Text(bytes(from, to)),
        Found::Text { from, to, escaped: true } => Value::Escaped(bytes(from, to)),
        Found::Composite { from, to } => Value::Composite(bytes(from, to)),
    }
}
