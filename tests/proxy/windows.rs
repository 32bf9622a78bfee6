//! Goal: clients with HTTP/2 that do not read their answers neither exhaust memory nor hold up others.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{Response, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::client::{charge, for_two, metric, request, send, two, whole};
use super::service::{Service, answer};
use crate::program::{Proxy, Room, WAIT};

const MEBIBYTE: usize = 1 << 20;
const USED: &str = r#"ratchet_http_bound_used{bound="bodies_bytes_max"}"#;

/// A connection on which only the heads of answers are read.
async fn shut(address: SocketAddr) -> http2::SendRequest<Full<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder.initial_stream_window_size(0);
    let (sender, connection) = builder.handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    sender
}

/// The heads of the answers to these requests, whose bodies are not read.
async fn heads(
    sender: &http2::SendRequest<Full<Bytes>>,
    keys: impl Iterator<Item = String>,
) -> Vec<Response<Incoming>> {
    let ask = |key: String| {
        let mut sender = sender.clone();
        async move { sender.send_request(for_two(charge(&key, "{}"))).await.unwrap() }
    };
    futures_util::future::join_all(keys.map(ask)).await
}

async fn large() -> Service {
    Service::start(async |request| {
        drop(request.into_body().collect().await);
        answer(201, vec![b'x'; MEBIBYTE])
    })
    .await
}

fn resident_bytes(proxy: &Proxy) -> usize {
    let status = std::fs::read_to_string(format!("/proc/{}/status", proxy.pid())).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
    line.trim().trim_end_matches(" kB").parse::<usize>().unwrap() << 10
}

