//! Whatever is logged, no key, body, answer or token is, by any store.

use std::fs;

use http_body_util::BodyExt;

use super::client::{for_two, request, send, two, whole};
use super::service::{Service, answer};
use crate::database::Database;
use crate::planted::{assert_hidden, planted};
use crate::program::{Keeps, Proxy, Room};
use crate::redis_server;

/// A proxy that logs everything, with this store.
fn start(room: &Room, keeps: &Keeps, service: &Service, more: &str) -> Proxy {
    let mut command = room.command_on(keeps, &service.url(), &format!("reservation_header: x-reservation\n{more}"));
    let file = room.path().join("proxy.yaml");
    let text = fs::read_to_string(&file).unwrap();
    fs::write(&file, text.replace("level: 'info,ratchet=debug'", "level: trace")).unwrap();
    command.env("RUST_LOG", "trace");
    Proxy::start(command)
}

/// Found by an audit: the driver of PostgreSQL logged the parameters of statements.
async fn hides_what_it_carries(keeps: Keeps) {
    for more in ["", "upstream_protocol: http2"] {
        let room = Room::new();
        let service = Service::start(async |request| {
            drop(request.into_body().collect().await);
            let mut said = answer(201, planted("answer"));
            said.headers_mut().insert("location", planted("location").parse().unwrap());
            said
        })
        .await;
        let proxy = start(&room, &keeps, &service, more);
        let [key, caller, body, own] = ["key", "caller", "body", "header"].map(planted);
        let key = format!("{key}-{}", room.path().display()).replace('/', "-");
        let headers = [("idempotency-key", &*key), ("authorization", &*caller), ("x-own", &*own)];
        let charge = |body: &str| request("POST", "/charges", &headers, body.to_owned());
        assert_eq!(send(proxy.address, charge(&body)).await.status(), 201, "{}", proxy.log());
        let reservation = service.last().headers["x-reservation"].to_str().unwrap().to_owned();
        let mut by_two = two(proxy.address).await;
        let again = whole(by_two.send_request(for_two(charge(&body))).await.unwrap()).await;
        assert!(again.is_replayed() && again.text() == planted("answer"), "{again:?}");
        assert_eq!(send(proxy.address, charge("another body")).await.status(), 422);
        let log = proxy.log();
        assert!(log.contains(r#""level":"DEBUG""#), "nothing is logged in detail: {log}");
        assert_hidden("the log", &log);
        let (_, token) = reservation.split_once('.').unwrap();
        let bytes: Vec<u8> =
            (0..token.len()).step_by(2).map(|at| u8::from_str_radix(&token[at..at + 2], 16).unwrap()).collect();
        for token in [token.to_owned(), token.to_uppercase(), format!("{bytes:?}").trim_matches(['[', ']']).to_owned()]
        {
            assert!(!log.contains(&token), "a token is in the log: {token}");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn embedded_store_has_no_secrets_logged() {
    hides_what_it_carries(Keeps::Embedded).await;
}

#[test]
fn postgres_has_no_secrets_logged() {
    let database = Database::new();
    run(hides_what_it_carries(Keeps::Postgres(database.url.clone())));
}

#[test]
fn redis_has_no_secrets_logged() {
    run(hides_what_it_carries(Keeps::Redis(redis_server::Server::shared().url(""))));
}

fn run<F: Future<Output = ()>>(test: F) {
    tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap().block_on(test);
}
