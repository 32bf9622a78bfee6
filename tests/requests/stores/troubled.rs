//! Goal: servers that are down, slow, full or refuse are told apart, without secrets, and are used again when they are
//! back.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::future::join_all;
use ratchet::http::request::operator::{Decision, ListFilter, RequestStatus, Settle, Settled};
use ratchet::http::request::{Error, Found, OnInDoubt, StillHeld, Store, Token, Wanted};
use ratchet::postgres::requests::Requests as Postgres;
use ratchet::redis::Address;
use ratchet::redis::requests::Requests as Redis;

use super::{KEPT, LONG, NEW, TAKEN_OVER, answer, answered, new_id, wanted};
use crate::redis_server::Server;
use crate::relay::{Line, Relay};
use crate::requests::fronts::front::{Ask, Front};
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
        let store = Arc::new(redis(&server, ""));
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
    assert!(matches!(&refused, Error::Full(text) if text.contains("raise its maxmemory")), "{refused}");
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
        let filter = ListFilter { id_prefix: String::new(), includes_answered: true, max: 10 };
        assert_eq!(store.list(&filter).await.expect("it may look").len(), 1);
        let forgotten = store.settle(first.held.id, &Decision::Forget, Token(rand::random())).await;
        assert_eq!(forgotten, Ok(Settled::Forgotten(RequestStatus::Answered)));
    });
}

