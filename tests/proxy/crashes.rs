//! The proxy is killed before, during and after the service's answer: what is done once, and what is in doubt.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;
use tokio::sync::Semaphore;

use super::client::{Got, Unanswered, begin, charge, request, send};
use super::service::{Service, answer};
use crate::program::{Proxy, Room, WAIT};

/// A service that answers when it may.
async fn waiting() -> (Service, Arc<Semaphore>) {
    let (may, count) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicUsize::new(0)));
    let gate = Arc::clone(&may);
    let service = Service::start(move |request| {
        let (gate, number) = (Arc::clone(&gate), count.fetch_add(1, Ordering::SeqCst) + 1);
        async move {
            drop(request.into_body().collect().await);
            gate.acquire().await.unwrap().forget();
            answer(201, format!("{{\"run\":{number}}}"))
        }
    })
    .await;
    (service, may)
}

async fn until(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < WAIT, "waited in vain for {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// A charge, begun while the proxy is running, which nobody may see the end of.
fn begun(proxy: &Proxy, key: &'static str) -> tokio::task::JoinHandle<Result<(), Unanswered>> {
    let address = proxy.address;
    tokio::spawn(async move { begin(address, charge(key, "{}")).await.map(drop) })
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_after_the_answer_it_is_remembered() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "");
    assert_eq!(send(proxy.address, charge("k", "{}")).await.text(), r#"{"run":1}"#);
    proxy.kill();
    let proxy = room.start(&service.url(), "");
    let again = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((again.text(), again.is_replayed(), service.runs()), (r#"{"run":1}"#, true, 1));
}

async fn killed_at_work(choice: &str) -> (Got, usize) {
    let (room, (service, may)) = (Room::new(), waiting().await);
    let proxy = room.start(&service.url(), choice);
    let lost = begun(&proxy, "k");
    until("the service to be at work", || service.runs() == 1).await;
    proxy.kill();
    assert!(lost.await.unwrap().is_err(), "nobody was told anything");
    may.add_permits(2);
    let proxy = room.start(&service.url(), choice);
    // The end of the process has ended its leases: nobody has to wait.
    let got = send(proxy.address, charge("k", "{}")).await;
    (got, service.runs())
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_service_is_at_work_it_is_carried_out_again() {
    let (got, runs) = killed_at_work("").await;
    assert_eq!((got.text(), got.is_replayed(), runs), (r#"{"run":2}"#, false, 2));
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_service_is_at_work_it_is_refused_where_that_is_chosen() {
    let (got, runs) = killed_at_work("on_in_doubt: refuse").await;
    assert_eq!((got.status(), got.problem().as_str(), runs), (409, "urn:ratchet:idempotency:in-doubt", 1));
}

/// A reservation outlives the process from before the service is run, though it is not synced.
#[tokio::test(flavor = "multi_thread")]
async fn killed_while_the_service_is_at_work_its_key_still_stands_for_that_request() {
    let (room, (service, may)) = (Room::new(), waiting().await);
    let proxy = room.start(&service.url(), "");
    // The store sees by these that it can reserve at once.
    may.add_permits(20);
    for number in 0..20 {
        assert_eq!(send(proxy.address, charge(&format!("warm-{number}"), "{}")).await.status(), 201);
    }
    let lost = begun(&proxy, "k");
    until("the service to be at work", || service.runs() == 21).await;
    proxy.kill();
    assert!(lost.await.unwrap().is_err(), "nobody was told anything");
    let proxy = room.start(&service.url(), "");
    let other = send(proxy.address, charge("k", r#"{"amount": 1}"#)).await;
    assert_eq!((other.status(), service.runs()), (422, 21), "{other:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_before_it_had_all_of_a_request_nothing_was_done() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "on_in_doubt: refuse");
    let (tell, pieces) = tokio::sync::mpsc::channel::<bytes::Bytes>(1);
    let pieces = futures_util::stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((Ok::<_, super::service::Broken>(http_body::Frame::data(piece)), pieces))
    });
    let (head, _) = request("POST", "/charges", &[("idempotency-key", "k")], "").into_parts();
    let asked = http::Request::from_parts(head, http_body_util::StreamBody::new(Box::pin(pieces)));
    let lost = tokio::spawn(begin(proxy.address, asked));
    tell.send("{".into()).await.unwrap();
    tell.send("}".into()).await.unwrap();
    proxy.kill();
    assert!(lost.await.unwrap().is_err());
    let proxy = room.start(&service.url(), "on_in_doubt: refuse");
    assert_eq!(send(proxy.address, charge("k", "{}")).await.text(), r#"{"run":1}"#);
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_again_and_again_each_charge_is_answered_once_and_the_same() {
    const KEYS: [&str; 8] = ["a", "b", "c", "d", "e", "f", "g", "h"];
    let (room, service) = (Room::new(), Service::counting().await);
    let mut answers: [Option<String>; 8] = Default::default();
    for round in 0..6u64 {
        let proxy = room.start(&service.url(), "");
        let address = proxy.address;
        let all = KEYS.map(|key| {
            tokio::spawn(async move {
                let answered = begin(address, charge(key, "{}")).await.ok()?;
                let body = answered.into_body().collect().await.ok()?;
                Some(String::from_utf8(body.to_bytes().to_vec()).unwrap())
            })
        });
        tokio::time::sleep(Duration::from_millis(round * 3)).await;
        proxy.kill();
        for (known, got) in answers.iter_mut().zip(all) {
            let Some(got) = got.await.unwrap() else { continue };
            assert_eq!(*known.get_or_insert_with(|| got.clone()), got, "an answer has changed");
        }
    }
    let proxy = room.start(&service.url(), "");
    for (key, known) in KEYS.iter().zip(&mut answers) {
        let got = send(proxy.address, charge(key, "{}")).await.text().to_owned();
        assert_eq!(*known.get_or_insert_with(|| got.clone()), got, "{key}");
    }
}
