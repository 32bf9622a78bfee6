//! Goal: the wrappings of Kafka Connect's and Avro's JSON are looked through, and nothing else is.

use super::*;

fn through(document: &str, names: &[&str]) -> Option<String> {
    let path = steps(names);
    let mut scanner = Scanner::new(&[&path], DEPTH_MAX, true);
    scanner.scan(document.as_bytes()).unwrap();
    match scanner.found(PathIndex(0)) {
        Found::Missing => None,
        Found::Null => Some("null".to_owned()),
        Found::Bool(value) => Some(value.to_string()),
        Found::Number { from, to } | Found::Text { from, to, .. } | Found::Composite { from, to } => {
            Some(document[from..to].to_owned())
        }
    }
}

#[test]
fn payload_is_looked_through_in_any_field_order() {
    for document in [
        r#"{"schema":{"payload":{"id":9}},"payload":{"id":1}}"#,
        r#"{"payload":{"id":1},"schema":null}"#,
        r#"{"payload":{"id":1}}"#,
        r#"{"pay\u006coad":{"id":1}}"#,
    ] {
        assert_eq!(through(document, &["id"]).as_deref(), Some("1"), "{document}");
        assert_eq!(through(document, &[]).as_deref(), Some(r#"{"id":1}"#), "{document}");
        assert_eq!(through(document, &["payload", "id"]), None, "{document}");
    }
    assert_eq!(through(r#"{"schema":{},"payload":7}"#, &[]).as_deref(), Some("7"));
    assert_eq!(through(r#"{"schema":{},"payload":null}"#, &[]).as_deref(), Some("null"));
}

#[test]
fn document_that_only_resembles_a_payload_is_not_unwrapped() {
    for document in [
        r#"{"payload":{"id":2},"id":1}"#,
        r#"{"id":1,"schema":{},"payload":{"id":2}}"#,
        r#"{"schema":{"id":2},"id":1}"#,
    ] {
        assert_eq!(through(document, &["id"]).as_deref(), Some("1"), "{document}");
    }
    // Two columns of a primary key with these names: every row would have the same identity.
    for schema in [r#""sales""#, "1", "true"] {
        let document = format!(r#"{{"schema":{schema},"payload":7}}"#);
        assert_eq!(through(&document, &[]).as_deref(), Some(document.as_str()));
        assert_eq!(through(&document, &["payload"]).as_deref(), Some("7"));
    }
    assert_eq!(through(r#"[{"payload":1}]"#, &["0", "payload"]).as_deref(), Some("1"));
    assert_eq!(through(r#"{"a":{"payload":{"b":1}}}"#, &["a", "b"]), None);
    // The second payload counts, as with any repeated field.
    assert_eq!(through(r#"{"payload":{"id":1},"payload":{}}"#, &["id"]), None);
    assert_eq!(text_at(r#"{"payload":{"id":1}}"#, &["id"]), None, "only where it is asked for");
}

#[test]
fn payload_beside_the_number_of_a_schema_is_looked_through() {
    for document in [
        r#"{"schemaId":48,"payload":{"id":1}}"#,
        r#"{"payload":{"id":1},"schemaId":48}"#,
        r#"{"schemaId":"orders-1","payload":{"id":1}}"#,
    ] {
        assert_eq!(through(document, &["id"]).as_deref(), Some("1"), "{document}");
        assert_eq!(through(document, &[]).as_deref(), Some(r#"{"id":1}"#), "{document}");
        // Who asks for the fields themselves means the record as it is.
        assert_eq!(through(document, &["payload", "id"]).as_deref(), Some("1"), "{document}");
    }
    assert_eq!(through(r#"{"schemaId":48,"payload":{"id":1}}"#, &["schemaId"]).as_deref(), Some("48"));
    // Columns of these names, or something else.
    for document in [
        r#"{"schemaId":48,"payload":7}"#,
        r#"{"schemaId":48,"payload":null}"#,
        r#"{"schemaId":48,"payload":[{"id":1}]}"#,
        r#"{"schemaId":{"id":1},"payload":{}}"#,
        r#"{"schemaId":null,"payload":{}}"#,
        r#"{"schemaId":48,"schema":{},"payload":{}}"#,
        r#"{"schemaId":48,"payload":{},"ts":1}"#,
        r#"{"schemaId":48}"#,
    ] {
        assert_eq!(through(document, &[]).as_deref(), Some(document));
    }
}

#[test]
fn union_of_a_record_is_looked_through_if_it_has_one_field() {
    let after = ["after", "id"];
    assert_eq!(through(r#"{"after":{"s.dbo.t.Value":{"x":[{}],"id":1}}}"#, &after).as_deref(), Some("1"));
    assert_eq!(through(r#"{"payload":{"after":{"a.Value":{"id":1}}}}"#, &after).as_deref(), Some("1"));
    assert_eq!(through(r#"{"after":{"a.Value":{"id":1},"id":2}}"#, &after).as_deref(), Some("2"));
    assert_eq!(through(r#"{"after":{"id":2,"a.Value":{"id":1}}}"#, &after).as_deref(), Some("2"));
    for document in [
        r#"{"after":{"a.Value":{"id":1},"b":2}}"#,
        r#"{"after":{"Value":{"id":1}}}"#,
        r#"{"after":{"a.Value":[{"id":1}]}}"#,
        r#"{"after":{"a.Value":{"b.Value":{"id":1}}}}"#,
        r#"{"after":{"a.Value":{"id":1}},"after":{}}"#,
        r#"{"after":{"a.Value":null}}"#,
    ] {
        assert_eq!(through(document, &after), None, "{document}");
    }
    assert_eq!(text_at(r#"{"after":{"a.Value":{"id":1}}}"#, &after), None, "only where it is asked for");
    assert_eq!(through(r#"{"after":{"a.b":{"id":1}}}"#, &["after", "a.b", "id"]).as_deref(), Some("1"));
    // Nothing is looked through where the path ends.
    assert_eq!(through(r#"{"after":{"a.b":{"id":1}}}"#, &["after"]).as_deref(), Some(r#"{"a.b":{"id":1}}"#));
}

#[test]
fn union_of_a_scalar_is_named_after_its_type() {
    let inner = |object: &str| {
        scalar_in_union(object.as_bytes()).map(|found| match found {
            Found::Text { from, to, .. } | Found::Number { from, to } => object[from..to].to_owned(),
            other => format!("{other:?}"),
        })
    };
    assert_eq!(inner(r#"{"string":"x"}"#).as_deref(), Some("x"));
    assert_eq!(inner(r#"{ "long" : -5 }"#).as_deref(), Some("-5"));
    assert_eq!(inner(r#"{"boolean":true}"#).as_deref(), Some("Bool(true)"));
    for object in
        [r#"{"string":"x","int":1}"#, r#"{"text":"x"}"#, "{}", r#"{"string":{}}"#, "[1]", r#"{"record":{"a":1}}"#]
    {
        assert_eq!(inner(object), None, "{object}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1000))]

    /// Looking through accepts the same documents, and finds the same in those that are not wrapped.
    #[test]
    fn looking_through_changes_nothing_else(document in any_document(), path in prop::collection::vec(any_name(), 1..4)) {
        let value: Value = serde_json::from_str(&document).unwrap();
        let mut scanner = Scanner::new(&[&path], DEPTH_MAX, true);
        prop_assert_eq!(scanner.scan(document.as_bytes()), Ok(()));
        let found = scanner.found(PathIndex(0));
        prop_assert!(is_same(&document, found, look_up(&value, &path)) || document.contains('.') || document.contains("u00"));
    }

    #[test]
    fn looking_through_accepts_any_json(document in any_soup()) {
        let path = steps(&["a", "b"]);
        let mut scanner = Scanner::new(&[&path], DEPTH_MAX, true);
        prop_assert_eq!(scanner.scan(&document).is_ok(), is_json(&document));
    }
}
