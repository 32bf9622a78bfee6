//! Tenants of one service that send the same key. Goal: if the proxy knows what identifies a caller, no tenant gets another
//! tenant's answer; if not, the proxy warns of that at its start, however it is started.
//!
//! Reported of many services with idempotency keys: C-Address-Onboarding-Bridge-Backend#379 (keys without the API key in
//! them), paveg/hono-idempotency#126 (a default without a tenant, and nothing says so), nensii21/devlink#773,
//! Truxify#2869 (an answer 4xx that is remembered, though the corrected code is another request), Truxify#3539 (method and
//! path are not in the key), crbnos/carbon#252.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use http_body_util::BodyExt;

use super::client::{Got, request, send};
use super::service::{Service, answer};
use crate::program::{Proxy, Room};

/// The warning of a proxy that was not told what identifies a caller.
const WARNING: &str = "nothing says how to tell callers apart";

/// A service that makes something for the tenant that `X-Api-Key` or a cookie names, and says which run it was. Under `/otp`
/// it answers 400 unless the code is right.
async fn service() -> Service {
    let runs = Arc::new(AtomicUsize::new(0));
    Service::start(move |request| {
        let run = runs.fetch_add(1, Ordering::SeqCst) + 1;
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.unwrap().to_bytes();
            if head.uri.path().starts_with("/otp") {
                let is_right = body.windows(4).any(|part| part == b"1234");
                return answer(if is_right { 200 } else { 400 }, format!("run {run}"));
            }
            let named = ["x-api-key", "cookie"].iter().find_map(|name| head.headers.get(*name));
            let tenant = named.map_or("nobody", |value| value.to_str().unwrap());
            answer(201, format!("run {run} for {tenant}"))
        }
    })
    .await
}

/// A proxy that is started by options alone, as in the walk of the docs.
fn by_options(room: &Room, service: &Service, more: &str) -> Proxy {
    let words = format!("--listen 127.0.0.1:0 --upstream {} --http 127.0.0.1:0 --store embedded", service.url());
    Proxy::start(room.command(&format!("proxy {words} {more}")))
}

/// What a caller gets for its request under the key `k`.
async fn fund(proxy: &Proxy, caller: (&str, &str), body: &str) -> Got {
    post(proxy, "/fund", caller, body).await
}

async fn post(proxy: &Proxy, path: &str, caller: (&str, &str), body: &str) -> Got {
    let headers = [("idempotency-key", "k"), ("content-type", "application/json"), caller];
    send(proxy.address, request("POST", path, &headers, body.to_owned())).await
}

/// Each tenant gets its own answer, the first time and again.
async fn assert_apart(proxy: &Proxy, header: &str, tenants: [&str; 2]) {
    let mut first = Vec::new();
    for tenant in tenants {
        let got = fund(proxy, (header, tenant), "{}").await;
        assert!(got.status() == 201 && !got.is_replayed(), "{tenant}: {got:?}");
        assert!(got.text().ends_with(&format!(" for {tenant}")), "{tenant}: {got:?}");
        first.push(got);
    }
    for (tenant, first) in tenants.into_iter().zip(first) {
        let again = fund(proxy, (header, tenant), "{}").await;
        assert!(again.is_replayed() && again.body == first.body, "{tenant}: {again:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_with_one_key_get_their_own_answers_by_the_header_that_an_option_names() {
    for (header, tenants) in [("X-Api-Key", ["A", "B"]), ("Cookie", ["s=alice", "s=bob"])] {
        let (room, service) = (Room::new(), service().await);
        let proxy = by_options(&room, &service, &format!("--caller {header}"));
        assert!(!proxy.log().contains(WARNING), "{}", proxy.log());
        assert_apart(&proxy, &header.to_lowercase(), tenants).await;
        assert_eq!(service.runs(), 2, "{header}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn tenants_with_one_key_get_their_own_answers_by_the_header_that_a_file_names() {
    let (room, service) = (Room::new(), service().await);
    let proxy = room.start(&service.url(), "caller: X-Api-Key");
    assert!(!proxy.log().contains(WARNING), "{}", proxy.log());
    assert_apart(&proxy, "x-api-key", ["A", "B"]).await;
    assert_eq!(service.runs(), 2);
}

/// Without a word about callers, tenants that `Authorization` does not tell apart share their answers, and the proxy warns.
#[tokio::test(flavor = "multi_thread")]
async fn tenants_share_answers_only_where_the_proxy_has_warned() {
    let service = service().await;
    let (with_options, with_file) = (Room::new(), Room::new());
    let proxies = [by_options(&with_options, &service, ""), with_file.start(&service.url(), "")];
    for proxy in &proxies {
        let log = proxy.log();
        let warned = log.lines().find(|line| line.contains(WARNING)).unwrap_or_else(|| panic!("no warning: {log}"));
        assert!(warned.contains("WARN"), "{warned}");
        let first = fund(proxy, ("x-api-key", "A"), "{}").await;
        let other = fund(proxy, ("x-api-key", "B"), "{}").await;
        assert!(other.is_replayed() && other.body == first.body, "the warning is not true: {other:?}");
    }
}

/// The other reports: a request with another body, path or caller never gets an earlier answer.
#[tokio::test(flavor = "multi_thread")]
async fn other_body_path_or_authorization_is_another_request() {
    let (room, service) = (Room::new(), service().await);
    let proxy = by_options(&room, &service, "--caller Authorization");
    let ann = ("authorization", "Bearer ann");
    assert_eq!(fund(&proxy, ann, "{}").await.text(), "run 1 for nobody");
    let other = fund(&proxy, ann, r#"{"amount":2}"#).await;
    assert_eq!((other.status(), other.problem().as_str()), (422, "urn:ratchet:idempotency:key-used"));
    assert_eq!(post(&proxy, "/fund/7/cancel", ann, "{}").await.text(), "run 2 for nobody");
    assert_eq!(post(&proxy, "/otp/verify", ann, r#"{"code":"1"}"#).await.status(), 400);
    // The corrected code is never answered with the 400 of the wrong one.
    let corrected = post(&proxy, "/otp/verify", ann, r#"{"code":"1234"}"#).await;
    assert_eq!((corrected.status(), corrected.problem().as_str()), (422, "urn:ratchet:idempotency:key-used"));
    // A renewed token is another caller, as the docs say.
    assert_eq!(fund(&proxy, ("authorization", "Bearer renewed"), "{}").await.text(), "run 4 for nobody");
    // Another header than `Idempotency-Key` protects nothing.
    for run in 5..7 {
        let unprotected = request("POST", "/fund", &[("x-idempotency-key", "k"), ann], "{}");
        assert_eq!(send(proxy.address, unprotected).await.text(), format!("run {run} for nobody"));
    }
    assert_eq!(service.runs(), 6);
}
