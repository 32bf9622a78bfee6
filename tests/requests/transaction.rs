//! Goal: a service that remembers its answer in its own transaction does its work once, whatever happens to it.

use std::time::Duration;

use bytes::Bytes;
use ratchet::http::request::{Answer, AnswerBody, Found, Reservation, Store, Wanted};
use ratchet::postgres::requests::Requests;

use crate::database::{Admin, Database};
use crate::requests::stores::{FENCED, KEPT, LONG, NEW, TAKEN_OVER, answer, answered, new_id, wanted};

pub fn reservation(held: Reservation) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    format!("{}.{}", hex(&held.id.0), hex(&held.token.0))
}

/// A database with a service's table in it, and a store there.
fn service() -> (Database, Requests) {
    let database = Database::with("create table charge (amount int)");
    let store = Requests::new(&database.url, "ratchet").expect("an address");
    (database, store)
}

fn charge(session: &Admin, held: Reservation) {
    session.run("begin; insert into charge values (10)");
    let (reservation, body) = (reservation(held), "'\\x00ff'::bytea");
    session.run(&format!("select ratchet.answer_request('{reservation}', 201, 'text/pläin', {body})"));
}

/// Where a store's calls run, between statements of the service's.
pub struct Calls(tokio::runtime::Runtime);

