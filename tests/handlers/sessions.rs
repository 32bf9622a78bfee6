//! Goal: a step's transaction finds the session as it was begun, whatever the step before has left there: connections are
//! used by one step after the other.

use std::sync::{Arc, Mutex};

use ratchet::{Database, Record, StepError, Steps};

use crate::database;
use crate::handlers::embedded;

/// What a session can be left with, beside a role.
const LEAVE: &str = "
    set search_path = elsewhere;
    set lock_timeout = 0;
    set statement_timeout = '1h';
    set default_transaction_isolation = serializable;
    create temp table account (id text);
    select pg_advisory_lock(7);
    listen news;
    prepare \"a \"\"plan\" as select 1;
    declare everything cursor with hold for select 1;
    select nextval('public.numbers')";
/// What a session has, in the order of `LEAVE`, and the number of its process.
const LOOK: &str = "
    select current_user, current_setting('search_path'), current_setting('lock_timeout'),
        current_setting('statement_timeout'), current_setting('default_transaction_isolation'),
        (select relnamespace <> 'public'::regnamespace from pg_class where oid = 'account'::regclass),
        (select count(*) from pg_locks where locktype = 'advisory' and pid = pg_backend_pid()),
        (select count(*) from pg_listening_channels()),
        (select count(*) from pg_prepared_statements where from_sql),
        (select count(*) from pg_cursors where is_holdable), pg_backend_pid()";
const COLUMNS: usize = 11;

/// Runs `function` for these records, one after the other, on one connection.
fn run<F>(theme: &str, database: &database::Database, values: &[&str], function: F)
where
    F: AsyncFn(&Record, &mut Steps) -> Result<(), StepError> + Send + Sync + 'static,
{
    let one = Database::new(&database.url).expect("an address").connections(1);
    let worker = embedded::worker(theme, "off", values, function).postgres(one).until_drained();
    worker.run().expect("it ends well");
}

async fn look(transaction: &ratchet::Transaction<'_>) -> Result<Vec<String>, StepError> {
    let messages = transaction.simple_query(LOOK).await?;
    let row = messages.iter().find_map(|message| match message {
        ratchet::tokio_postgres::SimpleQueryMessage::Row(row) => Some(row),
        _ => None,
    });
    let row = row.ok_or_else(|| StepError::unknown("a row was expected"))?;
    Ok((0..COLUMNS).map(|column| row.get(column).unwrap_or("-").to_owned()).collect())
}

/// The role, which servers share, is the test's own.
fn prepared(theme: &str) -> (database::Database, String) {
    let database = database::Database::with(
        "create table account (id text); create sequence numbers; create schema elsewhere;
         create type mood as enum ('good'); create type weather as enum ('bad')",
    );
    let role = format!("{}_{theme}", database.name);
    database.run(&format!("drop role if exists {role}; create role {role} superuser"));
    (database, role)
}

/// How a step ends that leaves something behind, and whether that is anything for the next one to see.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Ends {
    Well,
    Refused,
}

/// What the steps of two records have seen: the first at its end, the second at its beginning.
fn seen_by_two(theme: &'static str, ends: Ends) -> (Vec<Vec<String>>, String) {
    let (database, role) = prepared(theme);
    let seen: Arc<Mutex<Vec<Vec<String>>>> = Arc::default();
    let (log, as_role) = (Arc::clone(&seen), role.clone());
    run(theme, &database, &["{\"id\":1}", "{\"id\":2}"], async move |record, steps| {
        let value: serde_json::Value = record.json()?;
        let is_first = value["id"] == 1;
        let (log, as_role) = (Arc::clone(&log), as_role.clone());
        steps
            .transaction("look", async move |tx| {
                if is_first {
                    tx.batch_execute(&format!("set role {as_role}; {LEAVE}")).await?;
                }
                let found = look(tx).await?;
                log.lock().expect("no test has panicked").push(found);
                // The driver asks for the type by a statement of its own, which has to be there afterwards.
                let mood = if is_first { "select 'good'::public.mood" } else { "select 'bad'::public.weather" };
                tx.query(mood, &[]).await?;
                match ends {
                    Ends::Refused if is_first => Err(StepError::rejected("it is refused")),
                    _ => Ok(()),
                }
            })
            .await
    });
    let seen = std::mem::take(&mut *seen.lock().expect("no test has panicked"));
    database.run(&format!("drop role {role}"));
    (seen, role)
}

#[track_caller]
fn assert_clean(theme: &'static str, ends: Ends) {
    let (seen, role) = seen_by_two(theme, ends);
    let [first, second] = &seen[..] else { panic!("each record is worked on once: {seen:?}") };
    // It listens from its commit on.
    let left = [&role, "elsewhere", "0", "1h", "serializable", "t", "1", "0", "1", "1"];
    assert_eq!(first[..COLUMNS - 1], left, "it leaves all of that behind");
    let begun = ["postgres", "\"$user\", public", "5s", "0", "read committed", "f", "0", "0", "0", "0"];
    assert_eq!(second[..COLUMNS - 1], begun);
    assert_eq!(first[COLUMNS - 1], second[COLUMNS - 1], "it is the same session");
}

#[test]
fn what_a_step_leaves_in_its_session_is_gone_for_the_next_one() {
    assert_clean("sessions", Ends::Well);
}

/// A refusal rolls back what a transaction changes, and not the locks of its session.
#[test]
fn what_a_refused_step_leaves_in_its_session_is_gone_too() {
    assert_clean("refused_sessions", Ends::Refused);
}