#[test]
fn postgres_that_was_killed_is_used_again() {
    let (mut server, runtime) = (crate::database::Server::start("postgres-killed", &[]), runtime());
    let store = Postgres::new(&server.url("postgres", "postgres"), "ratchet").expect("an address");
    let (first, short) = (wanted(new_id(), 1), Wanted { lease: Duration::ZERO, ..wanted(new_id(), 1) });
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

/// A server of PostgreSQL's of its own, and where its data is.
fn own_postgres(name: &str) -> (crate::database::Server, PathBuf) {
    let mut data = PathBuf::new();
    let server = crate::database::Server::start_with(name, &[], |home| {
        data = home.join("data");
        Vec::new()
    });
    (server, data)
}

#[test]
fn standby_is_refused_until_it_is_promoted() {
    let ((mut server, data), runtime) = (own_postgres("postgres-standby"), runtime());
    let url = server.url("postgres", "postgres");
    let store = Postgres::new(&url, "ratchet").expect("an address");
    let first = wanted(new_id(), 1);
    assert_eq!(runtime.block_on(store.reserve(&first)), Ok(NEW));
    server.kill();
    std::fs::write(data.join("standby.signal"), "").expect("the folder is ours");
    server.start_again();
    // Each connection hears first that the one before is lost.
    for is_asked in [false, true] {
        let said = within(DEADLINE, "the store to say what it is", || {
            let said = if is_asked {
                unavailable(runtime.block_on(store.reserve(&first)))
            } else {
                runtime.block_on(store.check()).err()?.to_string()
            };
            said.contains("standby").then_some(said)
        });
        assert!(said.contains("name the primary"), "{said}");
    }
    crate::database::Admin::connect(&url).run("select pg_promote()");
    back(&runtime, &store);
    let again = within(DEADLINE, "each connection to be made anew", || runtime.block_on(store.reserve(&first)).ok());
    assert_eq!(again, NEW);
}

/// Sessions that were opened while nothing could be written stay so, however long they are asked.
#[test]
fn sessions_that_may_only_read_are_made_anew() {
    let (database, runtime) = (crate::database::Database::new(), runtime());
    let owner = Postgres::new(&database.url, "ratchet").expect("an address");
    assert_eq!(runtime.block_on(owner.check()), Ok(()));
    let (role, name) = (format!("reader_{}", database.name), &database.name);
    database.run(&format!(
        "create role {role} login; alter role {role} in database {name} set default_transaction_read_only = on;
         grant usage on schema ratchet to {role}; grant execute on all functions in schema ratchet to {role}"
    ));
    let store = Postgres::new(&database.url.replace("postgres@", &format!("{role}@")), "ratchet").expect("an address");
    // So many that each connection has one.
    let all: Vec<Wanted> = (0..40).map(|_| wanted(new_id(), 1)).collect();
    for wanted in &all {
        assert!(unavailable(runtime.block_on(store.reserve(wanted))).contains("read-only"));
    }
    database.run(&format!("alter role {role} in database {name} reset default_transaction_read_only"));
    for wanted in &all {
        let found = within(DEADLINE, "another session", || runtime.block_on(store.reserve(wanted)).ok());
        assert_eq!(found, NEW);
    }
}

/// Another one has taken over under the same name; the connections to the old one go on.
#[test]
fn redis_that_was_demoted_is_left_for_its_heir() {
    let (old, heir, runtime) = (Server::start(&[]), Server::start(&[]), runtime());
    let relay = Relay::to(old.port.number());
    let store = Redis::new(Address::read(&format!("redis://127.0.0.1:{}", relay.port)).expect("an address"));
    let first = wanted(new_id(), 1);
    assert_eq!(runtime.block_on(store.reserve(&first)), Ok(NEW));
    old.ask::<String>("REPLICAOF 127.0.0.1 1");
    let Err(Error::Unavailable(text)) = runtime.block_on(store.check()) else { panic!("it takes no changes") };
    assert!(text.contains("it is a replica"), "{text}");
    assert!(unavailable(runtime.block_on(store.reserve(&first))).contains("replica"), "nor does another connection");
    relay.lead_to(heir.port.number());
    let found = within(DEADLINE, "another connection", || runtime.block_on(store.reserve(&first)).ok());
    assert_eq!((found, runtime.block_on(store.check())), (NEW, Ok(())));
    assert_eq!(heir.ask::<Vec<String>>("KEYS ratchet:request:*").len(), 1);
    // A connection that is there is left as soon as it takes no change.
    heir.ask::<String>("REPLICAOF 127.0.0.1 1");
    assert!(unavailable(runtime.block_on(store.reserve(&wanted(new_id(), 1)))).contains("replica"));
    old.ask::<String>("REPLICAOF NO ONE");
    relay.lead_to(old.port.number());
    let found = within(DEADLINE, "another connection", || runtime.block_on(store.reserve(&wanted(new_id(), 1))).ok());
    assert_eq!(found, NEW);
}

/// A store behind a relay, and where its server is.
fn behind_relays() -> [(&'static str, Relay, Arc<dyn Store>); 2] {
    let relay = Relay::to(Server::shared().port.number());
    let address = Address::read(&format!("redis://127.0.0.1:{}", relay.port)).expect("an address");
    let redis = ("redis", relay, Arc::new(Redis::new(address)) as Arc<dyn Store>);
    let relay = Relay::to(crate::database::shared().port.number());
    let port = crate::database::shared().port.to_string();
    let url = super::shared_database().url.replace(&format!(":{port}/"), &format!(":{}/", relay.port));
    let postgres = Postgres::new(&url, "ratchet").expect("an address");
    [redis, ("postgres", relay, Arc::new(postgres))]
}

/// Nobody waits for as long as a connection takes: it is made all the same, and used.
#[test]
fn connections_that_take_longer_than_anybody_waits_are_made() {
    for (name, relay, store) in behind_relays() {
        relay.set(Line::Late(Duration::from_secs(1)));
        let first = wanted(new_id(), 1);
        runtime().block_on(async {
            let began = Instant::now();
            let found = loop {
                let found = tokio::time::timeout(Duration::from_millis(300), store.reserve(&first)).await;
                match found {
                    Ok(found) => break found,
                    Err(_) => assert!(began.elapsed() < DEADLINE, "{name}: it is never made"),
                }
            };
            assert_eq!(found, Ok(NEW), "{name}");
            assert!(began.elapsed() >= Duration::from_secs(1), "{name}: it was not late");
        });
    }
}

/// The caller has stopped waiting: no error says that the connection leads nowhere.
#[test]
fn connections_that_lead_nowhere_are_made_anew() {
    for (name, relay, store) in behind_relays() {
        let first = wanted(new_id(), 1);
        runtime().block_on(async {
            let soon = || tokio::time::timeout(Duration::from_millis(500), store.reserve(&first));
            assert_eq!(store.reserve(&first).await, Ok(NEW));
            relay.abandon();
            assert!(soon().await.is_err(), "{name}: it leads somewhere");
            let began = Instant::now();
            let found = loop {
                if let Ok(found) = soon().await {
                    break found;
                }
                assert!(began.elapsed() < DEADLINE, "{name}: it is asked for ever");
            };
            assert_eq!(found, Ok(NEW), "{name}");
        });
    }
}

/// Nobody has waited for these reservations, and then they are taken back: in this order, also where the store has been
/// silent in between. Otherwise they would stand in the way of what was never carried out.
#[test]
fn reservations_that_nobody_waited_for_are_taken_back() {
    for (name, relay, store) in behind_relays() {
        // No multiple of the number of connections: no turn would bring a request to the same one by chance.
        let all: Vec<Wanted> = (0..101).map(|_| wanted(new_id(), 1)).collect();
        runtime().block_on(async {
            // So that there are all of the connections.
            let found = join_all(all.iter().map(|wanted| store.reserve(wanted))).await;
            assert!(found.iter().all(|found| *found == Ok(NEW)), "{name}: {found:?}");
            let released = join_all(all.iter().map(|wanted| store.release(wanted.held))).await;
            assert!(released.iter().all(|released| *released == Ok(StillHeld::Yes)), "{name}: {released:?}");
            relay.set(Line::Silent);
            let soon = Duration::from_millis(200);
            let late = join_all(all.iter().map(|wanted| tokio::time::timeout(soon, store.reserve(wanted)))).await;
            assert!(late.iter().all(Result::is_err), "{name}: the line is not silent");
            let clear = async {
                tokio::time::sleep(soon).await;
                relay.set(Line::Clear);
            };
            let releases = join_all(all.iter().map(|wanted| store.release(wanted.held)));
            let (released, ()) = futures_util::future::join(releases, clear).await;
            assert!(released.iter().all(|released| *released == Ok(StillHeld::Yes)), "{name}: {released:?}");
            for first in &all {
                let refusing = Wanted { on_in_doubt: OnInDoubt::Refuse, ..wanted(first.held.id, 1) };
                assert_eq!(store.reserve(&refusing).await, Ok(NEW), "{name}");
            }
        });
    }
}
