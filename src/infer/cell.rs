//! A value that stands in a field: its type, and where it sorts if it is a version.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

use serde_json::Value;

/// Longer texts identify nothing.
const TEXT_BYTES_MAX: usize = 256;

/// What stands in a field.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// Integers.
    Integer,
    /// Texts, none of them a moment or a number.
    Text,
    /// Texts that hold integers.
    IntegerText,
    /// Texts that hold moments.
    Moment,
    /// Something else, or not always the same.
    Other,
}

/// A value: its hash, its type, and where it sorts as a version.
#[derive(Clone, Copy)]
pub struct Cell {
    /// Equal for equal values only, but for chance.
    pub hash: u64,
    /// Its type.
    pub kind: Kind,
    /// Where it sorts; `None` where it does not.
    pub order: Option<i128>,
}

impl Cell {
    /// What is to be known of a value.
    pub fn of(value: &Value) -> Self {
        let (kind, order) = match value {
            Value::Number(number) if number.is_i64() || number.is_u64() => {
                (Kind::Integer, number.to_string().parse().ok())
            }
            Value::String(text) if text.len() > TEXT_BYTES_MAX => (Kind::Other, None),
            Value::String(text) => match (integer(text), moment(text)) {
                (Some(order), _) => (Kind::IntegerText, Some(order)),
                (None, Some(order)) => (Kind::Moment, Some(order)),
                (None, None) => (Kind::Text, None),
            },
            _ => (Kind::Other, None),
        };
        let mut hasher = DefaultHasher::new();
        value.to_string().hash(&mut hasher);
        Self { hash: hasher.finish(), kind, order }
    }
}

fn integer(text: &str) -> Option<i128> {
    let digits = text.strip_prefix('-').unwrap_or(text);
    let is_integer = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    is_integer.then(|| text.parse().ok()).flatten()
}

/// The nanoseconds of a moment as a version may be written: with a zone, or without one in UTC.
fn moment(text: &str) -> Option<i128> {
    if !text.as_bytes().first()?.is_ascii_digit() || text.len() < "2020-01-01T00:00".len() {
        return None;
    }
    let with_zone = text.parse::<jiff::Timestamp>();
    let without = || text.parse::<jiff::civil::DateTime>().ok()?.to_zoned(jiff::tz::TimeZone::UTC).ok();
    with_zone.ok().or_else(|| without().map(|zoned| zoned.timestamp())).map(|moment| moment.as_nanosecond())
}
