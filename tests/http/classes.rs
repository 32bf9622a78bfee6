//! What each answer is, and each failure at each moment.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ratchet::effect::call::{AttemptOutcome, RetryAfter, Status};
use ratchet::effect::provider::Body;
use ratchet::provider::http::Settings;

use crate::http::caller::{Caller, assert_lost, assert_not_sent, code, rendered, settings, until};
use crate::http::raw::{Raw, answer, read_request};
use crate::provider::{Move, Plan, Provider};

/// The first request acts; each one after it is told what the first was.
#[test]
fn provider_that_honours_keys_acts_once() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    let first = caller.call(rendered(&provider.url("/charges"), "a"));
    assert_eq!(first.outcome, AttemptOutcome::Status(Status::of(201)));
    assert_eq!(first.body, Body::Whole(b"{\"done\":true}".to_vec()));
    assert_eq!(first.message, None);
    let again = caller.call(rendered(&provider.url("/charges"), "a"));
    assert_eq!(again.outcome, AttemptOutcome::Status(Status { is_replayed: true, ..Status::of(201) }));
    assert_eq!(again.body, first.body);
    assert_eq!(provider.acts().into_values().collect::<Vec<_>>(), [1]);
    provider.forget_keys();
    assert_eq!(caller.call(rendered(&provider.url("/charges"), "a")).outcome, AttemptOutcome::Status(Status::of(201)));
    assert_eq!(provider.acts().into_values().collect::<Vec<_>>(), [2]);
}

/// A 5xx that was remembered is told apart from a new one.
#[test]
fn replayed_failure_is_seen_as_one() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    provider.next([Move::answer(500), Move::act().status(500)]);
    for is_replayed in [false, false, true] {
        let heard = caller.call(rendered(&provider.url("/"), "a"));
        assert_eq!(heard.outcome, AttemptOutcome::Status(Status { is_replayed, ..Status::of(500) }));
    }
}

#[test]
fn another_request_under_a_key_names_it() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    caller.call(rendered(&provider.url("/"), "a"));
    let other = ratchet::effect::provider::RenderedRequest {
        body: Some(b"other".to_vec()),
        ..rendered(&provider.url("/"), "a")
    };
    let heard = caller.call(other);
    assert_eq!(heard.outcome, AttemptOutcome::Status(Status { names_key: true, ..Status::of(400) }));
    provider.next([
        Move::answer(422).body(Plan::Bytes(b"{\"detail\": \"IDEMPOTENCY-KEY was used\"}".to_vec())),
        Move::answer(422).body(Plan::Bytes(b"{\"detail\": \"the amount is missing\"}".to_vec())),
        Move::answer(409).body(Plan::Bytes(b"idempotency".to_vec())),
    ]);
    for (code, names_key) in [(422, true), (422, false), (409, false)] {
        let heard = caller.call(rendered(&provider.url("/"), "b"));
        assert_eq!(heard.outcome, AttemptOutcome::Status(Status { names_key, ..Status::of(code) }));
    }
}

/// Also where nobody wants the body, or its beginning only.
#[test]
fn body_about_the_key_is_read_for_every_rule_that_needs_it() {
    let provider = Provider::start();
    for body_bytes_max in [None, Some(0), Some(3)] {
        let mut caller = Caller::new(Settings { body_bytes_max, ..settings() });
        provider.next([Move::answer(400).body(Plan::Bytes(b"{\"type\": \"idempotency_error\"}".to_vec()))]);
        let heard = caller.call(rendered(&provider.url("/"), "a"));
        assert_eq!(
            heard.outcome,
            AttemptOutcome::Status(Status { names_key: true, ..Status::of(400) }),
            "{body_bytes_max:?}"
        );
        assert_eq!(matches!(heard.body, Body::Digest { bytes: 29, .. }), body_bytes_max.is_some(), "{heard:?}");
    }
}

#[test]
fn status_and_retry_after_are_told_as_they_are() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    for status in [200, 202, 204, 300, 400, 401, 403, 404, 407, 408, 409, 421, 425, 429, 500, 502, 503, 504, 599] {
        provider.next([Move::answer(status)]);
        let heard = caller.call(rendered(&provider.url("/"), "a"));
        assert_eq!(heard.outcome, AttemptOutcome::Status(Status::of(status)), "{status}");
        assert_eq!((heard.body, heard.message), (Body::None, None));
    }
    for (value, retry_after) in [("7", Some(RetryAfter::Seconds(7))), ("soon", None)] {
        provider.next([Move::answer(429).header("retry-after", value)]);
        let heard = caller.call(rendered(&provider.url("/"), "a"));
        assert_eq!(heard.outcome, AttemptOutcome::Status(Status { retry_after, ..Status::of(429) }));
    }
    let date = "Sun, 06 Nov 1994 08:49:37 GMT";
    provider.next([Move::answer(503).header("retry-after", date)]);
    let heard = caller.call(rendered(&provider.url("/"), "a"));
    let retry_after = Some(RetryAfter::At(784_111_777));
    assert_eq!(heard.outcome, AttemptOutcome::Status(Status { retry_after, ..Status::of(503) }));
}

