//! A lane's thread: it ends with the lane, and a panic in it is heard.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::{Duration, Instant};

use ratchet::effect::call::{AttemptOutcome, KeyWindow};
use ratchet::effect::provider::Provider as _;
use ratchet::provider::http::{Http, Settings};

use crate::http::caller::{Caller, code, rendered, settings, until};
use crate::provider::{Move, Provider};

/// What is under way is dropped with the lane, and nothing of the thread is left.
#[test]
fn thread_ends_with_its_lane() {
    let (provider, kept) = (Provider::start(), Arc::new(()));
    provider.always(Move::silence());
    let clock = {
        let kept = Arc::clone(&kept);
        Arc::new(move || {
            let _ = &kept;
            0
        })
    };
    let http = Http::with_clock(Settings { in_flight: 4, rate: Some(1_000.0), ..settings() }, clock).unwrap();
    assert_eq!(http.kind(), "http");
    let mut caller = Caller::of(&http);
    drop(http);
    for number in 0..20 {
        caller.submit(rendered(&provider.url("/"), &number.to_string()));
    }
    until("four have come", || provider.seen().len() == 4);
    let began = Instant::now();
    drop(caller);
    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    assert_eq!(Arc::strong_count(&kept), 1, "the thread has ended");
    until("its connections are closed", || {
        std::thread::sleep(Duration::from_millis(20));
        provider.seen().len() == 4
    });
}

/// While it waits for a name, a connection or a turn, too.
#[test]
fn thread_that_connects_ends_at_once() {
    let blackhole = crate::http::raw::Blackhole::new();
    let mut caller = Caller::new(settings());
    caller.submit(rendered(&format!("http://127.0.0.1:{}/", blackhole.port), "a"));
    std::thread::sleep(Duration::from_millis(100));
    let began = Instant::now();
    drop(caller);
    assert!(began.elapsed() < Duration::from_secs(3));
}

#[test]
fn thread_that_has_nothing_to_do_is_not_there() {
    drop(Caller::new(settings()));
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    caller.call(rendered(&provider.url("/"), "a"));
    assert!(caller.calls.take_end().is_none());
}

/// Lanes share nothing but their settings.
#[test]
fn lanes_have_a_window_each() {
    let provider = Provider::start();
    provider.always(Move::act().slow(Duration::from_millis(500)));
    let http = Http::new(Settings { in_flight: 2, ..settings() }).unwrap();
    let mut callers = [Caller::of(&http), Caller::of(&http), Caller::of(&http)];
    for (number, caller) in callers.iter_mut().enumerate() {
        for request in 0..6 {
            caller.submit(rendered(&provider.url("/"), &format!("{number}-{request}")));
        }
    }
    for caller in &mut callers {
        assert!(caller.hear(6).iter().all(|heard| code(heard) == 201));
    }
    assert_eq!(provider.most_at_once(), 6);
}

/// What was written is lost, what was not is not sent, and the next request goes on a new thread.
#[test]
fn panic_in_the_thread_is_heard() {
    let (provider, now) = (Provider::start(), Arc::new(AtomicI64::new(0)));
    let clock = {
        let now = Arc::clone(&now);
        Arc::new(move || match now.load(Ordering::SeqCst) {
            i64::MAX => panic!("the clock of the test panics"),
            now => now,
        })
    };
    let key_window = KeyWindow::new(Duration::from_secs(100), Duration::from_secs(10), Duration::from_secs(5));
    let settings = Settings { key_window, in_flight: 4, ..settings() };
    let mut caller = Caller::of(&Http::with_clock(settings, clock).unwrap());
    for round in 0..3 {
        provider.next([Move::silence(), Move::silence().acting()]);
        for number in 0..2 {
            caller.submit(rendered(&provider.url("/"), &format!("{round}-{number}")));
        }
        until("both have come", || provider.seen().len() == round * 3 + 2);
        now.store(i64::MAX, Ordering::SeqCst);
        for number in 2..7 {
            caller.submit(rendered(&provider.url("/"), &format!("{round}-{number}")));
        }
        let heard = caller.hear(7);
        let lost = heard.iter().filter(|heard| heard.outcome == AttemptOutcome::Lost).count();
        assert_eq!(lost, 2, "{heard:?}");
        assert!(heard[..2].iter().all(|heard| heard.outcome == AttemptOutcome::Lost), "{heard:?}");
        assert!(heard[2..].iter().all(|heard| heard.outcome == AttemptOutcome::NotSent), "{heard:?}");
        assert!(heard.iter().all(|heard| heard.message.as_ref().unwrap().contains("thread")));
        now.store(0, Ordering::SeqCst);
        assert_eq!(code(&caller.call(rendered(&provider.url("/"), &format!("{round}-last")))), 201);
        assert_eq!(provider.seen().len(), round * 3 + 3);
    }
}

/// A server that goes away while nothing is under way costs nothing.
#[test]
fn connections_that_nobody_uses_are_closed() {
    let (provider, mut caller) = (Provider::start(), Caller::new(settings()));
    caller.call(rendered(&provider.url("/"), "a"));
    caller.call(rendered(&provider.url("/"), "b"));
    std::thread::sleep(Duration::from_millis(5_500));
    caller.call(rendered(&provider.url("/"), "c"));
    let connections: Vec<_> = provider.seen().iter().map(|seen| seen.connection).collect();
    assert_eq!(connections, [0, 0, 1]);
}
