//! Statements that name a table: a stream of changes becomes a table.

use ratchet::effect::{CommitError, ErrorKind, Session};
use ratchet::postgres::{Settings, Statement};

use crate::database::Database;
use crate::postgres::task::{Task, effects, rejected, session, settings_of};

const UNAVAILABLE: &str = "__debezium_unavailable_value";
/// What Java's `UUID.nameUUIDFromBytes` makes of it.
const UNAVAILABLE_UUID: &str = "b68a35a7-17ad-35b3-af2a-ae46edb4545a";
const UNAVAILABLE_BASE64: &str = "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==";

fn strings(names: &[&str]) -> Vec<String> {
    names.iter().map(ToString::to_string).collect()
}

/// A table that is written by upserts (statement 0), deletes (1) and truncates (2).
struct Replica {
    database: Database,
    session: Box<dyn Session>,
    task: Task,
}

impl Replica {
    fn new(create: &str, table: &str, key: &[&str], columns: Option<&[&str]>) -> Replica {
        let database = Database::with(create);
        let (table, key, columns) = (table.to_owned(), strings(key), columns.map(strings));
        let statements = vec![
            Statement::Upsert { table: table.clone(), key: key.clone(), columns },
            Statement::DeleteRow { table: table.clone(), key },
            Statement::Truncate { table },
        ];
        let settings = settings_of(&database.url, statements);
        let mut session = session(&settings);
        let task = Task::claim(&mut *session, 0);
        Replica { database, session, task }
    }

    fn carry_out(&mut self, changes: &[(u32, &str)]) -> Result<(), CommitError> {
        let mut all = effects(&[]);
        for (number, (statement, row)) in changes.iter().enumerate() {
            all.begin(number as i64, number.to_string().as_bytes(), None);
            all.call(*statement);
            if *statement != 2 {
                all.parameter(Some(row));
            }
        }
        self.task.commit(&mut *self.session, &all).map(drop)
    }

    #[track_caller]
    fn upsert(&mut self, row: &str) {
        self.carry_out(&[(0, row)]).unwrap_or_else(|failed| panic!("{row}: {failed:?}"));
    }

    #[track_caller]
    fn rejects(&mut self, statement: u32, row: &str) -> String {
        let failed = self.carry_out(&[(statement, row)]).expect_err("it is refused");
        rejected(failed).remove(0).1
    }
}

