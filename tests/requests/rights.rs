//! Goal: with the rights on PostgreSQL that the page names a role can do what it is there for, and cannot touch the
//! table.

use ratchet::http::request::operator::{Decision, ListFilter, RequestStatus, Settle, Settled};
use ratchet::http::request::{Error, Fingerprint, Found, OnInDoubt, Store, Token, Wanted};
use ratchet::postgres::requests::Requests;

use crate::database::Database;
use crate::requests::stores::random_calls;
use crate::requests::stores::{KEPT, LONG, NEW, answer, answered, new_id, wanted};
use crate::requests::transaction::{Calls, reservation};
use crate::until::{DEADLINE, within};

/// A database whose table was made by its owner, and a store there of a role that owns nothing.
struct Scene {
    database: Database,
    owner: Requests,
    limited: Requests,
    calls: Calls,
}

/// A store of the role `limited`.
fn limited(database: &Database) -> Requests {
    Requests::new(&database.url.replace("postgres@", "limited@"), "ratchet").expect("an address")
}

impl Scene {
    fn new() -> Scene {
        let (database, calls) = (Database::new(), Calls::new());
        let owner = Requests::new(&database.url, "ratchet").expect("an address");
        assert_eq!(calls.soon(owner.check()), Ok(()));
        let limited = limited(&database);
        Scene { database, owner, limited, calls }
    }

    /// Runs the grants of the page under this heading or mark, for the role `limited`.
    fn grant(&self, to: &str) {
        let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/http-idempotency.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let blocks = page.split("```sql\n").skip(1).filter_map(|rest| rest.split("```").next());
        let rights: Vec<&str> = blocks.filter(|block| block.contains(&format!(" to {to};"))).collect();
        let [rights] = rights[..] else { panic!("one block of rights for {to}: {rights:?}") };
        assert!(!rights.contains(" on ratchet.request"), "{rights}");
        self.database.run(&rights.replace(to, "limited"));
    }

    /// What the role `limited` is told.
    fn refused(&self, sql: &str) -> String {
        let session = self.database.session();
        session.run("set role limited");
        let refused = session.wait(session.client().batch_execute(sql)).expect_err(sql);
        refused.as_db_error().expect("the database says so").message().to_owned()
    }

    /// The role can neither read nor change the table.
    fn assert_no_table(&self) {
        for sql in [
            "select from ratchet.request",
            "select answer from ratchet.request",
            "update ratchet.request set until = now()",
            "insert into ratchet.request (id, token, fingerprint, until) values ('', '', '', now())",
            "delete from ratchet.request",
            "truncate ratchet.request",
            "begin; lock table ratchet.request in access share mode",
        ] {
            assert_eq!(self.refused(sql), "permission denied for table request", "{sql}");
        }
    }

    fn assert_not_executable(&self, calls: &[&str]) {
        for call in calls {
            let said = self.refused(&format!("select ratchet.{call}"));
            assert!(said.starts_with("permission denied for function"), "{call}: {said}");
        }
    }
}

const OF_STORES: &[&str] = &[
    "reserve_request('', '', '', 1, 1, false)",
    "extend_request('', '', 1)",
    "complete_request('', '', '', true, 1)",
    "release_request('', '')",
    "tidy_requests()",
];
const OF_SERVICES: &[&str] = &["answer_request('', 200, null, null)"];
const OF_PEOPLE: &[&str] = &["list_requests(true, '', 1)", "settle_request('', '', null)"];

