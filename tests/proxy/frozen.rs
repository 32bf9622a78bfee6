//! Two proxies share a store. One is frozen beyond its lease with a request at work, the other is asked for the same:
//! whichever proxy has the request, all answers to it are one.

use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderValue, Request};
use http_body_util::Full;
use tokio::task::JoinHandle;

use super::client::{Got, charge, send};
use super::shop::{ALWAYS_HELD, HELD, Shop};
use crate::database::Database;
use crate::program::{Keeps, Proxy, Room, WAIT};

const WAITING: &str = "wait: 30s";

/// The charge, held back by the service.
fn held(how: &'static str) -> Request<Full<Bytes>> {
    let mut charge = charge("k", "{}");
    charge.headers_mut().insert(how, HeaderValue::from_static("yes"));
    charge
}

/// Two proxies before a shop, and a request at work in the first one, which is frozen until its lease is over.
async fn frozen(keeps: Keeps, more: &str, then: impl AsyncFnOnce(&Shop, [&Proxy; 2], JoinHandle<Got>)) {
    let (shop, one, other) = (Shop::new(), Room::new(), Room::new());
    let service = shop.open().await;
    let more = format!("lease: 1s\n{more}");
    let [first, heir] = [&one, &other].map(|room| room.start_on(&keeps, &service.url(), &more));
    let asked = held(HELD);
    let at_work = tokio::spawn(send(first.address, asked));
    let begun = Instant::now();
    while shop.runs("/charges", "k") == 0 {
        assert!(begun.elapsed() < WAIT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    first.signal(libc::SIGSTOP);
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    then(&shop, [&first, &heir], at_work).await;
}

/// The other one takes it over; what the first one would remember is refused, and its client gets its heir's answer.
async fn heir_answers_for_both(keeps: Keeps) {
    frozen(keeps, WAITING, async |shop, [first, heir], at_work| {
        let taken = send(heir.address, charge("k", "{}")).await;
        assert_eq!((taken.text(), taken.is_replayed()), (r#"{"run":2}"#, false), "{}", heir.log());
        // What it has logged is read while it goes on.
        let answered = Instant::now();
        while !heir.log().contains("a request was taken over") {
            assert!(answered.elapsed() < WAIT, "{}", heir.log());
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        // The service says to the first one that it is done, before that one is awake.
        shop.may.add_permits(1);
        tokio::time::sleep(Duration::from_millis(100)).await;
        first.signal(libc::SIGCONT);
        let late = at_work.await.unwrap();
        assert_eq!((late.text(), late.is_replayed()), (r#"{"run":2}"#, true), "{}", first.log());
        for proxy in [first, heir] {
            let again = send(proxy.address, charge("k", "{}")).await;
            assert_eq!((again.text(), again.is_replayed()), (r#"{"run":2}"#, true));
        }
        assert_eq!(shop.runs("/charges", "k"), 2);
    })
    .await;
}

/// The heir is at work when the first one wakes up: what that one would remember is refused all the same, and its client
/// waits for the heir's answer.
async fn heir_at_work_is_not_disturbed(keeps: Keeps) {
    frozen(keeps, WAITING, async |shop, [first, heir], at_work| {
        let taken = taken_over(shop, heir).await;
        first.signal(libc::SIGCONT);
        // It asks the store again and again: time enough for what must not happen.
        tokio::time::sleep(Duration::from_millis(300)).await;
        assert!(!at_work.is_finished() && !taken.is_finished());
        shop.may.add_permits(1);
        for (client, is_replayed) in [(taken, false), (at_work, true)] {
            let got = client.await.unwrap();
            assert_eq!((got.text(), got.is_replayed()), (r#"{"run":2}"#, is_replayed), "{}", first.log());
        }
        assert_eq!(shop.runs("/charges", "k"), 2);
    })
    .await;
}

/// The same where nobody waits: its client is told that somebody is at work.
async fn heir_at_work_is_a_conflict_where_nobody_waits(keeps: Keeps) {
    frozen(keeps, "", async |shop, [first, heir], at_work| {
        let taken = taken_over(shop, heir).await;
        first.signal(libc::SIGCONT);
        let refused = at_work.await.unwrap();
        let problem = "urn:ratchet:idempotency:in-progress";
        assert_eq!((refused.status(), refused.problem().as_str()), (409, problem), "{}", first.log());
        shop.may.add_permits(1);
        assert_eq!(taken.await.unwrap().text(), r#"{"run":2}"#);
        let again = send(first.address, charge("k", "{}")).await;
        assert_eq!((again.text(), again.is_replayed(), shop.runs("/charges", "k")), (r#"{"run":2}"#, true, 2));
    })
    .await;
}

/// A request that the heir has taken over, and has at work; the first one's run is done.
async fn taken_over(shop: &Shop, heir: &Proxy) -> JoinHandle<Got> {
    // The first permit is for the first run, which waits already.
    let taken = tokio::spawn(send(heir.address, held(ALWAYS_HELD)));
    let begun = Instant::now();
    while shop.runs("/charges", "k") < 2 {
        assert!(begun.elapsed() < WAIT, "{}", heir.log());
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    shop.may.add_permits(1);
    taken
}

/// Nobody may take over: the other one is refused, and the late answer counts.
async fn late_answer_counts_where_nobody_may_take_over(keeps: Keeps) {
    frozen(keeps, "on_in_doubt: refuse\nwait: 30s", async |shop, [first, heir], at_work| {
        let refused = send(heir.address, charge("k", "{}")).await;
        assert_eq!((refused.status(), refused.problem().as_str()), (409, "urn:ratchet:idempotency:in-doubt"));
        shop.may.add_permits(1);
        first.signal(libc::SIGCONT);
        assert_eq!(at_work.await.unwrap().text(), r#"{"run":1}"#);
        let again = send(heir.address, charge("k", "{}")).await;
        assert_eq!((again.text(), again.is_replayed(), shop.runs("/charges", "k")), (r#"{"run":1}"#, true, 1));
    })
    .await;
}

fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}

/// Each case on each store that proxies share.
macro_rules! on_shared_stores {
    ($($case:ident),+ $(,)?) => {
        mod postgres {
            $(#[test] fn $case() {
                let database = super::Database::new();
                super::run(super::$case(super::Keeps::Postgres(database.url.clone())));
            })+
        }
        mod redis {
            $(#[test] fn $case() {
                let server = crate::redis_server::Server::start(&[]);
                super::run(super::$case(super::Keeps::Redis(server.url(""))));
            })+
        }
    };
}

on_shared_stores!(
    heir_answers_for_both,
    heir_at_work_is_not_disturbed,
    heir_at_work_is_a_conflict_where_nobody_waits,
    late_answer_counts_where_nobody_may_take_over
);

/// The only one that has the store is frozen with it: whichever is first when it wakes up, all answers are one.
#[tokio::test(flavor = "multi_thread")]
async fn proxy_that_was_frozen_with_its_store_gives_one_answer() {
    let (shop, room) = (Shop::new(), Room::new());
    let service = shop.open().await;
    let proxy = room.start(&service.url(), "lease: 1s\nwait: 30s");
    let asked = held(HELD);
    let at_work = tokio::spawn(send(proxy.address, asked));
    let begun = Instant::now();
    while shop.runs("/charges", "k") == 0 {
        assert!(begun.elapsed() < WAIT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    proxy.signal(libc::SIGSTOP);
    let meanwhile: Vec<_> = (0..10).map(|_| tokio::spawn(send(proxy.address, charge("k", "{}")))).collect();
    tokio::time::sleep(Duration::from_millis(1_300)).await;
    shop.may.add_permits(1);
    proxy.signal(libc::SIGCONT);
    let first = at_work.await.unwrap();
    for got in meanwhile {
        let got = got.await.unwrap();
        assert_eq!((got.status(), got.text()), (201, first.text()), "{}", proxy.log());
    }
    assert_eq!(send(proxy.address, charge("k", "{}")).await.text(), first.text());
    assert!(shop.runs("/charges", "k") <= 2);
}
