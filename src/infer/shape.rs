//! Which system records are from, recognised by their form.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::Value;

/// Instead of a connector's name: the events do not name it.
const UNNAMED: &str = "";

/// The form of a value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Shape {
    /// Debezium's envelope, from the connector of this name.
    Debezium(String),
    /// Debezium's envelope without a source.
    DebeziumWithoutSource,
    /// A schema change of a Debezium connector: DDL, in a topic that is named as the connector's prefix, or in the topic of
    /// its schema history.
    SchemaChange,
    /// Debezium's events flattened (`ExtractNewRecordState`), from the connector of this name if it is known.
    Flattened(Option<String>),
    /// Maxwell's daemon.
    Maxwell,
    /// Canal.
    Canal,
    /// Oracle GoldenGate.
    Ogg,
    /// Oracle GoldenGate's rows (`format=json_row`): columns beside the fields of the operation.
    OggRow,
    /// TiCDC.
    Ticdc,
    /// TiCDC's Simple protocol.
    TicdcSimple,
    /// AWS Database Migration Service.
    Dms,
    /// A changefeed of CockroachDB, with the option `updated`.
    Cockroach,
    /// A CloudEvent in structured mode.
    CloudEvent,
    /// Anything else.
    Plain,
}

impl Shape {
    /// The form of an unwrapped value.
    pub fn of(value: &Value) -> Self {
        let Value::Object(fields) = value else { return Self::Plain };
        let has = |names: &[&str]| names.iter().all(|name| fields.contains_key(*name));
        if let Some(Value::Object(source)) = fields.get("source")
            && (has(&["op"]) || has(&["before"]) || has(&["after"]))
        {
            return match source.get("connector").and_then(Value::as_str) {
                Some("TiCDC") => Self::Ticdc,
                _ if source.contains_key("commit_ts") && source.contains_key("cluster_id") => Self::Ticdc,
                Some(connector) => Self::Debezium(connector.to_owned()),
                None => Self::Debezium(UNNAMED.to_owned()),
            };
        }
        if has(&["op", "before", "after"]) {
            return Self::DebeziumWithoutSource;
        }
        if fields.get("source").is_some_and(Value::is_object) && has(&["databaseName", "ddl"]) {
            return Self::SchemaChange;
        }
        if fields.keys().any(|name| name.starts_with("__")) && (has(&["__op"]) || has(&["__deleted"])) {
            return Self::Flattened(flattened_connector(fields));
        }
        if has(&["version", "type", "commitTs", "buildTs"]) {
            return Self::TicdcSimple;
        }
        if has(&["_tidb"]) || has(&["commitTs", "table"]) {
            return Self::Ticdc;
        }
        if is_dms(fields) {
            return Self::Dms;
        }
        if is_cockroach(fields) {
            return Self::Cockroach;
        }
        if has(&["specversion", "id", "source", "type"]) {
            return Self::CloudEvent;
        }
        if has(&["op_type", "op_ts", "pos", "table"]) {
            // a truncate has no row in either form
            let has_images = has(&["after"]) || has(&["before"]);
            let is_truncate = fields.get("op_type").and_then(Value::as_str) == Some("T");
            return if has_images || is_truncate { Self::Ogg } else { Self::OggRow };
        }
        if is_maxwell_ddl(fields) {
            return Self::Maxwell;
        }
        if has(&["database", "table", "type", "data"]) {
            // Canal has its rows in a list, and null for DDL; Maxwell has one row in an object
            match fields.get("data") {
                Some(Value::Array(_) | Value::Null) => return Self::Canal,
                Some(Value::Object(_)) if has(&["ts"]) => return Self::Maxwell,
                _ => {}
            }
        }
        Self::Plain
    }

