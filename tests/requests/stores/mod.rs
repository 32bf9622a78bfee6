//! Goal: all stores keep requests by the same rules, those of `ratchet::request::entry`.
//!
//! Each case names where it was seen before, in others' tests or in complaints about them.

mod by_hand;
mod cases;
mod model;
pub mod random_calls;
mod troubled;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use bytes::Bytes;
use ratchet::http::request::{
    Answer, AnswerBody, Fingerprint, Found, Id, OnInDoubt, Reservation, StillHeld, Store, Token, Wanted,
};

use ratchet::redis::Address;
use ratchet::redis::requests::Requests;

use crate::database::Database;

/// A lease that does not end while a test runs, and one that ends soon.
pub const LONG: Duration = Duration::from_secs(600);
pub const SHORT: Duration = Duration::from_millis(300);
/// Longer than the short one, on a busy machine too.
pub const BEYOND_SHORT: Duration = Duration::from_millis(400);

static NUMBERS: AtomicU64 = AtomicU64::new(0);

/// An id that no other test has.
pub fn new_id() -> Id {
    let mut id = [0; 32];
    id[..16].copy_from_slice(&rand::random::<[u8; 16]>());
    id[16..24].copy_from_slice(&NUMBERS.fetch_add(1, Ordering::Relaxed).to_be_bytes());
    Id(id)
}

/// A new attempt to carry out `id`, which asks for `fingerprint`.
pub fn wanted(id: Id, fingerprint: u8) -> Wanted {
    Wanted {
        held: Reservation { id, token: Token(rand::random()) },
        fingerprint: Fingerprint([fingerprint; 32]),
        lease: LONG,
        retention: LONG,
        on_in_doubt: OnInDoubt::Run,
    }
}

/// An answer with everything that an answer can have.
pub fn answer(status: u16, body: &str) -> Answer {
    let headers = vec![
        ("content-type".to_owned(), Bytes::from_static(b"text/plain")),
        ("link".to_owned(), Bytes::from_static(b"</a>; rel=\"\xfcnext\"")),
        ("link".to_owned(), Bytes::from_static(b"</b>")),
    ];
    Answer { status, headers, body: AnswerBody::Whole(Bytes::copy_from_slice(body.as_bytes())) }
}

pub const NEW: Found = Found::Reserved { taken_over: false };
pub const TAKEN_OVER: Found = Found::Reserved { taken_over: true };

/// Reserves, and has to.
pub async fn reserved(store: &dyn Store, wanted: &Wanted) -> Reservation {
    let found = store.reserve(wanted).await.expect("the store is there");
    assert!(matches!(found, Found::Reserved { .. }), "{found:?}");
    wanted.held
}

/// All stores, each with all cases.
macro_rules! on_each_store {
    ($($case:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $case() { super::on_embedded(|store| async move { super::cases::$case(&*store).await }); })+
        }
        mod embedded_on_several_threads {
            $(#[test] fn $case() { super::on_embedded_at_once(|store| async move { super::cases::$case(&*store).await }); })+
        }
        mod postgres {
            $(#[test] fn $case() { super::on_postgres(|store| async move { super::cases::$case(&*store).await }); })+
        }
        mod redis {
            $(#[test] fn $case() { super::on_redis(|store| async move { super::cases::$case(&*store).await }); })+
        }
        mod model_itself {
            $(#[test] fn $case() { super::on_model(|store| async move { super::cases::$case(&*store).await }); })+
        }
    };
}

on_each_store!(
    first_one_is_reserved_and_others_wait,
    answer_is_given_to_all_later_ones,
    other_request_under_the_key_is_told_before_anything_else,
    completion_without_the_reservation_is_refused,
    release_makes_way_for_the_next_one,
    release_without_the_reservation_is_refused,
    lease_that_is_over_is_taken_over_and_its_holder_fenced,
    lease_that_is_extended_is_not_over,
    lease_that_is_over_stays_in_doubt_where_nobody_may_take_over,
    same_change_twice_is_one,
    answer_is_never_replaced,
    answer_that_was_cut_off_gets_its_digest,
    release_after_the_answer_forgets_nothing,
    what_is_over_is_forgotten_and_removed,
    one_of_many_at_once_is_reserved,
    one_of_many_at_once_takes_over,
    large_answers_come_back_whole,
    thousand_requests_are_kept_apart,
    random_calls_are_answered_as_by_the_rules,
);

pub fn run<F: Future<Output = ()>>(test: F) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(test);
}

pub fn on_embedded<F: Future<Output = ()>>(test: impl FnOnce(Arc<dyn Store>) -> F) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = ratchet::http::Requests::open(&folder.path().join("requests")).expect("a new store");
    run(test(Arc::new(store)));
}

/// The same where the store reserves on its caller's thread.
pub fn on_embedded_at_once<F: Future<Output = ()>>(test: impl FnOnce(Arc<dyn Store>) -> F) {
    let folder = tempfile::tempdir().expect("a folder");
    let store = Arc::new(ratchet::http::Requests::open(&folder.path().join("requests")).expect("a new store"));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("a runtime");
    runtime.block_on(async {
        // It does so once some writes have taken no time.
        for _ in 0..20 {
            reserved(&*store, &wanted(new_id(), 1)).await;
        }
        test(store).await;
    });
}

/// The database that all these tests share: each has its own requests.
pub fn shared_database() -> &'static Database {
    static SHARED: OnceLock<Database> = OnceLock::new();
    SHARED.get_or_init(Database::new)
}

pub fn on_postgres<F: Future<Output = ()>>(test: impl FnOnce(Arc<dyn Store>) -> F) {
    let store = ratchet::postgres::requests::Requests::new(&shared_database().url, "ratchet").expect("an address");
    run(test(Arc::new(store)));
}

pub fn on_redis<F: Future<Output = ()>>(test: impl FnOnce(Arc<dyn Store>) -> F) {
    let address = Address::read(&crate::redis_server::Server::shared().url("")).expect("an address");
    run(test(Arc::new(Requests::new(address))));
}

pub fn on_model<F: Future<Output = ()>>(test: impl FnOnce(Arc<dyn Store>) -> F) {
    run(test(Arc::new(model::Model::default())));
}

/// The answer that was found.
pub fn answered(found: Found) -> Answer {
    match found {
        Found::Answered(answer) => answer,
        found => panic!("no answer: {found:?}"),
    }
}

/// A store's reply to a caller that does not hold the request, or no longer does.
pub const FENCED: Result<StillHeld, ratchet::http::request::Error> = Ok(StillHeld::Fenced);
pub const KEPT: Result<StillHeld, ratchet::http::request::Error> = Ok(StillHeld::Yes);
