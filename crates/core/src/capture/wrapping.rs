//! What Kafka Connect's and Avro's JSON wrap around a value.

use serde_json::Value;

/// The types that Avro's JSON wraps around a union's value.
const AVRO_TYPES: [&str; 8] = ["string", "long", "int", "double", "float", "boolean", "bytes", "array"];

/// Removes what Kafka Connect's and Avro's JSON wrap around a value; returns whether there was a wrapper.
pub fn unwrap(tree: &mut Value, is_document: bool) -> bool {
    let Value::Object(object) = tree else { return false };
    let wrapper = match object.len() {
        2 if is_document && (object.contains_key("schema") || is_beside_number(object)) => Some("payload".to_owned()),
        1 => object.keys().next().filter(|name| AVRO_TYPES.contains(&name.as_str()) || is_avro_record(name)).cloned(),
        _ => None,
    };
    let inner = wrapper.and_then(|name| object.remove(&name));
    match inner {
        Some(mut inner) => {
            unwrap(&mut inner, false);
            *tree = inner;
            true
        }
        None => object.values_mut().fold(false, |was, inner| unwrap(inner, false) | was),
    }
}

/// Whether this is a payload beside the number of its schema, as Apicurio Registry's `ExtJsonConverter` writes it.
fn is_beside_number(object: &serde_json::Map<String, Value>) -> bool {
    object.get("schemaId").is_some_and(|id| id.is_number() || id.is_string())
        && object.get("payload").is_some_and(Value::is_object)
}

/// Whether this is the full name of a record type, as in `server1.dbo.customers.Value`.
fn is_avro_record(name: &str) -> bool {
    name.ends_with(".Value") || name.ends_with(".Key")
}
