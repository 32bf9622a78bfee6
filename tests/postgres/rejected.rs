//! Records that the database refuses.

use ratchet::effect::{CommitError, ErrorKind, Rejected};
use ratchet::postgres::{Settings, Statement};

use crate::database::{Database, shared};
use crate::postgres::proxy::Proxy;
use crate::postgres::task::{Redos, Task, each, effects, rejected, session, settings, settings_of, sql, with_inbox};

/// Commits records of which the second and the last are refused, and checks that these are named, with these words, and
/// that the others can be committed without them.
#[track_caller]
fn refuses(tables: &str, insert: &str, good: [&str; 2], bad: [&str; 2], words: &str) {
    let database = Database::with(tables);
    let mut session = session(&settings(&database, &[(insert, 1)]));
    let mut task = Task::claim(&mut *session, 0);
    let failed = task.commit(&mut *session, &each(&[good[0], bad[0], good[1], bad[1]])).expect_err("two are refused");
    let found = rejected(failed);
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 3], "{found:?}");
    assert!(found.iter().all(|(_, message)| message.contains(words)), "{found:?}");
    assert_eq!(database.value("select count(*) from t"), "0");
    assert_eq!(task.commit(&mut *session, &each(&good)), Ok(vec![]));
    assert_eq!(database.value("select count(*) from t"), "2");
}

#[test]
fn what_is_no_number() {
    refuses("create table t (v int)", "insert into t values ($1)", ["1", "2"], ["one", ""], "invalid input syntax");
}

#[test]
fn number_beyond_the_column() {
    let (big, bigger) = ("2147483648", "99999999999999999999");
    refuses("create table t (v int)", "insert into t values ($1)", ["1", "2147483647"], [big, bigger], "out of range");
    let insert = "insert into t values ($1)";
    refuses("create table t (v numeric(4, 2))", insert, ["99.99", "1"], ["100", "1e9"], "numeric field overflow");
}

#[test]
fn text_that_is_too_long() {
    let words = "value too long";
    refuses("create table t (v varchar(3))", "insert into t values ($1)", ["abc", ""], ["abcd", "abcdef"], words);
}

#[test]
fn null_into_not_null() {
    let words = "null value in column \"v\"";
    refuses("create table t (v int not null)", "insert into t values ($1)", ["1", "2"], ["NULL", "NULL"], words);
}

#[test]
fn unknown_label_of_an_enum() {
    let tables = "create type mood as enum ('sad', 'glad'); create table t (v mood)";
    refuses(tables, "insert into t values ($1)", ["sad", "glad"], ["mad", ""], "invalid input value for enum");
}

#[test]
fn zero_byte_in_a_text() {
    refuses("create table t (v text)", "insert into t values ($1)", ["a", "b"], ["a\0b", "\0"], "0x00");
}

#[test]
fn broken_json_and_uuid() {
    refuses("create table t (v jsonb)", "insert into t values ($1)", ["{}", "1"], ["{", "\"\\u0000\""], "2");
    let uuid = "0b5a7b4e-6f3e-4c1e-9d2a-0123456789ab";
    refuses("create table t (v uuid)", "insert into t values ($1)", [uuid, uuid], ["x", "0b5a"], "uuid");
}

#[test]
fn check_constraint() {
    let tables = "create table t (v int check (v > 0))";
    refuses(tables, "insert into t values ($1)", ["1", "2"], ["0", "-1"], "violates check constraint");
}

#[test]
fn foreign_key() {
    let tables =
        "create table p (id int primary key); insert into p values (1), (2); create table t (v int references p)";
    refuses(tables, "insert into t values ($1)", ["1", "2"], ["3", "4"], "violates foreign key constraint");
}

#[test]
fn duplicate_of_a_unique_key() {
    let tables = "create table t (v int unique)";
    refuses(tables, "insert into t values ($1)", ["1", "2"], ["1", "2"], "already exists");
}

