//! The JSON that a record has by prost-reflect.

use std::collections::BTreeMap;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use prost_reflect::{DynamicMessage, FieldDescriptor, Kind, MapKey, MessageDescriptor, ReflectMessage, Value};

use crate::schemas::protobuf::wire::{self, Cursor};

/// JSON with exact floats.
#[derive(Clone, Debug)]
pub(super) enum Json {
    Null,
    Bool(bool),
    Integer(i128),
    Float(f32),
    Double(f64),
    Text(String),
    Array(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    /// The JSON of a message; `None` if a value in it has none.
    pub fn of(message: &DynamicMessage) -> Option<Self> {
        let descriptor = message.descriptor();
        let value = |name: &str| message.get_field_by_name(name).map(|value| value.into_owned());
        let seconds = || Some((value("seconds")?.as_i64()?, value("nanos")?.as_i32()?));
        Some(match descriptor.full_name() {
            "google.protobuf.Timestamp" => {
                let (seconds, nanos) = seconds()?;
                let fits =
                    (-62_135_596_800..=253_402_300_799).contains(&seconds) && (0..1_000_000_000).contains(&nanos);
                Self::Text(fits.then(|| prost_reflect::prost_types::Timestamp { seconds, nanos }.to_string())?)
            }
            "google.protobuf.Duration" => {
                let (seconds, nanos) = seconds()?;
                let fits = seconds.unsigned_abs() <= 315_576_000_000
                    && nanos.unsigned_abs() < 1_000_000_000
                    && (seconds == 0 || nanos == 0 || (seconds < 0) == (nanos < 0));
                Self::Text(fits.then(|| prost_reflect::prost_types::Duration { seconds, nanos }.to_string())?)
            }
            "google.protobuf.FieldMask" => {
                let paths = value("paths")?;
                let paths = paths.as_list()?.iter().map(|path| camel(path.as_str().unwrap_or_default()));
                Self::Text(paths.collect::<Vec<_>>().join(","))
            }
            "google.protobuf.Any" => {
                let (of, value) = (value("type_url")?, value("value")?);
                let value = STANDARD.encode(value.as_bytes()?);
                let fields = [("@type", of.as_str()?.to_owned()), ("value", value)];
                Self::Object(fields.map(|(name, text)| (name.to_owned(), Self::Text(text))).into())
            }
            "google.protobuf.Struct" => Self::field(message, &descriptor.get_field_by_name("fields")?)?,
            "google.protobuf.ListValue" => Self::field(message, &descriptor.get_field_by_name("values")?)?,
            "google.protobuf.Value" => {
                let field = descriptor.fields().find(|field| message.has_field(field));
                field.map_or(Some(Self::Null), |field| Self::field(message, &field))?
            }
            name if name.starts_with("google.protobuf.") && name.ends_with("Value") => {
                Self::field(message, &descriptor.get_field(1)?)?
            }
            _ => {
                let mut object = BTreeMap::new();
                for field in descriptor.fields() {
                    let is_declared = field.field_descriptor_proto().default_value.is_some();
                    if !field.supports_presence() || message.has_field(&field) || is_declared {
                        object.insert(field.name().to_owned(), Self::field(message, &field)?);
                    }
                }
                Self::Object(object)
            }
        })
    }

    fn field(message: &DynamicMessage, field: &FieldDescriptor) -> Option<Self> {
        Self::value(&message.get_field(field), &field.kind())
    }

    fn value(value: &Value, kind: &Kind) -> Option<Self> {
        Some(match value {
            Value::Bool(value) => Self::Bool(*value),
            Value::I32(value) => Self::Integer((*value).into()),
            Value::I64(value) => Self::Integer((*value).into()),
            Value::U32(value) => Self::Integer((*value).into()),
            Value::U64(value) => Self::Integer((*value).into()),
            Value::F32(value) => Self::Float(*value),
            Value::F64(value) => Self::Double(*value),
            Value::String(value) => Self::Text(value.clone()),
            Value::Bytes(value) => Self::Text(STANDARD.encode(value)),
            Value::EnumNumber(number) => {
                let of = kind.as_enum()?;
                match of.get_value(*number) {
                    _ if of.full_name() == "google.protobuf.NullValue" => Self::Null,
                    Some(value) => Self::Text(value.name().to_owned()),
                    None => Self::Integer((*number).into()),
                }
            }
            Value::Message(message) => Self::of(message)?,
            Value::List(list) => Self::Array(list.iter().map(|value| Self::value(value, kind)).collect::<Option<_>>()?),
            Value::Map(map) => {
                let of = kind.as_message()?.get_field(2)?.kind();
                let entry = |(key, value): (&MapKey, &Value)| Some((text(key), Self::value(value, &of)?));
                Self::Object(map.iter().map(entry).collect::<Option<_>>()?)
            }
        })
    }

    /// The value at a path.
    pub fn at(&self, steps: &[String]) -> Option<&Self> {
        let Some((step, rest)) = steps.split_first() else { return Some(self) };
        match self {
            Self::Object(fields) => fields.get(step)?.at(rest),
            Self::Array(elements) => elements.get(step.parse::<usize>().ok()?)?.at(rest),
            _ => None,
        }
    }

    /// Whether this JSON is the same.
    pub fn is(&self, other: &serde_json::Value) -> bool {
        use serde_json::Value as Other;
        let float = |number: f64, other: &Other| match other {
            Other::String(text) => match text.as_str() {
                "NaN" => number.is_nan(),
                "Infinity" => number == f64::INFINITY,
                "-Infinity" => number == f64::NEG_INFINITY,
                _ => false,
            },
            Other::Number(text) => text.as_f64().is_some_and(|other| is_near(number, other)),
            _ => false,
        };
        match (self, other) {
            (Self::Null, Other::Null) => true,
            (Self::Bool(a), Other::Bool(b)) => a == b,
            (Self::Integer(a), Other::Number(b)) => b.to_string() == a.to_string(),
            // Floats are written in their shortest form, whose nearest double is another.
            (Self::Float(a), Other::Number(b)) => b.as_f64().map(|b| b as f32) == Some(*a),
            (Self::Float(a), other) => float((*a).into(), other),
            (Self::Double(a), other) => float(*a, other),
            (Self::Text(a), Other::String(b)) => a == b,
            (Self::Array(a), Other::Array(b)) => a.len() == b.len() && a.iter().zip(b).all(|(a, b)| a.is(b)),
            (Self::Object(a), Other::Object(b)) => {
                a.len() == b.len() && a.iter().all(|(name, a)| b.get(name).is_some_and(|b| a.is(b)))
            }
            _ => false,
        }
    }
}

/// Whether prost-reflect misreads a record: it takes a field for a map's entry whatever its wire type is, and reads a
/// length from bytes that hold another value. By Protobuf's rules such a field is unknown.
pub(super) fn is_misread(of: &MessageDescriptor, record: &[u8]) -> bool {
    let mut cursor = Cursor::new(record, 0);
    while !cursor.is_at_end() {
        let Ok((number, wire)) = cursor.key() else { return false };
        let field = of.get_field(number);
        if wire != wire::LENGTH && field.as_ref().is_some_and(FieldDescriptor::is_map) {
            return true;
        }
        let at = cursor.at();
        let value = cursor.value(number, wire, 100);
        // prost-reflect reads the beginning of a truncated value before it notices.
        let inner = value.map_or(&record[at..], |(from, to)| &record[from..to]);
        let kind = field.map(|field| field.kind());
        if let Some(Kind::Message(of)) = kind
            && matches!(wire, wire::LENGTH | wire::GROUP)
            && is_misread(&of, inner)
        {
            return true;
        }
        if value.is_err() {
            return false;
        }
    }
    false
}

/// Whether these doubles are the same or neighbours: serde_json does not round to the nearest.
fn is_near(a: f64, b: f64) -> bool {
    a == b || a.to_bits().abs_diff(b.to_bits()) <= 2
}

fn text(key: &MapKey) -> String {
    match key {
        MapKey::Bool(key) => key.to_string(),
        MapKey::I32(key) => key.to_string(),
        MapKey::I64(key) => key.to_string(),
        MapKey::U32(key) => key.to_string(),
        MapKey::U64(key) => key.to_string(),
        MapKey::String(key) => key.clone(),
    }
}

fn camel(path: &str) -> String {
    let mut out = String::new();
    let mut is_upper = false;
    for c in path.chars() {
        if c == '_' {
            is_upper = true;
        } else {
            out.push(if is_upper { c.to_ascii_uppercase() } else { c });
            is_upper = false;
        }
    }
    out
}
