//! Ratchet's own tables: created, recognised, refused.

use std::thread::spawn;

use ratchet::effect::{Error, ErrorKind};
use ratchet::postgres::{Settings, ddl};

use crate::database::{Database, shared};
use crate::postgres::task::{Task, key, session, settings, settings_of, with_inbox};

#[track_caller]
fn refused(settings: &Settings) -> Error {
    let error = session(settings).claim(&key(0), true).expect_err("it is refused");
    assert_eq!(error.kind, ErrorKind::Permanent, "{error}");
    error
}

/// The role without rights, on this database.
fn limited(database: &Database) -> Settings {
    settings_of(&shared().url("limited", &database.name), vec![])
}

#[test]
fn several_may_create_them_at_once() {
    let database = Database::new();
    let settings = Settings { schema: "my \"own\" schema".to_owned(), ..settings(&database, &[]) };
    let all: Vec<_> = (0..8)
        .map(|partition| {
            let settings = settings.clone();
            spawn(move || Task::claim(&mut *session(&settings), partition).mark.epoch)
        })
        .collect();
    assert!(all.into_iter().all(|one| one.join().expect("it is claimed") == 1));
    let tables = "select table_name from information_schema.tables where table_schema = 'my \"own\" schema' order by 1";
    assert_eq!(database.rows(tables), ["format", "inbox", "position"]);
}

#[test]
fn role_that_may_not_create_them_is_told_the_ddl() {
    let database = Database::new();
    database.run(&format!("revoke create on database {} from public", database.name));
    let settings = with_inbox(limited(&database), "i");
    let error = refused(&settings);
    assert!(error.message.contains("permission denied") && error.message.contains(&ddl("ratchet")), "{error}");
    let told = |error: &Error| error.message.split_once("run this:\n").expect("it says what to run").1.to_owned();
    // The tables alone are not enough, and what is told then is.
    database.run(&ddl("ratchet"));
    database.run(&ddl("ratchet"));
    let sql = told(&refused(&settings));
    assert!(sql.starts_with("grant usage on schema \"ratchet\" to \"limited\";"), "{sql}");
    // All of it at once, as somebody would run it who has begun with nothing.
    database.run("drop schema ratchet cascade");
    database.run(&told(&error));
    Task::claim(&mut *session(&settings), 0);
    database.run("drop schema ratchet cascade");
    database.run(&ddl("ratchet"));
    database.run(&sql);
    Task::claim(&mut *session(&settings), 1);
}

/// The schema exists and may be used and written to: it is not created again.
#[test]
fn existing_schema_is_used() {
    let database = Database::new();
    database.run(&format!("revoke create on database {} from public", database.name));
    database.run("create schema ratchet; grant usage, create on schema ratchet to limited");
    Task::claim(&mut *session(&limited(&database)), 0);
}

#[test]
fn they_are_not_created_unasked() {
    let database = Database::new();
    let error = refused(&Settings { create: false, ..settings(&database, &[]) });
    assert!(error.message.contains(&ddl("ratchet")), "{error}");
    assert_eq!(database.value("select count(*) from pg_namespace where nspname = 'ratchet'"), "0");
}

#[test]
fn tables_of_a_later_release_are_left_alone() {
    let database = Database::new();
    database.run(&ddl("ratchet"));
    database.run("update ratchet.format set number = 2");
    let error = refused(&settings(&database, &[]));
    assert!(error.message.contains("format 2"), "{error}");
}
