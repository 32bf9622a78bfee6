//! What a record's Connect schema says of its fields: the logical types of Kafka Connect and Debezium.
//!
//! Connect's JSON writes a decimal as base64 and a date as a number of days; only the schema beside the payload says so
//! (`{"schema": …, "payload": …}`). A [`Shape`] is the part of a schema that matters here: where values of logical
//! types are, and which fields of a row are texts rather than encoded bytes. [`text`] decodes one value of a logical
//! type exactly; [`row`] writes a whole object with its values decoded.
//!
//! | type | written as | decoded as |
//! |---|---|---|
//! | `org.apache.kafka.connect.data.Decimal` | base64 of two's complement, the scale in the schema | a number |
//! | `io.debezium.data.VariableScaleDecimal` | an object with `scale` and `value` | a number |
//! | `…connect.data.Date`, `io.debezium.time.Date` | days since 1970 | a date |
//! | `…connect.data.Time`, `io.debezium.time.Time`, `MicroTime`, `NanoTime` | ms, µs, ns since midnight | a time |
//! | `…connect.data.Timestamp` | ms since 1970, an instant | a timestamp with its zone, UTC |
//! | `io.debezium.time.Timestamp`, `MicroTimestamp`, `NanoTimestamp` | ms, µs, ns since 1970 | a timestamp without a zone |
//! | `io.debezium.time.MicroDuration`, `NanoDuration` | µs, ns | hours, minutes and seconds |
//! | `io.debezium.data.Bits` | base64 of bytes, the lowest first | as many binary digits as the schema says |
//!
//! The others (`ZonedTimestamp`, `ZonedTime`, `IsoDate`, `IsoTime`, `IsoTimestamp`, `Interval`, `Json`, `Uuid`, `Xml`,
//! `Enum`, `EnumSet`, `Ltree`, `Year`) need no decoding.
//!
//! **Failure.** A document that is not JSON, or has no schema, has no logical values. A value that does not fit its
//! type in the schema gives [`Unlike`].

use serde_json::Value;
use xxhash_rust::xxh3::xxh3_64;

use super::steps::array_index;
use super::vocabulary::TimeUnit;

pub(super) mod decimal;
pub(super) mod row;
pub(super) mod text;
pub(super) mod time;

/// How many schemas are kept for a topic's values, or keys: each table has its own.
const KNOWN_MAX: usize = 256;
/// How many bytes of schemas are kept, unless one alone has more.
const KNOWN_BYTES_MAX: usize = 4 << 20;

/// A value does not fit its type in the record's schema.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Unlike;

/// Where values of logical types are in a document, and which of its fields are texts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Nowhere, and none.
    Plain,
    /// It is one.
    Logical(Logical),
    /// In these fields.
    Struct(Struct),
    /// In each element.
    Array(Box<Shape>),
    /// In each value.
    Map(Box<Shape>),
}

/// An object's fields.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Struct {
    /// Those of a shape.
    fields: Vec<(Box<[u8]>, Shape)>,
    /// The names of those that are texts, or arrays of texts, as a JSON array; empty if there are none.
    texts: Box<str>,
    /// Whether there are values of logical types in it, however deep.
    holds_logical: bool,
}

/// A logical type.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Logical {
    /// With this scale.
    Decimal(i32),
    VariableDecimal,
    Date,
    Time(Unit),
    /// Whether it is an instant, rather than a date and a time of some place.
    Timestamp(Unit, bool),
    Duration(Unit),
    /// As many as this.
    Bits(usize),
}

/// What a number counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Unit {
    Milli,
    Micro,
    Nano,
}

impl Logical {
    /// The logical type of values with this schema, if they need decoding.
    fn of(schema: &Value) -> Option<Self> {
        let parameter = |name: &str| schema.get("parameters")?.get(name)?.as_str();
        Self::named(schema.get("name")?.as_str()?, parameter)
    }

