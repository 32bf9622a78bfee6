//! What `check --online` is told.

use ratchet::postgres::{Finding, Settings, Statement, ddl, inspect, inspect_with};

use crate::database::{Database, shared};
use crate::postgres::task::{settings, settings_of, sql, with_inbox};

fn upsert(table: &str) -> Statement {
    Statement::Upsert { table: table.to_owned(), key: vec!["id".to_owned()], columns: None }
}

/// The errors, each with its statement's number.
fn errors(settings: &Settings) -> Vec<(Option<usize>, String)> {
    let errors = inspect(settings).into_iter().filter(|finding| finding.is_error);
    errors
        .map(|Finding { statement, message, help, .. }| {
            (statement, format!("{message} / {}", help.unwrap_or_default()))
        })
        .collect()
}

/// A database that is as it should be, and is left so.
#[test]
fn nothing_is_wrong_and_nothing_is_written() {
    let database = Database::with("create table t (id int primary key, v text); create sequence s");
    let statements = [("insert into t values (nextval('s'), $1); -- done", 1), ("delete from t where id = $1::int", 1)];
    let mut settings = settings(&database, &statements);
    settings.statements.push(upsert("t"));
    settings.statements.push(Statement::DeleteRow { table: "t".to_owned(), key: vec!["id".to_owned()] });
    settings.statements.push(Statement::Truncate { table: "t".to_owned() });
    let found = inspect(&settings);
    assert!(
        matches!(&found[..], [Finding { is_error: false, message, .. }] if message.contains("creates them")),
        "{found:?}"
    );
    let left = "select (select count(*) from t), (select is_called from s), (select count(*) from pg_namespace where nspname = 'ratchet')";
    assert_eq!(database.value(left), "0|f|0");
    database.run(&ddl("ratchet"));
    assert_eq!(inspect(&settings), []);
}

/// Each mistake of a statement, with the statement's number.
#[test]
fn mistakes_of_statements_are_named() {
    let database = Database::with("create table t (id int, v text)");
    let cases = [
        (sql("insert into t values ($1, $2, $3)", 3), "more expressions than target columns"),
        (sql("insert into nowhere values ($1)", 1), "\"nowhere\" does not exist (42P01), at 'nowhere values ($1)'"),
        (sql("insert into t (w) values ($1)", 1), "column \"w\""),
        (sql("insert into t values (1); delete from t", 0), "multiple commands"),
        (sql("insert into t values ($1, $2)", 1), "it has 2 parameters, but is given 1 / 'with' lists"),
        (sql("select 1", 1), "it has 0 parameters, but is given 1"),
        (sql("selekt 1", 0), "begins with 'selekt'"),
        (sql("select from", 0), ""),
        (
            upsert("t"),
            "no unique or exclusion constraint matching the ON CONFLICT specification (42P10) / create a unique index on t (\"id\")",
        ),
        (upsert("u"), "there is no table u"),
        (Statement::Truncate { table: "u".to_owned() }, "there is no table u"),
    ];
    for (statement, words) in cases {
        let found = errors(&settings_of(&database.url, vec![statement.clone()]));
        if words.is_empty() {
            continue;
        }
        let [(number, message)] = &found[..] else { panic!("{statement:?}: {found:?}") };
        assert!(message.contains(words), "{statement:?}: {message}");
        assert!(*number == Some(0) || message.contains("statement 1"), "{statement:?}: {found:?}");
    }
}

/// What PostgreSQL's words do not say: what to do about it.
#[test]
fn types_that_are_not_known_and_constants_of_a_wrong_one_have_a_help() {
    let database = Database::with("create table t (id int, v text)");
    for (text, parameters, words) in [
        ("select v from t where $1 is null", 1, "data type of parameter $1 (42P18) / write the parameter's type"),
        ("update t set id = $1, v = $1", 1, "(42P08), at '$1' / write the parameter's type"),
        ("insert into t values ('seven', $1)", 1, "(22P02), at ''seven', $1)' / a constant in the statement"),
    ] {
        let found = errors(&settings_of(&database.url, vec![sql(text, parameters)]));
        let [(Some(0), message)] = &found[..] else { panic!("{text}: {found:?}") };
        assert!(message.contains(words), "{text}: {message}");
    }
}

