//! Goal: kinds, tables, tombstones and scopes are read as documented, through every wrapping.

use super::*;

#[test]
fn connect_change_is_read_through_every_wrapping() {
    let rules = debezium();
    let expected = Contents {
        rows: vec![r#"[{"id":1}]"#.to_owned()],
        version: Some("5".to_owned()),
        scope: Some(r#"["s"]"#.to_owned()),
        kind: Kind::Delete,
        table: Some(r#"[{"table":["d","t"]}]"#.to_owned()),
    };
    let plain = r#"{"op":"d","source":{"lsn":5,"name":"s","db":"d","table":"t"}}"#;
    let union =
        r#"{"op":{"string":"d"},"source":{"a.Source":{"lsn":{"long":5},"name":"s","db":{"string":"d"},"table":"t"}}}"#;
    for value in [plain.to_owned(), union.to_owned(), format!(r#"{{"schema":{{"op":1}},"payload":{plain}}}"#)] {
        for key in [r#"{"id":1}"#, r#"{"payload":{"id":1},"schema":null}"#] {
            assert_eq!(try_read(&rules, &keyed(key, &value)).as_ref(), Ok(&expected), "{key} {value}");
        }
    }
    let mut plain_rules = rules;
    plain_rules.value_format = Format::Json;
    let unseen = try_read(&plain_rules, &keyed(r#"{"id":1}"#, union)).unwrap();
    assert_eq!((unseen.version, unseen.scope.as_deref(), unseen.kind), (None, Some("[null]"), Kind::Change));
}

#[test]
fn kinds_are_distinguished_by_type_and_value() {
    let of = |op: &str| try_read(&debezium(), &keyed("1", &format!(r#"{{"op":{op}}}"#))).unwrap().kind;
    assert_eq!(of(r#""d""#), Kind::Delete);
    assert_eq!(of(r#""\u0064""#), Kind::Delete);
    assert_eq!(of("true"), Kind::Delete);
    assert_eq!(of(r#""true""#), Kind::Change);
    assert_eq!(of("1.0"), Kind::Read);
    assert_eq!(of(r#""1""#), Kind::Change);
    assert_eq!(of("null"), Kind::Change);
    assert_eq!(of("{}"), Kind::Change);
}

#[test]
fn truncate_is_identified_by_its_table_and_message_by_itself() {
    let rules = debezium();
    let source = r#""source":{"lsn":5,"db":"d","table":"t"}"#;
    let truncate = try_read(&rules, &keyed("", &format!(r#"{{"op":"t",{source}}}"#)).with_null_key()).unwrap();
    assert_eq!((truncate.rows, truncate.table), (vec![r#"[{"table":["d","t"]}]"#.to_owned()], None));
    let bare = try_read(&rules, &keyed("", r#"{"op":"t"}"#).with_null_key()).unwrap();
    assert_eq!(bare.rows, [r#"[{"table":[null,null]}]"#]);
    let message = |key: Option<&str>, rest: &str| {
        let value = format!(r#"{{"op":"m",{rest}}}"#);
        let record = Record { key: key.map(str::as_bytes), ..record(0, value.as_bytes()) };
        let contents = try_read(&rules, &record).unwrap();
        assert_eq!(contents.table, None);
        (contents.rows[0].clone(), contents.version)
    };
    let version = r#"{"version":"8105"}"#;
    assert_eq!(message(Some("7"), source), (format!(r#"[{{"message":[7,{version}]}}]"#), Some("5".to_owned())));
    assert_eq!(message(None, source).0, format!(r#"[{{"message":["d","t",{version}]}}]"#));
    assert_eq!(message(Some("7"), r#""x":1"#), (r#"[{"message":[7]}]"#.to_owned(), None));
    let long = format!("\"{}\"", "k".repeat(200));
    assert!(message(Some(&long), source).0.contains("sha256"));
}

#[test]
fn tombstone_is_identified_by_what_it_still_has() {
    let rules = debezium();
    let null = Record { value: None, ..keyed(r#"{"id":1}"#, "") };
    let tombstone = try_read(&rules, &null).unwrap();
    assert_eq!((tombstone.rows[0].as_str(), tombstone.kind), (r#"[{"id":1}]"#, Kind::Tombstone));
    assert_eq!((tombstone.version, tombstone.scope, tombstone.table), (None, None, None));
    assert_eq!(because(&rules, &null.with_null_key()), Reason::IdentityMissing);
    let mut by_value = rules.clone();
    by_value.identity = Identity::of_paths(paths(&["value.id"]));
    assert_eq!(because(&by_value, &null), Reason::IdentityMissing);
    let mut dropping = rules;
    dropping.actions.null_value = OnNull::Act(Action::Drop);
    assert_eq!(because(&dropping, &null), Reason::NullValue);
}

#[test]
fn missing_part_of_a_scope_is_null() {
    let scope = |source: &str| {
        try_read(&debezium(), &keyed("1", &format!(r#"{{"source":{source}}}"#))).map(|contents| contents.scope)
    };
    assert_eq!(scope("{}").unwrap().as_deref(), Some("[null]"));
    assert_eq!(scope(r#"{"name":"unknown"}"#).unwrap(), None);
    assert_eq!(scope(r#"{"name":[]}"#).unwrap_err().reason, Reason::VersionMalformed);
    let mut rules = debezium();
    let part = |text, kind| VersionPart::new(path(text), kind);
    rules.version =
        Some(Version { parts: vec![part("value.file", VersionKind::Binlog), part("value.pos", VersionKind::Integer)] });
    let of =
        |value: &str| try_read(&rules, &keyed("1", value)).map(|contents| (contents.version, contents.scope)).unwrap();
    let (version, scope) = of(r#"{"file":"mysql\u002dbin.7","pos":4,"source":{"name":"s"}}"#);
    assert_eq!((version.as_deref(), scope.as_deref()), (Some("[[7],4]"), Some(r#"["s","mysql-bin"]"#)));
    assert_eq!(of(r#"{"pos":4,"source":{"name":"s"}}"#).1, None, "without a binlog there is no telling");
}
