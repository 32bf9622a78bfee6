//! What passes through as it comes: bodies, streams, trailers, heads.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Method, Response, StatusCode};
use http_body::Frame;
use http_body_util::{BodyExt, StreamBody};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::sync::mpsc;

use super::client::{begin, for_two, request, send, two, whole};
use super::service::{Answer, Broken, Service, answer};
use crate::program::{Room, WAIT};

/// Says what it was asked, and gives back what it was sent with its trailers.
async fn echo(request: http::Request<hyper::body::Incoming>) -> Answer {
    let asked = format!("{} {}", request.method(), request.uri().path_and_query().unwrap());
    let collected = request.into_body().collect().await.unwrap();
    let trailers = collected.trailers().cloned();
    let frames = [Ok::<_, Broken>(Frame::data(collected.to_bytes()))];
    let frames = frames.into_iter().chain(trailers.map(|trailers| Ok(Frame::trailers(trailers))));
    let body = StreamBody::new(futures_util::stream::iter(frames.collect::<Vec<_>>())).boxed_unsync();
    let answer = Response::builder().header("x-asked", asked).header("trailer", "x-sum");
    answer.header("connection", "x-own").header("x-own", "1").body(body).unwrap()
}

fn trailed(text: &'static str) -> impl http_body::Body<Data = Bytes, Error = Broken> + Send + Unpin + 'static {
    let trailers = HeaderMap::from_iter([(http::HeaderName::from_static("x-sum"), HeaderValue::from_static("7"))]);
    let frames = [Ok(Frame::data(Bytes::from_static(text.as_bytes()))), Ok(Frame::trailers(trailers))];
    StreamBody::new(futures_util::stream::iter(frames))
}

#[tokio::test(flavor = "multi_thread")]
async fn methods_paths_heads_bodies_and_trailers_pass_by_both_versions() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "");
    for method in [Method::GET, Method::POST, Method::PUT, Method::PATCH, Method::DELETE, Method::OPTIONS] {
        let body = if method == Method::GET { "" } else { "text" };
        let got = send(proxy.address, request(method.as_str(), "/a/b%20c?d=e&f", &[("x-own", "2")], body)).await;
        assert_eq!((got.status(), got.text()), (200, body), "{method}");
        assert_eq!(got.header("x-asked"), Some(format!("{method} /a/b%20c?d=e&f").as_str()));
        assert_eq!((got.header("x-own"), got.header("connection")), (None, None), "hop by hop");
        let last = service.last();
        assert_eq!(last.headers["host"], "shop.example");
        assert_eq!(last.headers["x-forwarded-for"], "127.0.0.1");
        assert_eq!(
            (&last.headers["x-forwarded-host"], &last.headers["via"]),
            (&"shop.example".parse().unwrap(), &"1.1 ratchet".parse().unwrap())
        );
    }
    let asked = http::Request::post("/t").header("host", "a").header("trailer", "x-sum").header("te", "trailers");
    let got = begin(proxy.address, asked.body(trailed("one")).unwrap()).await.unwrap();
    let collected = got.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().expect("trailers come back").get("x-sum").unwrap(), "7");
    assert_eq!(collected.to_bytes(), "one");

    let mut sender = two(proxy.address).await;
    let got = whole(sender.send_request(for_two(request("POST", "/two", &[], "text"))).await.unwrap()).await;
    assert_eq!((got.header("x-asked"), got.text()), (Some("POST /two"), "text"));
    assert_eq!(
        (&service.last().headers["host"], &service.last().headers["via"]),
        (&"shop.example".parse().unwrap(), &"2.0 ratchet".parse().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn service_by_http_2_gets_and_gives_trailers() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "upstream_protocol: http2");
    let mut sender = two(proxy.address).await;
    let asked = http::Request::post("http://shop.example/grpc").header("te", "trailers").body(trailed("one")).unwrap();
    let answer = sender.send_request(asked).await.unwrap();
    assert_eq!(service.last().version, http::Version::HTTP_2);
    assert_eq!(service.last().uri.authority().unwrap(), "shop.example");
    assert_eq!(service.last().headers["te"], "trailers");
    let collected = answer.into_body().collect().await.unwrap();
    assert_eq!(collected.trailers().expect("trailers come back").get("x-sum").unwrap(), "7");
    // Many at once go by few connections.
    let all: Vec<_> = (0..50).map(|_| send(proxy.address, request("POST", "/x", &[], "y"))).collect();
    assert!(futures_util::future::join_all(all).await.iter().all(|got| got.text() == "y"));
    assert!(service.connections() <= 51, "{}", service.connections());
}

