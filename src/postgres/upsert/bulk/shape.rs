//! Reads a row's shape: which columns it has, and a hash of its key.

use std::fmt;

use serde::Deserializer;
use serde::de::{DeserializeSeed, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::super::{Column, Kind, UNAVAILABLE, UNAVAILABLE_BASE64, UNAVAILABLE_NUMBERS_STARTS, UNAVAILABLE_UUID};
use super::BulkPlan;
use crate::encodings::base64;

/// The length of the prefix of a placeholder or of [`NUL`] that is searched for: short texts are found much faster, and
/// a false positive only means that the row is executed alone.
const MARK_PREFIX_BYTES: usize = 28;

/// The escape of a character that PostgreSQL's texts cannot contain.
const NUL: &str = "\\u0000";

/// The shape of a row.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Shape {
    /// The row's columns, as bits by their numbers.
    pub columns: u128,
    /// A hash of the key.
    pub key_hash: u64,
}

/// The kind of a field's value, with a hash where the field belongs to the key.
enum FieldValue {
    Null,
    Bool,
    Number(u64),
    Text(u64),
    /// In a column of numbers, a text that may be base64, with its hash, or an object or array that contains one.
    Doubtful(Option<u64>),
    /// An object or an array.
    Nested,
}

/// The shape of a row; `None` if it is not a valid row, or has to be executed alone. `texts` are the fields that are
/// known to be texts: [`Call::texts`](crate::effect::Call::texts).
pub(super) fn read(plan: &BulkPlan, row: &str, texts: Option<&str>) -> Option<Shape> {
    let marks = [
        UNAVAILABLE,
        UNAVAILABLE_BASE64,
        UNAVAILABLE_UUID,
        UNAVAILABLE_NUMBERS_STARTS[0],
        UNAVAILABLE_NUMBERS_STARTS[1],
        NUL,
    ];
    if marks.iter().any(|mark| row.contains(&mark[..mark.len().min(MARK_PREFIX_BYTES)])) {
        return None;
    }
    let mut json = serde_json::Deserializer::from_str(row);
    let shape = json.deserialize_map(ShapeVisitor { plan, texts }).ok()??;
    json.end().ok()?;
    Some(shape)
}

/// Reads a row's object.
struct ShapeVisitor<'a> {
    plan: &'a BulkPlan,
    texts: Option<&'a str>,
}

impl ShapeVisitor<'_> {
    /// Whether the field with this name is known to be a text.
    fn is_text(&self, name: &str) -> bool {
        let names = self.texts.and_then(|texts| serde_json::from_str::<Vec<String>>(texts).ok());
        names.is_some_and(|names| names.iter().any(|known| known == name))
    }
}

impl<'de> Visitor<'de> for ShapeVisitor<'_> {
    type Value = Option<Shape>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a row")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let plan = self.plan;
        let (mut shape, mut is_fit, mut next) = (Shape { columns: 0, key_hash: 0 }, true, 0);
        while let Some(number) = map.next_key_seed(ColumnSeed { plan, next })? {
            let Some(number) = number else {
                map.next_value_seed(ValueSeed { plan, is_key: false, is_number: false })?;
                continue;
            };
            next = number + 1;
            let is_key = plan.key.contains(&number);
            let column = &plan.table.columns[number];
            let value = map.next_value_seed(ValueSeed { plan, is_key, is_number: column.is_number() })?;
            let value = match value {
                FieldValue::Doubtful(hash) if self.is_text(&column.name) => {
                    hash.map_or(FieldValue::Nested, FieldValue::Text)
                }
                value => value,
            };
            is_fit &= shape.columns & 1 << number == 0;
            shape.columns |= 1 << number;
            is_fit &= match (column.kind, &value) {
                _ if matches!(value, FieldValue::Doubtful(_)) => false,
                _ if is_key => matches!(value, FieldValue::Number(_) | FieldValue::Text(_)),
                (Kind::Time, FieldValue::Number(_)) | (Kind::TimeList, FieldValue::Number(_) | FieldValue::Nested) => {
                    false
                }
                _ => true,
            };
            if let (true, FieldValue::Number(hash) | FieldValue::Text(hash)) = (is_key, value) {
                shape.key_hash ^= hash.rotate_left(number as u32);
            }
        }
        let has_key = plan.key.iter().all(|number| shape.columns & 1 << number != 0);
        Ok((is_fit && has_key).then_some(shape))
    }
}

