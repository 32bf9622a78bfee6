//! The cases, for any store.

use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use ratchet::http::request::{Answer, AnswerBody, Found, OnInDoubt, Store, Wanted};

use super::*;

/// Powertools, functional tests: in progress, expiry ahead: AlreadyInProgress.
pub async fn first_one_is_reserved_and_others_wait(store: &dyn Store) {
    let id = new_id();
    assert_eq!(store.reserve(&wanted(id, 1)).await, Ok(NEW));
    assert_eq!(store.reserve(&wanted(id, 1)).await, Ok(Found::InProgress));
    assert_eq!(store.reserve(&wanted(new_id(), 1)).await, Ok(NEW), "another request is another matter");
}

/// rocket-rides-atomic: a finished key returns the stored body, also a declined card's 402.
pub async fn answer_is_given_to_all_later_ones(store: &dyn Store) {
    for status in [200, 201, 204, 302, 402, 422] {
        let id = new_id();
        let held = reserved(store, &wanted(id, 1)).await;
        let given = answer(status, "charged\0\u{fe}");
        assert_eq!(store.complete(held, &given, LONG).await, KEPT);
        for _ in 0..2 {
            assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(given.clone()));
        }
    }
}

/// idempot-js#183: processing + other body: 422, not 409.
pub async fn other_request_under_the_key_is_told_before_anything_else(store: &dyn Store) {
    let id = new_id();
    let held = reserved(store, &wanted(id, 1)).await;
    assert_eq!(store.reserve(&wanted(id, 2)).await, Ok(Found::OtherRequest), "while the first one is at work");
    assert_eq!(store.complete(held, &answer(200, ""), LONG).await, KEPT);
    assert_eq!(store.reserve(&wanted(id, 2)).await, Ok(Found::OtherRequest), "and when it is answered");
    let orphan = new_id();
    reserved(store, &Wanted { lease: Duration::ZERO, ..wanted(orphan, 1) }).await;
    assert_eq!(store.reserve(&wanted(orphan, 2)).await, Ok(Found::OtherRequest), "and when its holder is gone");
}

/// Found nowhere: others complete by the key alone.
pub async fn completion_without_the_reservation_is_refused(store: &dyn Store) {
    let id = new_id();
    let stranger = wanted(id, 1).held;
    assert_eq!(store.complete(stranger, &answer(200, ""), LONG).await, FENCED, "nothing is reserved");
    let held = reserved(store, &wanted(id, 1)).await;
    assert_eq!(store.complete(stranger, &answer(500, "not mine"), LONG).await, FENCED);
    assert_eq!(store.extend(stranger, LONG).await, FENCED);
    assert_eq!(store.complete(held, &answer(200, "mine"), LONG).await, KEPT);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(answer(200, "mine")));
}

/// Powertools: the handler raises: the record is gone.
pub async fn release_makes_way_for_the_next_one(store: &dyn Store) {
    let id = new_id();
    let held = reserved(store, &wanted(id, 1)).await;
    assert_eq!(store.release(held).await, KEPT);
    assert_eq!(store.complete(held, &answer(200, ""), LONG).await, FENCED, "it was given back");
    assert_eq!(store.reserve(&wanted(id, 2)).await, Ok(NEW), "whatever it asks for");
}

/// aegra#547: a stalled attempt releases its successor's lease.
pub async fn release_without_the_reservation_is_refused(store: &dyn Store) {
    let id = new_id();
    let stranger = wanted(id, 1).held;
    assert_eq!(store.release(stranger).await, FENCED);
    reserved(store, &wanted(id, 1)).await;
    assert_eq!(store.release(stranger).await, FENCED);
    assert_eq!(store.reserve(&wanted(id, 1)).await, Ok(Found::InProgress));
}

