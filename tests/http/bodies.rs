//! Bodies: whole, too long, cut, without an end.

use std::time::{Duration, Instant};

use ratchet::effect::call::{AttemptOutcome, Status};
use ratchet::effect::provider::{AttemptEnd, Body};
use ratchet::provider::http::{HASHED_MAX, Settings};
use sha2::{Digest as _, Sha256};

use crate::http::caller::{Caller, code, rendered, settings};
use crate::provider::{Move, Plan, Provider};

fn answered(settings: Settings, plan: Plan) -> (AttemptEnd, Provider, Caller) {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings));
    provider.next([Move::act().body(plan)]);
    let heard = caller.call(rendered(&provider.url("/"), "a"));
    assert_eq!(heard.outcome, AttemptOutcome::Status(Status::of(201)), "{heard:?}");
    (heard, provider, caller)
}

fn digest(length: usize) -> Body {
    Body::Digest { sha256: Sha256::digest(vec![b'a'; length]).into(), bytes: length as u64 }
}

#[test]
fn body_is_kept_up_to_its_bound_and_hashed_beyond() {
    let settings = |body_bytes_max| Settings { body_bytes_max, ..settings() };
    let cases = [
        (Some(1 << 20), 1 << 20, Body::Whole(vec![b'a'; 1 << 20])),
        (Some(1 << 20), (1 << 20) + 1, digest((1 << 20) + 1)),
        (Some(0), 0, Body::None),
        (Some(0), HASHED_MAX, digest(HASHED_MAX)),
        (None, 1 << 10, Body::None),
    ];
    for (body_bytes_max, length, expected) in cases {
        let (heard, provider, mut caller) = answered(settings(body_bytes_max), Plan::Long(length));
        assert!(heard.body == expected, "{body_bytes_max:?}, {length} bytes");
        assert_eq!(heard.message, None);
        caller.call(rendered(&provider.url("/"), "b"));
        let connections: Vec<_> = provider.seen().iter().map(|seen| seen.connection).collect();
        assert_eq!(connections, [0, 0], "the connection is used again");
    }
}

/// 100 MB: the status counts, the connection is dropped, and little of it was read.
#[test]
fn huge_body_is_not_read_to_its_end() {
    for body_bytes_max in [None, Some(0), Some(64 << 10)] {
        let (heard, provider, mut caller) = answered(Settings { body_bytes_max, ..settings() }, Plan::Long(100 << 20));
        assert_eq!(heard.body, Body::None);
        let message = body_bytes_max
            .map(|_| "the body of the answer 201 was cut off: it is longer than 8388608 bytes".to_owned());
        assert_eq!(heard.message, message);
        assert_eq!(code(&caller.call(rendered(&provider.url("/"), "b"))), 201);
        assert_eq!(provider.seen().last().unwrap().connection, 1);
    }
}

#[test]
fn body_without_an_end_takes_as_long_as_an_attempt_may() {
    let timeout = Duration::from_secs(1);
    for body_bytes_max in [None, Some(64 << 10)] {
        let began = Instant::now();
        let (heard, provider, mut caller) = answered(Settings { body_bytes_max, timeout, ..settings() }, Plan::Endless);
        assert!(began.elapsed() >= timeout && heard.duration >= timeout);
        assert_eq!(heard.body, Body::None);
        let message = "the body of the answer 201 was cut off: not at its end within 1s";
        assert_eq!(heard.message.as_deref(), body_bytes_max.map(|_| message));
        assert_eq!(code(&caller.call(rendered(&provider.url("/"), "b"))), 201);
    }
}

#[test]
fn body_that_is_cut_leaves_the_status() {
    let (heard, provider, mut caller) = answered(settings(), Plan::Cut(b"half of".to_vec(), 99));
    assert_eq!(heard.body, Body::None);
    let message = heard.message.expect("somebody wants the body");
    assert!(message.starts_with("the body of the answer 201 was cut off: "), "{message}");
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), "b"))), 201);
    assert_eq!(provider.acts().len(), 2);
}

/// What is there of a body that is cut may still be about the key.
#[test]
fn cut_body_may_name_the_key() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    provider.next([Move::answer(400).body(Plan::Cut(b"idempotency_error".to_vec(), 99))]);
    let heard = caller.call(rendered(&provider.url("/"), "a"));
    assert_eq!(heard.outcome, AttemptOutcome::Status(Status { names_key: true, ..Status::of(400) }));
}

/// Requests may be large, too; and an answer may come before such a one was read.
#[test]
fn large_requests_arrive_or_are_answered_early() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    let long = "x".repeat(5 << 20);
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), &long))), 201);
    assert!(provider.seen()[0].body.as_ref().is_some_and(|body| body.len() == 5 << 20));
    let raw = crate::http::raw::Raw::start(|mut stream, _| {
        std::io::Read::read_exact(&mut stream, &mut [0; 4096]).unwrap();
        crate::http::raw::answer(&mut stream, "413 Content Too Large");
        std::thread::sleep(Duration::from_secs(60));
    });
    let began = Instant::now();
    let heard = caller.call(rendered(&format!("http://localhost:{}/", raw.port), &long));
    assert_eq!(code(&heard), 413);
    assert!(began.elapsed() < Duration::from_secs(9), "it does not wait for the rest");
}
