//! TLS on both sides.

use std::sync::Arc;

use http_body_util::BodyExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::client::{charge, for_two, request, send, whole};
use super::service::{Service, answer};
use crate::program::{Proxy, Room};
use crate::provider::Authority;

async fn connect(proxy: &Proxy, protocol: &[u8]) -> tokio_rustls::client::TlsStream<TcpStream> {
    let file = Authority::shared().file();
    let config = ratchet::tls::client(Some(&file), &[protocol]).unwrap();
    let stream = TcpStream::connect(proxy.address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    TlsConnector::from(Arc::new(config)).connect(name, stream).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_speak_both_versions_by_tls() {
    let (room, service, authority) = (Room::new(), Service::counting().await, Authority::shared());
    let (certificate, key) = (authority.path("server.pem"), authority.path("server.key"));
    let tls = format!("tls: {{certificate: '{}', key: '{}'}}", certificate.display(), key.display());
    let proxy = room.start(&service.url(), &tls);
    let stream = connect(&proxy, b"http/1.1").await;
    let (mut one, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let first = whole(one.send_request(charge("k", "{}")).await.unwrap()).await;
    assert_eq!((first.status(), first.is_replayed()), (201, false));
    assert_eq!(service.last().headers["x-forwarded-proto"], "https");
    let stream = connect(&proxy, b"h2").await;
    let (mut two, connection) = http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let again = whole(two.send_request(for_two(charge("k", "{}"))).await.unwrap()).await;
    assert!(again.is_replayed(), "the version is no part of a request");
    assert_eq!(service.runs(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn service_speaks_what_tls_agrees_upon() {
    let authority = Authority::shared();
    for (protocols, version) in
        [(&["h2", "http/1.1"][..], http::Version::HTTP_2), (&["http/1.1"], http::Version::HTTP_11)]
    {
        let acceptor = TlsAcceptor::from(authority.server(protocols));
        let service = Service::start_with(Some(acceptor), async |request| {
            drop(request.into_body().collect().await);
            answer(201, "{}")
        })
        .await;
        let room = Room::new();
        let more = format!("upstream_authorities: '{}'", authority.file().display());
        let proxy = room.start(&format!("https://localhost:{}", service.address.port()), &more);
        assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201);
        assert_eq!(service.last().version, version);
        assert!(send(proxy.address, charge("k", "{}")).await.is_replayed());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn service_that_nobody_vouches_for_gets_nothing() {
    let other = Authority::new();
    let acceptor = TlsAcceptor::from(other.server(&["http/1.1"]));
    let service = Service::start_with(Some(acceptor), async |_| answer(201, "{}")).await;
    let room = Room::new();
    let more = format!("upstream_authorities: '{}'", Authority::shared().file().display());
    let proxy = room.start(&format!("https://localhost:{}", service.address.port()), &more);
    let got = send(proxy.address, request("POST", "/", &[("idempotency-key", "k")], "secret")).await;
    assert_eq!((got.status(), got.problem().as_str(), service.runs()), (502, "urn:ratchet:proxy:unreachable", 0));
}
