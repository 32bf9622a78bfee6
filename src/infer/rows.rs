//! A substitute for the identity of change events if a preset finds none in the capture: columns of the row
//! that look like its primary key.

use std::collections::{BTreeMap, HashMap};

use serde_json::{Map, Value};

use super::draft::in_yaml;
use super::names;
use super::sample::Sample;
use super::shape::Shape;

/// Maximum number of columns of a guessed primary key.
const COLUMNS_MAX: usize = 4;

/// An identity as YAML, and the reason for it.
pub struct StandIn {
    /// The identity.
    pub identity: String,
    /// The reason, as a comment.
    pub why: &'static str,
}

const NO_KEYS: &str = "Keys were not captured, and the preset identifies rows by them. So that this capture can be \
                       replayed, columns of the row replace missing keys. Leave this out if the topic has keys.";
const NULL_KEYS: &str = "Most records have no key, by which the preset identifies rows: columns of the row replace \
                         missing keys.";
const NO_NAMES: &str = "These events do not name their primary key, by which the preset identifies rows. Columns that \
                        look like one are named instead.";

/// The substitute; `None` if no column looks like a key.
pub fn stand_in(shape: &Shape, sample: &Sample) -> Option<StandIn> {
    let no_keys = if sample.form.is_whole() { NULL_KEYS } else { NO_KEYS };
    let names_columns = |value: &Value| value.get("primary_key_columns").is_some_and(Value::is_array);
    if *shape == Shape::Maxwell && sample.values().all(|(_, value)| names_columns(value)) {
        let rows = "[value.database, value.table, {rows: value.data, named: value.primary_key_columns}]";
        return Some(StandIn { identity: format!("{{first_of: [{{content: key}}, {rows}]}}"), why: no_keys });
    }
    let columns = columns(shape, sample)?;
    let named: Vec<String> = columns.iter().map(|column| Value::from(column.as_str()).to_string()).collect();
    let named = named.join(", ");
    let identity = match shape {
        Shape::Canal => {
            return Some(StandIn {
                identity: format!("[value.database, value.table, {{rows: value.data, named: [{named}]}}]"),
                why: NO_NAMES,
            });
        }
        Shape::Ogg => {
            return Some(StandIn {
                identity: format!(
                    "[value.table, {{rows: {{first_of: [value.after, value.before]}}, named: [{named}]}}]"
                ),
                why: NO_NAMES,
            });
        }
        Shape::Debezium(_) => by_paths(&columns, &["after", "before"], &["source.schema", "source.table"], sample),
        Shape::CloudEvent => {
            by_paths(&columns, &["data.after", "data.before"], &["iodebeziumschema", "iodebeziumtable"], sample)
        }
        Shape::Flattened(_) => by_paths(&columns, &[], &["__schema", "__table"], sample),
        Shape::Dms => by_paths(&columns, &["data"], &[], sample),
        Shape::Cockroach => by_paths(&columns, &["after"], &[], sample),
        Shape::Maxwell => by_paths(&columns, &["data"], &["database", "table"], sample),
        _ => return None,
    };
    Some(StandIn { identity, why: no_keys })
}

/// The key, or else the columns in the first place that has them; with the table if there are several tables.
fn by_paths(columns: &[String], places: &[&str], tables: &[&str], sample: &Sample) -> String {
    let pointer = |path: &str| format!("/{}", path.replace('.', "/"));
    let is_several = |path: &&&str| {
        let pointer = pointer(path);
        let mut values = sample.values().filter_map(|(_, value)| value.pointer(&pointer));
        values.next().is_some_and(|first| values.any(|other| other != first))
    };
    let tables: Vec<String> = tables.iter().filter(is_several).map(|path| format!("value.{path}")).collect();
    let whole_value = [""];
    let places = if places.is_empty() { &whole_value[..] } else { places };
    let alternatives = places.iter().map(|place| {
        let path = |column: &String| {
            let steps = place.split('.').chain([column.as_str()]).filter(|step| !step.is_empty()).map(str::to_owned);
            let steps = steps.collect();
            in_yaml(&crate::dedup::Path { source: crate::dedup::Source::Value, steps }.to_string())
        };
        let parts: Vec<String> = tables.iter().cloned().chain(columns.iter().map(path)).collect();
        if parts.len() == 1 { parts.concat() } else { format!("[{}]", parts.join(", ")) }
    });
    format!("{{first_of: [{{content: key}}, {}]}}", alternatives.collect::<Vec<_>>().join(", "))
}

/// The columns whose names look like a primary key, the likeliest first: as few as distinguish all inserted rows.
pub fn columns(shape: &Shape, sample: &Sample) -> Option<Vec<String>> {
    let rows: Vec<(&Map<String, Value>, bool)> = sample.values().flat_map(|(_, value)| rows(shape, value)).collect();
    let mut present: BTreeMap<&String, usize> = BTreeMap::new();
    for (name, value) in rows.iter().flat_map(|(row, _)| row.iter()) {
        *present.entry(name).or_default() += usize::from(value.is_string() || value.is_i64() || value.is_u64());
    }
    let distinct = |name: &String| {
        let mut values: Vec<String> = rows.iter().filter_map(|(row, _)| Some(row.get(name)?.to_string())).collect();
        values.sort_unstable();
        values.dedup();
        values.len()
    };
    let mut likely: Vec<(u32, usize, &String)> = present
        .into_iter()
        .filter(|(name, present)| {
            *present * 10 >= rows.len() * 9 && !name.starts_with("__") && names::identity_score(name) > 0
        })
        .map(|(name, _)| (names::identity_score(name), distinct(name), name))
        .collect();
    likely.sort_by_key(|(score, distinct, _)| std::cmp::Reverse((*score, *distinct)));
    let likely: Vec<String> = likely.into_iter().map(|(_, _, name)| name.clone()).take(COLUMNS_MAX).collect();
    let inserted: Vec<&Map<String, Value>> =
        rows.iter().filter(|(_, is_inserted)| *is_inserted).map(|(row, _)| *row).collect();
    let enough = (1..=likely.len()).find(|&count| !collide(&inserted, &likely[..count]));
    (!likely.is_empty()).then(|| likely[..enough.unwrap_or(1)].to_vec())
}

