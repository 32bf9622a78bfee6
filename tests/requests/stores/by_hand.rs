//! What people see of requests, and decide about them, is by the same rules on all stores.

use ratchet::http::request::operator::{Decision, ListFilter, ListedRequest, RequestStatus, Settle, Settled};

use super::*;

/// A store, and what people ask of it.
pub trait Both: Store + Settle {}
impl<T: Store + Settle> Both for T {}

/// The request as it is listed.
async fn see(store: &impl Both, id: Id) -> Option<ListedRequest> {
    let id_prefix: String = id.0.iter().map(|byte| format!("{byte:02x}")).collect();
    let listed = async |includes_answered| {
        let filter = ListFilter { id_prefix: id_prefix.clone(), includes_answered, max: 10 };
        let requests = store.list(&filter).await.expect("the store is there");
        assert!(requests.len() <= 1, "{requests:?}");
        requests.first().copied()
    };
    let (all, unanswered) = (listed(true).await, listed(false).await);
    assert_eq!(unanswered, all.filter(|seen| seen.state != RequestStatus::Answered), "only those are left out");
    all
}

async fn settle(store: &impl Both, id: Id, decision: Decision) -> Settled {
    store.settle(id, &decision, Token(rand::random())).await.expect("the store is there")
}

fn state(seen: Option<ListedRequest>) -> Option<RequestStatus> {
    seen.map(|seen| seen.state)
}

/// A request that its holder has let go.
async fn doubted(store: &impl Both, id: Id) -> Reservation {
    reserved(store, &Wanted { lease: Duration::ZERO, on_in_doubt: OnInDoubt::Refuse, ..wanted(id, 1) }).await
}

pub async fn requests_are_listed_as_they_are(store: &impl Both) {
    let [at_work, in_doubt, answered_one, over] = [new_id(), new_id(), new_id(), new_id()];
    reserved(store, &wanted(at_work, 1)).await;
    doubted(store, in_doubt).await;
    let held = reserved(store, &wanted(answered_one, 1)).await;
    assert_eq!(store.complete(held, &answer(200, ""), LONG).await, KEPT);
    reserved(store, &Wanted { lease: Duration::ZERO, retention: Duration::ZERO, ..wanted(over, 1) }).await;
    assert_eq!(state(see(store, at_work).await), Some(RequestStatus::UnderWay));
    assert_eq!(state(see(store, in_doubt).await), Some(RequestStatus::InDoubt));
    assert_eq!(state(see(store, answered_one).await), Some(RequestStatus::Answered));
    assert_eq!(see(store, over).await, None, "it is forgotten");
    assert_eq!(see(store, new_id()).await, None);
    let (one, other) =
        (see(store, at_work).await.expect("it is there"), see(store, in_doubt).await.expect("it is there"));
    let lease = |seen: &ListedRequest| seen.lease_until_ms.expect("it was reserved");
    let long_ms = i64::try_from(LONG.as_millis()).expect("minutes");
    assert!((lease(&one) - lease(&other) - long_ms).abs() < 60_000, "{one:?}, {other:?}");
    assert!((one.remembered_until_ms - lease(&one)).abs() < 60_000, "{one:?}");
}

pub async fn request_in_doubt_is_answered_by_hand(store: &impl Both) {
    let id = new_id();
    let zombie = doubted(store, id).await;
    let until_ms = see(store, id).await.expect("it is there").remembered_until_ms;
    assert_eq!(settle(store, id, Decision::Answer(answer(201, "by hand"))).await, Settled::Answered);
    assert_eq!(store.complete(zombie, &answer(200, "zombie"), LONG).await, FENCED);
    assert_eq!(store.extend(zombie, LONG).await, FENCED);
    assert_eq!(store.release(zombie).await, FENCED);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(answer(201, "by hand")));
    assert_eq!(store.reserve(&wanted(id, 2)).await, Ok(Found::OtherRequest), "it is still the same request");
    let kept_ms = see(store, id).await.expect("it is there").remembered_until_ms;
    assert!((kept_ms - until_ms).abs() < 5_000, "it is remembered for as long: {until_ms}, {kept_ms}");
    assert_eq!(settle(store, id, Decision::Answer(answer(200, "second"))).await, Settled::AlreadyAnswered);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(answer(201, "by hand")));
}

pub async fn request_in_doubt_is_forgotten_by_hand(store: &impl Both) {
    let id = new_id();
    let zombie = doubted(store, id).await;
    assert_eq!(settle(store, id, Decision::Forget).await, Settled::Forgotten(RequestStatus::InDoubt));
    assert_eq!(store.complete(zombie, &answer(200, "zombie"), LONG).await, FENCED);
    let heir = wanted(id, 1);
    assert_eq!(store.reserve(&heir).await, Ok(NEW));
    assert_eq!(store.complete(heir.held, &answer(200, "heir"), LONG).await, KEPT);
    assert_eq!(settle(store, id, Decision::Forget).await, Settled::Forgotten(RequestStatus::Answered));
    assert_eq!(store.reserve(&wanted(id, 2)).await, Ok(NEW), "whatever it asks for");
}

pub async fn request_that_somebody_is_at_is_not_settled(store: &impl Both) {
    let id = new_id();
    let held = reserved(store, &wanted(id, 1)).await;
    for decision in [Decision::Forget, Decision::Answer(answer(200, "by hand"))] {
        let settled = settle(store, id, decision).await;
        let Settled::UnderWay { lease_until_ms } = settled else { panic!("{settled:?}") };
        assert_eq!(see(store, id).await.expect("it is there").lease_until_ms, Some(lease_until_ms));
    }
    assert_eq!(store.complete(held, &answer(200, "its own"), LONG).await, KEPT);
    assert_eq!(store.reserve(&wanted(id, 1)).await.map(answered), Ok(answer(200, "its own")));
}

pub async fn request_that_nobody_knows_is_not_settled(store: &impl Both) {
    let over = new_id();
    reserved(store, &Wanted { lease: Duration::ZERO, retention: Duration::ZERO, ..wanted(over, 1) }).await;
    for id in [new_id(), over] {
        for decision in [Decision::Forget, Decision::Answer(answer(200, ""))] {
            assert_eq!(settle(store, id, decision).await, Settled::Unknown);
        }
        assert_eq!(store.reserve(&wanted(id, 1)).await, Ok(NEW), "nothing was written");
    }
}

/// The other stores, each with all cases.
macro_rules! on_each_store {
    ($($case:ident),+ $(,)?) => {
        mod embedded {
            $(#[test] fn $case() {
                let folder = tempfile::tempdir().expect("a folder");
                let store = ratchet::http::Requests::open(&folder.path().join("requests")).expect("a new store");
                super::run(super::$case(&store));
            })+
        }
        mod postgres {
            $(#[test] fn $case() {
                let url = &super::shared_database().url;
                let store = ratchet::postgres::requests::Requests::new(url, "ratchet").expect("an address");
                super::run(super::$case(&store));
            })+
        }
        mod redis {
            $(#[test] fn $case() {
                let url = crate::redis_server::Server::shared().url("");
                let store = super::Requests::new(super::Address::read(&url).expect("an address"));
                super::run(super::$case(&store));
            })+
        }
        mod model_itself {
            $(#[test] fn $case() { super::run(super::$case(&super::model::Model::default())); })+
        }
    };
}

on_each_store!(
    requests_are_listed_as_they_are,
    request_in_doubt_is_answered_by_hand,
    request_in_doubt_is_forgotten_by_hand,
    request_that_somebody_is_at_is_not_settled,
    request_that_nobody_knows_is_not_settled,
);
