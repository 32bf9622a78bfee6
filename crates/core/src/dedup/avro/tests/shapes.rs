//! Goal: the shape of each wanted place is that of the same record in JSON with a Connect schema.

use super::*;
use crate::dedup::logical::{Logical, Unit, row};

/// Debezium's envelope, as Confluent's converter writes its schema, with one column of each kind.
const ENVELOPE: &str = r#"{"type":"record","name":"Envelope","namespace":"s.public.t","fields":[
    {"name":"before","type":["null",{"type":"record","name":"Value","fields":[
        {"name":"id","type":"int"},
        {"name":"name","type":["null","string"]},
        {"name":"day","type":["null",{"type":"int","connect.version":1,"connect.name":"io.debezium.time.Date"}]},
        {"name":"at","type":{"type":"long","connect.version":1,"connect.name":"io.debezium.time.MicroTimestamp"}},
        {"name":"price","type":{"type":"bytes","scale":2,"precision":10,"connect.version":1,
            "connect.parameters":{"scale":"2","connect.decimal.precision":"10"},
            "connect.name":"org.apache.kafka.connect.data.Decimal","logicalType":"decimal"}},
        {"name":"any","type":["null",{"type":"record","name":"VariableScaleDecimal","namespace":"io.debezium.data",
            "fields":[{"name":"scale","type":"int"},{"name":"value","type":"bytes"}],
            "connect.version":1,"connect.name":"io.debezium.data.VariableScaleDecimal"}]},
        {"name":"flags","type":{"type":"bytes",
            "connect.parameters":{"length":"3"},"connect.name":"io.debezium.data.Bits"}},
        {"name":"raw","type":"bytes"},
        {"name":"words","type":{"type":"array","items":["null","string"]}},
        {"name":"times","type":{"type":"array","items":{"type":"int",
            "connect.name":"org.apache.kafka.connect.data.Time","logicalType":"time-millis"}}}]}]},
    {"name":"after","type":["null","Value"]},
    {"name":"op","type":"string"},
    {"name":"ts","type":{"type":"long","logicalType":"timestamp-millis"}},
    {"name":"local","type":{"type":"map","values":{"type":"long","logicalType":"local-timestamp-nanos"}}}]}"#;

fn shape(text: &str, paths: &[&str]) -> (Plan, Vec<Vec<String>>) {
    let paths: Vec<_> = paths.iter().map(|path| steps(path)).collect();
    let (steps, _) = Steps::new(&paths);
    (Plan::new(&schema(text), &steps, DEPTH), paths)
}

#[test]
fn shapes_are_those_of_connects_and_avros_logical_types() {
    for (path, expected) in [
        ("after.id", None),
        ("after.name", None),
        ("after.day", Some(Logical::Date)),
        ("after.at", Some(Logical::Timestamp(Unit::Micro, false))),
        ("after.price", None),
        ("after.any", Some(Logical::VariableDecimal)),
        ("after.flags", Some(Logical::Bits(3))),
        ("after.raw", None),
        ("after.times.1", Some(Logical::Time(Unit::Milli))),
        ("ts", Some(Logical::Timestamp(Unit::Milli, true))),
        ("local.x", Some(Logical::Timestamp(Unit::Nano, false))),
        ("no.such", None),
    ] {
        let expected = expected.map_or(Shape::Plain, Shape::Logical);
        for others in [&[][..], &["before"], &["after"], &["after.times", "after.day", "local"], &[""]] {
            let paths = [&[path][..], others].concat();
            let (plan, paths) = shape(ENVELOPE, &paths);
            assert_eq!(*plan.shape().at(&paths[0]), expected, "{path} beside {others:?}");
        }
    }
}

#[test]
fn rows_are_written_with_their_values_decoded() {
    let value = [
        long(1),
        [long(1), prefixed("x")].concat(),
        [long(1), long(19_723)].concat(),
        long(1_704_067_200_000_001),
        prefixed([0x04, 0xd2]),
        [long(1), long(1), prefixed([7])].concat(),
        prefixed([5]),
        prefixed("raw"),
        [long(1), long(1), prefixed("w"), long(0)].concat(),
        [long(1), long(1_000), long(0)].concat(),
    ]
    .concat();
    let bytes = [long(0), long(1), value, prefixed("c"), long(5), long(0)].concat();
    let mut reader = Reader::new(ENVELOPE, &["after"]);
    let json = reader.read(&bytes).unwrap().remove(0).unwrap();
    let after = &steps("after");
    let shape = reader.plan.shape().at(after);
    assert_eq!(shape.texts(), Some(r#"["name","words"]"#));
    let mut out = Vec::new();
    row::write(json.as_bytes(), shape, &mut out).unwrap();
    let expected = concat!(
        r#"{"id":1,"name":"x","day":"2024-01-01","at":"2024-01-01T00:00:00.000001","price":12.34,"any":0.7,"#,
        r#""flags":"101","raw":"cmF3","words":["w"],"times":["00:00:01"]}"#
    );
    assert_eq!(String::from_utf8(out).unwrap(), expected);
}

#[test]
fn names_of_connect_do_not_count_where_their_type_is_another() {
    for of in [
        r#"{"type":"string","connect.name":"io.debezium.time.Date"}"#,
        r#"{"type":"string","connect.name":"io.debezium.data.Bits","connect.parameters":{"length":"3"}}"#,
        r#"{"type":"bytes","connect.name":"io.debezium.data.Bits"}"#,
        r#"{"type":"bytes","connect.name":"io.debezium.data.VariableScaleDecimal"}"#,
        r#"{"type":"record","name":"V","fields":[],"connect.name":"io.debezium.data.VariableScaleDecimal"}"#,
        r#"["int",{"type":"long","logicalType":"timestamp-millis"}]"#,
    ] {
        let (plan, paths) = shape(&record(&format!(r#"{{"name":"f","type":{of}}}"#)), &["f"]);
        assert_eq!(*plan.shape().at(&paths[0]), Shape::Plain, "{of}");
    }
}

#[test]
fn shapes_are_found_by_aliases_and_follow_recursive_types_once() {
    let text = record(
        r#"{"name":"at","aliases":["was"],"type":{"type":"int","logicalType":"date"}},
           {"name":"next","type":["null","R"]}"#,
    );
    let (plan, paths) = shape(&text, &["was", "at", "next.next.was", "next"]);
    for path in &paths[..3] {
        assert_eq!(*plan.shape().at(path), Shape::Logical(Logical::Date), "{path:?}");
    }
    assert_eq!(*plan.shape().at(&steps("next.at")), Shape::Logical(Logical::Date));
    assert_eq!(*plan.shape().at(&steps("next.next.next.at")), Shape::Plain, "only as far as it is followed");
}
