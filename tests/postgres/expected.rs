//! Records whose statements change another number of rows than they have to, and those that a policy does not let in.

use ratchet::effect::{Answer, CommitError, ErrorKind};
use ratchet::postgres::{Settings, Statement};

use crate::database::{Database, shared};
use crate::postgres::task::{Task, each, effects, rejected, session, settings, settings_of, sql};

fn expecting(text: &str, rows: u64) -> Statement {
    Statement::Sql { text: text.to_owned(), parameters: 1, returns: false, expect_rows: Some(rows) }
}

fn numbers(failed: CommitError, words: &str) -> Vec<usize> {
    let found = rejected(failed);
    assert!(found.iter().all(|(_, message)| message.contains(words)), "{words}: {found:?}");
    found.into_iter().map(|(number, _)| number).collect()
}

#[test]
fn update_that_finds_no_row_refuses_its_record_alone() {
    let tables = "create table seen (id text primary key); create table stock (product text primary key, free int); \
                  insert into stock values ('lamp', 9), ('chair', 9)";
    let database = Database::with(tables);
    let statements = vec![
        sql("insert into seen values ($1)", 1),
        expecting("update stock set free = free - 1 where product = $1", 1),
    ];
    let settings = Settings { statements, ..settings(&database, &[]) };
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    // What was done for a record that is refused is undone: the next one has the same id.
    let all: [&[(u32, &[&str])]; 4] = [
        &[(0, &["a"]), (1, &["lamp"])],
        &[(0, &["b"]), (1, &["bed"])],
        &[(0, &["b"]), (1, &["chair"])],
        &[(0, &["c"]), (1, &["sofa"])],
    ];
    let failed = task.commit(&mut *session, &effects(&all)).expect_err("two find no row");
    assert_eq!(numbers(failed, "statement 2: 0 rows, and expect_rows is 1"), [1, 3]);
    assert_eq!(database.value("select count(*) from seen"), "0");
    task.commit(&mut *session, &effects(&[all[0], all[2]])).expect("these find theirs");
    assert_eq!(database.rows("select product, free from stock order by 1"), ["chair|8", "lamp|8"]);
    assert_eq!(database.rows("select id from seen order by 1"), ["a", "b"]);
}

#[test]
fn too_many_rows_and_rows_where_none_is_expected_are_refused() {
    let database = Database::with("create table t (v int); insert into t values (1), (2), (2)");
    for (rows, expected) in [(1, [0, 2].as_slice()), (0, &[1, 2]), (2, &[0, 1])] {
        let statements = vec![expecting("update t set v = v where v = $1", rows)];
        let settings = Settings { statements, ..settings(&database, &[]) };
        let mut session = session(&settings);
        let mut task = Task::claim(&mut *session, rows as i32);
        let failed = task.commit(&mut *session, &each(&["0", "1", "2"])).expect_err("two are refused");
        assert_eq!(numbers(failed, &format!("expect_rows is {rows}")), expected);
    }
}

#[test]
fn rows_that_come_back_are_counted_as_well() {
    let database = Database::with("create table t (v int); insert into t values (1)");
    let text = "select v from t where v = $1".to_owned();
    let statements = vec![Statement::Sql { text, parameters: 1, returns: true, expect_rows: Some(1) }];
    let settings = Settings { statements, ..settings(&database, &[]) };
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    let failed = task.commit(&mut *session, &each(&["1", "2"])).expect_err("one finds nothing");
    assert_eq!(numbers(failed, "0 rows"), [1]);
    let answers = task.commit(&mut *session, &each(&["1"])).expect("it finds one");
    assert_eq!(answers, [Answer::Done(vec!["{\"v\":1}".to_owned()])]);
}

/// PostgreSQL does not stop at such a record, and goes on with those that were sent behind it.
#[test]
fn record_that_changes_no_row_is_found_among_thousands() {
    let database = Database::with("create table t (v int primary key); insert into t select generate_series(1, 3000)");
    let statements = vec![expecting("update t set v = v where v = $1", 1)];
    let settings = Settings { statements, ..settings(&database, &[]) };
    let mut session = session(&settings);
    let mut task = Task::claim(&mut *session, 0);
    let values: Vec<String> = (1..=3000).map(|n| if n == 1700 { 0 } else { n }.to_string()).collect();
    let values: Vec<&str> = values.iter().map(String::as_str).collect();
    let failed = task.commit(&mut *session, &each(&values)).expect_err("one is refused");
    assert_eq!(numbers(failed, "0 rows"), [1699]);
}

/// Both have the code 42501.
#[test]
fn row_that_a_policy_does_not_let_in_is_refused_and_a_missing_grant_holds() {
    let database = Database::with(
        "create table t (v int); alter table t enable row level security; \
         create policy small on t using (true) with check (v < 10); grant insert on t to limited; \
         create table u (v int); \
         create schema ratchet; grant usage, create on schema ratchet to limited",
    );
    let url = shared().url("limited", &database.name);
    let insert = |table: &str| settings_of(&url, vec![sql(&format!("insert into {table} values ($1)"), 1)]);
    let mut of_policy = session(&insert("t"));
    let mut task = Task::claim(&mut *of_policy, 0);
    let failed = task.commit(&mut *of_policy, &each(&["1", "10", "2"])).expect_err("one is refused");
    assert_eq!(numbers(failed, "row-level security policy"), [1]);
    task.commit(&mut *of_policy, &each(&["1", "2"])).expect("the policy lets them in");
    // Alone in its transaction as well: nothing else has to pass first.
    assert_eq!(numbers(task.commit(&mut *of_policy, &each(&["11"])).expect_err("it is refused"), "42501"), [0]);

    let mut of_grant = session(&insert("u"));
    let mut task = Task::claim(&mut *of_grant, 1);
    match task.commit(&mut *of_grant, &each(&["1"])) {
        Err(CommitError::Held(error)) => {
            assert_eq!(error.kind, ErrorKind::Permanent);
            assert!(error.message.contains("permission denied") && error.message.contains("42501"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
