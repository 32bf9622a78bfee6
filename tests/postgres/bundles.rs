//! Rows of a table that are carried out together: the same as one by one, whatever the table and the rows are.

use ratchet::effect::{CommitError, Effects, Session};
use ratchet::postgres::Statement;

use crate::database::Database;
use crate::postgres::task::{Calls, Task, effects, rejected, session, settings_of, sql};

mod same;

/// What makes rows go one by one: a trigger that does nothing.
const APART: &str = "create function f() returns trigger language plpgsql as $$ begin return new; end $$;
    create trigger g before update on t for each row execute function f();";

/// A database with a table `t`, written by upserts (statement 0), deletes (1), and statements of one's own behind these.
struct Copy {
    database: Database,
    session: Box<dyn Session>,
    task: Task,
}

impl Copy {
    fn new(create: &str, key: &[&str], more: &[(&str, usize)]) -> Copy {
        let database = Database::with(create);
        let key: Vec<_> = key.iter().map(ToString::to_string).collect();
        let table = "t".to_owned();
        let mut statements = vec![
            Statement::Upsert { table: table.clone(), key: key.clone(), columns: None },
            Statement::DeleteRow { table, key },
        ];
        statements.extend(more.iter().map(|&(text, parameters)| sql(text, parameters)));
        let mut session = session(&settings_of(&database.url, statements));
        let task = Task::claim(&mut *session, 0);
        Copy { database, session, task }
    }

    #[track_caller]
    fn commit(&mut self, all: &Effects) {
        self.task.commit(&mut *self.session, all).unwrap_or_else(|failed| panic!("{failed:?}"));
    }

    #[track_caller]
    fn refuses(&mut self, all: &Effects) -> Vec<(usize, String)> {
        rejected(self.task.commit(&mut *self.session, all).expect_err("some are refused"))
    }

    /// How many statements have written the rows that are there.
    #[track_caller]
    fn statements(&self) -> usize {
        self.database.rows("select distinct xmin, cmin from t").len()
    }
}

fn upserts(rows: &[String]) -> Effects {
    let mut all = Effects::default();
    for (number, row) in rows.iter().enumerate() {
        all.begin(number as i64, number.to_string().as_bytes(), None);
        all.call(0);
        all.parameter(Some(row));
    }
    all
}

