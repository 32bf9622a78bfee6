//! The forms in which change events are kept in files, and the keys that a capture of values lacks.

use serde_json::{Map, Value, json};

/// One record of a file.
#[derive(Clone, Debug, PartialEq)]
pub struct Raw {
    pub key: Option<Vec<u8>>,
    pub value: Option<Vec<u8>>,
}

/// The lines that are not blank.
pub fn lines(text: &[u8]) -> Vec<Vec<u8>> {
    text.split(|byte| *byte == b'\n')
        .map(<[u8]>::trim_ascii)
        .filter(|line| !line.is_empty())
        .map(<[u8]>::to_vec)
        .collect()
}

/// The records in a file: JSON documents, one a line or over several, optionally after a licence in a comment;
/// `KEY^VALUE` or `KEY:VALUE`, with a null value if nothing follows the separator. A line that is not JSON is one
/// record.
pub fn records(text: &[u8]) -> Vec<Raw> {
    let mut records = Vec::new();
    let mut rest = text.trim_ascii();
    while !rest.is_empty() {
        if let Some(comment) = rest.strip_prefix(b"/*") {
            let end = comment.windows(2).position(|pair| pair == b"*/").map_or(comment.len(), |at| at + 2);
            rest = comment[end..].trim_ascii();
            continue;
        }
        let line = rest.iter().position(|byte| *byte == b'\n').unwrap_or(rest.len());
        let (key, value, taken) = match document(rest) {
            None => (None, Some(rest[..line].to_vec()), line),
            Some(first) => match rest.get(first) {
                Some(b'^' | b':') => {
                    let after = &rest[first + 1..];
                    let blank = after.iter().take_while(|byte| matches!(byte, b' ' | b'\r')).count();
                    let is_null = after.get(blank).is_none_or(|byte| *byte == b'\n');
                    let second = if is_null { 0 } else { document(after).unwrap_or(line - first - 1) };
                    let value = (!is_null).then(|| after[..second].trim_ascii().to_vec());
                    (Some(rest[..first].to_vec()), value, first + 1 + second)
                }
                _ => (None, Some(rest[..first].to_vec()), first),
            },
        };
        records.push(Raw { key, value });
        rest = rest[taken..].trim_ascii();
    }
    records
}

/// The length of the JSON document at the start of `text`.
fn document(text: &[u8]) -> Option<usize> {
    let mut stream = serde_json::Deserializer::from_slice(text).into_iter::<Value>();
    stream.next()?.ok()?;
    Some(stream.byte_offset())
}

/// Joins documents that are keys and values in turn into records.
pub fn paired(records: Vec<Raw>) -> Vec<Raw> {
    records.chunks(2).map(|pair| Raw { key: pair[0].value.clone(), value: pair[1].value.clone() }).collect()
}

/// The key that the producer would have written, for a capture of values only.
#[derive(Clone, Debug, PartialEq)]
pub enum Keys {
    /// These columns of the row, as Debezium writes them: from `after`, or from `before` of a delete.
    Columns(Vec<String>),
    /// The document's `_id`, as Debezium for MongoDB writes it.
    MongoId,
    /// These columns of the row, with database and table, as Maxwell writes them.
    Maxwell(Vec<String>),
    /// A different one for each record: the examples of a page are not the history of one row.
    Examples,
}

impl Keys {
    pub fn parse(text: &str) -> Self {
        match text {
            "the document's _id" => Self::MongoId,
            "another for each example" => Self::Examples,
            columns => match columns.strip_prefix("Maxwell's of ") {
                Some(columns) => Self::Maxwell(names(columns)),
                None => Self::Columns(names(columns)),
            },
        }
    }

    /// The key of record number `nth`; `None` if the value has no row.
    pub fn of(&self, nth: usize, value: &[u8]) -> Option<Vec<u8>> {
        let value: Value = serde_json::from_slice(value).ok()?;
        let envelope = value.get("payload").unwrap_or(&value);
        let key = match self {
            Self::Examples => json!({"example": nth}),
            Self::MongoId => {
                let text = [&envelope["after"], &envelope["before"]].into_iter().find_map(Value::as_str)?;
                let document: Value = serde_json::from_str(text).ok()?;
                json!({"id": document["_id"].to_string()})
            }
            Self::Maxwell(columns) => {
                let row = envelope.get("data")?;
                let mut key = Map::new();
                key.insert("database".to_owned(), envelope.get("database")?.clone());
                key.insert("table".to_owned(), envelope.get("table")?.clone());
                for column in columns {
                    key.insert(format!("pk.{column}"), row.get(column)?.clone());
                }
                Value::Object(key)
            }
            Self::Columns(columns) => {
                let row = ["after", "before"].into_iter().map(|name| row(&envelope[name])).find(|row| row.is_object());
                let row = row.unwrap_or(envelope);
                let named = columns.iter().map(|column| Some((column.clone(), row.get(column)?.clone())));
                Value::Object(named.collect::<Option<Map<_, _>>>()?)
            }
        };
        Some(key.to_string().into_bytes())
    }
}

