//! Keys and values that were written by schemas: decoded before they are looked at.

use crate::capture::Captured;
use crate::dedup::{Decoded, Decoder, Format, Rejection};
use crate::schemas::framing::is_framed;
use crate::schemas::{IdBytes, Language, Sources};

/// As the rules' default limits have it.
const DEPTH_MAX: usize = 128;

/// Decodes one record after the other, and notes what they were.
pub struct BySchema {
    /// `None` where there are no schemas.
    decoder: Option<Decoder>,
    id_bytes: IdBytes,
    key: Seen,
    value: Seen,
}

/// What keys, or values, were.
#[derive(Default)]
struct Seen {
    /// The languages of schemas.
    languages: Vec<Language>,
    /// Whether there were others.
    has_others: bool,
    /// How many name a schema and could not be read by it, and why the first could not.
    undecoded: (usize, Option<String>),
}

impl BySchema {
    /// With the schemas of these sources.
    pub fn new(schemas: &Sources) -> Self {
        let decoder = (!schemas.list.is_empty()).then(|| Decoder::of([Format::Auto; 2], DEPTH_MAX, schemas));
        Self { decoder, id_bytes: schemas.id_bytes, key: Seen::default(), value: Seen::default() }
    }

    /// Makes a record's key and value JSON if they name schemas.
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

    /// The formats of keys and of values, `None` where none was read by a schema; and how many values name a schema and
    /// could not be read by it, with the reason of the first.
    pub fn found(self) -> ([Option<Format>; 2], (usize, Option<String>)) {
        ([self.key.format(), self.value.format()], self.value.undecoded)
    }
}

impl Seen {
    /// Notes a key or a value, decodes it if it carries an id, and returns what it says.
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
