use super::*;
use crate::postgres::upsert::Kind;

fn column(name: &str, kind: Kind) -> Column {
    Column {
        name: name.to_owned(),
        sql_type: "text".to_owned(),
        kind,
        default: None,
        is_identity_always: false,
        is_not_null: false,
        text_type: Some("text".to_owned()),
    }
}

fn bulk_plan(change: Change, key: &[usize], columns: u128) -> BulkPlan {
    let columns_by_name = [("id", Kind::Plain), ("v", Kind::Plain), ("at", Kind::Time), ("times", Kind::TimeList)];
    let table_columns = columns_by_name.map(|(name, kind)| column(name, kind)).to_vec();
    BulkPlan {
        table: Table { name: "\"t\"".to_owned(), columns: table_columns },
        change,
        key: key.to_vec(),
        columns,
        guard: "1".to_owned(),
        variants: Default::default(),
        is_disabled: AtomicBool::new(false),
        hasher: RandomState::with_seeds(1, 2, 3, 4),
    }
}

/// The shape has the columns that the row has and the statement writes, in any order, and with escapes in their names.
#[test]
fn shape_has_the_columns_of_the_row() {
    let plan = bulk_plan(Change::Upsert, &[0], 0b1111);
    let columns = |row: &str| shape::read(&plan, row, None).map(|shape| shape.columns);
    assert_eq!(columns(r#"{"id": 1}"#), Some(0b1));
    assert_eq!(columns(r#"{"v": null, "id": "a", "other": [1, {"id": 2}]}"#), Some(0b11));
    assert_eq!(columns(r#"{"\u0069d": 1, "times": "{}", "at": "2026-01-31"}"#), Some(0b1101));
    let plan_of_two_columns = bulk_plan(Change::Upsert, &[0], 0b101);
    let shape = shape::read(&plan_of_two_columns, r#"{"id": 1, "v": 2, "at": null}"#, None);
    assert_eq!(shape.map(|shape| shape.columns), Some(0b101));
}

/// A row that a check of `upsert` may refuse, or that cannot be read, is executed alone.
#[test]
fn row_that_has_to_be_executed_alone_has_no_shape() {
    let plan = bulk_plan(Change::Upsert, &[0], 0b1111);
    for row in [
        "",
        "[]",
        "null",
        "1",
        "{",
        r#"{"id": 1"#,
        r#"{"id": 1} "#.trim_end_matches("} "),
        r#"{"id": 1}, {"id": 2}"#,
        r#"{"v": 1}"#,
        r#"{"id": null}"#,
        r#"{"id": true}"#,
        r#"{"id": [1]}"#,
        r#"{"id": {}}"#,
        r#"{"id": 1, "id": 2}"#,
        r#"{"id": 1, "v": 1, "v": 2}"#,
        r#"{"id": 1, "at": 5}"#,
        r#"{"id": 1, "at": 5.5}"#,
        r#"{"id": 1, "times": ["2026-01-31"]}"#,
        r#"{"id": 1, "times": 1}"#,
        r#"{"id": 1, "v": "__debezium_unavailable_value"}"#,
        r#"{"id": 1, "v": ["X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="]}"#,
        r#"{"id": 1, "v": [95,95,100,101]}"#,
        r#"{"id": 1, "v": "a\u0000"}"#,
        r#"{"id": 1, "v": "b68a35a7-17ad-35b3-af2a-ae46edb4545a"}"#,
    ] {
        assert_eq!(shape::read(&plan, row, None), None, "{row}");
    }
}

/// In a column of numbers, a text that is known not to be base64 has a shape; other doubtful fields still have none.
#[test]
fn row_whose_text_is_known_not_to_be_base64_has_a_shape() {
    let mut plan = bulk_plan(Change::Upsert, &[0], 0b1111);
    for (number, kind) in [(0, Kind::Number), (1, Kind::Float), (3, Kind::NumberList)] {
        plan.table.columns[number].kind = kind;
    }
    let read = |row: &str, texts: Option<&str>| shape::read(&plan, row, texts);
    for (row, texts) in [
        (r#"{"id": "1234"}"#, r#"["id"]"#),
        (r#"{"id": 1, "v": "1e10"}"#, r#"["name", "v"]"#),
        (r#"{"id": 1, "times": ["1.5", ["1234"]]}"#, r#"["times"]"#),
    ] {
        assert_eq!(read(row, None), None, "{row}");
        assert_eq!(read(row, Some(r#"["at", "V"]"#)), None, "{row}");
        assert!(read(row, Some(texts)).is_some(), "{row}");
    }
    assert_eq!(read(r#"{"id": "1234", "v": "1234"}"#, Some(r#"["id"]"#)), None);
    assert_eq!(read(r#"{"id": ["1234"]}"#, Some(r#"["id"]"#)), None, "a key is not a list");
    assert_eq!(read(r#"{"id": 1, "at": 1}"#, Some(r#"["at"]"#)), None, "a number for a time");
    let key = |text: &str| read(&format!(r#"{{"id": "{text}"}}"#), Some(r#"["id"]"#)).expect("it is a number").key_hash;
    assert_ne!(key("1234"), key("5678"));
}

/// The hash of a key of several columns depends on which column has which value.
#[test]
fn different_keys_have_different_hashes() {
    let plan = bulk_plan(Change::Delete, &[0, 1], 0b11);
    let key = |row: &str| shape::read(&plan, row, None).expect("it has its key").key_hash;
    let rows = [
        r#"{"id": 1, "v": 2}"#,
        r#"{"id": 2, "v": 1}"#,
        r#"{"id": 1, "v": "2"}"#,
        r#"{"id": "a", "v": "a"}"#,
        r#"{"id": "b", "v": "b"}"#,
        r#"{"id": -1, "v": 2}"#,
        r#"{"id": 1.5, "v": 2}"#,
    ];
    for (number, row) in rows.iter().enumerate() {
        for other in &rows[..number] {
            assert_ne!(key(row), key(other), "{row} {other}");
        }
    }
    assert_eq!(key(rows[0]), key(r#"{"v": 2, "other": 7, "id": 1}"#));
}

/// A column is left out only if evaluating its default has no side effects.
#[test]
fn columns_that_cannot_be_left_out_of_an_insert_are_recognised() {
    let with = |default: Option<&str>, is_not_null| {
        let default = default.map(str::to_owned);
        Column { default, is_not_null, ..column("c", Kind::Plain) }.can_be_left_out()
    };
    assert!(with(None, false) && !with(None, true));
    for default in ["'mine'::text", "7", "now()", "CURRENT_TIMESTAMP", "'{}'::jsonb"] {
        assert!(with(Some(default), true), "{default}");
    }
    for default in ["nextval('s'::regclass)", "f()", "(1 + f())", "lower(now())"] {
        assert!(!with(Some(default), false), "{default}");
    }
    let mut plan = bulk_plan(Change::Upsert, &[0], 0b1111);
    assert!(plan.bulk_sql(0b11).is_some());
    plan.table.columns[2].is_not_null = true;
    assert!(plan.bulk_sql(0b11).is_none() && plan.bulk_sql(0b111).is_some());
}

/// A text is cast only if that gives the same value as `json_to_record`.
#[test]
fn columns_are_sent_as_texts_where_a_cast_gives_the_same_value() {
    let with = |kind, text_type: Option<&str>, sql_type: &str| Column {
        text_type: text_type.map(str::to_owned),
        sql_type: sql_type.to_owned(),
        ..column("c", kind)
    };
    let (upsert, delete) = (Change::Upsert, Change::Delete);
    let number = with(Kind::Plain, Some("numeric"), "numeric(4,2)");
    assert_eq!(number.as_text(upsert).as_deref(), Some("p.\"c\"::numeric as \"c\""));
    assert_eq!(number.as_text(delete), None, "it would be compared before it is rounded");
    assert!(with(Kind::Plain, Some("bigint"), "bigint").as_text(delete).is_some());
    assert_eq!(with(Kind::Json, Some("jsonb"), "jsonb").as_text(upsert).as_deref(), Some("p.\"c\""));
    assert_eq!(with(Kind::Plain, None, "pair").as_text(upsert), None);
    assert_eq!(with(Kind::ByteList, Some("bytea[]"), "bytea[]").as_text(upsert), None);
}
