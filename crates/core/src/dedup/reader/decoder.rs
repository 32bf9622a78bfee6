//! Whole keys and values as JSON, to show records rather than judge them.
//!
//! A document with a schema becomes the JSON that identity and version are read from; any other stays as it is.

use crate::dedup::by_schema::{BySchema, JsonLimits};
use crate::dedup::rules::Rules;
use crate::dedup::vocabulary::{Format, Reason};
use crate::record::Record;
use crate::schemas::{Language, Sources};

use super::fields;
use super::rejection::Rejection;

/// The path of the whole document.
const ROOT: &[&[String]] = &[&[]];

/// Decodes the keys and values of one record after the other, reusing its buffers.
#[derive(Debug)]
pub struct Decoder {
    /// The reader of keys; `None` if they are not read by schemas.
    key: Option<BySchema>,
    /// The reader of values, likewise.
    value: Option<BySchema>,
}

/// A key or a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decoded<'a> {
    /// Its bytes: JSON if it was read by a schema.
    pub bytes: &'a [u8],
    /// The language of the schema that it names; `None` if it names none or is not read by schemas.
    pub language: Option<Language>,
}

impl Decoder {
    /// A decoder of records with these rules, and with schemas from these sources.
    pub fn new(rules: &Rules, sources: &Sources) -> Self {
        Self::of([rules.key_format, rules.value_format], rules.limits.json_depth_max, sources)
    }

    /// A decoder of keys and values in these formats, with schemas from these sources.
    pub fn of([key, value]: [Format; 2], depth_max: usize, sources: &Sources) -> Self {
        let document = |format: Format, is_key| {
            // Wrappings around JSON without a schema are kept.
            let limits = JsonLimits { depth_max, is_wrapped: false };
            format.has_schemas().then(|| BySchema::new(format, is_key, ROOT, limits, sources.clone()))
        };
        Self { key: document(key, true), value: document(value, false) }
    }

    /// The key; `None` if there is none.
    ///
    /// # Errors
    /// It cannot be read by a schema.
    pub fn key<'a>(&'a mut self, record: &Record<'a>) -> Result<Option<Decoded<'a>>, Rejection> {
        decoded(self.key.as_mut(), record, record.key, Reason::KeyMalformed)
    }

    /// The value; `None` if it is null.
    ///
    /// # Errors
    /// It cannot be read by a schema.
    pub fn value<'a>(&'a mut self, record: &Record<'a>) -> Result<Option<Decoded<'a>>, Rejection> {
        decoded(self.value.as_mut(), record, record.value, Reason::ValueMalformed)
    }
}

fn decoded<'a>(
    document: Option<&'a mut BySchema>,
    record: &Record<'a>,
    bytes: Option<&'a [u8]>,
    reason: Reason,
) -> Result<Option<Decoded<'a>>, Rejection> {
    let Some(bytes) = bytes else { return Ok(None) };
    let Some(document) = document else { return Ok(Some(Decoded { bytes, language: None })) };
    document.read(bytes, record.headers).map_err(|error| fields::unread(reason, error, bytes))?;
    Ok(Some(Decoded { bytes: document.json(bytes), language: document.language() }))
}

#[cfg(test)]
mod tests {
    //! Goal: whole keys and values become the JSON that a reader sees, whatever their format is.

    use std::sync::Arc;

    use super::*;
    use crate::dedup::Identity;
    use crate::record::Headers;
    use crate::schemas::{Id, LookUp, Schemas, Written};

    /// Has schemas 1 and 2, in Avro, and schema 3, a JSON Schema.
    #[derive(Debug)]
    struct Known;

    impl Schemas for Known {
        fn look_up(&self, id: &Id) -> LookUp {
            let avro = r#"{"type": "record", "name": "Order", "fields": [
                {"name": "id", "type": "long"}, {"name": "lines", "type": {"type": "array", "items": "string"}}]}"#;
            match *id {
                Id::Number(1) => LookUp::Known(Arc::new(Written::alone(Language::Avro, avro))),
                Id::Number(2) => LookUp::Known(Arc::new(Written::alone(Language::Avro, r#""string""#))),
                Id::Number(3) => LookUp::Known(Arc::new(Written::alone(Language::JsonSchema, "{}"))),
                id => LookUp::Absent(format!("{id} does not exist")),
            }
        }
    }

    fn decoder(formats: [Format; 2]) -> Decoder {
        let mut rules = Rules::new(Identity { parts: Vec::new() }, None);
        [rules.key_format, rules.value_format] = formats;
        Decoder::new(&rules, &Sources { list: vec![Arc::new(Known)], ..Sources::default() })
    }

    fn record<'a>(key: Option<&'a [u8]>, value: Option<&'a [u8]>) -> Record<'a> {
        Record { topic: "in", partition: 0, offset: 0, timestamp: None, key, value, headers: Headers::default() }
    }

    const ORDER: &[u8] = &[0, 0, 0, 0, 1, 14, 4, 2, b'a', 2, b'b', 0];

    #[test]
    fn keys_and_values_with_schemas_become_json_and_have_a_language() {
        let mut decoder = decoder([Format::Auto, Format::Auto]);
        for (value, json, language) in [
            (ORDER, r#"{"id":7,"lines":["a","b"]}"#, Some(Language::Avro)),
            (&b"\0\0\0\0\x03{\"id\": 7}"[..], r#"{"id": 7}"#, Some(Language::JsonSchema)),
            (b" [1]", " [1]", None),
            (&[0, 0, 0, 0, 2, 2, b'k'], r#""k""#, Some(Language::Avro)),
        ] {
            let expected = Ok(Some(Decoded { bytes: json.as_bytes(), language }));
            assert_eq!(decoder.value(&record(None, Some(value))), expected);
            assert_eq!(decoder.key(&record(Some(value), None)), expected);
        }
        assert_eq!(decoder.key(&record(None, None)), Ok(None));
    }

    #[test]
    fn other_formats_stay_as_they_are() {
        let mut decoder = decoder([Format::Bytes, Format::ConnectJson]);
        let record = record(Some(ORDER), Some(b"{"));
        assert_eq!(decoder.key(&record), Ok(Some(Decoded { bytes: ORDER, language: None })));
        assert_eq!(decoder.value(&record), Ok(Some(Decoded { bytes: b"{", language: None })));
    }

    #[test]
    fn errors_say_what_cannot_be_read() {
        let mut decoder = decoder([Format::Bytes, Format::Avro]);
        let error = decoder.value(&record(None, Some(&ORDER[..8]))).unwrap_err();
        assert_eq!(error.reason, Reason::ValueMalformed);
        assert!(error.message.starts_with("the value is not a record of schema 1: "), "{}", error.message);
        let error = decoder.value(&record(None, Some(&[0, 0, 0, 0, 9, 1]))).unwrap_err();
        assert_eq!(error.message, "the value cannot be read: schema 9 does not exist");
    }
}
