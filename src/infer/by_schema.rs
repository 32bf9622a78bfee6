//! Decodes keys and values that name schemas, before they are looked at.

use crate::capture::Captured;
use crate::dedup::{Decoded, Decoder, Format, Rejection};
use crate::schemas::framing::is_framed;
use crate::schemas::{IdBytes, Language, Sources};

/// The default of the rules' limit.
const DEPTH_MAX: usize = 128;

/// Decodes one record after the other, and collects their formats.
pub struct BySchema {
    /// `None` without sources of schemas.
    decoder: Option<Decoder>,
    id_bytes: IdBytes,
    key: Seen,
    value: Seen,
}

/// The keys, or the values, of the records so far.
#[derive(Default)]
struct Seen {
    /// The languages of their schemas.
    languages: Vec<Language>,
    /// Whether some name no schema.
    has_others: bool,
    /// How many name a schema but could not be decoded, and why the first could not.
    undecoded: (usize, Option<String>),
}

impl BySchema {
    /// Decodes with the schemas of these sources.
    pub fn new(schemas: &Sources) -> Self {
        let decoder = (!schemas.list.is_empty()).then(|| Decoder::of([Format::Auto; 2], DEPTH_MAX, schemas));
        Self { decoder, id_bytes: schemas.id_bytes, key: Seen::default(), value: Seen::default() }
    }

    /// Replaces a record's key and value by JSON if they name schemas.
    pub fn decode(&mut self, captured: &mut Captured) {
        let Some(decoder) = &mut self.decoder else { return };
        let record = captured.record();
        let carries = |bytes: &[u8], is_key| is_framed(bytes, record.headers, is_key, self.id_bytes);
        let key = record.key.and_then(|key| self.key.add(carries(key, true), || decoder.key(&record)));
        let value = record.value.and_then(|value| self.value.add(carries(value, false), || decoder.value(&record)));
        if key.is_some() {
            captured.key = key;
        }
        if value.is_some() {
            captured.value = value;
        }
    }

    /// The formats of keys and of values, `None` if no key or no value was decoded; and how many values name a schema
    /// but could not be decoded, with the reason for the first.
    pub fn found(self) -> ([Option<Format>; 2], (usize, Option<String>)) {
        ([self.key.format(), self.value.format()], self.value.undecoded)
    }
}

impl Seen {
    /// Counts a key or a value. If it carries the id of a schema, decodes it and returns its JSON.
    fn add<'a>(
        &mut self,
        carries_id: bool,
        decode: impl FnOnce() -> Result<Option<Decoded<'a>>, Rejection>,
    ) -> Option<Vec<u8>> {
        if !carries_id {
            self.has_others = true;
            return None;
        }
        match decode() {
            Ok(Some(Decoded { bytes, language: Some(language) })) => {
                if !self.languages.contains(&language) {
                    self.languages.push(language);
                }
                Some(bytes.to_vec())
            }
            Ok(_) => None,
            Err(rejection) => {
                self.undecoded.0 += 1;
                self.undecoded.1.get_or_insert(rejection.message);
                None
            }
        }
    }

    fn format(&self) -> Option<Format> {
        match self.languages[..] {
            [] => None,
            [Language::Avro] if !self.has_others => Some(Format::Avro),
            [Language::Protobuf] if !self.has_others => Some(Format::Protobuf),
            [Language::JsonSchema] if !self.has_others => Some(Format::JsonSchema),
            _ => Some(Format::Auto),
        }
    }
}