/// Found by an audit: who had the documented rights could read and change every service's answers.
#[test]
fn store_does_everything_with_its_rights_and_cannot_touch_the_table() {
    let scene = Scene::new();
    scene.database.run("grant usage on schema ratchet to limited");
    let refused = scene.calls.soon(scene.limited.check());
    let Err(Error::Refused(text)) = refused else { panic!("it has no rights: {refused:?}") };
    assert!(text.contains("this role may not execute them") && text.contains("\ngrant execute on function"), "{text}");
    scene.assert_not_executable(&[OF_STORES, OF_SERVICES, OF_PEOPLE].concat());
    scene.grant("PROXY");
    within(DEADLINE, "the store to look again", || scene.calls.soon(scene.limited.check()).ok());
    scene.assert_no_table();
    scene.assert_not_executable(&[OF_SERVICES, OF_PEOPLE].concat());
    // Other connections of the former one may still have to look again.
    let scene = Scene { limited: limited(&scene.database), ..scene };
    scene.calls.run(async { random_calls::compare(&scene.limited, 500).await });
    let over = Wanted { lease: std::time::Duration::ZERO, retention: std::time::Duration::ZERO, ..wanted(new_id(), 1) };
    assert_eq!(scene.calls.soon(scene.limited.reserve(&over)), Ok(NEW));
    assert!(scene.calls.soon(scene.limited.tidy()).is_ok_and(|removed| removed > 0));
    scene.assert_no_table();
}

/// Another service's proxy with the same rights: what it does not know it cannot reach.
#[test]
fn request_is_out_of_reach_for_a_user_that_knows_only_its_id() {
    let scene = Scene::new();
    scene.grant("PROXY");
    let first = wanted(new_id(), 1);
    assert_eq!(scene.calls.soon(scene.owner.reserve(&first)), Ok(NEW));
    assert_eq!(scene.calls.soon(scene.owner.complete(first.held, &answer(201, "secret"), LONG)), KEPT);
    let stranger = Wanted { fingerprint: Fingerprint([9; 32]), ..wanted(first.held.id, 1) };
    assert_eq!(scene.calls.soon(scene.limited.reserve(&stranger)), Ok(Found::OtherRequest), "the answer is not told");
    let fenced = ratchet::http::request::StillHeld::Fenced;
    assert_eq!(scene.calls.soon(scene.limited.complete(stranger.held, &answer(200, "forged"), LONG)), Ok(fenced));
    assert_eq!(scene.calls.soon(scene.limited.extend(stranger.held, LONG)), Ok(fenced));
    assert_eq!(scene.calls.soon(scene.limited.release(stranger.held)), Ok(fenced));
    let again = scene.calls.soon(scene.owner.reserve(&wanted(first.held.id, 1)));
    assert_eq!(again.map(answered), Ok(answer(201, "secret")));
}

/// The service answers in its own transaction, and reads nobody's answers.
#[test]
fn service_answers_with_its_rights_and_cannot_touch_the_table() {
    let scene = Scene::new();
    let first = wanted(new_id(), 1);
    assert_eq!(scene.calls.soon(scene.owner.reserve(&first)), Ok(NEW));
    scene.grant("SERVICE");
    scene.assert_no_table();
    scene.assert_not_executable(&[OF_STORES, OF_PEOPLE].concat());
    // What it would have looked up in a schema of its own is not.
    let evil = "create schema evil authorization limited; set role limited; set search_path = evil, pg_catalog; \
                create function evil.convert_to(text, text) returns bytea language sql as $$ select ''::bytea $$; \
                create function evil.octet_length(bytea) returns int language sql as $$ select 0 $$";
    let call = format!("select ratchet.answer_request('{}', 201, 'text/plain', 'a')", reservation(first.held));
    scene.database.run(&format!("{evil}; {call}; reset role; reset search_path"));
    let found = scene.calls.soon(scene.owner.reserve(&wanted(first.held.id, 1))).map(answered).expect("it is there");
    assert_eq!((found.status, found.headers), (201, vec![("content-type".to_owned(), "text/plain".into())]));
}