    /// The logical type of this name in Connect or Debezium, if its values need decoding.
    pub fn named<'p>(name: &str, parameter: impl Fn(&str) -> Option<&'p str>) -> Option<Self> {
        Some(match name {
            "org.apache.kafka.connect.data.Decimal" => Self::Decimal(parameter("scale")?.parse().ok()?),
            "io.debezium.data.VariableScaleDecimal" => Self::VariableDecimal,
            "org.apache.kafka.connect.data.Date" | "io.debezium.time.Date" => Self::Date,
            "org.apache.kafka.connect.data.Time" | "io.debezium.time.Time" => Self::Time(Unit::Milli),
            "io.debezium.time.MicroTime" => Self::Time(Unit::Micro),
            "io.debezium.time.NanoTime" => Self::Time(Unit::Nano),
            "org.apache.kafka.connect.data.Timestamp" => Self::Timestamp(Unit::Milli, true),
            "io.debezium.time.Timestamp" => Self::Timestamp(Unit::Milli, false),
            "io.debezium.time.MicroTimestamp" => Self::Timestamp(Unit::Micro, false),
            "io.debezium.time.NanoTimestamp" => Self::Timestamp(Unit::Nano, false),
            "io.debezium.time.MicroDuration" => Self::Duration(Unit::Micro),
            "io.debezium.time.NanoDuration" => Self::Duration(Unit::Nano),
            "io.debezium.data.Bits" => Self::Bits(parameter("length")?.parse().ok()?),
            _ => return None,
        })
    }

    /// The unit, if values are numbers that stand for timestamps.
    pub fn time_unit(self) -> Option<TimeUnit> {
        match self {
            Self::Timestamp(Unit::Milli, _) => Some(TimeUnit::Milliseconds),
            Self::Timestamp(Unit::Micro, _) => Some(TimeUnit::Microseconds),
            Self::Timestamp(Unit::Nano, _) => Some(TimeUnit::Nanoseconds),
            _ => None,
        }
    }
}

impl Shape {
    /// The shape of documents with this schema.
    fn read(schema: &[u8]) -> Self {
        serde_json::from_slice(schema).map_or(Self::Plain, |schema| Self::of(&schema))
    }

    /// Recurses as deep as the schema is nested, which reading it has bounded.
    fn of(schema: &Value) -> Self {
        if let Some(logical) = Logical::of(schema) {
            return Self::Logical(logical);
        }
        let inside = |key: &str| schema.get(key).map_or(Self::Plain, Self::of);
        match schema.get("type").and_then(Value::as_str) {
            Some("struct") => {
                let fields = schema.get("fields").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
                let field = |field: &Value| {
                    let name = field.get("field")?.as_str()?.as_bytes();
                    Some((name.into(), Self::of(field))).filter(|(_, shape)| *shape != Self::Plain)
                };
                Self::fields(fields.iter().filter_map(field).collect(), texts(fields))
            }
            Some("array") => inside("items").in_array(),
            Some("map") => inside("values").in_map(),
            _ => Self::Plain,
        }
    }

    /// The shape of an object with these fields, none of which is plain. `texts` are the names of the fields that are
    /// strings or arrays of strings.
    pub fn fields<'n>(fields: Vec<(Box<[u8]>, Self)>, texts: impl IntoIterator<Item = &'n str>) -> Self {
        let texts = names(texts);
        if fields.is_empty() && texts.is_empty() {
            return Self::Plain;
        }
        let holds_logical = fields.iter().any(|(_, shape)| shape.holds_logical());
        Self::Struct(Struct { fields, texts, holds_logical })
    }

    /// The shape of an array whose items have this shape.
    pub fn in_array(self) -> Self {
        if self == Self::Plain { Self::Plain } else { Self::Array(Box::new(self)) }
    }

    /// The shape of a map whose values have this shape.
    pub fn in_map(self) -> Self {
        if self == Self::Plain { Self::Plain } else { Self::Map(Box::new(self)) }
    }

    /// The shape of the value at these steps.
    pub fn at(&self, steps: &[String]) -> &Self {
        let Some((first, rest)) = steps.split_first() else { return self };
        match self {
            Self::Plain | Self::Logical(_) => &Self::Plain,
            Self::Struct(_) => self.field(first.as_bytes()).at(rest),
            Self::Array(items) if array_index(first).is_some() => items.at(rest),
            Self::Array(_) => &Self::Plain,
            Self::Map(values) => values.at(rest),
        }
    }

    /// Whether there are values of logical types in it: if not, it is written as it stands there.
    pub fn holds_logical(&self) -> bool {
        match self {
            Self::Plain => false,
            Self::Logical(_) => true,
            Self::Struct(of) => of.holds_logical,
            Self::Array(inner) | Self::Map(inner) => inner.holds_logical(),
        }
    }

    /// The names of the object's fields that are texts, or arrays of texts, as a JSON array; `None` if there are none.
    pub fn texts(&self) -> Option<&str> {
        match self {
            Self::Struct(of) if !of.texts.is_empty() => Some(&of.texts),
            _ => None,
        }
    }

    /// The shape of a field of this name.
    fn field(&self, name: &[u8]) -> &Self {
        match self {
            Self::Struct(Struct { fields, .. }) => {
                fields.iter().find(|(known, _)| **known == *name).map_or(&Self::Plain, |(_, shape)| shape)
            }
            Self::Map(values) => values,
            _ => &Self::Plain,
        }
    }
}

