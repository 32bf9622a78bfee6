//! What a page at another origin may read: CORS.

use super::client::{Got, request, send};
use super::service::{Service, answer};
use crate::program::Room;

const PAGE: &str = "https://shop.example";
const ALLOW: &str = "access-control-allow-origin";
const CREDENTIALS: &str = "access-control-allow-credentials";
const EXPOSE: &str = "access-control-expose-headers";

/// A service that allows the page, and says so as services do: to those who name their origin.
async fn service() -> Service {
    Service::start(async |request| {
        let is_page = request.headers().get("origin").is_some_and(|origin| origin == PAGE);
        let status = if request.uri().path() == "/missing" { 404 } else { 201 };
        let mut said = answer(status, "{}");
        if is_page && status == 201 {
            for (name, value) in [(ALLOW, PAGE), (CREDENTIALS, "true"), (EXPOSE, "idempotent-replayed")] {
                said.headers_mut().insert(name, value.parse().unwrap());
            }
        }
        said
    })
    .await
}

/// What it says to a browser.
fn cors(got: &Got) -> [Option<&str>; 3] {
    [ALLOW, CREDENTIALS, EXPOSE].map(|name| got.header(name))
}

#[tokio::test(flavor = "multi_thread")]
async fn page_reads_replays_and_problems_as_the_service_allows() {
    let (room, service) = (Room::new(), service().await);
    let proxy = room.start(&service.url(), "routes: [{path: /strict, key: required}]");
    let ask = async |path: &str, key: Option<&str>, origin: Option<&str>, body: &str| {
        let headers =
            key.map(|key| ("idempotency-key", key)).into_iter().chain(origin.map(|origin| ("origin", origin)));
        let headers: Vec<_> = headers.collect();
        send(proxy.address, request("POST", path, &headers, body.to_owned())).await
    };
    let allowed = [Some(PAGE), Some("true"), Some("idempotent-replayed")];
    let first = ask("/", Some("a"), Some(PAGE), "1").await;
    assert_eq!((first.status(), cors(&first)), (201, allowed));
    let again = ask("/", Some("a"), Some(PAGE), "1").await;
    assert!(again.is_replayed());
    assert_eq!(cors(&again), allowed, "as the service has answered");
    let problem = ask("/", Some("a"), Some(PAGE), "2").await;
    assert_eq!((problem.status(), problem.problem().as_str()), (422, "urn:ratchet:idempotency:key-used"));
    assert_eq!(cors(&problem), [Some(PAGE), Some("true"), Some("Retry-After")]);
    assert_eq!(problem.header("vary"), Some("Origin"));
    // A client that names no origin is no page, and without a key the service may not have been asked.
    let problem = ask("/", Some("a"), None, "2").await;
    assert_eq!((problem.status(), cors(&problem)), (422, [None; 3]));
    let problem = ask("/strict", None, Some(PAGE), "1").await;
    assert_eq!((problem.status(), cors(&problem)), (400, [None; 3]));
    // What the service itself says stays as it is.
    let missing = ask("/missing", Some("b"), Some(PAGE), "1").await;
    assert_eq!((missing.status(), cors(&missing)), (404, [None; 3]));
    let missing = ask("/missing", Some("b"), Some(PAGE), "1").await;
    assert!(missing.is_replayed());
    assert_eq!(cors(&missing), [None; 3]);
    let asked = send(proxy.address, request("OPTIONS", "/", &[("origin", PAGE)], "")).await;
    assert_eq!(asked.header(ALLOW), Some(PAGE), "the service is asked before");
}

/// The proxy's own answers in place of the service's.
#[tokio::test(flavor = "multi_thread")]
async fn page_reads_that_the_service_cannot_be_reached() {
    let room = Room::new();
    let proxy = room.start("http://127.0.0.1:1", "");
    let headers = [("idempotency-key", "a"), ("origin", PAGE)];
    let problem = send(proxy.address, request("POST", "/", &headers, "")).await;
    assert_eq!((problem.status(), problem.problem().as_str()), (502, "urn:ratchet:proxy:unreachable"));
    assert_eq!(cors(&problem), [Some(PAGE), Some("true"), Some("Retry-After")]);
    assert_eq!(problem.header("retry-after"), Some("1"));
    let plain = send(proxy.address, request("POST", "/", &[("origin", PAGE)], "")).await;
    assert_eq!((plain.status(), cors(&plain)), (502, [None; 3]));
}
