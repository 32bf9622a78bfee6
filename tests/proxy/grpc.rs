//! Errors of gRPC, which come with a status of 200: they are what they say, and no success.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};

use super::client::{Got, for_two, request, two, whole};
use super::service::{Answer, Broken, Service};
use crate::program::{Proxy, Room};

/// A body larger than a bound of 1 KiB.
const LARGE: &[u8] = &[b'x'; 4_096];

/// A service whose first answer to each has this status, among its headers or in its trailers, as the path says, in those
/// of a large answer with `/large`. Later ones are fine, and say which they are.
async fn service(status: &'static str) -> Service {
    let runs = Arc::new(AtomicUsize::new(0));
    Service::start(move |request| {
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            let (is_bare, is_large) = (request.uri().path() == "/bare", request.uri().path() == "/large");
            drop(request.into_body().collect().await);
            let status = if run == 1 { status } else { "0" };
            let said = [("grpc-status", status), ("grpc-message", "run%20it")];
            let said = said
                .iter()
                .map(|(name, value)| (name.parse::<HeaderName>().unwrap(), value.parse::<HeaderValue>().unwrap()));
            let said: HeaderMap = said.collect();
            let mut frames: Vec<Result<Frame<Bytes>, Broken>> = Vec::new();
            if !is_bare || status == "0" {
                frames.extend((is_large && status != "0").then(|| Ok(Frame::data(Bytes::from_static(LARGE)))));
                frames.extend((status == "0").then(|| Ok(Frame::data(Bytes::from(format!("run {run}"))))));
                frames.push(Ok(Frame::trailers(said.clone())));
            }
            let mut answer: Answer = Response::new(StreamBody::new(futures_util::stream::iter(frames)).boxed_unsync());
            answer.headers_mut().insert("content-type", "application/grpc".parse().unwrap());
            if is_bare && status != "0" {
                answer.headers_mut().extend(said);
            }
            answer
        }
    })
    .await
}

async fn call(proxy: &Proxy, path: &str) -> Got {
    let asked = request("POST", path, &[("idempotency-key", "k"), ("te", "trailers")], "call");
    let mut sender = two(proxy.address).await;
    whole(sender.send_request(for_two(asked)).await.unwrap()).await
}

/// The first call fails with this status; how often the service has been run after a second one, and what that one gets.
async fn twice(path: &str, status: &'static str, more: &str) -> (usize, Got) {
    let (room, service) = (Room::new(), service(status).await);
    let proxy = room.start(&service.url(), &format!("upstream_protocol: http2\n{more}"));
    let first = call(&proxy, path).await;
    assert_eq!((first.status(), first.is_replayed()), (200, false), "it is passed on: {}", proxy.log());
    if path == "/bare" {
        assert_eq!(first.header("grpc-status"), Some(status));
    }
    let second = call(&proxy, path).await;
    (service.runs(), second)
}

#[tokio::test(flavor = "multi_thread")]
async fn call_that_has_failed_is_not_remembered_as_done() {
    for path in ["/bare", "/trailers"] {
        for (status, more) in [("14", ""), ("2", ""), ("16", ""), ("8", "on_in_doubt: refuse"), ("99", "")] {
            let (runs, second) = twice(path, status, more).await;
            assert_eq!((runs, second.text(), second.is_replayed()), (2, "run 2", false), "{path}, {status}");
        }
        for status in ["1", "4", "13", "14"] {
            let (runs, second) = twice(path, status, "on_in_doubt: refuse").await;
            assert_eq!((runs, second.problem().as_str()), (1, "urn:ratchet:idempotency:in-doubt"), "{path}, {status}");
        }
        let (runs, _) = twice(path, "14", "on_in_doubt: refuse\nreleased: [503]").await;
        assert_eq!(runs, 2, "{path}: it is listed");
    }
}

/// A refusal is remembered, as one of HTTP is, and given again as it was.
#[tokio::test(flavor = "multi_thread")]
async fn call_that_was_refused_is_refused_again() {
    for status in ["3", "5", "6", "7"] {
        let (runs, second) = twice("/bare", status, "").await;
        assert_eq!((runs, second.status(), second.is_replayed()), (1, 200, true), "{status}");
        assert_eq!((second.header("grpc-status"), second.header("grpc-message")), (Some(status), Some("run%20it")));
        assert!(second.body.is_empty(), "{second:?}");
        let (runs, second) = twice("/trailers", status, "").await;
        assert_eq!((runs, second.is_replayed()), (1, true), "{status}");
    }
    // Said once, also where these headers are listed by hand.
    let (_, second) = twice("/bare", "5", "remember: {headers: [content-type, grpc-status, grpc-message]}").await;
    assert_eq!(
        (second.head.headers.get_all("grpc-status").iter().count(), second.header("grpc-status")),
        (1, Some("5"))
    );
    let (runs, _) = twice("/bare", "5", "released: [4xx]").await;
    assert_eq!(runs, 2, "it is listed");
}

/// That a large answer was begun is remembered before anybody knows how it ends.
#[tokio::test(flavor = "multi_thread")]
async fn call_that_fails_after_a_large_answer_counts_as_carried_out() {
    for more in ["", "on_in_doubt: refuse", "released: [4xx, 503]"] {
        let (runs, second) = twice("/large", "14", &format!("answer_bytes_max: 1KiB\n{more}")).await;
        assert_eq!((runs, second.status(), second.is_replayed()), (1, 200, true), "{more}");
        assert!(second.text().contains("its answer was too large to be kept"), "{second:?}");
        let (runs, _) = twice("/large", "16", &format!("answer_bytes_max: 8KiB\n{more}")).await;
        assert_eq!(runs, 2, "{more}: it is seen within the bound");
    }
}
