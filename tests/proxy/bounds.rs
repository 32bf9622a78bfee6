//! What clients may take: connections, heads, time.

use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use super::client::{charge, metric, request, send};
use super::crowd::slow;
use super::service::Service;
use crate::program::Room;

/// Reads until the other side closes; how long that took.
async fn closed(stream: &mut TcpStream) -> (Duration, String) {
    let (start, mut said) = (Instant::now(), Vec::new());
    let read = tokio::time::timeout(Duration::from_secs(30), stream.read_to_end(&mut said)).await;
    let _ = read.expect("it is closed");
    (start.elapsed(), String::from_utf8_lossy(&said).into_owned())
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_heads_and_silent_connections_are_closed() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "head_timeout: 1s\nidle_timeout: 4s");
    // Nothing, half a head, and a head after a request that was answered.
    let mut nothing = TcpStream::connect(proxy.address).await.unwrap();
    let mut half = TcpStream::connect(proxy.address).await.unwrap();
    half.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-slow: ").await.unwrap();
    for stream in [&mut nothing, &mut half] {
        let (took, said) = closed(stream).await;
        assert!(took > Duration::from_millis(500) && took < Duration::from_secs(4), "{took:?} {said}");
    }
    let mut used = TcpStream::connect(proxy.address).await.unwrap();
    used.write_all(b"POST / HTTP/1.1\r\nhost: a\r\ncontent-length: 0\r\n\r\n").await.unwrap();
    let (took, said) = closed(&mut used).await;
    assert!(said.starts_with("HTTP/1.1 201"), "{said}");
    assert!(took > Duration::from_secs(2), "it is kept for idle_timeout: {took:?}");
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_does_not_come_is_given_up() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "idle_timeout: 1s");
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(b"POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 10\r\n\r\n{").await.unwrap();
    let (_, said) = closed(&mut stream).await;
    assert!(said.starts_with("HTTP/1.1 400") && said.contains("body-unread"), "{said}");
    assert_eq!(service.runs(), 0);
    assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201, "nothing is reserved");
}

#[tokio::test(flavor = "multi_thread")]
async fn large_heads_are_refused() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "head_bytes_max: 8KiB");
    let large = "x".repeat(20_000);
    let got = send(proxy.address, request("GET", "/", &[("x-large", &large)], "")).await;
    assert_eq!((got.status(), service.runs()), (431, 0));
    let fits = "x".repeat(4_000);
    assert_eq!(send(proxy.address, request("GET", "/", &[("x-large", &fits)], "")).await.status(), 201);
}

/// Its place, and the service's answer, would be held for as long as it likes.
#[tokio::test(flavor = "multi_thread")]
async fn client_that_takes_nothing_is_given_up() {
    let room = Room::new();
    let service = Service::start(async |_| super::service::answer(200, vec![b'x'; 64 << 20])).await;
    let proxy = room.start(&service.url(), "idle_timeout: 2s");
    let mut deaf = TcpStream::connect(proxy.address).await.unwrap();
    deaf.write_all(b"GET / HTTP/1.1\r\nhost: a\r\n\r\n").await.unwrap();
    deaf.readable().await.unwrap();
    let open = async || metric(proxy.metrics, "ratchet_http_connections").await;
    assert_eq!(open().await, 1.0);
    let start = Instant::now();
    while open().await > 0.0 {
        assert!(start.elapsed() < Duration::from_secs(30), "it is still open");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert!(start.elapsed() > Duration::from_secs(1), "it had its time: {:?}", start.elapsed());
    // One that is slow gets all of it.
    let mut slow = TcpStream::connect(proxy.address).await.unwrap();
    slow.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n").await.unwrap();
    let (mut length, mut piece) = (0, vec![0; 8 << 20]);
    loop {
        tokio::time::sleep(Duration::from_millis(50)).await;
        match slow.read(&mut piece).await.unwrap() {
            0 => break,
            more => length += more,
        }
    }
    assert!(length > 64 << 20, "{length}");
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_wait_while_all_are_at_work() {
    let (room, service) = (Room::new(), slow(Duration::from_secs(3)).await);
    let proxy = room.start(&service.url(), "shares: none\nconnections_max: 2\nidle_timeout: 60s\nhead_timeout: 60s");
    let asked = || tokio::spawn(send(proxy.address, request("POST", "/", &[], "")));
    let at_work = [asked(), asked()];
    let start = Instant::now();
    while service.runs() < 2 {
        assert!(start.elapsed() < Duration::from_secs(20));
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
    let third = asked();
    tokio::time::sleep(Duration::from_millis(500)).await;
    assert_eq!(service.runs(), 2);
    for answered in at_work.into_iter().chain([third]) {
        assert_eq!(answered.await.unwrap().status(), 201);
    }
}
