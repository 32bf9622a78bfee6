//! The JSON Schema of a topology's YAML, for editors that complete and check it.
//!
//! Its keys and words come from the tables that the reader itself uses, so that it knows neither more nor fewer.
//! It describes the shape: what values mean together only `ratchet check` can tell.

use serde_json::{Map, Value, json};

use super::{presets, spec};
use crate::dedup::{Action, Actions, Format, MissingPart, Reads, Reason, Refresh, TimeUnit, Verdict, VersionKind};
use crate::yaml::read::Keys;

mod words;

use words::described;

/// The schema, its keys in alphabetical order.
pub fn schema() -> Value {
    let mut top = object(spec::TOP, &["name", "input", "output"], top);
    add(&mut top, "$schema", json!("https://json-schema.org/draft/2020-12/schema"));
    add(&mut top, "title", json!("A topology of ratchet"));
    add(&mut top, "anyOf", json!([{"required": ["identity"]}, {"required": ["preset"]}]));
    add(&mut top, "$defs", definitions());
    sorted(top)
}

/// The schema as text, as `ratchet schema` prints it and the repository keeps it.
pub fn text() -> String {
    format!("{:#}\n", schema())
}

fn add(schema: &mut Value, key: &str, value: Value) {
    if let Value::Object(fields) = schema {
        fields.insert(key.to_owned(), value);
    }
}

/// The same, its fields by name: their order must not depend on how the program was built.
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

/// A mapping of exactly these keys, each as `of` says.
fn object(keys: Keys<'_>, required: &[&str], of: fn(&str) -> Value) -> Value {
    let property = |key: &&str| ((*key).to_owned(), described(key, of(key)));
    let properties: Map<String, Value> = keys.known.iter().map(property).collect();
    json!({"type": "object", "properties": properties, "required": required, "additionalProperties": false})
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

/// What is read as this, or `${env:NAME}` and `${file:PATH}` in its place.
fn or_substituted(schema: Value) -> Value {
    json!({"anyOf": [schema, of("substituted")]})
}

fn text_like(pattern: &str) -> Value {
    or_substituted(json!({"type": "string", "pattern": pattern}))
}

fn words<'w>(words: impl IntoIterator<Item = &'w str>) -> Value {
    or_substituted(json!({"enum": words.into_iter().collect::<Vec<_>>()}))
}

fn action(default: Action) -> Value {
    let mut schema = words(Action::ALL.iter().map(|action| action.as_str()));
    add(&mut schema, "default", json!(default.as_str()));
    schema
}

fn top(key: &str) -> Value {
    let actions = Actions::default();
    match key {
        "name" => text_like("^[a-z0-9-]{1,60}$"),
        "preset" => {
            let pinned: Vec<String> = presets::names().collect();
            words(pinned.iter().map(String::as_str).chain(presets::ALL.iter().map(|preset| preset.name)))
        }
        "input" => input(),
        "identity" => of("identity"),
        "version" => one_or_list(of("version_part")),
        "epoch" => one_or_list(of("epoch_part")),
        "kinds" => object(spec::kinds::KINDS, &["of"], kinds),
        "retention" => or_substituted(json!({"anyOf": [{"const": "forever"}, of("duration")]})),
        "refresh" => words(Refresh::ALL.iter().map(|refresh| refresh.as_str())),
        "future_max" => of("duration"),
        "limits" => object(spec::limits::LIMITS, &[], limits),
        "output" => object(spec::OUTPUT, &["topic"], |key| match key {
            "existing" => words(super::Existing::ALL.iter().map(|existing| existing.as_str())),
            _ => json!({"type": "string", "minLength": 1}),
        }),
        "dead_letter" | "audit" => object(spec::TOPIC, &["topic"], |_| json!({"type": "string", "minLength": 1})),
        "on_invalid" => action(actions.invalid),
        "on_missing" => action(actions.missing_identity),
        "on_null_value" => {
            let mut schema = words(spec::null_choices().iter().map(|(word, _)| *word));
            add(&mut schema, "default", json!(Action::DeadLetter.as_str()));
            schema
        }
        "on_equal" => action(actions.equal_version),
        "on_missing_version" => action(actions.missing_version),
        "on_epoch_change" => action(actions.epoch_change),
        "on_late" => action(actions.late),
        "on_unsendable" => {
            words(Action::ALL.iter().filter(|action| **action != Action::Forward).map(|action| action.as_str()))
        }
        "partitioned_by_identity" => or_substituted(json!({"type": "boolean"})),
        "tests" => list(object(spec::cases::CASE, &["name", "given", "expect"], case)),
        _ => Value::Null,
    }
}

fn input() -> Value {
    let mut input = object(spec::INPUT, &[], |key| match key {
        "topics" => list(json!({"type": "string", "minLength": 1})),
        "pattern" => json!({"type": "string", "minLength": 1}),
        "exclude" => list(json!({"type": "string", "minLength": 1})),
        "key_format" | "value_format" => words(Format::ALL.iter().map(|format| format.as_str())),
        "start" => words(super::Start::ALL.iter().map(|start| start.as_str())),
        _ => Value::Null,
    });
    // What a preset leaves open is still one of the two.
    add(&mut input, "oneOf", json!([{"required": ["topics"]}, {"required": ["pattern"]}]));
    input
}