#[test]
fn exception_of_a_trigger() {
    let tables = "create table t (v int);
        create function f() returns trigger language plpgsql as $$ begin
            if new.v < 0 then raise exception 'no debts, please'; end if; return new; end $$;
        create trigger g before insert on t for each row execute function f()";
    refuses(tables, "insert into t values ($1)", ["1", "2"], ["-1", "-2"], "no debts, please");
}

/// The number of the statement, and of the parameter whose text cannot be read.
#[test]
fn statement_and_parameter_are_named() {
    let database = Database::with("create table t (a text, v int check (v > 0))");
    let settings = settings(&database, &[("insert into t values ($1)", 1), ("insert into t values ($1, $2)", 2)]);
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    for (value, words) in [
        ("one", "statement 2: parameter $2: invalid input syntax for type integer: \"one\" (22P02)"),
        ("0", "statement 2: new row for relation \"t\" violates check constraint"),
    ] {
        let failed = task.commit(&mut *session, &effects(&[&[(0, &["a"]), (1, &["a", value])]]));
        let found = rejected(failed.expect_err("it is refused"));
        assert!(found[0].1.starts_with(words), "{found:?}");
    }
}

/// Constraints that are only checked at COMMIT cannot say which record it was, unless there is only one.
#[test]
fn deferred_foreign_key_refuses_the_transaction() {
    let database = Database::with(
        "create table p (id int primary key); create table t (v int references p deferrable initially deferred)",
    );
    let mut session = session(&settings(&database, &[("insert into t values ($1)", 1)]));
    let mut task = Task::claim(&mut *session, 0);
    let failed = task.commit(&mut *session, &each(&["1", "2"])).expect_err("there is no such parent");
    assert!(matches!(&failed, CommitError::Refused(message) if message.contains("23503")), "{failed:?}");
    let found = rejected(task.commit(&mut *session, &each(&["1"])).expect_err("nor is there this one"));
    assert_eq!(found.len(), 1, "{found:?}");
    assert_eq!(database.value("select count(*), (select count(token) from ratchet.position) from t"), "0|0");
    database.run("insert into p values (1)");
    assert_eq!(task.commit(&mut *session, &each(&["1"])), Ok(vec![]));
}

/// A trigger of the user's that waits for the commit, with an SQLSTATE of its own.
#[test]
fn deferred_trigger_refuses_the_transaction() {
    let database = Database::with(
        "create table t (v int);
         create function f() returns trigger language plpgsql as $$ begin
            if new.v < 0 then raise exception 'no debts' using errcode = 'U0001'; end if; return null; end $$;
         create constraint trigger g after insert on t initially deferred for each row execute function f()",
    );
    let mut session = session(&settings(&database, &[("insert into t values ($1)", 1)]));
    let mut task = Task::claim(&mut *session, 0);
    let failed = task.commit(&mut *session, &each(&["1", "-1"])).expect_err("one is refused");
    assert!(matches!(&failed, CommitError::Refused(message) if message.contains("no debts")), "{failed:?}");
    assert_eq!(rejected(task.commit(&mut *session, &each(&["-1"])).expect_err("it is")).len(), 1);
    assert_eq!(task.commit(&mut *session, &each(&["1"])), Ok(vec![]));
}

/// Each of a thousand, with few round trips.
#[test]
fn three_of_a_thousand_are_found_in_few_round_trips() {
    let database = Database::with("create table t (v int)");
    let proxy = Proxy::start(shared().port.number());
    let url = format!("postgres://postgres@127.0.0.1:{}/{}?sslmode=disable", proxy.port, database.name);
    let mut session = session(&settings_of(&url, vec![sql("insert into t values ($1)", 1)]));
    let mut task = Task::claim(&mut *session, 0);
    task.commit(&mut *session, &each(&["0"])).expect("it is right");
    let bad = |number: usize| [0, 500, 999].contains(&number);
    let values: Vec<_> = (0..1_000).map(|n| if bad(n) { "x".to_owned() } else { n.to_string() }).collect();
    let before = proxy.round_trips();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let found = rejected(task.commit(&mut *session, &each(&values)).expect_err("three are refused"));
    let round_trips = proxy.round_trips() - before;
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 500, 999]);
    println!("round trips: {round_trips}");
    // A part of what was sent may be answered while the rest is on its way, so this counts more than are waited for.
    assert!(round_trips < 60, "{round_trips}");
    assert_eq!(database.value("select count(*) from t"), "1");
}

