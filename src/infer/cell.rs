//! A field's value: its type, and its order if it is a version.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::Value;

use super::names;
use crate::capture::looks;

/// Longer texts are not taken as identities.
const TEXT_BYTES_MAX: usize = 256;

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
    pub base64: Option<looks::Base64>,
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
        Self { hash: hasher.finish(), kind, order, is_change, base64: text.and_then(looks::base64) }
    }
}

fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| text.parse().ok()).flatten()
}

/// A timestamp's nanoseconds, in the forms that a version may have: with a zone, or without one in UTC.
fn moment(text: &str) -> Option<i128> {
    if !text.as_bytes().first()?.is_ascii_digit() || text.len() < "2020-01-01T00:00".len() {
        return None;
    }
    let with_zone = text.parse::<jiff::Timestamp>();
    let without = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    with_zone.ok().or_else(|| without().map(|zoned| zoned.timestamp())).map(|moment| moment.as_nanosecond())
}
