//! The JSON Schema of a topology's YAML, for editors that complete and check it.
//!
//! Its keys, words and descriptions come from `keys.rs`, as the reader's do. It describes the shape only: what values
//! mean together is checked by `ratchet check`.

use serde_json::{Map, Value, json};

use super::keys;
use crate::yaml::keys::{Key, Mapping, Omitted, Type};

/// The schema, its keys in alphabetical order.
pub fn schema() -> Value {
    let mut top = object(&keys::TOP);
    add(&mut top, "$schema", json!("https://json-schema.org/draft/2020-12/schema"));
    add(&mut top, "title", json!("A topology of ratchet"));
    add(&mut top, "$defs", definitions());
    sorted(top)
}

/// The schema as text, as printed by `ratchet schema` and kept in the repository.
pub fn text() -> String {
    format!("{:#}\n", schema())
}

fn add(schema: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = schema {
        fields.insert(key.to_owned(), value);
    }
}

/// The same value with its fields sorted by name: their order must not depend on how the program was built.
fn sorted(value: Value) -> Value {
    match value {
        Value::Object(fields) => {
            let mut fields: Vec<_> = fields.into_iter().collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            Value::Object(fields.into_iter().map(|(key, value)| (key, sorted(value))).collect())
        }
        Value::Array(items) => Value::Array(items.into_iter().map(sorted).collect()),
        scalar => scalar,
    }
}

/// A mapping with exactly these keys.
fn object(mapping: &Mapping) -> Value {
    let property = |key: &Key| (key.name.to_owned(), described(key));
    let properties: Map<String, Value> = mapping.keys.iter().map(property).collect();
    let required = mapping.keys.iter().filter(|key| key.default == Omitted::Refused);
    let required: Vec<&str> = required.map(|key| key.name).collect();
    let mut object =
        json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false});
    for (word, choice) in [("oneOf", mapping.one_of), ("anyOf", mapping.any_of)] {
        if !choice.is_empty() {
            let choice: Vec<Value> = choice.iter().map(|key| json!({"required": [key]})).collect();
            add(&mut object, word, json!(choice));
        }
    }
    if !mapping.needs.is_empty() {
        let needs: Map<String, Value> =
            mapping.needs.iter().map(|(key, other)| ((*key).to_owned(), json!([other]))).collect();
        add(&mut object, "dependentRequired", needs.into());
    }
    object
}

/// The schema for a key's value, with its description.
fn described(key: &Key) -> Value {
    let mut schema = value(&key.takes);
    let about = without_links(key.about);
    let about = match key.name.starts_with("on_") {
        true => format!("What to do where {about}"),
        false => capitalised(&about),
    };
    let about = match key.default {
        Omitted::Is(value) => format!("{about}. Default: `{value}`."),
        Omitted::Words(words) if words.starts_with("required") => format!("{about}. {}.", capitalised(words)),
        Omitted::Words(words) => format!("{about}. Default: {words}."),
        Omitted::Refused | Omitted::Nothing => format!("{about}."),
    };
    add(&mut schema, "description", about.into());
    if let (Type::Words(_), Omitted::Is(word)) = (key.takes, key.default) {
        add(&mut schema, "default", word.into());
    }
    schema
}

fn capitalised(text: &str) -> String {
    let mut chars = text.chars();
    chars.next().map_or_else(String::new, |first| first.to_uppercase().chain(chars).collect())
}

/// Markdown with each link replaced by its text: an editor does not know what a link is relative to.
fn without_links(markdown: &str) -> String {
    let mut out = String::new();
    let mut rest = markdown;
    while let Some((before, link)) = rest.split_once('[') {
        let Some((text, (_, after))) = link.split_once("](").and_then(|(text, to)| Some((text, to.split_once(')')?)))
        else {
            break;
        };
        out.extend([before, text]);
        rest = after;
    }
    out + rest
}

fn value(takes: &Type) -> Value {
    match takes {
        Type::Text(_) => json!({"type": "string", "minLength": 1}),
        Type::Pattern(_, pattern) => text_like(pattern),
        Type::Words(words) => or_substituted(json!({"enum": words()})),
        Type::Boolean => or_substituted(json!({"type": "boolean"})),
        Type::Integer(_, min, max) => or_substituted(json!({"type": "integer", "minimum": min, "maximum": max})),
        Type::Scalar => of("scalar"),
        Type::Duration => of("duration"),
        Type::Size(_) => of("size"),
        Type::Time => json!({"anyOf": [{"type": ["string", "null"]}, {"type": "integer", "minimum": 0}]}),
        Type::Texts => {
            json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}})
        }
        Type::Numbers(_) => json!({"type": "array", "items": {"type": "integer", "minimum": 0}}),
        Type::Any(_) => json!({}),
        Type::Defined(_, name) => of(name),
        Type::List(_, of) => list(value(of)),
        Type::ListOrNone(_, of) => json!({"type": "array", "items": value(of)}),
        Type::OneOrList(_, of) => one_or_list(value(of)),
        Type::AnyOf(_, of) => json!({"anyOf": of.iter().map(value).collect::<Vec<_>>()}),
        Type::Mapping(_, of) => object(of),
    }
}

fn of(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// One value or a list of them.
fn one_or_list(item: Value) -> Value {
    json!({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})
}

fn list(item: Value) -> Value {
    json!({"type": "array", "items": item, "minItems": 1})
}

/// This schema, or `${env:NAME}` or `${file:PATH}` in its place.
fn or_substituted(schema: Value) -> Value {
    json!({"anyOf": [schema, of("substituted")]})
}

fn text_like(pattern: &str) -> Value {
    or_substituted(json!({"type": "string", "pattern": pattern}))
}

/// Definitions used in several places.
fn definitions() -> Value {
    let definitions: Map<String, Value> = [
        ("substituted", json!({"type": "string", "pattern": r"\$\{(env|file):"})),
        ("duration", text_like(r"^\s*([0-9]+\s*(ms|s|m|min|h|d|w)\s*)+$")),
        (
            "size",
            or_substituted(json!({"anyOf": [
                {"type": "integer", "minimum": 1},
                {"type": "string", "pattern": r"^\s*[0-9]+\s*([kKmM]([iI]?[bB])?|[bB])?\s*$"},
            ]})),
        ),
        ("scalar", json!({"type": ["string", "number", "boolean"]})),
        ("path", text_like(r#"^((key|value)(\..+)?|header\..+|meta\.(topic|partition|offset|timestamp))$"#)),
        ("places", json!({"anyOf": [of("path"), object(&keys::PLACES)]})),
        ("identity", one_or_list(of("part"))),
        ("part", json!({"anyOf": [of("path"), object(&keys::PART)]})),
        ("version_part", object(&keys::VERSION)),
        ("epoch_part", json!({"anyOf": [of("path"), object(&keys::EPOCH_PART)]})),
    ]
    .into_iter()
    .map(|(name, schema)| (name.to_owned(), schema))
    .collect();
    Value::Object(definitions)
}

#[cfg(test)]
mod tests;