/// Found by an audit: 16 connections took the proxy from 38 MB to 1.6 GB.
#[tokio::test(flavor = "multi_thread")]
async fn clients_with_closed_windows_cannot_take_memory_beyond_the_bound() {
    let (room, service) = (Room::new(), large().await);
    let proxy = room.start(&service.url(), "bodies_bytes_max: 16MiB\nat_work_max: 100000\nrequests_max: 100000");
    let before = resident_bytes(&proxy);
    let asking = (0..16).map(async |number| {
        let sender = shut(proxy.address).await;
        let asking = (0..100).map(|key| {
            let mut sender = sender.clone();
            tokio::spawn(async move { sender.send_request(for_two(charge(&format!("{number}-{key}"), "{}"))).await })
        });
        (asking.collect::<Vec<_>>(), sender)
    });
    let asking = futures_util::future::join_all(asking).await;
    let (start, mut most) = (Instant::now(), (0, 0.0_f64));
    while start.elapsed() < Duration::from_secs(8) {
        most = (most.0.max(resident_bytes(&proxy)), most.1.max(metric(proxy.metrics, USED).await));
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    let (mut statuses, mut senders) = (Vec::new(), Vec::new());
    for (asked, sender) in asking {
        senders.push(sender);
        for asked in asked.into_iter().filter(|asked| asked.is_finished()) {
            statuses.push(asked.await.unwrap().expect("an answer").status());
        }
    }
    println!("resident: {before} bytes before, {} at most; bodies: {} bytes at most", most.0, most.1);
    let of = |status: StatusCode| statuses.iter().filter(|other| **other == status).count();
    let (given, refused) = (of(StatusCode::CREATED), of(StatusCode::SERVICE_UNAVAILABLE));
    assert!(given >= 16 && given + refused == statuses.len() && statuses.len() >= 1_500, "{statuses:?}");
    assert!(most.1 > 4.0 * MEBIBYTE as f64, "answers are held: {}", most.1);
    assert!(most.1 <= 16.0 * MEBIBYTE as f64, "{}", most.1);
    assert!(most.0 - before < 150 * MEBIBYTE, "from {before} to {}", most.0);
    drop(senders);
    let start = Instant::now();
    while metric(proxy.metrics, USED).await > 0.0 {
        assert!(start.elapsed() < WAIT, "what nobody takes is forgotten");
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_given_again_count_until_they_are_taken() {
    let (room, service) = (Room::new(), large().await);
    let proxy = room.start(&service.url(), "bodies_bytes_max: 5MiB\nshares: none");
    let first = send(proxy.address, charge("k", "{}")).await;
    assert_eq!((first.status(), first.body.len()), (201, MEBIBYTE));
    // What was sent is forgotten a moment later.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(metric(proxy.metrics, USED).await, 0.0);
    let sender = shut(proxy.address).await;
    let held = heads(&sender, (0..8).map(|_| "k".to_owned())).await;
    let of = |status: u16| held.iter().filter(|answer| answer.status() == status).count();
    assert_eq!((of(201), of(503), service.runs()), (3, 5, 1), "three quarters");
    let refused = held.into_iter().filter(|answer| answer.status() == 201).collect::<Vec<_>>();
    assert_eq!(send(proxy.address, charge("k", "{}")).await.problem(), "urn:ratchet:idempotency:too-many");
    drop((refused, sender));
    let start = Instant::now();
    loop {
        let again = send(proxy.address, charge("k", "{}")).await;
        if again.status() == 201 {
            assert_eq!((again.is_replayed(), again.body), (true, first.body));
            break;
        }
        assert!(start.elapsed() < WAIT, "there is room again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// Others on the connection may be somebody else's, as behind a gateway.
#[tokio::test(flavor = "multi_thread")]
async fn stream_that_is_not_taken_is_reset_alone() {
    let room = Room::new();
    let service = Service::start(async |_| answer(200, vec![b'x'; 64 * MEBIBYTE])).await;
    let proxy = room.start(&service.url(), "idle_timeout: 2s");
    let mut sender = two::<Full<Bytes>>(proxy.address).await;
    let answered = sender.send_request(for_two(request("GET", "/", &[], ""))).await.unwrap();
    let start = Instant::now();
    let at_work = r#"ratchet_http_requests_at_work{route="default"}"#;
    while metric(proxy.metrics, at_work).await > 0.0 {
        assert!(start.elapsed() < Duration::from_secs(30), "it is still at work");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(start.elapsed() > Duration::from_secs(1), "it had its time: {:?}", start.elapsed());
    let rest = answered.into_body().collect().await;
    assert!(rest.is_err(), "it is cut off, not ended");
    // One that is slow gets all of it, on the same connection.
    let slow = sender.send_request(for_two(request("GET", "/", &[], ""))).await.unwrap();
    assert_eq!(slow.status(), StatusCode::OK);
    let (mut body, mut length) = (slow.into_body(), 0);
    let mut since = Instant::now();
    while let Some(frame) = body.frame().await {
        length += frame.unwrap().into_data().unwrap().len();
        if since.elapsed() > Duration::from_millis(100) {
            tokio::time::sleep(Duration::from_millis(100)).await;
            since = Instant::now();
        }
    }
    assert_eq!(length, 64 * MEBIBYTE);
    drop(whole(sender.send_request(for_two(request("GET", "/", &[], ""))).await.unwrap()).await);
}

/// Without a key nothing is held but what is on its way.
#[tokio::test(flavor = "multi_thread")]
async fn streams_that_are_not_taken_hold_little() {
    const STREAMS: usize = 400;
    let room = Room::new();
    let all = Bytes::from(vec![b'x'; 64 * MEBIBYTE]);
    let service = Service::start(move |_| {
        let all = all.clone();
        async move { answer(200, all) }
    })
    .await;
    let proxy = room.start(&service.url(), "");
    let before = resident_bytes(&proxy);
    let mut senders = Vec::new();
    let mut held = Vec::new();
    for _ in 0..4 {
        let sender = shut(proxy.address).await;
        let asked = (0..STREAMS / 4).map(|_| {
            let mut sender = sender.clone();
            async move { sender.send_request(for_two(request("GET", "/", &[], ""))).await.unwrap() }
        });
        held.extend(futures_util::future::join_all(asked).await);
        senders.push(sender);
    }
    tokio::time::sleep(Duration::from_secs(2)).await;
    let each = (resident_bytes(&proxy) - before) / STREAMS;
    println!("{each} bytes for each of {} streams", held.len());
    assert!(held.iter().all(|answer| answer.status() == StatusCode::OK) && each < 192 << 10, "{each}");
}

/// All answers on a connection to the service share a window.
#[tokio::test(flavor = "multi_thread")]
async fn answers_that_are_not_taken_do_not_hold_up_those_of_others() {
    let (room, service) = (Room::new(), large().await);
    let proxy = room.start(&service.url(), "upstream_protocol: http2\nkey: off");
    // The connection to the service that all others share.
    assert_eq!(send(proxy.address, charge("first", "{}")).await.status(), 201);
    let sender = shut(proxy.address).await;
    let held = heads(&sender, (0..16).map(|key| key.to_string())).await;
    // They fill what there is for them.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let other = tokio::time::timeout(WAIT / 4, send(proxy.address, charge("a", "{}"))).await.expect("an answer");
    assert_eq!((other.status(), other.body.len(), held.len()), (201, MEBIBYTE, 16));
    assert_eq!(service.connections(), 1, "by one connection");
}
