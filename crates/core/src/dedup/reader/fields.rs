//! Reads what paths lead to in a record, for those who do something with it rather than judge it.
//!
//! Keys and values are read as the rules say (`key_format`, `value_format`), in one pass for all paths together, and
//! checked as a whole like those that identity and version are read from. Where a record carries its Connect schema,
//! [`Fields::write`] and [`Fields::write_object`] give values of logical types as what they are (see
//! [`crate::dedup::logical`]); [`Fields::get`] gives everything as it stands there.

use crate::dedup::by_schema::Unread;
use crate::dedup::document::Document;
use crate::dedup::json::unescape;
use crate::dedup::logical::{Schemas, Shape, row, text};
use crate::dedup::number;
use crate::dedup::path::Path;
use crate::dedup::rules::Rules;
use crate::dedup::vocabulary::{Format, Reason};
use crate::record::Record;
use crate::schemas::Sources;

use super::compile::{Compiler, Spot, Target};
use super::rejection::{self, Rejection, Unreadable};
use super::view::{Value, View};

/// The paths, added one after the other.
#[derive(Debug, Default)]
pub struct Wanted {
    /// Each path, and whether the whole key or value is a document rather than bytes.
    paths: Vec<(Path, bool)>,
}

impl Wanted {
    /// Adds the path of a scalar; returns its number. A key or a value without steps stands for its raw bytes, or, if
    /// it is read by schemas, for the document.
    pub fn scalar(&mut self, path: Path) -> usize {
        self.add(path, false)
    }

    /// Adds the path of an object or an array; a key or a value without steps is the document, inside of what Kafka
    /// Connect wraps around it. Returns its number.
    pub fn document(&mut self, path: Path) -> usize {
        self.add(path, true)
    }

    fn add(&mut self, path: Path, is_document: bool) -> usize {
        let wanted = (path, is_document);
        self.paths.iter().position(|known| *known == wanted).unwrap_or_else(|| {
            self.paths.push(wanted);
            self.paths.len() - 1
        })
    }
}

/// Reads fields of one record after the other, reusing its buffers.
#[derive(Debug)]
pub struct Fields {
    spots: Vec<Spot>,
    key: Option<Document>,
    value: Option<Document>,
    /// The schemas of keys and values.
    key_schemas: Schemas,
    value_schemas: Schemas,
}

/// What is wrong with a value that is not of the type that its record's schema says, in words.
const UNLIKE_SCHEMA: &str = "it is not a value of the type that the record's schema says";

