//! Rows of a table that are carried out together: the same as one by one, whatever the table and the rows are.

use rand::rngs::SmallRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};
use ratchet::effect::postgres::Statement;
use ratchet::effect::{Effects, Session};

use crate::database::Database;
use crate::task::{Calls, Task, effects, rejected, session, settings_of, sql};

const UNAVAILABLE: &str = "__debezium_unavailable_value";
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
    let seen = ["UPDATE BEFORE STATEMENT 0", "INSERT BEFORE STATEMENT 0", "INSERT AFTER ROW 1"];
    assert_eq!(copy.database.rows("select what from audit order by n")[..3], seen);
    assert_eq!(copy.database.value("select count(*) from audit where what like '%ROW%'"), "2");
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

/// Types as columns may have them.
const TYPES: [&str; 53] = [
    "smallint",
    "int",
    "bigint",
    "real",
    "float8",
    "numeric",
    "numeric(4,2)",
    "text",
    "varchar",
    "varchar(3)",
    "char(3)",
    "char",
    "\"char\"",
    "name",
    "bool",
    "uuid",
    "date",
    "time",
    "time(0)",
    "timetz",
    "timetz(1)",
    "timestamp",
    "timestamp(0)",
    "timestamptz",
    "timestamptz(3)",
    "interval",
    "interval(0)",
    "interval hour",
    "json",
    "jsonb",
    "jsonpath",
    "bytea",
    "inet",
    "cidr",
    "macaddr",
    "bit",
    "bit(3)",
    "varbit",
    "varbit(3)",
    "money",
    "point",
    "box",
    "int4range",
    "tsvector",
    "oid",
    "regclass",
    "pg_lsn",
    "mood",
    "short",
    "text[]",
    "int[]",
    "bytea[]",
    "timestamp(0)[]",
];
/// Values as records may have them.
const VALUES: [&str; 57] = [
    "1",
    "-1",
    "0",
    "-0",
    "1.5",
    "99.995",
    "100",
    "1e2",
    "1E-2",
    "123456789012345678901234567890.5",
    "70000",
    "\"1\"",
    "\" 1 \"",
    "\"01\"",
    "\"0x1F\"",
    "\"1.005\"",
    "\"NaN\"",
    "\"Infinity\"",
    "\"abc\"",
    "\"abcd\"",
    "\"abc   \"",
    "\"\"",
    "\"\\u00fc\\n\\\"\\\\\\/\"",
    "\"\\ud83d\\ude00\"",
    "\"\\ud83d\"",
    "\"a\\u0000b\"",
    "true",
    "false",
    "\"t\"",
    "\"no\"",
    "null",
    "\"null\"",
    "\"2026-01-31\"",
    "\"2026-01-31T10:00:00.65Z\"",
    "\"10:00:00.65\"",
    "\"10:00:00.65+02\"",
    "\"infinity\"",
    "\"1 day 02:00:00.65\"",
    "\"0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab\"",
    "{}",
    "{ \"a\" : [ 1.10 , \"x\" ] }",
    "[]",
    "[1, 2]",
    "[\"a b\", null]",
    "\"{}\"",
    "\"[1, 2]\"",
    "\"{1,2}\"",
    "\"AP8=\"",
    "\"\\\\x00ff\"",
    "\"10.0.0.1/8\"",
    "\"08:00:2b:01:02:03\"",
    "\"101\"",
    "\"$1.50\"",
    "\"(1,2)\"",
    "\"[1,5)\"",
    "\"sad\"",
    "\"pg_class\"",
];

