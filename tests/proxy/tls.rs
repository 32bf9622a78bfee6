//! TLS on both sides.

use std::path::Path;
use std::{fs, io};

use http_body_util::BodyExt;
use hyper::client::conn::{http1, http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use ratchet::tls::{ALPN_HTTP_1_1, ALPN_HTTP_2};
use rustls::pki_types::ServerName;
use tokio::net::TcpStream;
use tokio_rustls::client::TlsStream;
use tokio_rustls::{TlsAcceptor, TlsConnector};

use super::client::{charge, for_two, request, send, whole};
use super::service::{Service, answer};
use crate::program::{Proxy, Room};
use crate::provider::Authority;

type Protocols = &'static [&'static [u8]];

/// Speaks TLS with a proxy whose certificate has to be of this authority.
async fn trusting(proxy: &Proxy, authority: &Authority, protocols: Protocols) -> io::Result<TlsStream<TcpStream>> {
    let config = ratchet::tls::client(Some(&authority.file()), protocols).current().unwrap();
    let stream = TcpStream::connect(proxy.address).await?;
    TlsConnector::from(config).connect(ServerName::try_from("localhost").unwrap(), stream).await
}

async fn connect(proxy: &Proxy, protocols: Protocols) -> TlsStream<TcpStream> {
    trusting(proxy, Authority::shared(), protocols).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_speak_both_versions_by_tls() {
    let (room, service, authority) = (Room::new(), Service::counting().await, Authority::shared());
    let (certificate, key) = (authority.path("server.pem"), authority.path("server.key"));
    let tls = format!("tls: {{certificate: '{}', key: '{}'}}", certificate.display(), key.display());
    let proxy = room.start(&service.url(), &tls);
    let stream = connect(&proxy, &[ALPN_HTTP_1_1]).await;
    let (mut one, connection) = http1::handshake(TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    let first = whole(one.send_request(charge("k", "{}")).await.unwrap()).await;
    assert_eq!((first.status(), first.is_replayed()), (201, false));
    assert_eq!(service.last().headers["x-forwarded-proto"], "https");
    let stream = connect(&proxy, &[ALPN_HTTP_2]).await;
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

/// As an issuer replaces files that are about to expire: one after the other, and once with a file that is cut off.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_certificate_is_shown_to_new_connections() {
    let (room, service, first, second) =
        (Room::new(), Service::counting().await, Authority::shared(), Authority::new());
    let [certificate, key] = ["server.pem", "server.key"].map(|name| room.path().join(name));
    let put = |authority: &Authority, name: &str, to: &Path| fs::copy(authority.path(name), to).unwrap();
    put(first, "server.pem", &certificate);
    put(first, "server.key", &key);
    let proxy = room
        .start(&service.url(), &format!("tls: {{certificate: '{}', key: '{}'}}", certificate.display(), key.display()));
    let (mut before, connection) =
        http1::handshake(TokioIo::new(connect(&proxy, &[ALPN_HTTP_1_1]).await)).await.unwrap();
    tokio::spawn(connection);
    put(&second, "server.pem", &certificate);
    connect(&proxy, &[ALPN_HTTP_1_1]).await;
    fs::write(&certificate, "-----BEGIN CERTIFICATE-----\nMIIB").unwrap();
    connect(&proxy, &[ALPN_HTTP_1_1]).await;
    put(&second, "server.pem", &certificate);
    put(&second, "server.key", &key);
    trusting(&proxy, &second, &[ALPN_HTTP_1_1]).await.unwrap();
    assert!(trusting(&proxy, first, &[ALPN_HTTP_1_1]).await.is_err());
    let answered = whole(before.send_request(charge("k", "{}")).await.unwrap()).await;
    assert_eq!(answered.status(), 201, "a connection that is open goes on");
}

/// The other way round: the service's authority is replaced.
#[tokio::test(flavor = "multi_thread")]
async fn replaced_authorities_count_for_new_connections() {
    let (first, second, room) = (Authority::shared(), Authority::new(), Room::new());
    let acceptor = TlsAcceptor::from(second.server(&["http/1.1"]));
    let service = Service::start_with(Some(acceptor), async |_| answer(201, "{}")).await;
    let authorities = room.path().join("authorities.pem");
    fs::copy(first.file(), &authorities).unwrap();
    let more = format!("upstream_authorities: '{}'", authorities.display());
    let proxy = room.start(&format!("https://localhost:{}", service.address.port()), &more);
    assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 502);
    fs::copy(second.file(), &authorities).unwrap();
    assert_eq!(send(proxy.address, charge("k", "{}")).await.status(), 201);
}
