//! How requests go: so many at once, at a rate, in order, and while the key is honoured.

use std::sync::Arc;
use std::time::{Duration, Instant};

use ratchet::effect::call::{AttemptOutcome, KeyWindow};
use ratchet::effect::provider::Request;
use ratchet::provider::http::Settings;

use crate::http::caller::{Caller, Clock, code, key, rendered, settings, until};
use crate::provider::{Move, Provider};

#[test]
fn no_more_than_may_are_on_the_wire() {
    for in_flight in [1, 8] {
        let provider = Provider::start();
        provider.always(Move::act().slow(Duration::from_millis(50)));
        let mut caller = Caller::new(Settings { in_flight, ..settings() });
        for number in 0..in_flight * 10 {
            caller.submit(rendered(&provider.url("/"), &number.to_string()));
        }
        for heard in caller.hear(in_flight * 10) {
            assert_eq!(code(&heard), 201);
            assert!(heard.duration >= Duration::from_millis(50));
        }
        assert_eq!(provider.most_at_once(), in_flight);
        let connections = provider.seen().iter().map(|seen| seen.connection).max().unwrap();
        assert!(connections < in_flight as u64, "{connections} connections");
    }
}

#[test]
fn requests_go_in_the_order_in_which_they_were_submitted() {
    let (provider, mut caller) = (Provider::start(), Caller::new(Settings { in_flight: 1, ..settings() }));
    for number in 0..200 {
        caller.submit(rendered(&provider.url("/"), &number.to_string()));
    }
    caller.hear(200);
    let keys: Vec<_> = provider.seen().into_iter().map(|seen| seen.key.unwrap()).collect();
    let expected: Vec<_> = (0..200).map(|number| key(&number.to_string()).to_string()).collect();
    assert_eq!(keys, expected);
}

#[test]
fn rate_is_kept() {
    let (provider, rate) = (Provider::start(), 50.0);
    let mut caller = Caller::new(Settings { rate: Some(rate), ..settings() });
    caller.call(rendered(&provider.url("/"), "first"));
    std::thread::sleep(Duration::from_millis(300));
    let began = Instant::now();
    for number in 0..40 {
        caller.submit(rendered(&provider.url("/"), &number.to_string()));
    }
    caller.hear(40);
    let seen = provider.seen();
    let at: Vec<_> = seen[1..].iter().map(|seen| seen.at.saturating_duration_since(began).as_secs_f64()).collect();
    for (number, at) in at.iter().enumerate() {
        // A tenth of a second's at once, then one after the other. The first ones may be seen late.
        let most = rate * 0.1 + rate * at + 1.0;
        assert!((number + 1) as f64 <= most, "{} after {at} s", number + 1);
    }
    let last = at.last().unwrap();
    assert!((0.65..3.0).contains(last), "{last}");
}

fn window() -> KeyWindow {
    let second = Duration::from_secs(1);
    KeyWindow::new(second * 100, second * 10, second * 5).unwrap()
}

/// The window is looked at when a request is written, not when it is submitted.
#[test]
fn request_that_waits_beyond_its_window_is_too_late() {
    let (provider, clock) = (Provider::start(), Clock::default());
    let settings = Settings { in_flight: 1, key_window: Some(window()), ..settings() };
    let mut caller = Caller::with_clock(settings, &clock);
    provider.next([Move::act().slow(Duration::from_millis(1_500))]);
    clock.set(84_999);
    caller.submit(rendered(&provider.url("/"), "a"));
    until("it has come", || provider.seen().len() == 1);
    caller.submit(rendered(&provider.url("/"), "b"));
    caller.submit(ratchet::effect::provider::RenderedRequest { key: None, ..rendered(&provider.url("/no-key"), "c") });
    clock.set(85_000);
    let heard = caller.hear(3);
    assert_eq!(code(&heard[0]), 201);
    assert_eq!((heard[1].outcome, heard[1].duration), (AttemptOutcome::TooLate, Duration::ZERO));
    assert!(heard[1].message.as_ref().unwrap().contains("window"));
    assert_eq!(code(&heard[2]), 201, "without a key there is no window");
    let targets: Vec<_> = provider.seen().into_iter().map(|seen| seen.target).collect();
    assert_eq!(targets, ["/", "/no-key"]);
    clock.set(0);
    assert_eq!(code(&caller.call(rendered(&provider.url("/"), "b"))), 201, "its connection is used again");
}

/// Also while it waits for a connection.
#[test]
fn window_is_looked_at_after_connecting() {
    let (provider, clock) = (Provider::by_two(), Clock::default());
    let settings = Settings { key_window: Some(window()), authorities: Some(provider.authority()), ..settings() };
    let through = crate::http::connecting::Slow::start(provider.port, Duration::from_secs(2));
    let mut caller = Caller::with_clock(settings, &clock);
    caller.submit(rendered(&format!("https://localhost:{}/", through.port), "a"));
    std::thread::sleep(Duration::from_millis(150));
    clock.set(85_000);
    assert_eq!(caller.heard().outcome, AttemptOutcome::TooLate);
    assert_eq!(provider.seen().len(), 0);
    assert!(through.connections() > 0, "it has connected");
}

/// What is heard is of the attempt that it was.
#[test]
fn attempts_are_told_apart() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    let rendered = Arc::new(rendered(&provider.url("/"), "a"));
    for attempt in [1, 2, 7] {
        caller.calls.submit(Request::for_http(5, attempt, 0, Arc::clone(&rendered)));
        let heard = caller.heard();
        assert_eq!((heard.number, heard.attempt), (5, attempt));
    }
    assert!(caller.calls.take_end().is_none());
}