/// rocket-rides-atomic: a stale lock is taken. And, found nowhere: the zombie completes after that and is refused.
pub async fn lease_that_is_over_is_taken_over_and_its_holder_fenced(store: &dyn Store) {
    let id = new_id();
    let zombie = reserved(store, &Wanted { lease: SHORT, ..wanted(id, 1) }).await;
    assert_eq!(store.reserve(&wanted(id, 1)).await, Ok(Found::InProgress), "its lease goes on");
    tokio::time::sleep(BEYOND_SHORT).await;
    let heir = wanted(id, 1);
    assert_eq!(store.reserve(&heir).await, Ok(TAKEN_OVER));
    assert_eq!(store.complete(zombie, &answer(200, "zombie"), LONG).await, FENCED);
    assert_eq!(store.extend(zombie, LONG).await, FENCED);
    assert_eq!(store.release(zombie).await, FENCED);
    assert_eq!(store.complete(heir.held, &answer(200, "heir"), LONG).await, KEPT);
    assert_eq!(store.complete(zombie, &answer(200, "zombie"), LONG).await, FENCED);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(answer(200, "heir")));
}

/// powertools-python#8049: what takes long is not run twice.
pub async fn lease_that_is_extended_is_not_over(store: &dyn Store) {
    let id = new_id();
    let held = reserved(store, &Wanted { lease: SHORT, ..wanted(id, 1) }).await;
    assert_eq!(store.extend(held, LONG).await, KEPT);
    tokio::time::sleep(BEYOND_SHORT).await;
    assert_eq!(store.reserve(&wanted(id, 1)).await, Ok(Found::InProgress));
    assert_eq!(store.complete(held, &answer(200, ""), LONG).await, KEPT);
    assert_eq!(store.extend(held, LONG).await, KEPT, "an answer needs no lease, and its holder is told no wrong");
}

/// powertools-python#8386: run twice against a third party, because a lease was over.
pub async fn lease_that_is_over_stays_in_doubt_where_nobody_may_take_over(store: &dyn Store) {
    let id = new_id();
    let refuse = |id| Wanted { on_in_doubt: OnInDoubt::Refuse, ..wanted(id, 1) };
    let first = Wanted { lease: SHORT, ..refuse(id) };
    reserved(store, &first).await;
    assert_eq!(store.reserve(&refuse(id)).await, Ok(Found::InProgress));
    tokio::time::sleep(BEYOND_SHORT).await;
    for _ in 0..2 {
        assert_eq!(store.reserve(&refuse(id)).await, Ok(Found::InDoubt));
    }
    assert_eq!(store.complete(first.held, &answer(200, "late"), LONG).await, KEPT, "nobody has taken over");
    assert_eq!(store.reserve(&refuse(id)).await.map(answered), Ok(answer(200, "late")));
}

/// Found nowhere: the answer of the store is lost, and it is asked again.
pub async fn same_change_twice_is_one(store: &dyn Store) {
    let wanted = wanted(new_id(), 1);
    let held = reserved(store, &wanted).await;
    assert_eq!(store.reserve(&wanted).await, Ok(NEW));
    assert_eq!(store.complete(held, &answer(200, "a"), LONG).await, KEPT);
    assert_eq!(store.complete(held, &answer(200, "a"), LONG).await, KEPT);
}

/// Completion of what the service has completed in its own transaction: the first one counts.
pub async fn answer_is_never_replaced(store: &dyn Store) {
    let id = new_id();
    let held = reserved(store, &wanted(id, 1)).await;
    assert_eq!(store.complete(held, &answer(201, "first"), LONG).await, KEPT);
    assert_eq!(store.complete(held, &answer(200, "second"), LONG).await, KEPT);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(answer(201, "first")));
}

/// Cached result too large.
pub async fn answer_that_was_cut_off_gets_its_digest(store: &dyn Store) {
    let id = new_id();
    let held = reserved(store, &wanted(id, 1)).await;
    let with = |body| Answer { body, ..answer(200, "") };
    assert_eq!(store.complete(held, &with(AnswerBody::CutOff), LONG).await, KEPT);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(with(AnswerBody::CutOff)));
    let digest = with(AnswerBody::Digest { length: u64::MAX, sha256: [7; 32] });
    assert_eq!(store.complete(held, &digest, LONG).await, KEPT);
    assert_eq!(store.complete(held, &with(AnswerBody::CutOff), LONG).await, KEPT);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(digest));
}

/// A zombie that fails after its own answer was remembered.
pub async fn release_after_the_answer_forgets_nothing(store: &dyn Store) {
    let id = new_id();
    let held = reserved(store, &wanted(id, 1)).await;
    assert_eq!(store.complete(held, &answer(200, "a"), LONG).await, KEPT);
    assert_eq!(store.release(held).await, FENCED);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(answer(200, "a")));
}

