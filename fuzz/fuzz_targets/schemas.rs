//! Any bytes behind the id of any schema: nothing panics or runs on; a whole value is JSON; and what a topology reads by the
//! schema is what it reads of that JSON.
//!
//! The input is a byte for the language, a schema's text, a byte that UTF-8 does not have (0xFF), and what comes after the
//! id in a record's value.
#![no_main]

use std::sync::{Arc, LazyLock};

use libfuzzer_sys::fuzz_target;
use ratchet_fuzz::dedup::{Decoder, Format, Model, Rules};
use ratchet_fuzz::schemas::{Id, Language, LookUp, Schemas, Sources, Written};
use ratchet_fuzz::world::{load, record};
use serde::de::IgnoredAny;

/// How deep the values of both formats may be.
const DEPTH_MAX: usize = 64;

/// A source whose every id is the same schema.
#[derive(Debug)]
struct One(Arc<Written>);

impl Schemas for One {
    fn look_up(&self, _id: &Id) -> LookUp {
        LookUp::Known(Arc::clone(&self.0))
    }
}

/// Rules that read values in this format.
fn rules(format: &str) -> Arc<Rules> {
    let text = format!(
        "name: t\ninput: {{topics: [t], value_format: {format}}}\noutput: {{topic: o}}\npartitioned_by_identity: true\n\
         identity: [{{first_of: [value.id, value.a.id, value.a.b, {{fingerprint: value, except: [value.version]}}]}}]\n\
         version: {{of: value.version, as: decimal}}\n"
    );
    load(text.as_bytes()).unwrap_or_else(|mistakes| panic!("{text}: {mistakes}")).topology.rules
}

static OF_JSON: LazyLock<Arc<Rules>> = LazyLock::new(|| rules("json"));
static BY_SCHEMA: LazyLock<[(Language, Format, Arc<Rules>); 3]> = LazyLock::new(|| {
    [
        (Language::Avro, Format::Avro, rules("avro")),
        (Language::Protobuf, Format::Protobuf, rules("protobuf")),
        (Language::JsonSchema, Format::JsonSchema, rules("json_schema")),
    ]
});

fuzz_target!(|input: &[u8]| {
    let Some((kind, rest)) = input.split_first() else { return };
    let Some(end) = rest.iter().position(|byte| *byte == 0xff) else { return };
    let Ok(text) = std::str::from_utf8(&rest[..end]) else { return };
    let (language, format, rules) = &BY_SCHEMA[usize::from(*kind) % BY_SCHEMA.len()];
    let source = One(Arc::new(Written::alone(*language, text)));
    let sources = Sources { list: vec![Arc::new(source)], ..Sources::default() };
    let value = [&[0, 0, 0, 0, 1][..], &rest[end + 1..]].concat();

    let mut by_schema = Model::with_schemas(Arc::clone(rules), &sources);
    let read = by_schema.judge(&record(0, None, Some(&value)), 0);
    let mut decoder = Decoder::of([Format::Bytes, *format], DEPTH_MAX, &sources);
    let whole = record(0, None, Some(&value));
    let Ok(Some(decoded)) = decoder.value(&whole) else { return };
    // JSON behind the id of its schema is left as it is, whatever it is.
    if *language != Language::JsonSchema {
        serde_json::from_slice::<IgnoredAny>(decoded.bytes).unwrap_or_else(|error| panic!("{error}"));
    }

    let mut of_json = Model::new(Arc::clone(&OF_JSON));
    let expected = of_json.judge(&record(0, None, Some(decoded.bytes)), 0);
    assert_eq!(read.reason, expected.reason, "{:?}", String::from_utf8_lossy(decoded.bytes));
    assert_eq!(by_schema.identity(), of_json.identity());
    assert_eq!(by_schema.version(), of_json.version());
});
