//! Goal: every schema that Avro's rules allow is parsed, with each name resolved; anything else is refused with its
//! place.

use super::*;

fn parse(text: &str) -> Schema {
    Schema::parse(text, &[]).unwrap_or_else(|e| panic!("{text}: {e}"))
}

fn problem(text: &str, references: &[&str]) -> String {
    Schema::parse(text, references).unwrap_err().to_string()
}

fn has(schema: &Schema, path: &str) -> bool {
    let steps: Vec<String> = path.split('.').filter(|step| !step.is_empty()).map(str::to_owned).collect();
    schema.has(&steps)
}

/// The type of a record's field.
fn field<'s>(schema: &'s Schema, name: &str) -> &'s Type {
    let Kind::Record(record) = schema.kind(schema.root()) else { panic!("no record") };
    schema.get(record.fields[record.find(name.as_bytes()).unwrap()].of)
}

/// A record whose field `f` has this type.
fn of(of: &str) -> Schema {
    parse(&format!(r#"{{"type":"record","name":"R","fields":[{{"name":"f","type":{of}}}]}}"#))
}

#[test]
fn names_are_relative_to_the_namespace_around_them() {
    let text = r#"{"type":"record","name":"Order","namespace":"shop","fields":[
        {"name":"state","type":{"type":"enum","name":"State","symbols":["NEW","PAID"]}},
        {"name":"was","type":["null","State"]},
        {"name":"also","type":"shop.State"},
        {"name":"line","type":{"type":"record","name":"line.Line","fields":[
            {"name":"hash","type":{"type":"fixed","name":"Hash","size":4}},
            {"name":"again","type":"Hash"},
            {"name":"order","type":["null","shop.Order"]},
            {"name":"bare","type":{"type":"enum","name":"Bare","namespace":"","symbols":[]}},
            {"name":"bare2","type":"Bare"}]}}]}"#;
    let schema = parse(text);
    for path in ["state", "was", "also", "line.hash", "line.again", "line.bare2", "line.order.line.order.line.hash"] {
        assert!(has(&schema, path), "{path}");
    }
}

#[test]
fn names_may_be_defined_later_or_in_other_texts_in_any_order() {
    let line = r#"{"type":"record","name":"Line","namespace":"shop","fields":[{"name":"sku","type":"Sku"}]}"#;
    let sku = r#"{"type":"record","name":"shop.Sku","fields":[{"name":"code","type":"string"}]}"#;
    let order = r#"{"type":"record","name":"shop.Order","fields":[
        {"name":"lines","type":{"type":"array","items":"Line"}},
        {"name":"next","type":"Later"},
        {"name":"later","type":{"type":"record","name":"Later","fields":[{"name":"x","type":"int"}]}}]}"#;
    for references in [[line, sku, line], [sku, line, sku]] {
        let schema = Schema::parse(order, &references).unwrap();
        assert!(has(&schema, "lines.0.sku.code") && has(&schema, "next.x"));
        assert!(!has(&schema, "lines.0.sku.no") && !has(&schema, "lines.sku"));
    }
    let missing = problem(order, &[line]);
    assert_eq!(missing, "shop.Line: no type is named shop.Sku; give the schema that defines it as a reference");
}

#[test]
fn aliases_are_other_names_of_fields_and_types() {
    let schema = parse(
        r#"{"type":"record","name":"R","namespace":"n","aliases":["Old","m.Older"],"fields":[
            {"name":"id","aliases":["order_id","number"],"type":"long"},
            {"name":"number","type":"string"},
            {"name":"next","type":["null","Old"]},
            {"name":"last","type":["null","m.Older"]}]}"#,
    );
    for path in ["id", "order_id", "next.order_id", "last.id"] {
        assert!(has(&schema, path), "{path}");
    }
    assert!(matches!(field(&schema, "order_id").kind, Kind::Long));
    assert!(matches!(field(&schema, "number").kind, Kind::String), "a name takes precedence over an alias");
}