/// Powertools, end to end: the second call is cached, the third after the expiry runs.
pub async fn what_is_over_is_forgotten_and_removed(store: &dyn Store) {
    let (answered_one, abandoned, kept) = (new_id(), new_id(), new_id());
    let held = reserved(store, &wanted(answered_one, 1)).await;
    assert_eq!(store.complete(held, &answer(200, ""), SHORT).await, KEPT);
    reserved(store, &Wanted { lease: SHORT, retention: SHORT, ..wanted(abandoned, 1) }).await;
    let held = reserved(store, &wanted(kept, 1)).await;
    assert_eq!(store.complete(held, &answer(200, "kept"), LONG).await, KEPT);
    tokio::time::sleep(BEYOND_SHORT).await;
    assert_eq!(store.reserve(&wanted(abandoned, 2)).await, Ok(NEW), "forgotten before it is removed");
    while store.tidy().await.expect("the store is there") > 0 {}
    assert_eq!(store.reserve(&wanted(answered_one, 2)).await, Ok(NEW));
    assert_eq!(store.reserve(&wanted(abandoned, 2)).await, Ok(Found::InProgress), "what was reserved anew is kept");
    assert_eq!(store.reserve(&wanted(kept, 1)).await.map(answered), Ok(answer(200, "kept")));
}

/// Powertools on Redis: two processes on one fresh key: one run. idempot-js#181: SETEX let both run.
pub async fn one_of_many_at_once_is_reserved(store: &dyn Store) {
    let id = new_id();
    assert_eq!(at_once(store, id).await, (1, 99));
}

/// Powertools on Redis: two processes on one orphaned key: one run.
pub async fn one_of_many_at_once_takes_over(store: &dyn Store) {
    let id = new_id();
    reserved(store, &Wanted { lease: Duration::ZERO, ..wanted(id, 1) }).await;
    assert_eq!(at_once(store, id).await, (1, 99));
}

/// How many of a hundred have it reserved, and how many are told that another has.
async fn at_once(store: &dyn Store, id: Id) -> (usize, usize) {
    let all: Vec<_> = (0..100).map(|_| wanted(id, 1)).collect();
    let found = join_all(all.iter().map(|wanted| store.reserve(wanted))).await;
    let count = |is: fn(&Found) -> bool| found.iter().filter(|found| is(found.as_ref().expect("no failure"))).count();
    (count(|found| matches!(found, Found::Reserved { .. })), count(|found| *found == Found::InProgress))
}

/// An answer of a mebibyte, with every byte.
pub async fn large_answers_come_back_whole(store: &dyn Store) {
    let id = new_id();
    let held = reserved(store, &wanted(id, 1)).await;
    let body: Bytes = (0..1 << 20).map(|at: u32| at.to_le_bytes()[at as usize % 3]).collect();
    let given = Answer { body: AnswerBody::Whole(body), ..answer(200, "") };
    assert_eq!(store.complete(held, &given, LONG).await, KEPT);
    assert!(store.reserve(&wanted(id, 1)).await.map(answered) == Ok(given));
}

/// A thousand requests at once: none gets another's answer.
pub async fn thousand_requests_are_kept_apart(store: &dyn Store) {
    let all: Vec<_> = (0..1_000).map(|_| wanted(new_id(), 1)).collect();
    let one = async |number: usize, wanted: &Wanted| {
        let held = reserved(store, wanted).await;
        store.complete(held, &answer(200, &number.to_string()), LONG).await
    };
    let kept = join_all(all.iter().enumerate().map(|(number, wanted)| one(number, wanted))).await;
    assert!(kept.iter().all(|kept| *kept == KEPT));
    for (number, first) in all.iter().enumerate() {
        let again = store.reserve(&wanted(first.held.id, 1)).await;
        assert_eq!(again.map(answered), Ok(answer(200, &number.to_string())));
    }
}

/// Any calls in any order: see [`super::random_calls`].
pub async fn random_calls_are_answered_as_by_the_rules(store: &dyn Store) {
    super::random_calls::compare(store, 2_000).await;
}
