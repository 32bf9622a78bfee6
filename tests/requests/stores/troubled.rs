//! Goal: servers that are down, slow, full or refuse are told apart, without secrets, and are used again when they are
//! back.

use std::time::{Duration, Instant};

use ratchet::effect::postgres::requests::Requests as Postgres;
use ratchet::http::request::{Error, Found, Store};
use ratchet::redis::Address;
use ratchet::redis::requests::Requests as Redis;

use super::{KEPT, LONG, NEW, TAKEN_OVER, answer, answered, new_id, wanted};
use crate::fronts::front::{Ask, Front};
use crate::redis_server::Server;
use crate::until::{DEADLINE, within};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

fn redis(server: &Server, user: &str) -> Redis {
    Redis::new(Address::read(&server.url(user)).expect("an address"))
}

fn unavailable(found: Result<Found, Error>) -> String {
    match found {
        Err(Error::Unavailable(message)) => message,
        found => panic!("it is there: {found:?}"),
    }
}

/// Waits until the store answers again.
fn back(runtime: &tokio::runtime::Runtime, store: &dyn Store) {
    within(DEADLINE, "the store to be back", || runtime.block_on(store.check()).is_ok().then_some(()));
}

#[test]
fn redis_that_was_killed_is_used_again() {
    let (mut server, runtime) = (Server::start(&[]), runtime());
    let store = redis(&server, "");
    let first = wanted(new_id(), 1);
    assert_eq!(runtime.block_on(store.reserve(&first)), Ok(NEW));
    server.kill();
    unavailable(runtime.block_on(store.reserve(&first)));
    assert!(matches!(runtime.block_on(store.check()), Err(Error::Unavailable(_))));
    server.restart();
    back(&runtime, &store);
    assert_eq!(runtime.block_on(store.reserve(&first)), Ok(NEW), "this one keeps nothing on disk");
}

#[test]
fn redis_that_is_frozen_costs_a_request_no_more_than_the_wait() {
    let (server, runtime) = (Server::start(&[]), runtime());
    runtime.block_on(async {
        let store = std::sync::Arc::new(redis(&server, ""));
        let front = Front::layer(store.clone(), |layer| layer.store_wait(Duration::from_millis(500))).await;
        assert_eq!(front.send(Ask::under("a")).await.status, 200);
        server.freeze();
        let began = Instant::now();
        assert_eq!(front.send(Ask::under("b")).await.problem(), "store-down");
        assert!(began.elapsed() < Duration::from_secs(4), "{:?}", began.elapsed());
        server.thaw();
        assert!(front.send(Ask::under("a")).await.is_replayed());
        assert_eq!(front.runs.count("b"), 0);
    });
}

#[test]
fn redis_that_is_full_takes_nothing_and_forgets_nothing() {
    let (server, runtime) = (Server::start(&["--maxmemory 4mb", "--maxmemory-policy noeviction"]), runtime());
    let store = redis(&server, "");
    let mut kept = Vec::new();
    let refused = loop {
        let wanted = wanted(new_id(), 1);
        match runtime.block_on(store.reserve(&wanted)) {
            Ok(found) => assert_eq!(found, NEW),
            Err(error) => break error,
        }
        match runtime.block_on(store.complete(wanted.held, &answer(200, &"x".repeat(10_000)), LONG)) {
            Ok(_) => kept.push(wanted.held.id),
            Err(error) => break error,
        }
    };
    assert!(matches!(&refused, Error::Unavailable(text) if text.contains("full")), "{refused}");
    assert!(kept.len() > 10, "{}", kept.len());
    for id in kept {
        assert_eq!(runtime.block_on(store.reserve(&wanted(id, 1))).map(|found| answered(found).status), Ok(200));
    }
}

#[test]
fn redis_that_refuses_says_what_to_do_without_the_password() {
    let (server, runtime) = (Server::start(&["--requirepass s3cret"]), runtime());
    for (user, words) in [(":wr0ng@", "compare"), ("", "password")] {
        let refused = runtime.block_on(redis(&server, user).reserve(&wanted(new_id(), 1)));
        let Err(Error::Refused(text)) = refused else { panic!("{refused:?}") };
        assert!(text.contains(words) && !text.contains("wr0ng") && !text.contains("s3cret"), "{text}");
    }
    let store = redis(&server, ":s3cret@");
    assert_eq!(runtime.block_on(store.reserve(&wanted(new_id(), 1))), Ok(NEW));
}