/// Whatever the type and the value: the same row together and one by one, or the same words.
#[test]
fn values_of_all_types_are_read_the_same() {
    let mut create = "create type mood as enum ('sad', 'glad'); create domain short as varchar(3);
        create function f() returns trigger language plpgsql as $$ begin return new; end $$;"
        .to_owned();
    let mut statements = Vec::new();
    for (number, kind) in TYPES.iter().enumerate() {
        for (name, more) in
            [("t", ""), ("u", "create trigger g before update on u# for each row execute function f();")]
        {
            create += &format!("create table {name}{number} (id int primary key, v {kind}, after text); ");
            create += &more.replace('#', &number.to_string());
            let (table, key) = (format!("{name}{number}"), vec!["id".to_owned()]);
            statements.push(Statement::Upsert { table, key, columns: None });
        }
    }
    let database = Database::with(&create);
    let mut session = session(&settings_of(&database.url, statements));
    let mut task = Task::claim(&mut *session, 0);
    let mut written = 0;
    for (number, kind) in TYPES.iter().enumerate() {
        for (id, value) in VALUES.iter().enumerate() {
            let row = format!(r#"{{"id": {id}, "other": [1, {{"v": 2}}], "v": {value}, "after": "x"}}"#);
            let mut tried = |statement: usize| {
                let done = task.commit(&mut *session, &effects(&[&[(statement as u32, &[&row])]]));
                done.map(drop).map_err(|failed| format!("{failed:?}"))
            };
            let [together, apart] = [tried(2 * number), tried(2 * number + 1)];
            let apart = apart.map_err(|message| message.replace(&format!("u{number}"), &format!("t{number}")));
            assert_eq!(together, apart, "{kind} {value}");
            written += usize::from(together.is_ok());
        }
        let rows = |table: &str| database.rows(&format!("select id, v::text, after from {table}{number} order by id"));
        assert_eq!(rows("t"), rows("u"), "{kind}");
    }
    println!("{written} of {} were written", TYPES.len() * VALUES.len());
    assert!(written > 600, "{written}");
}

/// A field as the change of a row may have it: missing, null, unchanged, a number, a text, or what no column takes.
fn field(random: &mut SmallRng, name: &str) -> String {
    let values = match name {
        "a" => ["1", "\"1\"", "1.25", "null", "", "\"12345678901234567890\""],
        "b" => ["\"text\"", "7", "true", "null", "", "\"\\u00fc\\n\""],
        "c" => ["{\"k\": [1.10]}", "\"{}\"", "[1, null]", "null", "", "3"],
        "f" => ["\"AP8=\"", "\"\\\\x01\"", "null", "", "\"\"", "null"],
        "d" => ["\"2026-01-31T10:00:00Z\"", "\"2026-02-01T10:00:00+02:00\"", "null", "", "", "null"],
        _ => ["[\"x\", null]", "\"{a,b}\"", "[]", "null", "", "[]"],
    };
    let value = match random.random_range(0..100) {
        0..4 => format!("\"{UNAVAILABLE}\""),
        // Refused by the column that takes no text, or for its precision.
        4 if name == "a" => ["\"x\"", "1e30"].choose(random).expect("there are some").to_string(),
        _ => (*values.choose(random).expect("there are some")).to_owned(),
    };
    if value.is_empty() { String::new() } else { format!(", \"{name}\": {value}") }
}

/// Random changes of few keys end in the same rows, carried out together and one by one, and so do those that the table
/// refuses.
#[test]
fn together_is_the_same_as_one_by_one() {
    let seed: u64 = rand::random();
    println!("seed {seed}");
    let mut random = SmallRng::seed_from_u64(seed);
    let (mut together, mut bundles) = (0, 0);
    let arrays = "create table t (id int, k text, a numeric(30, 2), b text, c jsonb default '{\"d\": 1}', d timestamptz(0), \
                  e text[], n int default 5, primary key (id, k))";
    let create = |round: usize| if round % 2 == 0 { arrays.to_owned() } else { arrays.replace("e text[]", "f bytea") };
    for round in 0..8 {
        let create = create(round);
        let mut copies =
            [Copy::new(create, &["id", "k"], &[]), Copy::new(&format!("{create}; {APART}"), &["id", "k"], &[])];
        let keys = [2, 8, 40, 200][round / 2 % 4];
        for _ in 0..12 {
            let mut changes = Vec::new();
            for _ in 0..random.random_range(1..80) {
                let id = random.random_range(0..keys);
                let id = if random.random_range(0..40) == 0 { format!("\"0{id}\"") } else { id.to_string() };
                let mut row = format!("{{\"id\": {id}, \"k\": \"{}\"", ["a", "A"][random.random_range(0..2)]);
                let delete = random.random_range(0..5) == 0;
                let is_whole = random.random_range(0..3) > 0;
                for name in ["a", "b", "c", "d", ["e", "f"][round % 2]] {
                    let given = field(&mut random, name);
                    let null = if is_whole { format!(", \"{name}\": null") } else { String::new() };
                    row += if given.is_empty() { &null } else { &given };
                }
                row.push('}');
                changes.push((u32::from(delete), row));
            }
            let mut left = changes.clone();
            let mut said = Vec::new();
            // As the engine does: what is refused is left out.
            for copy in &mut copies {
                left.clone_from(&changes);
                let mut refused = Vec::new();
                loop {
                    let calls: Vec<_> = left.iter().map(|(statement, row)| (*statement, [row.as_str()])).collect();
                    let calls: Vec<[(u32, &[&str]); 1]> =
                        calls.iter().map(|(statement, row)| [(*statement, &row[..])]).collect();
                    let all = effects(&calls.iter().map(|calls| &calls[..]).collect::<Vec<_>>());
                    let Err(failed) = copy.task.commit(&mut *copy.session, &all) else { break };
                    for (number, message) in rejected(failed).into_iter().rev() {
                        refused.push((left.remove(number), message));
                    }
                }
                said.push((refused, copy.database.rows("select * from t order by id, k collate \"C\"")));
            }
            assert_eq!(said[0], said[1], "seed {seed}: {changes:?}");
            together += copies[1].statements();
            bundles += copies[0].statements();
        }
    }
    println!("{bundles} statements in place of {together}");
    assert!(bundles < together, "some went together");
}