#[test]
fn redirects_are_not_followed() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    for status in [301, 302, 303, 307, 308] {
        provider.next([Move::answer(status).header("location", &provider.url("/elsewhere"))]);
        assert_eq!(code(&caller.call(rendered(&provider.url("/here"), "a"))), status);
    }
    let seen = provider.seen();
    assert_eq!(seen.len(), 5);
    assert!(seen.iter().all(|seen| seen.target == "/here" && seen.method == "POST"));
}

/// A cookie is not kept, and nothing asks for an encoding.
#[test]
fn answers_leave_nothing_behind() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    provider.next([Move::act().header("set-cookie", "a=b").header("content-encoding", "gzip")]);
    assert_eq!(caller.call(rendered(&provider.url("/"), "a")).body, Body::Whole(b"{\"done\":true}".to_vec()));
    caller.call(rendered(&provider.url("/"), "b"));
    for seen in provider.seen() {
        assert!(seen.header("cookie").is_empty() && seen.header("accept-encoding").is_empty(), "{seen:?}");
    }
}

/// Whether it has acted or not: nobody can know.
#[test]
fn answer_that_does_not_come_is_lost() {
    let provider = Provider::start();
    let mut caller = Caller::new(Settings { timeout: Duration::from_secs(1), ..settings() });
    let late = Duration::from_millis(2_500);
    let cases = [
        (Move::close(), "connection closed before message completed", 0),
        (Move::act().unheard(), "connection closed before message completed", 1),
        (Move::reset(), "onnection", 0),
        (Move::reset().acting(), "onnection", 1),
        (Move::silence(), "no answer within 1s", 0),
        (Move::silence().acting(), "no answer within 1s", 1),
        (Move::act().late(late), "no answer within 1s", 1),
        (Move::act().slow(late), "no answer within 1s", 1),
    ];
    for (number, (script, words, acts)) in cases.into_iter().enumerate() {
        provider.next([script.clone()]);
        let identity = number.to_string();
        let heard = caller.call(rendered(&provider.url(&format!("/{identity}")), &identity));
        assert_lost(&heard, words);
        assert_eq!(heard.duration >= Duration::from_secs(1), words.contains("within"), "{heard:?}");
        let key = crate::http::caller::key(&identity).to_string();
        let acted = || provider.acts().get(&key).copied().unwrap_or(0) == acts;
        until(&format!("{script:?}"), acted);
        assert_eq!(code(&caller.call(rendered(&provider.url("/next"), &format!("{identity} next")))), 201);
    }
}

/// A time-out is one attempt: nothing was made again by the driver itself.
#[test]
fn nothing_is_made_again() {
    let provider = Provider::start();
    let mut caller = Caller::new(Settings { timeout: Duration::from_secs(1), ..settings() });
    provider.next([Move::close(), Move::reset(), Move::silence(), Move::answer(503), Move::answer(408)]);
    for identity in ["a", "b", "c", "d", "e"] {
        caller.call(rendered(&provider.url("/"), identity));
    }
    let seen = provider.seen().into_iter().map(|seen| String::from_utf8(seen.body.unwrap()).unwrap());
    assert_eq!(seen.collect::<Vec<_>>(), ["a", "b", "c", "d", "e"]);
}

/// The connection is dead before the request is written: it goes by another, as nothing of it was written.
#[test]
fn connection_that_was_closed_while_nobody_used_it_is_noticed() {
    let raw = Raw::start(|mut stream, write_down| {
        if read_request(&mut stream, write_down).is_some() {
            answer(&mut stream, "201 Created");
        }
    });
    let mut caller = Caller::new(settings());
    let url = format!("http://localhost:{}/", raw.port);
    for number in 0..100 {
        assert_eq!(code(&caller.call(rendered(&url, &number.to_string()))), 201, "{number}");
        raw.await_closed(number + 1);
    }
}

