//! The cases, for the layer or the proxy on a store that works.

use std::time::Duration;

use futures_util::future::join_all;
use http::Method;
use http_body_util::BodyExt;

use super::front::{Ask, Front, Place};
use super::set::Set;

fn new_key() -> String {
    format!("key-{:032x}", rand::random::<u128>())
}

/// idempot-js, framework suite: GET passes.
pub async fn safe_methods_pass(place: Place) {
    let (front, key) = (Front::set(place, &[Set::Required]).await, new_key());
    for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
        for _ in 0..2 {
            let answer = front.send(Ask::under(&key).by(method.clone())).await;
            assert_eq!((answer.status.as_u16(), answer.is_replayed()), (200, false));
        }
    }
    assert_eq!(front.runs.count(&key), 6);
    let without = front.send(Ask::plain("plain").by(Method::GET)).await;
    assert_eq!(without.whole(), (200, "run 1 of plain"));
}

/// The draft: missing but required: 400. rocket-rides-atomic: no key: 400.
pub async fn requests_without_a_key_pass_unless_it_is_required(place: Place) {
    let front = Front::on(place.clone()).await;
    for run in 1..=2 {
        assert_eq!(front.send(Ask::plain("plain")).await.text(), format!("run {run} of plain"));
    }
    let strict = Front::set(place, &[Set::Required]).await;
    for method in [Method::POST, Method::PUT, Method::PATCH, Method::DELETE] {
        let answer = strict.send(Ask::plain("plain").by(method)).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "key-missing"));
    }
    assert_eq!(strict.runs.count("plain"), 0);
}

/// idempot-js, framework suite: a key of more than 255 bytes, an empty one, or one with a comma is refused.
pub async fn what_is_no_key_is_refused(place: Place) {
    let front = Front::on(place).await;
    for key in [&"k".repeat(256), "", "a,b", "\"a", "ä"] {
        let answer = front.send(Ask::plain("bad").with("idempotency-key", key)).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (400, "key-invalid"), "{key}");
    }
    let twice = Ask::plain("bad").with("idempotency-key", "a").with("idempotency-key", "b");
    assert_eq!(front.send(twice).await.problem(), "key-invalid");
    assert_eq!(front.runs.count("bad"), 0);
    assert_eq!(front.send(Ask::plain("long").with("idempotency-key", "k".repeat(255))).await.status, 200);
}

/// The draft's keys are strings of structured fields; most clients send them bare.
pub async fn key_is_the_same_with_quotes_and_without(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let first = front.send(Ask::under(&key)).await;
    let quoted = front.send(Ask::plain(&key).with("idempotency-key", format!("\"{key}\""))).await;
    assert_eq!((quoted.whole(), quoted.is_replayed()), (first.whole(), true));
}

/// Stripe: the first status and body. rocket-rides-atomic: a finished key returns the stored body.
pub async fn answer_is_given_again(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let ask = || Ask::under(&key).with("x-status", 201);
    let first = front.send(ask()).await;
    assert_eq!((first.whole(), first.is_replayed()), ((201, format!("run 1 of {key}").as_str()), false));
    for _ in 0..3 {
        let again = front.send(ask()).await;
        assert_eq!((again.whole(), again.is_replayed()), (first.whole(), true));
        assert_eq!(again.header("content-type"), Some("text/plain"));
        assert_eq!(again.header("location"), first.header("location"));
        assert_eq!(again.header("set-cookie"), None, "only chosen headers are remembered");
        assert_eq!(again.header("x-run"), None);
    }
    assert_eq!(front.runs.count(&key), 1);
}

/// Bodies are bytes, or nothing.
pub async fn binary_and_empty_answers_are_given_again(place: Place) {
    let front = Front::on(place).await;
    for ask in [Ask::under(&new_key()).with("x-status", 204), Ask::under(&new_key()).with("x-bytes", 100_000)] {
        let (first, again) = (front.send(ask.clone()).await, front.send(ask.body("{}")).await);
        assert_eq!((again.status, &again.body), (first.status, &first.body));
        assert!(again.is_replayed());
    }
}

