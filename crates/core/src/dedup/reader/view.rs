//! A record whose documents have been read, and what a target leads to in it.

use crate::dedup::document::Document;
use crate::dedup::json;
use crate::dedup::logical::Shape;
use crate::dedup::number;
use crate::dedup::path::Scalar;
use crate::dedup::steps::{Found, PathIndex};
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

/// A record whose documents have been read.
#[derive(Clone, Copy)]
pub(super) struct View<'a> {
    pub record: &'a Record<'a>,
    pub key: Option<&'a Document>,
    pub value: Option<&'a Document>,
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
        let (document, place, bytes) = match target {
            Target::InKey(place) => (self.key?, *place, self.record.key?),
            Target::InValue(place) => (self.value?, *place, self.record.value?),
            _ => return None,
        };
        let json = document.json(bytes);
        match document.found(place) {
            Found::Missing | Found::Null => None,
            Found::Bool(true) => Some(b"true"),
            Found::Bool(false) => Some(b"false"),
            Found::Text { from, to, .. } => json.get(from - 1..to + 1),
            Found::Number { from, to } | Found::Composite { from, to } => json.get(from..to),
        }
    }

    /// The schema beside the payload that the target is in, if the record carries one.
    #[inline]
    pub fn schema(self, target: &Target) -> Option<&'a [u8]> {
        match target {
            Target::InKey(_) => self.key?.schema(self.record.key?),
            Target::InValue(_) => self.value?.schema(self.record.value?),
            _ => None,
        }
    }

    /// The types of the values in the target's document, from the schema that it names; `None` if it names none.
    #[inline]
    pub fn shape(self, target: &Target) -> Option<&'a Shape> {
        match target {
            Target::InKey(_) => self.key?.shape(),
            Target::InValue(_) => self.value?.shape(),
            _ => None,
        }
    }

    /// Whether unions are looked through in the target's document.
    pub fn is_looking_through(self, target: &Target) -> bool {
        let document = match target {
            Target::InKey(_) => self.key,
            Target::InValue(_) => self.value,
            _ => None,
        };
        document.is_some_and(Document::is_looking_through)
    }
}

/// The value at a place of a document. A null key or value has none.
#[inline]
fn inside<'a>(document: Option<&'a Document>, place: PathIndex, bytes: Option<&'a [u8]>) -> Value<'a> {
    let (Some(document), Some(bytes)) = (document, bytes) else { return Value::Missing };
    found_in(document.found(place), document.json(bytes))
}

#[inline]
fn found_in(found: Found, json: &[u8]) -> Value<'_> {
    let bytes = |from: usize, to: usize| json.get(from..to).unwrap_or_default();
    match found {
        Found::Missing | Found::Null => Value::Missing,
        Found::Bool(value) => Value::Bool(value),
        Found::Number { from, to } => Value::Number(bytes(from, to)),
        Found::Text { from, to, escaped: false } => Value::Text(bytes(from, to)),
        Found::Text { from, to, escaped: true } => Value::Escaped(bytes(from, to)),
        Found::Composite { from, to } => Value::Composite(bytes(from, to)),
    }
}