impl Calls {
    pub fn new() -> Calls {
        Calls(tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime"))
    }

    pub fn run<T>(&self, call: impl Future<Output = T>) -> T {
        self.0.block_on(call)
    }

    /// A call that must not wait for the service's transaction.
    pub fn soon<T>(&self, call: impl Future<Output = T>) -> T {
        let soon = Duration::from_secs(3);
        self.0.block_on(async { tokio::time::timeout(soon, call).await.expect("it waits for nobody") })
    }
}

#[test]
fn work_and_answer_are_committed_together() {
    let ((database, store), calls) = (service(), Calls::new());
    let session = database.session();
    let first = wanted(new_id(), 1);
    assert_eq!(calls.soon(store.reserve(&first)), Ok(NEW));
    charge(&session, first.held);
    // Nobody waits for it meanwhile.
    let second = wanted(first.held.id, 1);
    assert_eq!(calls.soon(store.extend(first.held, LONG)), KEPT);
    assert_eq!(calls.soon(store.reserve(&second)), Ok(Found::InProgress));
    session.run("commit");
    let headers = vec![("content-type".to_owned(), Bytes::from_static("text/pläin".as_bytes()))];
    let given = Answer { status: 201, headers, body: AnswerBody::Whole(Bytes::from_static(b"\0\xff")) };
    assert_eq!(calls.soon(store.reserve(&second)).map(answered), Ok(given.clone()));
    assert_eq!(calls.soon(store.complete(first.held, &answer(201, "the layer's"), LONG)), KEPT);
    assert_eq!(calls.soon(store.release(first.held)), FENCED);
    assert_eq!(calls.soon(store.reserve(&second)).map(answered), Ok(given), "the first one counts");
    assert_eq!(database.value("select count(*) from charge"), "1");
}

/// The service dies before its commit: nothing was done, and the next one is carried out.
#[test]
fn work_that_was_not_committed_is_done_by_the_next_one() {
    let ((database, store), calls) = (service(), Calls::new());
    let first = Wanted { lease: Duration::ZERO, ..wanted(new_id(), 1) };
    assert_eq!(calls.soon(store.reserve(&first)), Ok(NEW));
    let session = database.session();
    charge(&session, first.held);
    drop(session);
    let second = wanted(first.held.id, 1);
    let found = crate::until::within(Duration::from_secs(30), "the session to end", || {
        let found = calls.soon(store.reserve(&second)).expect("the database is there");
        (found != Found::InProgress).then_some(found)
    });
    assert_eq!(found, TAKEN_OVER);
    let session = database.session();
    charge(&session, second.held);
    session.run("commit");
    assert_eq!(database.value("select count(*) from charge"), "1");
}

/// The service was frozen, and another one has done the work: its transaction fails as a whole.
#[test]
fn work_of_a_zombie_is_rolled_back() {
    let ((database, store), calls) = (service(), Calls::new());
    let zombie = Wanted { lease: Duration::ZERO, ..wanted(new_id(), 1) };
    assert_eq!(calls.soon(store.reserve(&zombie)), Ok(NEW));
    let heir = wanted(zombie.held.id, 1);
    assert_eq!(calls.soon(store.reserve(&heir)), Ok(TAKEN_OVER));
    let answer_of = |held| format!("select ratchet.answer_request('{}', 201, 'text/plain', '')", reservation(held));
    for has_answered in [false, true] {
        let session = database.session();
        session.run("begin; insert into charge values (10)");
        let refused = session.wait(session.client().batch_execute(&answer_of(zombie.held)));
        let refused = refused.expect_err("it was taken over");
        let message = refused.as_db_error().expect("the database says so").message().to_owned();
        assert_eq!(message, "the request was taken over, or has an answer");
        session.run("commit");
        assert_eq!(database.value("select count(*) from charge where amount = 10"), "0", "the commit was a rollback");
        // Once more, after its heir has answered.
        if !has_answered {
            database.run(&answer_of(heir.held));
        }
    }
    assert_eq!(calls.soon(store.reserve(&wanted(zombie.held.id, 1))).map(|found| answered(found).status), Ok(201));
}

fn answer_request(database: &Database, parameters: &str) -> Result<(), String> {
    let session = database.session();
    let answered =
        session.wait(session.client().batch_execute(&format!("select ratchet.answer_request({parameters})")));
    answered.map_err(|error| error.as_db_error().expect("the database says so").message().to_owned())
}

/// An answer of nothing but a status, `204` say, has neither a type nor a body: it is remembered as that.
#[test]
fn answer_without_a_type_or_a_body_is_remembered() {
    let ((database, store), calls) = (service(), Calls::new());
    let kind = || vec![("content-type".to_owned(), Bytes::from_static(b"text/plain"))];
    for (given, headers, body) in [
        ("204, null, null", Vec::new(), ""),
        ("200, null, 'a'", Vec::new(), "a"),
        ("202, 'text/plain', null", kind(), ""),
        ("404, 'text/plain', ''", kind(), ""),
    ] {
        let first = wanted(new_id(), 1);
        assert_eq!(calls.soon(store.reserve(&first)), Ok(NEW));
        assert_eq!(answer_request(&database, &format!("'{}', {given}", reservation(first.held))), Ok(()), "{given}");
        let found = answered(calls.soon(store.reserve(&wanted(first.held.id, 1))).expect("the database is there"));
        let status = given[..3].parse().expect("a status");
        assert_eq!(found, Answer { status, headers, body: AnswerBody::Whole(Bytes::from(body)) }, "{given}");
    }
}

/// What is no answer is refused, and the request stays its holder's.
#[test]
fn answer_that_is_none_is_refused() {
    let ((database, store), calls) = (service(), Calls::new());
    let first = wanted(new_id(), 1);
    assert_eq!(calls.soon(store.reserve(&first)), Ok(NEW));
    for status in ["null", "0", "100", "600", "-1", "70000"] {
        let refused = answer_request(&database, &format!("'{}', {status}, null, null", reservation(first.held)));
        assert!(refused.is_err_and(|error| error.contains("the status is no final one")), "{status}");
    }
    let refused = answer_request(&database, "null, 200, null, null");
    assert!(refused.is_err_and(|error| error.contains("the reservation is null")));
    assert_eq!(calls.soon(store.complete(first.held, &answer(201, "later"), LONG)), KEPT);
    let found = calls.soon(store.reserve(&wanted(first.held.id, 1)));
    assert_eq!(found.map(answered), Ok(answer(201, "later")));
}

/// A function of another release is replaced by a user that may; the store of one that may not works all the same.
#[test]
fn function_of_another_release_is_replaced() {
    let ((database, store), calls) = (service(), Calls::new());
    assert_eq!(calls.soon(store.check()), Ok(()));
    let others = "create or replace function ratchet.answer_request(reservation text, status int, content_type text, \
                  body bytea) returns void language plpgsql as $$ begin end $$";
    database
        .run(&format!("{others}; grant usage on schema ratchet to limited; grant execute on all functions in schema ratchet to limited"));
    let limited = Requests::new(&database.url.replace("postgres@", "limited@"), "ratchet").expect("an address");
    let first = wanted(new_id(), 1);
    assert_eq!(calls.soon(limited.reserve(&first)), Ok(NEW));
    let answer = format!("'{}', 204, null, null", reservation(first.held));
    assert_eq!(answer_request(&database, &answer), Ok(()), "the other release's does nothing");
    assert_eq!(calls.soon(limited.reserve(&wanted(first.held.id, 1))), Ok(Found::InProgress));
    let renewed = Requests::new(&database.url, "ratchet").expect("an address");
    assert_eq!(calls.soon(renewed.check()), Ok(()));
    assert_eq!(answer_request(&database, &answer), Ok(()));
    let found = calls.soon(limited.reserve(&wanted(first.held.id, 1)));
    assert_eq!(found.map(|found| answered(found).status), Ok(204));
}

/// An answer that is to be remembered waits for the service's transaction, and nobody waits with it.
#[test]
fn transaction_that_stays_open_holds_up_its_own_request_only() {
    let ((database, store), calls) = (service(), Calls::new());
    let (first, given) = (wanted(new_id(), 1), answer(201, "the layer's"));
    assert_eq!(calls.soon(store.reserve(&first)), Ok(NEW));
    let session = database.session();
    charge(&session, first.held);
    let others = async {
        for _ in 0..40 {
            // On the same connection.
            let mut other = wanted(new_id(), 1);
            other.held.id.0[0] = first.held.id.0[0];
            assert_eq!(store.reserve(&other).await, Ok(NEW));
            assert_eq!(store.complete(other.held, &given, LONG).await, KEPT);
        }
    };
    let completed = calls.soon(async {
        let (completed, ()) = futures_util::future::join(store.complete(first.held, &given, LONG), others).await;
        completed
    });
    let Err(ratchet::http::request::Error::Unavailable(text)) = completed else { panic!("{completed:?}") };
    assert!(text.contains("has not committed"), "{text}");
    // It is tried again, and waits for an end that comes soon.
    let completed = std::thread::scope(|scope| {
        scope.spawn(|| {
            std::thread::sleep(Duration::from_millis(200));
            session.run("rollback");
        });
        calls.soon(store.complete(first.held, &given, LONG))
    });
    assert_eq!(completed, KEPT);
    assert_eq!(calls.soon(store.reserve(&wanted(first.held.id, 1))).map(answered), Ok(given));
}