fn numbered(ids: &[i32]) -> Effects {
    upserts(&ids.iter().enumerate().map(|(v, id)| format!(r#"{{"id": {id}, "v": {v}}}"#)).collect::<Vec<_>>())
}

/// Rows of different keys go together; a key that comes again begins anew, and so does another statement.
#[test]
fn rows_of_different_keys_go_together() {
    let create = "create table t (id int primary key, v int); create table other (v int)";
    let mut copy = Copy::new(create, &["id"], &[("insert into other select count(*) from t where id > $1", 1)]);
    copy.commit(&numbered(&[1, 2, 3, 4]));
    assert_eq!(copy.statements(), 1);
    for _ in 0..2 {
        copy.commit(&numbered(&[4, 3, 2, 1, 2, 1, 3]));
        assert_eq!(copy.database.rows("select id, v from t order by id"), ["1|5", "2|4", "3|6", "4|0"]);
        assert_eq!(copy.statements(), 2, "4, 3, 2, 1; 2, 1, 3");
    }
    // A statement in between sees what came before it, and nothing else.
    let calls: [Calls<'_>; 5] = [
        &[(0, &[r#"{"id": 5, "v": 0}"#])],
        &[(0, &[r#"{"id": 6, "v": 0}"#]), (2, &["4"])],
        &[(0, &[r#"{"id": 7, "v": 0}"#])],
        &[(1, &[r#"{"id": 5}"#])],
        &[(2, &["4"])],
    ];
    copy.commit(&effects(&calls));
    assert_eq!(copy.database.rows("select v from other"), ["2", "2"]);
    assert_eq!(copy.database.rows("select id from t where id > 4 order by id"), ["6", "7"]);
}

/// Rows that lack columns keep these, or have their defaults, whichever they are.
#[test]
fn rows_of_different_columns_go_apart() {
    let create = "create table t (id int primary key, a text not null default 'd', n serial, b int, c int not null)";
    let mut copy = Copy::new(create, &["id"], &[]);
    let rows = |fields: &[&str]| {
        let row = |(id, fields): (usize, &&str)| format!(r#"{{"id": {id}{fields}}}"#);
        upserts(&fields.iter().enumerate().map(row).collect::<Vec<_>>())
    };
    let whole = r#", "a": "x", "n": 70, "b": 1, "c": 1"#;
    copy.commit(&rows(&[whole, whole, r#", "n": 70, "c": 2"#, r#", "n": 70, "c": 3"#, r#", "c": 4"#, r#", "c": 5"#]));
    let expected = ["0|x|70|1|1", "1|x|70|1|1", "2|d|70|-|2", "3|d|70|-|3", "4|d|1|-|4", "5|d|2|-|5"];
    assert_eq!(copy.database.rows("select * from t order by id"), expected);
    assert_eq!(copy.statements(), 4, "a serial number is taken only where a row is inserted");
    copy.commit(&rows(&[r#", "n": 71, "b": null"#, r#", "n": 72, "b": null"#, r#", "c": 6"#, r#", "c": 7"#]));
    let expected = ["0|x|71|-|1", "1|x|72|-|1", "2|d|70|-|6", "3|d|70|-|7", "4|d|1|-|4", "5|d|2|-|5"];
    assert_eq!(copy.database.rows("select * from t order by id"), expected);
    copy.commit(&upserts(&[r#"{"id": 9, "c": 9}"#.to_owned()]));
    assert_eq!(copy.database.value("select n from t where id = 9"), "3", "no number was taken in vain");
}

/// Keys that only the database knows to be equal.
#[test]
fn keys_that_are_written_differently_are_the_same() {
    let mut copy = Copy::new("create table t (id numeric primary key, v int)", &["id"], &[]);
    for round in 0..2 {
        let ids = ["1", "\"1.0\"", "\"01\"", "2"];
        let rows = ids.iter().enumerate().map(|(v, id)| format!(r#"{{"id": {id}, "v": {}}}"#, v + round));
        copy.commit(&upserts(&rows.collect::<Vec<_>>()));
        let expected = [format!("1|{}", 2 + round), format!("2|{}", 3 + round)];
        assert_eq!(copy.database.rows("select * from t order by id"), expected);
    }
    let deletes: Vec<_> = ["1", "\"1.0\"", "\"01\"", "3", "4"].iter().map(|id| format!(r#"{{"id": {id}}}"#)).collect();
    let deletes: Vec<_> = deletes.iter().map(|row| [(1, [row.as_str()])]).collect();
    let deletes: Vec<Vec<(u32, &[&str])>> =
        deletes.iter().map(|calls| calls.iter().map(|(statement, row)| (*statement, &row[..])).collect()).collect();
    copy.commit(&effects(&deletes.iter().map(Vec::as_slice).collect::<Vec<_>>()));
    assert_eq!(copy.database.rows("select id from t"), ["2"]);
}

/// Each refused row is named among many, in the words that it would have alone, and nobody else is.
#[test]
fn refused_rows_are_named_among_many() {
    let create = "create table t (id int primary key, v int check (v < 100), d date, x varchar(3) not null)";
    let mut copy = Copy::new(create, &["id"], &[]);
    let bad = [
        (17, r#"{"id": 17, "v": 100, "d": null, "x": "a"}"#, "t_v_check"),
        (400, r#"{"id": "x", "v": 1, "d": null, "x": "a"}"#, "invalid input syntax for type integer: \"x\""),
        (
            401,
            r#"{"id": 401, "v": 1, "d": 20260131, "x": "a"}"#,
            "column d takes text such as 2026-01-31, not a number",
        ),
        (700, r#"{"id": null, "v": 1, "d": null, "x": "a"}"#, "the row has no key field id"),
        (701, r#"{"id": 701, "v": 1, "d": null, "x": "abcd"}"#, "value too long for type character varying(3)"),
        (999, r#"{"id": 999, "v": 1, "d": null, "x": null}"#, "null value in column \"x\""),
    ];
    let row = |id: usize| match bad.iter().find(|(number, ..)| *number == id) {
        Some((_, row, _)) => (*row).to_owned(),
        None => format!(r#"{{"id": {id}, "v": 1, "d": null, "x": "a"}}"#),
    };
    let rows: Vec<_> = (0..1_000).map(row).collect();
    let found = copy.refuses(&upserts(&rows));
    let numbers: Vec<_> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, bad.map(|(number, ..)| number), "{found:?}");
    for ((_, message), (_, _, words)) in found.iter().zip(&bad) {
        assert!(message.contains(words), "{message}: {words}");
    }
    let good: Vec<_> = (0..1_000).filter(|id| bad.iter().all(|(number, ..)| number != id)).map(row).collect();
    copy.commit(&upserts(&good));
    assert_eq!(copy.database.value("select count(*) from t"), good.len().to_string());
    assert!(copy.statements() < 10, "they went together");
}

/// What a table has of its own sees the same as if rows went one by one.
#[test]
fn tables_that_see_rows_have_them_one_by_one() {
    let plain = "create table t (id int primary key, v int);";
    let audit = "create table audit (n serial, what text);
        create function log() returns trigger language plpgsql as $$ begin
            insert into audit (what) select tg_op || ' ' || tg_when || ' ' || tg_level || ' ' || count(*) from t;
            return new; end $$;
        create trigger a after insert or update on t for each row execute function log();
        create trigger b before insert or update on t for each statement execute function log();";
    let functions = "set check_function_bodies = off; create function few() returns bool language sql stable as 'select count(*) < 3 from t';";
    let tables = [
        (format!("{plain}{audit}"), 0),
        ("create table t (id int primary key, v int references t deferrable);".to_owned(), 0),
        ("create table t (id int primary key, v int, unique (v));".to_owned(), 0),
        ("create table t (id int primary key, v int); create unique index on t (v) where v > 1;".to_owned(), 0),
        (format!("{functions} create table t (id int primary key, v int check (few()));"), 1),
        (format!("{functions} create domain d as int check (few()); create table t (id int primary key, v d);"), 1),
        (format!("{plain} create table heir (w int) inherits (t);"), 0),
        (
            "create table t (id int, v int, primary key (id)) partition by range (id);
            create table p partition of t for values from (0) to (99);"
                .to_owned(),
            0,
        ),
    ];
    for (create, refused) in &tables {
        let mut copy = Copy::new(create, &["id"], &[]);
        let all = upserts(&[1, 2, 3, 4].map(|id| format!(r#"{{"id": {id}, "v": {id}}}"#)));
        if *refused > 0 {
            assert_eq!(copy.refuses(&all).iter().map(|(number, _)| *number).collect::<Vec<_>>(), [3], "{create}");
            continue;
        }
        copy.commit(&all);
        assert_eq!(copy.statements(), 4, "{create}");
    }
    let mut copy = Copy::new(&tables[0].0, &["id"], &[]);
    copy.commit(&numbered(&[1, 2]));
    assert_eq!(copy.database.value("select count(*) from audit where what like '%BEFORE STATEMENT%'"), "4");
    let rows = copy.database.rows("select what from audit where what like '%ROW%' order by n");
    assert_eq!(rows, ["INSERT AFTER ROW 1", "INSERT AFTER ROW 2"]);
}

/// A table becomes one that sees rows while statements for many are prepared.
#[test]
fn table_that_changes_is_noticed_at_once() {
    for change in [
        APART,
        "create unique index on t (v)",
        "alter table t add check (id < 1000)",
        "create table heir () inherits (t)",
        "alter table t enable row level security; alter table t force row level security",
    ] {
        let mut copy = Copy::new("create table t (id int primary key, v int)", &["id"], &[]);
        copy.commit(&numbered(&[1, 2, 3]));
        assert_eq!(copy.statements(), 1);
        copy.database.run(change);
        for _ in 0..2 {
            copy.commit(&numbered(&[1, 2, 3]));
            assert_eq!(copy.statements(), 3, "{change}");
        }
    }
}

/// A column that is widened takes what it takes at once; one of another type is not written by a conversion.
#[test]
fn column_that_changes_is_noticed_at_once() {
    let mut copy = Copy::new("create table t (id int primary key, v varchar(3), n int)", &["id"], &[]);
    let row = |v: &str| upserts(&[format!(r#"{{"id": 1, "v": "{v}", "n": 7}}"#)]);
    copy.commit(&row("abc"));
    copy.database.run("alter table t alter v type varchar(9), alter n type bigint");
    copy.commit(&row("abcdef"));
    assert_eq!(copy.database.rows("select * from t"), ["1|abcdef|7"]);
    copy.database.run("alter table t alter n type text");
    let failed = copy.task.commit(&mut *copy.session, &row("abc")).expect_err("it is out of date");
    assert!(matches!(&failed, CommitError::Held(error) if error.message.contains("types")), "{failed:?}");
    copy.commit(&row("abc"));
    assert_eq!(copy.database.rows("select * from t"), ["1|abc|7"]);
}

/// A table that is dropped and made again is not written into nothing.
#[test]
fn table_that_is_made_anew_is_written() {
    let create = "create table t (id int primary key, v int)";
    let mut copy = Copy::new(create, &["id"], &[]);
    copy.commit(&numbered(&[1, 2, 3]));
    copy.database.run(&format!("drop table t; {create}"));
    copy.commit(&numbered(&[4, 5, 6]));
    assert_eq!(copy.database.rows("select id from t order by id"), ["4", "5", "6"]);
}

/// However many rows there are, and however large, a statement has a bounded number of them.
#[test]
fn statements_have_bounded_rows_and_bytes() {
    let mut copy = Copy::new("create table t (id int primary key, v text)", &["id"], &[]);
    let small: Vec<_> = (0..70_000).map(|id| format!(r#"{{"id": {id}, "v": ""}}"#)).collect();
    copy.commit(&upserts(&small));
    assert_eq!(copy.statements(), 70_000_usize.div_ceil(256));
    let large = "x".repeat(300_000);
    let rows: Vec<_> = (0..20).map(|id| format!(r#"{{"id": {id}, "v": "{large}"}}"#)).collect();
    copy.database.run("truncate t");
    copy.commit(&upserts(&rows));
    assert_eq!(copy.statements(), 7, "three to a mebibyte");
    let huge = format!(r#"{{"id": 99, "v": "{}"}}"#, "x".repeat(3 << 20));
    copy.commit(&upserts(&[huge.clone(), huge.replace("99", "98")]));
    assert_eq!(copy.database.value("select count(*) from t"), "22");
}