/// What a path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Field<'a> {
    /// Nothing, or null.
    Missing,
    /// True or false.
    Bool(bool),
    /// A number of Kafka's.
    Integer(i64),
    /// A number in JSON, as written.
    Number(&'a [u8]),
    /// A text in UTF-8.
    Text(&'a [u8]),
    /// A text in UTF-8 with JSON's escapes in it.
    Escaped(&'a [u8]),
    /// Bytes that may be anything: a whole key, value or header.
    Bytes(&'a [u8]),
    /// An object or an array in JSON, as written.
    Json(&'a [u8]),
}

impl Field<'_> {
    /// Whether there is nothing, or null.
    pub fn is_missing(&self) -> bool {
        matches!(self, Field::Missing)
    }

    /// Appends it as text: a text without quotes and escapes, numbers and JSON as written, bytes as they are. Returns
    /// false if it is missing.
    pub fn write(&self, out: &mut Vec<u8>) -> bool {
        match *self {
            Field::Missing => return false,
            Field::Bool(value) => out.extend_from_slice(if value { b"true" } else { b"false" }),
            Field::Integer(value) => out.extend_from_slice(number::format_i64(value, &mut [0; 20])),
            Field::Escaped(text) => unescape(text, out),
            Field::Number(bytes) | Field::Text(bytes) | Field::Bytes(bytes) | Field::Json(bytes) => {
                out.extend_from_slice(bytes);
            }
        }
        true
    }
}

impl Fields {
    /// A reader of these fields, for records with these rules that name schemas of these sources.
    pub fn new(rules: &Rules, sources: &Sources, wanted: &Wanted) -> Self {
        let mut compiler = Compiler::new(rules, sources);
        let mut spots = Vec::new();
        for (path, is_document) in &wanted.paths {
            // Without the schema, the bytes of such a key or value are of no use.
            let is_document = *is_document || rules.format_of(&path.source).is_some_and(Format::has_schemas);
            spots.push(if is_document { compiler.document(path) } else { compiler.spot(path) });
        }
        let (key, value) = compiler.documents();
        Self { spots, key, value, key_schemas: Schemas::default(), value_schemas: Schemas::default() }
    }

    /// Whether keys are read, and whether values are.
    pub fn reads(&self) -> (bool, bool) {
        (self.key.is_some(), self.value.is_some())
    }

    /// Reads a record. A rejection says what is wrong with its key or value.
    pub fn scan(&mut self, record: &Record<'_>) -> Result<(), Rejection> {
        if let (Some(document), Some(key)) = (&mut self.key, record.key) {
            document.read(key, record.headers).map_err(|e| unread(Reason::KeyMalformed, e, key))?;
        }
        if let (Some(document), Some(value)) = (&mut self.value, record.value) {
            document.read(value, record.headers).map_err(|e| unread(Reason::ValueMalformed, e, value))?;
        }
        self.key_schemas.take(schema(self.key.as_ref(), record.key));
        self.value_schemas.take(schema(self.value.as_ref(), record.value));
        Ok(())
    }

    /// Appends the value at the path with this number, as [`Field::write`] does, with values of logical types decoded,
    /// also inside an object or an array. Returns false if it is missing.
    ///
    /// # Errors
    /// It is not what the record's schema says, in words.
    pub fn write(&self, number: usize, record: &Record<'_>, out: &mut Vec<u8>) -> Result<bool, &'static str> {
        let field = self.get(number, record);
        let logical = match (self.shape(number), field) {
            (Shape::Logical(logical), _) => logical,
            (shape, Field::Json(json)) if shape.holds_logical() => {
                return row::write(json, shape, out).map(|()| true).map_err(|_| UNLIKE_SCHEMA);
            }
            _ => return Ok(field.write(out)),
        };
        let mut unescaped = Vec::new();
        let raw = match field {
            Field::Missing => return Ok(false),
            Field::Bool(_) => text::Raw::Bool,
            Field::Number(bytes) => text::Raw::Number(bytes),
            Field::Json(bytes) => text::Raw::Composite(bytes),
            Field::Text(bytes) => text::Raw::Text(bytes),
            Field::Escaped(bytes) => {
                unescape(bytes, &mut unescaped);
                text::Raw::Text(&unescaped)
            }
            // These are in no document, and no schema speaks of them.
            Field::Integer(_) | Field::Bytes(_) => return Ok(field.write(out)),
        };
        logical.write(raw, out).map(|()| true).map_err(|_| UNLIKE_SCHEMA)
    }

    /// Appends the JSON object that the path with this number leads to, the values of logical types in it as what they
    /// are. Returns false if there is none.
    ///
    /// # Errors
    /// A value in it is not what the record's schema says, in words.
    pub fn write_object(&self, number: usize, record: &Record<'_>, out: &mut Vec<u8>) -> Result<bool, &'static str> {
        let Some(object) = self.object(number, record) else { return Ok(false) };
        match self.shape(number) {
            shape if shape.holds_logical() => row::write(object, shape, out).map_err(|_| UNLIKE_SCHEMA)?,
            _ => out.extend_from_slice(object),
        }
        Ok(true)
    }

    /// The fields of the object that the path with this number leads to whose texts, by the record's schema, are no
    /// encoded bytes: their names as a JSON array. `None` if no schema says so of any.
    pub fn texts(&self, number: usize) -> Option<&str> {
        self.shape(number).texts()
    }

    /// What the record that was read last says of the types of what the path leads to.
    fn shape(&self, number: usize) -> &Shape {
        let spot = &self.spots[number];
        let schemas = match spot.target {
            Target::InKey(_) => &self.key_schemas,
            Target::InValue(_) => &self.value_schemas,
            _ => return &Shape::Plain,
        };
        let document = if matches!(spot.target, Target::InKey(_)) { &self.key } else { &self.value };
        let named = document.as_ref().and_then(Document::shape);
        named.unwrap_or_else(|| schemas.shape()).at(&spot.path.steps)
    }

    /// The path with this number.
    pub fn path(&self, number: usize) -> &Path {
        &self.spots[number].path
    }

    /// What the path with this number leads to in the record that was read last.
    pub fn get<'a>(&'a self, number: usize, record: &'a Record<'a>) -> Field<'a> {
        match self.view(record).scalar(&self.spots[number].target) {
            Value::Missing => Field::Missing,
            Value::Bool(value) => Field::Bool(value),
            Value::Number(text) => Field::Number(text),
            Value::Integer(value) => Field::Integer(value),
            Value::Text(text) => Field::Text(text),
            Value::Escaped(text) => Field::Escaped(text),
            Value::Bytes(bytes) => Field::Bytes(bytes),
            Value::Composite(json) => Field::Json(json),
        }
    }

    /// The JSON object that the path with this number leads to in the record that was read last.
    pub fn object<'a>(&'a self, number: usize, record: &'a Record<'a>) -> Option<&'a [u8]> {
        self.view(record).document(&self.spots[number].target).filter(|json| json.first() == Some(&b'{'))
    }

    fn view<'a>(&'a self, record: &'a Record<'a>) -> View<'a> {
        View { record, key: self.key.as_ref(), value: self.value.as_ref() }
    }
}