/// Where all are refused, all are named.
#[test]
fn all_of_many_are_found() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[("insert into t values ($1)", 1)]));
    let mut task = Task::claim(&mut *session, 0);
    let found = rejected(task.commit(&mut *session, &each(&["x"; 300])).expect_err("all are refused"));
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), (0..300).collect::<Vec<_>>());
}

/// A record that depends on a refused one is refused as well, and a record's statements stand and fall together.
#[test]
fn what_depends_on_a_refused_record_is_refused_too() {
    let database =
        Database::with("create table p (id int primary key check (id <> 2)); create table t (v int references p)");
    let statements = [("insert into p values ($1)", 1), ("insert into t values ($1)", 1)];
    let mut session = session(&settings(&database, &statements));
    let mut task = Task::claim(&mut *session, 0);
    let all = effects(&[&[(0, &["1"])], &[(0, &["3"]), (0, &["2"])], &[(1, &["1"])], &[(1, &["2"])], &[(1, &["3"])]]);
    let found = rejected(task.commit(&mut *session, &all).expect_err("three are refused"));
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 3, 4], "{found:?}");
}

/// Records of several steps are named by their steps.
#[test]
fn refused_records_are_named_by_their_steps() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[("insert into t values ($1)", 1)]));
    let (one, other) = (Task::claim(&mut *session, 1), Task::claim(&mut *session, 0));
    let (first, second) = (each(&["1", "x"]), each(&["y", "2"]));
    let failed = session.commit(&[one.step(&first), other.step(&second)], &mut Redos::default());
    let Err(CommitError::Rejected(found)) = failed else { panic!("{failed:?}") };
    let places: Vec<_> = found.iter().map(|Rejected { step, effect, .. }| (*step, *effect)).collect();
    assert_eq!(places, [(0, 1), (1, 0)]);
}

/// A wrong number of parameters, or of a statement, cannot reach the database at all.
#[test]
fn record_that_cannot_be_sent_is_refused_among_others() {
    let database = Database::with("create table t (v int)");
    let mut session = session(&settings(&database, &[("insert into t values ($1)", 1)]));
    let mut task = Task::claim(&mut *session, 0);
    let all = effects(&[&[(0, &["1"])], &[(0, &["1", "2"])], &[(0, &["x"])], &[(7, &[])], &[(0, &[])]]);
    let found = rejected(task.commit(&mut *session, &all).expect_err("four are refused"));
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2, 3, 4], "{found:?}");
    assert_eq!(found[0].1, "statement 1 has 1 parameter, but is given 2");
    assert_eq!(found[2].1, "there is no statement 8");
}

/// What the inbox has is not looked at when refused records are searched for.
#[test]
fn refused_records_are_found_beside_an_inbox() {
    let database = Database::with("create table t (v int)");
    let settings = with_inbox(settings(&database, &[("insert into t values ($1)", 1)]), "i");
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    task.commit(&mut *session, &each(&["1"])).expect("it is right");
    let found = rejected(task.commit(&mut *session, &each(&["x", "2", "y"])).expect_err("one is refused"));
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [2], "record 0 is in the inbox");
    assert_eq!(database.value("select count(*) from ratchet.inbox"), "1");
}