    /// The preset for such records, if there is one.
    pub fn preset(&self) -> Option<&'static str> {
        match self {
            Self::Debezium(connector) | Self::Flattened(Some(connector)) => debezium(connector),
            Self::Maxwell => Some("maxwell@2"),
            Self::Canal => Some("canal@1"),
            Self::Ogg => Some("ogg@2"),
            Self::Ticdc => Some("ticdc@2"),
            Self::Cockroach => Some("cockroachdb@1"),
            Self::Flattened(None)
            | Self::DebeziumWithoutSource
            | Self::SchemaChange
            | Self::Dms
            | Self::OggRow
            | Self::TicdcSimple
            | Self::CloudEvent
            | Self::Plain => None,
        }
    }
}

/// Whether this is Maxwell's DDL: its type names what was created, altered or dropped (`DDLMap`).
pub fn is_maxwell_ddl(fields: &serde_json::Map<String, Value>) -> bool {
    let kind = fields.get("type").and_then(Value::as_str).and_then(|kind| kind.split_once('-'));
    let is_ddl =
        |(of, what): (&str, &str)| matches!(of, "table" | "database") && matches!(what, "create" | "alter" | "drop");
    kind.is_some_and(is_ddl) && fields.contains_key("sql") && fields.contains_key("database")
}

/// Whether this is an event of AWS DMS: of a row, which is in `data`, or of a table, which has no `data`.
fn is_dms(fields: &serde_json::Map<String, Value>) -> bool {
    let Some(Value::Object(metadata)) = fields.get("metadata") else { return false };
    let has = |name: &str| metadata.contains_key(name);
    let is_control = metadata.get("record-type").and_then(Value::as_str) == Some("control");
    has("operation")
        && (has("record-type") || has("transaction-id") || has("table-name"))
        && (fields.contains_key("data") || is_control)
}

/// Whether this is a message of a changefeed: a row, or a resolved time, with a hybrid logical clock as a decimal of
/// nanoseconds and ten more digits.
fn is_cockroach(fields: &serde_json::Map<String, Value>) -> bool {
    let is_clock = |name: &str| {
        let text = fields.get(name).and_then(Value::as_str);
        text.and_then(|text| text.split_once('.')).is_some_and(|(nanoseconds, counter)| {
            let are_digits = nanoseconds.bytes().chain(counter.bytes()).all(|byte| byte.is_ascii_digit());
            are_digits && nanoseconds.len() >= 18 && counter.len() == 10
        })
    };
    (fields.contains_key("after") && is_clock("updated")) || (fields.len() == 1 && is_clock("resolved"))
}

/// The preset for a Debezium connector.
fn debezium(connector: &str) -> Option<&'static str> {
    Some(match connector {
        "postgresql" => "debezium-postgres@3",
        "mysql" => "debezium-mysql@2",
        "mariadb" => "debezium-mariadb@3",
        "sqlserver" => "debezium-sqlserver@2",
        "oracle" => "debezium-oracle@3",
        "mongodb" => "debezium-mongodb@1",
        "vitess" => "debezium-vitess@1",
        "db2" => "debezium-db2@2",
        "informix" => "debezium-informix@2",
        "spanner" => "debezium-spanner@1",
        _ => return None,
    })
}

/// The connector that flattened events are from: named, or recognised by positions that only it adds.
fn flattened_connector(fields: &serde_json::Map<String, Value>) -> Option<String> {
    for name in ["__connector", "__source_connector"] {
        if let Some(connector) = fields.get(name).and_then(Value::as_str) {
            return Some(connector.to_owned());
        }
    }
    let has = |names: &[&str]| {
        names
            .iter()
            .any(|name| fields.contains_key(&format!("__{name}")) || fields.contains_key(&format!("__source_{name}")))
    };
    let connector = if has(&["change_lsn", "event_serial_no"]) {
        "sqlserver"
    } else if has(&["lsn"]) {
        "postgresql"
    } else if has(&["file", "gtid"]) {
        "mysql"
    } else if has(&["scn", "commit_scn"]) {
        "oracle"
    } else if has(&["ord"]) {
        "mongodb"
    } else {
        return None;
    };
    Some(connector.to_owned())
}