/// People list requests and settle them.
#[test]
fn people_settle_with_their_rights_and_cannot_touch_the_table() {
    let scene = Scene::new();
    let doubted = Wanted { lease: std::time::Duration::ZERO, on_in_doubt: OnInDoubt::Refuse, ..wanted(new_id(), 1) };
    assert_eq!(scene.calls.soon(scene.owner.reserve(&doubted)), Ok(NEW));
    scene.grant("PROXY");
    let all = ListFilter { id_prefix: String::new(), includes_answered: true, max: 10 };
    let refused = scene.calls.soon(scene.limited.list(&all));
    assert!(matches!(&refused, Err(Error::Refused(text)) if text.contains("list_requests")), "{refused:?}");
    scene.grant("PERSON");
    scene.assert_no_table();
    let seen = scene.calls.soon(scene.limited.list(&all)).expect("it may");
    assert_eq!(
        seen.iter().map(|seen| (seen.id, seen.state)).collect::<Vec<_>>(),
        [(doubted.held.id, RequestStatus::InDoubt)]
    );
    let decision = Decision::Answer(answer(200, "by hand"));
    let settled = scene.calls.soon(scene.limited.settle(doubted.held.id, &decision, Token(rand::random())));
    assert_eq!(settled, Ok(Settled::Answered));
}

/// A script may have stopped before it took the right from everybody.
#[test]
fn functions_that_everybody_may_execute_are_replaced() {
    let scene = Scene::new();
    let function = "ratchet.settle_request(bytea, bytea, bytea)";
    scene
        .database
        .run(&format!("grant usage on schema ratchet to limited; grant execute on function {function} to public"));
    let owner = Requests::new(&scene.database.url, "ratchet").expect("an address");
    assert_eq!(scene.calls.soon(owner.check()), Ok(()));
    scene.assert_not_executable(OF_PEOPLE);
}

/// The table of an earlier release: its owner's next start makes the functions. Another role is told what to run.
#[test]
fn functions_are_made_for_a_table_that_has_none() {
    let old = include_str!("../fixtures/request-2/postgres.sql");
    let (database, calls) = (Database::with(old), Calls::new());
    database.run("grant usage on schema ratchet to limited; grant all on ratchet.request to limited");
    let limited = Requests::new(&database.url.replace("postgres@", "limited@"), "ratchet").expect("an address");
    let refused = calls.soon(limited.check());
    let Err(Error::Refused(text)) = refused else { panic!("there are no functions: {refused:?}") };
    let (_, sql) = text.split_once("in place of ROLE:\n").expect("what to run");
    database.run(&sql.replace("ROLE", "limited"));
    // Each of its connections looks again on its own.
    let first = wanted(new_id(), 1);
    assert_eq!(within(DEADLINE, "the store to look again", || calls.soon(limited.reserve(&first)).ok()), NEW);
    let (database, owner) = (Database::with(old), |url: &str| Requests::new(url, "ratchet").expect("an address"));
    assert_eq!(calls.soon(owner(&database.url).reserve(&wanted(new_id(), 1))), Ok(NEW));
}

/// Another proxy is at it and does not get on: what is missing may be there a moment later.
#[test]
fn wait_for_another_that_makes_them_is_not_a_missing_right() {
    let old = include_str!("../fixtures/request-2/postgres.sql");
    for (database, missing) in [(Database::with(old), "functions"), (Database::new(), "table")] {
        let calls = Calls::new();
        let lock = "hashtextextended('ratchet schema ratchet', 0)";
        let other = database.session();
        other.run(&format!("select pg_advisory_lock({lock})"));
        let store = Requests::new(&database.url, "ratchet").expect("an address");
        let waited = calls.run(store.check());
        let says_why = |text: &str| text.contains("lock timeout") && text.contains("55P03");
        assert!(matches!(&waited, Err(Error::Unavailable(text)) if says_why(text)), "{missing}: {waited:?}");
        other.run(&format!("select pg_advisory_unlock({lock})"));
        let first = wanted(new_id(), 1);
        let found = within(DEADLINE, "the store to try again", || calls.soon(store.reserve(&first)).ok());
        assert_eq!(found, NEW, "{missing}");
    }
}