/// A statement that is at fault blames no record.
#[test]
fn error_of_a_statement_needs_a_person() {
    let database = Database::with("create table t (v int); create role reader; grant select on t to public");
    let mut session = session(&settings(&database, &[("insert into t values ($1)", 1)]));
    let mut task = Task::claim(&mut *session, 0);
    task.commit(&mut *session, &each(&["1"])).expect("it is right");
    database.run("alter table t rename to u");
    for _ in 0..2 {
        let failed = task.commit(&mut *session, &each(&["2"])).expect_err("the table is gone");
        let CommitError::Held(error) = failed else { panic!("{failed:?}") };
        assert_eq!(error.kind, ErrorKind::Permanent, "{error}");
        assert!(error.message.contains("\"t\" does not exist"), "{error}");
    }
    database.run("alter table u rename to t; drop role reader");
    task.commit(&mut *session, &each(&["2"])).expect("it is back");
}

/// An error that a type, a trigger or a statement may have raised blames a record where another one passes.
#[test]
fn doubtful_error_blames_a_record_where_another_passes() {
    let database = Database::with(
        "create table t (v int);
         create function f() returns trigger language plpgsql as $$ begin
            if new.v < 0 then raise exception 'no debts' using errcode = 'U0001'; end if;
            if new.v = 0 then raise exception 'not parsed' using errcode = 'XX000'; end if; return new; end $$;
         create trigger g before insert on t for each row execute function f()",
    );
    let mut session = session(&settings(&database, &[("insert into t values ($1)", 1), ("select 1", 0)]));
    let mut task = Task::claim(&mut *session, 0);
    let found = rejected(task.commit(&mut *session, &each(&["1", "-1", "0"])).expect_err("two are refused"));
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1, 2], "{found:?}");
    assert!(found[0].1.contains("no debts (U0001)"), "{found:?}");
    // Alone, or beside records of other statements, it may be the statement.
    for all in [each(&["-1"]), effects(&[&[(0, &["-1"])], &[(1, &[])]])] {
        let failed = task.commit(&mut *session, &all).expect_err("nothing passes");
        let CommitError::Held(error) = failed else { panic!("{failed:?}") };
        assert_eq!(error.kind, ErrorKind::Permanent, "{error}");
        assert!(error.message.contains("no debts"), "{error}");
    }
    // What is certain is named first.
    let found = rejected(task.commit(&mut *session, &each(&["-1", "x"])).expect_err("nothing passes"));
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [1], "{found:?}");
}

/// An owner that wakes up runs into what its heir has done. That is the heir's right, not the record's fault.
#[test]
fn former_owner_is_fenced_though_its_records_are_refused() {
    let database = Database::with("create table t (v int primary key)");
    let settings = settings(&database, &[("insert into t values ($1)", 1)]);
    let (mut owner, mut heir) = (session(&settings), session(&settings));
    let mut former = Task::claim(&mut *owner, 0);
    let mut task = Task::claim(&mut *heir, 0);
    task.commit(&mut *heir, &each(&["1"])).expect("it is right");
    assert_eq!(former.commit(&mut *owner, &each(&["2", "1"])), Err(CommitError::Fenced(vec![0])));
    assert_eq!(database.rows("select v from t"), ["1"]);
}

/// A failing statement in a large transaction is found beyond what may be under way at once.
#[test]
fn late_record_of_a_large_transaction_is_found() {
    let database = Database::with("create table t (v int)");
    let settings = Settings {
        statements: vec![Statement::Sql {
            text: "insert into t values ($1) returning v".to_owned(),
            parameters: 1,
            returns: true,
            expect_rows: None,
        }],
        ..settings(&database, &[])
    };
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    let values: Vec<_> = (0..9_000).map(|n| if n == 8_999 { "x".to_owned() } else { n.to_string() }).collect();
    let values: Vec<_> = values.iter().map(String::as_str).collect();
    let found = rejected(task.commit(&mut *session, &each(&values)).expect_err("the last one is refused"));
    assert_eq!(found.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [8_999]);
    assert_eq!(task.commit(&mut *session, &each(&values[..8_999])).map(|answers| answers.len()), Ok(8_999));
}