fn names(text: &str) -> Vec<String> {
    text.split(',').map(|name| name.trim().to_owned()).collect()
}

/// Unwraps Avro's JSON of a union with a record: an object named by the record's full name.
fn row(value: &Value) -> &Value {
    match value.as_object().map(|object| object.iter().collect::<Vec<_>>()).as_deref() {
        Some([(name, inner)]) if name.contains('.') && inner.is_object() => inner,
        _ => value,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(text: &str) -> Vec<(Option<String>, Option<String>)> {
        let text_of = |bytes: Option<Vec<u8>>| bytes.map(|bytes| String::from_utf8(bytes).unwrap());
        records(text.as_bytes()).into_iter().map(|raw| (text_of(raw.key), text_of(raw.value))).collect()
    }

    fn raw(key: Option<&str>, value: Option<&str>) -> (Option<String>, Option<String>) {
        (key.map(str::to_owned), value.map(str::to_owned))
    }

    #[test]
    fn every_shape_is_read() {
        assert_eq!(
            shown("/* a\n licence */\n{\"a\":1}\n{\"a\":2}\n"),
            [raw(None, Some("{\"a\":1}")), raw(None, Some("{\"a\":2}"))]
        );
        assert_eq!(
            shown("{\n \"a\":\n 1}\n{\"a\":2}"),
            [raw(None, Some("{\n \"a\":\n 1}")), raw(None, Some("{\"a\":2}"))]
        );
        assert_eq!(
            shown("{\"k\":1}^{\"v\":1}\n{\"k\":1}^\n{\"k\":2}^ {\"v\": 2}"),
            [
                raw(Some("{\"k\":1}"), Some("{\"v\":1}")),
                raw(Some("{\"k\":1}"), None),
                raw(Some("{\"k\":2}"), Some("{\"v\": 2}")),
            ]
        );
        assert_eq!(shown("\"k\":{\"v\":1}\n"), [raw(Some("\"k\""), Some("{\"v\":1}"))]);
        assert_eq!(
            shown("INSERT INTO t\nVALUES (1);\n"),
            [raw(None, Some("INSERT INTO t")), raw(None, Some("VALUES (1);"))]
        );
        assert_eq!(shown(""), []);
    }

    #[test]
    fn keys_are_those_the_producer_would_have_written() {
        let key = |keys: &str, value: &str| {
            Keys::parse(keys).of(3, value.as_bytes()).map(|key| String::from_utf8(key).unwrap())
        };
        assert_eq!(key("id", r#"{"before":null,"after":{"id":1,"x":2}}"#).as_deref(), Some(r#"{"id":1}"#));
        assert_eq!(key("id", r#"{"payload":{"before":{"id":1},"after":null}}"#).as_deref(), Some(r#"{"id":1}"#));
        assert_eq!(key("id", r#"{"after":{"s.t.Value":{"id":1}}}"#).as_deref(), Some(r#"{"id":1}"#));
        assert_eq!(key("id", r#"{"payload":{"id":1,"__op":"r"}}"#).as_deref(), Some(r#"{"id":1}"#));
        assert_eq!(key("id", r#"{"before":null,"after":null}"#), None);
        assert_eq!(key("a, b", r#"{"after":{"b":2,"a":1,"c":3}}"#).as_deref(), Some(r#"{"a":1,"b":2}"#));
        assert_eq!(key("the document's _id", r#"{"after":"{\"_id\":7}"}"#).as_deref(), Some(r#"{"id":"7"}"#));
        let maxwell = key("Maxwell's of id", r#"{"database":"d","table":"t","data":{"id":7,"x":1}}"#);
        assert_eq!(maxwell.as_deref(), Some(r#"{"database":"d","pk.id":7,"table":"t"}"#));
        assert_eq!(key("another for each example", "{}").as_deref(), Some(r#"{"example":3}"#));
    }
}