impl fmt::Display for Shape {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Debezium(connector) if connector == UNNAMED => {
                f.write_str("change events of Debezium that do not name their connector")
            }
            Self::Debezium(connector) => write!(f, "change events of Debezium's connector `{connector}`"),
            Self::DebeziumWithoutSource => f.write_str("change events in Debezium's form, without `source`"),
            Self::SchemaChange => f.write_str("schema changes of Debezium"),
            Self::Flattened(Some(connector)) => {
                write!(f, "flattened change events of Debezium's connector `{connector}`")
            }
            Self::Flattened(None) => f.write_str("flattened change events of Debezium"),
            Self::Maxwell => f.write_str("change events of Maxwell"),
            Self::Canal => f.write_str("change events of Canal"),
            Self::Ogg => f.write_str("change events of Oracle GoldenGate"),
            Self::OggRow => f.write_str("rows of Oracle GoldenGate (`format=json_row`)"),
            Self::Ticdc => f.write_str("change events of TiCDC"),
            Self::TicdcSimple => f.write_str("messages of TiCDC's Simple protocol"),
            Self::Dms => f.write_str("change events of AWS DMS"),
            Self::Cockroach => f.write_str("messages of a CockroachDB changefeed"),
            Self::CloudEvent => f.write_str("CloudEvents"),
            Self::Plain => f.write_str("records of no form that is known"),
        }
    }
}

/// How many values have each shape, the most frequent first; of equals, the more specific first.
pub fn shapes<'a>(values: impl Iterator<Item = &'a Value>) -> Vec<(Shape, usize)> {
    let mut counts: BTreeMap<Shape, usize> = BTreeMap::new();
    for value in values {
        *counts.entry(Shape::of(value)).or_default() += 1;
    }
    let mut shapes: Vec<_> = counts.into_iter().collect();
    shapes.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    join_unnamed(&mut shapes);
    shapes
}