/// The rejection of a record whose key or value cannot be read. A schema is known once the record has been judged; a
/// record whose schema is not known is rejected.
#[cold]
pub(super) fn unread(reason: Reason, error: Unread, bytes: &[u8]) -> Rejection {
    match rejection::unread(reason, error, bytes) {
        Unreadable::Rejected(rejection) => rejection,
        Unreadable::Pending(schema) => Rejection::new(reason, format!("{schema} is not known yet")),
    }
}

/// The schema beside the payload of a document that was scanned, if there is one.
fn schema<'a>(document: Option<&Document>, bytes: Option<&'a [u8]>) -> Option<&'a [u8]> {
    document?.schema(bytes?)
}

#[cfg(test)]
mod tests {
    //! Goal: whatever a path leads to comes out as it stands in the record.

    use super::*;
    use crate::dedup::{Format, Identity};
    use crate::record::{HeaderBuf, Headers};

    fn written(path: &str, format: Format, value: &str) -> Option<String> {
        let mut rules = Rules::new(Identity { parts: Vec::new() }, None);
        rules.value_format = format;
        let mut wanted = Wanted::default();
        let number = wanted.scalar(Path::parse(path).unwrap());
        assert_eq!(wanted.scalar(Path::parse(path).unwrap()), number, "each path is read once");
        let mut fields = Fields::new(&rules, &Sources::default(), &wanted);
        let mut headers = HeaderBuf::default();
        headers.push(b"id", Some(b"h1"));
        let record = Record {
            topic: "in",
            partition: 3,
            offset: 7,
            timestamp: Some(-5),
            key: Some(b"k"),
            value: Some(value.as_bytes()),
            headers: headers.as_headers(),
        };
        fields.scan(&record).unwrap();
        let mut out = Vec::new();
        fields.get(number, &record).write(&mut out).then(|| String::from_utf8(out).unwrap())
    }