/// The names of those fields of a struct that are texts, or arrays of texts.
fn texts(fields: &[Value]) -> impl Iterator<Item = &str> {
    /// Recurses as deep as the schema is nested, which reading it has bounded.
    fn is_text(schema: &Value) -> bool {
        match schema.get("type").and_then(Value::as_str) {
            Some("string") => true,
            Some("array") => schema.get("items").is_some_and(is_text),
            _ => false,
        }
    }
    fields.iter().filter(|field| is_text(field)).filter_map(|field| field.get("field")?.as_str())
}

/// Names as [`Struct::texts`] has them.
fn names<'n>(names: impl IntoIterator<Item = &'n str>) -> Box<str> {
    // No column's name holds NUL, and PostgreSQL takes no text with it.
    let names: Vec<_> = names.into_iter().filter(|name| !name.contains('\0')).collect();
    if names.is_empty() { Box::default() } else { Value::from(names).to_string().into() }
}

/// The schemas that were used last, each read once: nothing is allocated for one that is known.
#[derive(Debug, Default)]
pub(super) struct Schemas {
    /// The hash of each that is known: comparing numbers finds one among hundreds quickly.
    hashes: Vec<u64>,
    /// In the same order.
    known: Vec<Known>,
    /// The bytes of all of them.
    bytes: usize,
    /// How many schemas were taken.
    taken: u64,
    /// The one that was taken last.
    last: usize,
    /// Whether the current record has it, rather than none.
    is_current: bool,
}

/// A schema that was read.
#[derive(Debug)]
struct Known {
    schema: Box<[u8]>,
    shape: Shape,
    /// When it was taken last, counted in schemas.
    taken: u64,
}

impl Schemas {
    /// Takes the schema of the next record.
    pub fn take(&mut self, schema: Option<&[u8]>) {
        self.is_current = schema.is_some();
        if let Some(schema) = schema {
            self.taken += 1;
            self.last = self.find(schema);
            self.known[self.last].taken = self.taken;
        }
    }

    /// The shape of the current record; plain if it has no schema.
    pub fn shape(&self) -> &Shape {
        self.known.get(self.last).filter(|_| self.is_current).map_or(&Shape::Plain, |known| &known.shape)
    }

    fn find(&mut self, schema: &[u8]) -> usize {
        // Records of one table follow each other, mostly.
        if self.known.get(self.last).is_some_and(|known| *known.schema == *schema) {
            return self.last;
        }
        let hash = xxh3_64(schema);
        let mut alike = self.hashes.iter().zip(&self.known);
        if let Some(at) = alike.position(|(known, Known { schema: bytes, .. })| *known == hash && **bytes == *schema) {
            return at;
        }
        while self.known.len() >= KNOWN_MAX || !self.known.is_empty() && self.bytes + schema.len() > KNOWN_BYTES_MAX {
            self.forget_one();
        }
        self.bytes += schema.len();
        self.hashes.push(hash);
        self.known.push(Known { schema: schema.into(), shape: Shape::read(schema), taken: 0 });
        self.known.len() - 1
    }

    /// Forgets the schema that was not used for the longest time.
    fn forget_one(&mut self) {
        let Some((at, _)) = self.known.iter().enumerate().min_by_key(|(_, known)| known.taken) else { return };
        self.hashes.swap_remove(at);
        self.bytes -= self.known.swap_remove(at).schema.len();
    }
}

#[cfg(test)]
mod tests;