/// A body of what is sent here.
fn body_of(pieces: mpsc::Receiver<Bytes>) -> Answer {
    let pieces = futures_util::stream::unfold(pieces, async |mut pieces| {
        let piece = pieces.recv().await?;
        Some((Ok::<_, Broken>(Frame::data(piece)), pieces))
    });
    let body = StreamBody::new(Box::pin(pieces)).boxed_unsync();
    Response::builder().header("content-type", "text/event-stream").body(body).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn stream_of_events_arrives_bit_by_bit() {
    let room = Room::new();
    let (tell, said) = mpsc::channel::<mpsc::Receiver<Bytes>>(1);
    let said = Arc::new(tokio::sync::Mutex::new(said));
    let service = Service::start(move |_| {
        let said = Arc::clone(&said);
        async move { body_of(said.lock().await.recv().await.unwrap()) }
    })
    .await;
    let proxy = room.start(&service.url(), "timeout: 2s");
    // Under a key, too: what streams is not held back.
    for key in [&[][..], &[("idempotency-key", "stream")][..]] {
        let (events, pieces) = mpsc::channel(1);
        tell.send(pieces).await.unwrap();
        let mut answer = begin(proxy.address, request("POST", "/events", key, "")).await.unwrap().into_body();
        for number in 0..3 {
            events.send(Bytes::from(format!("data: {number}\n\n"))).await.unwrap();
            let frame = tokio::time::timeout(WAIT, answer.frame()).await.expect("each comes at once").unwrap().unwrap();
            assert_eq!(frame.into_data().unwrap(), format!("data: {number}\n\n"));
            if number == 1 {
                // Longer than `timeout`: only the beginning of an answer has to be in time.
                tokio::time::sleep(Duration::from_secs(3)).await;
            }
        }
        drop(events);
        assert!(answer.frame().await.is_none());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn body_of_100_mb_passes_both_ways_in_pieces() {
    const PIECE: usize = 1 << 20;
    let (room, service) = (
        Room::new(),
        Service::start(async |request| {
            let (_, body) = request.into_parts();
            Response::new(body.map_err(|_| Broken).boxed_unsync())
        })
        .await,
    );
    let proxy = room.start(&service.url(), "");
    let pieces =
        futures_util::stream::iter((0..100u8).map(|n| Ok::<_, Broken>(Frame::data(Bytes::from(vec![n; PIECE])))));
    let asked = http::Request::post("/large").header("host", "a").body(StreamBody::new(pieces)).unwrap();
    let mut body = begin(proxy.address, asked).await.unwrap().into_body();
    let (mut length, mut sum) = (0usize, 0u64);
    while let Some(frame) = body.frame().await {
        let data = frame.unwrap().into_data().unwrap();
        length += data.len();
        sum += data.iter().map(|byte| u64::from(*byte)).sum::<u64>();
    }
    assert_eq!((length, sum), (100 * PIECE, (0..100u64).sum::<u64>() * PIECE as u64));
}

#[tokio::test(flavor = "multi_thread")]
async fn answer_to_head_keeps_its_length() {
    let (room, service) = (
        Room::new(),
        Service::start(async |_| {
            let mut said = answer(200, "");
            said.headers_mut().insert("content-length", HeaderValue::from_static("1234"));
            said
        })
        .await,
    );
    let proxy = room.start(&service.url(), "");
    let got = send(proxy.address, request("HEAD", "/large", &[], "")).await;
    assert_eq!((got.status(), got.header("content-length")), (200, Some("1234")));
}

#[tokio::test(flavor = "multi_thread")]
async fn connect_is_refused_and_a_body_of_two_lengths_is_no_way_in() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "");
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    stream.write_all(b"CONNECT other.example:443 HTTP/1.1\r\nhost: other.example:443\r\n\r\n").await.unwrap();
    let mut said = [0; 12];
    stream.read_exact(&mut said).await.unwrap();
    assert_eq!(&said, b"HTTP/1.1 501");
    assert_eq!(service.runs(), 0);
    // One request by its pieces, or none: never a second one within its body.
    let mut stream = TcpStream::connect(proxy.address).await.unwrap();
    let smuggled = "POST /a HTTP/1.1\r\nhost: a\r\ncontent-length: 6\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n0\r\n\r\nGET /b HTTP/1.1\r\nhost: a\r\n\r\n";
    stream.write_all(smuggled.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    assert!(service.runs() <= 1, "{}", String::from_utf8_lossy(&said));
}

/// What a raw client is answered.
async fn said(proxy: std::net::SocketAddr, asked: &str) -> String {
    let mut stream = TcpStream::connect(proxy).await.unwrap();
    stream.write_all(asked.as_bytes()).await.unwrap();
    let mut said = Vec::new();
    stream.read_to_end(&mut said).await.unwrap();
    String::from_utf8(said).unwrap()
}

/// By which of two hosts a service goes, and by which the proxy, would be a matter of taste.
#[tokio::test(flavor = "multi_thread")]
async fn request_of_two_hosts_is_refused() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "");
    let got = said(proxy.address, "GET / HTTP/1.1\r\nHost: a\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 400") && got.contains("urn:ratchet:proxy:several-hosts"), "{got}");
    let got = said(proxy.address, "GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").await;
    assert!(got.starts_with("HTTP/1.1 200"), "{got}");
    assert_eq!(service.runs(), 1);
}

