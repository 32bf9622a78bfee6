//! What becomes of requests: each outcome, with its answer and its count.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::client::{charge, for_two, metric, outcomes, page, request, send, two, whole};
use super::service::{Broken, Service, answer};
use crate::program::{Room, WAIT};

#[tokio::test(flavor = "multi_thread")]
async fn first_answer_is_given_again_and_something_else_is_refused() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "routes: [{path: /open, key: off}, {path: /must, key: required}]");
    let first = send(proxy.address, charge("k", r#"{"amount": 10, "to": "a"}"#)).await;
    assert_eq!((first.status(), first.text(), first.is_replayed()), (201, r#"{"run":1}"#, false));
    let again = send(proxy.address, charge("\"k\"", r#"{"to": "a", "amount": 10}"#)).await;
    assert_eq!((again.status(), again.text(), again.is_replayed()), (201, r#"{"run":1}"#, true));
    let other = send(proxy.address, charge("k", r#"{"amount": 99}"#)).await;
    assert_eq!((other.status(), other.problem().as_str()), (422, "urn:ratchet:idempotency:key-used"));
    let invalid = send(proxy.address, charge("a,b", "{}")).await;
    assert_eq!((invalid.status(), invalid.problem().as_str()), (400, "urn:ratchet:idempotency:key-invalid"));
    assert_eq!(send(proxy.address, request("POST", "/charges", &[], "{}")).await.text(), r#"{"run":2}"#);
    let missing = send(proxy.address, request("POST", "/must", &[], "{}")).await;
    assert_eq!((missing.status(), missing.problem().as_str()), (400, "urn:ratchet:idempotency:key-missing"));
    assert_eq!(send(proxy.address, request("GET", "/must", &[], "")).await.text(), r#"{"run":3}"#);
    for run in 4..6 {
        let got = send(proxy.address, request("POST", "/open", &[("idempotency-key", "k")], "{}")).await;
        assert_eq!(got.text(), format!(r#"{{"run":{run}}}"#));
    }
    let large = send(proxy.address, charge("large", &"x".repeat((1 << 20) + 1))).await;
    assert_eq!((large.status(), large.problem().as_str()), (413, "urn:ratchet:idempotency:body-too-large"));
    assert_eq!(service.runs(), 5);
    for (outcome, count) in [
        ("done", 1.0),
        ("replayed", 1.0),
        ("other_request", 1.0),
        ("key_invalid", 1.0),
        ("passed", 1.0),
        ("body_refused", 1.0),
    ] {
        assert_eq!(outcomes(proxy.metrics, outcome).await, count, "{outcome}");
    }
    assert_eq!(metric(proxy.metrics, r#"ratchet_http_requests_total{outcome="key_missing",route="/must"}"#).await, 1.0);
    assert_eq!(metric(proxy.metrics, r#"ratchet_http_requests_total{outcome="passed",route="/open"}"#).await, 2.0);
    assert_eq!(metric(proxy.metrics, r#"ratchet_http_store_duration_seconds_count{operation="complete"}"#).await, 1.0);
    assert_eq!(metric(proxy.metrics, r#"ratchet_http_requests_at_work{route="default"}"#).await, 0.0);
    assert_eq!(page(proxy.metrics, "/livez").await.status(), 200);
    let ready = page(proxy.metrics, "/readyz?verbose").await;
    assert_eq!(ready.status(), 200);
    assert!(ready.text().contains("[+] store: answers") && ready.text().contains("[+] listening"), "{}", ready.text());
    let log = proxy.log();
    assert!(log.contains("outcome") && !log.contains("amount"), "no body is logged: {log}");
}

/// Found by a review: behind one proxy may be several services, by their hosts.
#[tokio::test(flavor = "multi_thread")]
async fn keys_are_those_of_one_host_unless_the_service_has_only_one() {
    let under = |host: &str| {
        let mut request = charge("k", "{}");
        request.headers_mut().insert("host", host.parse().unwrap());
        request
    };
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "");
    for host in ["shop.example", "bank.example"] {
        assert!(!send(proxy.address, under(host)).await.is_replayed(), "{host}");
        assert!(send(proxy.address, under(host)).await.is_replayed(), "{host}");
    }
    assert!(send(proxy.address, under("Shop.Example")).await.is_replayed());
    let mut sender = two(proxy.address).await;
    let again = whole(sender.send_request(for_two(charge("k", "{}"))).await.unwrap()).await;
    assert!(again.is_replayed(), "the same by HTTP/2");
    assert_eq!(service.runs(), 2);
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "host: upstream");
    assert!(!send(proxy.address, under("shop.example")).await.is_replayed());
    assert!(send(proxy.address, under("bank.example")).await.is_replayed());
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn errors_of_the_service_are_released() {
    let (room, service) = (
        Room::new(),
        Service::start(async |request| {
            drop(request.into_body().collect().await);
            answer(500, "{}")
        })
        .await,
    );
    let proxy = room.start(&service.url(), "");
    for _ in 0..3 {
        assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 500);
    }
    assert_eq!((service.runs(), outcomes(proxy.metrics, "released").await), (3, 3.0));
}

#[tokio::test(flavor = "multi_thread")]
async fn request_that_was_not_sent_is_released_even_where_doubt_is_refused() {
    let room = Room::new();
    // A port that nobody listens on.
    let free = TcpListener::bind(("127.0.0.1", 0)).await.unwrap().local_addr().unwrap();
    let proxy = room.start(&format!("http://{free}"), "on_in_doubt: refuse");
    for _ in 0..2 {
        let got = send(proxy.address, charge("k", "{}")).await;
        assert_eq!((got.status(), got.problem().as_str()), (502, "urn:ratchet:proxy:unreachable"));
        assert_eq!(got.header("retry-after"), Some("1"));
    }
    assert_eq!(
        metric(proxy.metrics, r#"ratchet_http_upstream_failures_total{failure="not_sent",route="default"}"#).await,
        2.0
    );
    let listener = TcpListener::bind(free).await.unwrap();
    let serving = tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut some = [0; 1024];
        let _ = stream.read(&mut some).await.unwrap();
        stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
    });
    assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201);
    serving.await.unwrap();
    assert!(send(proxy.address, charge("k", "{}")).await.is_replayed());
}

#[tokio::test(flavor = "multi_thread")]
async fn request_whose_stream_the_service_refuses_is_released_even_where_doubt_is_refused() {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut connection = h2::server::handshake(stream).await.unwrap();
        let mut is_first = true;
        while let Some(request) = connection.accept().await {
            let (_request, mut respond) = request.unwrap();
            if std::mem::take(&mut is_first) {
                respond.send_reset(h2::Reason::REFUSED_STREAM);
            } else {
                respond.send_response(http::Response::builder().status(201).body(()).unwrap(), true).unwrap();
            }
        }
    });
    let (room, more) = (Room::new(), "upstream_protocol: http2\non_in_doubt: refuse");
    let proxy = room.start(&format!("http://{address}"), more);
    let got = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((got.status(), got.problem().as_str()), (502, "urn:ratchet:proxy:unreachable"));
    let not_sent = r#"ratchet_http_upstream_failures_total{failure="not_sent",route="default"}"#;
    assert_eq!(metric(proxy.metrics, not_sent).await, 1.0);
    assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201);
    assert!(send(proxy.address, charge("k", "{}")).await.is_replayed());
}

/// A service that reads a request and closes.
async fn closing() -> (String, std::sync::Arc<std::sync::atomic::AtomicUsize>) {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let runs = std::sync::Arc::<std::sync::atomic::AtomicUsize>::default();
    let counted = std::sync::Arc::clone(&runs);
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let mut some = [0; 1024];
            let _ = stream.read(&mut some).await;
            counted.fetch_add(1, std::sync::atomic::Ordering::SeqCst);
        }
    });
    (url, runs)
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_was_lost_is_in_doubt() {
    let (url, runs) = closing().await;
    let room = Room::new();
    let proxy = room.start(&url, "routes: [{path: /charges, on_in_doubt: refuse, lease: 1s}]");
    let lost = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((lost.status(), lost.problem().as_str()), (502, "urn:ratchet:proxy:answer-lost"));
    // Until its lease is over somebody may be at it.
    let start = Instant::now();
    let doubt = loop {
        let got = send(proxy.address, charge("k", "{}")).await;
        assert_eq!(got.status(), 409);
        if got.problem() == "urn:ratchet:idempotency:in-doubt" {
            break got;
        }
        assert!(start.elapsed() < Duration::from_secs(20), "{got:?}");
        tokio::time::sleep(Duration::from_millis(100)).await;
    };
    assert_eq!(doubt.status(), 409);
    let line =
        proxy.log().lines().find(|line| line.contains("the service did not answer a request")).unwrap().to_owned();
    assert!(line.contains(r#""failure":"the answer was lost: "#) && line.contains(r#""request":""#), "{line}");
    assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), 1, "it is not carried out again");
    // Where it is to be carried out again, it is at once.
    for run in 2..4 {
        let got = send(proxy.address, request("POST", "/other", &[("idempotency-key", "k")], "{}")).await;
        assert_eq!(got.problem(), "urn:ratchet:proxy:answer-lost");
        assert_eq!(runs.load(std::sync::atomic::Ordering::SeqCst), run);
    }
    assert_eq!(
        metric(proxy.metrics, r#"ratchet_http_upstream_failures_total{failure="lost",route="default"}"#).await,
        2.0
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_that_is_late_is_in_doubt() {
    let (room, service) = (Room::new(), Service::start(async |_| std::future::pending().await).await);
    let proxy = room.start(&service.url(), "timeout: 1s\non_in_doubt: refuse");
    let late = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((late.status(), late.problem().as_str()), (504, "urn:ratchet:proxy:answer-late"));
    assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 409);
    // What has no key is late as well.
    assert_eq!(send(proxy.address, request("GET", "/", &[], "")).await.status(), 504);
    assert_eq!(service.runs(), 2);
}

/// Found by an audit: the proxy had given a slow service up, and a repetition ran it once more, beside itself.
#[tokio::test(flavor = "multi_thread")]
async fn service_that_was_given_up_is_not_run_beside_itself() {
    const WORK: Duration = Duration::from_secs(3);
    let (at_work, most) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
    let (count, known) = (Arc::clone(&at_work), Arc::clone(&most));
    let service = Service::start(move |request| {
        let (at_work, most) = (Arc::clone(&count), Arc::clone(&known));
        async move {
            drop(request.into_body().collect().await);
            // The client may be gone: it goes on, as many a service does.
            tokio::spawn(async move {
                most.fetch_max(at_work.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
                tokio::time::sleep(WORK).await;
                at_work.fetch_sub(1, Ordering::SeqCst);
            })
            .await
            .unwrap();
            answer(201, "{}")
        }
    })
    .await;
    let room = Room::new();
    let proxy = room.start(&service.url(), "timeout: 1s\ngrace: 4s\nlease: 1s");
    let late = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((late.status(), late.problem().as_str()), (504, "urn:ratchet:proxy:answer-late"));
    let start = Instant::now();
    let meanwhile = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((meanwhile.status(), meanwhile.problem().as_str()), (409, "urn:ratchet:idempotency:in-progress"));
    assert_eq!(meanwhile.header("retry-after"), Some("1"));
    while send(proxy.address, charge("k", "{}")).await.status() == 409 {
        assert!(start.elapsed() < WAIT, "it is reserved for ever");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(start.elapsed() > Duration::from_secs(4), "it is carried out again when its grace is over");
    assert_eq!((service.runs(), most.load(Ordering::SeqCst)), (2, 1));
    assert_eq!(outcomes(proxy.metrics, "released").await, 0.0, "nobody knows");
}

/// The same of an answer that was begun, and does not go on.
#[tokio::test(flavor = "multi_thread")]
async fn service_that_stops_in_mid_answer_is_not_run_beside_itself() {
    let begun = async |_| {
        let first = futures_util::stream::iter([Ok::<_, Broken>(Frame::data(Bytes::from_static(b"{")))]);
        let endless = StreamBody::new(first.chain(futures_util::stream::pending())).boxed_unsync();
        http::Response::new(endless)
    };
    let (room, service) = (Room::new(), Service::start(begun).await);
    let proxy = room.start(&service.url(), "timeout: 1s\nlease: 1s");
    let late = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((late.status(), late.problem().as_str()), (502, "urn:ratchet:idempotency:answer-lost"));
    tokio::time::sleep(Duration::from_secs(2)).await;
    let meanwhile = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((meanwhile.status(), meanwhile.problem().as_str()), (409, "urn:ratchet:idempotency:in-progress"));
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn stale_connection_is_no_reason_for_an_error() {
    // Each connection takes one request, says that it stays open, and is closed a moment later.
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let (room, url) = (Room::new(), format!("http://{}", listener.local_addr().unwrap()));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut some = [0; 1024];
                let _ = stream.read(&mut some).await;
                stream.write_all(b"HTTP/1.1 201 Created\r\ncontent-length: 2\r\n\r\nok").await.unwrap();
            });
        }
    });
    let proxy = room.start(&url, "on_in_doubt: refuse");
    for number in 0..50 {
        let got = send(proxy.address, charge(&format!("k{number}"), "{}")).await;
        assert_eq!(got.status(), 201, "{number}: {got:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_gets_its_reservation_and_nobody_else_sets_it() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "reservation_header: Reservation\nroutes: [{path: /open, key: off}]");
    send(
        proxy.address,
        request(
            "POST",
            "/charges",
            &[("idempotency-key", "k"), ("reservation", "made up"), ("connection", "reservation")],
            "{}",
        ),
    )
    .await;
    let reservation = service.last().headers["reservation"].to_str().unwrap().to_owned();
    let (id, token) = reservation.split_once('.').unwrap();
    assert_eq!((id.len(), token.len()), (64, 32), "{reservation}");
    send(proxy.address, request("POST", "/open", &[("reservation", "made up")], "{}")).await;
    assert_eq!(service.last().headers.get("reservation"), None);
}
