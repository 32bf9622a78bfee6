//! Debezium's change events in Avro, as its converter writes them behind Confluent's prefix.
//!
//! They are made of the same events in JSON, so that every format has the same records.

use serde::{Deserialize, Serialize};
use serde_avro_fast::Schema;
use serde_avro_fast::ser::SerializerConfig;

use crate::failure::{Context as _, Outcome};

/// The writer's schemas.
pub const KEY_SCHEMA: &str = r#"{"type": "record", "name": "Key", "namespace": "shop.public.orders",
    "fields": [{"name": "order_id", "type": "long"}]}"#;
pub const VALUE_SCHEMA: &str = include_str!("../../debezium/envelope.avsc");
/// What records name them by.
pub const KEY_ID: u32 = 1;
pub const VALUE_ID: u32 = 2;
/// Byte 0, and the schema's id.
pub const PREFIX_BYTES: usize = 5;

/// A change event, with its texts as `T`.
#[derive(Debug, Serialize, Deserialize)]
pub struct Envelope<T> {
    before: Option<Row<T>>,
    after: Option<Row<T>>,
    source: Source<T>,
    transaction: Option<Block<T>>,
    op: T,
    ts_ms: Option<i64>,
    ts_us: Option<i64>,
    ts_ns: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Row<T> {
    order_id: i64,
    customer_id: i64,
    order_number: T,
    status: T,
    currency: T,
    subtotal: Option<T>,
    tax: Option<T>,
    shipping: Option<T>,
    shipping_address: Option<T>,
    note: Option<T>,
    created_at: Option<T>,
    updated_at: Option<T>,
    is_gift: Option<bool>,
    discount: Option<T>,
    items: Option<i32>,
    warehouse: Option<T>,
    payment_reference: Option<T>,
    ip_address: Option<T>,
    locale: Option<T>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Source<T> {
    version: T,
    connector: T,
    name: T,
    ts_ms: i64,
    snapshot: Option<T>,
    db: T,
    sequence: Option<T>,
    ts_us: Option<i64>,
    ts_ns: Option<i64>,
    schema: T,
    table: T,
    #[serde(rename = "txId")]
    tx_id: Option<i64>,
    lsn: Option<i64>,
    xmin: Option<i64>,
}

#[derive(Debug, Serialize, Deserialize)]
struct Block<T> {
    id: T,
    total_order: i64,
    data_collection_order: i64,
}

#[derive(Serialize, Deserialize)]
struct Key {
    order_id: i64,
}

/// Writes keys and values in Avro that are given in JSON.
pub struct Writer {
    key: Schema,
    value: Schema,
}

impl Writer {
    /// One with the schemas above.
    pub fn new() -> Outcome<Writer> {
        let parse = |text: &str| text.parse::<Schema>().context("a schema of the benchmark's own");
        Ok(Writer { key: parse(KEY_SCHEMA)?, value: parse(VALUE_SCHEMA)? })
    }

    /// Replaces a key and a value in JSON by the same in Avro.
    pub fn rewrite(&self, key: &mut Vec<u8>, value: &mut Vec<u8>) -> Outcome<()> {
        *key = written(&serde_json::from_slice::<Key>(key)?, KEY_ID, &self.key)?;
        *value = written(&serde_json::from_slice::<Envelope<String>>(value)?, VALUE_ID, &self.value)?;
        Ok(())
    }
}

/// The prefix of a record of this schema.
pub fn prefix(id: u32) -> Vec<u8> {
    [&[0], id.to_be_bytes().as_slice()].concat()
}

fn written(record: &impl Serialize, id: u32, schema: &Schema) -> Outcome<Vec<u8>> {
    serde_avro_fast::to_datum(record, prefix(id), &mut SerializerConfig::new(schema)).context("a record in Avro")
}
