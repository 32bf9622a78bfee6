//! Goal: whatever one client does, bodies, requests, connections and descriptors are left for others.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use http::Request;
use http_body_util::{BodyExt, Full};
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};

use super::client::{Got, charge, for_two, metric, request, send, whole};
use super::service::{Service, answer};
use crate::program::{Proxy, Room, WAIT};

/// A connection from another address of this machine, 127.0.0.LAST.
async fn connect(address: SocketAddr, last: u8) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind(([127, 0, 0, last], 0).into()).unwrap();
    socket.connect(address).await.unwrap()
}

/// The answer to a client other than 127.0.0.1.
async fn by_other(proxy: &Proxy, request: Request<Full<bytes::Bytes>>) -> Got {
    let stream = connect(proxy.address, 2).await;
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    whole(sender.send_request(request).await.unwrap()).await
}

fn refusals(bound: &str) -> String {
    format!("ratchet_http_bound_refusals_total{{bound=\"{bound}\"}}")
}

/// Waits until the proxy has warned about a refusal, which it does once; by then it has counted it.
async fn warned(proxy: &Proxy, bound: &str) {
    let start = Instant::now();
    let words = "a limit, or one client's share of it, has been reached";
    let about_it = |log: &str| -> Vec<String> {
        log.lines().filter(|line| line.contains(words) && line.contains(bound)).map(str::to_owned).collect()
    };
    while about_it(&proxy.log()).is_empty() {
        assert!(start.elapsed() < WAIT, "nobody was refused: {}", proxy.log());
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    assert!(metric(proxy.metrics, &refusals(bound)).await > 0.0);
    let lines = about_it(&proxy.log());
    assert!(lines[0].contains("WARN") && lines.len() == 1, "{lines:?}");
}

/// A service that does not answer requests with the header `x-hangs`.
async fn hanging() -> Service {
    Service::start(async |request| {
        if request.headers().contains_key("x-hangs") {
            std::future::pending::<()>().await;
        }
        drop(request.into_body().collect().await);
        answer(201, "{}")
    })
    .await
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_bodies_of_one_client_leave_room_for_those_of_others() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "bodies_bytes_max: 8MiB");
    let mut slow = Vec::new();
    for key in 0..10 {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        let head = format!("POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k{key}\r\ncontent-length: 1000001\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // It is refused in the middle if there is no room.
        let _ = stream.write_all(&vec![b'x'; 1_000_000]).await;
        slow.push(stream);
    }
    warned(&proxy, "bodies_bytes_max").await;
    assert!(proxy.log().contains(r#""client":"127.0.0.1""#), "{}", proxy.log());
    for key in ["a", "b", "c"] {
        let large = "x".repeat(900_000);
        assert_eq!(by_other(&proxy, charge(key, &large)).await.status(), 201);
    }
    let used = metric(proxy.metrics, r#"ratchet_http_bound_used{bound="bodies_bytes_max"}"#).await;
    assert!((1_000_000.0..=4_194_304.0).contains(&used), "{used}");
    assert_eq!(metric(proxy.metrics, r#"ratchet_http_bound_max{bound="bodies_bytes_max"}"#).await, 8_388_608.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn body_that_trickles_is_given_up() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "idle_timeout: 2s");
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let (mut reading, mut writing) = stream.into_split();
    writing
        .write_all(b"POST / HTTP/1.1\r\nhost: a\r\nidempotency-key: k\r\ncontent-length: 1000\r\n\r\n")
        .await
        .unwrap();
    let trickling = tokio::spawn(async move {
        while writing.write_all(b"x").await.is_ok() {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    });
    let mut said = vec![0; 12];
    tokio::time::timeout(Duration::from_secs(20), reading.read_exact(&mut said)).await.unwrap().unwrap();
    assert_eq!((said.as_slice(), service.runs()), (&b"HTTP/1.1 400"[..], 0));
    trickling.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn abandoned_requests_of_one_client_leave_room_for_those_of_others() {
    let (room, service) = (Room::new(), hanging().await);
    let proxy = room.start(&service.url(), "at_work_max: 8");
    for key in 0..8 {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        let head =
            format!("POST / HTTP/1.1\r\nhost: a\r\nx-hangs: 1\r\nidempotency-key: k{key}\r\ncontent-length: 0\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        // It goes away once the request has come, or was refused.
        let _ = tokio::time::timeout(Duration::from_millis(200), stream.read(&mut [0; 100])).await;
    }
    warned(&proxy, "at_work_max").await;
    assert_eq!(service.runs(), 4, "half of all");
    let start = Instant::now();
    while metric(proxy.metrics, "ratchet_http_connections").await > 0.0 {
        assert!(start.elapsed() < WAIT, "who is gone has no connection any more");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(send(proxy.address, charge("more", "{}")).await.problem(), "urn:ratchet:idempotency:too-many");
    assert_eq!(by_other(&proxy, charge("a", "{}")).await.status(), 201);
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_lock_nobody_out() {
    let (room, service) = (Room::new(), Service::counting().await);
    let proxy = room.start(&service.url(), "connections_max: 16\nidle_timeout: 60s\nhead_timeout: 60s");
    let mut idle = Vec::new();
    for _ in 0..40 {
        idle.push(TcpStream::connect(proxy.address).await.unwrap());
    }
    warned(&proxy, "connections_max").await;
    let start = Instant::now();
    assert_eq!(by_other(&proxy, charge("a", "{}")).await.status(), 201);
    assert_eq!(send(proxy.address, charge("b", "{}")).await.status(), 201, "its own longest idle one is closed");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
    let mut byte = [0; 1];
    let first = tokio::time::timeout(Duration::from_secs(5), idle[0].read(&mut byte)).await;
    assert!(!matches!(first, Err(_) | Ok(Ok(1..))), "the first one is closed: {first:?}");
    let last = tokio::time::timeout(Duration::from_millis(300), idle[39].read(&mut byte)).await;
    assert!(last.is_err(), "the last one is open: {last:?}");
}

/// Behind a gateway all clients have one address.
#[tokio::test(flavor = "multi_thread")]
async fn without_shares_one_address_may_take_all() {
    let (room, service) = (Room::new(), hanging().await);
    let proxy = room.start(&service.url(), "shares: none\nrequests_max: 4");
    let mut all = Vec::new();
    for _ in 0..4 {
        let mut stream = TcpStream::connect(proxy.address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: a\r\nx-hangs: 1\r\n\r\n").await.unwrap();
        all.push(stream);
    }
    let start = Instant::now();
    while service.runs() < 4 {
        assert!(start.elapsed() < WAIT);
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    let got = by_other(&proxy, request("GET", "/", &[], "")).await;
    assert_eq!((got.status(), got.problem().as_str()), (503, "urn:ratchet:proxy:too-many"));
    assert_eq!(got.header("retry-after"), Some("1"));
}

/// Whatever the bounds allow, since each stream takes memory of its own.
#[tokio::test(flavor = "multi_thread")]
async fn connection_carries_a_hundred_requests_at_once() {
    const ASKED: usize = 250;
    let gate = Arc::new(tokio::sync::Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let service = Service::start(move |_| {
        let gate = Arc::clone(&gate);
        async move {
            drop(gate.acquire().await);
            answer(201, "{}")
        }
    })
    .await;
    let room = Room::new();
    let proxy = room.start(&service.url(), "requests_max: 2000\nat_work_max: 2000\nshares: none");
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let (sender, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let asked = (0..ASKED).map(|number| {
        let mut sender = sender.clone();
        let charge = for_two(charge(&number.to_string(), "{}"));
        tokio::spawn(async move { sender.send_request(charge).await.unwrap().status() })
    });
    let asked: Vec<_> = asked.collect();
    let start = Instant::now();
    while service.runs() < 100 {
        assert!(start.elapsed() < WAIT, "{} are run", service.runs());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!(service.runs(), 100, "the others wait at the client");
    opens.close();
    for status in futures_util::future::join_all(asked).await {
        assert_eq!(status.unwrap(), 201);
    }
    assert_eq!(service.runs(), ASKED);
}

/// Each stream without a key has a connection to the service, and takes a descriptor.
#[tokio::test(flavor = "multi_thread")]
async fn streams_of_one_client_leave_descriptors_for_others() {
    let (room, service) = (Room::new(), hanging().await);
    room.write(&service.url(), "");
    let mut command = std::process::Command::new("sh");
    let program = env!("CARGO_BIN_EXE_ratchet");
    command.current_dir(room.path()).args(["-c", &format!("ulimit -n 700; exec {program} proxy --config proxy.yaml")]);
    let proxy = Proxy::start(command);
    let mut refused = Vec::new();
    for _ in 0..16 {
        let stream = TcpStream::connect(proxy.address).await.unwrap();
        let (sender, connection) =
            http2::handshake::<_, _, Full<bytes::Bytes>>(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
        tokio::spawn(connection);
        for _ in 0..100 {
            let mut sender = sender.clone();
            let hangs = for_two(request("GET", "/", &[("x-hangs", "1")], ""));
            refused.push(tokio::spawn(async move { sender.send_request(hangs).await.map(|answer| answer.status()) }));
        }
    }
    warned(&proxy, "requests_max").await;
    assert_eq!(by_other(&proxy, charge("a", "{}")).await.status(), 201);
    let log = proxy.log();
    assert!(log.contains("the system allows too few open files"), "{log}");
    let max = metric(proxy.metrics, r#"ratchet_http_bound_max{bound="requests_max"}"#).await;
    assert!((1.0..188.0).contains(&max), "{max}");
    assert!(service.runs() as f64 <= max / 2.0 + 1.0, "{} of {max}", service.runs());
    assert!(!log.contains("Too many open files"), "{log}");
    refused.iter().for_each(tokio::task::JoinHandle::abort);
}