    #[test]
    fn fields_are_written_as_they_stand_there() {
        let value =
            r#"{"n": 1.50e+400, "t": "a\u00e9\n\"", "p": "plain", "b": false, "x": null, "o": {"a" : [1, "\u0000"]}}"#;
        for (path, expected) in [
            ("value.n", Some("1.50e+400")),
            ("value.t", Some("aé\n\"")),
            ("value.p", Some("plain")),
            ("value.b", Some("false")),
            ("value.x", None),
            ("value.y", None),
            ("value.o", Some(r#"{"a" : [1, "\u0000"]}"#)),
            ("value.o.a.0", Some("1")),
            ("value", Some(value)),
            ("key", Some("k")),
            ("header.id", Some("h1")),
            ("header.no", None),
            ("meta.topic", Some("in")),
            ("meta.partition", Some("3")),
            ("meta.offset", Some("7")),
            ("meta.timestamp", Some("-5")),
        ] {
            assert_eq!(written(path, Format::Json, value).as_deref(), expected, "{path}");
        }
    }

    #[test]
    fn wrappings_of_connect_are_looked_through() {
        let value = r#"{"schema": {}, "payload": {"after": {"id": 1, "name": {"string": "x"}}}}"#;
        assert_eq!(written("value.after.id", Format::ConnectJson, value).as_deref(), Some("1"));
        assert_eq!(written("value.after.name", Format::ConnectJson, value).as_deref(), Some("x"));
    }

    #[test]
    fn documents_are_the_payload_and_nothing_is_left_of_the_record_before() {
        let mut rules = Rules::new(Identity { parts: Vec::new() }, None);
        rules.value_format = Format::ConnectJson;
        let mut wanted = Wanted::default();
        let number = wanted.document(Path::parse("value").unwrap());
        let mut fields = Fields::new(&rules, &Sources::default(), &wanted);
        let record = |value| Record {
            topic: "in",
            partition: 0,
            offset: 0,
            timestamp: None,
            key: None,
            value,
            headers: Headers::default(),
        };
        let first = record(Some(&br#"{"schema": null, "payload": {"id": 1}}"#[..]));
        fields.scan(&first).unwrap();
        assert_eq!(fields.object(number, &first), Some(&br#"{"id": 1}"#[..]));
        for other in [None, Some(&b"[1]"[..]), Some(b"null"), Some(b"\"{\"")] {
            let other = record(other);
            fields.scan(&other).unwrap();
            assert_eq!(fields.object(number, &other), None);
        }
        assert!(fields.scan(&record(Some(b"{"))).is_err());
    }

    /// `json_populate_record(null::t, $1)` gets a row whose decimals are numbers.
    #[test]
    fn values_of_logical_types_are_decoded_inside_objects_and_arrays() {
        let decimal = r#"{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{"scale":"2"},"field":"price"}"#;
        let schema = format!(
            r#"{{"type":"struct","fields":[{{"type":"struct","field":"after","fields":[{{"type":"int32","field":"id"}},{decimal}]}},{{"type":"array","field":"prices","items":{decimal}}}]}}"#
        );
        let value = |price: &str| {
            format!(
                r#"{{"schema": {schema}, "payload": {{"after": {{"id":1,"price":"{price}"}}, "prices": ["{price}"], "n": 5}}}}"#
            )
        };
        let written = |path: &str, price: &str| {
            let mut rules = Rules::new(Identity { parts: Vec::new() }, None);
            rules.value_format = Format::ConnectJson;
            let mut wanted = Wanted::default();
            let number = wanted.scalar(Path::parse(path).unwrap());
            let mut fields = Fields::new(&rules, &Sources::default(), &wanted);
            let value = value(price);
            let record = Record {
                topic: "in",
                partition: 0,
                offset: 0,
                timestamp: None,
                key: None,
                value: Some(value.as_bytes()),
                headers: Headers::default(),
            };
            fields.scan(&record).unwrap();
            let mut out = Vec::new();
            fields.write(number, &record, &mut out).map(|is_there| (is_there, String::from_utf8(out).unwrap()))
        };
        for (path, expected) in [
            ("value.after", r#"{"id":1,"price":-26588.24}"#),
            ("value.after.price", "-26588.24"),
            ("value.prices", "[-26588.24]"),
            ("value.n", "5"),
        ] {
            assert_eq!(written(path, "1234"), Ok((true, expected.to_owned())), "{path}");
        }
        assert_eq!(written("value.after", "12.50"), Err(UNLIKE_SCHEMA));
        assert_eq!(written("value.no", "1234"), Ok((false, String::new())));
    }
}