/// Reads a field's name as its column's number; `None` if the statement uses no column with this name.
struct ColumnSeed<'a> {
    plan: &'a BulkPlan,
    /// The number of the expected column: rows mostly have their fields in the table's order.
    next: usize,
}

impl<'de> DeserializeSeed<'de> for ColumnSeed<'_> {
    type Value = Option<usize>;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<Self::Value, D::Error> {
        json.deserialize_str(self)
    }
}

impl Visitor<'_> for ColumnSeed<'_> {
    type Value = Option<usize>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a column's name")
    }

    fn visit_str<E>(self, name: &str) -> Result<Self::Value, E> {
        let columns = &self.plan.table.columns;
        let from = self.next.min(columns.len());
        let number = (from..columns.len()).chain(0..from).find(|&number| columns[number].name == name);
        Ok(number.filter(|number| self.plan.columns & 1 << number != 0))
    }
}

/// Reads a field's value.
#[derive(Clone, Copy)]
struct ValueSeed<'a> {
    plan: &'a BulkPlan,
    /// Whether the field belongs to the key, so that its value is hashed.
    is_key: bool,
    /// Whether the column is one of numbers, in which a text may be base64.
    is_number: bool,
}

impl Column {
    fn is_number(&self) -> bool {
        matches!(self.kind, Kind::Number | Kind::Float | Kind::NumberList)
    }
}

impl ValueSeed<'_> {
    fn number_value<E>(&self, bits: u64) -> Result<FieldValue, E> {
        Ok(FieldValue::Number(if self.is_key { self.plan.hasher.hash_one(bits) } else { 0 }))
    }
}

impl<'de> DeserializeSeed<'de> for ValueSeed<'_> {
    type Value = FieldValue;

    fn deserialize<D: Deserializer<'de>>(self, json: D) -> Result<FieldValue, D::Error> {
        json.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for ValueSeed<'_> {
    type Value = FieldValue;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a value")
    }

    fn visit_unit<E>(self) -> Result<FieldValue, E> {
        Ok(FieldValue::Null)
    }

    fn visit_bool<E>(self, _: bool) -> Result<FieldValue, E> {
        Ok(FieldValue::Bool)
    }

    fn visit_u64<E>(self, number: u64) -> Result<FieldValue, E> {
        self.number_value(number)
    }

    fn visit_i64<E>(self, number: i64) -> Result<FieldValue, E> {
        self.number_value(number.cast_unsigned())
    }

    /// Different numbers with many digits may have the same hash.
    fn visit_f64<E>(self, number: f64) -> Result<FieldValue, E> {
        self.number_value(number.to_bits())
    }

    fn visit_str<E>(self, text: &str) -> Result<FieldValue, E> {
        let hash = if self.is_key { self.plan.hasher.hash_one(text) } else { 0 };
        Ok(if self.is_number && base64(text.as_bytes()).is_some() {
            FieldValue::Doubtful(Some(hash))
        } else {
            FieldValue::Text(hash)
        })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<FieldValue, A::Error> {
        // Not skipped as IgnoredAny, which does not limit the depth of nesting.
        let mut nested = FieldValue::Nested;
        while let Some(value) = list.next_element_seed(ValueSeed { is_key: false, ..self })? {
            if matches!(value, FieldValue::Doubtful(_)) {
                nested = FieldValue::Doubtful(None);
            }
        }
        Ok(nested)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<FieldValue, A::Error> {
        while map.next_key::<IgnoredAny>()?.is_some() {
            map.next_value_seed(ValueSeed { is_key: false, ..self })?;
        }
        Ok(FieldValue::Nested)
    }
}