/// Constants among the parameters: each record would be refused because of one.
#[test]
fn constants_of_a_wrong_type_are_named() {
    let database = Database::with("create table t (id int, v text)");
    let settings = settings(&database, &[("insert into t values ($1, $2)", 2), ("delete from t where id = $1", 1)]);
    let text = |text: &str| Some(text.to_owned());
    let found = |constants: &[Vec<Option<String>>]| -> Vec<_> {
        inspect_with(&settings, constants).into_iter().filter(|finding| finding.is_error).collect()
    };
    assert_eq!(found(&[vec![text("1"), text("it's \\ one")], vec![None]]), []);
    let found = found(&[vec![None, text("one")], vec![text("one")]]);
    let [Finding { statement: Some(1), message, help: Some(help), .. }] = &found[..] else { panic!("{found:?}") };
    let words = "a constant of 'with': invalid input syntax for type integer: \"one\" (22P02)";
    assert!(message == words && help.contains("is not of the type"), "{found:?}");
    assert_eq!(database.value("select count(*) from t"), "0");
}

/// A table that is kept by three statements, and is missing once.
#[test]
fn missing_table_is_one_finding() {
    let database = Database::with("create table t (id int primary key)");
    let of = |table: &str| {
        let (table, key) = (table.to_owned(), vec!["id".to_owned()]);
        let delete = Statement::DeleteRow { table: table.clone(), key };
        [upsert(&table), delete, Statement::Truncate { table }]
    };
    let statements = [of("u"), of("t"), of("w")].concat();
    let found = errors(&settings_of(&database.url, statements));
    let named: Vec<_> = found.iter().map(|(number, _)| *number).collect();
    assert_eq!(named, [Some(0), Some(6)], "{found:?}");
    assert!(found[0].1.contains("no table u") && found[1].1.contains("no table w"), "{found:?}");
}

/// Rights that are missing, on own tables and on others.
#[test]
fn missing_rights_are_named() {
    let database = Database::with("create table t (id int primary key, v text)");
    database.run(&format!(
        "{}; grant usage on schema ratchet to limited; grant select on all tables in schema ratchet to limited; \
                           grant select on t to limited",
        ddl("ratchet")
    ));
    let statements = vec![
        sql("insert into t values ($1, $2)", 2),
        sql("select v from t where id = $1", 1),
        upsert("t"),
        Statement::DeleteRow { table: "t".to_owned(), key: vec!["id".to_owned()] },
        Statement::Truncate { table: "t".to_owned() },
    ];
    let settings = settings_of(&shared().url("limited", &database.name), statements);
    let found = errors(&settings);
    let of = |number| found.iter().filter(|(statement, _)| *statement == number).count();
    assert_eq!([None, Some(0), Some(1), Some(2), Some(3), Some(4)].map(of), [2, 1, 0, 1, 1, 1], "{found:?}");
    // Only where there is an inbox are its rights needed.
    let found = errors(&with_inbox(settings, "i"));
    assert_eq!(found.iter().filter(|(statement, _)| statement.is_none()).count(), 5, "{found:?}");
}

/// Own tables that nobody may create.
#[test]
fn own_tables_that_cannot_be_created_come_with_the_ddl() {
    let database = Database::new();
    database.run(&format!("revoke create on database {} from public", database.name));
    for settings in [
        settings_of(&shared().url("limited", &database.name), vec![]),
        Settings { create: false, ..settings_of(&database.url, vec![]) },
    ] {
        let found = errors(&settings);
        let [(None, message)] = &found[..] else { panic!("{found:?}") };
        assert!(message.contains(&ddl("ratchet")), "{message}");
        assert!(message.contains("grant select, insert, update on \"ratchet\".position to "), "{message}");
    }
}

/// A commit that is answered before it is safe.
#[test]
fn asynchronous_commit_is_said() {
    let database = Database::with(&ddl("ratchet"));
    database.run(&format!("alter database {} set synchronous_commit = off", database.name));
    let found = inspect(&settings(&database, &[]));
    assert!(
        matches!(&found[..], [Finding { is_error: false, message, .. }] if message.contains("synchronous_commit")),
        "{found:?}"
    );
}

/// A server and a database that do not exist, and an invalid url.
#[test]
fn what_cannot_be_reached_is_said() {
    for (url, words) in [
        (
            "postgres://ann:s3cret@127.0.0.1:1/db",
            "cannot connect to database \"db\" at 127.0.0.1:1 as user \"ann\": error connecting to server: Connection \
             refused (os error 111) / see that PostgreSQL runs there",
        ),
        (&*shared().url("postgres", "nowhere"), "\"nowhere\" does not exist (3D000) / create the database"),
        (&*shared().url("nobody", "postgres"), " as user \"nobody\": role \"nobody\" does not exist"),
        ("what", "the url cannot be read"),
    ] {
        let found = errors(&settings_of(url, vec![]));
        assert!(matches!(&found[..], [(None, message)] if message.contains(words)), "{url}: {found:?}");
    }
}