/// Inserts, updates, deletes, truncates, in their order.
#[test]
fn changes_make_a_table() {
    let mut replica = Replica::new("create table t (id int primary key, v text)", "t", &["id"], None);
    let changes = [
        (0, r#"{"id": 1, "v": "a"}"#),
        (0, r#"{"id": 2, "v": "b"}"#),
        (0, r#"{"id": 1, "v": "c", "not there": 1}"#),
        (1, r#"{"id": 2, "v": "b"}"#),
        (1, r#"{"id": 3}"#),
        (0, r#"{"id": 4, "v": null}"#),
    ];
    replica.carry_out(&changes).expect("they are carried out");
    assert_eq!(replica.database.rows("select * from t order by id"), ["1|c", "4|-"]);
    replica.carry_out(&[(0, r#"{"id": 5}"#), (2, ""), (0, r#"{"id": 6, "v": "d"}"#)]).expect("they are carried out");
    assert_eq!(replica.database.rows("select * from t"), ["6|d"]);
}

/// Listed columns are written, others have their defaults and are left alone.
#[test]
fn only_listed_columns_are_written() {
    let create = "create table t (id int primary key, v text, own text default 'mine')";
    let mut replica = Replica::new(create, "t", &["id"], Some(&["id", "v"]));
    replica.upsert(r#"{"id": 1, "v": "a", "own": "theirs"}"#);
    replica.database.run("update t set own = 'changed'");
    replica.upsert(r#"{"id": 1, "v": "b", "own": "theirs"}"#);
    assert_eq!(replica.database.rows("select * from t"), ["1|b|changed"]);
}

/// Every type gets its text, exactly, also from JSON's own values.
#[test]
fn values_of_all_types_arrive_exactly() {
    let create = "create type mood as enum ('sad', 'glad'); create type pair as (a int, b text);
        create domain short as varchar(3); create domain doc as jsonb;
        create table t (id bigint primary key, n numeric, f float8, m mood, u uuid, ts timestamptz(3), d date, iv interval,
            j json, jb jsonb, dj doc, a text[], aa int[], p pair, b bytea, bs bytea[], s short, c char(4), bits bit(3),
            r int4range, ip inet, o bool, x varchar(5))";
    let mut replica = Replica::new(create, "t", &["id"], None);
    let row = r#"{"id": 9223372036854775807, "n": 12345678901234567890.10, "f": 1e-300, "m": "glad",
        "u": "0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab", "ts": "2026-01-02T03:04:05.678Z", "d": "2026-02-28", "iv": "1 day 02:00",
        "j": "{\"b\": 1.50,  \"a\": []}", "jb": {"k": [1.10, "x"]}, "dj": "{\"q\": null}", "a": ["a b", null, "ü"],
        "aa": "{1,2}", "p": {"a": 1, "b": "two"}, "b": "AP8=", "bs": ["AP8=", "\\x01"], "s": "abc", "c": "ab",
        "bits": "101", "r": "[1,5)", "ip": "10.0.0.1/8", "o": true, "x": "\"\\\n'"}"#;
    replica.upsert(row);
    replica.upsert(row);
    replica.database.run("set timezone = 'UTC'");
    let expected = "9223372036854775807|12345678901234567890.10|1e-300|glad|0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab|\
        2026-01-02 03:04:05.678+00|2026-02-28|1 day 02:00:00|{\"b\": 1.50,  \"a\": []}|{\"k\": [1.10, \"x\"]}|{\"q\": null}|\
        {\"a b\",NULL,ü}|{1,2}|(1,two)|\\x00ff|{\"\\\\x00ff\",\"\\\\x01\"}|abc|ab  |101|[1,5)|10.0.0.1/8|t|\"\\\n'";
    assert_eq!(replica.database.rows("select * from t"), [expected]);
}

/// What does not fit is refused, never cut off.
#[test]
fn what_does_not_fit_is_refused() {
    let create = "create domain short as varchar(3); create table t (id int primary key, x varchar(5), s short, c char(2), \
                  bits bit(3), n numeric(4, 2), e json)";
    let mut replica = Replica::new(create, "t", &["id"], None);
    for (row, words) in [
        (r#"{"id": 1, "x": "abcdef"}"#, "too long"),
        (r#"{"id": 1, "s": "abcd"}"#, "too long"),
        (r#"{"id": 1, "c": "abc"}"#, "too long"),
        (r#"{"id": 1, "bits": "1011"}"#, "bit string length 4"),
        (r#"{"id": 1, "n": 100}"#, "numeric field overflow"),
        (r#"{"id": 2147483648}"#, "out of range"),
        (r#"{"id": 1.5}"#, "invalid input syntax"),
        (r#"{"id": 1, "e": "{"}"#, "invalid input syntax"),
        (r#"{"id": 1, "x": "a\u0000"}"#, "22"),
        (r#"{"id": 1"#, "json"),
        ("[]", "22"),
        ("null", "key field id"),
        (r#"{"x": "a"}"#, "no key field id"),
        (r#"{"id": null}"#, "no key field id"),
    ] {
        let message = replica.rejects(0, row);
        assert!(message.contains(words), "{row}: {message}");
    }
    assert!(replica.rejects(1, r#"{"x": "a"}"#).contains("no key field id"));
    assert_eq!(replica.database.value("select count(*) from t"), "0");
}

/// Numbers are days, milliseconds or microseconds, and would be read as something else.
#[test]
fn number_for_a_time_is_refused() {
    let create = "create domain day as date; create table t (id int primary key, d day, t time, tz timetz, ts timestamp, \
                  tsz timestamptz, iv interval, ds date[])";
    let mut replica = Replica::new(create, "t", &["id"], None);
    let numbers =
        [("d", "20260131"), ("t", "123045"), ("tz", "1"), ("ts", "1767323045678"), ("tsz", "1"), ("iv", "86400000000")];
    for (column, number) in numbers {
        let message = replica.rejects(0, &format!(r#"{{"id": 1, "{column}": {number}}}"#));
        assert!(message.contains("not a number") || message.contains("(22"), "{column}: {message}");
    }
    assert!(replica.rejects(0, r#"{"id": 1, "iv": 86400000000}"#).contains("column iv takes text"));
    assert!(replica.rejects(0, r#"{"id": 1, "ds": ["2026-01-31", 20260131]}"#).contains("column ds takes text"));
    replica.upsert(r#"{"id": 1, "d": "2026-01-31", "iv": null, "ds": ["2026-01-31", null]}"#);
    assert_eq!(replica.database.rows("select d, iv from t"), ["2026-01-31|-"]);
}

/// What Debezium says is unchanged keeps what is there, whatever the type, also where the column must not be null.
#[test]
fn unchanged_large_values_are_kept() {
    let create = "create table t (id int primary key, x text not null, j jsonb not null, b bytea not null, a text[] not null, \
                  bs bytea[], n numeric not null, v int)";
    let mut replica = Replica::new(create, "t", &["id"], None);
    replica.upsert(r#"{"id": 1, "x": "large", "j": "{}", "b": "AP8=", "a": ["a"], "bs": ["AQ=="], "n": 1.5, "v": 1}"#);
    let unchanged = format!(
        r#"{{"id": 1, "x": "{UNAVAILABLE}", "j": "{UNAVAILABLE}", "b": "{UNAVAILABLE_BASE64}", "a": [ "{UNAVAILABLE}" ],
            "bs": ["{UNAVAILABLE_BASE64}"], "n": "{UNAVAILABLE}", "v": 2}}"#
    );
    replica.upsert(&unchanged);
    assert_eq!(replica.database.rows("select * from t"), ["1|large|{}|\\x00ff|{a}|{\"\\\\x01\"}|1.5|2"]);
    // Arrays of numbers and of uuids, and hstore, have placeholders of their own.
    let bytes: Vec<String> = UNAVAILABLE.bytes().map(|byte| byte.to_string()).collect();
    let create = "create table t (id int primary key, i int[] not null, l bigint[], u uuid[], h text, v int)";
    let mut arrays = Replica::new(create, "t", &["id"], None);
    let uuid = "0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab";
    arrays.upsert(&format!(r#"{{"id": 1, "i": [95], "l": [1, 2], "u": ["{uuid}"], "h": "{{}}", "v": 1}}"#));
    arrays.upsert(&format!(
        r#"{{"id": 1, "i": [{}], "l": [{}], "u": ["{UNAVAILABLE_UUID}"], "h": "{{\"{UNAVAILABLE}\":\"{UNAVAILABLE}\"}}", "v": 2}}"#,
        bytes.join(","),
        bytes.join(", ")
    ));
    assert_eq!(arrays.database.rows("select * from t"), [format!("1|{{95}}|{{1,2}}|{{{uuid}}}|{{}}|2")]);
    // The base64 text is a placeholder only where a column holds bytes.
    replica.upsert(&format!(r#"{{"id": 1, "x": "{UNAVAILABLE_BASE64}"}}"#));
    assert_eq!(replica.database.value("select x from t"), UNAVAILABLE_BASE64);
}

/// Where no row has an unchanged value, nobody knows it: the change is refused, also where the column may be null or has
/// a default. (A new primary key makes such a change.)
#[test]
fn unchanged_large_value_without_a_row_is_refused() {
    let create = "create table t (id int primary key, x text, b bytea default '', a text[], v int, other text)";
    let mut replica = Replica::new(create, "t", &["id"], Some(&["id", "x", "b", "a", "v"]));
    let row = |id: i32, field: &str| format!(r#"{{"id": {id}, "v": 1, "other": "{UNAVAILABLE}"{field}}}"#);
    let (text, bytes) = (format!(r#", "x": "{UNAVAILABLE}""#), format!(r#", "b": "{UNAVAILABLE_BASE64}""#));
    let list = format!(r#", "a": ["{UNAVAILABLE}"]"#);
    for (fields, words) in [
        (text.clone(), "REPLICA IDENTITY FULL sends it): x ("),
        (bytes.clone(), "sends it): b ("),
        (list.clone(), "sends it): a ("),
        (format!("{text}{bytes}{list}"), "sends it): x, b, a ("),
    ] {
        let message = replica.rejects(0, &row(1, &fields));
        assert!(message.contains(words), "{message}");
    }
    // Others that hold the words are whole, and so is one whose placeholder is not written.
    for (id, fields) in [(2, String::new()), (3, format!(r#", "x": "it says {UNAVAILABLE}""#))] {
        replica.upsert(&row(id, &fields));
    }
    assert_eq!(replica.database.value("select string_agg(id::text, ',' order by id) from t"), "2,3");
    replica.upsert(&row(3, &text));
    assert_eq!(replica.database.value("select x from t where id = 3"), format!("it says {UNAVAILABLE}"));
}

/// Missing fields keep what is there, or have the column's default; null is null.
#[test]
fn missing_fields_are_kept_or_defaulted() {
    let create = "create table t (id int primary key, a text default 'd', b int not null default 7, c text)";
    let mut replica = Replica::new(create, "t", &["id"], None);
    replica.upsert(r#"{"id": 1}"#);
    replica.upsert(r#"{"id": 2, "a": null, "b": 8, "c": "x"}"#);
    replica.upsert(r#"{"id": 2, "b": 9}"#);
    assert_eq!(replica.database.rows("select * from t order by id"), ["1|d|7|-", "2|-|9|x"]);
    replica.upsert(r#"{"id": 2, "c": null}"#);
    assert_eq!(replica.database.rows("select * from t where id = 2"), ["2|-|9|-"]);
    assert!(replica.rejects(0, r#"{"id": 2, "b": null}"#).contains("null value"));
}

/// Generated columns are left to the database; identities are written as they come.
#[test]
fn generated_columns_and_identities_work() {
    let create = "create table t (id int generated always as identity primary key, v int, \
                  twice int generated always as (v * 2) stored, n int generated by default as identity)";
    let mut replica = Replica::new(create, "t", &["id"], None);
    replica.upsert(r#"{"id": 5, "v": 1, "twice": 99, "n": 70}"#);
    replica.upsert(r#"{"id": 5, "v": 2, "twice": 99}"#);
    replica.upsert(r#"{"id": 6, "v": 3}"#);
    assert_eq!(replica.database.rows("select * from t order by id"), ["5|2|4|70", "6|3|6|1"]);
}

/// Keys of several columns, names that need quotes, in a schema of its own.
#[test]
fn composite_keys_and_odd_names_work() {
    let create = "create schema \"Odd.Schema\"; create table \"Odd.Schema\".\"t \"\"quoted\"\" 'one'\" \
                  (\"Key A\" text, \"b'\\c\" int, \"v \"\"x\"\" $1\" text, j text, primary key (\"b'\\c\", \"Key A\"))";
    let table = "\"Odd.Schema\".\"t \"\"quoted\"\" 'one'\"";
    let mut replica = Replica::new(create, table, &["Key A", "b'\\c"], None);
    replica.upsert(r#"{"Key A": "a", "b'\\c": 1, "v \"x\" $1": "one", "j": "1"}"#);
    replica.upsert(r#"{"Key A": "a", "b'\\c": 1, "v \"x\" $1": "two"}"#);
    replica.upsert(r#"{"Key A": "b", "b'\\c": 1, "v \"x\" $1": "three"}"#);
    let all = format!("select * from {table} order by 1");
    assert_eq!(replica.database.rows(&all), ["a|1|two|1", "b|1|three|-"]);
    replica.carry_out(&[(1, r#"{"Key A": "a", "b'\\c": 1}"#)]).expect("it is deleted");
    assert_eq!(replica.database.rows(&all), ["b|1|three|-"]);
}

/// A table that is nothing but its key.
#[test]
fn table_of_nothing_but_its_key_works() {
    let mut replica = Replica::new("create table t (a int, b int, primary key (a, b))", "t", &["a", "b"], None);
    for _ in 0..2 {
        replica.upsert(r#"{"a": 1, "b": 2}"#);
    }
    assert_eq!(replica.database.rows("select * from t"), ["1|2"]);
}

/// A row that another writer has inserted at the same moment is updated, with what is missing kept.
#[test]
fn row_that_comes_in_between_is_updated() {
    let mut replica = Replica::new("create table t (id int primary key, a text, b text)", "t", &["id"], None);
    let other = replica.database.session();
    other.run("begin; insert into t values (1, 'other', 'kept')");
    let url = replica.database.url.clone();
    let watch = crate::database::Admin::connect(&url);
    let committing = std::thread::spawn(move || {
        replica.upsert(r#"{"id": 1, "a": "mine"}"#);
        replica
    });
    crate::until::within(crate::until::DEADLINE, "the upsert to wait", || {
        let waiting =
            "select count(*) from pg_stat_activity where wait_event_type = 'Lock' and datname = current_database()";
        (watch.rows(waiting) == ["1"]).then_some(())
    });
    other.run("commit");
    let replica = committing.join().expect("it is updated");
    assert_eq!(replica.database.rows("select * from t"), ["1|mine|kept"]);
}

/// A table or a column that is not there needs a person.
#[test]
fn unknown_tables_and_columns_are_named() {
    let database = Database::with("create table t (id int primary key)");
    for (table, columns, words) in [
        ("nowhere", vec!["id"], "no table nowhere"),
        ("T", vec!["id"], "no table T"),
        ("t", vec!["id", "gone"], "no column gone"),
    ] {
        let upsert =
            Statement::Upsert { table: table.to_owned(), key: strings(&["id"]), columns: Some(strings(&columns)) };
        let settings = Settings { statements: vec![upsert], ..settings_of(&database.url, vec![]) };
        let mut session = session(&settings);
        let mut task = Task::claim(&mut *session, 0);
        let failed = task.commit(&mut *session, &effects(&[&[(0, &["{}"])]])).expect_err("it is not there");
        let CommitError::Held(error) = failed else { panic!("{failed:?}") };
        assert_eq!(error.kind, ErrorKind::Permanent);
        assert!(error.message.contains(words) && error.message.contains("upsert into"), "{error}");
    }
}