/// rocket-rides-atomic: a declined card's 402 is stored.
pub async fn refusal_by_the_service_is_remembered(place: Place) {
    let front = Front::on(place).await;
    for status in [400, 402, 403, 404, 409, 422] {
        let key = new_key();
        let ask = || Ask::under(&key).with("x-status", format!("{status} 200"));
        let (first, again) = (front.send(ask()).await, front.send(ask()).await);
        assert_eq!(first.status, status);
        assert_eq!((again.whole(), again.is_replayed()), (first.whole(), true));
    }
}

/// rocket-rides-atomic: an internal error: 500, and unlocked.
pub async fn failure_of_the_service_is_not_remembered(place: Place) {
    are_not_remembered(&Front::on(place).await, &[500, 502, 503, 504]).await;
}

/// Found by a review: a client that has no token yet, or comes too soon, sends the same request again, and is heard then.
pub async fn refusal_that_asks_to_come_again_is_not_remembered(place: Place) {
    are_not_remembered(&Front::on(place).await, &[401, 408, 425, 429]).await;
}

/// Found by an audit: a service that fails after it has charged the card answers 500, and the card is charged again.
pub async fn failure_of_the_service_is_in_doubt_where_nothing_may_run_twice(place: Place) {
    let front = Front::set(place, &[Set::RefuseInDoubt]).await;
    for status in [408, 500, 502, 503, 504, 599] {
        let key = new_key();
        let ask = || Ask::under(&key).with("x-status", format!("{status} 201"));
        assert_eq!(front.send(ask()).await.whole(), (status, format!("run 1 of {key}").as_str()), "it is passed on");
        for _ in 0..2 {
            let doubt = front.send(ask()).await;
            assert_eq!((doubt.status.as_u16(), doubt.problem().as_str()), (409, "in-doubt"), "{status}");
        }
        assert_eq!(front.runs.count(&key), 1, "{status}");
    }
    are_not_remembered(&front, &[401, 425, 429]).await;
}

/// A service that says 503 before it has begun anything.
pub async fn failure_that_is_listed_releases_where_nothing_may_run_twice(place: Place) {
    let front = Front::set(place, &[Set::RefuseInDoubt, Set::Released(&[503, 408])]).await;
    are_not_remembered(&front, &[503, 408, 401]).await;
    let key = new_key();
    let ask = || Ask::under(&key).with("x-status", "500 201");
    assert_eq!(front.send(ask()).await.status, 500);
    assert_eq!((front.send(ask()).await.problem().as_str(), front.runs.count(&key)), ("in-doubt", 1));
}

/// Found by an audit: what clients without a login are refused fills the store.
pub async fn refusal_that_is_listed_is_not_remembered(place: Place) {
    let front = Front::set(place, &[Set::Released(&[404, 422])]).await;
    are_not_remembered(&front, &[404, 422, 500]).await;
    let ask = Ask::under(&new_key()).with("x-status", "400 201");
    let (first, again) = (front.send(ask.clone()).await, front.send(ask).await);
    assert_eq!((first.status.as_u16(), again.status.as_u16(), again.is_replayed()), (400, 400, true));
}

/// What follows an answer of these is carried out, and remembered.
async fn are_not_remembered(front: &Front, statuses: &[u16]) {
    for status in statuses {
        let key = new_key();
        let ask = || Ask::under(&key).with("x-status", format!("{status} 201"));
        assert_eq!(front.send(ask()).await.status, *status);
        let second = front.send(ask()).await;
        assert_eq!((second.status.as_u16(), second.is_replayed()), (201, false), "{status}");
        let third = front.send(ask()).await;
        assert_eq!((third.whole(), third.is_replayed()), (second.whole(), true), "{status}");
    }
}

