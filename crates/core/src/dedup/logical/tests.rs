//! Goal: what a schema says of values is found wherever they are, and values become what they are.

use super::text::Raw;
use super::*;

/// A schema as Connect's converter writes it, with every kind of nesting.
const SCHEMA: &str = r#"{"type":"struct","optional":false,"name":"shop.public.t.Envelope","fields":[
    {"type":"struct","optional":true,"name":"shop.public.t.Value","field":"after","fields":[
        {"type":"int32","optional":false,"field":"id"},
        {"type":"bytes","optional":true,"name":"org.apache.kafka.connect.data.Decimal","version":1,
            "parameters":{"scale":"2","connect.decimal.precision":"10"},"field":"price"},
        {"type":"int32","optional":true,"name":"io.debezium.time.Date","version":1,"field":"day"},
        {"type":"array","optional":true,"items":{"type":"int64","optional":true,"name":"io.debezium.time.MicroTimestamp"},
            "field":"times"},
        {"type":"map","keys":{"type":"string"},"values":{"type":"int32","name":"org.apache.kafka.connect.data.Time"},
            "field":"clocks"},
        {"type":"string","optional":true,"name":"io.debezium.data.Uuid","field":"uuid"},
        {"type":"struct","optional":true,"name":"io.debezium.data.VariableScaleDecimal","field":"any",
            "fields":[{"type":"int32","field":"scale"},{"type":"bytes","field":"value"}]}]},
    {"type":"string","optional":false,"field":"op"}]}"#;

fn steps(path: &str) -> Vec<String> {
    path.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect()
}