fn limits(key: &str) -> Value {
    match key {
        "json_depth" => {
            or_substituted(json!({"type": "integer", "minimum": 1, "maximum": spec::limits::JSON_DEPTH_MAX}))
        }
        _ => of("size"),
    }
}

fn kinds(key: &str) -> Value {
    match key {
        "of" => of("places"),
        "table" => one_or_list(json!({"anyOf": [of("path"), object(spec::kinds::TABLE, &[], |key| match key {
            "first_of" => list(of("path")),
            _ => of("scalar"),
        })]})),
        "reads" => words(Reads::ALL.iter().map(|reads| reads.as_str())),
        key if spec::kinds::WORDS.contains(&key) => list(of("scalar")),
        _ => Value::Null,
    }
}

fn case(key: &str) -> Value {
    match key {
        "name" => json!({"type": "string", "minLength": 1}),
        "given" => json!({"anyOf": [
            list(object(spec::cases::RECORD, &[], record)),
            object(spec::cases::GIVEN_FILE, &["file"], |key| match key {
                "file" => json!({"type": "string", "minLength": 1}),
                "envelope" => words(spec::cases::ENVELOPES.iter().copied()),
                _ => Value::Null,
            }),
        ]}),
        "expect" => {
            let verdict = || words(Verdict::ALL.iter().map(|verdict| verdict.as_str()));
            list(json!({"anyOf": [verdict(), object(spec::cases::EXPECTED, &["verdict"], |key| match key {
                "verdict" => words(Verdict::ALL.iter().map(|verdict| verdict.as_str())),
                "reason" => words(Reason::ALL.iter().map(|reason| reason.as_str())),
                _ => Value::Null,
            })]}))
        }
        "output" => json!({"type": "array", "items": {"type": "integer", "minimum": 0}}),
        "entries" => list(object(spec::cases::ENTRY, &["identity"], |_| json!({}))),
        _ => Value::Null,
    }
}

fn record(key: &str) -> Value {
    match key {
        "value" | "key" => json!({}),
        "headers" => {
            json!({"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "null"]}})
        }
        "timestamp" => json!({"anyOf": [{"type": ["string", "null"]}, {"type": "integer", "minimum": 0}]}),
        "topic" => json!({"type": "string", "minLength": 1}),
        "partition" | "offset" => json!({"type": "integer", "minimum": 0}),
        _ => Value::Null,
    }
}

/// What is used in several places.
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
        ("places", json!({"anyOf": [of("path"), object(spec::paths::PLACES, &["first_of"], |_| list(of("path")))]})),
        ("identity", one_or_list(of("part"))),
        ("part", json!({"anyOf": [of("path"), part()]})),
        ("version_part", object(spec::version::VERSION, &["of", "as"], version)),
        ("epoch_part", json!({"anyOf": [of("path"), epoch()]})),
    ]
    .into_iter()
    .map(|(name, schema)| (name.to_owned(), schema))
    .collect();
    Value::Object(definitions)
}

fn part() -> Value {
    let mut part = object(spec::identity::PART, &[], |key| match key {
        "const" => of("scalar"),
        "content" | "fingerprint" => of("path"),
        "except" => list(of("path")),
        "bucket" => of("duration"),
        "first_of" => list(of("identity")),
        "rows" => of("places"),
        "named" => json!({"anyOf": [of("path"), list(json!({"type": "string", "minLength": 1}))]}),
        _ => Value::Null,
    });
    let heads: Vec<Value> = spec::identity::HEADS.iter().map(|head| json!({"required": [head]})).collect();
    add(&mut part, "oneOf", json!(heads));
    add(&mut part, "dependentRequired", json!({"except": ["fingerprint"], "named": ["rows"], "rows": ["named"]}));
    part
}

fn version(key: &str) -> Value {
    match key {
        "of" | "at_least" => of("places"),
        "as" => words(VersionKind::ALL.iter().map(|kind| kind.as_str())),
        "none" => list(of("scalar")),
        "lenient" | "required" => or_substituted(json!({"type": "boolean"})),
        "missing" => words(MissingPart::ALL.iter().map(|missing| missing.as_str())),
        "unit" => words(TimeUnit::ALL.iter().map(|unit| unit.as_str())),
        _ => Value::Null,
    }
}

fn epoch() -> Value {
    let mut epoch = object(spec::version::EPOCH, &[], |key| match key {
        "of" => of("places"),
        "none" => list(of("scalar")),
        "const" => of("scalar"),
        _ => Value::Null,
    });
    add(&mut epoch, "oneOf", json!([{"required": ["of"]}, {"required": ["const"]}]));
    add(&mut epoch, "dependentRequired", json!({"none": ["of"]}));
    epoch
}

#[cfg(test)]
mod tests;