/// The draft: same key, other payload: 422. rocket-rides-atomic: other params.
pub async fn other_request_under_a_key_is_refused(place: Place) {
    let (front, key) = (Front::set(place, &[Set::FingerprintHeader("api-version")]).await, new_key());
    let first = || Ask::under(&key).json(r#"{"amount": 10}"#).with("api-version", 1);
    front.send(first()).await;
    let others = [
        Ask::under(&key).json(r#"{"amount": 11}"#).with("api-version", 1),
        Ask::under(&key).json(r#"{"amount": 10}"#).with("api-version", 2),
        first().to("/charges?dry=true"),
    ];
    for other in others {
        let answer = front.send(other).await;
        assert_eq!((answer.status.as_u16(), answer.problem().as_str()), (422, "key-used"));
    }
    assert!(front.send(first()).await.is_replayed());
    assert_eq!(front.runs.count(&key), 1);
}

/// idempot-js, framework suite: excluded fields do not change the fingerprint.
pub async fn request_that_means_the_same_is_the_same(place: Place) {
    let except = Set::FingerprintExcept(&["sent_at", "meta.attempt"]);
    let (front, key) = (Front::set(place, &[except]).await, new_key());
    front.send(Ask::under(&key).json(r#"{"amount": 10, "sent_at": "10:00", "meta": {"attempt": 1, "by": "a"}}"#)).await;
    let again = r#"{ "meta": {"by": "a", "attempt": 2}, "amount": 10.0 }"#;
    assert!(front.send(Ask::under(&key).json(again)).await.is_replayed());
    let other = front.send(Ask::under(&key).json(r#"{"amount": 10, "meta": {"by": "b"}}"#)).await;
    assert_eq!(other.status, 422);
}

/// The draft: outstanding: 409. ietf-wg-httpapi/idempotency#11: with a hint when to come back.
pub async fn request_in_progress_is_a_conflict(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let go = format!("{key}-go");
    let ask = || Ask::under(&key).with("x-until", &go);
    let (first, second) = tokio::join!(front.send(ask()), async {
        front.runs.begun(&key).await;
        let second = front.send(ask()).await;
        front.send(Ask::plain(&go)).await;
        second
    });
    assert_eq!((second.status.as_u16(), second.problem().as_str()), (409, "in-progress"));
    assert_eq!(second.header("retry-after"), Some("1"));
    assert_eq!(first.status, 200);
    assert!(front.send(ask()).await.is_replayed());
    assert_eq!(front.runs.count(&key), 1);
}

/// idempot-js#183: processing + other body: 422, not 409.
pub async fn other_request_is_told_before_a_conflict(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let go = format!("{key}-go");
    let ask = |body: &str| Ask::under(&key).with("x-until", &go).json(body);
    let (_, other) = tokio::join!(front.send(ask("1")), async {
        front.runs.begun(&key).await;
        let other = front.send(ask("2")).await;
        front.send(Ask::plain(&go)).await;
        other
    });
    assert_eq!((other.status.as_u16(), other.problem().as_str()), (422, "key-used"));
}

/// ietf-wg-httpapi/idempotency#42: blocking was asked for.
pub async fn request_that_waits_gets_the_first_answer(place: Place) {
    let (front, key) = (Front::set(place, &[Set::Wait(Duration::from_secs(30))]).await, new_key());
    let ask = || Ask::under(&key).with("x-delay-ms", 400).with("x-status", "500 201");
    let all = join_all((0..3).map(|_| front.send(ask()))).await;
    // The first one failed and was released: one of the others was carried out, and the last one got its answer.
    let mut statuses: Vec<_> = all.iter().map(|answer| (answer.status.as_u16(), answer.is_replayed())).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [(201, false), (201, true), (500, false)]);
    assert_eq!(front.runs.count(&key), 2);
}

/// Stripe: keys per account. Nobody gets another's answer.
pub async fn keys_are_their_callers_own(place: Place) {
    let front = Front::set(place.clone(), &[Set::Retention(Duration::from_secs(60))]).await;
    let key = new_key();
    for caller in [Some("Bearer a"), Some("Bearer b"), None] {
        let ask = || caller.into_iter().fold(Ask::under(&key), |ask, caller| ask.with("authorization", caller));
        assert!(!front.send(ask()).await.is_replayed(), "{caller:?}");
        assert!(front.send(ask()).await.is_replayed(), "{caller:?}");
    }
    let by_tenant = Front::set(place, &[Set::Caller("tenant")]).await;
    let key = new_key();
    let ask = |tenant: &str, token: &str| Ask::under(&key).with("tenant", tenant).with("authorization", token);
    assert!(!by_tenant.send(ask("a", "1")).await.is_replayed());
    assert!(by_tenant.send(ask("a", "2")).await.is_replayed(), "the token may have been renewed");
    assert!(!by_tenant.send(ask("b", "1")).await.is_replayed());
}

/// A service whose clients all are one.
pub async fn keys_are_everybodys_where_that_is_chosen(place: Place) {
    let (front, key) = (Front::set(place, &[Set::NoCaller]).await, new_key());
    front.send(Ask::under(&key).with("authorization", "Bearer a")).await;
    for caller in ["Bearer b", "Basic Og=="] {
        assert!(front.send(Ask::under(&key).with("authorization", caller)).await.is_replayed(), "{caller}");
    }
    assert!(front.send(Ask::under(&key)).await.is_replayed());
    assert_eq!(front.runs.count(&key), 1);
}

/// Otherwise all who say nothing are one, and get each other's answers.
pub async fn callers_must_say_who_they_are_where_that_is_chosen(place: Place) {
    for (set, header) in [(None, "authorization"), (Some("x-tenant"), "x-tenant")] {
        let (front, key) = (Front::set(place.clone(), &[Set::CallerRequired(set)]).await, new_key());
        for nobody in [Ask::under(&key), Ask::under(&key).with(header, ""), Ask::under(&key).with("x-other", "a")] {
            let refused = front.send(nobody).await;
            assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (400, "caller-missing"));
            assert!(refused.text().contains(&format!("send the header {header}:")), "{}", refused.text());
        }
        assert_eq!(front.runs.count(&key), 0);
        for caller in ["ann", "ben"] {
            let ask = || Ask::under(&key).with(header, caller);
            assert!(!front.send(ask()).await.is_replayed(), "{caller}");
            assert!(front.send(ask()).await.is_replayed(), "{caller}");
        }
        for passed in [Ask::plain("plain"), Ask::under(&key).by(Method::GET)] {
            assert_eq!(front.send(passed).await.status, 200, "nobody looks at it");
        }
        assert_eq!(front.send(Ask::under("a,b")).await.problem(), "key-invalid", "its key is looked at first");
    }
}

/// Not all clients call it by the draft's name.
pub async fn other_header_carries_the_key(place: Place) {
    let (front, key) = (Front::set(place, &[Set::Header("x-request-key"), Set::Required]).await, new_key());
    let ask = || Ask::plain(&key).with("x-request-key", &key);
    let first = front.send(ask()).await;
    let again = front.send(ask().with("idempotency-key", "another")).await;
    assert_eq!((again.whole(), again.is_replayed()), (first.whole(), true));
    let without = front.send(Ask::under(&new_key())).await;
    assert_eq!((without.status.as_u16(), without.problem().as_str()), (400, "key-missing"));
    assert!(without.text().contains("x-request-key"), "{without:?}");
}

/// A service's own headers are part of its answer, if that is said.
pub async fn chosen_headers_are_given_again(place: Place) {
    let (front, key) = (Front::set(place, &[Set::Remembered(&["x-run", "set-cookie"])]).await, new_key());
    let (first, again) = (front.send(Ask::under(&key)).await, front.send(Ask::under(&key)).await);
    assert!(again.is_replayed());
    for name in ["x-run", "set-cookie"] {
        assert_eq!((again.header(name), again.header(name).is_some()), (first.header(name), true), "{name}");
    }
    assert_eq!((again.header("location"), again.header("content-type")), (None, None), "and no others");
}

/// A key is scoped by method and path.
pub async fn keys_are_those_of_one_resource(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let asks = [
        Ask::under(&key),
        Ask::under(&key).to("/refunds"),
        Ask::under(&key).by(Method::PUT),
        Ask::under(&key).by(Method::DELETE),
    ];
    for ask in asks {
        assert!(!front.send(ask.clone()).await.is_replayed());
        assert!(front.send(ask).await.is_replayed());
    }
    assert_eq!(front.runs.count(&key), 4);
}

/// Found by a review: several services share a store.
pub async fn keys_are_those_of_one_scope(place: Place) {
    let key = new_key();
    let scopes: [&[Set]; 3] = [&[], &[Set::Scope("shop")], &[Set::Scope("bank")]];
    for scope in scopes {
        let front = Front::set(place.clone(), scope).await;
        let answer = front.send(Ask::under(&key)).await;
        assert_eq!((answer.whole(), answer.is_replayed()), ((200, format!("run 1 of {key}").as_str()), false));
        assert!(front.send(Ask::under(&key)).await.is_replayed(), "{scope:?}");
    }
}

/// Found by a review: what is added beside a caller's own header makes nobody the caller.
pub async fn all_values_of_a_callers_header_count(place: Place) {
    let (front, key) = (Front::set(place, &[Set::Caller("tenant")]).await, new_key());
    let ask = |tenants: &[&str]| tenants.iter().fold(Ask::under(&key), |ask, tenant| ask.with("tenant", tenant));
    for tenants in [&["a"][..], &["a", "b"], &["b", "a"], &["a, b"], &["ab"], &[""], &[]] {
        assert!(!front.send(ask(tenants)).await.is_replayed(), "{tenants:?}");
        assert!(front.send(ask(tenants)).await.is_replayed(), "{tenants:?}");
    }
}

/// Powertools, end to end: two in parallel: one result, one in-progress error.
pub async fn hundred_at_once_are_carried_out_once(place: Place) {
    let (front, key) = (Front::set(place.clone(), &[Set::Wait(Duration::from_secs(60))]).await, new_key());
    let ask = || Ask::under(&key).with("x-delay-ms", 100);
    let all = join_all((0..100).map(|_| front.send(ask()))).await;
    assert!(all.iter().all(|answer| answer.whole() == (200, format!("run 1 of {key}").as_str())), "{all:?}");
    assert_eq!(all.iter().filter(|answer| answer.is_replayed()).count(), 99);
    let (impatient, key) = (Front::on(place).await, new_key());
    let all = join_all((0..100).map(|_| impatient.send(Ask::under(&key).with("x-delay-ms", 2_000)))).await;
    let mut statuses: Vec<_> = all.iter().map(|answer| answer.status.as_u16()).collect();
    statuses.sort_unstable();
    assert_eq!(statuses, [vec![200], vec![409; 99]].concat());
    assert_eq!(impatient.runs.count(&key), 1);
}

/// Each of a thousand keys, ten times, all mixed up.
pub async fn thousand_keys_ten_times_each_are_carried_out_once(place: Place) {
    let front = Front::set(place, &[Set::Wait(Duration::from_secs(60))]).await;
    let keys: Vec<_> = (0..1_000).map(|_| new_key()).collect();
    let sent = futures_util::stream::iter((0..10_000).map(|number| front.send(Ask::under(&keys[number % 1_000]))));
    let all: Vec<_> = futures_util::StreamExt::collect(futures_util::StreamExt::buffered(sent, 64)).await;
    for (number, answer) in all.iter().enumerate() {
        assert_eq!(answer.whole(), (200, format!("run 1 of {}", keys[number % 1_000]).as_str()));
    }
    assert!(keys.iter().all(|key| front.runs.count(key) == 1));
}

/// Found nowhere: a client that gives up must not leave half of a request behind.
pub async fn client_that_goes_away_stops_nothing(place: Place) {
    let (front, key) = (Front::set(place, &[Set::Wait(Duration::from_secs(30))]).await, new_key());
    let go = format!("{key}-go");
    let ask = || Ask::under(&key).with("x-until", &go);
    tokio::select! {
        answered = front.send(ask()) => panic!("it is still at work: {answered:?}"),
        () = front.runs.begun(&key) => {}
    }
    assert_eq!(front.idempotency().map_or(1, |layer| layer.at_work()), 1);
    let (again, _) = tokio::join!(front.send(ask()), front.send(Ask::plain(&go)));
    assert_eq!((again.whole(), again.is_replayed()), ((200, format!("run 1 of {key}").as_str()), true));
    if let Some(layer) = front.idempotency() {
        layer.idle().await;
        assert_eq!(layer.at_work(), 0);
    }
    assert_eq!(front.runs.count(&key), 1);
}

/// Powertools: the handler raises: the record is gone, and the error is passed through.
pub async fn panic_of_the_service_is_passed_on_and_releases(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let broken = tokio::time::timeout(
        Duration::from_secs(30),
        tokio::net::TcpStream::connect(front.url.trim_start_matches("http://")),
    );
    let mut stream = broken.await.expect("in time").expect("a connection");
    let request = format!(
        "POST /charges HTTP/1.1\r\nhost: a\r\nidempotency-key: {key}\r\nx-word: {key}\r\nx-panic: yes\r\nconnection: close\r\ncontent-length: 2\r\n\r\n{{}}"
    );
    tokio::io::AsyncWriteExt::write_all(&mut stream, request.as_bytes()).await.expect("it is sent");
    let mut answer = Vec::new();
    let read = tokio::io::AsyncReadExt::read_to_end(&mut stream, &mut answer).await;
    match front.idempotency() {
        Some(_) => assert!(read.is_err() || answer.is_empty(), "the panic ends the connection: {answer:?}"),
        None => {
            let answer = String::from_utf8(answer).expect("text");
            assert!(
                answer.starts_with("HTTP/1.1 502 ") && answer.contains("urn:ratchet:proxy:answer-lost"),
                "{answer}"
            );
        }
    }
    assert_eq!(front.send(Ask::under(&key)).await.whole(), (200, format!("run 2 of {key}").as_str()));
}

/// Bodies are bounded.
pub async fn request_that_is_too_large_is_refused(place: Place) {
    let (front, key) = (Front::set(place, &[Set::RequestBytesMax(1_000)]).await, new_key());
    let large = front.send(Ask::under(&key).body(vec![b'x'; 1_001])).await;
    assert_eq!((large.status.as_u16(), large.problem().as_str()), (413, "body-too-large"));
    assert_eq!(front.send(Ask::under(&key).body(vec![b'x'; 1_000])).await.status, 200);
    assert_eq!(front.send(Ask::plain(&key).body(vec![b'x'; 1_001])).await.status, 200, "nobody looks at it");
}

/// A result that is too large is remembered as a digest, and said so.
pub async fn answer_that_is_too_large_is_given_once(place: Place) {
    let (front, key) = (Front::set(place, &[Set::AnswerBytesMax(1_000)]).await, new_key());
    let ask = || Ask::under(&key).with("x-bytes", 100_000).with("x-status", 201);
    let first = front.send(ask()).await;
    assert_eq!((first.status.as_u16(), first.body.len()), (201, 100_000));
    let again = match front.idempotency() {
        Some(layer) => {
            layer.idle().await;
            front.send(ask()).await
        }
        None => front.until(ask(), |again| !again.text().contains(r#""sha256":null"#)).await,
    };
    assert_eq!((again.status.as_u16(), again.is_replayed()), (201, true));
    assert_eq!(again.header("content-type"), Some("application/json"));
    assert_eq!(again.header("location"), first.header("location"));
    let said: serde_json::Value = serde_json::from_slice(&again.body).expect("JSON");
    let digest: [u8; 32] =
        sha2::Digest::finalize(sha2::Digest::chain_update(<sha2::Sha256 as sha2::Digest>::new(), &first.body)).into();
    let digest: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!((&said["bytes"], &said["sha256"]), (&100_000.into(), &digest.into()));
    assert_eq!(front.runs.count(&key), 1);
    let at_most = Ask::under(&new_key()).with("x-bytes", 1_000);
    assert_eq!(
        (front.send(at_most.clone()).await.body, front.send(at_most).await.body.len()),
        (vec![b'x'; 1_000].into(), 1_000)
    );
}

/// Found by a review: an answer of gRPC has its status in its trailers, and without them it is another answer.
pub async fn answer_with_trailers_is_given_once(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let ask = || Ask::under(&key).with("x-trailers", "yes").with("te", "trailers");
    let first = front.begin(ask()).await.into_body().collect().await.expect("a whole body");
    assert_eq!(first.trailers().and_then(|trailers| trailers.get("x-sum")).expect("trailers"), "7");
    assert_eq!(first.to_bytes(), format!("run 1 of {key}"));
    let again = front.send(ask()).await;
    assert_eq!((again.status.as_u16(), again.is_replayed()), (200, true));
    let said: serde_json::Value = serde_json::from_slice(&again.body).expect("JSON, and not half of an answer");
    assert_eq!(said["bytes"], format!("run 1 of {key}").len());
    assert!(said["idempotency"].as_str().expect("words").contains("trailers"), "{said}");
    assert_eq!(front.runs.count(&key), 1);
}

/// Found by a review: half of an answer was remembered as one that is too large.
pub async fn answer_that_breaks_off_is_in_doubt(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let ask = || Ask::under(&key).with("x-breaks-off", "yes");
    let lost = front.send(ask()).await;
    assert_eq!((lost.status.as_u16(), lost.problem().as_str()), (502, "answer-lost"));
    let second = front.send(ask()).await;
    assert_eq!((second.whole(), second.is_replayed()), ((200, format!("run 2 of {key}").as_str()), false));
    assert!(front.send(ask()).await.is_replayed());
}

/// Found by a review: a client that goes away leaves a request behind, and may send another one at once.
pub async fn what_is_at_work_is_bounded_also_when_its_client_is_gone(place: Place) {
    let (front, key) = (Front::set(place, &[Set::AtWorkMax(1)]).await, new_key());
    let gone =
        tokio::time::timeout(Duration::from_millis(300), front.send(Ask::under(&key).with("x-first-delay-ms", 1_500)));
    assert!(gone.await.is_err(), "it was still at work");
    let other = new_key();
    let refused = front.send(Ask::under(&other)).await;
    assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (503, "too-many"));
    assert_eq!((refused.header("retry-after"), front.runs.count(&other)), (Some("1"), 0));
    assert_eq!(front.send(Ask::plain("plain")).await.status, 200, "without a key nothing is held");
    let answer = front.until(Ask::under(&other), |answer| answer.status != 503).await;
    assert_eq!(answer.whole(), (200, format!("run 1 of {other}").as_str()));
    assert!(front.send(Ask::under(&key)).await.is_replayed());
}

/// Found by a review: and what it has sent is held for as long; requests take three quarters of the bound.
pub async fn bodies_are_bounded_together(place: Place) {
    let sets = [Set::RequestBytesMax(1_000), Set::BodiesBytesMax(2_000)];
    let (front, key) = (Front::set(place, &sets).await, new_key());
    let ask = |key: &str, bytes: usize| Ask::under(key).body(vec![b'x'; bytes]);
    let (first, ()) = tokio::join!(front.send(ask(&key, 1_000).with("x-delay-ms", 1_500)), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let refused = front.send(ask(&new_key(), 600)).await;
        assert_eq!((refused.status.as_u16(), refused.problem().as_str()), (503, "too-many"));
        assert_eq!(front.send(ask(&new_key(), 400)).await.status, 200, "it fits");
    });
    assert_eq!(first.status, 200);
    front.until(ask(&new_key(), 1_000), |answer| answer.status == 200).await;
}

/// What is held of an answer until it is remembered takes memory as a request does. One for which there is no room is
/// given all the same, and remembered as one that is too large.
pub async fn answers_count_among_the_bodies(place: Place) {
    let sets = [Set::RequestBytesMax(1_000), Set::BodiesBytesMax(1_500)];
    let front = Front::set(place, &sets).await;
    let first = Ask::under(&new_key()).body(vec![b'x'; 1_000]).with("x-delay-ms", 2_000);
    let large = Ask::under(&new_key()).with("x-bytes", 1_000).with("x-status", 201);
    let small = Ask::under(&new_key()).with("x-bytes", 100);
    let (first, ()) = tokio::join!(front.send(first), async {
        tokio::time::sleep(Duration::from_millis(300)).await;
        let (given, whole) = (front.send(large.clone()).await, front.send(small.clone()).await);
        assert_eq!((given.status.as_u16(), given.body.len(), given.is_replayed()), (201, 1_000, false));
        assert_eq!((whole.status.as_u16(), whole.body.len()), (200, 100));
    });
    assert_eq!(first.status, 200);
    let again = front.until(large, |again| !again.text().contains(r#""sha256":null"#)).await;
    let said: serde_json::Value = serde_json::from_slice(&again.body).expect("JSON");
    assert_eq!((again.status.as_u16(), again.is_replayed(), &said["bytes"]), (201, true, &1_000.into()));
    let again = front.send(small).await;
    assert_eq!((again.body.len(), again.is_replayed()), (100, true), "it fitted");
    let fits = Ask::under(&new_key()).with("x-bytes", 1_000);
    let (given, again) = (front.send(fits.clone()).await, front.send(fits).await);
    assert_eq!((again.whole(), again.is_replayed()), (given.whole(), true), "there is room again");
}

/// Streams pass as they come.
pub async fn stream_arrives_bit_by_bit(place: Place) {
    let (front, key) = (Front::on(place).await, new_key());
    let mut stream = front.begin(Ask::under(&key).with("x-stream", "yes")).await.into_body();
    let first = tokio::time::timeout(Duration::from_secs(30), stream.frame()).await.expect("at once");
    assert_eq!(first.expect("a frame").expect("no failure").into_data().expect("data"), "data: first\n\n");
    assert!(front.send(Ask::under(&key).with("x-stream", "yes")).await.is_replayed(), "it was carried out");
    front.send(Ask::plain("next")).await;
    let rest = tokio::time::timeout(Duration::from_secs(30), stream.collect()).await.expect("an end");
    assert_eq!(rest.expect("no failure").to_bytes(), "data: second\n\n");
}

/// Powertools, end to end: TTL: the second call is cached, the third after the expiry runs.
pub async fn what_is_over_is_carried_out_again(place: Place) {
    let retention = Duration::from_millis(1_000);
    let (front, key) = (Front::set(place, &[Set::Lease(retention), Set::Retention(retention)]).await, new_key());
    front.send(Ask::under(&key)).await;
    assert!(front.send(Ask::under(&key)).await.is_replayed());
    tokio::time::sleep(retention + Duration::from_millis(200)).await;
    assert_eq!(front.send(Ask::under(&key)).await.whole(), (200, format!("run 2 of {key}").as_str()));
}

/// powertools-python#1038, #4759: stuck for ever, or run twice. What is at work is neither.
pub async fn long_work_keeps_its_lease(place: Place) {
    let lease = Duration::from_secs(1);
    let (front, key) = (Front::set(place, &[Set::Lease(lease)]).await, new_key());
    let ask = || Ask::under(&key).with("x-delay-ms", 2_900);
    let (first, during) = tokio::join!(front.send(ask()), async {
        tokio::time::sleep(lease * 2).await;
        front.send(ask()).await
    });
    assert_eq!((first.status.as_u16(), during.status.as_u16()), (200, 409));
    assert_eq!(front.runs.count(&key), 1);
}

/// The service can remember its answer in its own transaction, and nobody tells it another reservation.
pub async fn service_is_told_its_reservation(place: Place) {
    let (front, key) = (Front::set(place, &[Set::ReservationHeader("ratchet-reservation")]).await, new_key());
    front.send(Ask::under(&key).with("ratchet-reservation", "forged")).await;
    let run = front.runs.of(&key).pop().expect("it was run");
    let told: Vec<_> = run.headers.get_all("ratchet-reservation").iter().collect();
    let [told] = told[..] else { panic!("one reservation: {told:?}") };
    let (id, token) = told.to_str().expect("text").split_once('.').expect("two parts");
    assert_eq!((id.len(), token.len()), (64, 32));
    assert_eq!(run.body, "{}");
    front.send(Ask::plain("plain").with("ratchet-reservation", "forged")).await;
    assert!(!front.runs.of("plain")[0].headers.contains_key("ratchet-reservation"));
}
