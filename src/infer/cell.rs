//! A field's value: its type, and its order if it is a version.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use super::names;
use crate::dedup::{Moment, parse_timestamp};
use crate::encodings::{self, Base64};

/// Longer texts are not taken as identities.
const TEXT_BYTES_MAX: usize = 256;
/// How many digits behind those of the nanoseconds decide the order of moments.
const FINER_MAX: usize = 15;

/// The type of a field's values.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueKind {
    /// Integers.
    Integer,
    /// Texts other than timestamps and integers.
    Text,
    /// Texts that hold integers.
    IntegerText,
    /// Texts that hold timestamps.
    Moment,
    /// Another type, or several.
    Other,
}

/// A value: its hash, its type, and its order as a version.
#[derive(Clone, Copy)]
pub struct Cell {
    /// Equal for equal values; collisions are very unlikely.
    pub hash: u64,
    /// Its type.
    pub kind: ValueKind,
    /// How it sorts as a version; `None` if it cannot be one.
    pub order: Option<i128>,
    /// Whether it is a text for a change of a row, such as `insert` or `u`.
    pub is_change: bool,
    /// Whether it is a text that looks like bytes in base64.
    pub base64: Option<Base64>,
}

impl Cell {
    /// Classifies a value.
    pub fn of(value: &Value) -> Self {
        let (kind, order) = match value {
            Value::Number(number) if number.is_i64() || number.is_u64() => {
                (ValueKind::Integer, number.to_string().parse().ok())
            }
            Value::String(text) if text.len() > TEXT_BYTES_MAX => (ValueKind::Other, None),
            Value::String(text) => match (integer(text), moment(text)) {
                (Some(order), _) => (ValueKind::IntegerText, Some(order)),
                (None, Some(order)) => (ValueKind::Moment, Some(order)),
                (None, None) => (ValueKind::Text, None),
            },
            _ => (ValueKind::Other, None),
        };
        let mut hasher = DefaultHasher::new();
        value.to_string().hash(&mut hasher);
        let text = value.as_str();
        let is_change = text.is_some_and(names::is_change_word);
        Self {
            hash: hasher.finish(),
            kind,
            order,
            is_change,
            base64: text.and_then(|text| encodings::base64(text.as_bytes())),
        }
    }
}

fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| text.parse().ok()).flatten()
}

/// A moment's place in the order of moments: its nanoseconds, and the digits behind those, as far as there is room.
fn moment(text: &str) -> Option<i128> {
    let Moment { nanoseconds, finer } = parse_timestamp(text.as_bytes())?;
    let digits = finer.iter().map(|digit| i128::from(digit - b'0')).chain(std::iter::repeat(0));
    Some(digits.take(FINER_MAX).fold(nanoseconds, |order, digit| order * 10 + digit))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments_sort_by_all_of_their_digits() {
        let texts = [
            "0001-01-01T00:00:00Z",
            "1969-12-31T23:59:59.9999999999Z",
            "1970-01-01 00:00:00",
            "1970-01-01T00:00:00.0000000001",
            "1970-01-01T02:00:00.000000001+02:00",
            "9999-12-31T23:59:59.999999999999999999999999999Z",
        ];
        let orders = texts.map(|text| moment(text).unwrap());
        assert!(orders.is_sorted() && orders.windows(2).all(|pair| pair[0] != pair[1]), "{orders:?}");
        assert_eq!(orders[2], 0);
        for text in ["2025-01-01", "2025-01-01T00:00", "2025-W01-1T00:00:00Z", "20:50:30", "x"] {
            assert_eq!(moment(text), None, "{text}");
        }
    }
}