#[test]
fn logical_types_that_do_not_fit_their_type_are_ignored() {
    let logical = |text: &str| field(&of(text), "f").logical;
    for (text, expected) in [
        (r#"{"type":"bytes","logicalType":"decimal","precision":5,"scale":2}"#, Some(Logical::Decimal(2))),
        (r#"{"type":"bytes","logicalType":"decimal","precision":5}"#, Some(Logical::Decimal(0))),
        (
            r#"{"type":"fixed","name":"F","size":4,"logicalType":"decimal","precision":9,"scale":9}"#,
            Some(Logical::Decimal(9)),
        ),
        (r#"{"type":"fixed","name":"F","size":4,"logicalType":"decimal","precision":10,"scale":9}"#, None),
        (r#"{"type":"fixed","name":"F","size":0,"logicalType":"decimal","precision":1}"#, None),
        (r#"{"type":"bytes","logicalType":"decimal","precision":5,"scale":6}"#, None),
        (r#"{"type":"bytes","logicalType":"decimal","precision":5,"scale":-1}"#, None),
        (r#"{"type":"bytes","logicalType":"decimal","precision":5,"scale":"1"}"#, None),
        (r#"{"type":"bytes","logicalType":"decimal"}"#, None),
        (r#"{"type":"string","logicalType":"decimal","precision":5}"#, None),
        (r#"{"type":"bytes","logicalType":"big-decimal"}"#, Some(Logical::BigDecimal)),
        (r#"{"type":"string","logicalType":"uuid"}"#, Some(Logical::Uuid)),
        (r#"{"type":"fixed","name":"F","size":16,"logicalType":"uuid"}"#, Some(Logical::Uuid)),
        (r#"{"type":"fixed","name":"F","size":15,"logicalType":"uuid"}"#, None),
        (r#"{"logicalType":"uuid","type":{"type":"fixed","name":"F","size":16}}"#, Some(Logical::Uuid)),
        (r#"{"type":"int","logicalType":"date"}"#, Some(Logical::Date)),
        (r#"{"type":"long","logicalType":"date"}"#, None),
        (r#"{"type":"int","logicalType":"time-millis"}"#, Some(Logical::Time(Unit::Milli))),
        (r#"{"type":"long","logicalType":"time-micros"}"#, Some(Logical::Time(Unit::Micro))),
        (r#"{"type":"long","logicalType":"timestamp-millis"}"#, Some(Logical::Timestamp(Unit::Milli))),
        (r#"{"type":"long","logicalType":"timestamp-micros"}"#, Some(Logical::Timestamp(Unit::Micro))),
        (r#"{"type":"long","logicalType":"timestamp-nanos"}"#, Some(Logical::Timestamp(Unit::Nano))),
        (r#"{"type":"long","logicalType":"local-timestamp-millis"}"#, Some(Logical::LocalTimestamp(Unit::Milli))),
        (r#"{"type":"long","logicalType":"local-timestamp-micros"}"#, Some(Logical::LocalTimestamp(Unit::Micro))),
        (r#"{"type":"long","logicalType":"local-timestamp-nanos"}"#, Some(Logical::LocalTimestamp(Unit::Nano))),
        (r#"{"type":"fixed","name":"F","size":12,"logicalType":"duration"}"#, Some(Logical::Duration)),
        (r#"{"type":"fixed","name":"F","size":11,"logicalType":"duration"}"#, None),
        (r#"{"type":"long","logicalType":"of-tomorrow"}"#, None),
        (r#""long""#, None),
    ] {
        assert_eq!(logical(text), expected, "{text}");
    }
    assert!(has(&of(r#"{"type":"fixed","name":"F","size":12,"logicalType":"duration"}"#), "f.days"));
    assert!(!has(&of(r#"{"type":"fixed","name":"F","size":12,"logicalType":"duration"}"#), "f.days.0"));
}

#[test]
fn attributes_of_connect_are_kept() {
    let schema = of(r#"{"type":"bytes","connect.version":1,"connect.name":"io.debezium.data.Bits",
        "connect.parameters":{"length":"9","odd":9}}"#);
    let connect = field(&schema, "f").connect.as_deref().unwrap();
    assert_eq!(&*connect.name, "io.debezium.data.Bits");
    assert_eq!((connect.parameter("length"), connect.parameter("odd")), (Some("9"), None));
}

#[test]
fn paths_lead_through_unions_maps_and_arrays() {
    let schema = of(r#"["null", {"type":"map","values":["null",{"type":"array","items":{
        "type":"record","name":"A","fields":[
        {"name":"x","type":"int"},{"name":"self","type":["null","R"]}]}}]}, "A"]"#);
    for path in ["", "f", "f.any", "f.any.0", "f.any.12.x", "f.x", "f.any.0.self.f.any.3.self.f.x"] {
        assert!(has(&schema, path), "{path}");
    }
    for path in ["g", "f.any.x", "f.any.01", "f.any.0.y", "f.x.y"] {
        assert!(!has(&schema, path), "{path}");
    }
}

#[test]
fn invalid_schemas_are_refused_with_their_places() {
    let record = |fields: &str| format!(r#"{{"type":"record","name":"R","fields":[{fields}]}}"#);
    for (text, expected) in [
        ("", "EOF while parsing a value at line 1 column 0"),
        ("7", "a schema must be a name, an object or a list"),
        ("{}", "a schema has no `type`"),
        (r#"{"type":7}"#, "a type must be a name, an object or a list"),
        (r#""strng""#, "no type is named strng; give the schema that defines it as a reference"),
        (r#"{"type":"array"}"#, "an array has no `items`"),
        (r#"{"type":"map","values":{"type":"array"}}"#, "values: an array has no `items`"),
        (r#"["null",["int"]]"#, "1: a union holds a union"),
        (r#"["null","int",{"type":"null"}]"#, "2: a union holds null twice"),
        (r#"{"type":"enum","name":"E","symbols":[1]}"#, "an enum has no list of `symbols`"),
        (r#"{"type":"fixed","name":"F","size":-1}"#, "a fixed has no `size` from 0 to 2147483647"),
        (r#"{"type":"fixed","name":"F","size":2147483648}"#, "a fixed has no `size` from 0 to 2147483647"),
        (r#"{"type":"record","fields":[]}"#, "a record, an enum or a fixed has no `name`"),
        (r#"{"type":"record","name":"a.","fields":[]}"#, "a record, an enum or a fixed has an empty name"),
        (r#"{"type":"record","name":"R"}"#, "the record R has no list of `fields`"),
        (&record(r#"{"type":"int"}"#), "a field of the record R has no name"),
        (&record("7"), "a field of the record R has no name"),
        (&record(r#"{"name":"f"}"#), "f: the field has no `type`"),
        (
            &record(r#"{"name":"f","type":"int"},{"name":"f","type":"int"}"#),
            "f: the record R has two fields of this name",
        ),
        (&record(r#"{"name":"f","type":["null",{"type":"map"}]}"#), "f.1: a map has no `values`"),
        (&record(r#"{"name":"f","type":{"type":"fixed","name":"R","size":1}}"#), "f: the name R is defined twice"),
    ] {
        assert_eq!(problem(text, &[]), expected, "{text}");
    }
    assert_eq!(problem("\"int\"", &["\"int\"", "{}", "{}"]), "reference 2: a schema has no `type`");
    assert!(problem("\"int\"", &["{"]).starts_with("reference 1: EOF"));
}