/// If some events do not name their connector and all others name the same one, counts them as that one's.
fn join_unnamed(shapes: &mut Vec<(Shape, usize)>) {
    let unnamed = shapes.iter().position(|(shape, _)| *shape == Shape::Debezium(UNNAMED.to_owned()));
    let is_named = |(shape, _): &(Shape, usize)| matches!(shape, Shape::Debezium(connector) if connector != UNNAMED);
    if let Some(unnamed) = unnamed
        && shapes.iter().filter(|shape| is_named(shape)).count() == 1
    {
        let (_, count) = shapes.remove(unnamed);
        if let Some(named) = shapes.iter_mut().find(|shape| is_named(shape)) {
            named.1 += count;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shape(text: &str) -> Shape {
        Shape::of(&serde_json::from_str(text).unwrap())
    }

    #[test]
    fn each_system_is_recognised_by_its_form() {
        let debezium = |connector: &str| Shape::Debezium(connector.to_owned());
        let flattened = |connector: &str| Shape::Flattened(Some(connector.to_owned()));
        for (text, expected) in [
            (
                r#"{"before":null,"after":{"id":1},"source":{"connector":"postgresql","lsn":5},"op":"c"}"#,
                debezium("postgresql"),
            ),
            (r#"{"after":{"id":1},"source":{"name":"x"},"op":"c"}"#, debezium(UNNAMED)),
            (r#"{"after":{"id":1},"source":{"connector":"TiCDC","commit_ts":5},"op":"c"}"#, Shape::Ticdc),
            (r#"{"before":null,"after":{"id":1},"op":"c"}"#, Shape::DebeziumWithoutSource),
            (
                r#"{"source":{"connector":"mysql","file":"b.1","pos":4},"ts_ms":1,"databaseName":"d","schemaName":null,"ddl":"CREATE TABLE t (id INT)","tableChanges":[]}"#,
                Shape::SchemaChange,
            ),
            (r#"{"source":"a","databaseName":"d","ddl":"x"}"#, Shape::Plain),
            (r#"{"id":1,"__op":"u","__lsn":7,"__deleted":"false"}"#, flattened("postgresql")),
            (r#"{"id":1,"__op":"u","__source_file":"bin.1","__source_pos":7}"#, flattened("mysql")),
            (r#"{"id":1,"__op":"u","__table":"t"}"#, Shape::Flattened(None)),
            (r#"{"database":"d","table":"t","type":"insert","ts":1,"xid":2,"data":{"id":1}}"#, Shape::Maxwell),
            (
                r#"{"data":[{"id":"1"}],"database":"d","table":"t","type":"INSERT","isDdl":false,"es":1,"ts":2,"id":3}"#,
                Shape::Canal,
            ),
            (r#"{"data":null,"database":"d","table":"t","type":"CREATE"}"#, Shape::Canal),
            (
                r#"{"data":[],"database":"d","table":"t","type":"INSERT","isDdl":false,"_tidb":{"commitTs":5}}"#,
                Shape::Ticdc,
            ),
            (r#"{"table":"O.T","op_type":"I","op_ts":"2020","pos":"001","after":{}}"#, Shape::Ogg),
            (r#"{"table":"O.T","op_type":"T","op_ts":"2020","pos":"001"}"#, Shape::Ogg),
            (r#"{"table":"O.T","op_type":"D","op_ts":"2020","current_ts":"x","pos":"001","ID":1}"#, Shape::OggRow),
            (r#"{"version":1,"type":"WATERMARK","commitTs":5,"buildTs":6}"#, Shape::TicdcSimple),
            (
                r#"{"version":1,"database":"d","table":"t","type":"DELETE","commitTs":5,"buildTs":6,"old":{}}"#,
                Shape::TicdcSimple,
            ),
            (
                r#"{"type":"database-create","database":"d","charset":"utf8","ts":1,"sql":"create database d"}"#,
                Shape::Maxwell,
            ),
            (r#"{"type":"table-top","database":"d","sql":"x"}"#, Shape::Plain),
            (
                r#"{"data":{"id":1},"metadata":{"record-type":"data","operation":"insert","transaction-id":7}}"#,
                Shape::Dms,
            ),
            (r#"{"metadata":{"record-type":"control","operation":"create-table","table-name":"t"}}"#, Shape::Dms),
            (r#"{"data":{"id":1},"metadata":{"operation":"insert"}}"#, Shape::Plain),
            (r#"{"specversion":"1.0","id":"1","source":"/a","type":"t","data":{}}"#, Shape::CloudEvent),
            (r#"{"after":null,"updated":"1700000000000000000.0000000000"}"#, Shape::Cockroach),
            (r#"{"resolved":"1700000000000000000.0000000000"}"#, Shape::Cockroach),
            (r#"{"after":{},"updated":"2020-01-01"}"#, Shape::Plain),
            (r#"{"order_id":7,"operation":"charge","version":1}"#, Shape::Plain),
            ("7", Shape::Plain),
        ] {
            assert_eq!(shape(text), expected, "{text}");
        }
    }

    #[test]
    fn most_frequent_shape_comes_first() {
        let values: Vec<Value> = ["{}", r#"{"op":"c","source":{"connector":"mysql"}}"#, "{\"a\":1}"]
            .iter()
            .map(|text| serde_json::from_str(text).unwrap())
            .collect();
        let counted = shapes(values.iter());
        assert_eq!(counted, [(Shape::Plain, 2), (Shape::Debezium("mysql".to_owned()), 1)]);
    }

    #[test]
    fn events_without_a_connector_count_as_the_only_named_ones() {
        let named = serde_json::json!({"op": "c", "source": {"connector": "oracle"}});
        let unnamed = serde_json::json!({"op": "c", "source": {"scn": "5"}});
        let oracle = Shape::Debezium("oracle".to_owned());
        assert_eq!(shapes([&unnamed, &unnamed, &named].into_iter()), [(oracle, 3)]);
        assert_eq!(shapes([&unnamed].into_iter()), [(Shape::Debezium(UNNAMED.to_owned()), 1)]);
    }
}
