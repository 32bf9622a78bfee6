//! The JSON Schema of a YAML file, for editors that complete and check it, from the tables of its keys.
//!
//! It describes the shape only.

use serde_json::{Map, Value, json};

use super::keys::{Key, Mapping, Omitted, Type};

/// The schema of a file whose top are these keys, its own keys in alphabetical order.
pub fn document(title: &str, top: &Mapping, definitions: Map<String, Value>) -> Value {
    let mut schema = object(top);
    add(&mut schema, "$schema", json!("https://json-schema.org/draft/2020-12/schema"));
    add(&mut schema, "title", title.into());
    add(&mut schema, "$defs", definitions.into());
    sorted(schema)
}

/// The definitions that values of the common types lead to.
pub fn common() -> Map<String, Value> {
    let definitions = [
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
    ];
    definitions.into_iter().map(|(name, schema)| (name.to_owned(), schema)).collect()
}

/// Adds a key to a schema.
pub fn add(schema: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = schema {
        fields.insert(key.to_owned(), value);
    }
}

/// The same value with its fields sorted by name: their order must not depend on how the program was built.
pub fn sorted(value: Value) -> Value {
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
pub fn object(mapping: &Mapping) -> Value {
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

/// One of the schema's definitions.
pub fn of(name: &str) -> Value {
    json!({"$ref": format!("#/$defs/{name}")})
}

/// One value or a list of them.
pub fn one_or_list(item: Value) -> Value {
    json!({"anyOf": [item, {"type": "array", "items": item, "minItems": 1}]})
}

fn list(item: Value) -> Value {
    json!({"type": "array", "items": item, "minItems": 1})
}

/// This schema, or `${env:NAME}` or `${file:PATH}` in its place.
pub fn or_substituted(schema: Value) -> Value {
    json!({"anyOf": [schema, of("substituted")]})
}

/// A text matched by a regular expression.
pub fn text_like(pattern: &str) -> Value {
    or_substituted(json!({"type": "string", "pattern": pattern}))
}