/// The same without a pause, so that both cross: what was read was never said to be not sent, and nothing goes twice.
#[test]
fn connection_that_is_closed_as_a_request_comes_is_never_not_sent() {
    static ANSWERED: AtomicU64 = AtomicU64::new(0);
    let raw = Raw::start(|mut stream, write_down| {
        if read_request(&mut stream, write_down).is_some() {
            answer(&mut stream, "201 Created");
            // It may come in now: it is read, and nobody answers.
            let wait = 100 + 200 * (ANSWERED.fetch_add(1, Ordering::SeqCst) % 12);
            let _ = stream.set_read_timeout(Some(Duration::from_micros(wait)));
            read_request(&mut stream, write_down);
        }
    });
    let mut caller = Caller::new(settings());
    let url = format!("http://localhost:{}/", raw.port);
    let (mut lost, mut answered) = (0, 0);
    for number in 0..500_u32 {
        let heard = caller.call(rendered(&url, &format!("body-{number}-end")));
        let seen = String::from_utf8_lossy(&raw.all()).matches(&format!("body-{number}-end")).count();
        match heard.outcome {
            AttemptOutcome::Lost => lost += 1,
            AttemptOutcome::Status(_) => answered += 1,
            _ => panic!("{heard:?}, and it was seen {seen} times"),
        }
        assert!(seen <= 1, "{number} was sent {seen} times");
        assert!(seen == 1 || heard.outcome == AttemptOutcome::Lost);
    }
    assert!(lost > 0 && answered > 0, "{lost} lost, {answered} answered");
}

#[test]
fn answer_that_is_no_http_is_lost() {
    let raw = Raw::start(|mut stream, write_down| {
        if read_request(&mut stream, write_down).is_some() {
            std::io::Write::write_all(&mut stream, b"SSH-2.0-OpenSSH_9.2\r\n").unwrap();
            std::thread::sleep(Duration::from_secs(60));
        }
    });
    let heard = Caller::new(settings()).call(rendered(&format!("http://localhost:{}/", raw.port), "a"));
    assert_lost(&heard, "HTTP");
}

#[test]
fn heads_are_bounded() {
    let raw = Raw::start(|mut stream, write_down| {
        if read_request(&mut stream, write_down).is_some() {
            let long = format!("HTTP/1.1 201 Created\r\nx-long: {}", "a".repeat(1 << 20));
            let _ = std::io::Write::write_all(&mut stream, long.as_bytes());
            std::thread::sleep(Duration::from_secs(60));
        }
    });
    let heard = Caller::new(settings()).call(rendered(&format!("http://localhost:{}/", raw.port), "a"));
    assert_lost(&heard, "");
}

#[test]
fn provider_that_is_killed_and_comes_back_is_called_again() {
    let (mut provider, mut caller) = (Provider::start(), Caller::new(settings()));
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), "a"))), 201);
    provider.next([Move::silence()]);
    caller.submit(rendered(&provider.url("/"), "b"));
    until("it has come", || provider.seen().len() == 2);
    provider.kill();
    assert_lost(&caller.heard(), "onnection");
    assert_not_sent(&caller.call(rendered(&provider.url("/"), "c")), "connection refused");
    provider.restart();
    for (identity, is_replayed) in [("a", true), ("b", false), ("c", false)] {
        let heard = caller.call(rendered(&provider.url("/"), identity));
        assert_eq!(heard.outcome, AttemptOutcome::Status(Status { is_replayed, ..Status::of(201) }), "{identity}");
    }
    assert!(provider.acts().into_values().all(|acts| acts == 1));
}

/// A server that does not read: what is left of a request whose attempt is over is thrown away.
#[test]
fn request_that_has_timed_out_does_not_arrive_later() {
    let raw = Raw::start(|mut stream, write_down| {
        std::thread::sleep(Duration::from_secs(3));
        let mut all = Vec::new();
        let ended = std::io::Read::read_to_end(&mut stream, &mut all);
        write_down(format!("{} bytes, {:?}", all.len(), ended.map_err(|error| error.kind())).as_bytes());
    });
    let mut caller = Caller::new(Settings { timeout: Duration::from_secs(1), ..settings() });
    let long = "x".repeat(64 << 20);
    assert_lost(&caller.call(rendered(&format!("http://localhost:{}/", raw.port), &long)), "no answer within 1s");
    until("it has read", || !raw.all().is_empty());
    let read = String::from_utf8(raw.all()).unwrap();
    assert!(read.contains("ConnectionReset"), "{read}");
}