/// The rows in a change event, and whether they are inserted.
fn rows<'v>(shape: &Shape, value: &'v Value) -> Vec<(&'v Map<String, Value>, bool)> {
    let word = |name: &str| value.get(name).and_then(Value::as_str).unwrap_or_default();
    let object = |name: &str| value.get(name).and_then(Value::as_object);
    match shape {
        Shape::Canal => {
            let rows = value.get("data").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_object);
            rows.map(|row| (row, word("type") == "INSERT")).collect()
        }
        Shape::Dms => {
            let operation = value.pointer("/metadata/operation").and_then(Value::as_str);
            object("data").into_iter().map(|row| (row, matches!(operation, Some("insert" | "load")))).collect()
        }
        Shape::Maxwell => object("data").into_iter().map(|row| (row, word("type") == "insert")).collect(),
        Shape::TicdcSimple => {
            let row = object("data").or(object("old"));
            row.into_iter().map(|row| (row, word("type") == "INSERT")).collect()
        }
        Shape::OggRow => value.as_object().into_iter().map(|row| (row, word("op_type") == "I")).collect(),
        Shape::Flattened(_) => {
            value.as_object().into_iter().map(|row| (row, matches!(word("__op"), "c" | "r"))).collect()
        }
        Shape::CloudEvent => {
            let row = |name: &str| value.get("data").and_then(|data| data.get(name)).and_then(Value::as_object);
            let is_inserted = matches!(word("iodebeziumop"), "c" | "r");
            row("after").or(row("before")).into_iter().map(|row| (row, is_inserted)).collect()
        }
        _ => {
            let is_inserted = matches!(word("op"), "c" | "r") || word("op_type") == "I";
            object("after").or(object("before")).into_iter().map(|row| (row, is_inserted)).collect()
        }
    }
}

/// Whether two different rows have the same values in these columns.
fn collide(rows: &[&Map<String, Value>], columns: &[String]) -> bool {
    let mut seen: HashMap<String, &Map<String, Value>> = HashMap::new();
    rows.iter().any(|row| {
        let key: Vec<String> =
            columns.iter().map(|column| row.get(column).map_or_else(String::new, Value::to_string)).collect();
        let first = seen.entry(key.join(",")).or_insert(row);
        **first != **row
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::capture::Captured;

    fn identity(values: &[&str]) -> Option<String> {
        let mut sample = Sample::default();
        for value in values {
            let mut captured = Captured::default();
            captured.read_value(value.as_bytes());
            sample.add(captured);
        }
        let shape = Shape::of(sample.values().next().unwrap().1);
        stand_in(&shape, &sample).map(|stand_in| stand_in.identity)
    }

    #[test]
    fn row_is_read_from_after_or_before() {
        let create =
            r#"{"before":null,"after":{"id":1,"name":"a"},"source":{"connector":"mysql","table":"t"},"op":"c"}"#;
        let delete =
            r#"{"before":{"id":1,"name":"a"},"after":null,"source":{"connector":"mysql","table":"t"},"op":"d"}"#;
        let expected = "{first_of: [{content: key}, value.after.id, value.before.id]}";
        assert_eq!(identity(&[create, delete]).as_deref(), Some(expected));
    }

    #[test]
    fn rows_with_the_same_id_need_more_columns_or_the_table() {
        let row = |table: &str, order: u32, line: u32, what: &str| {
            format!(
                r#"{{"after":{{"order_id":{order},"line_no":{line},"what":"{what}"}},"source":{{"connector":"mysql","table":"{table}"}},"op":"c"}}"#
            )
        };
        let rows = [row("t", 1, 1, "a"), row("t", 1, 2, "b"), row("t", 2, 1, "c"), row("t", 3, 1, "c")];
        let of = |rows: &[String]| identity(&rows.iter().map(String::as_str).collect::<Vec<_>>()).unwrap();
        assert!(of(&rows).contains("[value.after.order_id, value.after.line_no]"), "{}", of(&rows));
        let rows = [row("t", 1, 1, "a"), row("u", 2, 1, "b")];
        assert!(of(&rows).contains("[value.source.table, value.after.order_id]"), "{}", of(&rows));
    }

    #[test]
    fn named_primary_key_columns_are_used() {
        let named = r#"{"database":"d","table":"t","type":"insert","ts":1,"data":{"k":1},"primary_key_columns":["k"]}"#;
        assert!(identity(&[named]).unwrap().contains("named: value.primary_key_columns"));
        let unnamed = r#"{"database":"d","table":"t","type":"INSERT","data":[{"id":"1","x":"y"}]}"#;
        assert_eq!(
            identity(&[unnamed]).as_deref(),
            Some(r#"[value.database, value.table, {rows: value.data, named: ["id"]}]"#)
        );
        assert_eq!(identity(&[&unnamed.replace("\"id\"", "\"weight\"")]), None);
    }
}
