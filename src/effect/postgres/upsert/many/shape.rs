//! What a row's JSON says of its columns, without their values.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::{Column, Kind, NUMBERS_BEGIN, UNAVAILABLE, UNAVAILABLE_BASE64, UNAVAILABLE_UUID};
use super::Many;
use crate::encodings::base64;

/// How much of a mark is searched for: short texts are found much faster, and one that is no mark costs little.
const MARK_BYTES: usize = 28;

/// What no text of the server's may hold.
const NUL: &str = "\\u0000";

/// What there is of a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The columns that it has, as bits by their numbers.
    pub columns: u128,
    /// Different for different keys.
    pub key: u64,
}

/// A field's value, as far as it matters.
enum Value {
    Null,
    Bool,
    Number(u64),
    Text(u64),
    /// In a column of numbers, a text that may be base64, with its hash, or an object or array with one.
    Doubtful(Option<u64>),
    /// An object or an array.
    Nested,
}

/// What there is of this row, these fields of which are texts ([`Call::texts`](crate::effect::Call::texts)); `None` if it is
/// none, or one that needs a closer look.
pub(super) fn read(many: &Many, row: &str, texts: Option<&str>) -> Option<Shape> {
    let marks = [UNAVAILABLE, UNAVAILABLE_BASE64, UNAVAILABLE_UUID, NUMBERS_BEGIN[0], NUMBERS_BEGIN[1], NUL];
    if marks.iter().any(|mark| row.contains(&mark[..mark.len().min(MARK_BYTES)])) {
        return None;
    }
    let mut json = serde_json::Deserializer::from_str(row);
    let shape = json.deserialize_map(Row { many, texts }).ok()??;
    json.end().ok()?;
    Some(shape)
}

struct Row<'a> {
    many: &'a Many,
    texts: Option<&'a str>,
}

impl Row<'_> {
    /// Whether the field of this name is known to be a text.
    fn is_text(&self, name: &str) -> bool {
        let names = self.texts.and_then(|texts| serde_json::from_str::<Vec<String>>(texts).ok());
        names.is_some_and(|names| names.iter().any(|known| known == name))
    }
}

impl<'de> Visitor<'de> for Row<'_> {
    type Value = Option<Shape>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let many = self.many;
        let (mut shape, mut is_fit, mut next) = (Shape { columns: 0, key: 0 }, true, 0);
        while let Some(number) = map.next_key_seed(Name { many, next })? {
            let Some(number) = number else {
                map.next_value_seed(Hashed { many, is_key: false, is_number: false })?;
                continue;
            };
            next = number + 1;
            let is_key = many.key.contains(&number);
            let column = &many.table.columns[number];
            let value = map.next_value_seed(Hashed { many, is_key, is_number: column.is_number() })?;
            let value = match value {
                Value::Doubtful(hash) if self.is_text(&column.name) => hash.map_or(Value::Nested, Value::Text),
                value => value,
            };
            is_fit &= shape.columns & 1 << number == 0;
            shape.columns |= 1 << number;
            is_fit &= match (column.kind, &value) {
                _ if matches!(value, Value::Doubtful(_)) => false,
                _ if is_key => matches!(value, Value::Number(_) | Value::Text(_)),
                (Kind::Time, Value::Number(_)) | (Kind::TimeList, Value::Number(_) | Value::Nested) => false,
                _ => true,
            };
            if let (true, Value::Number(hash) | Value::Text(hash)) = (is_key, value) {
                shape.key ^= hash.rotate_left(number as u32);
            }
        }
        let has_key = many.key.iter().all(|number| shape.columns & 1 << number != 0);
        Ok((is_fit && has_key).then_some(shape))
    }
}

/// The number of the column that has this name; `None` if none is looked at that has.
struct Name<'a> {
    many: &'a Many,
    /// Where it is expected: rows have their fields in the table's order, mostly.
    next: usize,
}

impl<'de> DeserializeSeed<'de> for Name<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for Name<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let columns = &self.many.table.columns;
        let from = self.next.min(columns.len());
        let number = (from..columns.len()).chain(0..from).find(|&number| columns[number].name == name);
        Ok(number.filter(|number| self.many.columns & 1 << number != 0))
    }
}

/// A value, with a hash of it where it is a key's.
#[derive(Clone, Copy)]
struct Hashed<'a> {
    many: &'a Many,
    is_key: bool,
    /// Whether it is for a column of numbers in which a text may be base64.
    is_number: bool,
}

impl Column {
    fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Number | Kind::Float | Kind::NumberList)
    }
}

impl Hashed<'_> {
    fn number<E>(&self, bits: u64) -> Result<Value, E> {
        Ok(Value::Number(if self.is_key { self.many.hasher.hash_one(bits) } else { 0 }))
    }
}

impl<'de> DeserializeSeed<'de> for Hashed<'_> {
    type Value = Value;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Value, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Hashed<'_> {
    type Value = Value;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<Value, E> {
        Ok(Value::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<Value, E> {
        Ok(Value::Bool)
    }

    fn visit_u64<E>(self, number: u64) -> Result<Value, E> {
        self.number(number)
    }

    fn visit_i64<E>(self, number: i64) -> Result<Value, E> {
        self.number(number.cast_unsigned())
    }

    /// Numbers that are too long may become the same.
    fn visit_f64<E>(self, number: f64) -> Result<Value, E> {
        self.number(number.to_bits())
    }

    fn visit_str<E>(self, text: &str) -> Result<Value, E> {
        let hash = if self.is_key { self.many.hasher.hash_one(text) } else { 0 };
        Ok(if self.is_number && base64(text.as_bytes()).is_some() {
            Value::Doubtful(Some(hash))
        } else {
            Value::Text(hash)
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Value, A::Error> {
        // Not passed over: that has no bound to how deeply it may be nested.
        let mut nested = Value::Nested;
        while let Some(value) = list.next_element_seed(Hashed { is_key: false, ..self })? {
            if matches!(value, Value::Doubtful(_)) {
                nested = Value::Doubtful(None);
            }
        }
        Ok(nested)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Value, A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(Hashed { is_key: false, ..self })?;
        }
        Ok(Value::Nested)
    }
}
