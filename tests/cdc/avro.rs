//! What is in a record of Avro, by another reader than ratchet's.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use apache_avro::Schema;
use apache_avro::types::Value as Avro;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::schema_registry::Server;

static SCHEMAS: Mutex<Option<HashMap<u32, Schema>>> = Mutex::new(None);

/// The JSON of a record behind a number of four bytes; values are as a converter of JSON writes them.
pub fn decoded(bytes: &[u8]) -> Value {
    let (number, mut record) = bytes.split_first_chunk().expect("the converter writes a number of four bytes");
    let number = u32::from_be_bytes(*number);
    let mut schemas = SCHEMAS.lock().unwrap_or_else(PoisonError::into_inner);
    let schema = schemas.get_or_insert_default().entry(number).or_insert_with(|| {
        Schema::parse_str(&Server::shared().text_of(number)).expect("the converter registers schemas of Avro")
    });
    let value = apache_avro::reader::datum::GenericDatumReader::builder(schema).build();
    let value = value.and_then(|reader| reader.read_value(&mut record)).expect("a record of its schema");
    assert!(record.is_empty(), "bytes are left behind a record of schema {number}");
    shown(value)
}

fn shown(value: Avro) -> Value {
    match value {
        Avro::Null => Value::Null,
        Avro::Union(_, value) => shown(*value),
        Avro::Boolean(is) => json!(is),
        Avro::Int(number) | Avro::Date(number) | Avro::TimeMillis(number) => json!(number),
        Avro::Long(number)
        | Avro::TimeMicros(number)
        | Avro::TimestampMillis(number)
        | Avro::TimestampMicros(number)
        | Avro::LocalTimestampMillis(number)
        | Avro::LocalTimestampMicros(number) => json!(number),
        Avro::Float(number) => json!(number),
        Avro::Double(number) => json!(number),
        Avro::String(text) | Avro::Enum(_, text) => json!(text),
        Avro::Bytes(bytes) | Avro::Fixed(_, bytes) => json!(STANDARD.encode(bytes)),
        Avro::Array(values) => values.into_iter().map(shown).collect(),
        Avro::Map(fields) => fields.into_iter().map(|(name, value)| (name, shown(value))).collect(),
        Avro::Record(fields) => fields.into_iter().map(|(name, value)| (name, shown(value))).collect(),
        other => panic!("no test looks at {other:?}"),
    }
}