/// A user with the rights that docs/redis.md names can do everything.
#[test]
fn documented_rights_are_enough() {
    let page = std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/docs/redis.md")).expect("the page");
    let page = page.split_whitespace().collect::<Vec<_>>().join(" ");
    let (_, requests) = page.split_once("## HTTP requests").expect("a heading");
    let (_, rights) = requests.split_once("`ACL SETUSER ratchet on >PASSWORD ").expect("the rights");
    let (rights, _) = rights.split_once('`').expect("their end");
    let (server, runtime) = (Server::start(&[]), runtime());
    server.ask::<String>(&format!("ACL SETUSER ratchet on >s3cret {rights}"));
    let store = redis(&server, "ratchet:s3cret@");
    let first = wanted(new_id(), 1);
    runtime.block_on(async {
        assert_eq!(store.check().await, Ok(()));
        assert_eq!(store.reserve(&first).await, Ok(NEW));
        assert_eq!(store.extend(first.held, LONG * 2).await, KEPT);
        assert_eq!(store.release(first.held).await, KEPT);
        assert_eq!(store.reserve(&first).await, Ok(NEW));
        assert_eq!(store.complete(first.held, &answer(200, "a"), LONG).await, KEPT);
        assert_eq!(store.reserve(&wanted(first.held.id, 1)).await.map(answered), Ok(answer(200, "a")));
        assert_eq!(store.tidy().await, Ok(0));
    });
}

#[test]
fn postgres_that_was_killed_is_used_again() {
    let (mut server, runtime) = (crate::database::Server::start("postgres-killed", &[]), runtime());
    let store = Postgres::new(&server.url("postgres", "postgres"), "ratchet").expect("an address");
    let (first, short) = (wanted(new_id(), 1), super::Wanted { lease: Duration::ZERO, ..wanted(new_id(), 1) });
    assert_eq!(runtime.block_on(store.reserve(&first)), Ok(NEW));
    assert_eq!(runtime.block_on(store.complete(first.held, &answer(200, "a"), LONG)), KEPT);
    assert_eq!(runtime.block_on(store.reserve(&short)), Ok(NEW));
    server.kill_and_restart();
    back(&runtime, &store);
    let again = within(DEADLINE, "each connection to be made anew", || {
        runtime.block_on(store.reserve(&wanted(first.held.id, 1))).ok()
    });
    assert_eq!(answered(again), answer(200, "a"));
    let taken = within(DEADLINE, "each connection to be made anew", || {
        runtime.block_on(store.reserve(&wanted(short.held.id, 1))).ok()
    });
    assert_eq!(taken, TAKEN_OVER);
}

#[test]
fn postgres_that_refuses_says_what_to_do_without_the_password() {
    let runtime = runtime();
    let url = super::shared_database().url.replace("postgres@", "guarded:wr0ng@");
    let refused = runtime.block_on(Postgres::new(&url, "ratchet").expect("an address").reserve(&wanted(new_id(), 1)));
    let Err(Error::Refused(text)) = refused else { panic!("{refused:?}") };
    assert!(text.contains("password") && !text.contains("wr0ng"), "{text}");
    let error = Postgres::new("postgres://ann:hunter2@h:port/db", "ratchet").map(|_| ()).expect_err("no port");
    assert!(!error.to_string().contains("hunter2"), "{error}");
}

#[test]
fn rows_that_are_over_are_removed_and_no_others() {
    let (database, runtime) = (crate::database::Database::new(), runtime());
    let store = Postgres::new(&database.url, "ratchet").expect("an address");
    for number in 0..30 {
        let wanted = wanted(new_id(), 1);
        assert_eq!(runtime.block_on(store.reserve(&wanted)), Ok(NEW));
        let retention = if number % 3 == 0 { LONG } else { Duration::ZERO };
        assert_eq!(runtime.block_on(store.complete(wanted.held, &answer(200, "a"), retention)), KEPT);
    }
    assert_eq!(runtime.block_on(store.tidy()), Ok(20));
    assert_eq!(runtime.block_on(store.tidy()), Ok(0));
    assert_eq!(database.value("select count(*) from ratchet.request"), "10");
}

/// A role that may not create the table is told what somebody else has to run, and can do everything after that.
#[test]
fn table_can_be_made_by_somebody_else() {
    let (database, runtime) = (crate::database::Database::new(), runtime());
    let store = Postgres::new(&database.url.replace("postgres@", "limited@"), "ratchet").expect("an address");
    let first = wanted(new_id(), 1);
    let refused = runtime.block_on(store.reserve(&first));
    let Err(Error::Refused(text)) = refused else { panic!("{refused:?}") };
    let (_, sql) = text.split_once("with this role's name:\n").expect("what to run");
    database.run(&sql.replace("ROLE", "limited"));
    let found = within(DEADLINE, "the store to look again", || runtime.block_on(store.reserve(&first)).ok());
    assert_eq!(found, NEW);
    assert_eq!(runtime.block_on(store.complete(first.held, &answer(200, "a"), LONG)), KEPT);
    assert!(runtime.block_on(store.tidy()).is_ok());
}