#[test]
fn schema_says_where_logical_types_are() {
    let shape = Shape::read(SCHEMA.as_bytes());
    for (path, expected) in [
        ("after.price", Some(Logical::Decimal(2))),
        ("after.day", Some(Logical::Date)),
        ("after.times.3", Some(Logical::Timestamp(Unit::Micro, false))),
        ("after.clocks.noon", Some(Logical::Time(Unit::Milli))),
        ("after.any", Some(Logical::VariableDecimal)),
        ("after.any.scale", None),
        ("after.id", None),
        ("after.uuid", None),
        ("after.times.x", None),
        ("op", None),
        ("after.no.where", None),
    ] {
        let found = match shape.at(&steps(path)) {
            Shape::Logical(logical) => Some(*logical),
            _ => None,
        };
        assert_eq!(found, expected, "{path}");
    }
    assert_eq!(shape.at(&steps("after.id")), &Shape::Plain);
    let odd = ["", "{", "[]", "null", r#"{"type":"struct"}"#, r#"{"type":"struct","fields":[{"type":"int32"}]}"#];
    odd.iter().for_each(|schema| assert_eq!(Shape::read(schema.as_bytes()), Shape::Plain, "{schema}"));
}

/// Texts of any name, and arrays of them however nested; not bytes, and not what is inside of them.
#[test]
fn schema_says_which_fields_of_a_row_are_texts() {
    let texts = |schema: &str, path: &str| Shape::read(schema.as_bytes()).at(&steps(path)).texts().map(str::to_owned);
    assert_eq!(texts(SCHEMA, "").as_deref(), Some(r#"["op"]"#));
    assert_eq!(texts(SCHEMA, "after").as_deref(), Some(r#"["uuid"]"#));
    assert_eq!(texts(SCHEMA, "after.uuid"), None);
    let text = r#"{"type":"string"}"#;
    let of = |fields: &str| format!(r#"{{"type":"struct","fields":[{fields}]}}"#);
    let listed = |of: &str| format!(r#"{{"type":"array","items":{of},"field":"l"}}"#);
    let row =
        of(r#"{"type":"string","optional":true,"field":"a \"b\""},{"type":"bytes","field":"c"},{"type":"string"}"#);
    assert_eq!(texts(&row, "").as_deref(), Some(r#"["a \"b\""]"#));
    assert!(!Shape::read(row.as_bytes()).holds_logical());
    assert_eq!(texts(&of(&listed(&listed(text))), "").as_deref(), Some(r#"["l"]"#));
    for other in [r#"{"type":"bytes"}"#, r#"{"type":"map","values":{"type":"string"}}"#, &of(r#"{"type":"string"}"#)] {
        assert_eq!(texts(&of(&listed(other)), ""), None, "{other}");
    }
    assert_eq!(texts(&of(r#"{"type":"string","field":"a\u0000"}"#), ""), None);
}

#[test]
fn schemas_are_kept_and_give_way() {
    let mut schemas = Schemas::default();
    assert_eq!(schemas.shape(), &Shape::Plain);
    let of = |scale: usize| {
        format!(
            r#"{{"type":"bytes","name":"org.apache.kafka.connect.data.Decimal","parameters":{{"scale":"{scale}"}}}}"#
        )
    };
    for round in 0..2 {
        for scale in 0..KNOWN_MAX + 2 {
            schemas.take(Some(of(scale).as_bytes()));
            assert_eq!(schemas.shape(), &Shape::Logical(Logical::Decimal(scale as i32)), "{round}");
        }
    }
    assert_eq!((schemas.known.len(), schemas.hashes.len()), (KNOWN_MAX, KNOWN_MAX));
    schemas.take(None);
    assert_eq!(schemas.shape(), &Shape::Plain);
}

fn written(name: &str, parameters: &str, raw: Raw<'_>) -> Result<String, Unlike> {
    let schema = format!(r#"{{"type":"bytes","name":"{name}","parameters":{{{parameters}}}}}"#);
    let Shape::Logical(logical) = Shape::read(schema.as_bytes()) else { panic!("{schema}") };
    let mut out = Vec::new();
    logical.write(raw, &mut out).map(|()| String::from_utf8(out).unwrap())
}

/// The names are those of the classes in Debezium and Kafka Connect.
#[test]
fn each_logical_type_is_what_it_counts() {
    use Raw::{Composite, Number, Text};
    for (name, parameters, raw, expected) in [
        ("org.apache.kafka.connect.data.Decimal", r#""scale":"2""#, Text(b"1234"), "-26588.24"),
        ("org.apache.kafka.connect.data.Decimal", r#""scale":"2""#, Number(b"12.50"), "12.50"),
        ("io.debezium.data.VariableScaleDecimal", "", Composite(br#"{"scale":3,"value":"ASw="}"#), "0.300"),
        ("io.debezium.data.VariableScaleDecimal", "", Composite(br#"{"value":"AQ==","scale":-2}"#), "100"),
        ("org.apache.kafka.connect.data.Date", "", Number(b"19000"), "2022-01-08"),
        ("io.debezium.time.Date", "", Number(b"-1"), "1969-12-31"),
        ("org.apache.kafka.connect.data.Time", "", Number(b"1000"), "00:00:01"),
        ("io.debezium.time.Time", "", Number(b"1500"), "00:00:01.5"),
        ("io.debezium.time.MicroTime", "", Number(b"1500000"), "00:00:01.5"),
        ("io.debezium.time.NanoTime", "", Number(b"1"), "00:00:00.000000001"),
        ("org.apache.kafka.connect.data.Timestamp", "", Number(b"1"), "1970-01-01T00:00:00.001Z"),
        ("io.debezium.time.Timestamp", "", Number(b"1"), "1970-01-01T00:00:00.001"),
        ("io.debezium.time.MicroTimestamp", "", Number(b"1"), "1970-01-01T00:00:00.000001"),
        ("io.debezium.time.NanoTimestamp", "", Number(b"1"), "1970-01-01T00:00:00.000000001"),
        ("io.debezium.time.MicroDuration", "", Number(b"-90000000"), "-00:01:30"),
        ("io.debezium.time.NanoDuration", "", Number(b"90000000000"), "00:01:30"),
        ("io.debezium.data.Bits", r#""length":"10""#, Text(b"BQI="), "1000000101"),
    ] {
        assert_eq!(written(name, parameters, raw).as_deref(), Ok(expected), "{name}");
    }
}

#[test]
fn what_is_unlike_the_schema_is_refused() {
    use Raw::{Bool, Composite, Number, Text};
    let decimal = r#""scale":"2""#;
    for (name, parameters, raw) in [
        ("org.apache.kafka.connect.data.Decimal", decimal, Text(b"12.5")),
        ("org.apache.kafka.connect.data.Decimal", decimal, Text(b"")),
        ("org.apache.kafka.connect.data.Decimal", decimal, Bool),
        ("io.debezium.data.VariableScaleDecimal", "", Text(b"AQ==")),
        ("io.debezium.data.VariableScaleDecimal", "", Composite(br#"{"scale":3}"#)),
        ("io.debezium.data.VariableScaleDecimal", "", Composite(br#"{"scale":1.5,"value":"AQ=="}"#)),
        ("io.debezium.data.VariableScaleDecimal", "", Composite(br#"[3,"AQ=="]"#)),
        ("io.debezium.time.Date", "", Text(b"2026-01-31")),
        ("io.debezium.time.Date", "", Number(b"1.5")),
        ("io.debezium.time.MicroTimestamp", "", Number(b"1e6")),
        ("io.debezium.time.MicroTimestamp", "", Number(b"99999999999999999999")),
        ("io.debezium.data.Bits", r#""length":"2""#, Text(b"BA==")),
        ("io.debezium.data.Bits", r#""length":"2147483647""#, Text(b"BA==")),
    ] {
        assert_eq!(written(name, parameters, raw), Err(Unlike), "{name}");
    }
}

#[test]
fn rows_are_written_anew_and_the_rest_stays() {
    let shape = Shape::read(SCHEMA.as_bytes());
    let row = r#" { "id" : 1 , "pri\u0063e" : "1234", "day":19000,"times":[ 1 , null ], "clocks":{"a b":1000},
        "uuid":"x\"y", "any":{"scale":1,"value":"BQ=="},"other":[{"price":"1234"}] , "price" : null}"#;
    let mut out = Vec::new();
    row::write(row.as_bytes(), shape.at(&steps("after")), &mut out).unwrap();
    let expected = r#"{"id":1,"pri\u0063e":-26588.24,"day":"2022-01-08","times":["1970-01-01T00:00:00.000001",null],"clocks":{"a b":"00:00:01"},"uuid":"x\"y","any":0.5,"other":[{"price":"1234"}],"price":null}"#;
    assert_eq!(String::from_utf8(out).unwrap(), expected);
    for wrong in [r#"{"price":"12.50"}"#, r#"{"day":"today"}"#, r#"{"any":{"scale":1}}"#] {
        assert_eq!(row::write(wrong.as_bytes(), shape.at(&steps("after")), &mut Vec::new()), Err(Unlike), "{wrong}");
    }
    // What is of another form than the schema says, and not of a logical type, stays.
    let mut out = Vec::new();
    row::write(br#"{"times":{"x":1},"clocks":[1]}"#, shape.at(&steps("after")), &mut out).unwrap();
    assert_eq!(out, br#"{"times":{"x":1},"clocks":[1]}"#);
}

/// With a schema more than are kept, those that are in use stay.
#[test]
fn schemas_in_use_are_not_read_again() {
    let of = |number: usize| {
        format!(r#"{{"type":"struct","fields":[{{"name":"io.debezium.time.Date","field":"f{number}"}}]}}"#)
    };
    let mut schemas = Schemas::default();
    let address = |schemas: &Schemas| {
        let Shape::Struct(Struct { fields, .. }) = schemas.shape() else { panic!("no struct") };
        (fields.as_ptr(), String::from_utf8_lossy(&fields[0].0).into_owned())
    };
    let mut first = Vec::new();
    for round in 0..4 {
        for number in 0..100 {
            schemas.take(Some(of(number).as_bytes()));
            let found = address(&schemas);
            assert_eq!(found.1, format!("f{number}"));
            if round == 0 {
                first.push(found);
            } else {
                assert_eq!(found, first[number], "the schema of table {number} was read again");
            }
        }
        // Schemas that are met once take the place of others like them.
        for once in 0..KNOWN_MAX - 100 {
            schemas.take(Some(of(1_000 * (round + 1) + once).as_bytes()));
        }
    }
    // Neither do large ones take more room than there is.
    for number in 0..20 {
        let large = format!("{}{}", of(number), " ".repeat(KNOWN_BYTES_MAX / 4));
        schemas.take(Some(large.as_bytes()));
        assert_eq!(address(&schemas).1, format!("f{number}"));
        assert!(schemas.bytes <= KNOWN_BYTES_MAX);
        assert_eq!(schemas.bytes, schemas.known.iter().map(|known| known.schema.len()).sum::<usize>());
    }
}