/// The service would get compressed bytes that nobody says are compressed.
#[tokio::test(flavor = "multi_thread")]
async fn transfer_coding_beside_pieces_is_refused() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "");
    let coded = |coding: &str| {
        format!(
            "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: {coding}\r\nConnection: close\r\n\r\n2\r\nab\r\n0\r\n\r\n"
        )
    };
    for coding in ["gzip, chunked", "gzip\r\nTransfer-Encoding: chunked"] {
        let got = said(proxy.address, &coded(coding)).await;
        assert!(got.starts_with("HTTP/1.1 501") && got.contains("transfer-coding"), "{coding}: {got}");
    }
    let got = said(proxy.address, &coded("Chunked")).await;
    assert!(got.starts_with("HTTP/1.1 200") && got.contains("ab"), "{got}");
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn host_and_words_about_others_are_as_the_file_says() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "host: upstream\ntrust_forwarded: true");
    let headers = [("x-forwarded-for", "203.0.113.1"), ("x-forwarded-proto", "https")];
    send(proxy.address, request("GET", "/", &headers, "")).await;
    let last = service.last().headers;
    assert_eq!(last["host"], service.address.to_string());
    assert_eq!(
        (&last["x-forwarded-for"], &last["x-forwarded-proto"]),
        (&"203.0.113.1, 127.0.0.1".parse().unwrap(), &"https".parse().unwrap())
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_to_the_service_are_used_again() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "");
    let started = Instant::now();
    for _ in 0..20 {
        assert_eq!(send(proxy.address, request("POST", "/", &[], "a")).await.status(), StatusCode::OK.as_u16());
    }
    // One is kept for 4 s.
    assert!(service.connections() == 1 || started.elapsed() > Duration::from_secs(4), "{}", service.connections());
}

/// Found by an audit: a service behind CGI or WSGI takes `X_Forwarded_For` for `X-Forwarded-For`.
#[tokio::test(flavor = "multi_thread")]
async fn words_of_clients_about_themselves_reach_no_service() {
    let (room, service) = (Room::new(), Service::start(echo).await);
    let proxy = room.start(&service.url(), "reservation_header: x-reservation");
    let asked = "POST / HTTP/1.1\r\nHost: a\r\nX_Forwarded_For: 203.0.113.1\r\nX-Real-IP: 203.0.113.1\r\n\
                 X_Reservation: made up\r\nX_Own: 1\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    assert!(said(proxy.address, asked).await.starts_with("HTTP/1.1 200"));
    let last = service.last().headers;
    for name in ["x_forwarded_for", "x-real-ip", "x_reservation"] {
        assert!(!last.contains_key(name), "{last:?}");
    }
    assert_eq!((&last["x-forwarded-for"], &last["x_own"]), (&"127.0.0.1".parse().unwrap(), &"1".parse().unwrap()));
}
