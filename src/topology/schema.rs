//! The JSON Schema of a topology's YAML, for editors that complete and check it.
//!
//! Its keys, words and descriptions come from `keys.rs`, as the reader's do. It describes the shape only: what values
//! mean together is checked by `ratchet check`.

use serde_json::{Map, Value, json};

use super::keys;
use crate::yaml::schema::{add, common, document, object, of, one_or_list, sorted, text_like};

/// The schema, its keys in alphabetical order.
pub fn schema() -> Value {
    let mut schema = document("A topology of ratchet", &keys::TOP, definitions());
    // Only a preset's kinds can be completed.
    add(&mut schema, "if", json!({"not": {"required": ["preset"]}}));
    add(&mut schema, "then", json!({"properties": {"kinds": {"required": ["of"]}}}));
    sorted(schema)
}

/// The schema as text, as printed by `ratchet schema` and kept in the repository.
pub fn text() -> String {
    format!("{:#}\n", schema())
}

/// Definitions used in several places.
fn definitions() -> Map<String, Value> {
    let own = [
        ("path", text_like(r#"^((key|value)(\..+)?|header\..+|meta\.(topic|partition|offset|timestamp))$"#)),
        ("places", json!({"anyOf": [of("path"), object(&keys::PLACES)]})),
        ("identity", one_or_list(of("part"))),
        ("part", json!({"anyOf": [of("path"), object(&keys::PART)]})),
        ("contents", one_or_list(of("contents_part"))),
        ("contents_part", json!({"anyOf": [of("path"), object(&keys::CONTENTS_PART)]})),
        ("version_part", object(&keys::VERSION)),
        ("epoch_part", json!({"anyOf": [of("path"), object(&keys::EPOCH_PART)]})),
    ];
    let own = own.into_iter().map(|(name, schema)| (name.to_owned(), schema));
    common().into_iter().chain(own).collect()
}

#[cfg(test)]
mod tests;
