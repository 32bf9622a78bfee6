//! SIGTERM: nothing new is taken, what is at work ends, and the store is closed.

use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use http::Response;
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::AsyncWriteExt;
use tokio::net::TcpStream;

use super::client::{begin, charge, send, whole};
use super::service::{Broken, Service, answer};
use crate::program::{Room, WAIT};

async fn slow(length: Duration) -> Service {
    Service::start(move |_| async move {
        tokio::time::sleep(length).await;
        answer(201, "{}")
    })
    .await
}

async fn at_work(service: &Service) {
    let start = Instant::now();
    while service.runs() == 0 {
        assert!(start.elapsed() < WAIT);
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_waits_for_requests_at_work_also_of_clients_that_are_gone() {
    let (room, service) = (Room::new(), slow(Duration::from_secs(2)).await);
    let mut proxy = room.start(&service.url(), "");
    let address = proxy.address;
    let waits = tokio::spawn(async move { whole(begin(address, charge("k", "{}")).await.unwrap()).await });
    let gone = tokio::spawn(async move { begin(address, charge("gone", "{}")).await.map(drop) });
    while service.runs() < 2 {
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    gone.abort();
    proxy.signal(libc::SIGTERM);
    let start = Instant::now();
    while TcpStream::connect(address).await.is_ok() {
        assert!(start.elapsed() < Duration::from_secs(1), "it still takes connections");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert_eq!(waits.await.unwrap().status(), 201);
    let ended = proxy.ended(WAIT).expect("it ends");
    assert!(ended.success(), "{}", proxy.log());
    let proxy = room.start(&service.url(), "");
    for key in ["k", "gone"] {
        assert!(send(proxy.address, charge(key, "{}")).await.is_replayed(), "{key}");
    }
    assert_eq!(service.runs(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn stop_is_bounded_and_says_what_was_cut_off() {
    let (room, service) = (Room::new(), slow(Duration::from_secs(600)).await);
    let mut proxy = room.start(&service.url(), "stop_timeout: 1s\non_in_doubt: refuse");
    let address = proxy.address;
    let cut = tokio::spawn(async move { begin(address, charge("k", "{}")).await.map(drop) });
    at_work(&service).await;
    proxy.signal(libc::SIGTERM);
    let ended = proxy.ended(Duration::from_secs(20)).expect("it ends");
    assert_eq!(ended.code(), Some(1));
    assert!(cut.await.unwrap().is_err());
    assert!(proxy.log().contains("1 request under a key was cut off, and is in doubt"), "{}", proxy.log());
    let proxy = room.start(&service.url(), "on_in_doubt: refuse");
    assert_eq!(send(proxy.address, charge("k", "{}")).await.problem(), "urn:ratchet:idempotency:in-doubt");
}

/// A stream under a key is remembered when it begins: where it is cut off, nothing is in doubt.
#[tokio::test(flavor = "multi_thread")]
async fn stream_that_a_stop_cuts_off_is_no_failure() {
    let (room, service) = (
        Room::new(),
        Service::start(async |_| {
            let first = futures_util::stream::iter([Ok::<_, Broken>(Frame::data(Bytes::from_static(b"data: 1\n\n")))]);
            let endless = StreamBody::new(first.chain(futures_util::stream::pending())).boxed_unsync();
            Response::builder().header("content-type", "text/event-stream").body(endless).unwrap()
        })
        .await,
    );
    let mut proxy = room.start(&service.url(), "stop_timeout: 1s\non_in_doubt: refuse");
    let mut stream = begin(proxy.address, charge("k", "{}")).await.unwrap().into_body();
    stream.frame().await.unwrap().unwrap();
    proxy.signal(libc::SIGTERM);
    let ended = proxy.ended(Duration::from_secs(20)).expect("it ends");
    assert!(ended.success(), "{}", proxy.log());
    assert!(proxy.log().contains("what was still under way was cut off") && !proxy.log().contains("and is in doubt"));
    assert!(stream.frame().await.unwrap().is_err(), "it was open until then");
    let proxy = room.start(&service.url(), "on_in_doubt: refuse");
    assert!(send(proxy.address, charge("k", "{}")).await.is_replayed());
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_a_head_does_not_hold_up_a_stop() {
    let (room, service) = (Room::new(), slow(Duration::ZERO).await);
    let mut proxy = room.start(&service.url(), "head_timeout: 2s\nstop_timeout: 60s");
    let mut half = TcpStream::connect(proxy.address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-slow: ").await.unwrap();
    // The connection after it was taken, so it was too.
    assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201);
    proxy.signal(libc::SIGTERM);
    assert!(proxy.ended(Duration::from_secs(20)).expect("it ends").success(), "{}", proxy.log());
}

#[tokio::test(flavor = "multi_thread")]
async fn second_signal_ends_at_once() {
    let (room, service) = (Room::new(), slow(Duration::from_secs(600)).await);
    let mut proxy = room.start(&service.url(), "");
    let address = proxy.address;
    let cut = tokio::spawn(async move { begin(address, charge("k", "{}")).await.map(drop) });
    at_work(&service).await;
    proxy.signal(libc::SIGINT);
    assert_eq!(proxy.ended(Duration::from_millis(1_500)), None, "it waits");
    proxy.signal(libc::SIGINT);
    assert_eq!(proxy.ended(Duration::from_secs(10)).expect("it ends").code(), Some(1));
    drop(cut.await);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_do_not_hold_up_a_stop() {
    let (room, service) = (Room::new(), slow(Duration::ZERO).await);
    let mut proxy = room.start(&service.url(), "");
    let _silent = TcpStream::connect(proxy.address).await.unwrap();
    let mut two = super::client::two::<http_body_util::Full<bytes::Bytes>>(proxy.address).await;
    let got = two.send_request(super::client::for_two(charge("k", "{}"))).await.unwrap();
    assert_eq!(whole(got).await.status(), 201);
    let start = Instant::now();
    proxy.signal(libc::SIGTERM);
    assert!(proxy.ended(Duration::from_secs(20)).expect("it ends").success(), "{}", proxy.log());
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}
