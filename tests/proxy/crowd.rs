//! Many at once under one key, and clients that do not wait.

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use http_body_util::BodyExt;

use super::client::{begin, charge, outcomes, send};
use super::service::{Service, answer};
use crate::program::{Room, WAIT};

/// A service that takes its time, and answers 201 with the number of the run.
pub async fn slow(length: Duration) -> Service {
    let count = Arc::new(AtomicUsize::new(0));
    Service::start(move |request| {
        let number = count.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            drop(request.into_body().collect().await);
            tokio::time::sleep(length).await;
            answer(201, format!("{{\"run\":{number}}}"))
        }
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn hundred_of_one_key_at_once_are_one() {
    let (room, service) = (Room::new(), slow(Duration::from_millis(500)).await);
    let proxy = room.start(&service.url(), "wait: 30s");
    let all = (0..100).map(|_| send(proxy.address, charge("k", "{}")));
    let all = futures_util::future::join_all(all).await;
    let texts: HashSet<_> = all.iter().map(|got| (got.status(), got.text())).collect();
    assert_eq!((texts.len(), service.runs()), (1, 1), "{texts:?}");
    assert_eq!(all.iter().filter(|got| !got.is_replayed()).count(), 1);
    assert_eq!(outcomes(proxy.metrics, "replayed").await, 99.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn without_a_wait_all_but_one_hear_that_it_is_at_work() {
    let (room, service) = (Room::new(), slow(Duration::from_secs(3)).await);
    let proxy = room.start(&service.url(), "");
    let all = (0..20).map(|_| send(proxy.address, charge("k", "{}")));
    let all = futures_util::future::join_all(all).await;
    assert_eq!((all.iter().filter(|got| got.status() == 201).count(), service.runs()), (1, 1));
    let refused: Vec<_> = all.iter().filter(|got| got.status() == 409).collect();
    assert_eq!(refused.len(), 19);
    assert!(
        refused
            .iter()
            .all(|got| got.problem() == "urn:ratchet:idempotency:in-progress" && got.header("retry-after").is_some())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn client_that_goes_away_does_not_stop_the_work() {
    let (room, service) = (Room::new(), slow(Duration::from_secs(1)).await);
    let proxy = room.start(&service.url(), "wait: 30s");
    let address = proxy.address;
    let gone = tokio::spawn(async move { begin(address, charge("k", "{}")).await.map(drop) });
    let start = Instant::now();
    while service.runs() == 0 {
        assert!(start.elapsed() < WAIT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gone.abort();
    let again = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((again.text(), again.is_replayed(), service.runs()), (r#"{"run":1}"#, true, 1));
}
