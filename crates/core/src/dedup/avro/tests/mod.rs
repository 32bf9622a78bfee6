//! Goal: the wanted places of Avro records are found and written as JSON; no schema and no bytes do harm.

use super::*;
use crate::dedup::path::Path;
use crate::dedup::steps::Found;

mod hostile;
mod properties;
mod shapes;
mod types;

const DEPTH: usize = 64;

fn schema(text: &str) -> Schema {
    Schema::parse(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}"))
}

/// The steps of `after.id`; none for an empty text.
fn steps(path: &str) -> Vec<String> {
    if path.is_empty() { Vec::new() } else { Path::parse(&format!("value.{path}")).unwrap().steps }
}

/// A plan with its buffers.
struct Reader {
    plan: Plan,
    places: Vec<usize>,
    to: Extracted,
}

impl Reader {
    fn of(schema: &Schema, paths: &[Vec<String>], depth_max: usize) -> Self {
        let (steps, places) = Steps::new(paths);
        Self { plan: Plan::new(schema, &steps, depth_max), places, to: Extracted::default() }
    }

    fn new(text: &str, paths: &[&str]) -> Self {
        let paths: Vec<_> = paths.iter().map(|path| steps(path)).collect();
        Self::of(&schema(text), &paths, DEPTH)
    }

    fn read(&mut self, bytes: &[u8]) -> Result<Vec<Option<String>>, Undecodable> {
        self.plan.read(bytes, &mut self.to)?;
        Ok(self.places.iter().map(|place| self.json(*place)).collect())
    }

    /// The JSON at a place; `None` if nothing is there.
    fn json(&self, place: usize) -> Option<String> {
        let found = self.to.found(place);
        let (from, to) = match found {
            Found::Missing => return None,
            Found::Null => return Some("null".to_owned()),
            Found::Bool(value) => return Some(value.to_string()),
            Found::Text { from, to, .. } => (from - 1, to + 1),
            Found::Number { from, to } | Found::Composite { from, to } => (from, to),
        };
        let json = std::str::from_utf8(&self.to.json()[from..to]).unwrap();
        let value: serde_json::Value = serde_json::from_str(json).unwrap_or_else(|e| panic!("{json}: {e}"));
        let fits = match found {
            Found::Text { escaped, .. } => value.is_string() && escaped == json.contains('\\'),
            Found::Number { .. } => value.is_number(),
            _ => value.is_object() || value.is_array(),
        };
        assert!(fits, "{found:?} is noted of {json}");
        Some(json.to_owned())
    }
}

/// The JSON at these paths of a record.
fn read(text: &str, bytes: &[u8], paths: &[&str]) -> Result<Vec<Option<String>>, Undecodable> {
    Reader::new(text, paths).read(bytes)
}

/// A whole record as JSON.
fn whole(text: &str, bytes: &[u8]) -> Result<String, Undecodable> {
    read(text, bytes, &[""]).map(|mut found| found.remove(0).unwrap())
}

/// A long as Avro writes it.
fn long(value: i64) -> Vec<u8> {
    let mut rest = (value.cast_unsigned() << 1) ^ (value >> 63).cast_unsigned();
    let mut out = Vec::new();
    while rest >= 0x80 {
        out.push((rest & 0x7f) as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
    out
}

/// Bytes, or a string, after their length.
fn prefixed(bytes: impl AsRef<[u8]>) -> Vec<u8> {
    [long(bytes.as_ref().len() as i64).as_slice(), bytes.as_ref()].concat()
}

/// A record with these fields.
fn record(fields: &str) -> String {
    format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#)
}
